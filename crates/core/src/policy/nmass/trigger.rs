//! Decides when N-MASS runs again: at most once an epoch, and only if a process started, ended,
//! changed its home or changed its cache pressure.

use super::penalty::relative_change;
use crate::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// The values of a process in one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProcessEpoch {
    /// Cache pressure, MPKI.
    pub(super) mpki: f64,
    /// Home node.
    pub(super) home: usize,
    /// Cache domain on which the process ran.
    pub(super) domain: usize,
}

/// Why a run is due.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Due {
    /// The process was no candidate in the previous epoch.
    Started(Pid),
    /// The process ended or is no candidate any more.
    Ended(Pid),
    /// The process's home is another node than in the previous epoch.
    HomeChanged(Pid),
    /// The process's MPKI changed by this share of the previous epoch's.
    PressureChanged(Pid, f64),
    /// The process does not run in the domain that the last run gave it. Inferred: Linux moves
    /// threads that are not pinned, and moves may be refused.
    Displaced(Pid),
}

/// The previous epoch and the last run.
#[derive(Debug, Clone, Default)]
pub(super) struct Trigger {
    previous: BTreeMap<Pid, ProcessEpoch>,
    /// The domain that the last run gave to each process.
    expected: BTreeMap<Pid, usize>,
    last_epoch: Option<Nanos>,
}

impl Trigger {
    /// Whether an epoch is over. A wake-up may come up to a tenth early; the first epoch is over at
    /// once.
    #[must_use]
    pub(super) fn epoch_is_over(&self, now: Nanos, epoch: Nanos) -> bool {
        self.last_epoch.is_none_or(|last| now.since(last).0 >= epoch.0 - epoch.0 / 10)
    }

    /// Ends an epoch with the values of its candidates. Returns why a run is due, if one is.
    /// `threshold`: relative change of MPKI.
    pub(super) fn end_epoch(
        &mut self,
        now: Nanos,
        current: BTreeMap<Pid, ProcessEpoch>,
        threshold: f64,
    ) -> Option<Due> {
        self.expected.retain(|pid, _| current.contains_key(pid));
        let is_elsewhere = |(pid, now): &(&Pid, &ProcessEpoch)| {
            self.expected.get(*pid).is_some_and(|&domain| domain != now.domain)
        };
        let displaced = current.iter().find(is_elsewhere).map(|(&pid, _)| Due::Displaced(pid));
        let due = due(&self.previous, &current, threshold).or(displaced);
        self.previous = current;
        self.last_epoch = Some(now);
        due
    }

    /// Renames the home and the domains of a process that moved to other nodes with its memory.
    /// This change needs no new run.
    pub(super) fn relabel(
        &mut self,
        pid: Pid,
        home: impl Fn(usize) -> usize,
        domain: impl Fn(usize) -> usize,
    ) {
        if let Some(previous) = self.previous.get_mut(&pid) {
            previous.home = home(previous.home);
            previous.domain = domain(previous.domain);
        }
        if let Some(expected) = self.expected.get_mut(&pid) {
            *expected = domain(*expected);
        }
    }

    /// Sets the cache domain that a run gave to a process.
    pub(super) fn set_expected(&mut self, pid: Pid, domain: usize) {
        self.expected.insert(pid, domain);
    }
}

fn due(
    previous: &BTreeMap<Pid, ProcessEpoch>,
    current: &BTreeMap<Pid, ProcessEpoch>,
    threshold: f64,
) -> Option<Due> {
    let ended = previous.keys().find(|pid| !current.contains_key(pid)).map(|&pid| Due::Ended(pid));
    let changed = |(&pid, now): (&Pid, &ProcessEpoch)| {
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

    fn epoch(processes: &[(u32, f64, usize)]) -> BTreeMap<Pid, ProcessEpoch> {
        processes
            .iter()
            .map(|&(pid, mpki, home)| (Pid(pid), ProcessEpoch { mpki, home, domain: 0 }))
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
        trigger.set_expected(Pid(1), 0);
        assert_eq!(trigger.end_epoch(Nanos(1), epoch(&[(1, 10.0, 0)]), 0.20), None);
        trigger.set_expected(Pid(1), 3);
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
            BTreeMap::from([(Pid(1), ProcessEpoch { mpki: 5.0, home, domain })])
        };
        let after = |relabelled: bool| {
            let mut trigger = Trigger::default();
            trigger.end_epoch(Nanos::from_secs(1), at(0, 0), 0.2);
            trigger.set_expected(Pid(1), 0);
            if relabelled {
                trigger.relabel(Pid(1), |home| home + 1, |domain| domain + 2);
            }
            trigger.end_epoch(Nanos::from_secs(2), at(1, 2), 0.2)
        };
        assert_eq!(after(false), Some(Due::HomeChanged(Pid(1))));
        assert_eq!(after(true), None);
    }
}
