//! Pauses of counting: when they begin, and the changes that end them.
//!
//! Counters slow a program whose threads often sleep ([`price`] has measurements). So after a time
//! without actions and trials, counting stops for as long as this time was, at most
//! [`LONGEST_PAUSE`]. For a program that counting slows much, the quiet time is as short as the
//! policies allow.
//!
//! During a pause, `/proc` and counters outside the cores are read once in
//! [`GLANCE`](crate::limits::GLANCE), because they cost the program nothing. A pause ends when a
//! process or thread begins or ends, or when CPU use changes. It also ends when a busy thread
//! changes its node, or when traffic between nodes changes. On crowded CPUs the kernel moves
//! threads all the time, so their moves do not count. Changes that only the program's own counters
//! show are seen after the pause.

mod price;
mod rest;
mod watch;

pub(crate) use self::price::is_dear;
pub use self::rest::Rest;
pub(crate) use self::watch::Usual;
pub use self::watch::{Glance, Watch};
use crate::limits::{LONGEST_PAUSE, QUIET_BEFORE_PAUSE, WATCH_BETWEEN_PAUSES};
use crate::observation::{Counter, Observation, ProcessObservation, ThreadObservation};
use crate::policy::home::Crowded;
use crate::topology::Topology;
use crate::units::{Nanos, Pid, Tid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Time without actions and trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quiet {
    /// Time of the last action or trial.
    since: Nanos,
    /// Time at which counting began or resumed.
    watched_since: Nanos,
}

impl Quiet {
    /// Notes that an action was done, is on trial, or is not complete.
    pub(crate) fn disturb(&mut self, now: Nanos) {
        *self = Self { since: now, watched_since: now };
    }

    /// Notes that counting resumes.
    pub(crate) fn resume(&mut self, now: Nanos) {
        self.watched_since = now;
    }

    /// Decisions after this time rest on the present stretch of counting.
    pub(crate) fn watched_since(&self) -> Nanos {
        self.watched_since
    }

    /// How long counting may stop now. `dear`: counting slows the program much, and this quiet time
    /// is enough.
    pub(crate) fn pause(&self, now: Nanos, dear: Option<Nanos>) -> Option<Nanos> {
        let quiet = now.since(self.since);
        // A tolerance as for the policies' periods. Otherwise a host that wakes slightly early
        // would count for one more window.
        let enough = |wanted: Nanos, passed: Nanos| {
            let wanted = dear.map_or(wanted, |dear| dear.min(wanted));
            passed.0 >= wanted.0 - wanted.0 / 10
        };
        let may = enough(QUIET_BEFORE_PAUSE, quiet)
            && enough(WATCH_BETWEEN_PAUSES, now.since(self.watched_since));
        may.then_some(quiet.min(LONGEST_PAUSE))
    }
}

/// A pause of counting.
#[derive(Debug, Clone, PartialEq)]
pub struct CountingPause {
    /// Longest duration.
    pub longest: Nanos,
    /// The last readings of `/proc`.
    last: Seen,
    /// CPUs that each process kept busy in the window before.
    cpus: BTreeMap<Pid, f64>,
    /// Traffic in that window by counters outside the cores; `None` without such counters.
    traffic: Option<Vec<f64>>,
    /// Quick checks between two readings.
    pub watch: Option<Watch>,
}

/// Readings that need no counters on the program.
#[derive(Debug, Clone, PartialEq, Default)]
struct Seen {
    at: Nanos,
    processes: BTreeMap<(Pid, Nanos), Threads>,
    /// Requests from node to node, else lines by controller, else bytes by link. Empty if none of
    /// them is counted.
    traffic: Vec<Counter>,
}

/// The threads of a process.
type Threads = BTreeMap<Tid, Ran>;

/// The last CPU of a thread, and its CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ran {
    cpu: usize,
    time: Nanos,
}

impl Ran {
    fn is_busy_since(self, before: Self, elapsed: Nanos) -> bool {
        self.time.since(before.time).seconds() > IDLE_CPUS * elapsed.seconds()
    }
}

