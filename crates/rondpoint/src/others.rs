//! Other programs and settings that place memory or threads on this machine. Another Rondpoint is
//! recognised by the claims on its processes.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::Pid;
use rondpoint_linux::observe::kernel::numa_balancing;
use rondpoint_linux::observe::offers::{Feature, Offer, offer};
use rondpoint_linux::syscall::process::effective_user;
use rondpoint_linux::{Root, root};

use crate::control::protocol::Other;

/// Programs that place the memory or the threads of whole processes.
const MANAGERS: [&str; 3] = ["numad", "oeaware", "memtierd"];
/// What the kernel calls DAMON's threads, before their number.
const DAMON_THREAD: &str = "kdamond.";
const DAMON: &str = "kernel/mm/damon/admin/kdamonds";
/// DAMON's actions that move memory to another node
/// (Documentation/admin-guide/mm/damon/usage.rst, from Linux 6.11 on).
const MOVING: [&str; 2] = ["migrate_hot", "migrate_cold"];

/// All other managers that are found among processes, by command and number, and in `/sys`.
/// Nothing here needs privilege; a manager that cannot be read is not found.
///
/// Every user may give a process any name. So a name counts only if the process belongs to root or
/// to this user.
pub(crate) fn find<'a>(from: &Root, processes: impl Iterator<Item = (&'a str, Pid)>) -> Vec<Other> {
    let mut others = Vec::new();
    let mut damon_threads = 0;
    let is_named = |name: &str| MANAGERS.contains(&name) || name.starts_with(DAMON_THREAD);
    for (command, pid) in processes.filter(|(command, _)| is_named(command)) {
        if root::owner(from, pid).is_some_and(|owner| [0, effective_user()].contains(&owner)) {
            others.extend(manager(command, pid));
            damon_threads += u32::from(command.starts_with(DAMON_THREAD));
        }
    }
    others.extend(sched_ext(from));
    others.extend(damon(from, damon_threads));
    others.extend(cache_aware(from));
    others.extend(balancing(from));
    others
}

/// Whether one of them places whole processes, as the daemon would.
pub(crate) fn is_rival(other: &Other) -> bool {
    MANAGERS.contains(&other.kind.as_str())
}

