//! Predicts the gain of a plan before it is carried out. Its trial measures the gain later.

use super::effect::Effect;
use super::facts::Facts;
use super::lost::{CostModel, ProcessLoss};
use super::partners::Partners;
use super::placement::Placement;
use super::seen::{Sampled, Seen};
use crate::model::Model;
use crate::plan::{Action, Proposal};
use crate::topology::Topology;
use crate::units::Pid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Predicted relative change of speed of each process that a plan changes. Processes with a step
/// that has no price, or without facts, are left out.
///
/// `intervals` end with the window and began earlier. They may have more samples, because the steps
/// were decided on them. `partners` = pairs of threads that samples named before.
#[must_use]
pub fn predicted(
    window: &Model,
    intervals: &[Model],
    topology: &Topology,
    steps: &[Proposal],
    partners: &Partners,
) -> BTreeMap<Pid, f64> {
    let all = || core::iter::once(window).chain(intervals);
    let model = all().max_by_key(|model| model.elapsed).unwrap_or(window);
    let pages = all().max_by_key(|model| model.pages.len()).unwrap_or(window);
    let facts = Facts::with_partners(model, topology, partners);
    let steps: Vec<&Proposal> = steps.iter().collect();
    let pages = Sampled::of(pages, topology);
    changes(Seen { model, pages: &pages, topology, facts: &facts }, &steps)
}

/// As [`predicted`], with given facts.
#[must_use]
pub fn changes(seen: Seen<'_>, steps: &[&Proposal]) -> BTreeMap<Pid, f64> {
    let then = Placement::unchanged().after(seen, &Effect::of(seen, steps));
    let pids: Vec<Pid> = then.pids(seen.facts).collect();
    let now = CostModel.lost(seen.facts, &seen.facts.present(&pids));
    let then = CostModel.lost(seen.facts, &then);
    let left_out = unpriced(steps);
    let change = |(now, then): (&ProcessLoss, &ProcessLoss)| (now.pid, then.pace / now.pace - 1.0);
    let both = now.processes.iter().zip(&then.processes);
    both.map(change).filter(|(pid, change)| !left_out.contains(pid) && change.is_finite()).collect()
}

