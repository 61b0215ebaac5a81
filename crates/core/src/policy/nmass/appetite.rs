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

/// Epochs without any move before a change of misses counts as a new phase of the process. The
/// first epoch is partly of the old placement; the second is compared with its misses.
const SETTLED_AFTER: u32 = 2;

/// Cache domain of each process, and the number of epochs for which all of them stayed.
#[derive(Debug, Clone, Default)]
pub(super) struct Company {
    domains: BTreeMap<Pid, usize>,
    epochs: u32,
}

impl Company {
    /// Takes in where each process was in an epoch.
    pub(super) fn observe(&mut self, domains: impl Iterator<Item = (Pid, usize)>) {
        let domains: BTreeMap<Pid, usize> = domains.collect();
        self.epochs = if domains == self.domains { self.epochs.saturating_add(1) } else { 0 };
        self.domains = domains;
    }

    /// No process came, went or was moved lately.
    pub(super) fn is_settled(&self) -> bool {
        self.epochs >= SETTLED_AFTER
    }
}

/// The misses of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct Appetite {
    most: f64,
    last: f64,
}

impl Appetite {
    /// Takes in the MPKI of an epoch. A change by more than `trigger` while all processes stay
    /// where they are begins another phase.
    pub(super) fn observe(&mut self, mpki: f64, is_settled: bool, trigger: f64) {
        let is_other_phase = is_settled && relative_change(self.last, mpki) > trigger;
        self.most = if is_other_phase { mpki } else { self.most.max(mpki) };
        self.last = mpki;
    }

    /// The most that it missed in this phase, MPKI.
    pub(super) fn most(&self) -> f64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of one process, `MPKI@domain`, and the misses assumed at the end.
    fn check(epochs: &str, expected: f64) {
        let (mut company, mut appetite) = (Company::default(), Appetite::default());
        for epoch in epochs.split_whitespace() {
            let (mpki, domain) = epoch.split_once('@').expect("MPKI@domain");
            let domain = domain.parse().expect("a number");
            company.observe([(Pid(1), domain)].into_iter());
            appetite.observe(mpki.parse().expect("a number"), company.is_settled(), 0.2);
        }
        assert_eq!(appetite.most(), expected, "{epochs}");
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
