//! The arbiter takes what wins, leaves what does not, and remembers broken promises.

mod laws;
mod mixed;
mod pairs;

use rondpoint_core::arbiter::Arbiter;
use rondpoint_core::cost::{CopiesFromStart, Facts, Partners, Sampled, Seen, SpreadFromStart};
use rondpoint_core::matrix::Matrix;
use rondpoint_core::model::{App, Rung, Thread, Traffic, TrafficSource};
use rondpoint_core::plan::{
    Choice, Kind, Mechanism, NodeMove, PageMove, Permits, Permitted, Refusal, Refused, Sampling,
};
use rondpoint_core::topology::synthetic;
use rondpoint_core::trial::{Change, Comparison, Judged, Verdict};
use rondpoint_core::{Action, Bytes, CpuSet, Model, Nanos, Pid, Proposal, Reason, Tid, Topology};
use std::collections::BTreeMap;

const PAGES: u64 = 1024;

fn machine() -> Topology {
    synthetic::parse("node:4 core:2 gbs:4 mhz:2000").expect("a machine")
}

/// A process with a thread on each of four nodes that asks for `per_us` lines. Its memory is on
/// nodes as `holds` says.
fn scene(holds: [f64; 4], per_us: f64, latency_cycles: f64) -> Model {
    let mut model = Model::empty(4);
    model.at = Nanos::from_secs(20);
    for node in 0..4 {
        let mut thread = Thread::new(Tid(node as u32), 0, 2 * node, CpuSet::first(8));
        (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(0.8));
        model.threads.push(thread);
    }
    let mut app = App::new(Pid(1), 0..4);
    (app.latency_cycles, app.latency_accesses) = (Some(latency_cycles), 1e6);
    app.traffic = Some(Traffic::new(Matrix::from_fn(4, |_, holding| per_us * holds[holding])));
    app.memory = Some(holds.map(|share| Bytes((share * (PAGES << 12) as f64) as u64)).into());
    model.traffic.clone_from(&app.traffic);
    model.apps.push(app);
    model
}

fn step(policy: &'static str, action: Action) -> Proposal {
    Proposal { policy, action, reason: Reason::Other("a test".to_string()) }
}

/// Three fourths of the pages of node 0 to the others.
fn spread() -> Proposal {
    let page = |number: u64| PageMove {
        address: number << 12,
        shift: 12,
        from: 0,
        to: 1 + (number % 3) as u16,
    };
    let pages = (0..3 * PAGES / 4).map(page).collect();
    step("carrefour", Action::MovePages { pid: Pid(1), mechanism: Mechanism::Interleaving, pages })
}

/// All memory to node 0.
fn gather() -> Proposal {
    let nodes = [1, 2, 3].map(|from| NodeMove { from, to: 0 }).into();
    let memory = Bytes(3 << 20);
    step("other", Action::MoveProcessMemory { pid: Pid(1), nodes, freeze: false, memory })
}

/// The result of a choice.
#[derive(Debug)]
struct Chosen {
    steps: Vec<Proposal>,
    refused: Vec<Refused>,
    predicted: BTreeMap<Pid, f64>,
}

/// What a choice is made beside.
#[derive(Clone, Copy)]
struct Beside<'a> {
    /// What remains of a step now.
    permits: Permits<'a>,
    /// Processes of which samples are awaited.
    asked: &'a [Pid],
    partners: &'a Partners,
}

/// Everything is permitted, no samples are awaited, no partners are known.
fn nothing() -> Beside<'static> {
    Beside { permits: &Permitted::all, asked: &[], partners: Partners::none() }
}

fn choose(arbiter: &mut Arbiter, model: &Model, proposals: Vec<Proposal>) -> Chosen {
    nothing().choose(arbiter, model, proposals)
}

impl Beside<'_> {
    fn choose(self, arbiter: &mut Arbiter, model: &Model, proposals: Vec<Proposal>) -> Chosen {
        let topology = machine();
        let facts = Facts::with_partners(model, &topology, self.partners);
        let pages = Sampled::of(model, &topology);
        let seen = Seen { model, pages: &pages, topology: &topology, facts: &facts };
        let (asked, mut choice) = (|pid| self.asked.contains(&pid), Choice::default());
        let steps = arbiter.choose(seen, proposals, self.permits, &asked, &mut choice);
        Chosen { steps, refused: choice.refused, predicted: choice.predicted }
    }
}

