//! Laws of a choice over drawn worlds. The names of nodes do not matter, and more evidence of the
//! same takes no decision back.
//!
//! Evidence is of the same if it tells the same shares: a thread's samples those of its process's
//! traffic, each page one accessing node. Samples that tell something else may take a decision
//! back, because they correct the estimate on which it was made.

use super::{Chosen, arbiter, choose, scene, spread, step};
use proptest::prelude::*;
use rondpoint_core::arbiter::Arbiter;
use rondpoint_core::cost::{Facts, Sampled, Seen};
use rondpoint_core::matrix::Matrix;
use rondpoint_core::model::{App, Model, Thread, Traffic};
use rondpoint_core::plan::{Choice, Mechanism, PageMove, Permitted, Refusal, Refused};
use rondpoint_core::topology::{Costs, Topology, synthetic};
use rondpoint_core::{Action, Bytes, CpuSet, Nanos, Pid, Proposal, Tid};
use std::collections::{BTreeMap, BTreeSet};

const NODES: usize = 4;
const CPUS_OF_NODE: usize = 2;
/// Nodes with their own names.
const SAME: [usize; NODES] = [0, 1, 2, 3];
/// Pages are of 2 MiB.
const SHIFT: u8 = 21;
/// Difference that rounding may make, relative or in CPU seconds: sums over nodes have another
/// order under other names.
const ROUNDING: f64 = 1e-4;
/// The same of a value: a rate over the horizon of ten seconds, for all CPUs of a process.
const EDGE: f64 = 40.0 * ROUNDING;

/// A machine and processes whose threads all use the memory of their process alike.
#[derive(Debug, Clone)]
struct World {
    /// GB/s of each controller.
    gbs: f64,
    /// ns to a node, beside those of local memory.
    hop_ns: [f64; NODES],
    processes: Vec<Process>,
}

#[derive(Debug, Clone)]
struct Process {
    /// Node, place on the node and share of a CPU of each thread.
    threads: Vec<(usize, usize, f64)>,
    /// DRAM requests in a µs of CPU time.
    per_us: f64,
    stalled: f64,
    latency_cycles: f64,
    /// log2 of the weight of each node's memory among the requests.
    weights: [u32; NODES],
    /// Holding node and accessing node of sampled pages, and how many nodes further they would go.
    pages: Vec<(usize, usize, usize)>,
    /// The thread that would move, and how many nodes further.
    mover: (prop::sample::Index, usize),
}

fn process() -> impl Strategy<Value = Process> {
    let thread = (0..NODES, 0..CPUS_OF_NODE, 0.2..1.0f64);
    let page = (0..NODES, 0..NODES, 1..NODES);
    (
        prop::collection::vec(thread, 1..5),
        (0.1..30.0f64, 0.05..0.95f64, 150.0..1500.0f64),
        prop::array::uniform4(0_u32..9),
        prop::collection::vec(page, 1..12),
        (any::<prop::sample::Index>(), 1..NODES),
    )
        .prop_map(|(threads, (per_us, stalled, latency_cycles), weights, pages, mover)| {
            Process { threads, per_us, stalled, latency_cycles, weights, pages, mover }
        })
}

fn world() -> impl Strategy<Value = World> {
    let hops = prop::array::uniform4(0.0..60.0f64);
    (4.0..40.0f64, hops, prop::collection::vec(process(), 1..3))
        .prop_map(|(gbs, hop_ns, processes)| World { gbs, hop_ns, processes })
}

/// How much was seen of a world.
#[derive(Debug, Clone, Copy)]
struct Evidence {
    /// Samples of a thread in the memory with the least weight. A page has twice, a latency four
    /// times as many.
    samples: u32,
    elapsed: Nanos,
    /// Windows before the choice, all alike.
    windows: u64,
}

const ENOUGH: Evidence = Evidence { samples: 64, elapsed: Nanos::from_secs(1), windows: 8 };

impl World {
    /// The machine, with node i called `names[i]`.
    fn topology(&self, names: [usize; NODES]) -> Topology {
        let line = format!("node:{NODES} core:{CPUS_OF_NODE} mhz:2000");
        let mut description = synthetic::describe(&line).expect("a machine");
        for node in &mut description.nodes {
            node.controller_bytes_per_s = Some(self.gbs * 1e9);
        }
        let mut latency_ns = Matrix::filled(NODES, 80.0);
        for (a, h) in (0..NODES).flat_map(|a| (0..NODES).map(move |h| (a, h))) {
            let hop = if a == h { 0.0 } else { self.hop_ns[a].max(self.hop_ns[h]) };
            latency_ns[(names[a], names[h])] += hop;
        }
        description.costs = Costs { latency_ns: Some(latency_ns), ..Costs::default() };
        Topology::new(description).expect("a sound machine")
    }

