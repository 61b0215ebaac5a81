//! The daemon beside real programs that come and go, on the machine that runs the tests. Tested are
//! which processes it manages, which users it obeys, and that nothing of it is left after its end
//! or its death.
//!
//! `RONDPOINT_RUNS=N` kills it N times. The policy is `shuffle`, which gives threads masks at
//! random: this machine may have one node.

mod answers;
mod excluded;
#[path = "../harness/executable.rs"]
mod executable;
mod fixture;
#[path = "../harness/mod.rs"]
mod harness;
mod idle;
mod killed;
mod launcher;
mod metrics;
#[path = "../harness/patience.rs"]
mod patience;
mod places;
mod prometheus;
mod restarts;
mod rights;
mod standing_back;
mod trees;
#[path = "../adversary/worker.rs"]
mod worker;

use std::path::Path;
use std::process::ExitCode;

use nix::sys::prctl::set_child_subreaper;
use rondpoint_core::{CpuSet, Pid};
use rondpoint_linux::Root;
use rondpoint_linux::syscall::process::effective_user;

use self::fixture::{Daemon, Program};
use self::harness::Test;

const TESTS: &[Test] = &[
    ("an_excluded_program_is_left_and_others_are_managed_until_told_otherwise", chosen),
    ("another_user_may_look_at_his_own_and_change_nothing", refused),
    ("a_user_has_eight_own_processes_managed_and_none_that_was_left", limited),
    ("members_of_the_group_may_do_what_root_may", rights::of_a_group),
    ("a_user_may_not_have_own_processes_left", rights::to_leave),
    ("a_request_can_be_withdrawn", rights::to_withdraw),
    ("a_number_of_a_container_is_no_process_of_the_daemons", rights::of_a_container),
    ("a_users_tree_has_no_process_of_another_user", rights::to_what_others_run),
    ("a_process_that_is_named_often_is_one_process", rights::to_ask_often_at_once),
    ("a_user_cannot_fill_the_log_with_refusals", rights::to_fill_the_log),
    ("a_user_cannot_fill_lines_of_the_log", rights::to_fill_lines),
    ("a_users_request_ends_with_the_process", rights::to_what_outlives_the_asked),
    ("what_root_leaves_is_left_with_what_it_started", rights::to_what_root_leaves),
    ("a_user_cannot_fill_the_log_with_requests", rights::to_fill_the_log_by_asking),
    ("a_user_who_watches_sees_nothing_of_others_in_any_answer", rights::to_watch),
    ("a_manager_of_root_stops_all_moves_and_a_name_that_a_user_chose_does_not", rival),
    ("a_set_user_id_program_that_a_user_named_stops_nothing", standing_back::by_name),
    ("a_paused_daemon_changes_nothing_however_long_it_waits", standing_back::paused),
    ("what_damon_moves_is_left_and_nothing_else", standing_back::damons),
    ("what_attach_has_is_left_until_its_end", standing_back::attached),
    ("a_daemon_that_began_without_the_right_to_act_does_not_act_after_a_reload", never_acts),
    ("requests_of_users_leave_places_to_others_and_end_with_the_right_to_them", outrun),
    ("what_is_excluded_is_not_changed_between_two_looks_for_processes", between_looks),
    ("a_daemon_in_a_container_excludes_by_the_cgroups_of_the_machine", excluded::from_a_container),
    ("status_and_explain_tell_of_a_process_that_sleeps_for_long", sleeps),
    ("a_user_who_may_not_count_has_the_daemon_manage_his_program", asked_for),
    ("metrics_of_programs_that_come_and_go_have_few_labels_and_sums_that_stay", metrics::of_trees),
    ("prometheus_reads_the_metrics_and_answers_the_dashboard", prometheus::reads_and_answers),
    ("a_reload_keeps_what_it_may_and_a_mistake_changes_nothing", reloaded),
    ("a_reload_ends_a_tree_that_outlived_its_root", trees::reloaded_without_root),
    ("a_tree_outlives_its_request_by_a_list", trees::whose_request_was_withdrawn),
    ("no_tree_takes_the_daemon_along", trees::of_the_daemons_parent),
    ("an_orphan_is_placed_whatever_is_excluded_above_it", trees::with_an_orphan),
    ("a_tree_that_is_idle_gives_its_place_to_a_busy_process", places::of_idle_trees),
    ("a_pause_and_requests_outlive_the_daemon", restarts::keep_a_pause_and_requests),
    ("a_request_is_for_one_process_and_damage_pauses", restarts::trust_no_other_process),
    (
        "a_daemon_comes_back_unless_its_configuration_is_wrong",
        restarts::come_back_unless_the_configuration_is_wrong,
    ),
    ("resume_and_metrics_name_what_stands_against_moves", answers::name_what_stands_against_moves),
    ("the_service_manager_is_told_of_a_pause_and_a_reload", answers::reach_the_service_manager),
    ("a_reload_may_shorten_the_wait_for_the_next_look", answers::to_a_reload_come_at_the_new_pace),
    ("a_reload_may_change_the_budget_of_samples", answers::to_a_reload_have_the_new_budget),
    (
        "a_daemon_that_is_killed_leaves_nothing_that_the_next_does_not_put_back",
        killed::again_and_again,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["as-worker", ready] => worker::main(Path::new(ready)),
        ["without-counters", command @ ..] => fixture::without_counters(command),
        ["call", socket, place, calls @ ..] => fixture::call(socket, place, calls),
        words => return harness::run(TESTS, words),
    }
    ExitCode::SUCCESS
}

