//! Whether something else places threads or memory here.

use anyhow::Result;
use rondpoint_core::Pid;
use rondpoint_linux::{Root, root};

use super::{Check, good, limited};
use crate::others;

/// Programs and settings that place threads or memory too: two masters undo each other's work. The
/// kernel's balancing has a check of its own.
pub(super) fn check(root: &Root) -> Result<Check> {
    const NAME: &str = "other managers";
    let mut running = Vec::new();
    for name in root::list(&root.proc)? {
        let Ok(pid) = name.parse() else { continue };
        let command = root::read_optional(&root.in_proc(format!("{name}/comm"))).ok().flatten();
        let text = command.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_string());
        running.extend(text.map(|text| (text, Pid(pid))));
    }
    let found = others::find(root, running.iter().map(|(command, pid)| (command.as_str(), *pid)));
    let found: Vec<_> = found.iter().filter(|other| other.kind != "numa_balancing").collect();
    let all: Vec<&str> = found.iter().map(|other| other.what.as_str()).collect();
    Ok(match (all.is_empty(), found.iter().find(|other| others::is_rival(other))) {
        (true, _) => good(NAME, "none is running"),
        (false, None) => limited(NAME, all.join("; "), None),
        (false, Some(rival)) => {
            let stop = format!("sudo systemctl stop {}", rival.kind);
            limited(NAME, all.join("; "), Some(&stop))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_manager_is_told_with_the_command_that_stops_it_and_a_setting_without() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let from = Root::captured(folder.path());
        put("proc/sys/kernel/numa_balancing", "1\n");
        assert_eq!(check(&from).unwrap().verdict, Verdict::Good, "the balancing has its own check");
        put("sys/kernel/sched_ext/state", "enabled\n");
        let found = check(&from).unwrap();
        assert_eq!((found.verdict, found.fix), (Verdict::Limited, None));
        put("proc/7/comm", "numad\n");
        put("proc/7/status", "Uid:\t0\t0\t0\t0\nNSpid:\t7\n");
        std::os::unix::fs::symlink("/usr/bin/numad", from.in_proc("7/exe")).unwrap();
        let found = check(&from).unwrap();
        assert_eq!(found.fix.as_deref(), Some("sudo systemctl stop numad"));
        assert!(found.finding.contains("numad") && found.finding.contains("sched_ext"));
    }
}