fn arbiter(model: &Model) -> Arbiter {
    let mut arbiter = Arbiter::default();
    arbiter.observe(model, &machine());
    arbiter
}

#[test]
fn what_wins_is_taken_and_what_harms_is_left_with_its_price() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let chosen = choose(&mut arbiter(&jam), &jam, vec![spread()]);
    assert_eq!((chosen.steps.len(), chosen.refused.len()), (1, 0));
    assert!(chosen.predicted[&Pid(1)] > 0.0, "{:?}", chosen.predicted);
    let even = scene([0.25; 4], 15.0, 400.0);
    let chosen = choose(&mut arbiter(&even), &even, vec![gather()]);
    assert!(chosen.steps.is_empty() && chosen.predicted.is_empty());
    let Refusal::Worth { worth: Some(worth) } = chosen.refused[0].refusal else {
        panic!("{:?}", chosen.refused);
    };
    assert!(worth.won < 0.0 && worth.value() < 0.0, "{worth:?}");
    assert!(chosen.refused[0].refusal.to_string().contains("would lose "), "{worth}");
}

#[test]
fn a_small_part_of_what_wins_is_taken_and_of_what_does_not_is_left() {
    let part = |mut whole: Proposal| {
        if let Action::MovePages { pages, .. } = &mut whole.action {
            pages.truncate(PAGES as usize / 256);
        }
        whole
    };
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let chosen = choose(&mut arbiter(&jam), &jam, vec![part(spread())]);
    assert_eq!(chosen.steps.len(), 1, "{:?}", chosen.refused);
    let idle = scene([1.0, 0.0, 0.0, 0.0], 0.5, 245.0);
    assert!(choose(&mut arbiter(&idle), &idle, vec![part(spread())]).steps.is_empty());
}

/// A gain of one or two percent has a trial for which others wait. That of a smaller one is open to
/// them.
#[test]
fn a_small_gain_waits_while_samples_are_about_to_tell_more() {
    let part = |share: u64| {
        let mut part = spread();
        if let Action::MovePages { pages, .. } = &mut part.action {
            pages.truncate((PAGES / share) as usize);
        }
        part
    };
    let mut jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    jam.apps[0].cpu_percent = 400.0;
    let chosen = |asked: &[Pid], step: &Proposal| {
        Beside { asked, ..nothing() }.choose(&mut arbiter(&jam), &jam, vec![step.clone()])
    };
    let taken = |asked: &[Pid], step: &Proposal| chosen(asked, step).steps.len();
    let predicted = |step: &Proposal| chosen(&[], step).predicted[&Pid(1)];
    let (small, smallest) = (part(64), part(256));
    assert!((0.01..0.02).contains(&predicted(&small)), "{}", predicted(&small));
    assert_eq!([taken(&[], &small), taken(&[Pid(1)], &small), taken(&[Pid(2)], &small)], [1, 0, 1]);
    assert!(predicted(&smallest) < 0.01, "{}", predicted(&smallest));
    assert_eq!(taken(&[Pid(1)], &smallest), 1);
    assert_eq!(taken(&[Pid(1)], &spread()), 1, "a jam does not wait");
}

#[test]
fn what_may_not_be_done_now_keeps_nothing_out_that_may() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let better = Proposal { policy: "better", ..spread() };
    let mut half = spread();
    if let Action::MovePages { pages, .. } = &mut half.action {
        pages.truncate(384);
    }
    let stays = Refusal::Residence { left: Nanos(1) };
    let none_of_better = |step: Proposal| match step.policy == "better" {
        true => Permitted { step: None, refused: vec![Refused { proposal: step, refusal: stays }] },
        false => Permitted::all(step),
    };
    let of = |permits: Permits<'_>| {
        let proposals = vec![better.clone(), half.clone()];
        let chosen = Beside { permits, ..nothing() }.choose(&mut arbiter(&jam), &jam, proposals);
        let told: Vec<Refusal> = chosen.refused.iter().map(|one| one.refusal).collect();
        (chosen.steps.iter().map(|step| step.policy).collect::<Vec<_>>(), told)
    };
    assert_eq!(of(&Permitted::all), (vec!["better"], vec![Refusal::Conflict]));
    assert_eq!(of(&none_of_better), (vec!["carrefour"], vec![stays]));
}

