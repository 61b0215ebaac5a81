//! What a program would have won if its memory had been spread over all nodes from its start.
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
use crate::units::Nanos;
use alloc::vec::Vec;

/// Windows closer than this are not priced (our choice): a price takes as long as a look.
const EVERY: Nanos = Nanos::from_millis(500);

/// Sums over the windows of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpreadFromStart {
    /// End of the last priced window.
    priced_until: Nanos,
    /// CPU seconds that would have been won.
    won: Interval,
    /// CPU seconds that were used.
    used: f64,
}

impl SpreadFromStart {
    /// Prices a window, unless another was priced a moment ago or nothing waits for memory in it.
    /// Windows come in order.
    pub fn observe(&mut self, window: &Model, topology: &Topology) {
        let since = match self.priced_until {
            Nanos(0) => window.elapsed,
            until => window.at.since(until),
        };
        let tells = matches!(window.sensing.rung, Rung::Samples | Rung::Counters);
        let is_far = self.priced_until == Nanos(0) || since >= EVERY;
        if !is_far || !tells || window.traffic.is_none() {
            return;
        }
        let controllers: Vec<usize> = topology.controllers().iter().collect();
        if controllers.len() < 2 {
            return;
        }
        self.priced_until = window.at;
        let cpus: f64 = window.apps.iter().map(|app| app.cpu_percent / 100.0).sum();
        self.used += cpus * since.seconds();
        let loses = |app| lost_to_latency(window, topology, app);
        let loses = window.apps.iter().filter_map(loses).any(|lost| lost.likely > WORTH_MOVING);
        if !loses {
            return;
        }
        let (facts, now) = (Facts::of(window, topology), Placement::unchanged());
        let spread =
            |placed: Placement, app: &App| placed.interleaved(&facts, app.pid, &controllers);
        let spread = window.apps.iter().fold(now.clone(), spread);
        let won = Quote::between(&facts, &now, &spread).won;
        self.won = self.won.plus(won.times(since.seconds()));
    }

    /// Relative gain of speed over the whole run, 0.1 = 10 % faster. `None` where nothing was
    /// priced.
    #[must_use]
    pub fn gain(&self) -> Option<Interval> {
        (self.used > 0.0).then(|| self.won.times(1.0 / self.used))
    }
}
