//! From models to proposals over several epochs: placement, pages that follow, full migration, and
//! threads that are left alone.

use crate::notation::paper;
use expect_test::{Expect, expect};
use rondpoint_core::model::{App, Model, Thread, Traffic};
use rondpoint_core::observation::Exemption;
use rondpoint_core::plan::{Kind, Outcome, PageCounts, Plan, Proposal, Reason, StepResult, Undo};
use rondpoint_core::policy::asymsched::{AsymSched, Preset};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Bytes, Matrix, Nanos, Pid, Policy, Random, Tid, Topology};
use std::fmt::Write;

/// The paper's machine with two CPUs a node.
fn machine() -> Topology {
    let mut description = synthetic::describe("node:8 core:2").expect("a machine");
    description.bandwidth_bytes_per_s = Some(paper());
    Topology::new(description).expect("a checked machine")
}

/// A process since time zero: `cpus` of its threads, requests/µs `from>to:rate`, GB by node.
struct Process<'a> {
    pid: u32,
    cpus: &'a [usize],
    traffic: &'a str,
    memory: &'a [(usize, u64)],
}

const FAR: Process =
    Process { pid: 7, cpus: &[0, 1, 10, 11], traffic: "0>5:30 5>0:30", memory: &[(0, 4), (5, 2)] };

fn model(second: u64, topology: &Topology, processes: &[Process]) -> Model {
    let mut model = Model::empty(8);
    model.at = Nanos::from_secs(second);
    for process in processes {
        let first = model.threads.len();
        for &cpu in process.cpus {
            let tid = Tid(100 * process.pid + cpu as u32);
            model.threads.push(Thread::new(tid, model.apps.len(), cpu, topology.all_cpus()));
        }
        let mut app = App::new(Pid(process.pid), first..model.threads.len());
        let mut rates = Matrix::filled(8, 0.0);
        for word in process.traffic.split_whitespace() {
            let (pair, rate) = word.split_once(':').expect("pair:rate");
            let (from, to) = pair.split_once('>').expect("from>to");
            rates[(from.parse().expect("node"), to.parse().expect("node"))] =
                rate.parse().expect("rate");
        }
        app.traffic = Some(Traffic::new(rates));
        let resident =
            |node| process.memory.iter().find(|(there, _)| *there == node).map_or(0, |(_, gb)| *gb);
        app.memory = Some((0..8).map(|node| Bytes(resident(node) * 1_000_000_000)).collect());
        model.apps.push(app);
    }
    model.check(topology).expect("a model without contradictions");
    model
}

/// What it wants moved; rates of sampling are left out.
fn propose(policy: &mut AsymSched, model: &Model) -> Vec<Proposal> {
    let mut proposals = policy.propose(model, &machine(), &mut Random::new(0));
    proposals.retain(|one| one.action.kind() != Kind::Sampling);
    proposals
}

fn text(proposals: &[Proposal]) -> String {
    let mut out = String::new();
    proposals.iter().for_each(|proposal| {
        writeln!(out, "{}: {}", proposal.action, proposal.reason).expect("text");
    });
    out
}

fn check(processes: &[Process], expected: Expect) {
    let mut policy = AsymSched::new(Preset::PUBLISHED);
    expected.assert_eq(&text(&propose(&mut policy, &model(1000, &machine(), processes))));
}

/// Tells the policy that every step of its proposals had this result and took this long.
fn learn(policy: &mut AsymSched, proposals: Vec<Proposal>, result: &StepResult, spent: Nanos) {
    let outcome = |step| Outcome { plan: 1, step, result: result.clone(), spent, frozen: Nanos(0) };
    let outcomes: Vec<Outcome> = (0..proposals.len()).map(outcome).collect();
    policy.learn(&Plan { number: 1, steps: proposals, ..Plan::default() }, &outcomes);
}

/// A policy after its move of [`FAR`] from node 5 to node 1, carried out at second 1000.
fn moved(preset: Preset) -> AsymSched {
    let mut policy = AsymSched::new(preset);
    let proposals = propose(&mut policy, &model(1000, &machine(), &[FAR]));
    assert!(!proposals.is_empty());
    learn(&mut policy, proposals, &StepResult::Done, Nanos::from_millis(1));
    policy
}

/// [`FAR`] after that move, with its requests.
fn far_after(second: u64, traffic: &str) -> Model {
    model(second, &machine(), &[Process { cpus: &[0, 1, 2, 3], traffic, ..FAR }])
}

