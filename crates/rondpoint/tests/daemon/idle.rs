//! A managed process that sleeps for long. The daemon leaves it out of its looks after some time.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::fixture::{self, Daemon};

/// Longer than the daemon keeps an idle process in its looks.
const SLEEPS: Duration = Duration::from_secs(25);

pub(crate) fn is_shown(rules: &str) {
    let folder = fixture::folder();
    let path = folder.path().join(format!("wanted-i{}", fixture::mark()));
    std::os::unix::fs::symlink(fixture::program("sleep"), &path).expect("a link");
    let mut command = Command::new(&path);
    let mut child = command.arg("600").stdin(Stdio::null()).spawn().expect("it starts");
    // A policy that moves threads at random would keep the process in all looks.
    let calm = rules.replace("shuffle", "home");
    assert_ne!(calm, rules);
    let daemon = Daemon::start("observe", &calm);
    let process = || daemon.process(child.id()).unwrap_or_default();
    daemon.wait_for("its memory", || process()["memory_bytes"].is_array());
    let until = Instant::now() + SLEEPS;
    while Instant::now() < until {
        let shown = process();
        let memory = shown["memory_bytes"].as_array().into_iter().flatten();
        let memory: u64 = memory.filter_map(|bytes| bytes.as_u64()).sum();
        assert!(memory > 0, "{shown}");
        assert_eq!((&shown["state"], &shown["threads"]), (&"watched".into(), &1.into()));
        let explained = daemon.json(&["explain", "--json", &child.id().to_string()]);
        let threads = explained["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 1, "{explained}");
        assert_eq!(threads[0]["tid"], child.id());
        sleep(Duration::from_secs(1));
    }
    daemon.end();
    child.kill().and_then(|()| child.wait()).expect("ours");
}
