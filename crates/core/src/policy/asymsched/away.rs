//! Memory away from its threads: on nodes where a process has memory in use and no thread (ours;
//! nothing is published of it).
//!
//! The paper's threads are bound before they touch memory, so each part of the memory lies with a
//! thread. On a stock kernel the balancing moves threads before the first decision, and their
//! memory stays. A policy that looks only at nodes with threads sees half of the traffic. It joins
//! too few nodes and leaves that memory behind (emulated: 0.7 of the best pair's speed instead of
//! 0.85).
//!
//! Each such part is therefore given a host, one of the nodes with threads. Requests to the part
//! count as requests to its host, and the part follows the occupants of its host.

use super::decision::AppView;
use super::subset::nodes;
use crate::matrix::Matrix;
use crate::units::Bytes;
use alloc::vec::Vec;

/// The memory of one application on one node without its threads. Nodes are those of its situation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AwayMemory {
    /// The node that holds it.
    pub(super) node: usize,
    /// The node with threads that it is assigned to.
    pub(super) host: usize,
    /// Size of this memory.
    pub(super) memory: Bytes,
    /// Share of the application's requests that go to `node`, 0 to 1.
    pub(super) share: f64,
}

/// The application's memory on nodes without its threads, largest first. Nodes with at most
/// `negligible_share` of the requests are left out.
///
/// An even share is the application's memory over its nodes with threads. The host is the node with
/// most requests to the part, among nodes that lack at least half the part for an even share. If
/// there is none, it is among nodes that lack anything. A node that lost a thread holds hardly any
/// memory. A node that lacks only a few pages must not get a second share.
pub(super) fn memory_away(app: &AppView, negligible_share: f64) -> Vec<AwayMemory> {
    let Some(traffic) = &app.traffic_per_s else { return Vec::new() };
    let all: f64 = traffic.cells().map(|(.., rate)| rate).sum();
    let mut parts: Vec<AwayMemory> = (0..traffic.size())
        .filter(|node| app.nodes >> node & 1 == 0 && app.memory[*node] > Bytes(0))
        .map(|node| AwayMemory {
            node,
            host: node,
            memory: app.memory[node],
            share: traffic.column(node).sum::<f64>() / all,
        })
        .filter(|part| part.share > negligible_share)
        .collect();
    parts.sort_by_key(|part| (core::cmp::Reverse(part.memory), part.node));
    let seats = u64::from(app.nodes.count_ones());
    let held_by = |node: usize| app.memory[node].0;
    let whole = nodes(app.nodes).map(held_by).sum::<u64>()
        + parts.iter().map(|part| part.memory.0).sum::<u64>();
    let mut held: Vec<(usize, u64)> = nodes(app.nodes).map(|node| (node, held_by(node))).collect();
    for part in &mut parts {
        let asks = |node: usize| traffic[(node, part.node)];
        let lacks = |held: u64, of: u64| (held + of) * seats < whole;
        let half = part.memory.0 / 2;
        let least = if held.iter().any(|(_, held)| lacks(*held, half)) { half } else { 0 };
        let host = held
            .iter_mut()
            .filter(|(_, held)| lacks(*held, least))
            .max_by(|(a, less), (b, more)| asks(*a).total_cmp(&asks(*b)).then(more.cmp(less)));
        // Without threads there is no host. Otherwise some node holds less than its even share,
        // because this part is not counted yet.
        if let Some((node, held)) = host {
            part.host = *node;
            *held += part.memory.0;
        }
    }
    parts.retain(|part| part.host != part.node);
    parts
}

/// The moves of these parts as `(from, to)`, and their size, when the threads of each node go to
/// its `image`. A part also leaves a node that threads of another node take. Their memory comes
/// there, and one controller would serve both.
pub(super) fn with_images(
    parts: &[AwayMemory],
    image: impl Fn(usize) -> usize,
) -> (Vec<(usize, usize)>, Bytes) {
    let going: Vec<&AwayMemory> =
        parts.iter().filter(|part| image(part.host) != part.node).collect();
    let memory = going.iter().fold(Bytes(0), |all, part| all + part.memory);
    (going.iter().map(|part| (part.node, image(part.host))).collect(), memory)
}

