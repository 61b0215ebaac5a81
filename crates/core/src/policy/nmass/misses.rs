//! The cache misses that a process would have in shared caches: the most it missed in the same
//! phase.
//!
//! The published runs take misses from profiles of each program alone, which do not change with the
//! placement [N-MASS s3.4]. Counted misses do change. A process with a cache of its own that it
//! fills has hardly a miss, so there seems to be room for another beside it. Together both miss all
//! their data, far from their memory (emulated, nmass-2: 363 million instructions a second alone,
//! 146 with the second).

use super::penalty::relative_change;
use crate::units::Pid;
use alloc::collections::BTreeMap;

/// Epochs without any move before a change of misses counts as a new phase of the process (our
/// choice). The first epoch still mixes both placements, and the second is compared with it.
const SETTLED_AFTER: u32 = 2;

/// The cache domain of each process, and the time for which all of them stayed.
#[derive(Debug, Clone, Default)]
pub(super) struct Placements {
    domains: BTreeMap<Pid, usize>,
    /// Epochs since the last change.
    epochs: u32,
}

impl Placements {
    /// Adds the cache domain of each process in an epoch.
    pub(super) fn observe(&mut self, domains: impl Iterator<Item = (Pid, usize)>) {
        let domains: BTreeMap<Pid, usize> = domains.collect();
        self.epochs = if domains == self.domains { self.epochs.saturating_add(1) } else { 0 };
        self.domains = domains;
    }

    /// Whether no process started, ended or moved in the last [`SETTLED_AFTER`] epochs.
    pub(super) fn are_settled(&self) -> bool {
        self.epochs >= SETTLED_AFTER
    }
}

/// The cache misses of one process in its present phase, MPKI.
#[derive(Debug, Clone, Default)]
pub(super) struct PhaseMisses {
    most: f64,
    last: f64,
}

impl PhaseMisses {
    /// Adds the MPKI of an epoch. A change by more than `trigger`, as a share of the last value,
    /// begins another phase if all placements are settled.
    pub(super) fn observe(&mut self, mpki: f64, are_settled: bool, trigger: f64) {
        let is_other_phase = are_settled && relative_change(self.last, mpki) > trigger;
        self.most = if is_other_phase { mpki } else { self.most.max(mpki) };
        self.last = mpki;
    }

    /// The highest MPKI of an epoch in this phase.
    pub(super) fn most(&self) -> f64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the misses that are assumed after these epochs of a process, each `MPKI@domain`.
    fn check(epochs: &str, expected: f64) {
        let (mut placements, mut misses) = (Placements::default(), PhaseMisses::default());
        for epoch in epochs.split_whitespace() {
            let (mpki, domain) = epoch.split_once('@').expect("MPKI@domain");
            let domain = domain.parse().expect("a number");
            placements.observe([(Pid(1), domain)].into_iter());
            misses.observe(mpki.parse().expect("a number"), placements.are_settled(), 0.2);
        }
        assert_eq!(misses.most(), expected, "{epochs}");
    }

    #[test]
    fn a_process_that_misses_less_after_a_move_does_so_because_of_it() {
        check("22@0 22@0 22@0 5@1 0.7@1 0.7@1 0.7@1", 22.0);
        check("0.7@1 0.7@1 0.7@1 18@0 22@0", 22.0);
    }

    #[test]
    fn a_process_that_misses_less_where_all_stay_does_something_else() {
        check("22@0 22@0 22@0 5@0", 5.0);
        check("22@0 22@0 22@0 5@0 5.5@0 5@0", 5.5);
        check("22@0 22@0 22@0 19@0", 22.0);
    }
}
