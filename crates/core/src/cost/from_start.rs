//! What a program would have won if its memory had lain otherwise from its start. Either all of it
//! is spread over all nodes, or each node has a copy of its read-only files.
//!
//! Only the program itself decides where its new memory goes: Linux lets nobody else set that.
//! Pages that are used and freed within a second are gone before anybody can move them. So this is
//! advice for the next start.

use super::facts::Facts;
use super::placement::Placement;
use super::quote::{Interval, Quote};
use super::{WORTH_MOVING, lost_to_latency};
use crate::model::{App, Model, Rung};
use crate::topology::Topology;
use crate::units::{Nanos, Pid};
use alloc::vec::Vec;

/// Windows closer than this are not priced (our choice): a price takes as long as a look.
const EVERY: Nanos = Nanos::from_millis(500);
/// A window is taken to become at most twice as long (our choice): no window ends before it began.
const LEAST_CHANGE: f64 = -0.5;

/// What memory that is spread over all nodes would have won.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpreadFromStart(Run);

/// What copies of files on each node would have won.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopiesFromStart(Run);

/// Sums over the windows of a run.
#[derive(Debug, Clone, PartialEq, Default)]
struct Run {
    /// End of the last priced window.
    priced_until: Nanos,
    /// Length of the windows, seconds.
    seconds: f64,
    /// How long they would have been: the longest and the shortest time, and the likely one.
    longest: f64,
    likely: f64,
    shortest: f64,
}

impl SpreadFromStart {
    /// Prices a window, unless another was priced a moment ago or nothing waits for memory in it.
    /// Windows come in order.
    pub fn observe(&mut self, window: &Model, topology: &Topology) {
        let controllers: Vec<usize> = topology.controllers().iter().collect();
        self.0.observe(window, topology, |facts, placed, app| {
            placed.interleaved(facts, app.pid, &controllers)
        });
    }

    /// Relative gain of speed over the whole run, 0.1 = 10 % faster. `None` where nothing was
    /// priced.
    #[must_use]
    pub fn gain(&self) -> Option<Interval> {
        self.0.gain()
    }
}

impl CopiesFromStart {
    /// As [`SpreadFromStart::observe`]. `shares` tells which part of a process's accesses to memory
    /// is to the files; a process that is not in it does not read them.
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
    /// Prices a window where `place` changes the placement of each process.
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
