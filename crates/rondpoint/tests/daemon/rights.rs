//! The rights of clients of the control socket.

use rondpoint_core::{CpuSet, Pid};
use rondpoint_linux::Root;
use rondpoint_linux::root::owner;
use rondpoint_linux::syscall::process::{effective_user, kill};
use serde_json::{Value, json};

use crate::fixture::{Daemon, Program};
use crate::launcher::Launcher;
use crate::{NOBODY, Sleepers, rules};

const OPERATORS: u32 = 65_532;
// Number of signal(7).
const SIGKILL: i32 = 9;

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

/// A line of the log has the beginning of what a client wrote.
pub(crate) fn to_fill_lines(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("observe", &rules());
    let method = format!("{}.y", "x".repeat(30_000));
    let reply = daemon.reply_to(NOBODY, &[json!({ "method": method })], 0);
    assert_eq!(reply["error"], "org.varlink.service.InterfaceNotFound");
    let log = daemon.end();
    assert!(log.contains("InterfaceNotFound"), "{log}");
    assert!(log.lines().all(|line| line.len() < 2_000), "{log}");
}

/// The same of requests, each of which is for processes that end at once.
pub(crate) fn to_fill_the_log_by_asking(_: &CpuSet) {
    const CYCLES: usize = 12;
    const PER_MINUTE: u64 = 20;
    if !is_root() {
        return;
    }
    let began = std::time::Instant::now();
    let daemon = Daemon::start("observe", &rules());
    for _ in 0..CYCLES {
        let own = Sleepers::start(8, NOBODY);
        let pids: Vec<String> = (0..8).map(|index| own.pid(index)).collect();
        let words: Vec<&str> =
            ["manage"].into_iter().chain(pids.iter().map(String::as_str)).collect();
        let asked = daemon.ask_as(NOBODY, &words);
        assert!(asked.success, "{asked:?}");
        drop(own);
        let last = pids[7].parse().expect("a number");
        daemon.wait_for("their end", || daemon.process(last).is_none());
    }
    let minutes = began.elapsed().as_secs() / 60 + 1;
    let log = daemon.end();
    let is_caused = |line: &&str| line.contains("managed") || line.contains("asked");
    let lines = log.lines().filter(is_caused).count() as u64;
    assert!((1..=PER_MINUTE * (minutes + 1)).contains(&lines), "{lines} lines: {log}");
}

/// An operator's request prevails over that of the owner: so this is none of the owner's.
pub(crate) fn to_leave(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &format!("group = \"no-such\"\n{}", rules()));
    let status = daemon.json(&["status", "--json"]);
    let problem = "[control] group no-such: not in /etc/group, so only root may act";
    assert!(status["problems"].as_array().expect("a list").contains(&json!(problem)), "{status}");
    let own = Sleepers::start(1, NOBODY);
    let pid = own.pid(0);
    assert!(daemon.ask(&["manage", &pid]).success);
    let asked = daemon.ask_as(NOBODY, &["leave", &pid]);
    let expected = "user 65534 may not say which processes are managed: only root may";
    assert!(!asked.success && asked.errors.contains(expected), "{asked:?}");
    let found = daemon.process(pid.parse().expect("a number")).expect("it is shown");
    assert_eq!(found["state"], "managed");
    daemon.end();
}

/// Users withdraw their own requests only, and the rules then decide.
pub(crate) fn to_withdraw(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let own = Sleepers::start(2, NOBODY);
    let (asked_by_root, asked_by_user) = (own.pid(0), own.pid(1));
    let state = |pid: &str| {
        let found = daemon.process(pid.parse().expect("a number"));
        found.map(|found| found["state"].as_str().unwrap_or_default().to_string())
    };
    assert!(daemon.ask(&["manage", &asked_by_root]).success);
    assert!(daemon.ask_as(NOBODY, &["manage", &asked_by_user]).success);
    let refused = daemon.ask_as(NOBODY, &["manage", "--withdraw", &asked_by_root]);
    let why = "no request to manage it was made by user 65534";
    assert!(!refused.success && refused.errors.contains(why), "{refused:?}");
    let managed = Some("managed".to_string());
    assert_eq!([&asked_by_root, &asked_by_user].map(|pid| state(pid)), [managed.clone(), managed]);
    assert!(daemon.ask_as(NOBODY, &["manage", "--withdraw", &asked_by_user]).success);
    assert!(daemon.ask(&["manage", "--withdraw", &asked_by_root]).success);
    daemon.wait_for("both trees' end", || daemon.ledgers() == 0);
    assert!(daemon.ask(&["leave", &asked_by_root]).success);
    assert_eq!(state(&asked_by_root).as_deref(), Some("left"));
    assert!(daemon.ask(&["leave", "--withdraw", &asked_by_root]).success);
    assert_ne!(state(&asked_by_root).as_deref(), Some("left"));
    let again = daemon.ask(&["leave", "--withdraw", &asked_by_root]);
    assert!(!again.success && again.errors.contains("no request to leave it"), "{again:?}");
    daemon.end();
}

