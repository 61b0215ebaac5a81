//! Predicts the gain of another placement of memory from the program's start. Either all memory is
//! spread over all nodes, or each node has a copy of the program's read-only files.
//!
//! On Linux only a process itself sets the policy of its new memory. Pages that are freed within a
//! second cannot be moved in time. So this is advice for the next start.

use super::facts::Facts;
use super::placement::Placement;
use super::quote::{Interval, Quote};
use super::{WORTH_MOVING, lost_to_latency};
use crate::model::{App, Model, Rung};
use crate::topology::Topology;
use crate::units::{Nanos, Pid};
use alloc::vec::Vec;

/// Least time between priced windows (our choice), because pricing takes as long as an observation.
const EVERY: Nanos = Nanos::from_millis(500);
/// Largest predicted loss of a window (our choice): at half the speed a window takes twice as long.
const LEAST_CHANGE: f64 = -0.5;

/// Predicted gain of memory that is spread over all nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpreadFromStart(Run);

/// Predicted gain of copies of files on each node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopiesFromStart(Run);

/// Sums over the windows of a run.
#[derive(Debug, Clone, PartialEq, Default)]
struct Run {
    /// End of the last priced window.
    priced_until: Nanos,
    /// Length of the windows, seconds.
    seconds: f64,
    /// Predicted length of the windows: longest, expected and shortest.
    longest: f64,
    likely: f64,
    shortest: f64,
}

impl SpreadFromStart {
    /// Prices a window, unless another was priced a moment before or no thread waits for memory.
    /// Windows come in order.
    pub fn observe(&mut self, window: &Model, topology: &Topology) {
        let controllers: Vec<usize> = topology.controllers().iter().collect();
        self.0.observe(window, topology, |facts, placed, app| {
            placed.interleaved(facts, app.pid, &controllers)
        });
    }

    /// Relative gain of speed over the whole run, 0.1 = 10 % faster. `None` if no window was
    /// priced.
    #[must_use]
    pub fn gain(&self) -> Option<Interval> {
        self.0.gain()
    }
}

impl CopiesFromStart {
    /// As [`SpreadFromStart::observe`]. `shares` has the share of a process's memory accesses that
    /// go to the files. Processes without an entry do not read the files.
    pub fn observe(&mut self, window: &Model, topology: &Topology, shares: &[(Pid, f64)]) {
        self.0.observe(window, topology, |facts, placed, app| {
            match shares.iter().find(|(pid, _)| *pid == app.pid) {
                Some((pid, share)) => placed.partly_local(facts, *pid, topology, *share),
                None => placed,
            }
        });
    }

    /// As [`SpreadFromStart::gain`].
    #[must_use]
    pub fn gain(&self) -> Option<Interval> {
        self.0.gain()
    }
}

impl Run {
    /// Prices a window with the placement of each process changed by `place`.
    fn observe(
        &mut self,
        window: &Model,
        topology: &Topology,
        place: impl Fn(&Facts, Placement, &App) -> Placement,
    ) {
        let since = match self.priced_until {
            Nanos(0) => window.elapsed,
            until => window.at.since(until),
        };
        let tells = matches!(window.sensing.rung, Rung::Samples | Rung::Counters);
        let is_far = self.priced_until == Nanos(0) || since >= EVERY;
        let has_nodes = topology.controllers().iter().nth(1).is_some();
        if !is_far || !tells || !has_nodes || window.traffic.is_none() {
            return;
        }
        self.priced_until = window.at;
        let change = change(window, topology, place);
        let seconds = since.seconds();
        let with = |change: f64| seconds / (1.0 + change.max(LEAST_CHANGE));
        self.seconds += seconds;
        self.longest += with(change.least);
        self.likely += with(change.likely);
        self.shortest += with(change.most);
    }

    fn gain(&self) -> Option<Interval> {
        let gain = |with: f64| self.seconds / with - 1.0;
        (self.seconds > 0.0).then(|| Interval {
            least: gain(self.longest),
            likely: gain(self.likely),
            most: gain(self.shortest),
        })
    }
}

/// Relative change of the speed of all processes together: the mean, weighted by CPU time.
fn change(
    window: &Model,
    topology: &Topology,
    place: impl Fn(&Facts, Placement, &App) -> Placement,
) -> Interval {
    let none = Interval { least: 0.0, likely: 0.0, most: 0.0 };
    let cpus: f64 = window.apps.iter().map(|app| app.cpu_percent / 100.0).sum();
    let loses = |app| lost_to_latency(window, topology, app);
    let loses = window.apps.iter().filter_map(loses).any(|lost| lost.likely > WORTH_MOVING);
    if !loses || cpus <= 0.0 {
        return none;
    }
    let (facts, now) = (Facts::of(window, topology), Placement::unchanged());
    let then = window.apps.iter().fold(now.clone(), |placed, app| place(&facts, placed, app));
    Quote::between(&facts, &now, &then).won.times(1.0 / cpus)
}
