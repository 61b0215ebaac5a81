//! Whether the kernel counts memory bandwidth by resctrl, for tools other than Rondpoint.

use rondpoint_linux::{Root, root};

use super::{Check, good, missing};

/// The bandwidth monitoring of resctrl. It counts for groups, and a task is in one group at a time.
/// To count a process, Rondpoint would have to take its threads out of an administrator's groups.
pub(super) fn check(root: &Root) -> Check {
    const NAME: &str = "resctrl";
    let path = root.in_sys("fs/resctrl/info/L3_MON/mon_features");
    match root::read_optional(&path) {
        Ok(Some(features)) => {
            let features = String::from_utf8_lossy(&features).trim().replace('\n', ", ");
            good(NAME, format!("not used by Rondpoint; counts for groups of tasks: {features}"))
        }
        _ if root.in_sys("fs/resctrl").exists() => {
            good(NAME, "not used by Rondpoint; known to the kernel, not mounted")
        }
        _ => missing(NAME, "no memory bandwidth monitoring in this processor or kernel", None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn resctrl_is_told_and_nobody_is_asked_to_mount_what_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let from = Root::captured(folder.path());
        assert_eq!(check(&from).verdict, Verdict::Missing);
        let info = from.in_sys("fs/resctrl/info/L3_MON");
        std::fs::create_dir_all(from.in_sys("fs/resctrl")).expect("made");
        let unmounted = check(&from);
        std::fs::create_dir_all(&info).expect("made");
        std::fs::write(info.join("mon_features"), "llc_occupancy\nmbm_total_bytes\n")
            .expect("written");
        let mounted = check(&from);
        for found in [&unmounted, &mounted] {
            assert!(found.finding.contains("not used by Rondpoint"), "{}", found.finding);
            assert_eq!(found.fix, None);
        }
        assert!(mounted.finding.contains("mbm_total_bytes"), "{}", mounted.finding);
    }
}
