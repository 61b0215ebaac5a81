//! Programs that are excluded in ways that are easily missed. A managed program starts one long
//! before the daemon looks for processes again, or the daemon is in a container.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::effective_user;

use crate::executable::install;
use crate::fixture::{self, Daemon, Program};
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

/// Cgroups for a test below the root of version 2, removed at its end.
struct Groups(PathBuf);

impl Groups {
    /// `None` if this user may make none.
    fn below(tree: &str) -> Option<Self> {
        let own = Self(PathBuf::from(tree).join(format!("rondpoint-test{}", fixture::mark())));
        let made =
            ["", "daemon", "excluded", "wanted"].map(|name| fs::create_dir(own.0.join(name)));
        made.iter().all(Result::is_ok).then_some(own)
    }

    fn put(&self, name: &str, pid: u32) {
        let file = self.0.join(name).join("cgroup.procs");
        fs::write(file, pid.to_string()).expect("it is moved");
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for name in ["daemon", "excluded", "wanted", ""] {
            let _ = fs::remove_dir(self.0.join(name));
        }
    }
}

pub(crate) fn from_a_container(_: &CpuSet) {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it is there");
    let unified = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let tree = unified.filter_map(|line| line.split(' ').nth(1)).next();
    let groups = tree.filter(|_| effective_user() == 0).and_then(Groups::below);
    let (Some(tree), Some(groups)) = (tree, groups) else {
        println!("not tried: this user makes no cgroups of version 2");
        return;
    };
    let (excluded, wanted) = (Program::start("wanted-a"), Program::start("wanted-b"));
    groups.put("excluded", excluded.pid());
    groups.put("wanted", wanted.pid());
    let name = groups.0.file_name().expect("it has one").to_string_lossy().into_owned();
    let path = format!("/{name}/excluded");
    let rules = crate::rules() + &format!("cgroups = [\"{path}\"]\n");
    let daemon =
        Daemon::start_contained(tree.as_ref(), &groups.0.join("daemon"), "observe", &rules);
    let told = |pid: u32, word: &str| daemon.process(pid).map(|found| found[word].clone());
    daemon.wait_for("the wanted one", || told(wanted.pid(), "state") == Some("watched".into()));
    daemon.wait_for("the other", || told(excluded.pid(), "state") == Some("left".into()));
    assert_eq!(told(excluded.pid(), "why"), Some(format!("excluded: cgroup {path}").into()));
    daemon.end();
    drop((excluded, wanted));
}
