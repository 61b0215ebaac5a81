//! Other programs and settings that place memory or threads on this machine. Another Rondpoint is
//! known by the claims that it holds on its processes.

use rondpoint_core::Pid;
use rondpoint_linux::observe::kernel::numa_balancing;
use rondpoint_linux::{Root, root};

use super::census::Census;
use crate::control::protocol::Other;

/// All other managers that are found. Nothing here needs privilege; a manager that cannot be read
/// is not found.
pub(super) fn find(from: &Root, census: &Census) -> Vec<Other> {
    let mut others: Vec<Other> = census
        .iter()
        .filter_map(|known| manager(&known.facts.command, known.identity.pid))
        .collect();
    others.extend(sched_ext(from));
    others.extend(damon(from));
    others.extend(balancing(from));
    others
}

/// Whether one of them places whole processes, as the daemon would.
pub(super) fn is_rival(other: &Other) -> bool {
    other.kind == "numad"
}

fn manager(command: &str, pid: Pid) -> Option<Other> {
    (command == "numad").then(|| Other {
        kind: command.to_string(),
        pid: Some(pid.0),
        what: "numad places large processes here: nothing is changed while it runs".to_string(),
    })
}

fn text(from: &Root, path: &str) -> Option<String> {
    let bytes = root::read_optional(&from.in_sys(path)).ok()??;
    Some(String::from_utf8_lossy(&bytes).trim().to_string())
}

/// `/sys/kernel/sched_ext` (Linux 6.12).
fn sched_ext(from: &Root) -> Option<Other> {
    if text(from, "kernel/sched_ext/state")? != "enabled" {
        return None;
    }
    let name = text(from, "kernel/sched_ext/root/ops").unwrap_or_else(|| "unknown".to_string());
    let what = format!(
        "the sched_ext scheduler {name} places threads: it keeps to their masks, and so the daemon's moves of threads bind it"
    );
    Some(Other { kind: "sched_ext".to_string(), pid: None, what })
}

/// DAMON's schemes that move memory (Documentation/admin-guide/mm/damon/usage.rst).
fn damon(from: &Root) -> Option<Other> {
    let folder = "kernel/mm/damon/admin/kdamonds";
    let threads = root::list(&from.in_sys(folder)).ok()?;
    let is_on = |name: &&String| {
        text(from, &format!("{folder}/{name}/state")).is_some_and(|state| state == "on")
    };
    let running = threads.iter().filter(is_on).count();
    let what = format!(
        "{running} DAMON threads run schemes: pages that they migrate count as moved by others"
    );
    (running > 0).then(|| Other { kind: "damon".to_string(), pid: None, what })
}

fn balancing(from: &Root) -> Option<Other> {
    let found = numa_balancing(from)?;
    let what = match (found.ordinary, found.tiering) {
        (false, false) => return None,
        (true, false) => {
            "the kernel's NUMA balancing is on: it moves pages too, and trials tell which moves helped"
        }
        (false, true) => "the kernel's memory tiering is on: it promotes hot pages from slow nodes",
        (true, true) => "the kernel's NUMA balancing and memory tiering are on",
    };
    Some(Other { kind: "numa_balancing".to_string(), pid: None, what: what.to_string() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn schedulers_schemes_and_the_kernels_balancing_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let from = Root::captured(folder.path());
        let census = Census::default();
        assert!(find(&from, &census).is_empty());
        let write = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(from.in_sys("kernel/sched_ext/state"), "enabled\n");
        write(from.in_sys("kernel/sched_ext/root/ops"), "rusty\n");
        write(from.in_sys("kernel/mm/damon/admin/kdamonds/0/state"), "on\n");
        write(from.in_sys("kernel/mm/damon/admin/kdamonds/1/state"), "off\n");
        write(from.in_proc("sys/kernel/numa_balancing"), "2\n");
        let found = find(&from, &census);
        let kinds: Vec<&str> = found.iter().map(|other| other.kind.as_str()).collect();
        assert_eq!(kinds, ["sched_ext", "damon", "numa_balancing"]);
        assert!(found[0].what.contains("rusty") && found[1].what.starts_with("1 DAMON"));
        assert!(!found.iter().any(is_rival));
        assert!(is_rival(&manager("numad", Pid(7)).unwrap()));
        assert_eq!(manager("bash", Pid(7)), None);
    }
}
