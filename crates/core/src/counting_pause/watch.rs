//! Quick checks during a wait: changes of CPU time or traffic end the wait early.
//!
//! In quiet times the controller waits for seconds. A program that begins its parallel part
//! meanwhile would get no help. So the host makes a quick reading, a glance, once in
//! [`QUICK_GLANCE`](crate::limits::QUICK_GLANCE). A glance reads the CPU clock of each process. If
//! a process runs, it also reads the DRAM requests of the whole machine, where counters outside the
//! cores exist.
//!
//! The range of the values in the last [`USUAL`] is usual. A glance outside of this range ends the
//! wait, so activity that repeats within [`USUAL`] does not. The first glance is compared with the
//! observation before it. After several wakes without use, the range covers a longer time.

use super::{IDLE_CPUS, OTHER_TRAFFIC, OTHER_USE, SHORTEST_SHARE};
use crate::model::Model;
use crate::observation::Counter;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How long values of a program stay in the range. Our choice: policies that decide each second see
/// a program that repeats itself faster often enough.
pub(super) const USUAL: Nanos = Nanos::from_secs(2);
/// Wakes without use before the time grows. Our choice: a program that starts, runs one thread and
/// then many causes two wakes.
const FREE_WAKES: u32 = 2;
/// Most doublings of the time: 16 s.
const MAX_DOUBLINGS: u32 = 3;
/// Difference in CPUs between the use in a tenth of a second and in windows, from which on a
/// program counts as bursty. Our choice: two bursts of 10 ms.
pub(super) const BURSTS: f64 = 0.2;

/// A quick reading of each process and of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Glance {
    /// Time on the host's monotonic clock.
    pub at: Nanos,
    /// CPU time of each process since its start, ended threads included.
    pub cpu_time: BTreeMap<Pid, Nanos>,
    /// DRAM requests of the whole machine since counting began. `None` without counters outside the
    /// cores, or if the watch does not ask for them.
    pub requests: Option<Counter>,
}

/// A range of values.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    fn of(value: f64) -> Self {
        Self { least: value, most: value }
    }

    fn with(self, value: f64) -> Self {
        Self { least: self.least.min(value), most: self.most.max(value) }
    }

    /// Whether a value lies outside by more than a share of the bound, and by more than `error`.
    fn excludes(self, value: f64, share: f64, error: f64) -> bool {
        value > self.most * (1.0 + share) + error || value < self.least * (1.0 - share) - error
    }
}

/// Values of the last windows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Usual {
    windows: Vec<Window>,
    /// When a change last ended a wait.
    woken_at: Nanos,
    /// Number of wakes without use since the last action.
    in_vain: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Window {
    at: Nanos,
    cpus: BTreeMap<Pid, f64>,
    requests_per_s: Option<f64>,
}

impl Usual {
    /// Adds a window. `acts`: the controller acted at its end.
    pub(crate) fn take_in(&mut self, window: &Model, acts: bool) {
        let memory = self.memory();
        if acts || window.at.since(self.woken_at) > Nanos(2 * memory.0) {
            self.in_vain = 0;
        }
        self.windows.retain(|before| window.at.since(before.at) < memory);
        self.windows.push(Window {
            at: window.at,
            cpus: window.apps.iter().map(|app| (app.pid, app.cpu_percent / 100.0)).collect(),
            requests_per_s: window.traffic.as_ref().map(|traffic| 1e6 * traffic.total_per_us()),
        });
    }

    /// Notes that a change ended a wait.
    pub(crate) fn wake(&mut self, now: Nanos) {
        self.woken_at = now;
        self.in_vain = self.in_vain.saturating_add(1);
    }

    fn memory(&self) -> Nanos {
        Nanos(USUAL.0 << self.in_vain.saturating_sub(FREE_WAKES).min(MAX_DOUBLINGS))
    }

    /// The watch for a wait that begins now. `None` if no window was seen since the last change.
    pub(crate) fn watch(&self) -> Option<Watch> {
        let last = self.windows.last().filter(|last| last.at > self.woken_at)?;
        let range = |value: &dyn Fn(&Window) -> Option<f64>| {
            let mut values = self.windows.iter().filter_map(value);
            let first = Range::of(values.next()?);
            Some(values.fold(first, Range::with))
        };
        let of_process = |pid: &Pid| Some((*pid, range(&|window| window.cpus.get(pid).copied())?));
        Some(Watch {
            cpus: last.cpus.keys().filter_map(of_process).collect(),
            requests_per_s: range(&|window| window.requests_per_s),
            last: None,
            read: BTreeMap::new(),
        })
    }
}

