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
use alloc::collections::{BTreeMap, BTreeSet};

/// Epochs without a change in a cache domain before a change of misses counts as a new phase of the
/// process (our choice). The first epoch mixes both placements; the second is compared with it.
const SETTLED_AFTER: u32 = 2;

/// The cache domain of each process, and the time for which the processes in it stayed the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Placements(BTreeMap<Pid, Placement>);

#[derive(Debug, Clone, Copy)]
struct Placement {
    domain: usize,
    /// Epochs since the last change of the processes in the domain.
    epochs: u32,
}

impl Placements {
    /// Adds the cache domain of each process in an epoch.
    pub(super) fn observe(&mut self, domains: impl Iterator<Item = (Pid, usize)>) {
        let now: BTreeMap<Pid, usize> = domains.collect();
        let before = |pid: &Pid| self.0.get(pid).map(|placement| placement.domain);
        let came = now.iter().filter(|(pid, domain)| before(pid) != Some(**domain));
        let left = self.0.iter().filter(|(pid, before)| now.get(pid) != Some(&before.domain));
        let came = came.map(|(_, domain)| *domain);
        let changed: BTreeSet<usize> = came.chain(left.map(|(_, before)| before.domain)).collect();
        let placement = |(pid, domain): (Pid, usize)| {
            let stayed = self.0.get(&pid).filter(|_| !changed.contains(&domain));
            let epochs = stayed.map_or(0, |before| before.epochs.saturating_add(1));
            (pid, Placement { domain, epochs })
        };
        self.0 = now.into_iter().map(placement).collect();
    }

    /// Whether no process came to the cache domain of this one, or left it, in the last
    /// [`SETTLED_AFTER`] epochs.
    pub(super) fn is_settled(&self, pid: Pid) -> bool {
        self.0.get(&pid).is_some_and(|placement| placement.epochs >= SETTLED_AFTER)
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
    /// begins another phase if the placement of the process is settled.
    pub(super) fn observe(&mut self, mpki: f64, is_settled: bool, trigger: f64) {
        let is_other_phase = is_settled && relative_change(self.last, mpki) > trigger;
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
            misses.observe(mpki.parse().expect("a number"), placements.is_settled(Pid(1)), 0.2);
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

    /// Most misses that are assumed of process 1 in domain 0. It misses 40, then almost nothing,
    /// while in each epoch another process runs in the domain `beside`.
    fn beside_short_processes(beside: usize) -> f64 {
        let (mut placements, mut misses) = (Placements::default(), PhaseMisses::default());
        for epoch in 0..23 {
            placements.observe([(Pid(1), 0), (Pid(100 + epoch), beside)].into_iter());
            let mpki = if epoch < 3 { 40.0 } else { 0.5 };
            misses.observe(mpki, placements.is_settled(Pid(1)), 0.2);
        }
        misses.most()
    }

    #[test]
    fn short_processes_elsewhere_do_not_keep_the_misses_of_an_earlier_phase() {
        assert_eq!(beside_short_processes(1), 0.5);
        assert_eq!(beside_short_processes(0), 40.0, "they may be why it misses less");
    }
}
