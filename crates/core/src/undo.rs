//! Masks with which threads return when a trial undoes their move. A thread returns to its old
//! node, and is pinned there if its data is there.
//!
//! The old mask alone would not keep the thread on its old node. The kernel moves it to an idle
//! node within a quarter of a second, which is the node that it just left (emulated, nmass-2). So
//! the thread is pinned to the CPUs of the old node until a policy moves it again. Its first mask
//! is restored at the end of the manager. In three cases it is restored at once:
//! - Its data is on another node. A pinned thread would stay away from its data for long (emulated,
//!   demo-pairs: 0.65 times the speed of Linux).
//! - The node has no free CPU for it.
//! - Its process is exempt from now on.

use crate::model::{App, Model, SampledHome, Thread};
use crate::plan::{Action, Proposal};
use crate::topology::Topology;
use crate::units::{Pid, Tid};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Narrows the masks of returning threads to the nodes where they ran.
pub(crate) fn keep_on_node(
    undo: &mut [Proposal],
    model: &Model,
    topology: &Topology,
    is_left_alone: impl Fn(Pid) -> bool,
) {
    let going: BTreeSet<Tid> = undo.iter().filter_map(|one| one.action.tid()).collect();
    let stays = |thread: &&Thread| thread.is_running() && !going.contains(&thread.tid);
    let mut busy: Vec<usize> = vec![0; topology.node_count()];
    for thread in model.threads.iter().filter(stays) {
        busy[topology.node_of_cpu(thread.cpu)] += 1;
    }
    for proposal in undo {
        let Action::SetAffinity { pid, tid, cpus, via: Some(cpu) } = &mut proposal.action else {
            continue;
        };
        let node = topology.node_of_cpu(*cpu);
        let there = cpus.intersection(topology.cpus_of_node(node));
        let is_home = model.app(*pid).is_some_and(|app| is_home(model, app, *tid, node));
        if is_home && busy[node] < there.len() && !is_left_alone(*pid) {
            busy[node] += 1;
            *cpus = there;
        }
    }
}

/// Whether the data of a thread is on a node, by its samples. Without samples, a process with one
/// thread is judged by its resident memory.
fn is_home(model: &Model, app: &App, tid: Tid, node: usize) -> bool {
    let threads = model.threads_of(app);
    let thread = threads.iter().find(|thread| thread.tid == tid);
    match thread.map_or(SampledHome::Unknown, Thread::sampled_home) {
        SampledHome::Node(home) => home == node,
        SampledHome::Scattered => false,
        SampledHome::Unknown => threads.len() == 1 && app.home() == Some(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Reason;
    use crate::topology::synthetic;
    use crate::units::Bytes;
    use alloc::string::{String, ToString as _};

    /// Checks where threads go back to. Their data is on node 0, and `back` has the CPU of each.
    /// The machine has two nodes with two CPUs each; other processes run on the CPUs `busy`.
    fn check(back: &[(u32, usize)], busy: &[usize], expected: &[&str]) {
        check_from(3, back, busy, expected);
    }

    /// As `check`, with threads that run on the CPU `now`.
    fn check_from(now: usize, back: &[(u32, usize)], busy: &[usize], expected: &[&str]) {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut model = Model::empty(2);
        let threads = back.iter().map(|&(number, _)| (number, now));
        let others = (100..).zip(busy.iter().copied());
        for (number, cpu) in threads.chain(others) {
            let place = model.threads.len();
            let mut thread = Thread::new(Tid(number), place, cpu, topology.all_cpus());
            thread.accesses_by_node = Some(vec![100, 0]);
            model.threads.push(thread);
            model.apps.push(App::new(Pid(number), place..place + 1));
        }
        let undo = |&(number, cpu): &(u32, usize)| Proposal {
            policy: "test",
            action: Action::SetAffinity {
                pid: Pid(number),
                tid: Tid(number),
                cpus: topology.all_cpus(),
                via: Some(cpu),
            },
            reason: Reason::Other("a test".to_string()),
        };
        let mut undo: Vec<Proposal> = back.iter().map(undo).collect();
        keep_on_node(&mut undo, &model, &topology, |pid| pid == Pid(9));
        let told: Vec<String> = undo.iter().map(|one| one.action.to_string()).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_thread_that_goes_back_to_its_data_is_kept_there() {
        check(&[(1, 0)], &[], &["thread 1 of 1 to CPU 0, then CPUs 0-1"]);
        check(&[(1, 0)], &[0, 2, 3], &["thread 1 of 1 to CPU 0, then CPUs 0-1"]);
    }

    #[test]
    fn a_thread_that_goes_is_not_in_its_own_way() {
        check_from(1, &[(1, 0)], &[0], &["thread 1 of 1 to CPU 0, then CPUs 0-1"]);
    }

    #[test]
    fn where_its_data_is_not_it_may_go_on() {
        check(&[(1, 2)], &[], &["thread 1 of 1 to CPU 2, then CPUs 0-3"]);
    }

    #[test]
    fn where_there_is_no_room_or_the_process_is_left_alone_it_may_go_on() {
        check(&[(1, 0)], &[0, 1], &["thread 1 of 1 to CPU 0, then CPUs 0-3"]);
        let of_two =
            ["thread 1 of 1 to CPU 0, then CPUs 0-1", "thread 2 of 2 to CPU 1, then CPUs 0-3"];
        check(&[(1, 0), (2, 1)], &[0], &of_two);
        check(&[(9, 0)], &[], &["thread 9 of 9 to CPU 0, then CPUs 0-3"]);
    }

    #[test]
    fn the_memory_of_a_process_with_one_thread_tells_where_samples_do_not() {
        let home = |threads: u32| {
            let topology = synthetic::parse("node:2 core:2").expect("a machine");
            let mut model = Model::empty(2);
            for number in 0..threads {
                model.threads.push(Thread::new(Tid(number), 0, 0, topology.all_cpus()));
            }
            let mut app = App::new(Pid(1), 0..threads as usize);
            app.memory = Some(vec![Bytes(4096), Bytes(8192)]);
            [0, 1].map(|node| is_home(&model, &app, Tid(0), node))
        };
        assert_eq!(home(1), [false, true]);
        assert_eq!(home(2), [false, false]);
    }
}
