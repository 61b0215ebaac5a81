//! What holds whatever the machine shows. No policy works against another in one step. Nothing is
//! both done and held back. No policy proposes a CPU that a thread may not use.

use crate::scene::machine;
use proptest::prelude::*;
use rondpoint_core::model::{App, Model, Thread, Traffic};
use rondpoint_core::plan::{Kind, Outcome, PageCounts, Plan, Proposal, Refused, StepResult};
use rondpoint_core::policy::POLICIES;
use rondpoint_core::policy::auto::Auto;
use rondpoint_core::topology::{Topology, synthetic};
use rondpoint_core::{Action, Bytes, Matrix, Nanos, Pid, Policy, Random, Reason, Tid};
use std::collections::BTreeSet;

const NODES: usize = 4;

/// Four nodes of two CPUs, of which pairs are closer than others, or which all are alike.
fn topology(asymmetric: bool) -> Topology {
    if !asymmetric {
        return machine("node:4 core:2 mhz:2200");
    }
    let mut description = synthetic::describe("node:4 core:2 mhz:2200").expect("a machine");
    let near = |n: usize, m: usize| if n / 2 == m / 2 { 7e9 } else { 1e9 };
    description.bandwidth_bytes_per_s = Some(Matrix::from_fn(NODES, near));
    Topology::new(description).expect("a machine")
}

#[derive(Debug, Clone)]
struct Drawn {
    threads: Vec<DrawnThread>,
    traffic: Vec<u8>,
    memory_gib: [u8; NODES],
    /// (home, accessing nodes).
    pages: Vec<(u16, BTreeSet<u16>)>,
}

#[derive(Debug, Clone)]
struct DrawnThread {
    cpu: usize,
    /// Rates as multiples of 2²⁰ per second.
    coherence: u8,
    sharing: u8,
    memory: u8,
    remote: u8,
    mpki: u8,
    /// CPUs that it may use beside its own; `None` = all.
    others: Option<BTreeSet<usize>>,
}

fn thread() -> impl Strategy<Value = DrawnThread> {
    let some = prop::collection::btree_set(0..2 * NODES, 0..2 * NODES);
    let others = prop_oneof![Just(None), some.prop_map(Some)];
    let rates = prop::array::uniform4(0_u8..12);
    (0..2 * NODES, rates, 0_u8..40, others).prop_map(
        |(cpu, [coherence, sharing, memory, remote], mpki, others)| DrawnThread {
            cpu,
            coherence,
            sharing,
            memory,
            remote,
            mpki,
            others,
        },
    )
}

fn app() -> impl Strategy<Value = Drawn> {
    let nodes = prop::collection::btree_set(0..NODES as u16, 1..3);
    (
        prop::collection::vec(thread(), 1..4),
        prop::collection::vec(0_u8..60, NODES * NODES),
        prop::array::uniform4(0_u8..3),
        prop::collection::vec((0..NODES as u16, nodes), 0..6),
    )
        .prop_map(|(threads, traffic, memory_gib, pages)| Drawn {
            threads,
            traffic,
            memory_gib,
            pages,
        })
}

fn model(apps: &[Drawn], topology: &Topology) -> Model {
    let mut model = Model::empty(NODES);
    for (index, drawn) in apps.iter().enumerate() {
        let first = model.threads.len();
        for one in &drawn.threads {
            let tid = Tid(100 + model.threads.len() as u32);
            let allowed = match &one.others {
                Some(others) => others.iter().copied().chain([one.cpu]).collect(),
                None => topology.all_cpus(),
            };
            let mut thread = Thread::new(tid, index, one.cpu, allowed);
            let rate = |millions: u8| Some(f64::from(millions) * f64::from(1 << 20));
            thread.rates.coherence_remote_per_s = rate(one.coherence / 8);
            thread.rates.coherence_local_per_s = rate(one.sharing / 8);
            thread.rates.memory_per_s = rate(one.memory);
            thread.rates.remote_dram_per_s = rate(one.remote);
            thread.rates.mpki = Some(f64::from(one.mpki));
            model.threads.push(thread);
        }
        let mut app = App::new(Pid(index as u32 + 1), first..model.threads.len());
        let rate = |n, m| f64::from(drawn.traffic[n * NODES + m]);
        app.traffic = Some(Traffic::new(Matrix::from_fn(NODES, rate)));
        let gib = drawn.memory_gib.map(|gib| Bytes::from_gib(u64::from(gib)));
        app.memory = Some(gib.to_vec());
        model.apps.push(app);
        for (page, (home, nodes)) in drawn.pages.iter().enumerate() {
            for &node in nodes.iter().chain(nodes) {
                let address = (page as u64 + 1) << 12;
                model.pages.record(index as u32, address, 12, *home, node, false);
            }
        }
    }
    model.check(topology).expect("a model without contradictions");
    model
}

