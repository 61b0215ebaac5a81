//! Waits after promises that came to nothing, by process.
//!
//! Moves of pages go on from round to round. A trial may exclude the gain that a round promised, or
//! find nothing where less than 1 % was promised, which none can tell. Then its process waits
//! before the next promise that is no larger. All policies and mechanisms share the wait, and it
//! doubles each time. Larger promises do not wait. A trial that leaves the promised gain possible
//! changes nothing: gains of rounds add up. A gain clears the wait. Another phase of the program
//! ends it, but the next one is longer still. What came of a promise of a tenth or more changes the
//! belief instead.

use super::TRIAL;
use crate::belief::PRIOR;
use crate::trial::{Change, Judged, LEAST_NOISE, Measure, Wait};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// The waits of all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct VainPromises {
    of: BTreeMap<Pid, Vain>,
}

/// The wait of a process.
#[derive(Debug, Clone, PartialEq)]
struct Vain {
    wait: Wait,
    /// The largest promise of a row in one phase that came to nothing.
    promise: f64,
}

/// The predicted gain of a trial, if it came to nothing. Then the trial found none and excludes it,
/// or no trial can tell so little. Larger predictions than [`PRIOR`] are left to the belief, which
/// learns from them at once.
fn vain_promise(judged: &Judged) -> Option<f64> {
    let won = judged.won().unwrap_or(Change { change: 0.0, noise: LEAST_NOISE });
    let is_vain = |predicted: &f64| {
        let is_possible = *predicted >= LEAST_NOISE && *predicted <= won.change + won.noise;
        judged.is_in_vain() && won.change <= won.noise && *predicted < PRIOR && !is_possible
    };
    judged.predicted.filter(is_vain)
}

impl VainPromises {
    /// Learns from a trial that ended now. `phase` = what the process does in its present phase.
    pub(super) fn learn(&mut self, judged: &Judged, phase: Measure, now: Nanos) {
        if judged.gained() {
            self.of.remove(&judged.pid);
        } else if let Some(promise) = vain_promise(judged) {
            let before = self.of.get(&judged.pid);
            let wait = Wait::after(before.map(|vain| &vain.wait), TRIAL, phase, now);
            let same_phase = before.filter(|vain| !vain.wait.is_of_another_phase());
            let promise = same_phase.map_or(LEAST_NOISE, |vain| vain.promise).max(promise);
            self.of.insert(judged.pid, Vain { wait, promise });
        }
    }

    /// Ends the wait of a process if its windows belong to another phase.
    pub(super) fn take_in(&mut self, pid: Pid, window: &Measure, now: Nanos) {
        self.of.entry(pid).and_modify(|vain| vain.wait.take_in(window, now));
    }

    /// Remaining wait of a process for a promise of this relative change of speed.
    pub(super) fn left(&self, pid: Pid, promise: f64, now: Nanos) -> Option<Nanos> {
        self.of.get(&pid).filter(|vain| promise <= vain.promise)?.wait.left(now)
    }

