//! What holds for every thread policy on any model: masks are allowed, and a thread has one
//! destination. The same input gives the same proposals. An interval in which nothing was sensed
//! gives none.

use proptest::prelude::*;
use rondpoint_core::model::{App, Model, PageId, Thread, ThreadRates, Touch};
use rondpoint_core::observation::Exemption;
use rondpoint_core::policy::by_name;
use rondpoint_core::topology::{Topology, synthetic};
use rondpoint_core::{Action, Bytes, CpuSet, Nanos, Pid, Proposal, Random, Tid};
use std::collections::BTreeSet;

/// Every thread policy with every preset.
fn policies() -> Vec<(&'static str, Option<&'static str>)> {
    let presets = |name| {
        let presets = by_name(name).expect("it is built in").presets;
        presets.iter().map(move |preset| (name, Some(*preset)))
    };
    let without = ("home", None);
    ["nmass", "sam", "sharing"].into_iter().flat_map(presets).chain([without]).collect()
}

fn topology() -> impl Strategy<Value = Topology> {
    (
        2_usize..5,
        1_usize..3,
        1_usize..4,
        1_usize..3,
        proptest::collection::btree_set(0_usize..64, 0..3),
    )
        .prop_map(|(nodes, domains, cores, threads, isolated)| {
            let line = format!("node:{nodes} llc:{domains} core:{cores} pu:{threads} mhz:2200");
            let mut description = synthetic::describe(&line).expect("a machine");
            for cpu in isolated {
                if let Some(cpu) = description.cpus.get_mut(cpu) {
                    cpu.isolated = true;
                }
            }
            Topology::new(description).expect("a machine")
        })
}

fn rates() -> impl Strategy<Value = ThreadRates> {
    let rate = |limit: f64| proptest::option::weighted(0.8, 0.0..limit);
    (rate(2e6), rate(2e6), rate(2e7), rate(9e6), rate(40.0), rate(3.0), rate(500.0)).prop_map(
        |(remote, local, memory, dram, mpki, ipc, stalls)| ThreadRates {
            coherence_remote_per_s: remote,
            coherence_local_per_s: local,
            memory_per_s: memory,
            remote_dram_per_s: dram,
            mpki,
            ipc,
            stalls_per_coherence: stalls,
            ..ThreadRates::default()
        },
    )
}

#[derive(Debug, Clone)]
struct Drawn {
    cpu: usize,
    allowed: BTreeSet<usize>,
    share: f64,
    rates: ThreadRates,
    is_exempt: bool,
    begins_app: bool,
    home: Option<usize>,
    /// The node of its own data.
    data: Option<usize>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let allowed = prop_oneof![
        2 => Just((0..64).collect::<BTreeSet<usize>>()),
        1 => proptest::collection::btree_set(0_usize..64, 1..40),
    ];
    let share = prop_oneof![3 => Just(1.0), 1 => 0.0..1.0];
    (
        0_usize..64,
        allowed,
        share,
        rates(),
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.6),
        proptest::option::of(0_usize..4),
        proptest::option::of(0_usize..4),
    )
        .prop_map(|(cpu, allowed, share, rates, is_exempt, begins_app, home, data)| Drawn {
            cpu,
            allowed,
            share,
            rates,
            is_exempt,
            begins_app,
            home,
            data,
        })
}

