//! How threads go back whose move was undone: to the node that they came from, and there they are kept.
//!
//! The old mask alone undoes little. The kernel sends a thread on to whichever node is idle, and that is the one from which it was taken
//! back (emulated, nmass-2: within a tick). So it gets the CPUs of the node, until somebody moves it again. Its first mask comes back with
//! all others at the end; and at once where the node has no CPU for it, or where its process is left alone from now on.

use crate::model::{Model, Thread};
use crate::plan::{Action, Proposal};
use crate::topology::Topology;
use crate::units::{Pid, Tid};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Narrows the masks with which threads go back to the nodes where they ran.
pub(crate) fn keep_on_node(
    undo: &mut [Proposal],
    model: &Model,
    topology: &Topology,
    is_left_alone: impl Fn(Pid) -> bool,
) {
    let thread_of = |one: &Proposal| match one.action {
        Action::SetAffinity { tid, .. } => Some(tid),
        _ => None,
    };
    let going: BTreeSet<Tid> = undo.iter().filter_map(thread_of).collect();
    let stays = |thread: &&Thread| thread.is_running() && !going.contains(&thread.tid);
    let mut busy: Vec<usize> = vec![0; topology.node_count()];
    for thread in model.threads.iter().filter(stays) {
        busy[topology.node_of_cpu(thread.cpu)] += 1;
    }
    for proposal in undo {
        let Action::SetAffinity { pid, cpus, via: Some(cpu), .. } = &mut proposal.action else {
            continue;
        };
        let node = topology.node_of_cpu(*cpu);
        let there = cpus.intersection(topology.cpus_of_node(node));
        if busy[node] < there.len() && !is_left_alone(*pid) {
            busy[node] += 1;
            *cpus = there;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Reason;
    use crate::topology::synthetic;
    use alloc::string::{String, ToString as _};

    /// Threads of processes of the same number go back to these CPUs of two nodes with two CPUs each; `busy` are the CPUs of others.
    fn check(back: &[(u32, usize)], busy: &[usize], expected: &[&str]) {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut model = Model::empty(2);
        let threads = back.iter().map(|&(number, _)| (number, 3));
        let others = (100..).zip(busy.iter().copied());
        for (number, cpu) in threads.chain(others) {
            let mut thread = Thread::new(Tid(number), 0, cpu, topology.all_cpus());
            thread.cpu_share = 1.0;
            model.threads.push(thread);
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
    fn a_thread_that_goes_back_is_kept_there() {
        check(&[(1, 0)], &[], &["thread 1 of 1 to CPU 0, then CPUs 0-1"]);
        check(&[(1, 2)], &[0, 1, 2], &["thread 1 of 1 to CPU 2, then CPUs 2-3"]);
    }

    #[test]
    fn where_there_is_no_room_or_the_process_is_left_alone_it_may_go_on() {
        check(&[(1, 0)], &[0, 1], &["thread 1 of 1 to CPU 0, then CPUs 0-3"]);
        let of_two =
            ["thread 1 of 1 to CPU 0, then CPUs 0-1", "thread 2 of 2 to CPU 1, then CPUs 0-3"];
        check(&[(1, 0), (2, 1)], &[0], &of_two);
        check(&[(9, 0)], &[], &["thread 9 of 9 to CPU 0, then CPUs 0-3"]);
    }
}
