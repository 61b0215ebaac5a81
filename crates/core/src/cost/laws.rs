//! Laws that hold for the price of any placement, over drawn machines and windows.

use super::effect::Effect;
use super::facts::Facts;
use super::lost::{CAUSES, Cause, CostModel, Lost};
use super::placement::Placement;
use super::seen::{Sampled, Seen};
use crate::index_set::CpuSet;
use crate::matrix::Matrix;
use crate::model::{App, Model, Thread, Traffic};
use crate::plan::{Action, NodeMove, Proposal, Reason};
use crate::topology::{Costs, Topology, synthetic};
use crate::units::{Bytes, Pid, Tid};
use alloc::format;
use alloc::string::String;
use proptest::prelude::*;

const NODES: usize = 4;

/// A machine of four nodes with two CPUs each, and two processes with a thread on each CPU.
#[derive(Debug, Clone)]
struct World {
    /// GB/s of each controller.
    gbs: f64,
    /// ns of each hop, and what a full controller adds.
    hop_ns: [f64; NODES],
    burst_ns: f64,
    /// By process and node: requests in a µs, and where they go.
    rates: [[f64; NODES]; 2],
    shares: [[f64; NODES]; 2],
    stalled: [f64; 2],
    latency: [f64; 2],
    lines: f64,
}

fn world() -> impl Strategy<Value = World> {
    let part = || prop::array::uniform4(0.01..1.0f64);
    let machine = (4.0..40.0f64, prop::array::uniform4(0.0..60.0f64), 0.0..300.0f64);
    let rates = prop::array::uniform2(prop::array::uniform4(0.1..30.0f64));
    let process = (0.05..0.95f64, 150.0..1500.0f64);
    (machine, rates, [part(), part()], [process.clone(), process], 0.0..20.0f64).prop_map(
        |((gbs, hop_ns, burst_ns), rates, shares, processes, lines)| World {
            gbs,
            hop_ns,
            burst_ns,
            rates,
            shares,
            stalled: processes.map(|(stalled, _)| stalled),
            latency: processes.map(|(_, latency)| latency),
            lines,
        },
    )
}

impl World {
    /// The machine and the window with node i called `names[i]`.
    fn seen(&self, names: [usize; NODES]) -> (Topology, Model) {
        let mut old = [0; NODES];
        names.iter().enumerate().for_each(|(node, name)| old[*name] = node);
        let mut description = synthetic::describe("node:4 core:2 mhz:2000").expect("a machine");
        for node in &mut description.nodes {
            node.controller_bytes_per_s = Some(self.gbs * 1e9);
        }
        let hop = |a: usize, h: usize| {
            if a == h { 0.0 } else { self.hop_ns[old[a]].max(self.hop_ns[old[h]]) }
        };
        description.costs = Costs {
            latency_ns: Some(Matrix::from_fn(NODES, |a, h| 80.0 + hop(a, h))),
            burst_ns: Some([self.burst_ns; NODES].into()),
            ..Costs::default()
        };
        let topology = Topology::new(description).expect("sound");
        let mut model = Model::empty(NODES);
        for process in 0..2 {
            let first = model.threads.len();
            for (node, was) in old.iter().enumerate() {
                let cpu = 2 * node + process;
                let tid = Tid((100 * process + was) as u32);
                let mut thread = Thread::new(tid, process, cpu, CpuSet::first(8));
                (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(self.stalled[process]));
                thread.rates.coherence_remote_per_s = Some(1e5 * self.lines);
                model.threads.push(thread);
            }
            let mut app = App::new(Pid(1 + process as u32), first..model.threads.len());
            (app.latency_cycles, app.latency_accesses) = (Some(self.latency[process]), 1e6);
            let all: f64 = self.shares[process].iter().sum();
            app.traffic = Some(Traffic::new(Matrix::from_fn(NODES, |a, h| {
                self.rates[process][old[a]] * self.shares[process][old[h]] / all
            })));
            app.memory = Some([Bytes(1 << 30); NODES].into());
            model.apps.push(app);
        }
        let sum = |a, h| model.apps.iter().map(|app| rate(app, a, h)).sum::<f64>();
        model.traffic = Some(Traffic::new(Matrix::from_fn(NODES, sum)));
        (topology, model)
    }

    fn facts(&self) -> Facts {
        let (topology, model) = self.seen([0, 1, 2, 3]);
        Facts::of(&model, &topology)
    }
}

fn rate(app: &App, a: usize, h: usize) -> f64 {
    app.traffic.as_ref().map_or(0.0, |traffic| traffic.requests_per_us[(a, h)])
}

fn everything(facts: &Facts) -> Lost {
    CostModel.lost(facts, &facts.everything())
}

