//! Cache lines that threads fetch from other caches, and the distance of those caches.

use super::group::{Group, summed};
use crate::model::{App, Model, Thread};
use crate::topology::Topology;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// For each thread, by place in the model: its partners, with their share of its lines.
pub(super) type Named = BTreeMap<usize, Vec<(usize, f64)>>;

/// Lines that a thread fetches from other caches in a µs of its CPU time; `None` = not counted.
pub(super) fn own_lines(thread: &Thread) -> Option<f64> {
    let rates = [thread.rates.coherence_remote_per_s, thread.rates.coherence_local_per_s];
    let known = rates.iter().any(Option::is_some);
    known.then(|| rates.into_iter().flatten().sum::<f64>() / 1e6)
}

/// Lines that partners exchange and no counter shows, in a µs of CPU time, by place in the model.
pub(super) type Unseen = BTreeMap<usize, f64>;

/// Lines that a thread exchanges in a µs of its CPU time: those that counters show, and
/// those that they do not. `None` = not counted.
pub(super) fn all_lines(place: usize, thread: &Thread, unseen: &Unseen) -> Option<f64> {
    Some(own_lines(thread)? + unseen.get(&place).copied().unwrap_or(0.0))
}

/// Fills in the sources of each group's lines: the partners that samples named, otherwise all
/// threads of the process equally.
pub(super) fn spread_lines(
    groups: &mut [Group],
    (model, topology): (&Model, &Topology),
    app: &App,
    (named, unseen): (&Named, &Unseen),
) {
    let of_named = named_lines(model, topology, app, (named, unseen));
    let threads: Vec<(usize, usize, f64)> =
        groups.iter().map(|group| (group.node, group.domain, group.threads)).collect();
    let all: f64 = threads.iter().map(|(_, _, count)| count).sum();
    for group in groups.iter_mut().filter(|group| group.lines > 0.0) {
        let others = (all - 1.0).max(1.0);
        let elsewhere = threads.iter().filter(|(_, domain, _)| *domain != group.domain);
        let alike = summed(elsewhere.map(|(node, _, count)| (*node, count / others)));
        let sum: f64 = alike.iter().map(|(_, share)| share).sum();
        let lines = group.lines * group.cpus;
        let (counted, far) = of_named.get(&group.domain).cloned().unwrap_or_default();
        let unnamed = (1.0 - counted / lines).max(0.0) / sum.max(1.0);
        let alike = alike.into_iter().map(|(node, share)| (node, unnamed * share));
        let by_name = far.into_iter().map(|(node, far)| (node, far / lines.max(counted)));
        group.far = summed(alike.chain(by_name));
    }
}

/// Lines per µs of the threads with named partners, by the cache of the thread. First all lines,
/// then lines from other caches by their node.
fn named_lines(
    model: &Model,
    topology: &Topology,
    app: &App,
    (named, unseen): (&Named, &Unseen),
) -> BTreeMap<usize, (f64, Vec<(usize, f64)>)> {
    let mut of_domain: BTreeMap<usize, (f64, Vec<(usize, f64)>)> = BTreeMap::new();
    for (place, partners) in named.range(app.threads.clone()) {
        let thread = &model.threads[*place];
        let lines = thread.cpu_share * all_lines(*place, thread, unseen).unwrap_or(0.0);
        let here = topology.domain_of_cpu(thread.cpu);
        let (sum, far) = of_domain.entry(here).or_default();
        *sum += lines;
        for (partner, share) in partners {
            let cpu = model.threads[*partner].cpu;
            if topology.domain_of_cpu(cpu) != here {
                far.push((topology.node_of_cpu(cpu), lines * share));
            }
        }
    }
    of_domain
}

/// Scales the lines from other nodes to their count, if there is one. Without this, the model
/// assumes that threads share equally with near and far threads. The counts are `(all, far)` lines.
pub(super) fn count_far(group: &mut Group, (lines, far): (f64, Option<f64>)) {
    let spread: f64 = group.far.iter().map(|(_, share)| share).sum();
    let Some(far) = far.filter(|_| lines > 0.0 && spread > 0.0) else { return };
    let scale = far / lines / spread;
    group.far.iter_mut().for_each(|(_, share)| *share *= scale);
}
