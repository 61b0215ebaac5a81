//! A managed program starts an excluded one, long before the daemon looks for processes again.

use std::process::{Command, Stdio};

use rondpoint_core::CpuSet;

use crate::executable::install;
use crate::fixture::{self, Daemon};
use crate::worker::Worker;

/// Masks of the program that is not excluded, seen one after the other.
const MASKS: usize = 8;

/// Waits, and then starts both programs.
const SCRIPT: &str = "#!/bin/sh
while [ ! -e \"$5\" ]; do sleep 0.05; done
\"$1\" as-worker \"$2\" &
\"$3\" as-worker \"$4\" &
wait
";

pub(crate) fn is_not_changed(own: &CpuSet, rules: &str) {
    let folder = fixture::folder();
    let at = |name: &str| folder.path().join(name);
    let script = at(&format!("wanted-s{}", fixture::mark()));
    std::fs::write(at("script"), SCRIPT).expect("written");
    install(at("script"), &script);
    let program = std::env::current_exe().expect("this program");
    let other = at(&format!("other-b{}", fixture::mark()));
    std::os::unix::fs::symlink(&program, &other).expect("a link");
    let mut command = Command::new(&script);
    command.arg(&program).arg(at("ready")).arg(&other).arg(at("other-ready")).arg(at("go"));
    let mut shell = command.stdin(Stdio::null()).spawn().expect("it starts");
    let (plain, excluded) = (Worker::named_in(at("ready")), Worker::named_in(at("other-ready")));
    let rare = rules.replace("look_every_s = 0.1", "look_every_s = 3600.0");
    assert_ne!(rare, rules);
    let daemon = Daemon::start("act", &rare);
    let state = |pid: u32| daemon.process(pid).map(|found| found["state"].clone());
    daemon.wait_for("the script", || state(shell.id()) == Some("managed".into()));
    std::fs::write(at("go"), "").expect("written");
    daemon.wait_for("both programs", || plain.is_ready() && excluded.is_ready());
    if daemon.can_act() {
        let mut masks = plain.masks();
        for _ in 0..MASKS {
            daemon.wait_for("another mask", || plain.masks() != masks);
            masks = plain.masks();
            assert_eq!(excluded.narrow_threads(own), 1, "it chose one itself");
        }
        daemon.wait_for("it", || state(excluded.pid()) == Some("left".into()));
        // Nothing excludes it any more, so it joins its parent's tree.
        let exclude = "[exclude]\ncommands = [\"";
        daemon.configure("act", &rare.replace(exclude, &format!("{exclude}x-")));
        assert!(daemon.ask(&["reload"]).success);
        daemon.wait_for("its return", || state(excluded.pid()) == Some("managed".into()));
    }
    daemon.end();
    drop((plain, excluded));
    shell.wait().expect("ours");
}