fn total(lost: &Lost) -> f64 {
    lost.processes.iter().map(|process| process.total() * process.cpus).sum()
}

/// Memory of the first process goes from node to node.
fn rotation(names: [usize; NODES]) -> Proposal {
    let step = |node: usize| NodeMove { from: names[node], to: names[(node + 1) % NODES] };
    let action = Action::MoveProcessMemory {
        pid: Pid(1),
        nodes: (0..NODES).map(step).collect(),
        freeze: false,
        memory: Bytes(4 << 30),
    };
    Proposal { policy: "test", action, reason: Reason::Other(String::from("a test")) }
}

fn rotated(world: &World, names: [usize; NODES]) -> Lost {
    let (topology, model) = world.seen(names);
    let facts = Facts::of(&model, &topology);
    let pages = Sampled::of(&model, &topology);
    let seen = Seen { model: &model, pages: &pages, topology: &topology, facts: &facts };
    let effect = Effect::of(seen, &[&rotation(names)]);
    CostModel.lost(&facts, &Placement::unchanged().after(seen, &effect))
}

fn close(a: f64, b: f64, slack: f64) -> bool {
    (a - b).abs() <= slack * (1.0 + a.abs().max(b.abs()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_present_is_priced_as_it_was_seen(world in world()) {
        for process in &everything(&world.facts()).processes {
            prop_assert!(close(process.pace, 1.0, 1e-3), "{process:?}");
        }
    }

    #[test]
    fn a_loss_is_a_share_of_time(world in world()) {
        for process in &everything(&world.facts()).processes {
            let sound = process.ns_per_s.iter().all(|ns| *ns >= -1.0);
            prop_assert!(sound && process.total() < 1e9, "{process:?}");
            prop_assert_eq!(process.by(Cause::WaitingForCpu), 0.0);
        }
    }

    #[test]
    fn renaming_nodes_renames_the_losses(
        world in world(),
        names in Just([0, 1, 2, 3]).prop_shuffle(),
    ) {
        let (one, other) = (rotated(&world, [0, 1, 2, 3]), rotated(&world, names));
        prop_assert!(close(one.others_ns_per_s, other.others_ns_per_s, 1e-3));
        for (one, other) in one.processes.iter().zip(&other.processes) {
            for cause in CAUSES {
                let same = close(one.by(cause) / 1e9, other.by(cause) / 1e9, 1e-4);
                prop_assert!(same, "{}: {one:?} {other:?}", format!("{cause}"));
            }
        }
    }

    #[test]
    fn more_bandwidth_never_loses_more(world in world(), factor in 1.0..4.0f64) {
        let facts = world.facts();
        let mut wider = facts.clone();
        for server in &mut wider.charges.servers {
            *server = server.scaled(factor);
        }
        let (narrow, wide) = (total(&everything(&facts)), total(&everything(&wider)));
        prop_assert!(wide <= narrow + 1e-3 * narrow.abs() + 1.0, "{narrow} {wide}");
    }

    #[test]
    fn local_memory_is_never_worse_than_remote_at_equal_load(
        world in world(),
        rate in 0.1..30.0f64,
        turn in 1..NODES,
    ) {
        let even = World { rates: [[rate; NODES]; 2], shares: [[1.0; NODES]; 2], ..world };
        let facts = even.facts();
        let laid = |turn: usize| {
            let mut placement = facts.everything();
            for (_, groups) in &mut placement.placed {
                for group in groups {
                    group.shares = [((group.node + turn) % NODES, 1.0)].into();
                }
            }
            total(&CostModel.lost(&facts, &placement))
        };
        prop_assert!(laid(0) <= laid(turn) + 1.0, "{} {}", laid(0), laid(turn));
    }

    #[test]
    fn more_load_of_others_never_loses_less(world in world(), more in 0.0..100.0f64) {
        let facts = world.facts();
        let mut loaded = facts.clone();
        // More load on each controller. Otherwise one slower process may leave more room for
        // another.
        loaded.load[..NODES].iter_mut().for_each(|load| *load += more);
        let (before, after) = (total(&everything(&facts)), total(&everything(&loaded)));
        prop_assert!(before <= after + 1e-3 * after.abs() + 1.0, "{before} {after}");
    }

    #[test]
    fn what_one_process_asks_more_of_all_it_gets_slower(world in world(), more in 1.0..4.0f64) {
        let facts = world.facts();
        let mut placement = facts.present(&[Pid(1)]);
        for group in placement.placed.iter_mut().flat_map(|(_, groups)| groups) {
            group.misses *= more;
        }
        let lost = CostModel.lost(&facts, &placement);
        prop_assert!(lost.processes[0].pace <= 1.0 + 1e-3, "{:?}", lost.processes);
    }
}