impl Seen {
    fn of(observation: &Observation) -> Self {
        let ran = |thread: &ThreadObservation| {
            (thread.tid, Ran { cpu: thread.cpu, time: thread.cpu_time })
        };
        // A thread without CPU time is known by samples only, and a pause has no samples.
        let has_run = |thread: &&ThreadObservation| thread.cpu_time > Nanos(0);
        let threads = |process: &ProcessObservation| {
            let threads: Threads = process.threads.iter().filter(has_run).map(ran).collect();
            ((process.pid, process.started), threads)
        };
        let requests = observation.node_traffic.iter().flat_map(|nodes| nodes.rows().flatten());
        let served = observation.controller_lines.iter().flatten();
        let links = observation.link_bytes.iter().flatten();
        let links = links.filter(|_| {
            observation.node_traffic.is_none() && observation.controller_lines.is_none()
        });
        Self {
            at: observation.at,
            processes: observation
                .processes
                .iter()
                .map(threads)
                .filter(|(_, threads)| !threads.is_empty())
                .collect(),
            traffic: requests.chain(served).chain(links).copied().collect(),
        }
    }

    /// Threads that were busy since `earlier`.
    fn busy_since(&self, earlier: &Self) -> usize {
        let elapsed = self.at.since(earlier.at);
        let pairs = self
            .processes
            .iter()
            .filter_map(|(process, now)| Some((earlier.processes.get(process)?, now)));
        let busy = |(before, now): (&Threads, &Threads)| {
            let is_busy = |(tid, now): &(&Tid, &Ran)| match before.get(*tid) {
                Some(before) => now.is_busy_since(*before, elapsed),
                None => false,
            };
            now.iter().filter(is_busy).count()
        };
        pairs.map(busy).sum()
    }

    /// Rates per second since `earlier`; `None` if a counter is missing. A counter whose running
    /// time does not advance counts the program and is paused.
    fn traffic_since(&self, earlier: &Self) -> Option<Vec<f64>> {
        let seconds = self.at.since(earlier.at).seconds();
        let rate = |(now, before): (&Counter, &Counter)| {
            let delta = now.since(*before)?;
            let stands = now.enabled > Nanos(0) && delta.enabled == Nanos(0);
            (!stands && seconds > 0.0).then_some(delta.events / seconds)
        };
        let rates: Option<Vec<f64>> = self.traffic.iter().zip(&earlier.traffic).map(rate).collect();
        rates.filter(|rates| !rates.is_empty() && self.traffic.len() == earlier.traffic.len())
    }
}

/// Least relative change of CPU use that ends a pause. For a trial the same change is another phase
/// (`PHASE_CHANGE`).
const OTHER_USE: f64 = 0.3;
/// A process that uses fewer CPUs is idle, and changes of its use do not count.
pub const IDLE_CPUS: f64 = 0.1;
/// Least relative change of the whole traffic that ends a pause (`PHASE_CHANGE_DEMAND` of a trial).
/// A program runs up to a fourth faster without counters.
const OTHER_TRAFFIC: f64 = 0.5;
/// Least share of the traffic on other routes that ends a pause (our choice).
const OTHER_WAYS: f64 = 0.3;
/// Least time over which a share of a CPU is measured. Over less time it depends on single ticks of
/// the scheduler.
const SHORTEST_SHARE: Nanos = Nanos::from_millis(100);

impl CountingPause {
    /// A pause that begins after the window between two observations.
    pub(crate) fn new(
        longest: Nanos,
        (before, begins): (&Observation, &Observation),
        cpus: BTreeMap<Pid, f64>,
        watch: Option<Watch>,
    ) -> Self {
        let last = Seen::of(begins);
        let traffic = last.traffic_since(&Seen::of(before));
        Self { longest, last, cpus, traffic, watch }
    }