#[test]
fn the_lighter_node_goes_to_the_neighbour_of_the_heavier() {
    check(
        &[FAR],
        expect![[r#"
            thread 700 of 7 to CPUs 0-1: stays on node 0, which keeps its part
            thread 701 of 7 to CPUs 0-1: stays on node 0, which keeps its part
            thread 710 of 7 to CPUs 2-3: node 5→1: weighted bandwidth +133.3 % (100.0 % of the best), moves 1.9 GiB, 600.0 ms of a budget of 50.0 s
            thread 711 of 7 to CPUs 2-3: node 5→1: weighted bandwidth +133.3 % (100.0 % of the best), moves 1.9 GiB, 600.0 ms of a budget of 50.0 s
        "#]],
    );
}

/// The process with a main thread on node 1, the neighbour, that waits for the others; on node 3
/// waits another.
fn with_sleepers(preset: Preset) -> Vec<Proposal> {
    let mut model = model(
        1000,
        &machine(),
        &[Process { cpus: &[0, 10, 2, 6], memory: &[(0, 4), (5, 2)], ..FAR }],
    );
    model.threads[2..].iter_mut().for_each(|thread| thread.cpu_share = 0.001);
    propose(&mut AsymSched::new(preset), &model)
}

#[test]
fn a_thread_that_sleeps_holds_no_node_and_is_left_alone() {
    let preset = Preset { seconds_per_gb: 0.3, ..Preset::MEASURED };
    expect![[r#"
        thread 700 of 7 to CPUs 0-1: stays on node 0, which keeps its part
        thread 710 of 7 to CPUs 2-3: node 5→1: weighted bandwidth +133.3 % (100.0 % of the best), moves 1.9 GiB, 600.0 ms of a budget of 50.0 s
    "#]]
    .assert_eq(&text(&with_sleepers(preset)));
    let published = text(&with_sleepers(Preset::PUBLISHED));
    assert!(published.contains("thread 702 of 7 to CPUs 4-5"), "there it does: {published}");
}

/// The kernel took a worker from node 5, where its memory lies, to node 4, and the main thread to
/// node 7.
#[test]
fn memory_away_follows_running_threads_and_a_waiting_one_is_not_bound_far_away() {
    let mut model = model(
        1000,
        &machine(),
        &[Process { cpus: &[0, 8, 14], traffic: "0>0:30 0>5:30 4>0:30 4>5:30", ..FAR }],
    );
    model.threads[2].cpu_share = 0.0;
    let placed = |preset| {
        text(&propose(&mut AsymSched::new(Preset { seconds_per_gb: 0.3, ..preset }), &model))
    };
    let awake = placed(Preset::MEASURED);
    assert!(awake.contains("thread 708 of 7 to CPUs 2-3: node 4→1"), "{awake}");
    assert!(!awake.contains("thread 714"), "{awake}");
    let all = placed(Preset { least_cpu_share: 0.0, ..Preset::MEASURED });
    assert!(all.contains("thread 714 of 7 to CPUs 14-15: stays on node 7"), "{all}");
}

#[test]
fn a_placement_near_the_best_is_left_alone() {
    check(&[Process { cpus: &[0, 1, 2, 3], traffic: "0>1:30 1>0:30", ..FAR }], expect![""]);
}

#[test]
fn a_young_process_cannot_afford_its_memory() {
    let mut policy = AsymSched::new(Preset::PUBLISHED);
    assert_eq!(text(&propose(&mut policy, &model(11, &machine(), &[FAR]))), "");
    assert!(!propose(&mut policy, &model(12, &machine(), &[FAR])).is_empty());
}

#[test]
fn cache_traffic_alone_joins_nodes() {
    let mut model = model(1000, &machine(), &[FAR]);
    let mut policy = AsymSched::new(Preset::PUBLISHED);
    model.apps[0].cache_traffic = model.apps[0].traffic.take();
    assert!(!propose(&mut policy, &model).is_empty());
}

#[test]
fn pages_follow_once_and_then_everything_if_most_accesses_go_to_the_old_node() {
    let mut policy = moved(Preset::PUBLISHED);
    let mut model = far_after(1001, "0>5:50 1>5:45 1>1:5");
    for (address, home) in [(0x1000, 5), (0x2000, 0), (0x3000, 5), (0x3000, 5)] {
        model.pages.record(0, address, 12, home, 1, false);
    }
    let mut out = text(&propose(&mut policy, &model));
    model.at = Nanos::from_secs(1002);
    out += "then:\n";
    out += &text(&propose(&mut policy, &model));
    model.at = Nanos::from_secs(1003);
    let all = propose(&mut policy, &model);
    out += &text(&all);
    expect![[r#"
        move 2 pages of 7 (following): 2 × 5→1: pages that are accessed follow its threads for 2.0 s yet
        then:
        move 1.9 GiB of 7 frozen: 5→1: 95.0 % of its accesses still go to the nodes it left (limit 90.0), about 0.6 s
    "#]].assert_eq(&out);
    learn(
        &mut policy,
        all,
        &StepResult::Pages(PageCounts { moved: 488_281, ..PageCounts::default() }),
        Nanos::from_secs(3),
    );
    model.at = Nanos::from_secs(1004);
    assert_eq!(text(&propose(&mut policy, &model)), "", "the end of the way");
}

#[test]
fn memory_stays_if_few_accesses_go_to_the_old_node_or_nobody_knows() {
    for traffic in ["0>5:40 1>5:40 1>1:20", ""] {
        let mut policy = moved(Preset::PUBLISHED);
        for second in 1001..1005 {
            assert_eq!(
                text(&propose(&mut policy, &far_after(second, traffic))),
                "",
                "{traffic} in {second}"
            );
        }
    }
}

#[test]
fn a_process_is_under_way_until_its_memory_had_time_to_follow() {
    let under_way = |preset| -> Vec<bool> {
        let mut policy = AsymSched::new(preset);
        let proposals = propose(&mut policy, &model(1000, &machine(), &[FAR]));
        assert!(!policy.is_under_way(Pid(7)), "nothing has been done yet");
        learn(&mut policy, proposals, &StepResult::Done, Nanos::from_millis(1));
        let seconds = 1001..=1004;
        let look = |second| {
            propose(&mut policy, &far_after(second, "0>5:40 1>5:40 1>1:20"));
            policy.is_under_way(Pid(7))
        };
        seconds.map(look).collect()
    };
    assert_eq!(under_way(Preset::PUBLISHED), [true, true, false, false]);
    assert_eq!(under_way(Preset::MEASURED), [true, true, true, false], "the rest goes at once");
}

#[test]
fn samples_are_many_while_memory_follows_and_few_while_nobody_is_on_the_way() {
    // With the second preset the rest goes at once at 1003 s.
    let [published, measured] = [Preset::PUBLISHED, Preset::MEASURED].map(rates_of);
    expect![[r#"
        996 s: sample 7: every 260000 cycles, 30000 pages tracked
        1000 s: sample 7: every 65000 cycles, 30000 pages tracked
        1003 s: sample 7: every 260000 cycles, 30000 pages tracked
    "#]]
    .assert_eq(&published);
    assert_eq!(measured, published);
}

/// Rates of samples from four seconds before the move of [`FAR`] to five seconds after it.
fn rates_of(preset: Preset) -> String {
    let mut policy = AsymSched::new(preset);
    let mut rates = Vec::new();
    let mut look = |policy: &mut AsymSched, model: &Model| {
        let mut proposals = policy.propose(model, &machine(), &mut Random::new(0));
        let sampling = proposals.iter().filter(|one| one.action.kind() == Kind::Sampling);
        rates.extend(
            sampling.map(|one| format!("{} s: {}", model.at.0 / 1_000_000_000, one.action)),
        );
        proposals.retain(|one| one.action.kind() != Kind::Sampling);
        learn(policy, proposals, &StepResult::Done, Nanos::from_millis(1));
    };
    let near =
        |second| model(second, &machine(), &[Process { cpus: &[0, 1], traffic: "0>0:50", ..FAR }]);
    (996..1000).for_each(|second| look(&mut policy, &near(second)));
    look(&mut policy, &model(1000, &machine(), &[FAR]));
    (1001..1006).for_each(|second| look(&mut policy, &far_after(second, "0>5:4 1>5:4 1>1:20")));
    rates.join("\n") + "\n"
}

#[test]
fn no_memory_follows_threads_that_were_put_back() {
    let pages = |policy: &mut AsymSched| {
        let mut model = far_after(1001, "0>5:95 1>5:95 1>1:10");
        model.pages.record(0, 0x1000, 12, 5, 1, false);
        propose(policy, &model).len()
    };
    let mut policy = moved(Preset::PUBLISHED);
    assert_ne!(pages(&mut policy.clone()), 0, "pages that are accessed follow");
    let undo = Undo { plan: 1, change: -0.2, noise: 0.05 };
    let back = propose(&mut AsymSched::new(Preset::PUBLISHED), &model(1000, &machine(), &[FAR]));
    let back = back.into_iter().map(|step| Proposal { reason: Reason::Undo(undo), ..step });
    learn(&mut policy, back.collect(), &StepResult::Done, Nanos::from_millis(1));
    assert_eq!(pages(&mut policy), 0);
}

#[test]
fn a_move_that_was_refused_is_proposed_again() {
    let mut policy = AsymSched::new(Preset::PUBLISHED);
    let first = propose(&mut policy, &model(1000, &machine(), &[FAR]));
    learn(&mut policy, first.clone(), &StepResult::Refused { errno: 22 }, Nanos(0));
    let second = propose(&mut policy, &model(1001, &machine(), &[FAR]));
    assert_eq!(first.len(), second.len());
}

/// 2 GB took 100 s of migration: 5 % of 1004 s are used up for long.
#[test]
fn time_spent_on_migration_counts_against_the_budget() {
    let mut policy = moved(Preset::PUBLISHED);
    let old = "0>5:50 1>5:50";
    propose(&mut policy, &far_after(1001, old));
    let all = propose(&mut policy, &far_after(1003, old));
    learn(
        &mut policy,
        all,
        &StepResult::Pages(PageCounts { moved: 488_281, ..PageCounts::default() }),
        Nanos::from_secs(100),
    );
    assert_eq!(
        text(&propose(&mut policy, &model(1004, &machine(), &[FAR]))),
        "",
        "the end of the way"
    );
    assert_eq!(
        text(&propose(&mut policy, &model(1005, &machine(), &[FAR]))),
        "",
        "over the budget"
    );
    assert!(!propose(&mut policy, &model(2013, &machine(), &[FAR])).is_empty(), "affordable again");
}

#[test]
fn the_measured_preset_learns_what_migration_takes() {
    let mut policy = moved(Preset::MEASURED);
    assert_eq!(policy.seconds_per_gb(), 5.1);
    let old = "0>5:50 1>5:50";
    propose(&mut policy, &far_after(1001, old));
    let all = propose(&mut policy, &far_after(1003, old));
    learn(
        &mut policy,
        all,
        &StepResult::Pages(PageCounts { moved: 500_000, ..PageCounts::default() }),
        Nanos::from_secs(2),
    );
    assert!((policy.seconds_per_gb() - 2.0 / 2.048).abs() < 1e-9);
}

/// What the kernel's balancing left of [`FAR`]: the threads of node 5 run on node 3, their memory
/// is where it was.
const SCATTERED: Process = Process {
    pid: 7,
    cpus: &[0, 1, 6, 7],
    traffic: "0>0:30 0>5:30 3>0:30 3>5:30",
    memory: &[(0, 2), (5, 2)],
};

#[test]
fn memory_that_a_thread_left_behind_comes_to_where_the_thread_goes() {
    let mut policy = AsymSched::new(Preset::MEASURED);
    let mut model = model(1000, &machine(), &[SCATTERED]);
    let proposals = propose(&mut policy, &model);
    let mut out = text(&proposals);
    learn(&mut policy, proposals, &StepResult::Done, Nanos::from_millis(1));
    model.pages.record(0, 0x1000, 12, 5, 0, false).expect("the table has room");
    for second in [1001, 1003] {
        model.at = Nanos::from_secs(second);
        out += &format!("at {second} s:\n{}", text(&propose(&mut policy, &model)));
    }
    expect![[r#"
        thread 700 of 7 to CPUs 0-1: stays on node 0, which keeps its part
        thread 701 of 7 to CPUs 0-1: stays on node 0, which keeps its part
        thread 706 of 7 to CPUs 2-3: node 3→1: weighted bandwidth +96.5 % (100.0 % of the best), moves 0 B and 1.9 GiB from nodes without its threads, 10.2 s of a budget of 50.0 s
        thread 707 of 7 to CPUs 2-3: node 3→1: weighted bandwidth +96.5 % (100.0 % of the best), moves 0 B and 1.9 GiB from nodes without its threads, 10.2 s of a budget of 50.0 s
        at 1001 s:
        move 1 page of 7 (following): 1 × 5→1: pages that are accessed follow its threads for 2.0 s yet
        at 1003 s:
        move 1.9 GiB of 7 frozen: 3→1 5→1: 50.0 % of its accesses still go to the nodes it left (limit 1.0), about 10.2 s
    "#]].assert_eq(&out);
    let mut published = AsymSched::new(Preset::PUBLISHED);
    assert!(
        !text(&propose(&mut published, &self::model(1000, &machine(), &[SCATTERED])))
            .contains("no thread"),
        "the published one knows of nodes with threads alone"
    );
}

#[test]
fn memory_comes_to_threads_that_are_well_placed_already_but_not_again_and_again() {
    let beside =
        Process { cpus: &[0, 1, 2, 3], traffic: "0>0:30 0>5:30 1>0:30 1>5:30", ..SCATTERED };
    let follows = |policy: &mut AsymSched, second: u64, traffic| {
        let process = Process { traffic, ..beside };
        propose(policy, &model(second, &machine(), &[process]));
        policy.on_the_way(Pid(7)).iter().map(|step| (step.from, step.to)).collect::<Vec<_>>()
    };
    let mut policy = AsymSched::new(Preset::MEASURED);
    assert_eq!(follows(&mut policy, 1000, beside.traffic), [(5, 1)]);
    // Two seconds and the sweep, then it is not tried again for half a minute.
    let again: Vec<u64> = (1001..1050)
        .filter(|second| !follows(&mut policy, *second, beside.traffic).is_empty())
        .collect();
    assert_eq!(again, [1001, 1002, 1033, 1034, 1035]);
    let mut quiet = AsymSched::new(Preset::MEASURED);
    assert_eq!(follows(&mut quiet, 1000, "0>0:50 0>1:50 1>0:50 0>5:9"), [], "hardly used");
    let mut young = AsymSched::new(Preset::MEASURED);
    assert_eq!(follows(&mut young, 100, beside.traffic), [], "over the budget");
}

#[test]
fn nodes_of_exempt_or_unknown_processes_are_not_taken() {
    let with = |change: fn(&mut App)| {
        let neighbour = Process { pid: 9, cpus: &[2], traffic: "", memory: &[(1, 1)] };
        let mut model = model(1000, &machine(), &[FAR, neighbour]);
        change(&mut model.apps[1]);
        text(&propose(&mut AsymSched::new(Preset::PUBLISHED), &model))
    };
    let free = with(|_| {});
    assert!(free.contains("thread 902"), "the neighbour makes room: {free}");
    for held in [with(|app| app.exempt = Some(Exemption::OptedOut)), with(|app| app.memory = None)]
    {
        assert!(!held.contains("CPUs 2-3"), "{held}");
        assert!(held.contains("CPUs 8-9"), "node 0 goes beside node 5 instead: {held}");
    }
}

#[test]
fn threads_stay_where_they_are_allowed() {
    let mut model = model(1000, &machine(), &[FAR]);
    let allowed = [0, 1, 10, 11, 12, 13].into_iter().collect::<rondpoint_core::CpuSet>();
    model.threads.iter_mut().for_each(|thread| thread.allowed = allowed.clone());
    let proposals = propose(&mut AsymSched::new(Preset::PUBLISHED), &model);
    expect![[r#"
        thread 700 of 7 to CPUs 0-1: stays on node 0, which keeps its part
        thread 701 of 7 to CPUs 0-1: stays on node 0, which keeps its part
        thread 710 of 7 to CPUs 12-13: node 5→6: weighted bandwidth +52.1 % (100.0 % of the best), moves 1.9 GiB, 600.0 ms of a budget of 50.0 s
        thread 711 of 7 to CPUs 12-13: node 5→6: weighted bandwidth +52.1 % (100.0 % of the best), moves 1.9 GiB, 600.0 ms of a budget of 50.0 s
    "#]].assert_eq(&text(&proposals));
}

#[test]
fn without_bandwidth_or_on_a_symmetric_machine_nothing_is_proposed() {
    let plain = synthetic::parse("node:8 core:2").expect("a machine");
    let model = model(1000, &plain, &[FAR]);
    let mut policy = AsymSched::new(Preset::PUBLISHED);
    let proposals = policy.propose(&model, &plain, &mut Random::new(0));
    assert!(proposals.iter().all(|one| one.action.kind() == Kind::Sampling), "{proposals:?}");
}

#[test]
fn a_new_process_with_an_old_number_starts_anew() {
    let mut policy = moved(Preset::PUBLISHED);
    let mut model = far_after(1001, "0>5:50 1>5:50");
    model.apps[0].started = Nanos::from_secs(1000);
    assert_eq!(text(&propose(&mut policy, &model)), "");
    model.at = Nanos::from_secs(1010);
    assert_eq!(text(&propose(&mut policy, &model)), "");
}
