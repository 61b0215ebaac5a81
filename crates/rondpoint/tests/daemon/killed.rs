//! Daemons that are killed in the middle of their work.

use std::collections::BTreeMap;
use std::fs;

use rondpoint_core::CpuSet;

use crate::fixture::{self, Daemon, Program};
use crate::rules;

/// Runs in `./x test`. By hand: 100.
const USUAL_RUNS: u64 = 4;

/// Every second daemon freezes processes while it moves their pages.
const FREEZES: &str = "[budget]\nfreeze = true\n";

pub(crate) fn again_and_again(own: &CpuSet) {
    let text = std::env::var("RONDPOINT_RUNS").ok();
    let runs = text.map_or(USUAL_RUNS, |text| text.parse().expect("RONDPOINT_RUNS: a number"));
    let programs = [Program::start("wanted-a"), Program::start("wanted-b")];
    let narrow = || programs.iter().any(|one| one.worker.narrow_threads(own) > 1);
    let before = programs.each_ref().map(|one| policies(one.pid()));
    let folder = fixture::folder();
    for run in 0..runs {
        let rules = if run % 2 == 0 { rules() } else { rules() + FREEZES };
        let daemon = Daemon::start_in(folder.clone(), "act", &rules);
        if !daemon.can_act() {
            return;
        }
        daemon.wait_for("a mask", narrow);
        // Somewhere else in its round each time.
        (0..run % 7).for_each(|_| drop(daemon.json(&["status", "--json"])));
        daemon.kill();
        let next = Daemon::start_in(folder.clone(), "observe", &rules);
        for (one, before) in programs.iter().zip(&before) {
            assert_eq!(one.worker.narrow_threads(own), 1, "run {run}");
            check_policies(before, &policies(one.pid()), run);
            let states = states(one.pid());
            let is_stopped = states.iter().any(|state| ["T", "t"].contains(&state.as_str()));
            assert!(!states.is_empty() && !is_stopped, "run {run}: {states:?}");
            assert!(!is_frozen(one.pid()), "run {run}");
            assert!(one.worker.goes_on(), "run {run}");
        }
        next.end();
        assert_eq!(fixture::ledgers_in(folder.path()), 0, "run {run}");
    }
    println!("{runs} daemons killed");
}

/// The memory policy of each mapping by its address, as `/proc/PID/numa_maps` has them. A kernel
/// without NUMA has no such file.
fn policies(pid: u32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
    let policy = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        Some((address.to_string(), rest.split(' ').next()?.to_string()))
    };
    text.lines().filter_map(policy).collect()
}

/// Mappings that were there before have the policies that they had. The program maps others anew
/// all the time.
fn check_policies(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>, run: u64) {
    let kept: Vec<&String> = before.keys().filter(|one| after.contains_key(*one)).collect();
    assert!(before.is_empty() || kept.len() > 3, "run {run}: {after:?}");
    for address in kept {
        assert_eq!(after[address], before[address], "run {run}: mapping {address}");
    }
}

/// State of each thread of a process, as `R`, `S` or `T`.
fn states(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let state = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("stat")).ok()?;
        Some(text.rsplit(')').next()?.split_whitespace().next()?.to_string())
    };
    threads.filter_map(state).collect()
}

/// Whether the process's cgroup of version 2 is frozen. The first cgroup has no such file.
fn is_frozen(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let freeze = fs::read_to_string(format!("/sys/fs/cgroup{group}/cgroup.freeze"));
    freeze.is_ok_and(|freeze| freeze.trim() != "0")
}
