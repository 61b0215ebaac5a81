//! The processes that a tree takes along, and those that outlive its root.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::effective_user;

use crate::fixture::{self, Daemon, Program};
use crate::launcher::Launcher;
use crate::worker::Worker;
use crate::{Sleepers, rules};

/// A program in the background of a shell that ends when the file `$3` is there.
const SCRIPT: &str = "
( \"$1\" as-worker \"$2\" & while [ -d \"${3%/*}\" ] && [ ! -e \"$3\" ]; do sleep 0.05; done ) &
while [ -d \"${3%/*}\" ]; do sleep 1; done";

/// A launcher ends before the program that it started. Then no list names the launcher any more.
pub(crate) fn reloaded_without_root(_: &CpuSet) {
    let daemon = Daemon::start("act", &rules());
    let folder = fixture::folder();
    let launcher = folder.path().join(format!("wanted-s{}", fixture::mark()));
    symlink("/bin/sh", &launcher).expect("a link");
    let own = Launcher::start(&daemon, launcher.to_str().expect("text"), effective_user());
    let managed = Some("managed".to_string());
    daemon.wait_for("the tree", || daemon.state(own.child) == managed);
    own.end_the_shell();
    let root: u32 = own.shell.pid(0).parse().expect("a number");
    daemon.wait_for("its end", || daemon.process(root).is_none());
    assert_eq!(daemon.state(own.child), managed, "the tree lives while a process of it does");
    assert!(daemon.ask(&["reload"]).success);
    assert_eq!(daemon.state(own.child), managed, "a list still names the launcher");
    daemon.configure("act", &rules().replace("wanted-", "else-"));
    assert!(daemon.ask(&["reload"]).success);
    assert_ne!(daemon.state(own.child), managed);
    drop(own);
    daemon.end();
}

/// It was asked for, and later a list names it too. Then the request is taken back.
pub(crate) fn whose_request_was_withdrawn(_: &CpuSet) {
    let daemon = Daemon::start("observe", &rules());
    let program = Program::start("else-w");
    let pid = program.pid().to_string();
    let why = || daemon.process(program.pid()).map(|found| found["why"].clone());
    assert!(daemon.ask(&["manage", &pid]).success);
    assert_eq!(why(), Some("by request".into()));
    daemon.configure("observe", &rules().replace("wanted-", "else-"));
    assert!(daemon.ask(&["reload"]).success);
    assert_eq!(why(), Some("by request".into()));
    assert!(daemon.ask(&["manage", "--withdraw", &pid]).success);
    let list = format!("command else-*{}", fixture::mark());
    assert_eq!(why(), Some(list.into()), "the list has it, and no request");
    assert_eq!(daemon.state(program.pid()), Some("watched".to_string()));
    daemon.end();
}

/// The process that started the daemon is managed.
pub(crate) fn of_the_daemons_parent(_: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root may ask for the process that runs the tests");
        return;
    }
    let daemon = Daemon::start("observe", &rules());
    let worker = Sleepers::start(1, 0);
    assert!(daemon.ask(&["manage", &std::process::id().to_string()]).success);
    let child = worker.pid(0).parse().expect("a number");
    daemon.wait_for("a child", || daemon.state(child) == Some("watched".to_string()));
    let own = daemon.json(&["status", "--json"])["pid"].as_u64().expect("a number");
    assert_eq!(daemon.state(own as u32), None);
    daemon.end();
}

/// Its parent has ended, and what takes in orphans is excluded.
pub(crate) fn with_an_orphan(_: &CpuSet) {
    let folder = fixture::folder();
    let at = |name: &str| folder.path().join(name);
    let shell = at(&format!("wanted-s{}", fixture::mark()));
    symlink("/bin/sh", &shell).expect("a link");
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(&shell);
    command.args(["-c", SCRIPT, "sh"]).arg(&program).arg(at("ready")).arg(at("go"));
    let mut root = command.stdin(Stdio::null()).spawn().expect("it starts");
    let worker = Worker::named_in(at("ready"));
    let first = std::fs::read_to_string("/proc/1/comm").expect("it is there");
    let exclude = "[exclude]\ncommands = [";
    let more = format!("{exclude}\"{}\", ", first.trim_end());
    let daemon = Daemon::start("act", &rules().replace(exclude, &more));
    daemon.wait_for("the program", || worker.is_ready());
    let moved = || daemon.process(worker.pid()).and_then(|found| found["moved_threads"].as_u64());
    let parent = || parent_of(worker.pid());
    if daemon.can_act() {
        daemon.wait_for("a move", || moved() > Some(0));
        let before = parent();
        std::fs::write(at("go"), "").expect("written");
        daemon.wait_for("another parent", || parent() != before);
        match parent() {
            1 => {
                // A plan may have been on its way.
                let so_far = moved();
                assert!(so_far.is_some(), "it is in the tree");
                daemon.wait_for("two more moves", || moved() >= so_far.map(|moves| moves + 2));
            }
            other => println!("not tried: process {other} takes in orphans here"),
        }
    }
    daemon.end();
    let _ = root.kill().and_then(|()| root.wait());
    drop(worker);
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a line");
    line.trim().parse().expect("a number")
}
