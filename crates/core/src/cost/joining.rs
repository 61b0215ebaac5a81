//! A thread that joins the threads behind another cache.

use super::facts::Group;
use super::seen::Seen;
use crate::model::Thread;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A thread exchanges lines with the threads that it joins, and leaves those beside it. Its
/// partners are not known: assumed are threads elsewhere, in proportion to what these exchange with
/// others. Gives the share of its lines that are near now and were not.
fn meet(alone: &mut Group, groups: &[Group], to: usize) -> f64 {
    let far: f64 = alone.far.iter().map(|(_, share)| share).sum();
    let exchanged = |group: &Group| {
        group.lines * group.cpus * group.far.iter().map(|(_, share)| share).sum::<f64>()
    };
    let elsewhere = groups.iter().filter(|group| group.domain != alone.domain);
    let all: f64 = elsewhere.map(exchanged).sum();
    let there: f64 = groups.iter().filter(|group| group.domain == to).map(exchanged).sum();
    let met = if all > 0.0 { far * there / all } else { 0.0 };
    let scale = if far > 0.0 { 1.0 - met / far } else { 0.0 };
    alone.far.iter_mut().for_each(|(_, share)| *share *= scale);
    let beside = (1.0 - far).max(0.0);
    alone.far.push((alone.node, beside));
    met
}

/// A thread runs behind another cache, and asks for the same memory as before.
pub(super) fn move_thread(
    seen: Seen<'_>,
    groups: &mut Vec<Group>,
    thread: &Thread,
    (from, to): (usize, usize),
    node: usize,
) {
    let Some(at) = groups.iter().position(|group| group.domain == from) else { return };
    let alone = seen.facts.thread_alone(thread, &groups[at]);
    let mut alone = alone;
    let (own_node, share) = (groups[at].node, meet(&mut alone, groups, to));
    if share > 0.0 {
        // The lines of the thread are near for the groups that it joins.
        let lines = alone.lines * alone.cpus * share;
        for group in groups.iter_mut().filter(|group| group.domain == to && group.lines > 0.0) {
            let less = lines / (group.lines * group.cpus);
            for (_, far) in group.far.iter_mut().filter(|(owner, _)| *owner == own_node) {
                *far = (*far - less).max(0.0);
            }
        }
    }
    let left = groups[at].cpus - alone.cpus;
    if left <= 1e-9 {
        groups.remove(at);
    } else {
        let group = &mut groups[at];
        // The rest of the group asks for the group's accesses without the thread's.
        let both = group.shares.iter().map(|(node, share)| (*node, share * group.cpus));
        let less = alone.shares.iter().map(|(node, share)| (*node, -share * alone.cpus));
        let rest = summed(both.chain(less)).into_iter().map(|(node, sum)| (node, sum.max(0.0)));
        let rest: Vec<(usize, f64)> = rest.filter(|(_, sum)| *sum > 0.0).collect();
        let all: f64 = rest.iter().map(|(_, sum)| sum).sum();
        if all > 0.0 {
            group.shares = rest.into_iter().map(|(node, sum)| (node, sum / all)).collect();
        }
        group.cpus = left;
        group.wanted = (group.wanted - alone.wanted).max(left);
        group.threads = (group.threads - 1.0).max(1.0);
    }
    groups.push(Group { node, domain: to, ..alone });
}

/// The shares of each node, summed up, in the order of the nodes.
pub(super) fn summed(shares: impl Iterator<Item = (usize, f64)>) -> Vec<(usize, f64)> {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    shares.for_each(|(node, share)| *sums.entry(node).or_default() += share);
    sums.into_iter().collect()
}