/// Compares glances with what is usual.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    cpus: BTreeMap<Pid, Range>,
    requests_per_s: Option<Range>,
    last: Option<Last>,
    /// CPU time of each process when it was read last.
    read: BTreeMap<Pid, Read>,
}

/// The machine at the last glance.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Last {
    at: Nanos,
    requests: Option<Counter>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Read {
    at: Nanos,
    cpu_time: Nanos,
}

impl Watch {
    /// Sets the first reading, which the last observation contained. The next glance is compared
    /// with it.
    pub fn begin(&mut self, glance: Glance) {
        self.take_in(&glance);
    }

    /// Processes that every glance has to read. The others are idle. A glance may leave them out
    /// while the machine shows no other use of its CPUs ([`Rest`](super::Rest)).
    #[must_use]
    pub fn busy(&self) -> Vec<Pid> {
        let is_busy = |(_, usual): &(&Pid, &Range)| usual.most > IDLE_CPUS;
        self.cpus.iter().filter(is_busy).map(|(pid, _)| *pid).collect()
    }

    fn take_in(&mut self, glance: &Glance) {
        let read = |(pid, time): (&Pid, &Nanos)| (*pid, Read { at: glance.at, cpu_time: *time });
        self.read.extend(glance.cpu_time.iter().map(read));
        self.last = Some(Last { at: glance.at, requests: glance.requests });
    }

    /// Whether a glance has to read requests. Without a running process, requests are those of
    /// other programs.
    #[must_use]
    pub fn wants_requests(&self) -> bool {
        self.requests_per_s.is_some() && self.cpus.values().any(|usual| usual.most > IDLE_CPUS)
    }

    /// Whether a glance shows a change. Without [`Watch::begin`], the first glance only begins the
    /// comparison.
    pub fn is_disturbed_by(&mut self, glance: Glance) -> bool {
        let Some(last) = self.last else {
            self.take_in(&glance);
            return false;
        };
        let elapsed = glance.at.since(last.at);
        // Tolerance for a host that wakes slightly early.
        if elapsed.0 < SHORTEST_SHARE.0 - SHORTEST_SHARE.0 / 10 {
            return false;
        }
        let is_other =
            self.is_other_use(&glance, elapsed) || self.is_other_traffic(last, &glance, elapsed);
        self.take_in(&glance);
        is_other
    }

    /// `elapsed`: time since the last glance. A process that was left out of some glances is taken
    /// to have run as usual until then.
    fn is_other_use(&self, glance: &Glance, elapsed: Nanos) -> bool {
        self.cpus.iter().any(|(pid, usual)| {
            let times = self.read.get(pid).zip(glance.cpu_time.get(pid));
            let Some((before, now)) = times else { return false };
            let left_out = glance.at.since(before.at).since(elapsed);
            let ran = now.since(before.cpu_time).seconds() - usual.most * left_out.seconds();
            let cpus = ran.max(0.0) / elapsed.seconds();
            usual.most.max(cpus) > IDLE_CPUS && usual.excludes(cpus, OTHER_USE, BURSTS)
        })
    }