    /// One window, with node i called `names[i]`.
    fn model(&self, names: [usize; NODES], evidence: Evidence) -> Model {
        let mut model = Model::empty(NODES);
        model.elapsed = evidence.elapsed;
        for (index, process) in self.processes.iter().enumerate() {
            process.add_to(&mut model, index, names, evidence.samples);
        }
        model
    }

    /// Two candidates of each process: its pages by one policy, a thread by another.
    fn proposals(&self, names: [usize; NODES]) -> Vec<Proposal> {
        let mut first = 0;
        let of_process = |(index, process): (usize, &Process)| {
            let tid = first + process.mover.0.index(process.threads.len());
            first += process.threads.len();
            process.proposals(Pid(index as u32 + 1), Tid(tid as u32), names)
        };
        self.processes.iter().enumerate().flat_map(of_process).collect()
    }

    fn choose(
        &self,
        names: [usize; NODES],
        evidence: Evidence,
        proposals: Vec<Proposal>,
    ) -> Chosen {
        let (topology, mut model) = (self.topology(names), self.model(names, evidence));
        let mut arbiter = Arbiter::default();
        for window in 1..=evidence.windows {
            model.at = Nanos::from_secs(2 + window);
            arbiter.observe(&model, &topology);
        }
        let facts = Facts::of(&model, &topology);
        let pages = Sampled::of(&model, &topology);
        let seen = Seen { model: &model, pages: &pages, topology: &topology, facts: &facts };
        let mut choice = Choice::default();
        let steps = arbiter.choose(seen, proposals, &Permitted::all, &|_| false, &mut choice);
        Chosen { steps, refused: choice.refused, predicted: choice.predicted }
    }

    /// Whether a proposal is chosen where it is the only one.
    fn takes(&self, evidence: Evidence, proposal: &Proposal) -> bool {
        !self.choose(SAME, evidence, vec![proposal.clone()]).steps.is_empty()
    }
}

impl Process {
    fn add_to(&self, model: &mut Model, index: usize, names: [usize; NODES], samples: u32) {
        let first = model.threads.len();
        let (mut asked, mut weights) = ([0.0; NODES], [0; NODES]);
        names.iter().zip(self.weights).for_each(|(name, log2)| weights[*name] = 1_u32 << log2);
        for (node, place, share) in &self.threads {
            let (tid, node) = (Tid(model.threads.len() as u32), names[*node]);
            let cpu = CPUS_OF_NODE * node + place;
            let mut thread = Thread::new(tid, index, cpu, CpuSet::first(NODES * CPUS_OF_NODE));
            (thread.cpu_share, thread.rates.stall_share) = (*share, Some(self.stalled));
            thread.accesses_by_node = Some(weights.map(|weight| samples * weight).into());
            asked[node] += share * self.per_us;
            model.threads.push(thread);
        }
        let mut app = App::new(Pid(index as u32 + 1), first..model.threads.len());
        (app.latency_cycles, app.latency_accesses) =
            (Some(self.latency_cycles), 4.0 * f64::from(samples));
        let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let rate = |a: usize, h: usize| asked[a] * f64::from(weights[h]) / all;
        app.traffic = Some(Traffic::new(Matrix::from_fn(NODES, rate)));
        app.memory = Some(weights.map(|weight| Bytes(u64::from(weight) << SHIFT)).into());
        model.apps.push(app);
        for (page, (home, user, _)) in self.pages.iter().enumerate() {
            let (home, user) = (names[*home] as u16, names[*user] as u16);
            // Two at least: a page that was sampled once says nothing of its owner.
            for _ in 0..2 * samples {
                let added =
                    model.pages.record(index as u32, address(page), SHIFT, home, user, false);
                added.expect("room");
            }
        }
    }

