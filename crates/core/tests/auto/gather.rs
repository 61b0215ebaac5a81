//! Threads that use the same data go to one node, and their memory after them.

use crate::scene::{Host, World, pages, process, second};
use rondpoint_core::observation::Exemption;
use rondpoint_core::plan::{Kind, Mechanism, NodeMove};
use rondpoint_core::topology::synthetic;
use rondpoint_core::trial::Verdict;
use rondpoint_core::{Action, Bytes, CpuSet, Matrix, Model, Nanos, Proposal, Tid, Topology};

/// A machine with local accesses of 90 ns, and remote ones of 250 ns.
fn far_nodes(line: &str) -> Topology {
    let mut description = synthetic::describe(line).expect("a machine");
    let latency = |from, to| if from == to { 90.0 } else { 250.0 };
    description.costs.latency_ns = Some(Matrix::from_fn(2, latency));
    Topology::new(description).expect("a machine")
}

/// Masks of threads, and targets of pages, by the steps of `gather`.
fn goes(steps: &[Proposal], topology: &Topology) -> (Vec<CpuSet>, Vec<u16>) {
    let (mut masks, mut targets) = (Vec::new(), Vec::new());
    for step in steps.iter().filter(|step| step.policy == "gather") {
        match &step.action {
            Action::SetAffinity { cpus, via, .. } => {
                assert!(via.is_none_or(|cpu| cpus.contains(cpu)), "{}", step.action);
                assert!(cpus.is_subset(&topology.all_cpus()));
                masks.push(cpus.clone());
            }
            Action::MovePages { pages, .. } => targets.extend(pages.iter().map(|page| page.to)),
            _ => {}
        }
    }
    (masks, targets)
}

/// A second of a service whose threads wait for memory half of their time. They run on these CPUs
/// and use all of its memory, 60 % of it on node 0.
fn service(at: u64, topology: &Topology, cpus: &[usize], traffic: &str) -> Model {
    let mut model = second(at, topology);
    let threads = process(&mut model, topology, 1, cpus, &[0.06, 0.04], traffic);
    for (number, thread) in threads.iter_mut().enumerate() {
        (thread.tid, thread.rates.stall_share) = (Tid(100 + number as u32), Some(0.5));
        thread.rates.instructions_per_s = Some(1e9);
    }
    (model.apps[0].latency_cycles, model.apps[0].latency_accesses) = (Some(374.0), 1e5);
    pages(&mut model, 0, 6, 0, &[0, 1]);
    pages(&mut model, 0, 4, 1, &[0, 1]);
    model
}

const SPREAD: &str = "0>0:1.2 0>1:0.8 1>0:1.2 1>1:0.8";
const TOGETHER: &str = "0>0:2.4 0>1:1.6";

#[test]
fn threads_go_to_the_node_with_most_of_the_memory_and_the_rest_follows() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let mut world = World::new(topology.clone(), Host::Obeys);
    let (steps, _) = world.decide(&service(10, &topology, &[0, 1, 4, 5], SPREAD));
    let (masks, _) = goes(&steps, &topology);
    assert_eq!(masks, vec![topology.cpus_of_node(0).clone(); 4], "{steps:?}");
    assert!(world.is_under_way(1), "its trial waits for its memory");
    let (steps, _) = world.decide(&service(11, &topology, &[0, 1, 2, 3], TOGETHER));
    let (masks, targets) = goes(&steps, &topology);
    assert_eq!((masks, targets), (vec![], vec![0; 4]), "the pages on node 1: {steps:?}");
    let others = |one: &&Proposal| one.policy != "gather" && one.action.tid().is_some();
    assert_eq!(steps.iter().find(others), None, "nobody moves its threads meanwhile");
    for at in 12..15 {
        world.decide(&service(at, &topology, &[0, 1, 2, 3], TOGETHER));
    }
    assert!(!world.is_under_way(1), "then it is judged");
}

/// Sampling names a part of a large memory in two seconds. Its price is that of all memory.
#[test]
fn all_memory_follows_if_most_remote_accesses_are_left() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let bulk = |cpus: &[usize], traffic: &str| {
        let mut world = World::new(topology.clone(), Host::Obeys);
        world.decide(&service(10, &topology, &[0, 1, 4, 5], SPREAD));
        let mut moved = Vec::new();
        for at in 11..16 {
            for step in world.decide(&service(at, &topology, cpus, traffic)).0 {
                let Action::MoveProcessMemory { nodes, .. } = step.action else { continue };
                assert!(world.is_under_way(1), "its trial waits for it");
                moved.push(nodes);
            }
        }
        assert!(!world.is_under_way(1));
        moved
    };
    let together = [0, 1, 2, 3];
    assert_eq!(bulk(&together, TOGETHER), [[NodeMove { from: 1, to: 0 }]]);
    assert!(bulk(&together, "0>0:3.6 0>1:0.4").is_empty(), "a tenth is left of a half");
    assert!(bulk(&[0, 1, 2, 4], TOGETHER).is_empty(), "a thread is not there");
}

