//! Belief in predictions of the cost model: the measured gain of past trials over their predicted
//! gain, by process and mechanism.
//!
//! A mechanism whose gains come as predicted keeps a belief near 1. The belief in another falls
//! until its predicted gains are below its cost. Old trials fade, so that no mechanism is given up
//! for good.

use crate::plan::Kind;
use crate::trial::{Change, Judged, Verdict};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// Time after which a trial counts half (our choice). Phases last seconds to minutes.
const HALF_LIFE: Nanos = Nanos::from_secs(60);
/// Prior experience: a predicted gain of this size that came true (our choice). One trial without
/// gain, of a predicted tenth, then halves the belief.
pub(crate) const PRIOR: f64 = 0.1;
/// Upper limit of belief, for gains above the prediction (our choice).
const MOST: f64 = 1.25;

/// Experience with the predictions of all policies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Belief {
    of_process: BTreeMap<(Pid, &'static str, Kind), Record>,
    of_all: BTreeMap<(&'static str, Kind), Record>,
}

/// Sums of predicted and measured changes of speed, faded to a time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Record {
    predicted: f64,
    realised: f64,
    at: Nanos,
}

impl Record {
    fn at(self, now: Nanos) -> Self {
        let faded = libm::exp2(-(now.since(self.at).seconds() / HALF_LIFE.seconds()));
        Self { predicted: self.predicted * faded, realised: self.realised * faded, at: now }
    }

    fn add(&mut self, predicted: f64, realised: f64, now: Nanos) {
        *self = self.at(now);
        self.predicted += predicted;
        self.realised += realised;
    }

    /// Measured over predicted gain. `before` is the belief without this experience.
    fn factor(self, before: f64, now: Nanos) -> f64 {
        let Self { predicted, realised, .. } = self.at(now);
        ((PRIOR * before + realised) / (PRIOR + predicted)).clamp(0.0, MOST)
    }
}

/// Gain that a trial shows: the mean of the measured and the expected change, each weighted by its
/// precision. A trial with much noise thus gives the expected change and leaves the belief as it
/// is.
fn realised(measured: Change, expected: f64, error: f64) -> f64 {
    measured.with(Change { change: expected, noise: error }).change
}

impl Belief {
    /// Learns from a trial that ended. A trial without a prediction or a comparison is left out.
    pub fn learn(&mut self, judged: &Judged, now: Nanos) {
        let compared = judged.won().filter(|_| judged.verdict != Verdict::PhaseChange);
        let Some((predicted, speed)) = judged.predicted.zip(compared) else { return };
        let predicted = predicted.max(0.0);
        for kind in &judged.kinds {
            let expected = predicted * self.factor(judged.pid, judged.policy, *kind, now);
            let realised = realised(speed, expected, predicted.max(PRIOR));
            let own = self.of_process.entry((judged.pid, judged.policy, *kind)).or_default();
            own.add(predicted, realised, now);
            let all = self.of_all.entry((judged.policy, *kind)).or_default();
            all.add(predicted, realised, now);
        }
    }

    /// The factor for a predicted gain, 0 to 1.25; 1 before any trial.
    #[must_use]
    pub fn factor(&self, pid: Pid, policy: &'static str, kind: Kind, now: Nanos) -> f64 {
        let of = |record: Option<&Record>, before| {
            record.map_or(before, |record| record.factor(before, now))
        };
        let all = of(self.of_all.get(&(policy, kind)), 1.0);
        of(self.of_process.get(&(pid, policy, kind)), all)
    }

    /// Forgets processes that are gone.
    pub(crate) fn forget_all_but(&mut self, is_known: impl Fn(Pid) -> bool) {
        self.of_process.retain(|(pid, ..), _| is_known(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Comparison;
    use alloc::vec;

    const INTERLEAVED: Kind = Kind::Pages(crate::plan::Mechanism::Interleaving);

    fn judged(pid: u32, predicted: f64, change: f64) -> Judged {
        let comparison = Comparison {
            instructions: Some(Change { change, noise: 0.01 }),
            ..Comparison::between(&[], &[])
        };
        Judged {
            pid: Pid(pid),
            policy: "carrefour",
            plans: vec![1],
            kinds: vec![INTERLEAVED],
            verdict: Verdict::Unclear,
            comparison,
            predicted: Some(predicted),
        }
    }

    fn factor(belief: &Belief, pid: u32, at: u64) -> f64 {
        belief.factor(Pid(pid), "carrefour", INTERLEAVED, Nanos::from_secs(at))
    }

    #[test]
    fn kept_promises_are_believed_and_broken_ones_are_not() {
        let mut belief = Belief::default();
        assert_eq!(factor(&belief, 1, 0), 1.0);
        belief.learn(&judged(1, 0.3, 0.3), Nanos(0));
        assert!((factor(&belief, 1, 0) - 1.0).abs() < 1e-9);
        let mut belief = Belief::default();
        belief.learn(&judged(1, 0.3, -0.2), Nanos(0));
        assert_eq!(factor(&belief, 1, 0), 0.0, "it made things worse");
        let other = factor(&belief, 2, 0);
        assert!(other == 0.0, "nothing else is known of the mechanism: {other}");
    }

    #[test]
    fn experience_with_the_process_itself_counts_more_than_that_with_others() {
        let mut belief = Belief::default();
        belief.learn(&judged(1, 0.3, 0.0), Nanos(0));
        belief.learn(&judged(2, 0.3, 0.3), Nanos(0));
        assert!(factor(&belief, 1, 0) < factor(&belief, 3, 0));
        assert!(factor(&belief, 3, 0) < factor(&belief, 2, 0));
    }

    #[test]
    fn experience_fades() {
        let mut belief = Belief::default();
        belief.learn(&judged(1, 0.3, 0.0), Nanos(0));
        let factors = [0, 60, 600].map(|at| factor(&belief, 1, at));
        assert!(factors[0] < factors[1] && factors[1] < factors[2], "{factors:?}");
        assert!(factors[2] > 0.95);
    }

    #[test]
    fn a_trial_that_cannot_tell_leaves_belief_as_it_was_and_an_exact_one_does_not() {
        let after = |change: f64, noise: f64| {
            let mut belief = Belief::default();
            let mut judged = judged(1, 0.3, change);
            judged.comparison.instructions = Some(Change { change, noise });
            belief.learn(&judged, Nanos(0));
            factor(&belief, 1, 0)
        };
        assert!(after(0.0, 3.0) > 0.95);
        assert!(after(0.77, 1.5) >= 1.0, "it rose by more than was promised, if anything");
        assert!(after(0.0, 0.01) < 0.1);
        assert!(after(0.0, 0.3) > after(0.0, 0.1));
    }
}
