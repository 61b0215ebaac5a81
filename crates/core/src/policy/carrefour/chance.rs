//! Nodes that seem to own pages by chance. This rule is ours; no paper has it.
//!
//! A few accesses of a page that two nodes share evenly often come from one of them. Each round
//! then finds such pages among thousands, brings them to the node, and later finds others. Nothing
//! is won, and the rounds have no end.
//!
//! All pages of an application may be used alike, each access from a node with that node's share of
//! all accesses. Then so many pages that lie elsewhere still look like the node's own. Only where
//! surely more do, a node gets pages. A node that surely makes most of all accesses gets them in
//! any case: it uses them most even where all are used alike.

use super::pages::Marker;
use crate::index_set::NodeSet;
use crate::model::{Model, Page};
use alloc::vec;
use alloc::vec::Vec;

/// Pages with more accesses tell their owner without doubt.
const MOST_ACCESSES: usize = 64;
/// Standard deviations that are sure; a round tests each node of each application.
const SURE: f64 = 3.0;

/// Pages by their number of accesses.
type ByAccesses = [u32; MOST_ACCESSES + 1];

/// What the samples of one application show.
struct Seen {
    /// By node.
    accesses: Vec<f64>,
    /// By node, pages that lie there.
    here: Vec<ByAccesses>,
    all: ByAccesses,
    /// By node, pages that lie elsewhere and look like its own.
    own: Vec<f64>,
    has_shared: bool,
}

/// By application, the nodes that seem to own pages by chance.
pub(super) fn doubted(markers: &[Option<Marker<'_>>], model: &Model) -> Vec<NodeSet> {
    let mut seen: Vec<Option<Seen>> = Vec::with_capacity(markers.len());
    seen.resize_with(markers.len(), || None);
    for page in model.pages.iter() {
        let Some(marker) = &markers[page.app] else { continue };
        let nodes = marker.topology.node_count();
        seen[page.app].get_or_insert_with(|| Seen::new(nodes)).add(marker, &page);
    }
    let doubted = |(seen, marker): (&Option<Seen>, &Option<Marker<'_>>)| {
        let both = seen.as_ref().zip(marker.as_ref());
        both.map_or_else(NodeSet::new, |(seen, marker)| seen.doubted(marker))
    };
    seen.iter().zip(markers).map(doubted).collect()
}

impl Seen {
    fn new(nodes: usize) -> Self {
        Self {
            accesses: vec![0.0; nodes],
            here: vec![[0; MOST_ACCESSES + 1]; nodes],
            all: [0; MOST_ACCESSES + 1],
            own: vec![0.0; nodes],
            has_shared: false,
        }
    }

    fn add(&mut self, marker: &Marker<'_>, page: &Page<'_>) {
        let (mut total, mut most, mut users) = (0, (0, 0), 0);
        for (node, count) in page.accesses() {
            self.accesses[node] += f64::from(count);
            total += count;
            users += 1;
            if count > most.1 {
                most = (node, count);
            }
        }
        let Some(home) = page.home.filter(|_| total > 0) else { return };
        self.has_shared |= users > 1;
        let place = (total as usize).min(MOST_ACCESSES);
        self.all[place] += 1;
        self.here[home][place] += 1;
        let looks = marker.least_of_owner(total).is_some_and(|least| most.1 >= least);
        if looks && home != most.0 {
            self.own[most.0] += 1.0;
        }
    }

    fn doubted(&self, marker: &Marker<'_>) -> NodeSet {
        let all: f64 = self.accesses.iter().sum();
        let by_chance = |&node: &usize| {
            let own = self.accesses[node];
            let lead = 2.0 * own - all;
            let makes_most = lead > 0.0 && lead * lead >= SURE * SURE * all;
            let (mean, variance) = self.expected(marker, node, own / all);
            !makes_most && self.own[node] <= mean + SURE * libm::sqrt(variance)
        };
        let nodes = 0..self.accesses.len();
        nodes.filter(|_| self.has_shared).filter(by_chance).collect()
    }

    /// Mean and variance of the pages that lie elsewhere and look like those of `node`. Each access
    /// comes from it with a probability of `share`.
    fn expected(&self, marker: &Marker<'_>, node: usize, share: f64) -> (f64, f64) {
        let (mut mean, mut variance) = (0.0, 0.0);
        for accesses in 1..=MOST_ACCESSES {
            let pages = f64::from(self.all[accesses] - self.here[node][accesses]);
            if pages > 0.0
                && let Some(least) = marker.least_of_owner(accesses as u32)
            {
                let looks = at_least(least, accesses as u32, share);
                mean += pages * looks;
                variance += pages * looks * (1.0 - looks);
            }
        }
        (mean, variance)
    }
}

/// Probability of at least `least` of `all` accesses from a node with a `share` of all.
fn at_least(least: u32, all: u32, share: f64) -> f64 {
    let (mut ways, mut sum) = (1.0, 0.0);
    // From all of them down: the number of ways is that of choosing the others.
    for others in 0..=all - least.min(all) {
        let own = f64::from(all - others);
        sum += ways * libm::pow(share, own) * libm::pow(1.0 - share, f64::from(others));
        ways *= own / f64::from(others + 1);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::at_least;

    #[test]
    fn four_of_four_evenly_drawn_accesses_come_from_one_node_in_a_sixteenth_of_all_cases() {
        assert!((at_least(4, 4, 0.5) - 1.0 / 16.0).abs() < 1e-12);
        assert!((at_least(3, 4, 0.5) - 5.0 / 16.0).abs() < 1e-12);
        assert!((at_least(0, 7, 0.3) - 1.0).abs() < 1e-12);
        assert!((at_least(2, 2, 0.25) - 1.0 / 16.0).abs() < 1e-12);
    }
}
