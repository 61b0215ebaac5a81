//! The places of `[manage] most`: all are taken, and another process is busy.

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::effective_user;
use serde_json::Value;

use crate::fixture::{self, Daemon, Program};
use crate::{Sleepers, rules, standing_back};

pub(crate) fn of_idle_trees(_: &CpuSet) {
    let folder = fixture::folder();
    let path = folder.path().join(format!("wanted-i{}", fixture::mark()));
    std::os::unix::fs::symlink(fixture::program("sleep"), &path).expect("a link");
    let sleeper = Sleepers::of(&[path.to_str().expect("text"), "6000"], effective_user());
    let idle: u32 = sleeper.pid(0).parse().expect("a number");
    let daemon = Daemon::start("observe", &rules().replace("[manage]", "[manage]\nmost = 1"));
    let told = |pid: u32, word: &str| {
        let found = daemon.process(pid).unwrap_or(Value::Null);
        found[word].as_str().unwrap_or_default().to_string()
    };
    daemon.wait_for("the idle program", || told(idle, "state") == "watched");

    let first = Program::start("wanted-a");
    daemon.wait_for("the busy program", || told(first.pid(), "state") == "watched");
    let gave = format!("it was idle and gave its place to process {} ([manage] most)", first.pid());
    daemon.wait_for("a reason", || told(idle, "why") == gave);
    assert_eq!(told(idle, "state"), "left");
    assert!(daemon.log().contains(&gave), "{}", daemon.log());

    let second = Program::start("wanted-b");
    let full = "1 processes are managed already ([manage] most)";
    daemon.wait_for("a refusal", || told(second.pid(), "why") == full);
    standing_back::wait_for_looks(&daemon);
    assert_eq!(told(first.pid(), "state"), "watched", "it is as busy as the other");
    assert_eq!(told(second.pid(), "why"), full);

    drop((first, second));
    daemon.wait_for("its return", || told(idle, "state") == "watched");
    assert!(daemon.ask(&["manage", &sleeper.pid(0)]).success);
    let third = Program::start("wanted-c");
    daemon.wait_for("a refusal", || told(third.pid(), "why") == full);
    standing_back::wait_for_looks(&daemon);
    assert_eq!(told(idle, "state"), "watched", "it was asked for");
    assert_eq!(told(third.pid(), "why"), full);
    daemon.end();
}