/// Memory that all went to one node cannot be separated again, so its threads stay too.
#[test]
fn a_process_that_is_slower_with_all_of_its_memory_is_released_in_a_crowd_all_the_same() {
    let mut world = gathered(16);
    let kinds = [Kind::Affinity, Kind::Pages(Mechanism::Following), Kind::Bulk];
    world.judge(1, &kinds, Verdict::Worse);
    assert!(is_freed_in_a_crowd(&mut world, 16));
}

#[test]
fn a_process_stays_where_no_node_has_a_core_for_each_of_its_threads() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let gathered = |others: &[usize]| {
        let mut world = World::new(topology.clone(), Host::Obeys);
        let mut model = service(10, &topology, &[0, 1, 4, 5], SPREAD);
        process(&mut model, &topology, 2, others, &[0.1, 0.1], "");
        let (steps, vetoed) = world.decide(&model);
        let proposed = steps.iter().chain(vetoed.iter().map(|one| &one.proposal));
        proposed.filter(|one| one.policy == "gather").count()
    };
    assert_eq!(gathered(&[2, 6]), 0, "a core of each node is another's");
    assert!(gathered(&[6]) > 0, "node 0 has room");
}

#[test]
fn a_process_stays_where_its_memory_has_no_room() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let goes_to = |free_mib: [u64; 2]| {
        let mut model = service(10, &topology, &[0, 1, 4, 5], SPREAD);
        model.free_memory = Some(free_mib.map(|mib| Bytes(mib << 20)).into());
        let (steps, _) = World::new(topology.clone(), Host::Obeys).decide(&model);
        goes(&steps, &topology).0.first().map(|mask| mask.is_subset(topology.cpus_of_node(0)))
    };
    assert_eq!([[4096, 4096], [10, 4096], [10, 10]].map(goes_to), [Some(true), Some(false), None]);
}

/// The node to which the threads of the service go, after a change of what is known of it.
fn goes_to(change: impl Fn(&mut Model, &Topology)) -> Option<usize> {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let mut model = service(10, &topology, &[0, 1, 4, 5], SPREAD);
    change(&mut model, &topology);
    let (steps, _) = World::new(topology.clone(), Host::Obeys).decide(&model);
    let (masks, _) = goes(&steps, &topology);
    let first = masks.first().and_then(|mask| mask.iter().next());
    first.map(|cpu| topology.node_of_cpu(cpu))
}

#[test]
fn a_process_goes_only_where_all_of_its_threads_and_its_memory_may_be() {
    let masked = |model: &mut Model, allowed: CpuSet, threads: core::ops::Range<usize>| {
        model.threads[threads].iter_mut().for_each(|thread| thread.allowed = allowed.clone());
    };
    assert_eq!(goes_to(|_, _| ()), Some(0));
    let of_node = |topology: &Topology, node| topology.cpus_of_node(node).clone();
    let threads_of_1 = |model: &mut Model, topology: &Topology| {
        masked(model, of_node(topology, 1), 2..4);
    };
    assert_eq!(goes_to(threads_of_1), Some(1), "two threads may run on node 1 only");
    let apart = |model: &mut Model, topology: &Topology| {
        masked(model, of_node(topology, 0), 0..2);
        masked(model, of_node(topology, 1), 2..4);
    };
    assert_eq!(goes_to(apart), None);
    let memory_of_1 = |model: &mut Model, _: &Topology| {
        model.apps[0].allowed_nodes = Some([1].into_iter().collect());
    };
    assert_eq!(goes_to(memory_of_1), Some(1));
}

#[test]
fn a_process_with_a_thread_that_is_left_alone_stays() {
    let exempt = |model: &mut Model, _: &Topology| {
        model.threads[3].exempt = Some(Exemption::OwnAffinity);
    };
    assert_eq!(goes_to(exempt), None);
    let of_process = |model: &mut Model, _: &Topology| {
        model.apps[0].exempt = Some(Exemption::OptedOut);
    };
    assert_eq!(goes_to(of_process), None);
}

#[test]
fn a_new_process_with_the_number_of_an_old_one_is_gathered_too() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let mut world = World::new(topology.clone(), Host::Obeys);
    let mut moved = |at: u64, started: u64| {
        let mut model = service(at, &topology, &[0, 1, 4, 5], SPREAD);
        model.apps[0].started = Nanos(started);
        goes(&world.decide(&model).0, &topology).0.len()
    };
    assert_eq!(moved(10, 0), 4);
    (11..20).for_each(|at| assert_eq!(moved(at, 0), 0, "at {at} s it was gathered already"));
    assert_eq!(moved(20, 1), 4);
}

