//! The rights of clients of the control socket.

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::effective_user;
use serde_json::{Value, json};

use crate::fixture::{Daemon, Program};
use crate::{NOBODY, Sleepers, rules};

const OPERATORS: u32 = 65_532;

fn is_root() -> bool {
    let is_root = effective_user() == 0;
    if !is_root {
        println!("not tried: only root can become another user");
    }
    is_root
}

pub(crate) fn of_a_group(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let with_group = format!("group = \"{OPERATORS}\"\n{}", rules());
    let daemon = Daemon::start("act", &with_group);
    let is_paused = || daemon.json(&["status", "--json"])["paused"] == true;
    let stranger = daemon.ask_as(NOBODY, &["pause"]);
    assert!(!stranger.success && stranger.errors.contains("root and the group 65532"));
    let asked = daemon.ask_of((NOBODY, OPERATORS), &["pause"]);
    assert!(asked.success && is_paused(), "{asked:?}");
    let asked = daemon.ask_with((NOBODY, OPERATORS), &["resume"]);
    assert!(asked.success && !is_paused(), "one of its other groups: {asked:?}");
    daemon.configure("act", &rules());
    assert!(daemon.ask(&["reload"]).success);
    let asked = daemon.ask_of((NOBODY, OPERATORS), &["pause"]);
    assert!(!asked.success && !is_paused(), "the configuration has no group: {asked:?}");
    daemon.configure("act", &with_group);
    assert!(daemon.ask(&["reload"]).success);
    assert!(daemon.ask_of((NOBODY, OPERATORS), &["pause"]).success && is_paused());
    daemon.end();
}

/// Of as many refusals as a user likes the log has a few, and the number of the others.
pub(crate) fn to_fill_the_log(_: &CpuSet) {
    const REFUSALS: usize = 100;
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("observe", &rules());
    let pause = json!({ "method": "org.rondpoint.Daemon.Pause" });
    let last = daemon.reply_to(NOBODY, &vec![pause; REFUSALS], REFUSALS - 1);
    assert_eq!(last["error"], "org.rondpoint.Daemon.NotAllowed");
    let log = daemon.end();
    let lines = log.matches("NotAllowed").count();
    assert!((1..REFUSALS / 2).contains(&lines), "{lines} lines: {log}");
}

/// An operator's request prevails over that of the owner: so this is none of the owner's.
pub(crate) fn to_leave(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let own = Sleepers::start(1, NOBODY);
    let pid = own.pid(0);
    assert!(daemon.ask(&["manage", &pid]).success);
    let asked = daemon.ask_as(NOBODY, &["leave", &pid]);
    let expected = "user 65534 may not say which processes are managed: only root and";
    assert!(!asked.success && asked.errors.contains(expected), "{asked:?}");
    let found = daemon.process(pid.parse().expect("a number")).expect("it is shown");
    assert_eq!(found["state"], "managed");
    daemon.end();
}

/// Each look of the daemon is an answer.
pub(crate) fn to_watch(own: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let wanted = Program::start("wanted-a");
    if !daemon.can_act() {
        return;
    }
    daemon.wait_for("a mask", || wanted.worker.narrow_threads(own) > 1);
    let watch = json!({ "method": "org.rondpoint.Daemon.Watch", "more": true });
    let processes = |user, place| {
        let reply = daemon.reply_to(user, std::slice::from_ref(&watch), place);
        reply["parameters"]["status"]["processes"].as_array().expect("a list").clone()
    };
    for place in [0, 1, 2] {
        assert_eq!(processes(NOBODY, place), Vec::<Value>::new(), "answer {place}");
        assert!(!processes(0, place).is_empty(), "answer {place}");
    }
    daemon.end();
}
