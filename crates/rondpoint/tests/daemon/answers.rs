//! What the daemon says after it was told something: to the client, to metrics and to systemd.

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::effective_user;

use crate::executable::install;
use crate::fixture::{self, Daemon, Program};
use crate::{Sleepers, rules};

fn acts(daemon: &Daemon) -> bool {
    let asked = daemon.ask(&["status", "--metrics"]);
    let value = asked.output.lines().find_map(|line| line.strip_prefix("rondpoint_acts "));
    let value = value.and_then(|value| value.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("{asked:?}")) > 0.0
}

pub(crate) fn name_what_stands_against_moves(_: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root has a manager that the daemon gives way to");
        return;
    }
    let folder = fixture::folder();
    let numad = folder.path().join("numad");
    install(fixture::program("sleep"), &numad);
    let daemon = Daemon::start("act", &rules());
    assert!(acts(&daemon));
    assert!(daemon.ask(&["pause"]).success);
    assert!(!acts(&daemon));
    let rival = Sleepers::of(&[numad.to_str().expect("text"), "6000"], 0);
    let others = || daemon.json(&["status", "--json"])["others"].to_string();
    daemon.wait_for("it", || others().contains("numad"));
    let asked = daemon.ask(&["resume"]);
    let expected =
        format!("resumed, but nothing is changed while numad (process {}) runs", rival.pid(0));
    assert!(asked.success && asked.errors.contains(&expected), "{asked:?}");
    let status = daemon.json(&["status", "--json"]);
    assert_eq!((&status["paused"], &status["acts"]), (&false.into(), &false.into()));
    assert!(!acts(&daemon), "another manager runs");
    let told = daemon.ask(&["status"]).output;
    assert!(told.contains("does not act for now"), "{told}");
    drop(rival);
    daemon.wait_for("its turn", || acts(&daemon));
    daemon.end();

    let daemon = Daemon::start("observe", &rules());
    daemon.configure("act", &rules());
    assert!(daemon.ask(&["reload"]).success);
    let asked = daemon.ask(&["resume"]);
    assert!(asked.errors.contains("until the daemon is started anew"), "{asked:?}");
    assert!(!acts(&daemon), "it has given up what it needs for that");
    daemon.end();
}

pub(crate) fn reach_the_service_manager(_: &CpuSet) {
    let daemon = Daemon::start("act", &rules());
    daemon.wait_until("STATUS=managing");
    assert!(daemon.ask(&["pause"]).success);
    daemon.wait_until("STATUS=paused, watching");
    assert!(daemon.ask(&["resume"]).success);
    daemon.wait_until("STATUS=managing");
    assert!(daemon.ask(&["reload"]).success);
    let news = daemon.wait_until("READY=1");
    assert!(news.contains("STATUS=managing"), "{news}");
    daemon.configure("observe", &rules());
    assert!(daemon.ask(&["reload"]).success);
    daemon.wait_until("STATUS=watching");
    daemon.end();
}

/// The old pace would have the daemon wait for an hour.
pub(crate) fn to_a_reload_come_at_the_new_pace(_: &CpuSet) {
    let wanted = Program::start("wanted-a");
    let usual = rules().replace("min_cpus = 0.0", "min_cpus = 0.01");
    let rare = usual.replace("look_every_s = 0.1", "look_every_s = 3600.0");
    assert!(usual != rules() && rare != usual);
    let daemon = Daemon::start("observe", &rare);
    let seen = || daemon.json(&["status", "--json"])["own"]["processes_seen"].as_u64();
    daemon.wait_for("a look", || seen() > Some(0));
    assert!(daemon.process(wanted.pid()).is_none(), "its use of CPUs takes two looks");
    daemon.configure("observe", &usual);
    assert!(daemon.ask(&["reload"]).success);
    daemon.wait_for("it", || daemon.process(wanted.pid()).is_some());
    daemon.end();
}

pub(crate) fn to_a_reload_have_the_new_budget(_: &CpuSet) {
    let with = |samples: u32| rules() + &format!("[budget]\nsamples_per_s_per_cpu = {samples}\n");
    let daemon = Daemon::start("act", &with(1_000_000_000));
    let wanted = Program::start("wanted-a");
    if !daemon.can_act() {
        return;
    }
    let status = || daemon.json(&["status", "--json"]);
    let is_over = || status()["problems"].to_string().contains("more samples than the budget");
    daemon.wait_for("it", || daemon.process(wanted.pid()).is_some());
    crate::standing_back::wait_for_looks(&daemon);
    if status()["sensor"]["rung"] != "samples" || is_over() {
        println!("not tried further: no samples here, or reading them costs too much");
        return;
    }
    daemon.configure("act", &with(1));
    assert!(daemon.ask(&["reload"]).success);
    daemon.wait_for("fewer samples", is_over);
    daemon.end();
}