#[test]
fn a_step_that_keeps_a_better_one_waiting_has_to_win_what_that_loses() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let waits = Proposal { policy: "waits", ..spread() };
    let taken = |steps: Vec<Proposal>| {
        let mut arbiter = arbiter(&jam);
        in_trial().choose(&mut arbiter, &jam, steps).steps.len()
    };
    assert_eq!(taken(vec![spread_of(8)]), 1, "nothing waits");
    assert_eq!(taken(vec![spread_of(8), waits.clone()]), 0);
    assert_eq!(taken(vec![spread_of(700), waits]), 1);
}

/// A trial of another policy makes the steps of the policy "waits" wait.
fn in_trial() -> Beside<'static> {
    Beside { permits: &without_waiting, ..nothing() }
}

fn without_waiting(step: Proposal) -> Permitted {
    match step.policy == "waits" {
        true => Permitted {
            step: None,
            refused: vec![Refused { proposal: step, refusal: Refusal::TrialRunning }],
        },
        false => Permitted::all(step),
    }
}

/// The first pages of [`spread`].
fn spread_of(size: usize) -> Proposal {
    let mut step = spread();
    if let Action::MovePages { pages, .. } = &mut step.action {
        pages.truncate(size);
    }
    step
}

#[test]
fn a_step_that_waits_counts_until_its_policy_decides_again_or_for_a_second() {
    /// Steps that are taken in looks at these milliseconds: pages of a policy, beside a trial.
    fn taken(looks: &[(u64, &'static str, usize)]) -> Vec<usize> {
        let mut jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
        let (mut arbiter, begin) = (arbiter(&jam), jam.at);
        let mut look = |&(ms, policy, size): &(u64, &'static str, usize)| {
            jam.at = begin + Nanos::from_millis(ms);
            arbiter.observe(&jam, &machine());
            let step = Proposal { policy, ..spread_of(size) };
            in_trial().choose(&mut arbiter, &jam, vec![step]).steps.len()
        };
        looks.iter().map(&mut look).collect()
    }
    let waits = (0, "waits", 700);
    assert_eq!(taken(&[waits, (100, "other", 8)]), [0, 0]);
    assert_eq!(taken(&[waits, (100, "other", 700)]), [0, 1], "it wins as much");
    assert_eq!(taken(&[waits, (100, "waits", 0), (200, "other", 8)]), [0, 0, 1], "no gain waits");
    assert_eq!(taken(&[waits, (1000, "other", 8)]), [0, 1]);
}

#[test]
fn where_nothing_is_lost_nothing_is_done() {
    let idle = scene([1.0, 0.0, 0.0, 0.0], 0.5, 245.0);
    let chosen = choose(&mut arbiter(&idle), &idle, vec![spread()]);
    assert!(chosen.steps.is_empty(), "{:?}", chosen.refused);
}

#[test]
fn the_better_of_two_policies_has_the_process_and_the_other_is_told() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let half = |mut whole: Proposal| {
        if let Action::MovePages { pages, .. } = &mut whole.action {
            pages.truncate(200);
        }
        Proposal { policy: "half", ..whole }
    };
    for proposals in [vec![half(spread()), spread()], vec![spread(), half(spread())]] {
        let chosen = choose(&mut arbiter(&jam), &jam, proposals);
        let policies: Vec<&str> = chosen.steps.iter().map(|step| step.policy).collect();
        assert_eq!(policies, ["carrefour"]);
        assert_eq!(chosen.refused[0].refusal, Refusal::Conflict);
    }
}

#[test]
fn one_policy_has_the_process_with_all_its_mechanisms() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let half = |policy: &'static str, other: bool| {
        let mut half = spread();
        half.policy = policy;
        if let Action::MovePages { mechanism, pages, .. } = &mut half.action {
            pages.retain(|page| (page.address >> 12 < 3 * PAGES / 8) != other);
            if other {
                *mechanism = Mechanism::CoLocation;
            }
        }
        half
    };
    let taken = |one, other| {
        let both = vec![half(one, false), half(other, true)];
        choose(&mut arbiter(&jam), &jam, both).steps.len()
    };
    assert_eq!(taken("carrefour", "carrefour"), 2);
    assert_eq!(taken("carrefour", "other"), 1);
}

