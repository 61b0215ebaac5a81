//! What a daemon that begins knows of the one before, and when the service manager starts it anew.

use std::process::{Command, Stdio};

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::effective_user;
use serde_json::{Value, json};

use crate::fixture::{self, Daemon, Program};
use crate::{NOBODY, Sleepers, moved, rules, standing_back};

/// Beside the ledgers.
const FILE: &str = "ledgers/requests.json";

fn is_paused(daemon: &Daemon) -> bool {
    daemon.json(&["status", "--json"])["paused"] == true
}

fn told(daemon: &Daemon, pid: u32, word: &str) -> String {
    let found = daemon.process(pid).unwrap_or(Value::Null);
    found[word].as_str().unwrap_or_default().to_string()
}

pub(crate) fn keep_a_pause_and_requests(own: &CpuSet) {
    let folder = fixture::folder();
    let (left, other) = (Program::start("wanted-a"), Program::start("wanted-b"));
    let asked_for =
        Sleepers::start(1, if effective_user() == 0 { NOBODY } else { effective_user() });
    let sleeper: u32 = asked_for.pid(0).parse().expect("a number");
    let daemon = Daemon::start_in(folder.clone(), "act", &rules());
    assert!(daemon.ask(&["leave", &left.pid().to_string()]).success);
    match effective_user() {
        0 => assert!(daemon.ask_as(NOBODY, &["manage", &asked_for.pid(0)]).success),
        _ => assert!(daemon.ask(&["manage", &asked_for.pid(0)]).success),
    }
    assert!(daemon.ask(&["pause"]).success);
    daemon.kill();

    let next = Daemon::start_in(folder.clone(), "act", &rules());
    assert!(is_paused(&next));
    next.wait_for("the first", || told(&next, left.pid(), "state") == "left");
    assert_eq!(told(&next, left.pid(), "why"), "by request");
    next.wait_for("the asked one", || told(&next, sleeper, "why") == "by request");
    if !next.can_act() {
        return;
    }
    standing_back::wait_for_looks(&next);
    assert_eq!((moved(&next, &other), other.worker.narrow_threads(own)), (0, 1), "paused");
    assert!(next.ask(&["resume"]).success);
    next.wait_for("a move", || moved(&next, &other) > 0);
    next.end();

    let last = Daemon::start_in(folder.clone(), "act", &rules());
    assert!(!is_paused(&last), "it was resumed");
    last.wait_for("the first", || told(&last, left.pid(), "state") == "left");
    if effective_user() == 0 {
        let kept: Value = read(&folder.path().join(FILE));
        let requests = kept["requests"].as_array().expect("a list");
        let owner = |pid: u32| {
            let one = requests.iter().find(|one| one["pid"] == pid);
            one.map(|one| one["owner"].clone())
        };
        assert_eq!(owner(sleeper), Some(NOBODY.into()), "{kept}");
        assert_eq!(owner(left.pid()), Some(Value::Null), "{kept}");
    }
    last.end();
}

fn read(path: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

/// A later process of the same number inherits no request. A file that cannot be read is told, and
/// its daemon begins paused.
pub(crate) fn trust_no_other_process(own: &CpuSet) {
    let folder = fixture::folder();
    let wanted = Program::start("wanted-a");
    let daemon = Daemon::start_in(folder.clone(), "act", &rules());
    assert!(daemon.ask(&["leave", &wanted.pid().to_string()]).success);
    daemon.end();
    let mut kept = read(&folder.path().join(FILE));
    let started = kept["requests"][0]["started_ns"].as_u64().expect("a time");
    kept["requests"][0]["started_ns"] = json!(started - 1);
    std::fs::write(folder.path().join(FILE), kept.to_string()).expect("ours");
    let daemon = Daemon::start_in(folder.clone(), "act", &rules());
    daemon.wait_for("it", || told(&daemon, wanted.pid(), "state") == "managed");
    assert!(!is_paused(&daemon));
    daemon.end();

    std::fs::write(folder.path().join(FILE), "{\"format\":1,").expect("ours");
    let daemon = Daemon::start_in(folder.clone(), "act", &rules());
    assert!(is_paused(&daemon));
    let problems = || daemon.json(&["status", "--json"])["problems"].to_string();
    let (begun, file) = ("the daemon began paused, for it lost what was asked", "requests.json");
    assert!(problems().contains(begun) && problems().contains(file), "{}", problems());
    assert_eq!(daemon.log().matches(file).count(), 1, "{}", daemon.log());
    standing_back::wait_for_looks(&daemon);
    assert_eq!((moved(&daemon, &wanted), wanted.worker.narrow_threads(own)), (0, 1));
    assert!(daemon.ask(&["resume"]).success);
    assert!(!problems().contains(begun), "{}", problems());
    daemon.end();
    let daemon = Daemon::start_in(folder, "act", &rules());
    assert!(!is_paused(&daemon));
    daemon.end();
}

/// The unit lets a daemon come back without end, and not one with a wrong configuration.
pub(crate) fn come_back_unless_the_configuration_is_wrong(_: &CpuSet) {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/rondpoint.service");
    let unit = std::fs::read_to_string(unit).expect("the unit");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key}=")).to_string()
    };
    assert_eq!(
        (value("Restart"), value("StartLimitIntervalSec")),
        ("on-failure".into(), "0".into())
    );
    let folder = fixture::folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("control"), "no socket").expect("ours");
    let ends = |text: &str| {
        std::fs::write(at("rondpoint.toml"), text).expect("ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(["daemon", "--config"]).arg(at("rondpoint.toml"));
        command.env("RUNTIME_DIRECTORY", at("ledgers")).stdin(Stdio::null());
        let found = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&found.stderr).into_owned();
        (found.status.code().expect("a status").to_string(), said)
    };
    let never = value("RestartPreventExitStatus");
    let (status, said) = ends("mode = \"perhaps\"\n");
    assert_eq!(status, never, "{said}");
    let (status, said) = ends(&format!("[control]\nsocket = \"{}\"\n", at("control").display()));
    assert!(said.contains("expected a socket or nothing"), "{said}");
    assert!(!["0", never.as_str()].contains(&status.as_str()), "{said}");
}
