//! What ends a wait before its time: a change that is cheap to see.
//!
//! Where little goes on the controller waits for seconds. A program that comes out of its serial
//! start meanwhile would not be helped. So the host glances at each process once in
//! [`QUICK_GLANCE`](crate::limits::QUICK_GLANCE): its clock tells the CPU time of all its threads.
//! Where a process runs, units outside the cores also tell the requests of the whole machine. The
//! first glance is compared with what the look before it read. A glance that lies outside of what
//! the last [`USUAL`] showed ends the wait. What a program does over and over within that time is
//! usual. Where waking is of no use again and again, what is usual is remembered for longer.

use super::{IDLE_CPUS, OTHER_TRAFFIC, OTHER_USE, SHORTEST_SHARE};
use crate::model::Model;
use crate::observation::Counter;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How long a program's activity is remembered. Our choice: policies that decide each second look
/// often enough at a program that repeats itself faster.
const USUAL: Nanos = Nanos::from_secs(2);
/// The memory grows from the third useless wake on. Our choice: a program that starts up, works
/// alone and then in parallel wakes twice.
const FREE_WAKES: u32 = 2;
/// The most doublings of the memory: 16 s.
const MAX_DOUBLINGS: u32 = 3;
/// Difference in CPUs between a tenth of a second and the windows that marks a program working in
/// bursts. Our choice: two bursts of 10 ms.
const BURSTS: f64 = 0.2;

/// What is cheap to read of each process and of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Glance {
    /// When, on the host's monotonic clock.
    pub at: Nanos,
    /// CPU time of each process since its start, all its threads together, those that ended too.
    pub cpu_time: BTreeMap<Pid, Nanos>,
    /// DRAM requests of the whole machine since counting began; `None` where no unit outside the
    /// cores counts them, and where the watch asks for none.
    pub requests: Option<Counter>,
}

/// The least and the most of something.
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

/// What the last windows showed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Usual {
    windows: Vec<Window>,
    /// When a change last ended a wait.
    woken_at: Nanos,
    /// How often that was of no use since something was done.
    in_vain: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Window {
    at: Nanos,
    cpus: BTreeMap<Pid, f64>,
    requests_per_s: Option<f64>,
}

impl Usual {
    /// Takes in a window, at the end of which something was done or not.
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

    /// A change ended a wait.
    pub(crate) fn wake(&mut self, now: Nanos) {
        self.woken_at = now;
        self.in_vain = self.in_vain.saturating_add(1);
    }

    fn memory(&self) -> Nanos {
        Nanos(USUAL.0 << self.in_vain.saturating_sub(FREE_WAKES).min(MAX_DOUBLINGS))
    }

    /// What would end a wait that begins now; `None` where nothing was seen since the last change.
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
        })
    }
}

/// Compares glances with what is usual.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    cpus: BTreeMap<Pid, Range>,
    requests_per_s: Option<Range>,
    last: Option<Glance>,
}

impl Watch {
    /// The next glance is compared with this one, which the last look read.
    pub fn begin(&mut self, glance: Glance) {
        self.last = Some(glance);
    }

    /// Whether a glance has to tell requests: those of others do not concern processes that do not
    /// run.
    #[must_use]
    pub fn wants_requests(&self) -> bool {
        self.requests_per_s.is_some() && self.cpus.values().any(|usual| usual.most > IDLE_CPUS)
    }

    /// Whether a glance is a reason to look. Without a beginning the first begins a comparison.
    pub fn is_disturbed_by(&mut self, glance: Glance) -> bool {
        let Some(last) = &self.last else {
            self.last = Some(glance);
            return false;
        };
        let elapsed = glance.at.since(last.at);
        // A host that wakes a little early has passed a tick less.
        if elapsed.0 < SHORTEST_SHARE.0 - SHORTEST_SHARE.0 / 10 {
            return false;
        }
        let is_other = self.is_other_use(last, &glance, elapsed)
            || self.is_other_traffic(last, &glance, elapsed);
        self.last = Some(glance);
        is_other
    }

    fn is_other_use(&self, last: &Glance, glance: &Glance, elapsed: Nanos) -> bool {
        self.cpus.iter().any(|(pid, usual)| {
            let times = last.cpu_time.get(pid).zip(glance.cpu_time.get(pid));
            let Some((before, now)) = times else { return false };
            let cpus = now.since(*before).seconds() / elapsed.seconds();
            usual.most.max(cpus) > IDLE_CPUS && usual.excludes(cpus, OTHER_USE, BURSTS)
        })
    }

    fn is_other_traffic(&self, last: &Glance, glance: &Glance, elapsed: Nanos) -> bool {
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

    /// Windows, each (ms, CPUs in use, requests/µs), then glances 100 ms apart, each (CPUs,
    /// requests/µs); tells which of them disturbs.
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
            Watch { cpus, requests_per_s: requests.map(range), last: None }.wants_requests()
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
    fn what_it_did_a_moment_ago_is_usual() {
        let both = [(1000, 1.0, 2.0), (2000, 8.0, 2.0), (2500, 1.0, 2.0)];
        assert_eq!(disturbing(&both, &[(8.0, 2.0)]), [false]);
        let long_ago = [(1000, 8.0, 2.0), (3000, 1.0, 2.0)];
        assert_eq!(disturbing(&long_ago, &[(8.0, 2.0)]), [true]);
    }
}
