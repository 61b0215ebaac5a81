//! Gains that candidates lose while they wait for the trial of another policy.
//!
//! Policies decide in different looks. When a trial ends, the policy that decides next would begin
//! another one, and a candidate with a larger gain would wait again. So its gain counts against the
//! candidates of other policies until its own policy decides again.

use crate::units::{Nanos, Pid};
use alloc::collections::{BTreeMap, BTreeSet};

/// Longest time for which a gain counts without being promised again (our choice: the period of
/// most policies).
const COUNTS_FOR: Nanos = Nanos::from_secs(1);

/// The waiting candidates, by policy and the processes that they change.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Waiting {
    of: BTreeMap<(&'static str, BTreeSet<Pid>), Promise>,
}

/// The best candidate of a policy that waits.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Promise {
    /// CPU seconds per second, of all of its processes together.
    gain: f64,
    at: Nanos,
}

impl Waiting {
    /// Notes that a candidate for these processes waits.
    pub(super) fn note(&mut self, pids: BTreeSet<Pid>, policy: &'static str, gain: f64, at: Nanos) {
        let promise = self.of.entry((policy, pids)).or_insert(Promise { gain, at });
        *promise = Promise { gain: gain.max(promise.gain), at };
    }

    /// Whether a gain of this policy waits.
    pub(super) fn is_any(&self, policy: &str) -> bool {
        self.of.keys().any(|(one, _)| *one == policy)
    }

    /// Forgets what a policy promised for a process, because it decides again.
    pub(super) fn forget(&mut self, pid: Pid, policy: &'static str) {
        self.of.retain(|(one, pids), _| *one != policy || !pids.contains(&pid));
    }

    /// The gain that waits at other policies than this one: for each of these processes the
    /// candidate with the largest gain. A candidate for several of them counts once.
    pub(super) fn beside(&self, pids: &BTreeSet<Pid>, policy: &'static str) -> f64 {
        let others = || self.of.iter().filter(|((other, _), _)| *other != policy);
        let largest = |pid: &Pid| {
            let of_process = others().filter(|((_, of), _)| of.contains(pid));
            of_process.max_by(|(_, one), (_, other)| one.gain.total_cmp(&other.gain))
        };
        let all: BTreeMap<_, f64> =
            pids.iter().filter_map(largest).map(|(key, promise)| (key, promise.gain)).collect();
        all.values().sum()
    }

    /// Forgets processes that are gone, and gains that count no more. To call in each look.
    pub(super) fn forget_old(&mut self, is_known: impl Fn(Pid) -> bool, now: Nanos) {
        self.of.retain(|(_, pids), promise| {
            pids.iter().all(|pid| is_known(*pid)) && now.since(promise.at) < COUNTS_FOR
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_of_two_processes_is_lost_once() {
        let pids = |pids: &[u32]| pids.iter().map(|pid| Pid(*pid)).collect::<BTreeSet<Pid>>();
        let mut waiting = Waiting::default();
        waiting.note(pids(&[1, 2]), "home", 0.5, Nanos(0));
        waiting.note(pids(&[3]), "sam", 0.2, Nanos(0));
        let lost = |waiting: &Waiting, of: &[u32]| waiting.beside(&pids(of), "gather");
        assert_eq!(lost(&waiting, &[1, 2]), 0.5);
        assert_eq!(lost(&waiting, &[2]), 0.5, "it waits for either");
        assert_eq!(lost(&waiting, &[1, 2, 3]), 0.7);
        assert_eq!(waiting.beside(&pids(&[1, 2]), "home"), 0.0, "its own");
        waiting.forget(Pid(2), "home");
        assert_eq!(lost(&waiting, &[1, 2, 3]), 0.2, "it decides again");
        waiting.forget_old(|_| true, COUNTS_FOR);
        assert!(!waiting.is_any("sam"));
    }
}
