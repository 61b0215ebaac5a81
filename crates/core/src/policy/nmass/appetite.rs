//! What a process misses when it has to share: from its misses in the company that it has had, for
//! as long as it does the same.
//!
//! The published runs take misses from profiles of each program alone, which do not change when a
//! process is moved [N-MASS s3.4]. Counted misses do: a process that is given a cache of its own
//! and fills it misses next to nothing, so there seems to be room for another beside it. Both miss
//! all they need then, and both are far from their memory (emulated, nmass-2: 363 million
//! instructions a second alone, 146 with the second).

use super::penalty::relative_change;
use crate::units::Pid;
use alloc::collections::BTreeMap;

/// Epochs in which everybody stayed before a change of misses is a process's own doing: the first
/// is partly of the old placement, and its misses are what the second is compared with.
const SETTLED_AFTER: u32 = 2;

/// Who runs where, and for how many epochs that has been so.
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

    /// Nobody came, went or was moved lately.
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
    /// Takes in the MPKI of an epoch. A change by more than `trigger` while everybody stays where
    /// he is begins another phase.
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

    /// Epochs of one process, `MPKI@domain`; what it is reckoned with at the end.
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
    fn who_misses_less_after_a_move_does_so_because_of_it() {
        check("22@0 22@0 22@0 5@1 0.7@1 0.7@1 0.7@1", 22.0);
        check("0.7@1 0.7@1 0.7@1 18@0 22@0", 22.0);
    }

    #[test]
    fn who_misses_less_where_everybody_stays_does_something_else() {
        check("22@0 22@0 22@0 5@0", 5.0);
        check("22@0 22@0 22@0 5@0 5.5@0 5@0", 5.5);
        check("22@0 22@0 22@0 19@0", 22.0);
    }
}