    /// Forgets processes that are gone.
    pub(super) fn forget_all_but(&mut self, is_known: impl Fn(Pid) -> bool) {
        self.of.retain(|pid, _| is_known(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_TRIAL_WINDOWS;
    use crate::plan::{Kind, Mechanism};
    use crate::trial::{Comparison, Verdict};
    use alloc::vec;
    use alloc::vec::Vec;

    /// A trial of moved pages with an unclear verdict, unless it found a clear gain.
    fn judged(predicted: Option<f64>, change: f64, noise: f64) -> Judged {
        let verdict = if change > noise { Verdict::Better } else { Verdict::Unclear };
        let kinds = vec![Kind::Pages(Mechanism::Interleaving)];
        let change = Some(Change { change, noise });
        let nothing = Comparison::between(&[], &[]);
        let comparison = Comparison { instructions: change, combined: change, ..nothing };
        Judged { kinds, predicted, comparison, ..Judged::sample(verdict, 0.0) }
    }

    /// Wait for a promise of 0.5 % after each trial, in times of a trial. `-` = a trial with 1 % of
    /// noise promised 0.1 % and won nothing, `?` = nobody knows what it promised, `+` = it won. `!`
    /// = a window of another phase, `~` = as many as a verdict needs.
    fn waits(trials: &str) -> Vec<u64> {
        let (mut promises, now) = (VainPromises::default(), Nanos::from_secs(100));
        let doing = |cpu_percent| Measure { threads: 4.0, cpu_percent, ..Measure::default() };
        let wait = |trial: char| {
            let mut learn = |judged: Judged| promises.learn(&judged, doing(400.0), now);
            match trial {
                '-' => learn(judged(Some(0.001), 0.0, 0.01)),
                '?' => learn(judged(None, 0.0, 0.01)),
                '+' => learn(judged(Some(0.001), 0.02, 0.01)),
                '!' => promises.take_in(Pid(1), &doing(100.0), now),
                _ => {
                    let mut other = || promises.take_in(Pid(1), &doing(100.0), now);
                    (0..MIN_TRIAL_WINDOWS).for_each(|_| other());
                }
            }
            assert_eq!(promises.left(Pid(2), 0.005, now), None, "another process");
            promises.left(Pid(1), 0.005, now).map_or(0, |left| left.0 / TRIAL.0)
        };
        trials.chars().map(wait).collect()
    }

    #[test]
    fn vain_promises_wait_twice_as_long_each_time_until_one_wins() {
        assert_eq!(waits("---"), [1, 2, 4]);
        assert_eq!(waits("--+-"), [1, 2, 0, 1]);
        assert_eq!(waits("?-"), [0, 1]);
    }

    #[test]
    fn another_phase_ends_the_wait_and_the_next_is_longer() {
        assert_eq!(waits("--~-"), [1, 2, 0, 4]);
        assert_eq!(waits("-!"), [1, 1], "a single window may be noise");
    }

    /// Whether promises of this size wait after such a trial.
    fn waits_for(promise: f64, predicted: f64, change: f64, noise: f64) -> bool {
        let (mut promises, now) = (VainPromises::default(), Nanos::from_secs(100));
        promises.learn(&judged(Some(predicted), change, noise), Measure::default(), now);
        promises.left(Pid(1), promise, now).is_some()
    }

    #[test]
    fn only_promises_up_to_the_vain_one_wait() {
        assert!(waits_for(0.005, 0.005, 0.0, 0.15), "no trial can tell so little");
        assert!(waits_for(0.01, 0.005, 0.0, 0.15));
        assert!(!waits_for(0.011, 0.005, 0.0, 0.15));
    }

    #[test]
    fn a_promise_is_vain_if_the_measured_change_excludes_it_and_not_if_it_allows_it() {
        assert!(waits_for(0.08, 0.08, 0.01, 0.02), "at most 3 % came of 8 %");
        assert!(!waits_for(0.20, 0.20, 0.01, 0.02), "the belief learns from it");
        assert!(!waits_for(0.05, 0.05, 0.03, 0.04), "up to 7 % may have come of 5 %");
        assert!(!waits_for(0.03, 0.03, 0.0, 0.15), "noise may hide it");
        assert!(!waits_for(0.05, 0.05, 0.04, 0.03), "it won");
    }

    #[test]
    fn another_phase_forgets_how_much_was_promised() {
        let (mut promises, now) = (VainPromises::default(), Nanos::from_secs(100));
        let doing = |cpu_percent| Measure { threads: 4.0, cpu_percent, ..Measure::default() };
        promises.learn(&judged(Some(0.08), 0.0, 0.01), doing(400.0), now);
        (0..MIN_TRIAL_WINDOWS).for_each(|_| promises.take_in(Pid(1), &doing(100.0), now));
        promises.learn(&judged(Some(0.005), 0.0, 0.01), doing(100.0), now);
        let waits = |promise| promises.left(Pid(1), promise, now).is_some();
        assert!(waits(0.005) && !waits(0.08));
    }
}