fn model(topology: &Topology, threads: &[Drawn], touches: &[(u32, usize)]) -> Model {
    let mut model = Model::empty(topology.node_count());
    for (index, drawn) in threads.iter().enumerate() {
        if model.apps.is_empty() || drawn.begins_app {
            let mut app = App::new(Pid(index as u32), index..index);
            let bytes = |node| Bytes::from_gib(u64::from(Some(node) == drawn.home));
            app.memory = Some((0..topology.node_count()).map(bytes).collect());
            model.apps.push(app);
        }
        let allowed: CpuSet = drawn.allowed.iter().map(|cpu| cpu % topology.cpu_count()).collect();
        let cpu = allowed.iter().nth(drawn.cpu % allowed.len()).expect("not empty");
        let mut thread = Thread::new(Tid(index as u32), model.apps.len() - 1, cpu, allowed);
        thread.cpu_share = drawn.share;
        thread.rates = drawn.rates;
        let accesses = |node| if Some(node) == drawn.data { 100 } else { 3 };
        thread.accesses_by_node =
            drawn.data.map(|_| (0..topology.node_count()).map(accesses).collect());
        thread.exempt = drawn.is_exempt.then_some(Exemption::OwnAffinity);
        model.threads.push(thread);
        model.apps.last_mut().expect("an app").threads.end = index + 1;
    }
    for &(page, thread) in touches {
        let thread = thread % threads.len();
        let app = model.threads[thread].app as u32;
        if let Some(PageId(page)) = model.pages.record(app, u64::from(page) << 12, 12, 0, 0, false)
        {
            model.touches.push(Touch { page: PageId(page), thread: thread as u32, remote: true });
        }
    }
    model.check(topology).expect("a model without contradictions");
    model
}

fn case() -> impl Strategy<Value = (Topology, Model)> {
    let threads = proptest::collection::vec(drawn(), 1..24);
    let touches = proptest::collection::vec((0_u32..6, 0_usize..24), 0..200);
    (topology(), threads, touches).prop_map(|(topology, threads, touches)| {
        let model = model(&topology, &threads, &touches);
        (topology, model)
    })
}

/// Proposals of six intervals of a second each in the same state: the last is judged, the others
/// fill histories.
fn proposals(
    name: &str,
    preset: Option<&str>,
    topology: &Topology,
    model: &Model,
) -> Vec<Proposal> {
    let make = by_name(name).expect("it is built in").make;
    let (mut policy, mut random) = (make(preset).expect("a preset"), Random::new(1));
    let mut model = model.clone();
    let mut all = Vec::new();
    for second in 1..=6 {
        model.at = Nanos::from_secs(second);
        let proposals = policy.propose(&model, topology, &mut random);
        check_interval(&proposals, topology, &model);
        all.extend(proposals);
    }
    all
}

/// Each proposal is allowed, and each thread has at most one.
fn check_interval(proposals: &[Proposal], topology: &Topology, model: &Model) {
    let mut seen = BTreeSet::new();
    for proposal in proposals {
        let Action::SetAffinity { pid, tid, cpus, via } = &proposal.action else {
            panic!("thread policies move threads only: {}", proposal.action)
        };
        let thread = model.thread(*tid).expect("the thread is in the model");
        assert_eq!(model.apps[thread.app].pid, *pid);
        assert!(thread.exempt.is_none(), "{proposal:?}");
        assert!(!cpus.is_empty() && cpus.is_subset(&thread.allowed), "{proposal:?}");
        assert!(cpus.iter().chain(*via).all(|cpu| !topology.cpu(cpu).isolated), "{proposal:?}");
        assert!(via.is_none_or(|cpu| thread.allowed.contains(cpu)), "{proposal:?}");
        assert!(seen.insert(*tid), "two destinations: {proposal:?}");
    }
}

proptest! {
    // Each case runs ten policies for twelve intervals.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn proposals_are_allowed_single_and_the_same_each_time((topology, model) in case()) {
        for (name, preset) in policies() {
            let first = proposals(name, preset, &topology, &model);
            let again = proposals(name, preset, &topology, &model);
            prop_assert_eq!(first, again, "{} {:?}", name, preset);
        }
    }

    #[test]
    fn what_could_not_be_sensed_moves_nobody((topology, mut model) in case()) {
        for thread in &mut model.threads {
            thread.rates = ThreadRates::default();
            thread.accesses_by_node = None;
        }
        model.touches.clear();
        for (name, preset) in policies() {
            let found = proposals(name, preset, &topology, &model);
            prop_assert_eq!(found, vec![], "{} {:?}", name, preset);
        }
    }
}
