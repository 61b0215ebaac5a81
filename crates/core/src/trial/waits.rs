//! Waits after trials without a gain, by process, policy and kind of action.
//!
//! After a trial without a gain, the policy waits as long as the trial took before it tries the
//! same kind of action again. The wait doubles with each further trial without a gain. So a process
//! that no policy can help is left alone, and its counters may pause. A gain clears the wait. A new
//! phase of the program ends it, but the next trial without a gain waits longer still. Moves of
//! pages do not wait: each round moves other pages, and their gains add up. The arbiter has a rule
//! for promises that came to nothing.
//!
//! A harmful trial is a warning for all processes. A policy whose trials did harm, with no gain
//! between, waits by the same rule for every process. The guard protects the harmed process for
//! longer.

use super::{Change, Judged, Measure, Phase, Verdict};
use crate::plan::Kind;
use crate::units::Nanos;
use alloc::collections::BTreeMap;

/// Most doublings. With trials of a third of a second the longest wait is twelve hours.
const MAX_DOUBLINGS: u32 = 17;

/// Time without harm after which a warning is forgotten, if the warning itself was shorter (our
/// choice: the half-life of the belief).
const FORGIVEN: Nanos = Nanos::from_secs(60);

/// Key of a wait.
type Key = (&'static str, Kind);

/// Waits of one process.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Waits {
    of: BTreeMap<Key, Wait>,
}

/// Waits of all processes, after harm to some.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Warnings {
    of: BTreeMap<Key, Doubling>,
}

/// A wait that doubles after each trial without a gain.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Doubling {
    /// Trials in a row without a gain.
    times: u32,
    began: Nanos,
    until: Nanos,
}

/// A wait that doubles, and that another phase of its program ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wait {
    doubling: Doubling,
    /// What the program did at the last verdict.
    phase: Phase,
}

impl Doubling {
    /// Extends the wait after one more trial without a gain, which took `took`.
    fn after(self, took: Nanos, now: Nanos) -> Self {
        let doubled = took.0.saturating_mul(1 << self.times.min(MAX_DOUBLINGS));
        Self { times: self.times.saturating_add(1), began: now, until: now + Nanos(doubled) }
    }

    fn left(self, now: Nanos) -> Option<Nanos> {
        (self.until > now).then(|| self.until.since(now))
    }

    /// Whether it has been over for as long as it lasted, and for [`FORGIVEN`].
    fn is_forgiven(self, now: Nanos) -> bool {
        now.since(self.until) > self.until.since(self.began).max(FORGIVEN)
    }
}

impl Judged {
    /// A trial of a thread's move, judged by one change with a noise of 1 %.
    #[cfg(test)]
    pub(crate) fn sample(verdict: Verdict, change: f64) -> Self {
        let combined = Some(Change { change, noise: 0.01 });
        Self {
            pid: crate::units::Pid(1),
            policy: "test",
            plans: alloc::vec![1],
            kinds: alloc::vec![Kind::Affinity],
            verdict,
            comparison: super::Comparison { combined, ..super::Comparison::between(&[], &[]) },
            predicted: None,
        }
    }

    /// Whether its actions brought more than they took.
    pub(crate) fn gained(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Traded)
    }

    /// Whether it found no gain, not even one that some measures contradict.
    pub(crate) fn is_in_vain(&self) -> bool {
        let gains = |change: Change| change.change > change.noise;
        self.verdict == Verdict::Unclear && !self.comparison.combined.is_some_and(gains)
    }
}

impl Wait {
    /// The wait after one more trial without a gain. `took` = time of a trial; `phase` = the
    /// program's measures at its end.
    pub(crate) fn after(before: Option<&Self>, took: Nanos, phase: Measure, now: Nanos) -> Self {
        let before = before.map_or(Doubling::default(), |wait| wait.doubling);
        Self { doubling: before.after(took, now), phase: Phase::new(now, phase) }
    }

    /// Ends the wait if this window, and those before it, belong to another phase.
    pub(crate) fn take_in(&mut self, window: &Measure, now: Nanos) {
        self.phase.take_in(window, now);
        if self.is_of_another_phase() {
            self.doubling.until = self.doubling.until.min(now);
        }
    }

    /// Whether another phase ended it.
    pub(crate) fn is_of_another_phase(&self) -> bool {
        self.phase.is_over()
    }

    /// Remaining time.
    pub(crate) fn left(&self, now: Nanos) -> Option<Nanos> {
        self.doubling.left(now)
    }
}

impl Waits {
    /// Ends the waits that belong to another phase than the windows.
    pub(super) fn take_in(&mut self, window: &Measure, now: Nanos) {
        self.of.values_mut().for_each(|wait| wait.take_in(window, now));
    }

    /// Learns from a trial of this duration, with the program's measures at its end.
    pub(super) fn learn(&mut self, judged: &Judged, took: Nanos, phase: Measure, now: Nanos) {
        for key in keys(judged) {
            if judged.gained() {
                self.of.remove(&key);
            } else if judged.is_in_vain() && !key.1.moves_pages() {
                let wait = Wait::after(self.of.get(&key), took, phase, now);
                self.of.insert(key, wait);
            }
        }
    }

    /// Remaining time in which a policy does not try this kind of action again.
    pub(super) fn left(&self, policy: &'static str, kind: Kind, now: Nanos) -> Option<Nanos> {
        self.of.get(&(policy, kind))?.left(now)
    }
}

