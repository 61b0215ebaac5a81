//! Use of the machine's CPUs by all but the processes that a quick glance reads.
//!
//! One reading of the machine's idle time shows whether any other process may have begun to run.
//! So the clocks of thousands of idle processes are read only then. Where no CPU is idle, and where
//! the kernel does not count idle time, any process may have begun.
//!
//! The sum does not show a swap: one process begins while another one stops. Where the others use
//! as much as a start, their clocks are read at a bounded cost.

use super::SHORTEST_SHARE;
use super::watch::{BURSTS, USUAL};
use crate::counting_pause::Glance;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Rise of the use in CPUs that may be the start of a process (our choice). The watch reports a
/// process from [`BURSTS`] on, and other processes may use less meanwhile.
const RISE: f64 = 0.75 * BURSTS;

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rest {
    last: Option<Reading>,
    /// The use in CPUs over the last [`USUAL`], with times.
    usual: Vec<(Nanos, f64)>,
    /// Whether a process may have begun to run since all were read.
    may_hide: bool,
    /// Whether the others use enough CPUs for a start that the end of another process hides.
    may_swap: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Reading {
    at: Nanos,
    idle: Nanos,
    cpu_time: BTreeMap<Pid, Nanos>,
}

impl Rest {
    /// Whether a process that is not in `glance` may have begun to run since [`Rest::all_read`].
    /// `idle`: time for which the machine's CPUs were idle, added up, since boot.
    pub fn may_hide_a_start(&mut self, glance: &Glance, idle: Option<Nanos>, cpus: usize) -> bool {
        let Some(idle) = idle.filter(|idle| *idle > Nanos(0)) else {
            (self.last, self.may_swap) = (None, false);
            return true;
        };
        let now = Reading { at: glance.at, idle, cpu_time: glance.cpu_time.clone() };
        let elapsed = self.last.as_ref().map(|last| now.at.since(last.at));
        if elapsed.is_some_and(|elapsed| 2 * elapsed.0 < SHORTEST_SHARE.0) {
            return self.may_hide;
        }
        let last = self.last.replace(now);
        let shares = last.zip(self.last.as_ref()).map(|(last, now)| shares(&last, now, cpus));
        let Some((idle, rest)) = shares else {
            self.may_hide = true;
            return true;
        };
        self.usual.retain(|(at, _)| glance.at.since(*at) < USUAL);
        let most = self.usual.iter().map(|(_, rest)| *rest).reduce(f64::max);
        let has_risen = most.is_none_or(|most| rest > most + RISE);
        self.usual.push((glance.at, rest));
        self.may_hide |= has_risen || idle < RISE;
        self.may_swap = rest > RISE;
        self.may_hide
    }

    /// Whether a process may have begun to run while another one that was not read either stopped,
    /// by the last reading that [`Rest::may_hide_a_start`] took in.
    #[must_use]
    pub fn may_hide_a_swap(&self) -> bool {
        self.may_swap
    }

    /// Notes that all processes are read.
    pub fn all_read(&mut self) {
        self.may_hide = false;
    }
}

/// Idle CPUs, and CPUs that were used by processes other than those of both readings.
fn shares(last: &Reading, now: &Reading, cpus: usize) -> (f64, f64) {
    let elapsed = now.at.since(last.at).seconds();
    let idle = now.idle.since(last.idle).seconds() / elapsed;
    let ran = |(pid, now): (&Pid, &Nanos)| {
        let before = last.cpu_time.get(pid)?;
        Some(now.since(*before).seconds())
    };
    let of_glance: f64 = now.cpu_time.iter().filter_map(ran).sum();
    (idle, cpus as f64 - idle - of_glance / elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Pid = Pid(7);

    /// Glances at a machine of 8 CPUs, 100 ms apart. `uses`: CPUs that the process of the glance
    /// uses, and CPUs that all others use. Returns whether each may hide a start. All processes are
    /// then read.
    fn hiding(uses: &[(f64, f64)]) -> Vec<bool> {
        let mut rest = Rest::default();
        let (mut ran, mut idle) = (0.0, 5.0);
        let mut look = |(place, (own, others)): (usize, &(f64, f64))| {
            (ran, idle) = (ran + 0.1 * own, idle + 0.1 * (8.0 - own - others));
            let cpu_time = [(BUSY, Nanos((1e9 * ran) as u64))].into();
            let at = Nanos::from_millis(100 * place as u64);
            let glance = Glance { at, cpu_time, requests: None };
            let hides = rest.may_hide_a_start(&glance, Some(Nanos((1e9 * idle) as u64)), 8);
            rest.all_read();
            hides
        };
        uses.iter().enumerate().map(&mut look).collect()
    }

    #[test]
    fn a_process_that_begins_to_run_shows_in_the_use_of_the_machine() {
        let quiet = [(1.0, 0.1); 4];
        let begun = [(1.0, 0.1), (1.0, 1.1), (1.0, 1.1)];
        let hides = hiding(&[&quiet[..], &begun[..]].concat());
        assert_eq!(hides, [true, true, false, false, false, true, false]);
    }

    #[test]
    fn what_the_glance_reads_and_what_others_did_a_moment_ago_hide_nothing() {
        let both = [(0.0, 2.0), (0.0, 2.0), (5.0, 2.0), (5.0, 0.5), (0.0, 2.0), (0.0, 2.1)];
        assert_eq!(hiding(&both)[2..], [false; 4]);
    }

    /// Two processes that no glance reads use one CPU between them.
    #[test]
    fn a_start_while_another_process_stops_is_no_rise_and_may_be_hidden() {
        let swaps = |others: f64| {
            let mut rest = Rest::default();
            let mut look = |tenths: u64| {
                let at = Nanos::from_millis(100 * tenths);
                let idle = Nanos((1e8 * (8.0 - others) * tenths as f64) as u64);
                let glance = Glance { at, ..Glance::default() };
                let hides = rest.may_hide_a_start(&glance, Some(idle), 8);
                rest.all_read();
                (hides, rest.may_hide_a_swap())
            };
            [1, 2, 3].map(&mut look)[2]
        };
        assert_eq!(swaps(1.0), (false, true));
        assert_eq!(swaps(0.1), (false, false), "less than any start that is told");
    }

    #[test]
    fn on_a_machine_without_an_idle_cpu_any_process_may_have_begun() {
        assert_eq!(hiding(&[(6.0, 2.0); 4]), [true; 4]);
        let mut rest = Rest::default();
        let glance = |ms| Glance { at: Nanos::from_millis(ms), ..Glance::default() };
        for idle in [None, Some(Nanos(0))] {
            assert!([1, 101, 201].iter().all(|ms| rest.may_hide_a_start(&glance(*ms), idle, 8)));
        }
    }

    #[test]
    fn a_start_stays_hidden_until_all_are_read() {
        let mut rest = Rest::default();
        let look = |rest: &mut Rest, ms: u64, idle_ms: u64| {
            let glance = Glance { at: Nanos::from_millis(ms), ..Glance::default() };
            rest.may_hide_a_start(&glance, Some(Nanos::from_millis(idle_ms)), 2)
        };
        assert!(look(&mut rest, 100, 1000) && look(&mut rest, 200, 1200));
        rest.all_read();
        assert!(!look(&mut rest, 300, 1400));
        assert!(look(&mut rest, 400, 1500), "a CPU is busy");
        assert!(look(&mut rest, 500, 1600) && look(&mut rest, 510, 1610), "still not read");
        rest.all_read();
        assert!(!look(&mut rest, 600, 1700), "and goes on");
    }
}