/// What `auto` proposed and held back in each of six seconds of the same.
fn run(apps: &[Drawn], asymmetric: bool) -> Vec<(Vec<Proposal>, Vec<Refused>)> {
    let topology = topology(asymmetric);
    let model = model(apps, &topology);
    run_policy(&mut Auto::default(), model, &topology)
}

/// Six seconds of the same on a host that obeys: what a policy proposed and held back in each.
fn run_policy(
    policy: &mut dyn Policy,
    mut model: Model,
    topology: &Topology,
) -> Vec<(Vec<Proposal>, Vec<Refused>)> {
    let mut random = Random::new(1);
    let mut steps = Vec::new();
    for second in 1..=6 {
        model.at = Nanos::from_secs(1000 + second);
        let proposals = policy.propose(&model, topology, &mut random);
        let plan = Plan { number: second, steps: proposals.clone(), ..Plan::default() };
        let result = |one: &Proposal| match one.action {
            Action::SetAffinity { .. } | Action::SetSampling { .. } => StepResult::Done,
            _ => StepResult::Pages(PageCounts { moved: 1, ..PageCounts::default() }),
        };
        let outcome = |(step, one)| Outcome {
            plan: second,
            step,
            result: result(one),
            spent: Nanos(0),
            frozen: Nanos(0),
        };
        let outcomes: Vec<Outcome> = proposals.iter().enumerate().map(outcome).collect();
        policy.learn(&plan, &outcomes);
        steps.push((proposals, policy.take_choice().refused));
    }
    steps
}

fn pids(proposals: &[Proposal], wanted: impl Fn(&Proposal) -> bool) -> BTreeSet<Pid> {
    proposals.iter().filter(|one| wanted(one)).filter_map(|one| one.action.pid()).collect()
}

fn moves_pages(one: &Proposal) -> bool {
    matches!(one.action, Action::MovePages { .. } | Action::Replicate { .. })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn carrefour_moves_no_page_of_a_process_that_others_move(apps in prop::collection::vec(app(), 1..4), asymmetric: bool) {
        for (proposals, _) in run(&apps, asymmetric) {
            let pages = pids(&proposals, |one| moves_pages(one) && matches!(one.reason, Reason::Carrefour(_)));
            let moves = |one: &Proposal| one.action.kind() != Kind::Sampling;
            let others = pids(&proposals, |one| moves(one) && !matches!(one.reason, Reason::Carrefour(_)));
            prop_assert!(pages.is_disjoint(&others), "{proposals:?}");
        }
    }

    #[test]
    fn a_thread_that_sam_moves_is_not_n_masss_too(apps in prop::collection::vec(app(), 1..4)) {
        for (proposals, _) in run(&apps, false) {
            let mut seen = BTreeSet::new();
            for one in &proposals {
                if let Action::SetAffinity { tid, .. } = one.action {
                    prop_assert!(seen.insert(tid), "{proposals:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_held_back_is_not_done(apps in prop::collection::vec(app(), 1..4), asymmetric: bool) {
        for (proposals, held) in run(&apps, asymmetric) {
            for one in held {
                prop_assert!(!proposals.contains(&one.proposal), "{one:?}");
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_plans(apps in prop::collection::vec(app(), 1..4), asymmetric: bool) {
        prop_assert_eq!(run(&apps, asymmetric), run(&apps, asymmetric));
    }
}

/// Every registered policy with every preset.
fn policies() -> Vec<(&'static str, Option<&'static str>, Box<dyn Policy>)> {
    let mut policies = Vec::new();
    for policy in POLICIES {
        for preset in core::iter::once(None).chain(policy.presets.iter().copied().map(Some)) {
            policies.push((policy.name, preset, (policy.make)(preset).expect("its own preset")));
        }
    }
    policies
}

proptest! {
    // Each case runs about thirty policies for six seconds.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_proposal_leaves_the_allowed_cpus(apps in prop::collection::vec(app(), 1..4), asymmetric: bool) {
        let topology = topology(asymmetric);
        let model = model(&apps, &topology);
        for (name, preset, mut policy) in policies() {
            let seconds = run_policy(policy.as_mut(), model.clone(), &topology);
            let each = |(steps, held): (Vec<Proposal>, Vec<Refused>)| {
                steps.into_iter().chain(held.into_iter().map(|one| one.proposal))
            };
            for step in seconds.into_iter().flat_map(each) {
                let Action::SetAffinity { tid, cpus, via, .. } = &step.action else { continue };
                let allowed = &model.thread(*tid).expect("a thread of the model").allowed;
                let stays = !cpus.is_empty() && cpus.is_subset(allowed);
                prop_assert!(stays, "{name} {preset:?}: {step:?} of {allowed}");
                let goes_by = via.is_none_or(|cpu| allowed.contains(cpu));
                prop_assert!(goes_by, "{name} {preset:?}: {step:?} of {allowed}");
            }
        }
    }
}