    /// Whether a change in `/proc` ends the pause. Counters on the program and samples of
    /// `observation` are not used.
    pub fn is_disturbed_by(&mut self, observation: &Observation, topology: &Topology) -> bool {
        let last = core::mem::replace(&mut self.last, Seen::of(observation));
        let elapsed = self.last.at.since(last.at);
        let cpus = topology.usable(&topology.all_cpus()).len();
        let is_crowd = Crowded { threads: self.last.busy_since(&last), cpus }.is_crowd();
        let is_other = |(pid, _): &(Pid, Nanos), before: &Threads, now: &Threads| {
            !before.keys().eq(now.keys())
                || (!is_crowd && is_elsewhere(before, now, elapsed, topology))
                || (elapsed >= SHORTEST_SHARE
                    && self.is_other_use(*pid, used(before, now) / elapsed.seconds(), is_crowd))
        };
        last.processes.len() != self.last.processes.len()
            || last.processes.iter().any(|(process, before)| {
                let now = self.last.processes.get(process);
                now.is_none_or(|now| is_other(process, before, now))
            })
            || (elapsed >= SHORTEST_SHARE && self.is_other_traffic(&last))
    }

    fn is_other_traffic(&self, last: &Seen) -> bool {
        let Some((before, now)) = self.traffic.as_ref().zip(self.last.traffic_since(last)) else {
            return false;
        };
        let (all_before, all_now) = (before.iter().sum::<f64>(), now.iter().sum::<f64>());
        if (all_now - all_before).abs() > OTHER_TRAFFIC * all_before {
            return true;
        }
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let parts = before.iter().zip(&now);
        let other = parts.map(|(a, b)| (share(*a, all_before) - share(*b, all_now)).abs());
        // Traffic that changed its route is missing on one route and added on another, so half of
        // the sum is the change.
        other.sum::<f64>() / 2.0 > OTHER_WAYS
    }

    /// Whether the CPU use of a process changed. On crowded CPUs only a process that begins or
    /// stops to run counts, because the kernel divides the CPUs anew all the time.
    fn is_other_use(&self, pid: Pid, uses: f64, is_crowd: bool) -> bool {
        self.cpus.get(&pid).is_some_and(|cpus| match is_crowd {
            true => (uses > IDLE_CPUS) != (*cpus > IDLE_CPUS),
            false => uses.max(*cpus) > IDLE_CPUS && (uses - cpus).abs() > OTHER_USE * cpus,
        })
    }
}

/// CPU time of threads in seconds.
fn used(before: &Threads, now: &Threads) -> f64 {
    let ran = |(before, now): (&Ran, &Ran)| now.time.since(before.time).seconds();
    before.values().zip(now.values()).map(ran).sum()
}