    fn is_other_traffic(&self, last: Last, glance: &Glance, elapsed: Nanos) -> bool {
        let counted = || Some(glance.requests?.since(last.requests?)?.events / elapsed.seconds());
        self.requests_per_s
            .zip(counted())
            .is_some_and(|(usual, now)| usual.excludes(now, OTHER_TRAFFIC, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::model::{App, Traffic};
    use alloc::vec;

    const PID: Pid = Pid(7);

    /// Whether each glance ends the wait. `windows` are (ms, CPUs in use, requests/µs). `glances`
    /// follow at intervals of 100 ms and are (CPUs in use, requests/µs).
    fn disturbing(windows: &[(u64, f64, f64)], glances: &[(f64, f64)]) -> Vec<bool> {
        let mut usual = Usual::default();
        for &(ms, cpus, per_us) in windows {
            let mut window = Model::empty(1);
            window.at = Nanos::from_millis(ms);
            window.apps = vec![App::new(PID, 0..0)];
            window.apps[0].cpu_percent = 100.0 * cpus;
            window.traffic = Some(Traffic::new(Matrix::filled(1, per_us)));
            usual.take_in(&window, false);
        }
        let mut watch = usual.watch().expect("windows");
        let (mut ran, mut requested) = (0.0, 0.0);
        let mut at = Nanos::from_secs(9);
        let mut glance = |cpus: f64, per_us: f64| {
            (ran, requested) = (ran + 0.1 * cpus, requested + 1e5 * per_us);
            at += Nanos::from_millis(100);
            let cpu_time = [(PID, Nanos((1e9 * ran) as u64))].into();
            let requests = Some(Counter::exact(requested as u64));
            watch.is_disturbed_by(Glance { at, cpu_time, requests })
        };
        assert!(!glance(0.0, 0.0), "the first is compared with nothing");
        glances.iter().map(|(cpus, per_us)| glance(*cpus, *per_us)).collect()
    }

    #[test]
    fn a_parallel_phase_after_a_serial_one_ends_a_wait() {
        let serial = [(1000, 1.0, 2.0), (2000, 1.0, 2.0)];
        assert_eq!(disturbing(&serial, &[(1.0, 2.0), (8.0, 2.0)]), [false, true]);
        assert_eq!(disturbing(&serial, &[(1.2, 2.0), (0.8, 2.0)]), [false, false], "bursts");
        assert_eq!(disturbing(&serial, &[(0.1, 2.0)]), [true], "it waits");
    }

    #[test]
    fn other_traffic_ends_a_wait() {
        let steady = [(1000, 8.0, 10.0)];
        assert_eq!(disturbing(&steady, &[(8.0, 14.0), (8.0, 16.0)]), [false, true]);
        assert_eq!(disturbing(&steady, &[(8.0, 4.0)]), [true]);
    }

    #[test]
    fn the_requests_of_others_do_not_concern_processes_that_do_not_run() {
        let wants = |cpus: f64, requests: Option<f64>| {
            let range = |value| Range::of(value);
            let cpus = [(PID, range(cpus))].into();
            let requests_per_s = requests.map(range);
            Watch { cpus, requests_per_s, last: None, read: BTreeMap::new() }.wants_requests()
        };
        assert!(wants(1.0, Some(2e6)));
        assert!(!wants(0.01, Some(2e6)), "it sleeps");
        assert!(!wants(1.0, None), "nothing counts them");
    }

    #[test]
    fn the_first_glance_is_compared_with_what_the_look_read() {
        let mut usual = Usual::default();
        let mut window = Model::empty(1);
        window.at = Nanos::from_secs(1);
        window.apps = vec![App::new(PID, 0..0)];
        window.apps[0].cpu_percent = 100.0;
        usual.take_in(&window, false);
        let at = |ms, ran| Glance {
            at: Nanos::from_millis(ms),
            cpu_time: [(PID, Nanos::from_millis(ran))].into(),
            requests: None,
        };
        for (ran, expected) in [(1_100, false), (1_800, true)] {
            let mut watch = usual.watch().expect("a window");
            watch.begin(at(1_000, 1_000));
            assert_eq!(watch.is_disturbed_by(at(1_100, ran)), expected, "{ran}");
        }
    }

    #[test]
    fn an_idle_process_is_left_out_of_glances_and_its_start_shows_in_the_next_that_reads_it() {
        const BUSY: Pid = Pid(8);
        let mut usual = Usual::default();
        let mut window = Model::empty(1);
        window.at = Nanos::from_secs(1);
        window.apps = [(PID, 1.0), (BUSY, 100.0)]
            .map(|(pid, cpu_percent)| {
                let mut app = App::new(pid, 0..0);
                app.cpu_percent = cpu_percent;
                app
            })
            .to_vec();
        usual.take_in(&window, false);
        // Readings of the idle process, each after 20 glances of the busy one. It uses a hundredth
        // of a CPU as usual, and `ran` ms more.
        for (ran, expected) in [(0, false), (15, false), (90, true)] {
            let mut watch = usual.watch().expect("a window");
            assert_eq!(watch.busy(), [BUSY]);
            let at = |tenths: u64, idle_ms: Option<u64>| Glance {
                at: Nanos::from_millis(1_000 + 100 * tenths),
                cpu_time: [(BUSY, Some(1_000 + 100 * tenths)), (PID, idle_ms)]
                    .into_iter()
                    .filter_map(|(pid, ms)| Some((pid, Nanos::from_millis(ms?))))
                    .collect(),
                requests: None,
            };
            watch.begin(at(0, Some(500)));
            for tenths in 1..20 {
                assert!(!watch.is_disturbed_by(at(tenths, None)));
            }
            assert_eq!(watch.is_disturbed_by(at(20, Some(520 + ran))), expected, "{ran}");
        }
    }

    #[test]
    fn what_it_did_a_moment_ago_is_usual() {
        let both = [(1000, 1.0, 2.0), (2000, 8.0, 2.0), (2500, 1.0, 2.0)];
        assert_eq!(disturbing(&both, &[(8.0, 2.0)]), [false]);
        let long_ago = [(1000, 8.0, 2.0), (3000, 1.0, 2.0)];
        assert_eq!(disturbing(&long_ago, &[(8.0, 2.0)]), [true]);
    }
}