/// Processes with a step that has no price: copies that are dropped.
fn unpriced(steps: &[&Proposal]) -> BTreeSet<Pid> {
    let odd = steps.iter().filter(|step| matches!(step.action, Action::Unreplicate { .. }));
    odd.filter_map(|step| step.action.pid()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cause;
    use crate::index_set::CpuSet;
    use crate::matrix::Matrix;
    use crate::model::{App, Thread, Traffic};
    use crate::plan::{Mechanism, PageMove, Reason};
    use crate::topology::{Link, Route, synthetic};
    use crate::units::{Bytes, Tid};
    use alloc::string::String;

    const PAGES: u64 = 1024;

    fn machine() -> Topology {
        synthetic::parse("node:4 core:2 mhz:2000").expect("a machine")
    }

    /// A thread on each node. Each thread's accesses go to the nodes in the shares of `holds`, with
    /// this latency.
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

    /// A proposal that moves a fourth of the pages from one node to each of three others.
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

    fn of(model: &Model, steps: &[Proposal]) -> BTreeMap<Pid, f64> {
        predicted(model, &[], &machine(), steps, Partners::none())
    }

    fn gain(model: &Model, step: Proposal) -> f64 {
        of(model, &[step])[&Pid(1)]
    }

    #[test]
    fn the_present_is_what_it_is_compared_with() {
        for latency in [150.0, 300.0, 700.0, 1200.0] {
            let stays = gain(&scene([0.7, 0.1, 0.1, 0.1], latency), spread(0, [0, 0, 0]));
            assert!(stays.abs() < 1e-9, "{stays} at {latency}");
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

    /// A machine with a link of 2.4 GB/s each way between any two of four nodes.
    fn linked() -> Topology {
        let mut description = synthetic::describe("node:4 core:2 mhz:2000 gbs:6").expect("one");
        let pairs = || (0..4).flat_map(|a| (0..4).map(move |h| (a, h)));
        let between = pairs().filter(|(a, h)| a != h);
        let link = |(to, from): (usize, usize)| Link { from, to, bytes_per_s: 2.4e9 };
        description.links = between.map(link).collect();
        let of = |(a, h): (usize, usize)| {
            let links = description.links.iter().enumerate();
            let on_way = links.filter(|(_, link)| (link.to, link.from) == (a, h));
            Route { links: on_way.map(|(number, _)| number).collect() }
        };
        description.routes = Some((0..4).map(|a| (0..4).map(|h| of((a, h))).collect()).collect());
        Topology::new(description).expect("sound")
    }

    #[test]
    fn links_that_jam_in_bursts_are_the_cause_and_threads_win_where_their_data_is() {
        let topology = linked();
        // Each thread reads the next node's memory: its link is 70 % full in the mean, and the
        // controllers 28 %.
        let mut model = scene([0.25; 4], 900.0);
        let mut rates = Matrix::filled(4, 0.0);
        (0..4).for_each(|node| rates[(node, (node + 1) % 4)] = 0.7 * 2.4e3 / 64.0);
        model.apps[0].traffic = Some(Traffic::new(rates));
        model.traffic.clone_from(&model.apps[0].traffic);
        for (node, thread) in model.threads.iter_mut().enumerate() {
            let mut accesses = [0; 4];
            accesses[(node + 1) % 4] = 1000;
            thread.accesses_by_node = Some(accesses.into());
        }
        let facts = Facts::of(&model, &topology);
        let now = CostModel.lost(&facts, &facts.everything());
        assert_eq!(now.processes[0].worst(), Cause::LinkQueue, "{now:?}");
        let home = |thread: usize| {
            let cpu = 2 * ((thread + 1) % 4);
            let cpus = [cpu].into_iter().collect();
            let tid = Tid(thread as u32);
            let action = Action::SetAffinity { pid: Pid(1), tid, cpus, via: None };
            Proposal { policy: "test", action, reason: Reason::Other(String::from("a test")) }
        };
        let steps: Vec<Proposal> = (0..4).map(home).collect();
        let gain = predicted(&model, &[], &topology, &steps, Partners::none())[&Pid(1)];
        assert!(gain > 0.3, "{gain}");
    }

    #[test]
    fn threads_that_are_kept_on_a_node_wait_for_its_cpus_and_others_go_where_one_is_idle() {
        // Two threads on each of two CPUs, which are busy for 70 % of the time; two CPUs are idle.
        let lost = |queued_share: Option<f64>, is_narrowed: bool| {
            let mut model = scene([0.25; 4], 150.0);
            for (number, thread) in model.threads.iter_mut().enumerate() {
                (thread.cpu, thread.cpu_share) = (number / 2, 0.35);
                (thread.queued_share, thread.is_narrowed) = (queued_share, is_narrowed);
            }
            let topology = synthetic::parse("node:4 core:1 mhz:2000").expect("a machine");
            let facts = Facts::of(&model, &topology);
            let lost = CostModel.lost(&facts, &facts.everything());
            lost.processes[0].by(Cause::WaitingForCpu)
        };
        assert_eq!([lost(None, true), lost(Some(0.0), true)], [0.0; 2]);
        assert!(lost(Some(0.35), true) > 0.2e9);
        assert_eq!(lost(Some(0.35), false), 0.0);
    }

    #[test]
    fn names_of_nodes_do_not_matter() {
        let one = gain(&scene([1.0, 0.0, 0.0, 0.0], 900.0), spread(0, [1, 2, 3]));
        let other = gain(&scene([0.0, 0.0, 1.0, 0.0], 900.0), spread(2, [3, 0, 1]));
        assert!((one - other).abs() < 1e-9);
    }

    #[test]
    fn copies_that_are_taken_back_have_no_price() {
        let action = Action::Unreplicate { pid: Pid(1), pages: Vec::new() };
        let reason = Reason::Other(String::from("a test"));
        let step = Proposal { policy: "test", action, reason };
        assert_eq!(of(&scene([0.25; 4], 400.0), &[step]), BTreeMap::new());
    }

    #[test]
    fn a_thread_is_priced_by_where_its_own_samples_are() {
        let mut model = scene([0.5, 0.5, 0.0, 0.0], 250.0);
        model.threads[2].accesses_by_node = Some([0, 400, 0, 0].into());
        let to = |cpu: usize| {
            let cpus = CpuSet::first(8).intersection(&[cpu].into_iter().collect());
            let action = Action::SetAffinity { pid: Pid(1), tid: Tid(2), cpus, via: None };
            let reason = Reason::Other(String::from("a test"));
            gain(&model, Proposal { policy: "test", action, reason })
        };
        let (there, elsewhere) = (to(3), to(1));
        assert!(elsewhere < there, "{there} to its data, {elsewhere} elsewhere");
    }
}