#[test]
fn a_broken_promise_is_not_believed_again_until_it_is_forgotten() {
    let mut jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let mut arbiter = arbiter(&jam);
    let change = Some(Change { change: -0.1, noise: 0.01 });
    let judged = Judged {
        pid: Pid(1),
        policy: "carrefour",
        plans: vec![1],
        kinds: vec![Kind::Pages(Mechanism::Interleaving)],
        verdict: Verdict::Worse,
        comparison: Comparison { instructions: change, ..Comparison::between(&[], &[]) },
        predicted: Some(0.5),
    };
    arbiter.judge(&[judged], jam.at);
    assert!(choose(&mut arbiter, &jam, vec![spread()]).steps.is_empty());
    jam.at = Nanos::from_secs(3_600);
    assert_eq!(choose(&mut arbiter, &jam, vec![spread()]).steps.len(), 1, "an hour later");
}

#[test]
fn what_cannot_be_priced_is_not_done_and_looking_costs_nothing() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let unknown =
        Action::SetAffinity { pid: Pid(9), tid: Tid(9), cpus: CpuSet::first(1), via: None };
    let look = Action::SetSampling { pid: Some(Pid(1)), sampling: Sampling::Off };
    let proposals = vec![step("sam", unknown), step("carrefour", look.clone())];
    let chosen = choose(&mut arbiter(&jam), &jam, proposals);
    assert_eq!(chosen.steps.iter().map(|step| &step.action).collect::<Vec<_>>(), [&look]);
    assert_eq!(chosen.refused[0].refusal, Refusal::Worth { worth: None });
}

/// The same jam where nothing is counted: page faults tell which node asks which.
fn faults_only(holds: [f64; 4]) -> Model {
    let mut model = scene(holds, 1e-3, 0.0);
    model.threads.iter_mut().for_each(|thread| thread.rates.stall_share = None);
    (model.apps[0].latency_cycles, model.apps[0].latency_accesses) = (None, 0.0);
    model.apps[0].traffic_source = TrafficSource::HintFaults;
    model
}

#[test]
fn where_only_faults_show_what_is_asked_a_jam_is_spread_and_even_traffic_is_left() {
    let jam = faults_only([1.0, 0.0, 0.0, 0.0]);
    assert_eq!(choose(&mut arbiter(&jam), &jam, vec![spread()]).steps.len(), 1);
    let even = faults_only([0.25; 4]);
    let chosen = choose(&mut arbiter(&even), &even, vec![gather()]);
    assert!(chosen.steps.is_empty());
}

/// As many threads as said, with their data on one node each. The kernel runs them on all nodes in
/// turn.
fn taking_turns(threads: u32) -> Model {
    let mut model = scene([0.25; 4], 10.0, 260.0);
    let share = 8.0 / f64::from(threads.max(8));
    model.threads = (0..threads)
        .map(|tid| {
            let home = tid as usize % 4;
            let cpu = (tid as usize * 3) % 8;
            let mut thread = Thread::new(Tid(tid), 0, cpu, CpuSet::first(8));
            (thread.cpu_share, thread.rates.stall_share) = (share, Some(0.8));
            thread.accesses_by_node =
                Some((0..4).map(|node| 100 * u32::from(node == home)).collect());
            thread.ran_on = Some(vec![25; 4]);
            thread
        })
        .collect();
    model.apps[0].threads = 0..threads as usize;
    model
}