    fn proposals(&self, pid: Pid, tid: Tid, names: [usize; NODES]) -> [Proposal; 2] {
        let further = |node: usize, turn: usize| names[(node + turn) % NODES];
        let page = |(number, (home, _, turn)): (usize, &(usize, usize, usize))| PageMove {
            address: address(number),
            shift: SHIFT,
            from: names[*home] as u16,
            to: further(*home, *turn) as u16,
        };
        let pages = self.pages.iter().enumerate().map(page).collect();
        let (thread, turn) = &self.mover;
        let cpu = CPUS_OF_NODE * further(thread.get(&self.threads).0, *turn);
        let cpus = (cpu..cpu + CPUS_OF_NODE).collect();
        [
            step("carrefour", Action::MovePages { pid, mechanism: Mechanism::CoLocation, pages }),
            step("sam", Action::SetAffinity { pid, tid, cpus, via: None }),
        ]
    }
}

fn address(page: usize) -> u64 {
    (page as u64 + 1) << SHIFT
}

/// What became of each proposal, by its place among all.
#[derive(Debug)]
struct Outcome {
    taken: BTreeSet<usize>,
    /// Value and expected gain of those that were not worth it.
    refused: BTreeMap<usize, (f64, f64)>,
    predicted: BTreeMap<Pid, f64>,
}

impl Outcome {
    fn of(chosen: &Chosen, proposals: &[Proposal]) -> Self {
        let place = |step: &Proposal| {
            proposals.iter().position(|one| one == step).expect("it was proposed")
        };
        let worth = |one: &Refused| match one.refusal {
            Refusal::Worth { worth: Some(worth) } => {
                Some((place(&one.proposal), (worth.value(), worth.won)))
            }
            _ => None,
        };
        Self {
            taken: chosen.steps.iter().map(place).collect(),
            refused: chosen.refused.iter().filter_map(worth).collect(),
            predicted: chosen.predicted.clone(),
        }
    }

    /// Whether it takes all that another outcome takes, but for what is at the edge.
    fn takes_all_of(&self, other: &Self) -> bool {
        let is_at_edge =
            |place: &usize| self.refused.get(place).is_some_and(|(value, _)| *value > -EDGE);
        other.taken.difference(&self.taken).all(is_at_edge)
    }
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= ROUNDING * (1.0 + one.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn renaming_nodes_renames_what_is_chosen(
        world in world(),
        names in Just(SAME).prop_shuffle(),
    ) {
        let [one, other] = [SAME, names].map(|names| {
            let proposals = world.proposals(names);
            Outcome::of(&world.choose(names, ENOUGH, proposals.clone()), &proposals)
        });
        prop_assert!(one.takes_all_of(&other) && other.takes_all_of(&one), "{one:?} {other:?}");
        if one.taken == other.taken {
            for (pid, gain) in &one.predicted {
                let same = other.predicted.get(pid).is_some_and(|other| is_close(*gain, *other));
                prop_assert!(same, "{one:?} {other:?}");
            }
            for (place, (_, won)) in &one.refused {
                let other_won = other.refused.get(place);
                let same = other_won.is_some_and(|(_, other)| is_close(*won, *other));
                prop_assert!(same, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn twice_the_evidence_in_twice_the_time_takes_no_decision_back(
        world in world(),
        samples in 1_u32..64,
    ) {
        let some = Evidence { samples, ..ENOUGH };
        let twice = Evidence { samples: 2 * samples, elapsed: Nanos::from_secs(2), ..some };
        for proposal in world.proposals(SAME) {
            let is_kept = !world.takes(some, &proposal) || world.takes(twice, &proposal);
            prop_assert!(is_kept, "{proposal:?}");
        }
    }

    #[test]
    fn another_window_of_the_same_takes_no_decision_back(world in world(), windows in 1_u64..30) {
        let some = Evidence { windows, ..ENOUGH };
        let more = Evidence { windows: windows + 1, ..ENOUGH };
        for proposal in world.proposals(SAME) {
            let is_kept = !world.takes(some, &proposal) || world.takes(more, &proposal);
            prop_assert!(is_kept, "{proposal:?}");
        }
    }
}

/// The numbers of measured accesses are powers of two.
#[test]
fn few_accesses_prove_no_gain_and_from_some_number_on_all_do() {
    let is_enough = |doublings: u32| {
        let mut jam = scene([1.0, 0.0, 0.0, 0.0], 15.0, 900.0);
        jam.apps[0].latency_accesses = f64::from(1_u32 << doublings);
        !choose(&mut arbiter(&jam), &jam, vec![spread()]).steps.is_empty()
    };
    let enough: Vec<bool> = (0..20).map(is_enough).collect();
    assert!(!enough[0] && enough[19], "{enough:?}");
    assert!(enough.is_sorted(), "{enough:?}");
}