/// A quiet Carrefour is asked every two seconds only.
#[test]
fn while_pages_follow_the_policies_are_asked_each_second() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let mut world = World::new(topology.clone(), Host::Obeys);
    let quiet = |at: u64, cpus: &[usize], traffic: &str| {
        let mut model = second(at, &topology);
        let threads = process(&mut model, &topology, 1, cpus, &[0.06, 0.04], traffic);
        (0..).zip(threads).for_each(|(number, thread)| thread.tid = Tid(100 + number));
        model
    };
    let mut periods = Vec::new();
    for at in 1..16 {
        let model = match at {
            ..10 => quiet(at, &[0, 1, 4, 5], "0>0:0.1 1>1:0.1"),
            10 => service(at, &topology, &[0, 1, 4, 5], SPREAD),
            _ => quiet(at, &[0, 1, 2, 3], "0>0:0.2"),
        };
        world.step(&model);
        periods.push((world.period().0 / 1_000_000, world.is_under_way(1)));
    }
    assert_eq!(periods[6..9], [(2000, false); 3]);
    let following: Vec<_> = periods.iter().filter(|(_, is_under_way)| *is_under_way).collect();
    assert!(following.len() >= 2 && following.iter().all(|one| one.0 <= 1000), "{periods:?}");
}

#[test]
fn a_process_that_needs_the_bandwidth_of_both_nodes_stays() {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:2");
    let mut world = World::new(topology.clone(), Host::Obeys);
    // 40 lines a µs of the 62 that both controllers give; one gives 31.
    let traffic = "0>0:10 0>1:10 1>0:10 1>1:10";
    let (steps, vetoed) = world.decide(&service(10, &topology, &[0, 1, 4, 5], traffic));
    assert_eq!(goes(&steps, &topology).0, vec![], "{steps:?}");
    assert!(vetoed.iter().any(|one| one.proposal.policy == "gather"), "it was priced");
}

#[test]
fn threads_may_go_anywhere_again_when_more_run_than_the_node_has_cpus() {
    let mut world = gathered(15);
    assert!(is_freed_in_a_crowd(&mut world, 15));
}

#[test]
fn a_process_that_was_released_is_gathered_again_when_there_is_room() {
    // Masks that it gets when the crowd is gone. `is_narrowed` = the release was undone.
    let again = |cpus: &[usize], traffic: &str, is_narrowed: bool| {
        let mut world = gathered(15);
        assert!(is_freed_in_a_crowd(&mut world, 15));
        let topology = world.topology.clone();
        let mut model = service(30, &topology, cpus, traffic);
        model.threads.iter_mut().for_each(|thread| thread.is_narrowed = is_narrowed);
        let (steps, _) = world.decide(&model);
        let masks = goes(&steps, &topology).0;
        (masks, is_freed_in_a_crowd(&mut world, 31))
    };
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let (masks, _) = again(&[0, 1, 4, 5], SPREAD, false);
    assert_eq!(masks, vec![topology.cpus_of_node(0).clone(); 4]);
    let (masks, is_freed) = again(&[0, 1, 2, 3], TOGETHER, true);
    assert!(masks.is_empty() && is_freed, "the release was undone, so it is still on node 0");
}

/// The world after the service was brought to node 0 at 10 s, until this second.
fn gathered(until: u64) -> World {
    let topology = far_nodes("node:2 core:4 mhz:2200 gbs:20");
    let mut world = World::new(topology.clone(), Host::Obeys);
    world.decide(&service(10, &topology, &[0, 1, 4, 5], SPREAD));
    for at in 11..until {
        world.decide(&service(at, &topology, &[0, 1, 2, 3], TOGETHER));
    }
    world
}

/// Whether its threads may use all CPUs again after a hundred of them crowd node 0 from then on.
fn is_freed_in_a_crowd(world: &mut World, from: u64) -> bool {
    let topology = world.topology.clone();
    let crowd = |at: u64| {
        let mut model = service(at, &topology, &[0, 1, 2, 3].repeat(25), TOGETHER);
        for thread in &mut model.threads {
            (thread.cpu_share, thread.queued_share, thread.is_narrowed) = (0.04, Some(0.9), true);
        }
        model
    };
    let freed = (from..from + 5).flat_map(|at| {
        let (steps, _) = world.decide(&crowd(at));
        goes(&steps, &topology).0
    });
    freed.into_iter().any(|mask| mask == topology.all_cpus())
}
