//! Gains that candidates lose while they wait for the trial of another policy.
//!
//! Policies decide in different looks. When a trial ends, the policy that decides next would begin
//! another one, and a candidate with a larger gain would wait again. So its gain counts against the
//! candidates of other policies until its own policy decides again.

use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// Longest time for which a gain counts without being promised again (our choice: the period of
/// most policies).
const COUNTS_FOR: Nanos = Nanos::from_secs(1);

/// The waiting candidates, by process and policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Waiting {
    of: BTreeMap<(Pid, &'static str), Promise>,
}

/// The best candidate of a policy that waits.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Promise {
    /// CPU seconds per second.
    gain: f64,
    at: Nanos,
}

impl Waiting {
    /// Notes that a candidate waits.
    pub(super) fn note(&mut self, pid: Pid, policy: &'static str, gain: f64, at: Nanos) {
        let promise = self.of.entry((pid, policy)).or_insert(Promise { gain, at });
        *promise = Promise { gain: gain.max(promise.gain), at };
    }

    /// Whether a gain of this policy waits.
    pub(super) fn is_any(&self, policy: &str) -> bool {
        self.of.keys().any(|(_, one)| *one == policy)
    }

    /// Forgets what a policy promised for a process, because it decides again.
    pub(super) fn forget(&mut self, pid: Pid, policy: &'static str) {
        self.of.remove(&(pid, policy));
    }

    /// The largest gain for a process that waits at other policies than this one.
    pub(super) fn beside(&self, pid: Pid, policy: &'static str) -> f64 {
        let of_process = self.of.range((pid, "")..).take_while(|((of, _), _)| *of == pid);
        let others = of_process.filter(|((_, other), _)| *other != policy);
        others.map(|(_, promise)| promise.gain).fold(0.0, f64::max)
    }

    /// Forgets processes that are gone, and gains that count no more. To call in each look.
    pub(super) fn forget_old(&mut self, is_known: impl Fn(Pid) -> bool, now: Nanos) {
        self.of.retain(|(pid, _), promise| is_known(*pid) && now.since(promise.at) < COUNTS_FOR);
    }
}