/// The traffic `[accessing][holding]` with requests to each part counted as requests to its host.
pub(super) fn with_hosts(traffic: &Matrix<f64>, parts: &[AwayMemory]) -> Matrix<f64> {
    let host = |node: usize| parts.iter().find(|part| part.node == node).map(|part| part.host);
    let mut folded = Matrix::filled(traffic.size(), 0.0);
    for (i, j, rate) in traffic.cells() {
        folded[(i, host(j).unwrap_or(j))] += rate;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, Pid};
    use alloc::vec;

    /// Checks the host that each part gets, as (node, host). The input is the nodes with threads,
    /// the memory of each node and the requests/µs from node to node.
    fn check(
        threads: &[usize],
        memory: &[u64],
        traffic: &[(usize, usize, f64)],
        expected: &[(usize, usize)],
    ) {
        let mut rates = Matrix::filled(memory.len(), 0.0);
        traffic.iter().for_each(|&(i, j, rate)| rates[(i, j)] = rate);
        let app = AppView {
            pid: Pid(1),
            nodes: threads.iter().map(|node| 1 << node).sum(),
            traffic_per_s: Some(rates),
            memory: memory.iter().map(|megabytes| Bytes(megabytes << 20)).collect(),
            run_time: Nanos(0),
            migration_time: Nanos(0),
        };
        let found: Vec<(usize, usize)> =
            memory_away(&app, 0.01).iter().map(|part| (part.node, part.host)).collect();
        assert_eq!(found, expected, "{threads:?} {memory:?} {traffic:?}");
    }

    #[test]
    fn what_a_thread_left_behind_belongs_to_its_new_node() {
        let all = [(0, 0, 9.0), (0, 3, 9.0), (2, 0, 9.0), (2, 3, 9.0)];
        check(&[0, 2], &[2, 0, 0, 2], &all, &[(3, 2)]);
        // The host is the same if the thread that stayed uses the part more.
        check(&[0, 2], &[2, 0, 0, 2], &[(0, 0, 9.0), (0, 3, 20.0), (2, 3, 9.0)], &[(3, 2)]);
    }

    /// Seen in the lab: a few pages on another node made half of the memory less than an even
    /// share.
    #[test]
    fn a_node_that_holds_its_share_but_for_a_few_pages_gets_no_other() {
        let all = [(0, 0, 9.0), (0, 3, 20.0), (2, 0, 9.0), (2, 3, 9.0)];
        check(&[0, 2], &[20, 0, 1, 20], &all, &[(3, 2)]);
        // Where no node lacks half of its share, the host is any node that lacks some.
        check(&[0, 1], &[2, 2, 0, 9], &[(0, 3, 20.0), (1, 3, 9.0)], &[(3, 0)]);
    }

    #[test]
    fn where_all_threads_left_each_part_belongs_to_the_node_that_uses_it_most() {
        let own = [(1, 0, 9.0), (1, 3, 2.0), (2, 0, 2.0), (2, 3, 9.0)];
        check(&[1, 2], &[2, 0, 0, 2], &own, &[(0, 1), (3, 2)]);
        let swapped = own.map(|(i, j, rate)| (3 - i, j, rate));
        check(&[1, 2], &[2, 0, 0, 2], &swapped, &[(0, 2), (3, 1)]);
    }

    #[test]
    fn memory_with_threads_or_hardly_used_is_not_away() {
        check(&[0, 1], &[2, 2, 0, 0], &[(0, 1, 9.0), (1, 0, 9.0)], &[]);
        check(&[0, 1], &[2, 2, 0, 9], &[(0, 1, 500.0), (1, 0, 500.0), (1, 3, 9.0)], &[]);
        check(&[], &[2, 2, 0, 0], &[(0, 1, 9.0)], &[]);
        check(&[0, 1], &[2, 2, 0, 2], &[], &[]);
    }

    #[test]
    fn what_is_away_goes_where_the_occupants_of_its_host_go() {
        let part = |node, host| AwayMemory { node, host, memory: Bytes(3), share: 0.3 };
        let parts = [part(2, 0), part(5, 1)];
        assert_eq!(with_images(&parts, |node| node), (vec![(2, 0), (5, 1)], Bytes(6)));
        // Threads of node 0 go to where their memory is already, or others of their process do.
        let image = |moved, to| move |node| if node == moved { to } else { node };
        assert_eq!(with_images(&parts, image(0, 2)), (vec![(5, 1)], Bytes(3)));
        assert_eq!(with_images(&parts, image(1, 2)), (vec![(2, 0), (5, 2)], Bytes(6)));
    }

    #[test]
    fn requests_count_for_the_host() {
        let mut rates = Matrix::filled(3, 0.0);
        (rates[(0, 0)], rates[(0, 2)], rates[(1, 2)]) = (1.0, 2.0, 4.0);
        let part = AwayMemory { node: 2, host: 1, memory: Bytes(1), share: 0.9 };
        let folded = with_hosts(&rates, &[part]);
        assert_eq!((folded[(0, 0)], folded[(0, 1)], folded[(1, 1)]), (1.0, 2.0, 4.0));
        assert_eq!(folded.column(2).sum::<f64>(), 0.0);
    }
}
