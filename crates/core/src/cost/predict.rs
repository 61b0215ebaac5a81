//! What a plan is predicted to win, before it is done: its trial tells later what it won.
//!
//! The prediction decides nothing. It prices distance to memory and queues at controllers; threads
//! that move for the sake of caches or of each other are not priced.

use super::queue::{Group, Queues};
use crate::matrix::Matrix;
use crate::model::{App, Model};
use crate::plan::{Action, Mechanism, Proposal, Reason};
use crate::policy::sam::{Phase, SamReason};
use crate::topology::Topology;
use crate::units::Pid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Relative change of speed that the steps of a plan bring to each process that they touch; left
/// out are processes of which too little is known, or that a step touches which is not priced.
#[must_use]
pub fn predicted(model: &Model, topology: &Topology, steps: &[Proposal]) -> BTreeMap<Pid, f64> {
    let pids: BTreeSet<Pid> = steps.iter().filter_map(|step| step.action.pid()).collect();
    let change = |pid: Pid| {
        let app = model.app(pid)?;
        let of_app: Vec<&Proposal> =
            steps.iter().filter(|step| step.action.pid() == Some(pid)).collect();
        if !of_app.iter().all(|step| is_priced(step)) {
            return None;
        }
        let (queues, before) = Queues::fit(model, topology, app)?;
        let after = moved(&before, model, topology, app, &of_app)?;
        let (before, after) = (queues.pace(&before), queues.pace(&after));
        Some((pid, after / before - 1.0))
    };
    pids.into_iter().filter_map(change).collect()
}

fn is_priced(step: &Proposal) -> bool {
    match (&step.action, &step.reason) {
        (Action::SetSampling { .. } | Action::MovePages { .. }, _)
        | (Action::MoveProcessMemory { .. }, _) => true,
        (Action::SetAffinity { .. }, Reason::Sam(SamReason::Move { phase, .. })) => {
            *phase != Phase::Coherence
        }
        (Action::SetAffinity { .. }, Reason::AsymSched(_) | Reason::Home(_)) => true,
        _ => false,
    }
}

/// The groups of an application when these steps are done.
fn moved(
    before: &[Group],
    model: &Model,
    topology: &Topology,
    app: &App,
    steps: &[&Proposal],
) -> Option<Vec<Group>> {
    let mut groups = before.to_vec();
    for step in steps {
        match &step.action {
            Action::MovePages { mechanism, pages, .. } => {
                let mut bytes = Matrix::filled(topology.node_count(), 0.0);
                for page in pages {
                    let size = libm::exp2(f64::from(page.shift));
                    bytes[(usize::from(page.from), usize::from(page.to))] += size;
                }
                let resident = app.memory.as_ref()?;
                for (from, to, size) in bytes.cells().filter(|(_, _, size)| *size > 0.0) {
                    let part = (size / resident[from].0.max(1) as f64).min(1.0);
                    move_part(&mut groups, *mechanism, from, to, part);
                }
            }
            Action::MoveProcessMemory { nodes, .. } => {
                let was: Vec<Vec<f64>> = groups.iter().map(|group| group.shares.clone()).collect();
                for (group, was) in groups.iter_mut().zip(&was) {
                    for step in nodes {
                        group.shares[step.from] -= was[step.from];
                        group.shares[step.to] += was[step.from];
                    }
                }
            }
            Action::SetAffinity { tid, cpus, via, .. } => {
                let thread = model.threads_of(app).iter().find(|one| one.tid == *tid)?;
                let cpu = via.or_else(|| cpus.iter().next())?;
                let from = topology.node_of_cpu(thread.cpu);
                let to = topology.node_of_cpu(cpu);
                if from != to && !cpus.contains(thread.cpu) {
                    move_thread(&mut groups, thread.cpu_share, from, to);
                }
            }
            _ => {}
        }
    }
    Some(groups)
}

/// A part of the memory of one node goes to another. What only one node uses is what that node
/// asks for; what all use all ask for.
fn move_part(groups: &mut [Group], mechanism: Mechanism, from: usize, to: usize, part: f64) {
    let total: f64 = groups.iter().map(|group| group.cpus * group.shares[from]).sum();
    for group in groups {
        let part = match mechanism {
            Mechanism::Interleaving => part,
            _ if group.node == to && group.shares[from] > 0.0 => {
                (part * total / (group.cpus * group.shares[from])).min(1.0)
            }
            _ => 0.0,
        };
        let share = part * group.shares[from];
        group.shares[from] -= share;
        group.shares[to] += share;
    }
}