/// In a container a number means another process than for the daemon.
pub(crate) fn of_a_container(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("observe", &rules());
    let sleeper = Sleepers::start(1, 0);
    let pid = sleeper.pid(0);
    if !daemon.ask_in_namespace(&["status"]).success {
        println!("not tried: no PID namespaces here");
        return;
    }
    for words in [&["manage", &pid][..], &["leave", &pid], &["manage", "--withdraw", &pid]] {
        let asked = daemon.ask_in_namespace(words);
        assert!(!asked.success && asked.errors.contains("another PID namespace"), "{asked:?}");
    }
    let state = || daemon.state(pid.parse().expect("a number"));
    assert_eq!(state(), None, "nothing was asked for it");
    assert!(daemon.ask(&["manage", &pid]).success);
    assert_eq!(state(), Some("watched".to_string()));
    daemon.end();
}

/// A program of root that a user's program has started, as by sudo, is none of the user's.
pub(crate) fn to_what_others_run(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let become_a_user = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let sleeps = "sleep 120";
    let script = format!("{sleeps} & {become_a_user} {sleeps} & exec {become_a_user} sleep 1000");
    let first = Sleepers::of(&["sh", "-c", &script], 0);
    let pid = first.pid(0);
    let children = || {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.expect("it lives");
        let pids = list.split_whitespace().map(|pid| Pid(pid.parse().expect("a number")));
        let with_owner = pids.filter_map(|pid| Some((pid, owner(&Root::live(), pid)?)));
        let (roots, own): (Vec<_>, Vec<_>) = with_owner.partition(|(_, owner)| *owner == 0);
        (roots, own)
    };
    let is_ready = || {
        owner(&Root::live(), Pid(pid.parse().expect("ours"))) == Some(NOBODY)
            && matches!(children(), (roots, own) if roots.len() == 1 && own.len() == 1)
    };
    daemon.wait_for("three programs of two users", is_ready);
    assert!(daemon.ask_as(NOBODY, &["manage", &pid]).success);
    let (roots, own) = children();
    let state = |pid: Pid| daemon.process(pid.0).map(|found| found["state"].clone());
    daemon.wait_for("his own", || state(own[0].0) == Some("managed".into()));
    daemon.wait_for("that of root", || state(roots[0].0) == Some("left".into()));
    for (child, _) in roots.iter().chain(&own) {
        let _ = kill(child.0.cast_signed(), SIGKILL);
    }
    daemon.end();
}

/// A request of a user is for a process and ends with it, whatever it has started.
pub(crate) fn to_what_outlives_the_asked(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let own = Launcher::start(&daemon, "sh", NOBODY);
    assert!(daemon.ask_as(NOBODY, &["manage", &own.shell.pid(0)]).success);
    let managed = Some("managed".to_string());
    daemon.wait_for("the tree", || daemon.state(own.child) == managed);
    own.end_the_shell();
    daemon.wait_for("the end of the request", || daemon.state(own.child) != managed);
    drop(own);
    daemon.end();
}

/// Root says of a process that it is to be left, with all that it has started.
pub(crate) fn to_what_root_leaves(_: &CpuSet) {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let own = Launcher::start(&daemon, "sh", NOBODY);
    assert!(daemon.ask_as(NOBODY, &["manage", &own.child.to_string()]).success);
    daemon.wait_for("it", || daemon.state(own.child) == Some("managed".to_string()));
    assert!(daemon.ask(&["leave", &own.shell.pid(0)]).success);
    daemon.wait_for("its end", || daemon.state(own.child) == Some("left".to_string()));
    drop(own);
    daemon.end();
}

/// A list of one process is a request for one process, however long it is.
pub(crate) fn to_ask_often_at_once(_: &CpuSet) {
    const TIMES: usize = 5_000;
    if !is_root() {
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let own = Sleepers::start(1, NOBODY);
    let pids = vec![own.pid(0).parse::<u32>().expect("a number"); TIMES];
    let manage = json!({ "method": "org.rondpoint.Daemon.Manage", "parameters": { "pids": pids } });
    let reply = daemon.call_as(NOBODY, std::slice::from_ref(&manage));
    assert_eq!(reply.get("error"), None);
    daemon.call_as(NOBODY, &[manage]);
    let log = daemon.end();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("asked")).collect();
    assert!(lines.len() == 1 && lines[0].len() < TIMES, "{lines:?}");
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