impl Warnings {
    /// Learns from a trial of this duration. Several processes harmed in one step count once.
    pub(super) fn learn(&mut self, judged: &Judged, took: Nanos, now: Nanos) {
        for key in keys(judged) {
            if judged.gained() {
                self.of.remove(&key);
            } else if judged.verdict == Verdict::Worse {
                let before = self.of.entry(key).or_default();
                if before.is_forgiven(now) {
                    *before = Doubling::default();
                }
                if before.times == 0 || before.began != now {
                    *before = before.after(took, now);
                }
            }
        }
    }

    /// Remaining time in which a policy tries this kind of action on no process.
    pub(super) fn left(&self, policy: &'static str, kind: Kind, now: Nanos) -> Option<Nanos> {
        self.of.get(&(policy, kind))?.left(now)
    }
}

fn keys(judged: &Judged) -> impl Iterator<Item = Key> {
    judged.kinds.iter().map(|kind| (judged.policy, *kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_TRIAL_WINDOWS;
    use alloc::vec;
    use alloc::vec::Vec;

    const KIND: Kind = Kind::Affinity;
    const TOOK: Nanos = Nanos::from_secs(1);

    fn seconds(left: Option<Nanos>) -> u64 {
        left.map_or(0, |left| left.0 / 1_000_000_000)
    }

    fn doing(threads: f64) -> Measure {
        Measure { threads, cpu_percent: 100.0 * threads, ..Measure::default() }
    }

    /// The seconds of wait after each trial. `-`: it gained nothing. `?`: its measures contradict
    /// each other. `+`: it gained. `~`: as many windows of another phase as a verdict needs.
    fn waits(trials: &str) -> Vec<u64> {
        let mut waits = Waits::default();
        let now = Nanos::from_secs(100);
        let mut phase = 4.0;
        let wait = |trial: char| {
            match trial {
                '-' => waits.learn(&Judged::sample(Verdict::Unclear, 0.0), TOOK, doing(phase), now),
                '?' => waits.learn(&Judged::sample(Verdict::Unclear, 0.1), TOOK, doing(phase), now),
                '+' => waits.learn(&Judged::sample(Verdict::Better, 0.1), TOOK, doing(phase), now),
                _ => {
                    phase = 6.0 - phase;
                    (0..MIN_TRIAL_WINDOWS).for_each(|_| waits.take_in(&doing(phase), now));
                }
            }
            seconds(waits.left("test", KIND, now))
        };
        trials.chars().map(wait).collect()
    }

    #[test]
    fn what_wins_nothing_waits_twice_as_long_each_time_until_it_wins() {
        assert_eq!(waits("----"), [1, 2, 4, 8]);
        assert_eq!(waits("--+-"), [1, 2, 0, 1]);
        assert_eq!(
            waits("-?-"),
            [1, 1, 2],
            "a gain that other measures contradict is none, nor in vain"
        );
    }

    #[test]
    fn another_phase_is_tried_at_once_and_waits_longer_if_that_is_in_vain_too() {
        assert_eq!(waits("--~-~-"), [1, 2, 0, 4, 0, 8]);
    }

    #[test]
    fn a_window_of_noise_is_no_other_phase() {
        let (mut waits, now) = (Waits::default(), Nanos::from_secs(100));
        waits.learn(&Judged::sample(Verdict::Unclear, 0.0), TOOK, doing(4.0), now);
        for threads in [9.0, 9.0, 4.0, 9.0, 9.0] {
            waits.take_in(&doing(threads), now);
        }
        assert_eq!(waits.left("test", KIND, now), Some(TOOK));
        assert_eq!(waits.left("another", KIND, now), None);
        assert_eq!(waits.left("test", Kind::Bulk, now), None);
    }

    #[test]
    fn a_round_of_pages_in_vain_is_followed_by_the_next() {
        let after = |kind: Kind| {
            let (mut waits, now) = (Waits::default(), Nanos::from_secs(100));
            let judged = Judged { kinds: vec![kind], ..Judged::sample(Verdict::Unclear, 0.0) };
            waits.learn(&judged, TOOK, doing(4.0), now);
            waits.left("test", kind, now)
        };
        assert_eq!(after(Kind::Pages(crate::plan::Mechanism::Interleaving)), None);
        assert_eq!(after(Kind::Bulk), Some(TOOK));
    }

    #[test]
    fn harm_to_one_process_after_the_other_is_a_warning_for_all() {
        let mut warnings = Warnings::default();
        let mut at = |second: u64, verdict: Verdict| {
            let now = Nanos::from_secs(second);
            warnings.learn(&Judged::sample(verdict, -0.1), TOOK, now);
            seconds(warnings.left("test", KIND, now))
        };
        assert_eq!(at(10, Verdict::Worse), 1);
        assert_eq!(at(10, Verdict::Worse), 1, "harmed in the same step");
        assert_eq!(at(20, Verdict::Worse), 2);
        assert_eq!(at(21, Verdict::Unclear), 1, "says nothing of harm");
        assert_eq!(at(30, Verdict::Worse), 4);
        assert_eq!(at(31, Verdict::Better), 0);
        assert_eq!(at(40, Verdict::Worse), 1);
        assert_eq!(at(90, Verdict::Worse), 2);
        assert_eq!(at(200, Verdict::Worse), 1, "a minute without harm is enough");
    }
}