/// Whether a busy thread is on another node than before.
fn is_elsewhere(before: &Threads, now: &Threads, elapsed: Nanos, topology: &Topology) -> bool {
    before.values().zip(now.values()).any(|(before, now)| {
        now.is_busy_since(*before, elapsed)
            && topology.node_of_cpu(before.cpu) != topology.node_of_cpu(now.cpu)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::topology::synthetic;
    use alloc::vec;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn it_rests_as_long_as_it_has_been_quiet_and_watches_in_between() {
        let at = |tenths: u64| Nanos(tenths * SECOND / 10);
        let mut quiet = Quiet::default();
        quiet.disturb(at(0));
        assert_eq!(quiet.pause(at(17), None), None);
        assert_eq!(quiet.pause(at(20), None), Some(at(20)));
        quiet.resume(at(40));
        assert_eq!(quiet.pause(at(45), None), None, "no policy has decided yet");
        assert_eq!(quiet.pause(at(50), None), Some(LONGEST_PAUSE));
        quiet.resume(at(90));
        quiet.disturb(at(95));
        assert_eq!(quiet.pause(at(105), None), None, "something was done");
        assert_eq!(quiet.pause(at(115), None), Some(at(20)));
    }

    #[test]
    fn where_watching_is_dear_it_rests_as_soon_as_every_policy_has_found_nothing() {
        let at = |tenths: u64| Nanos(tenths * SECOND / 10);
        let mut quiet = Quiet::default();
        quiet.disturb(at(0));
        assert_eq!(quiet.pause(at(4), Some(at(5))), None);
        assert_eq!(quiet.pause(at(5), Some(at(5))), Some(at(5)));
        quiet.resume(at(10));
        assert_eq!(quiet.pause(at(14), Some(at(5))), None);
        assert_eq!(quiet.pause(at(15), Some(at(5))), Some(at(15)));
        assert_eq!(quiet.pause(at(15), Some(at(50))), None, "no later than where it is cheap");
        assert_eq!(quiet.pause(at(20), Some(at(50))), Some(at(20)));
    }

    fn process(pid: u32, threads: &[(u32, usize, u64)]) -> ProcessObservation {
        let thread = |(tid, cpu, ms): &(u32, usize, u64)| ThreadObservation {
            tid: Tid(*tid),
            cpu: *cpu,
            cpu_time: Nanos::from_millis(*ms),
            ..ThreadObservation::default()
        };
        let threads = threads.iter().map(thread).collect();
        ProcessObservation { pid: Pid(pid), threads, ..ProcessObservation::default() }
    }

    fn seen(ms: u64, processes: Vec<ProcessObservation>) -> Observation {
        Observation { at: Nanos::from_millis(ms), processes, ..Observation::default() }
    }

    /// A pause of a process with a busy thread on CPU 0 and a sleeping thread on CPU 2.
    fn pause() -> CountingPause {
        let begins = seen(1000, vec![process(7, &[(7, 2, 5), (8, 0, 900)])]);
        CountingPause::new(LONGEST_PAUSE, (&begins, &begins), BTreeMap::from([(Pid(7), 1.0)]), None)
    }

    fn is_disturbed(ms: u64, processes: Vec<ProcessObservation>) -> bool {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        pause().is_disturbed_by(&seen(ms, processes), &machine)
    }

    #[test]
    fn threads_that_go_on_as_before_do_not_end_a_rest() {
        assert!(!is_disturbed(1250, vec![process(7, &[(7, 2, 5), (8, 0, 1140)])]));
        assert!(!is_disturbed(1250, vec![process(7, &[(7, 2, 5), (8, 1, 1140)])]), "same node");
        assert!(!is_disturbed(1250, vec![process(7, &[(7, 0, 6), (8, 0, 1140)])]), "hardly ran");
        assert!(
            !is_disturbed(1010, vec![process(7, &[(7, 2, 5), (8, 0, 900)])]),
            "too soon to say"
        );
        let of_samples = process(9, &[(9, 1, 0)]);
        let same = process(7, &[(6, 1, 0), (7, 2, 5), (8, 0, 1140)]);
        assert!(!is_disturbed(1250, vec![same, of_samples]), "only samples tell of them");
    }

    #[test]
    fn a_thread_that_comes_or_goes_or_moves_or_does_something_else_ends_it() {
        let same = || process(7, &[(7, 2, 5), (8, 0, 1140)]);
        assert!(is_disturbed(1250, vec![]));
        assert!(is_disturbed(1250, vec![same(), process(9, &[(9, 1, 1)])]));
        assert!(is_disturbed(1250, vec![ProcessObservation { started: Nanos(1), ..same() }]));
        assert!(is_disturbed(1250, vec![process(7, &[(7, 2, 5)])]));
        assert!(is_disturbed(1250, vec![process(7, &[(7, 2, 5), (9, 0, 0)])]));
        assert!(is_disturbed(1250, vec![process(7, &[(7, 2, 5), (8, 3, 1140)])]), "other node");
        assert!(is_disturbed(1250, vec![process(7, &[(7, 2, 255), (8, 0, 1150)])]), "both run");
        assert!(is_disturbed(1250, vec![process(7, &[(7, 2, 5), (8, 0, 950)])]), "it waits");
    }

    /// Requests by `[accessing][holding]` of two nodes since counting began.
    fn traffic(ms: u64, requests: [u64; 4]) -> Observation {
        let node_traffic = Matrix::from_fn(2, |a, h| Counter::exact(requests[2 * a + h]));
        Observation { node_traffic: Some(node_traffic), ..seen(ms, vec![]) }
    }

    #[test]
    fn where_threads_take_turns_other_cpus_and_run_times_do_not_end_it() {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let at = |ms, ran: [(usize, u64); 5]| {
            let threads = (1..).zip(ran).map(|(tid, (cpu, ran))| (tid, cpu, ran));
            let of = |thread: (u32, usize, u64)| process(thread.0, &[thread]);
            seen(ms, threads.map(of).collect())
        };
        let begins = at(1000, [(0, 900), (1, 900), (2, 900), (3, 900), (3, 900)]);
        let is_disturbed = |ran: [(usize, u64); 5]| {
            let cpus = (1..=5).map(|pid| (Pid(pid), 0.8)).collect();
            let mut pause = CountingPause::new(LONGEST_PAUSE, (&begins, &begins), cpus, None);
            pause.is_disturbed_by(&at(2000, ran), &machine)
        };
        let other = [(2, 1900), (1, 1900), (2, 1400), (3, 1300), (0, 1300)];
        assert!(!is_disturbed(other));
        let mut four = other;
        four[4].1 = 900;
        assert!(is_disturbed(four), "the fifth stopped, and four have a CPU each");
    }

    #[test]
    fn other_traffic_between_nodes_ends_it_where_that_is_counted() {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let window = (traffic(0, [0; 4]), traffic(1000, [800, 100, 0, 100]));
        let is_disturbed = |by: [u64; 4]| {
            let mut pause =
                CountingPause::new(LONGEST_PAUSE, (&window.0, &window.1), BTreeMap::new(), None);
            pause.is_disturbed_by(&traffic(2000, by), &machine)
        };
        assert!(!is_disturbed([1600, 200, 0, 200]));
        assert!(!is_disturbed([1800, 225, 0, 225]), "a fourth faster");
        assert!(!is_disturbed([1500, 300, 0, 200]), "a tenth goes elsewhere");
        assert!(is_disturbed([2400, 300, 0, 300]), "twice as much");
        assert!(is_disturbed([1000, 150, 0, 100]), "a fourth");
        assert!(is_disturbed([1200, 200, 400, 200]), "another node asks");
        let stopped = Counter { value: 900, enabled: Nanos(5), running: Nanos(5) };
        let stopped =
            |ms| Observation { node_traffic: Some(Matrix::filled(2, stopped)), ..seen(ms, vec![]) };
        let mut pause =
            CountingPause::new(LONGEST_PAUSE, (&window.0, &window.1), BTreeMap::new(), None);
        pause.is_disturbed_by(&stopped(2000), &machine);
        assert!(!pause.is_disturbed_by(&stopped(3000), &machine), "the program's own, stopped");
        let nothing = |ms| seen(ms, vec![]);
        let mut pause =
            CountingPause::new(LONGEST_PAUSE, (&nothing(0), &nothing(1)), BTreeMap::new(), None);
        assert!(!pause.is_disturbed_by(&nothing(2000), &machine), "nothing is counted");
    }

    #[test]
    fn other_traffic_of_controllers_ends_it_where_nodes_are_not_told_apart() {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let served = |ms, lines: [u64; 2]| {
            let lines = lines.map(Counter::exact).to_vec();
            Observation { controller_lines: Some(lines), ..seen(ms, vec![]) }
        };
        let window = (served(0, [0, 0]), served(1000, [800, 200]));
        let is_disturbed = |lines| {
            let mut pause =
                CountingPause::new(LONGEST_PAUSE, (&window.0, &window.1), BTreeMap::new(), None);
            pause.is_disturbed_by(&served(2000, lines), &machine)
        };
        assert!(!is_disturbed([1600, 400]));
        assert!(!is_disturbed([1500, 500]), "a tenth goes elsewhere");
        assert!(is_disturbed([2400, 600]), "twice as much");
        assert!(is_disturbed([1200, 800]), "pages are on the other node");
    }

    #[test]
    fn a_change_late_in_a_rest_is_not_hidden_by_what_was_before() {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let mut pause = pause();
        let ran = |ms| vec![process(7, &[(7, 2, 5), (8, 0, ms)])];
        assert!(!pause.is_disturbed_by(&seen(4000, ran(3900)), &machine));
        assert!(pause.is_disturbed_by(&seen(5000, ran(4400)), &machine));
    }
}
