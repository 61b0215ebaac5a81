//! Waits after trials of small gains, by process.
//!
//! No trial can tell a gain below [`LEAST_NOISE`] from noise, so none would end a series of such
//! actions. After a trial that promised so little and showed no gain, its process waits before the
//! next small promise. All policies and mechanisms share the wait, and it doubles each time.
//! Larger promises do not wait. A gain clears the wait. Another phase of the program ends it, but
//! the next one is longer still.

use super::TRIAL;
use crate::model::Model;
use crate::trial::{Judged, LEAST_NOISE};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// Most doublings. The longest wait is 27 hours.
const MAX_DOUBLINGS: u32 = 17;

/// The waits of all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SmallGains {
    of: BTreeMap<Pid, Wait>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Wait {
    /// Trials in vain since the last gain.
    times: u32,
    until: Nanos,
}

impl SmallGains {
    /// Learns from a trial that ended now.
    pub(super) fn learn(&mut self, judged: &Judged, now: Nanos) {
        if judged.gained() {
            self.of.remove(&judged.pid);
        } else if judged.is_in_vain() && judged.predicted.is_some_and(|gain| gain < LEAST_NOISE) {
            let wait = self.of.entry(judged.pid).or_default();
            wait.until = now + Nanos(TRIAL.0 << wait.times.min(MAX_DOUBLINGS));
            wait.times = wait.times.saturating_add(1);
        }
    }

    /// Ends the wait of a process that began another phase.
    pub(super) fn end(&mut self, pid: Pid, now: Nanos) {
        self.of.entry(pid).and_modify(|wait| wait.until = wait.until.min(now));
    }

    /// Remaining wait of a process.
    pub(super) fn left(&self, pid: Pid, now: Nanos) -> Option<Nanos> {
        let until = self.of.get(&pid)?.until;
        (until > now).then(|| until.since(now))
    }

    /// Forgets processes that are gone.
    pub(super) fn forget_gone(&mut self, model: &Model) {
        self.of.retain(|pid, _| model.app(*pid).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Kind, Mechanism};
    use crate::trial::{Change, Comparison, Verdict};
    use alloc::vec;
    use alloc::vec::Vec;

    fn judged(verdict: Verdict, predicted: Option<f64>) -> Judged {
        let combined = Some(Change { change: 0.0, noise: 0.01 });
        Judged {
            pid: Pid(1),
            policy: "test",
            plans: vec![1],
            kinds: vec![Kind::Pages(Mechanism::Interleaving)],
            verdict,
            comparison: Comparison { combined, ..Comparison::between(&[], &[]) },
            predicted,
        }
    }

    /// Wait after each trial, in times of a trial. `-` = it promised little and won nothing, `P` =
    /// it promised much and won nothing, `?` = nobody knows what it promised, `+` = it won. `~` =
    /// another phase.
    fn waits(trials: &str) -> Vec<u64> {
        let (mut small, now) = (SmallGains::default(), Nanos::from_secs(100));
        let wait = |trial: char| {
            match trial {
                '-' => small.learn(&judged(Verdict::Unclear, Some(0.001)), now),
                'P' => small.learn(&judged(Verdict::Unclear, Some(0.05)), now),
                '?' => small.learn(&judged(Verdict::Unclear, None), now),
                '+' => small.learn(&judged(Verdict::Better, Some(0.001)), now),
                _ => small.end(Pid(1), now),
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
    }
}
