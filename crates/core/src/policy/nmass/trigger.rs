//! Decides when N-MASS runs again: at most once an epoch, and only if a process started, ended,
//! changed its home or changed its cache pressure.

use super::penalty::relative_change;
use crate::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// State kept for a process from one epoch to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Remembered {
    /// Cache pressure in the epoch.
    pub(super) mpki: f64,
    /// Home node.
    pub(super) home: usize,
    /// Cache domain where it ran.
    pub(super) domain: usize,
}

/// Why a run is due.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Due {
    /// The process was not there in the last epoch.
    Started(Pid),
    /// The process is gone.
    Ended(Pid),
    /// Most of its memory is on another node now.
    HomeChanged(Pid),
    /// Its MPKI changed by this share relative to the epoch before.
    PressureChanged(Pid, f64),
    /// It does not run where the last run put it [inferred: Linux moves what is not pinned, and
    /// moves may be refused].
    Displaced(Pid),
}

/// The previous epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct Trigger {
    previous: BTreeMap<Pid, Remembered>,
    /// The domain that the last run gave to each process.
    expected: BTreeMap<Pid, usize>,
    last_epoch: Option<Nanos>,
}

impl Trigger {
    /// Whether an epoch is over; the first one always is.
    #[must_use]
    pub(super) fn epoch_is_over(&self, now: Nanos, epoch: Nanos) -> bool {
        self.last_epoch.is_none_or(|last| now.since(last).0 >= epoch.0 - epoch.0 / 10)
    }

    /// Ends an epoch: takes its values in and says why a run is due, if one is.
    pub(super) fn end_epoch(
        &mut self,
        now: Nanos,
        current: BTreeMap<Pid, Remembered>,
        threshold: f64,
    ) -> Option<Due> {
        self.expected.retain(|pid, _| current.contains_key(pid));
        let is_elsewhere = |(pid, now): &(&Pid, &Remembered)| {
            self.expected.get(*pid).is_some_and(|&domain| domain != now.domain)
        };
        let displaced = current.iter().find(is_elsewhere).map(|(&pid, _)| Due::Displaced(pid));
        let due = due(&self.previous, &current, threshold).or(displaced);
        self.previous = current;
        self.last_epoch = Some(now);
        due
    }

    /// Notes that a process moved to other nodes with its memory. This change needs no new run.
    pub(super) fn relabel(
        &mut self,
        pid: Pid,
        home: impl Fn(usize) -> usize,
        domain: impl Fn(usize) -> usize,
    ) {
        if let Some(remembered) = self.previous.get_mut(&pid) {
            remembered.home = home(remembered.home);
            remembered.domain = domain(remembered.domain);
        }
        if let Some(expected) = self.expected.get_mut(&pid) {
            *expected = domain(*expected);
        }
    }

    /// Remembers where a run put a process.
    pub(super) fn expect_in(&mut self, pid: Pid, domain: usize) {
        self.expected.insert(pid, domain);
    }
}

fn due(
    previous: &BTreeMap<Pid, Remembered>,
    current: &BTreeMap<Pid, Remembered>,
    threshold: f64,
) -> Option<Due> {
    let ended = previous.keys().find(|pid| !current.contains_key(pid)).map(|&pid| Due::Ended(pid));
    let changed = |(&pid, now): (&Pid, &Remembered)| {
        let Some(before) = previous.get(&pid) else { return Some(Due::Started(pid)) };
        if before.home != now.home {
            return Some(Due::HomeChanged(pid));
        }
        let change = relative_change(before.mpki, now.mpki);
        (change > threshold).then_some(Due::PressureChanged(pid, change))
    };
    current.iter().find_map(changed).or(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(processes: &[(u32, f64, usize)]) -> BTreeMap<Pid, Remembered> {
        processes
            .iter()
            .map(|&(pid, mpki, home)| (Pid(pid), Remembered { mpki, home, domain: 0 }))
            .collect()
    }

    fn check(previous: &[(u32, f64, usize)], current: &[(u32, f64, usize)], expected: Option<Due>) {
        let mut trigger = Trigger::default();
        trigger.end_epoch(Nanos(0), epoch(previous), 0.20);
        assert_eq!(trigger.end_epoch(Nanos::from_secs(1), epoch(current), 0.20), expected);
    }

    #[test]
    fn twenty_percent_is_not_yet_a_change() {
        check(&[(1, 10.0, 0)], &[(1, 12.0, 0)], None);
        check(&[(1, 10.0, 0)], &[(1, 8.0, 0)], None);
        check(&[(1, 16.0, 0)], &[(1, 20.0, 0)], Some(Due::PressureChanged(Pid(1), 0.25)));
        check(&[(1, 0.0, 0)], &[(1, 0.0, 0)], None);
        check(&[(1, 0.0, 0)], &[(1, 1.0, 0)], Some(Due::PressureChanged(Pid(1), f64::INFINITY)));
    }

    #[test]
    fn starts_ends_and_new_homes_trigger() {
        check(&[], &[(1, 10.0, 0)], Some(Due::Started(Pid(1))));
        check(&[(1, 10.0, 0)], &[], Some(Due::Ended(Pid(1))));
        check(&[(1, 10.0, 0)], &[(1, 10.0, 1)], Some(Due::HomeChanged(Pid(1))));
    }

    #[test]
    fn a_process_that_runs_elsewhere_triggers() {
        let mut trigger = Trigger::default();
        trigger.end_epoch(Nanos(0), epoch(&[(1, 10.0, 0)]), 0.20);
        trigger.expect_in(Pid(1), 0);
        assert_eq!(trigger.end_epoch(Nanos(1), epoch(&[(1, 10.0, 0)]), 0.20), None);
        trigger.expect_in(Pid(1), 3);
        let due = trigger.end_epoch(Nanos(2), epoch(&[(1, 10.0, 0)]), 0.20);
        assert_eq!(due, Some(Due::Displaced(Pid(1))));
    }

    #[test]
    fn epochs_last_their_time() {
        let mut trigger = Trigger::default();
        let epoch = Nanos::from_secs(1);
        assert!(trigger.epoch_is_over(Nanos(5), epoch));
        trigger.end_epoch(Nanos(5), BTreeMap::new(), 0.2);
        assert!(!trigger.epoch_is_over(Nanos::from_millis(899), epoch));
        assert!(trigger.epoch_is_over(Nanos(900_000_005), epoch));
    }

    #[test]
    fn a_process_that_took_its_memory_along_makes_no_run_due() {
        let at = |home: usize, domain: usize| {
            BTreeMap::from([(Pid(1), Remembered { mpki: 5.0, home, domain })])
        };
        let after = |relabelled: bool| {
            let mut trigger = Trigger::default();
            trigger.end_epoch(Nanos::from_secs(1), at(0, 0), 0.2);
            trigger.expect_in(Pid(1), 0);
            if relabelled {
                trigger.relabel(Pid(1), |home| home + 1, |domain| domain + 2);
            }
            trigger.end_epoch(Nanos::from_secs(2), at(1, 2), 0.2)
        };
        assert_eq!(after(false), Some(Due::HomeChanged(Pid(1))));
        assert_eq!(after(true), None);
    }
}