fn manager(command: &str, pid: Pid) -> Option<Other> {
    MANAGERS.contains(&command).then(|| Other {
        kind: command.to_string(),
        pid: Some(pid.0),
        what: format!(
            "{command} places whole processes here: the daemon changes nothing while it runs"
        ),
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

/// A scheme of DAMON that runs (Documentation/admin-guide/mm/damon/usage.rst).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scheme {
    action: String,
    /// Whose memory it watches; empty where it watches physical memory.
    pids: BTreeSet<Pid>,
}

/// The schemes of all contexts that are on.
fn schemes(from: &Root) -> Vec<Scheme> {
    let below = |folder: &str| -> Vec<String> {
        let names = root::list(&from.in_sys(folder)).unwrap_or_default();
        let numbers = names.into_iter().filter(|name| name.parse::<u32>().is_ok());
        numbers.map(|name| format!("{folder}/{name}")).collect()
    };
    let is_on =
        |thread: &String| text(from, &format!("{thread}/state")).is_some_and(|state| state == "on");
    let threads = below(DAMON).into_iter().filter(is_on);
    let contexts = threads.flat_map(|thread| below(&format!("{thread}/contexts")));
    let mut found = Vec::new();
    for context in contexts {
        let watched = below(&format!("{context}/targets"));
        let pids: BTreeSet<Pid> = watched
            .iter()
            .filter_map(|target| text(from, &format!("{target}/pid_target"))?.parse().ok())
            .filter(|pid| *pid > 0)
            .map(Pid)
            .collect();
        for scheme in below(&format!("{context}/schemes")) {
            if let Some(action) = text(from, &format!("{scheme}/action")) {
                found.push(Scheme { action, pids: pids.clone() });
            }
        }
    }
    found
}

/// Processes whose memory a scheme of DAMON moves: they are DAMON's, by the scheme's action.
pub(crate) fn moved_by_damon(from: &Root) -> BTreeMap<Pid, String> {
    let moving = schemes(from).into_iter().filter(|one| MOVING.contains(&one.action.as_str()));
    moving
        .flat_map(|one| {
            let Scheme { action, pids } = one;
            pids.into_iter().map(move |pid| (pid, action.clone()))
        })
        .collect()
}

/// Schemes that only watch are no manager. The files are root's; the threads are seen by everybody.
fn damon(from: &Root, threads: u32) -> Option<Other> {
    let found = schemes(from);
    let moving: BTreeSet<&str> = found
        .iter()
        .map(|scheme| scheme.action.as_str())
        .filter(|action| MOVING.contains(action))
        .collect();
    let is_readable = !found.is_empty() || text(from, &format!("{DAMON}/nr_kdamonds")).is_some();
    let what = match (moving.is_empty(), is_readable) {
        (false, _) => format!(
            "DAMON moves memory ({}): its moves do not count as Rondpoint's",
            moving.into_iter().collect::<Vec<_>>().join(", ")
        ),
        (true, false) if threads > 0 => {
            "DAMON runs; only root sees whether it moves memory, which counts as moved by others"
                .to_string()
        }
        (true, _) => return None,
    };
    Some(Other { kind: "damon".to_string(), pid: None, what })
}

/// The scheduler's balancing by last-level cache. Only root sees its switch.
fn cache_aware(from: &Root) -> Option<Other> {
    let what = "the kernel's scheduler gathers threads that share memory at one cache: masks prevail over it";
    (offer(from, Feature::CacheAware) == Offer::On).then(|| Other {
        kind: "cache_aware".to_string(),
        pid: None,
        what: what.to_string(),
    })
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

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let from = Root::captured(folder.path());
        (folder, from)
    }

    fn kinds(from: &Root, processes: &[(&str, Pid)]) -> Vec<String> {
        find(from, processes.iter().copied()).into_iter().map(|other| other.kind).collect()
    }

    #[test]
    fn managers_schedulers_and_the_kernels_balancing_are_named() {
        let (_folder, from) = machine(&[
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "rusty\n"),
            ("sys/kernel/debug/sched/llc_balancing/enabled", "1\n"),
            ("proc/sys/kernel/numa_balancing", "2\n"),
            ("proc/7/comm", "numad\n"),
        ]);
        let processes = [("bash", Pid(6)), ("numad", Pid(7)), ("memtierd", Pid(8))];
        let found = find(&from, processes.into_iter());
        let kinds: Vec<&str> = found.iter().map(|other| other.kind.as_str()).collect();
        assert_eq!(kinds, ["numad", "sched_ext", "cache_aware", "numa_balancing"]);
        assert!(found[1].what.contains("rusty"), "{}", found[1].what);
        let rivals: Vec<_> = found.iter().filter(|other| is_rival(other)).collect();
        assert_eq!(rivals.iter().map(|one| one.pid).collect::<Vec<_>>(), [Some(7)]);
        let (_nothing, from) = machine(&[]);
        assert!(find(&from, [("bash", Pid(6))].into_iter()).is_empty());
    }

    #[test]
    fn damon_is_a_manager_where_it_moves_memory_and_its_targets_are_its_own() {
        let one = format!("sys/{DAMON}/1/contexts/0");
        let (state, count) = (format!("sys/{DAMON}/1/state"), format!("sys/{DAMON}/nr_kdamonds"));
        let (action, target) =
            (format!("{one}/schemes/0/action"), format!("{one}/targets/0/pid_target"));
        let with = |state_text: &str, action_text: &str| {
            machine(&[
                (&count, "2\n"),
                (&state, state_text),
                (&action, action_text),
                (&target, "41\n"),
                ("proc/9/comm", "kdamond.1\n"),
            ])
        };
        let thread = [("kdamond.1", Pid(9))];
        let (_moves, from) = with("on\n", "migrate_hot\n");
        assert_eq!(kinds(&from, &thread), ["damon"]);
        assert_eq!(moved_by_damon(&from), BTreeMap::from([(Pid(41), "migrate_hot".to_string())]));
        let (_watches, from) = with("on\n", "stat\n");
        assert_eq!(kinds(&from, &thread), [""; 0]);
        assert!(moved_by_damon(&from).is_empty());
        let (_off, from) = with("off\n", "migrate_hot\n");
        assert_eq!(kinds(&from, &thread), [""; 0]);
        let (_unreadable, from) = machine(&[("proc/9/comm", "kdamond.1\n")]);
        assert_eq!(kinds(&from, &thread), ["damon"], "its thread is seen");
    }

    #[test]
    fn a_name_of_a_manager_counts_for_nothing_if_another_user_chose_it() {
        const STRANGER: u32 = 65_534;
        if effective_user() != 0 {
            println!("not tried: only root gives a file to another user");
            return;
        }
        let (folder, from) = machine(&[("proc/7/comm", "numad\n"), ("proc/9/comm", "x\n")]);
        let processes = [("numad", Pid(7)), ("kdamond.0", Pid(9))];
        assert_eq!(kinds(&from, &processes), ["numad", "damon"]);
        for pid in ["7", "9"] {
            let path = folder.path().join("proc").join(pid);
            std::os::unix::fs::chown(path, Some(STRANGER), None).unwrap();
        }
        assert_eq!(kinds(&from, &processes), [""; 0]);
    }
}