/// A thread runs on another node, at the pace of those beside which it ran.
fn move_thread(groups: &mut Vec<Group>, cpus: f64, from: usize, to: usize) {
    let Some(group) = groups.iter_mut().find(|group| group.node == from && group.cpus > 0.0) else {
        return;
    };
    let cpus = cpus.min(group.cpus);
    group.cpus -= cpus;
    let moved = Group { node: to, cpus, ..group.clone() };
    groups.push(moved);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::{Thread, Traffic};
    use crate::plan::PageMove;
    use crate::topology::synthetic;
    use crate::units::{Bytes, Tid};
    use alloc::string::String;

    const PAGES: u64 = 1024;

    fn machine() -> Topology {
        synthetic::parse("node:4 core:2 mhz:2000").expect("a machine")
    }

    /// A thread on each node, all with their pages on nodes as `holds` says, at this latency.
    fn scene(holds: [f64; 4], latency_cycles: f64) -> Model {
        let mut model = Model::empty(4);
        for node in 0..4 {
            let mut thread = Thread::new(Tid(node as u32), 0, 2 * node, CpuSet::first(8));
            (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(0.8));
            model.threads.push(thread);
        }
        let mut app = App::new(Pid(1), 0..4);
        (app.latency_cycles, app.latency_accesses) = (Some(latency_cycles), 1e6);
        app.traffic = Some(Traffic::new(Matrix::from_fn(4, |_, holding| 5.0 * holds[holding])));
        let bytes = |share: &f64| Bytes((share * (PAGES << 12) as f64) as u64);
        app.memory = Some(holds.iter().map(bytes).collect());
        model.traffic.clone_from(&app.traffic);
        model.apps.push(app);
        model
    }

    /// A fourth of the pages each from one node to others.
    fn spread(from: u16, to: [u16; 3]) -> Proposal {
        let page =
            |(number, to): (u64, u16)| PageMove { address: number << 12, shift: 12, from, to };
        let pages = to.iter().flat_map(|to| (0..PAGES / 4).map(move |page| (page, *to)));
        let action = Action::MovePages {
            pid: Pid(1),
            mechanism: Mechanism::Interleaving,
            pages: pages.map(page).collect(),
        };
        Proposal { policy: "test", action, reason: Reason::Other(String::from("a test")) }
    }

    fn gain(model: &Model, step: Proposal) -> f64 {
        predicted(model, &machine(), &[step])[&Pid(1)]
    }

    #[test]
    fn the_model_says_of_the_present_what_was_seen() {
        for latency in [150.0, 300.0, 700.0, 1200.0] {
            let model = scene([0.7, 0.1, 0.1, 0.1], latency);
            let (queues, groups) = Queues::fit(&model, &machine(), &model.apps[0]).expect("known");
            let pace = queues.pace(&groups);
            assert!((pace / 20.0 - 1.0).abs() < 0.01, "{pace} at {latency}");
        }
    }

    #[test]
    fn to_spread_what_jams_wins_and_to_gather_it_loses() {
        let jam = scene([1.0, 0.0, 0.0, 0.0], 900.0);
        assert!(gain(&jam, spread(0, [1, 2, 3])) > 0.2);
        let even = scene([0.25; 4], 400.0);
        let gather = Action::MoveProcessMemory {
            pid: Pid(1),
            nodes: [1, 2, 3].map(|from| crate::plan::NodeMove { from, to: 0 }).into(),
            freeze: false,
            memory: Bytes(3 << 20),
        };
        let reason = Reason::Other(String::from("a test"));
        assert!(gain(&even, Proposal { policy: "test", action: gather, reason }) < -0.2);
    }

    #[test]
    fn where_nobody_waits_nothing_is_won_but_distance() {
        let idle = scene([1.0, 0.0, 0.0, 0.0], 245.0);
        assert!(gain(&idle, spread(0, [1, 2, 3])).abs() < 0.05);
    }

    #[test]
    fn names_of_nodes_do_not_matter() {
        let one = gain(&scene([1.0, 0.0, 0.0, 0.0], 900.0), spread(0, [1, 2, 3]));
        let other = gain(&scene([0.0, 0.0, 1.0, 0.0], 900.0), spread(2, [3, 0, 1]));
        assert!((one - other).abs() < 1e-9);
    }

    #[test]
    fn what_is_about_caches_is_not_priced() {
        let cpus = CpuSet::first(2);
        let action = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via: None };
        let reason = Reason::Other(String::from("a test"));
        let step = Proposal { policy: "test", action, reason };
        assert_eq!(predicted(&scene([0.25; 4], 400.0), &machine(), &[step]), BTreeMap::new());
    }
}