fn held_at_home(model: &Model) -> Vec<Proposal> {
    let hold = |thread: &Thread| {
        let node = thread.tid.0 as usize % 4;
        let cpus = [2 * node, 2 * node + 1].into_iter().collect();
        step("home", Action::SetAffinity { pid: Pid(1), tid: thread.tid, cpus, via: None })
    };
    model.threads.iter().map(hold).collect()
}

#[test]
fn threads_wait_for_the_names_of_their_partners_however_little_they_promise() {
    let mut model = taking_turns(64);
    model.apps[0].cpu_percent = 800.0;
    let one = vec![held_at_home(&model).swap_remove(0)];
    let chosen = |asked: &[Pid]| {
        Beside { asked, ..nothing() }.choose(&mut arbiter(&model), &model, one.clone())
    };
    let predicted = chosen(&[]).predicted[&Pid(1)];
    assert!((0.0..0.01).contains(&predicted), "{predicted}");
    assert!(chosen(&[Pid(1)]).steps.is_empty());
}

#[test]
fn threads_that_take_turns_on_all_nodes_are_held_where_their_data_is() {
    let crowd = taking_turns(16);
    let chosen = choose(&mut arbiter(&crowd), &crowd, held_at_home(&crowd));
    assert_eq!(chosen.steps.len(), 16, "{:?}", chosen.refused.first());
    // Every thread is at home at this moment, by chance.
    let mut home = taking_turns(16);
    for (tid, thread) in home.threads.iter_mut().enumerate() {
        thread.cpu = 2 * (tid % 4) + usize::from(tid >= 8);
    }
    assert_eq!(choose(&mut arbiter(&home), &home, held_at_home(&home)).steps.len(), 16);
    // These were held before.
    home.threads.iter_mut().enumerate().for_each(|(tid, thread)| {
        thread.ran_on = Some((0..4).map(|node| 100 * u32::from(node == tid % 4)).collect());
    });
    assert!(choose(&mut arbiter(&home), &home, held_at_home(&home)).steps.is_empty());
}

/// What copies would have won over seconds that are all alike, the least.
fn copies_from_start(window: &Model, share: f64) -> f64 {
    let mut copies = CopiesFromStart::default();
    for second in 1..=4 {
        let mut window = window.clone();
        (window.at, window.elapsed) = (Nanos::from_secs(second), Nanos::from_secs(1));
        window.sensing.rung = Rung::Samples;
        window.apps[0].cpu_percent = 400.0;
        copies.observe(&window, &machine(), &[(window.apps[0].pid, share)]);
    }
    copies.gain().expect("priced").least
}

#[test]
fn copies_would_have_won_by_the_part_of_the_accesses_that_is_to_them() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let [all, half, none] = [1.0, 0.5, 0.0].map(|share| copies_from_start(&jam, share));
    assert!(all > 0.2, "{all}");
    assert!(half > 0.05 && half < all, "{half} of {all}");
    assert!(none < 0.01, "{none}");
    assert_eq!(CopiesFromStart::default().gain(), None);
}

/// What spread memory would have won over windows of a second.
fn spread_from_start(windows: &[Model]) -> Option<f64> {
    let mut spread = SpreadFromStart::default();
    for (second, window) in windows.iter().enumerate() {
        let mut window = window.clone();
        (window.at, window.elapsed) = (Nanos::from_secs(second as u64 + 1), Nanos::from_secs(1));
        window.sensing.rung = Rung::Samples;
        window.apps[0].cpu_percent = 400.0;
        spread.observe(&window, &machine());
    }
    spread.gain().map(|gain| gain.least)
}

#[test]
fn a_run_that_was_jammed_to_its_end_would_have_won_with_memory_spread_from_its_start() {
    let jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
    let even = scene([0.25; 4], 15.0, 400.0);
    let gain = |windows: &[&Model]| {
        spread_from_start(&windows.iter().map(|one| (*one).clone()).collect::<Vec<_>>())
    };
    let (all, half, none) = (gain(&[&jam; 4]), gain(&[&jam, &even]), gain(&[&even; 4]));
    assert!(all > Some(0.2), "{all:?}");
    assert!(half > Some(0.1) && half < all, "{half:?} of {all:?}");
    assert!(none < Some(0.01), "{none:?}");
    assert_eq!(gain(&[]), None);
}
