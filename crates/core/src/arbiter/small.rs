//! Waits after trials of small gains, by process.
//!
//! No trial can tell a gain below [`LEAST_NOISE`] from noise, so none would end a series of such
//! actions. After a trial that promised so little and showed no gain, its process waits before the
//! next small promise. All policies and mechanisms share the wait, and it doubles each time.
//! Larger promises do not wait. A gain clears the wait. Another phase of the program ends it, but
//! the next one is longer still.

use super::TRIAL;
use crate::model::Model;
use crate::trial::{Judged, LEAST_NOISE, Measure, Wait};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// The waits of all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SmallGains {
    of: BTreeMap<Pid, Wait>,
}

impl SmallGains {
    /// Learns from a trial that ended now. `phase` = what the process does in its present phase.
    pub(super) fn learn(&mut self, judged: &Judged, phase: Measure, now: Nanos) {
        if judged.gained() {
            self.of.remove(&judged.pid);
        } else if judged.is_in_vain() && judged.predicted.is_some_and(|gain| gain < LEAST_NOISE) {
            let wait = Wait::after(self.of.get(&judged.pid), TRIAL, phase, now);
            self.of.insert(judged.pid, wait);
        }
    }

    /// Ends the wait of a process if its windows belong to another phase.
    pub(super) fn take_in(&mut self, pid: Pid, window: &Measure, now: Nanos) {
        self.of.entry(pid).and_modify(|wait| wait.take_in(window, now));
    }

    /// Remaining wait of a process.
    pub(super) fn left(&self, pid: Pid, now: Nanos) -> Option<Nanos> {
        self.of.get(&pid)?.left(now)
    }

    /// Forgets processes that are gone.
    pub(super) fn forget_gone(&mut self, model: &Model) {
        self.of.retain(|pid, _| model.app(*pid).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_TRIAL_WINDOWS;
    use crate::plan::{Kind, Mechanism};
    use crate::trial::Verdict;
    use alloc::vec;
    use alloc::vec::Vec;

    fn judged(verdict: Verdict, predicted: Option<f64>) -> Judged {
        let kinds = vec![Kind::Pages(Mechanism::Interleaving)];
        Judged { kinds, predicted, ..Judged::sample(verdict, 0.0) }
    }

    /// Wait after each trial, in times of a trial. `-` = it promised little and won nothing, `P` =
    /// it promised much and won nothing, `?` = nobody knows what it promised, `+` = it won. `!` = a
    /// window of another phase, `~` = as many as a verdict needs.
    fn waits(trials: &str) -> Vec<u64> {
        let (mut small, now) = (SmallGains::default(), Nanos::from_secs(100));
        let doing = |cpu_percent| Measure { threads: 4.0, cpu_percent, ..Measure::default() };
        let wait = |trial: char| {
            let mut learn = |verdict, predicted| {
                small.learn(&judged(verdict, predicted), doing(400.0), now);
            };
            match trial {
                '-' => learn(Verdict::Unclear, Some(0.001)),
                'P' => learn(Verdict::Unclear, Some(0.05)),
                '?' => learn(Verdict::Unclear, None),
                '+' => learn(Verdict::Better, Some(0.001)),
                '!' => small.take_in(Pid(1), &doing(100.0), now),
                _ => (0..MIN_TRIAL_WINDOWS).for_each(|_| small.take_in(Pid(1), &doing(100.0), now)),
            }
            assert_eq!(small.left(Pid(2), now), None, "another process");
            small.left(Pid(1), now).map_or(0, |left| left.0 / TRIAL.0)
        };
        trials.chars().map(wait).collect()
    }

    #[test]
    fn small_promises_in_vain_wait_twice_as_long_each_time_until_one_wins() {
        assert_eq!(waits("---"), [1, 2, 4]);
        assert_eq!(waits("--+-"), [1, 2, 0, 1]);
        assert_eq!(waits("P?-"), [0, 0, 1]);
    }

    #[test]
    fn another_phase_ends_the_wait_and_the_next_is_longer() {
        assert_eq!(waits("--~-"), [1, 2, 0, 4]);
        assert_eq!(waits("-!"), [1, 1], "a single window may be noise");
    }
}