/// The configuration of most tests: `wanted-…` of this process is managed, `other-…` is excluded.
fn rules() -> String {
    let own = fixture::mark();
    format!(
        "\
[manage]
min_memory_mib = 0
min_cpus = 0.0
look_every_s = 0.1
commands = [\"wanted-*{own}\", \"other-*{own}\"]
[policy]
policies = [\"shuffle\"]
[exclude]
commands = [\"other-*{own}\"]
"
    )
}

/// Threads of a program that were given masks so far. The masks themselves may be gone again. At
/// random both busy threads get one CPU now and then, and the check of that puts the masks back.
fn moved(daemon: &Daemon, program: &Program) -> u64 {
    let found = daemon.process(program.pid());
    found.and_then(|found| found["moved_threads"].as_u64()).unwrap_or(0)
}

fn sleeps(_own: &CpuSet) {
    idle::is_shown(&rules());
}

fn chosen(own: &CpuSet) {
    let daemon = Daemon::start("act", &rules());
    let (wanted, other) = (Program::start("wanted-a"), Program::start("other-b"));
    if !daemon.can_act() {
        return;
    }
    daemon.wait_for("a mask", || wanted.worker.narrow_threads(own) > 1);
    let left = daemon.process(other.pid()).expect("it is shown");
    assert_eq!(
        (&left["state"], &left["why"]),
        (&"left".into(), &format!("excluded: command other-*{}", fixture::mark()).into())
    );
    for (pid, why) in [(1, "it is the first process"), (daemon.pid(), "it is this daemon")] {
        let asked = daemon.ask(&["manage", &pid.to_string()]);
        assert!(asked.errors.contains(why), "{asked:?}");
        assert!(daemon.process(pid).is_none_or(|found| found["state"] != "managed"), "{why}");
    }
    let asked = daemon.ask(&["manage", &other.pid().to_string()]);
    assert!(asked.success && asked.errors.contains("is left: excluded"), "{asked:?}");
    assert_eq!(other.worker.narrow_threads(own), 1, "it chose one itself");
    let managed = daemon.process(wanted.pid()).expect("it is shown");
    assert_eq!((&managed["state"], &managed["root"]), (&"managed".into(), &wanted.pid().into()));
    let explained = daemon.json(&["explain", "--json", &wanted.pid().to_string()]);
    assert!(explained["threads"].as_array().is_some_and(|threads| threads.len() >= 4));
    assert!(explained["decisions"].to_string().contains("at random"), "{explained}");

    let last_plan = |pid: u32| {
        let explained = daemon.json(&["explain", "--json", &pid.to_string()]);
        let decisions = explained["decisions"].as_array().cloned().unwrap_or_default();
        decisions.iter().filter_map(|one| one["plan"].as_u64()).max().unwrap_or(0)
    };
    assert!(daemon.ask(&["pause"]).success);
    let plan_before = last_plan(wanted.pid());
    assert!(plan_before > 0);
    assert_eq!(wanted.worker.narrow_threads(own), 1, "all masks are back");
    assert_eq!(daemon.json(&["status", "--json"])["paused"], true);
    let before = moved(&daemon, &wanted);
    assert!(daemon.ask(&["resume"]).success);
    daemon.wait_for("a move", || moved(&daemon, &wanted) > before);
    // Else a verdict on a new plan would settle an old one of the same number in the ledger.
    daemon.wait_for("a later plan", || last_plan(wanted.pid()) > plan_before);
    assert!(daemon.ask(&["leave", &wanted.pid().to_string()]).success);
    assert_eq!(wanted.worker.narrow_threads(own), 1);
    assert_eq!(daemon.ledgers(), 0);
    assert!(daemon.ask(&["manage", &wanted.pid().to_string()]).success);
    daemon.wait_for("a mask", || wanted.worker.narrow_threads(own) > 1);

    let late = Program::start("wanted-c");
    daemon.wait_for("another mask", || late.worker.narrow_threads(own) > 1);
    // Nobody reaps its child, as in a container without an init.
    set_child_subreaper(true).expect("allowed");
    drop(late);
    daemon.wait_for("its end", || daemon.ledgers() == 1);
    set_child_subreaper(false).expect("allowed");
    let ledgers = daemon.folder();
    daemon.end();
    assert_eq!(wanted.worker.narrow_threads(own), 1);
    assert!(wanted.worker.goes_on());
    assert_eq!(fixture::ledgers_in(ledgers.path()), 0);
}

fn refused(own: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let wanted = Program::start("wanted-a");
    daemon.wait_for("a mask", || wanted.worker.narrow_threads(own) > 1);
    let pid = wanted.pid().to_string();
    for words in [
        &["pause"][..],
        &["resume"],
        &["reload"],
        &["leave", &pid],
        &["manage", &pid],
        &["status", "--metrics"],
    ] {
        let asked = daemon.ask_as(NOBODY, words);
        let expected = "user 65534 may not";
        assert!(!asked.success && asked.errors.contains(expected), "{words:?}: {asked:?}");
    }
    let explained = daemon.ask_as(NOBODY, &["explain", &pid]);
    assert!(!explained.success && explained.errors.contains("is of user 0"), "{explained:?}");
    let status = daemon.ask_as(NOBODY, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.output).expect("JSON");
    assert_eq!(status["processes"], serde_json::json!([]));
    assert!(status["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()));
    let watch = serde_json::json!({ "method": "org.rondpoint.Daemon.Watch" });
    let decisions = |user| {
        daemon.call_as(user, std::slice::from_ref(&watch))["parameters"]["decisions"].clone()
    };
    assert!(decisions(0).as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(decisions(NOBODY), serde_json::json!([]));
    let mut untold = watch.clone();
    (untold["more"], untold["oneway"]) = (true.into(), true.into());
    let info = serde_json::json!({ "method": "org.varlink.service.GetInfo" });
    let first = daemon.call_as(NOBODY, &[untold, info]);
    assert_eq!(first["parameters"]["vendor"], "Rondpoint", "a oneway call has no reply: {first}");
    assert!(daemon.process(wanted.pid()).is_some(), "it goes on");
    let log = daemon.end();
    assert!(log.matches("NotAllowed").count() >= 7 && log.contains("user=65534"), "{log}");
}

/// Programs of another user, which end with the test.
struct Sleepers(Vec<std::process::Child>);

impl Sleepers {
    fn start(count: usize, user: u32) -> Self {
        Self((0..count).flat_map(|_| Self::of(&["sleep", "1000"], user).take()).collect())
    }

    fn of(words: &[&str], user: u32) -> Self {
        let mut command = std::process::Command::new(words[0]);
        std::os::unix::process::CommandExt::uid(command.args(&words[1..]), user);
        Self(vec![command.spawn().expect("it starts")])
    }

    fn take(mut self) -> Vec<std::process::Child> {
        std::mem::take(&mut self.0)
    }

    fn pid(&self, index: usize) -> String {
        self.0[index].id().to_string()
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn limited(_: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let own = Sleepers::start(9, NOBODY);
    let of_root = Sleepers::start(1, 0);
    let manage = |pid: &str| daemon.ask_as(NOBODY, &["manage", pid]);
    let state = |pid: &str| daemon.process(pid.parse().expect("a number"));
    for index in 0..8 {
        let asked = manage(&own.pid(index));
        assert!(asked.success, "{index}: {asked:?}");
    }
    assert!(manage(&own.pid(0)).success, "it is one of the eight");
    let both = daemon.ask(&["leave", &own.pid(0), "1073741823"]);
    assert!(!both.success && both.errors.contains("no such process"), "{both:?}");
    assert_eq!(state(&own.pid(0)).expect("it is shown")["state"], "managed", "none of the two");
    for (pid, why) in [(own.pid(8), "may not have more than 8"), (of_root.pid(0), "it is not his")]
    {
        let asked = manage(&pid);
        assert!(!asked.success && asked.errors.contains(why), "{asked:?}");
        assert!(state(&pid).is_none_or(|found| found["state"] != "managed"), "{why}");
    }
    assert!(daemon.ask(&["leave", &own.pid(0)]).success);
    let asked = manage(&own.pid(0));
    assert!(!asked.success && asked.errors.contains("it is to be left"), "{asked:?}");
    assert_eq!(state(&own.pid(0)).expect("it is shown")["state"], "left");
    assert!(daemon.ask(&["manage", &own.pid(0)]).success, "root may");
    assert_eq!(state(&own.pid(0)).expect("it is shown")["state"], "managed");
    daemon.end();
}

fn rival(own: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    let daemon = Daemon::start("act", &rules());
    let wanted = Program::start("wanted-a");
    if !daemon.can_act() {
        return;
    }
    let folder = fixture::folder();
    let numad = folder.path().join("numad");
    executable::install(fixture::program("sleep"), &numad);
    let command = [numad.to_str().expect("text"), "1000"];
    let is_told = || daemon.json(&["status", "--json"])["others"].to_string().contains("numad");
    let strange = Sleepers::of(&command, NOBODY);
    for _ in 0..2 {
        let before = moved(&daemon, &wanted);
        daemon.wait_for("moves", || moved(&daemon, &wanted) > before + 2);
    }
    assert!(!is_told());
    let real = Sleepers::of(&command, 0);
    daemon.wait_for("it", is_told);
    assert_eq!(wanted.worker.narrow_threads(own), 1, "all masks are back");
    standing_back::wait_for_looks(&daemon);
    assert_eq!(wanted.worker.narrow_threads(own), 1, "numad has the machine");
    drop(real);
    daemon.wait_for("a mask", || wanted.worker.narrow_threads(own) > 1);
    drop(strange);
    daemon.end();
}

fn never_acts(own: &CpuSet) {
    let daemon = Daemon::start("observe", &rules());
    let wanted = Program::start("wanted-a");
    let state = || daemon.process(wanted.pid()).map(|found| found["state"].clone());
    daemon.wait_for("it", || state() == Some("watched".into()));
    daemon.configure("act", &rules());
    let asked = daemon.ask(&["reload"]);
    assert!(asked.errors.contains("when the daemon is started anew"), "{asked:?}");
    standing_back::wait_for_looks(&daemon);
    assert_eq!((state(), wanted.worker.narrow_threads(own)), (Some("watched".into()), 1));
    daemon.end();
}

/// A user has as many other users as /etc/subuid gives.
fn outrun(_: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    const ANOTHER: u32 = 65_533;
    let daemon = Daemon::start("act", &rules().replace("[manage]", "[manage]\nmost = 2"));
    let folder = fixture::folder();
    let set_user = folder.path().join("set-user-id");
    executable::install(fixture::program("sleep"), &set_user);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&set_user, mode).expect("ours");
    let go = folder.path().join("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; exec {} 1000",
        go.display(),
        set_user.display()
    );
    let becomes_root = Sleepers::of(&["sh", "-c", &script], NOBODY);
    let second = Sleepers::start(1, ANOTHER);
    let third = Sleepers::start(1, 0);
    let state = |pid: &str| {
        let found = daemon.process(pid.parse().expect("a number"));
        found.map_or(String::new(), |found| found["state"].to_string() + &found["why"].to_string())
    };
    let first = becomes_root.pid(0);
    assert!(daemon.ask_as(NOBODY, &["manage", &first]).success);
    assert!(state(&first).contains("managed"), "{}", state(&first));
    let asked = daemon.ask_as(ANOTHER, &["manage", &second.pid(0)]);
    assert!(asked.errors.contains("managed by request of their users"), "{asked:?}");
    assert!(daemon.ask(&["manage", &third.pid(0)]).success);
    assert!(state(&third.pid(0)).contains("managed"), "a place is left to root");
    let fourth = Sleepers::start(1, 0);
    let asked = daemon.ask(&["manage", &fourth.pid(0)]);
    assert!(asked.errors.contains("2 processes are managed already"), "{asked:?}");
    std::fs::write(&go, "").expect("ours");
    let owner = || rondpoint_linux::root::owner(&Root::live(), Pid(first.parse().expect("ours")));
    let has_become = || {
        let name = std::fs::read_to_string(format!("/proc/{first}/comm")).unwrap_or_default();
        name.starts_with("set-user")
    };
    daemon.wait_for("its exec", has_become);
    if owner() != Some(0) {
        println!("not tried further: this file system knows no set-user-ID files");
        return;
    }
    daemon.wait_for("its end as a managed one", || !state(&first).contains("managed"));
    daemon.wait_for("its place", || state(&second.pid(0)).contains("managed\"\"by request"));
    daemon.end();
}

fn between_looks(own: &CpuSet) {
    excluded::is_not_changed(own, &rules());
}

fn asked_for(own: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    let daemon = Daemon::start("act", &(rules() + "[log]\nlevel = \"debug\"\n"));
    for (name, is_managed) in [("asked-a", true), ("other-b", false)] {
        let run = daemon.run_as(NOBODY, name);
        let told = match is_managed {
            true => {
                daemon.wait_for("a mask", || run.worker.narrow_threads(own) > 1);
                "managed this program: "
            }
            false => {
                let is_left = |found: &serde_json::Value| found["state"] == "left";
                let pid = run.worker.pid();
                daemon.wait_for("it", || daemon.process(pid).as_ref().is_some_and(is_left));
                "left this program: excluded: command other-"
            }
        };
        // The second question comes after the answer to one that was asked after this.
        let questions = || daemon.log().matches(".Explain").count();
        let before = questions();
        daemon.wait_for("questions", || questions() > before + 1);
        let (asked, report) = run.end();
        assert!(!asked.success && asked.errors.contains(told), "{asked:?}");
        assert!(asked.errors.contains("the daemon (process "), "{asked:?}");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!((&report["signal"], &report["process"]["user"]), (&9.into(), &NOBODY.into()));
        assert_eq!(report["process"]["moved_threads"].as_u64() > Some(0), is_managed, "{report}");
    }
    daemon.end();
}

fn reloaded(own: &CpuSet) {
    let daemon = Daemon::start("act", &rules());
    let (stays, goes) = (Program::start("wanted-a"), Program::start("wanted-b"));
    if !daemon.can_act() {
        return;
    }
    daemon.wait_for("moves of both", || moved(&daemon, &stays).min(moved(&daemon, &goes)) > 0);
    let more = rules().replace("[exclude]\ncommands = [", "[exclude]\ncommands = [\"*-b*\", ");
    daemon.configure("act", &more);
    assert!(daemon.ask(&["reload"]).success);
    assert_eq!(goes.worker.narrow_threads(own), 1, "its masks are back");
    let before = daemon.process(stays.pid()).expect("it is shown");
    assert!(before["moved_threads"].as_u64() > Some(0), "it is known as before: {before}");
    daemon.configure("act", "[manage]\nmin_cpu = 3\n");
    let asked = daemon.ask(&["reload"]);
    assert!(!asked.success, "{asked:?}");
    assert!(asked.errors.contains("line 8") && asked.errors.contains("min_cpu"), "{asked:?}");
    assert_eq!(daemon.process(goes.pid()).expect("it is shown")["state"], "left");
    daemon.configure("act", &rules().replace("wanted-", "else-"));
    assert!(daemon.ask(&["reload"]).success);
    assert_eq!(stays.worker.narrow_threads(own), 1, "no list names it");
    assert!(daemon.process(stays.pid()).is_none_or(|found| found["state"] != "managed"));
    daemon.configure("act", &rules());
    assert!(daemon.ask(&["reload"]).success);
    daemon.wait_for("a mask", || stays.worker.narrow_threads(own) > 1);
    daemon.configure("observe", &rules());
    daemon.hang_up();
    daemon.wait_for("the masks", || stays.worker.narrow_threads(own) == 1);
    daemon.wait_for("the mode", || daemon.json(&["status", "--json"])["mode"] == "observe");
    daemon.end();
}

/// A user without rights.
const NOBODY: u32 = 65_534;
