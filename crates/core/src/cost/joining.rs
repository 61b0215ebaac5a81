//! A thread that joins the threads behind another cache.

use super::group::{Group, summed};
use super::lines::own_lines;
use super::step::Step;
use alloc::vec::Vec;

/// A thread exchanges lines with the threads that it joins, and leaves those beside it. Where its
/// partners are not known, assumed are threads elsewhere, in proportion to what these exchange with
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

/// The lines of a thread are near for the groups that it joins, which fetched them from its node.
fn welcome(groups: &mut [Group], alone: &Group, met: f64, to: usize) {
    let lines = alone.lines * alone.cpus * met;
    for group in groups.iter_mut().filter(|group| group.domain == to && group.lines > 0.0) {
        let less = lines / (group.lines * group.cpus);
        for (_, far) in group.far.iter_mut().filter(|(owner, _)| *owner == alone.node) {
            *far = (*far - less).max(0.0);
        }
    }
}

/// A thread runs behind another cache, and asks for the same memory as before.
pub(super) fn move_thread(step: &Step<'_>, groups: &mut Vec<Group>) {
    let (from, to) = step.caches;
    let is_from = |group: &Group| group.domain == from && group.thread.is_none();
    let Some(at) = groups.iter().position(is_from) else { return };
    let thread = &step.seen.model.threads[step.place];
    let mut alone = step.seen.facts.thread_alone(thread, &groups[at], step.share);
    if step.partners().is_empty() {
        let met = meet(&mut alone, groups, to);
        welcome(groups, &alone, met, to);
        leave(groups, at, &alone, None);
    } else {
        alone.lines = own_lines(thread).unwrap_or(alone.lines);
        alone.far = step.far_from(to);
        leave(groups, at, &alone, Some(&step.far_from(from)));
        step.tell_partners(groups);
    }
    groups.push(Group { node: step.nodes.1, domain: to, thread: Some(step.place), ..alone });
}

/// The rest of a group asks for the group's accesses without the thread's. Where it is known what
/// the thread fetched from `far` caches, the rest fetches the group's lines without those.
fn leave(groups: &mut Vec<Group>, at: usize, alone: &Group, far: Option<&[(usize, f64)]>) {
    let left = groups[at].cpus - alone.cpus;
    if left <= 1e-9 {
        groups.remove(at);
        return;
    }
    let group = &mut groups[at];
    let both = group.shares.iter().map(|(node, share)| (*node, share * group.cpus));
    let less = alone.shares.iter().map(|(node, share)| (*node, -share * alone.cpus));
    let (rest, all) = above_zero(both.chain(less));
    if all > 0.0 {
        group.shares = rest.into_iter().map(|(node, sum)| (node, sum / all)).collect();
    }
    if let Some(far) = far {
        let (lines, own) = (group.lines * group.cpus, alone.lines * alone.cpus);
        let both = group.far.iter().map(|(node, share)| (*node, share * lines));
        let less = far.iter().map(|(node, share)| (*node, -share * own));
        let (rest, _) = above_zero(both.chain(less));
        let lines = (lines - own).max(0.0);
        group.far = rest.into_iter().map(|(node, sum)| (node, (sum / lines).min(1.0))).collect();
        group.lines = lines / left;
    }
    group.cpus = left;
    group.wanted = (group.wanted - alone.wanted).max(left);
    group.threads = (group.threads - alone.threads).max(1.0);
}

/// Sums by node, those above zero, and the sum of all.
fn above_zero(values: impl Iterator<Item = (usize, f64)>) -> (Vec<(usize, f64)>, f64) {
    let mut sums = summed(values);
    sums.retain(|(_, sum)| *sum > 0.0);
    let all = sums.iter().map(|(_, sum)| sum).sum();
    (sums, all)
}
