//! Bytes by node and calls stay within their budgets in every window.
//!
//! A token bucket for one second. One purchase may take it into debt, and then no token is given
//! until the debt is paid. The code is independent of the guard's.

use std::collections::BTreeSet;

use rondpoint_core::guard::GuardSettings;
use rondpoint_core::plan::{Action, Kind};
use rondpoint_core::{Nanos, NodeSet};

use super::{Broken, Checker, View};
use crate::plant::Plant;

pub(super) struct Budgets {
    /// By node, bytes; and last, calls.
    buckets: Vec<Bucket>,
    /// Nodes that get copies.
    controllers: NodeSet,
}

struct Bucket {
    name: String,
    per_s: f64,
    left: f64,
    at: Nanos,
}

/// Slack for rounding, in tokens.
const SLACK: f64 = 1.0;

impl Bucket {
    fn new(name: String, per_s: f64) -> Self {
        Self { name, per_s, left: per_s, at: Nanos(0) }
    }

    /// `all` tokens in purchases of which the largest is `largest`.
    fn take(&mut self, now: Nanos, (all, largest): (f64, f64)) -> Result<(), Broken> {
        self.left = (self.left + self.per_s * now.since(self.at).seconds()).min(self.per_s);
        self.at = self.at.max(now);
        self.left -= all;
        // The last purchase of a step may be the one that goes into debt.
        if all > 0.0 && self.left + largest < -SLACK {
            let what = format!("{}: {:.0} over the budget", self.name, -(self.left + largest));
            return Err(Broken::new("budget", what));
        }
        Ok(())
    }
}

impl Budgets {
    pub(super) fn new(plant: &Plant, settings: &GuardSettings) -> Self {
        let bytes = settings.bytes_per_s_per_node as f64;
        let node = |node| Bucket::new(format!("bytes of node {node}"), bytes);
        let mut buckets: Vec<Bucket> = (0..plant.topology.node_count()).map(node).collect();
        buckets.push(Bucket::new("calls".to_string(), f64::from(settings.calls_per_s)));
        Self { buckets, controllers: plant.topology.controllers() }
    }
}

impl Checker for Budgets {
    fn check(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let calls = self.buckets.len() - 1;
        let mut wanted = vec![(0.0_f64, 0.0_f64); self.buckets.len()];
        let mut buy = |bucket: usize, tokens: f64| {
            let (all, largest) = &mut wanted[bucket];
            *all += tokens;
            *largest = largest.max(tokens);
        };
        for step in view.done() {
            match &step.action {
                Action::MovePages { pages, .. } => {
                    for page in pages {
                        let bytes = page.bytes().0 as f64;
                        buy(usize::from(page.from), bytes);
                        buy(usize::from(page.to), bytes);
                    }
                }
                Action::Replicate { pages, .. } => {
                    for page in pages {
                        // A copy is read at the page's node and written at every other one.
                        let mut sides: BTreeSet<usize> = self.controllers.iter().collect();
                        sides.insert(usize::from(page.from));
                        sides.into_iter().for_each(|node| buy(node, page.bytes().0 as f64));
                    }
                }
                Action::MoveProcessMemory { nodes, memory, .. } => {
                    // A node sends and receives no more than all of it.
                    let sides = nodes.iter().flat_map(|node| [node.from, node.to]);
                    let sides: BTreeSet<usize> = sides.collect();
                    sides.into_iter().for_each(|node| buy(node, memory.0 as f64));
                }
                // Dropped copies free memory.
                Action::Unreplicate { .. }
                | Action::SetAffinity { .. }
                | Action::SetSampling { .. } => {}
            }
            if step.action.kind() != Kind::Sampling {
                buy(calls, 1.0);
            }
        }
        let at = view.at();
        self.buckets.iter_mut().zip(wanted).try_for_each(|(bucket, wanted)| bucket.take(at, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_tokens_and_one_debt_are_fine_and_more_is_not() {
        let mut bucket = Bucket::new("b".to_string(), 10.0);
        assert_eq!(bucket.take(Nanos::from_secs(1), (14.0, 5.0)), Ok(()));
        assert!(bucket.take(Nanos::from_millis(1_100), (3.0, 1.0)).is_err());
        assert_eq!(bucket.take(Nanos::from_secs(9), (10.0, 1.0)), Ok(()));
    }
}
