//! A watched process that sleeps for long. The daemon leaves it out of its looks after some time,
//! and still tells of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rondpoint_linux::syscall::process::effective_user;
use serde_json::Value;

use crate::Sleepers;
use crate::fixture::{self, Daemon};

/// Longer than the daemon keeps an idle process in its looks.
const SLEEPS: Duration = Duration::from_secs(25);

pub(crate) fn is_shown(rules: &str) {
    let folder = fixture::folder();
    let path = folder.path().join(format!("wanted-i{}", fixture::mark()));
    std::os::unix::fs::symlink(fixture::program("sleep"), &path).expect("a link");
    let sleeper = Sleepers::of(&[path.to_str().expect("text"), "600"], effective_user());
    let pid: u32 = sleeper.pid(0).parse().expect("a number");
    // A policy that moves threads at random would keep the process in all looks.
    let calm = rules.replace("shuffle", "home");
    assert_ne!(calm, rules);
    let daemon = Daemon::start("observe", &calm);
    let process = || daemon.process(pid).unwrap_or_default();
    daemon.wait_for("its memory", || process()["memory_bytes"].is_array());
    let until = Instant::now() + SLEEPS;
    while Instant::now() < until {
        let shown = process();
        let memory = shown["memory_bytes"].as_array().into_iter().flatten();
        let memory: u64 = memory.filter_map(Value::as_u64).sum();
        assert!(memory > 0, "{shown}");
        assert_eq!((&shown["state"], &shown["threads"]), (&"watched".into(), &1.into()));
        let explained = daemon.json(&["explain", "--json", &sleeper.pid(0)]);
        let threads = explained["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 1, "{explained}");
        assert_eq!(threads[0]["tid"], pid);
        sleep(Duration::from_secs(1));
    }
    daemon.end();
}
