//! SAM, the sharing-aware mapper: which threads share a socket, from per-thread counters alone.
//!
//! Srikanthan et al., "Data Sharing or Resource Contention", USENIX ATC 2015. Phase C repairs data
//! shared across sockets, phase R memory accessed across sockets, phase B memory bandwidth. One
//! problem is repaired in each interval of 100 ms, in this order. The full paper was not at hand;
//! the authors' code fills the gaps. Its defects are repaired in the default and kept, as far as
//! they are rules, in the preset `author`.
//!
//! [`consolidate()`] and [`decide()`] are the algorithm on plain numbers. [`place`] is SAM-MPH
//! (USENIX ATC 2016), which runs before them: whole applications, by their tolerance of latency.
//! Threads move, memory does not.

mod away;
mod bandwidth;
mod coherence;
mod consolidate;
mod decide;
mod history;
mod latest;
mod mph;
mod observe;
mod order;
mod preset;
mod propose;
mod remote;
mod thresholds;
mod view;

pub use away::{Away, Marking, Marks};
pub use consolidate::{Consolidated, Flags, SocketSums, consolidate};
pub use decide::{Destination, Move, Phase, Situation, decide, decide_for_others};
pub use history::{History, STEADY_ABOVE};
pub use mph::{AppHistory, AppView, Apps, Placement, Rule, place};
pub use order::SocketOrder;
pub use preset::{Gathering, Order, Preset, Spread};
pub use propose::{SamReason, Side};
pub use thresholds::{Basis, Thresholds};
pub use view::{DataHome, Layout, Running, Socket, Use};

use self::latest::Latest;
use self::observe::Sockets;
use self::propose::Assignments;
use super::renamed::Renamed;
use super::{Policy, Registered};
use crate::model::Model;
use crate::plan::Proposal;
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Nanos, Pid, Tid};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// SAM's entry in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "sam",
    about: "threads: coherence traffic, remote memory and socket bandwidth",
    presets: &["slides", "author", "port", "mph"],
    make: |name| {
        let preset =
            Preset::ALL.into_iter().find(|preset| name.is_none_or(|name| name == preset.name))?;
        Some(Box::new(Sam::new(preset)) as Box<dyn Policy>)
    },
    in_auto: None,
};

/// SAM with its state across intervals.
#[derive(Debug, Clone)]
pub struct Sam {
    preset: Preset,
    latest: Latest,
    marks: Marks,
    apps: Apps,
    state: Consolidated,
    assigned: Assignments,
    /// Intervals until the marks and masks of ended threads are next dropped.
    forget_in: u32,
}

/// Length of an interval: ten decisions a second [SAM-slides].
const PERIOD: Nanos = Nanos::from_millis(100);
/// Intervals between two searches for ended threads. Each search visits all threads of the model
/// (our choice: every 6.4 s).
const FORGET_EVERY: u32 = 64;

/// Last-level cache misses per second above which a socket's memory counts as saturated on this
/// machine.
pub(super) fn memory_limit_per_s(topology: &Topology) -> f64 {
    Basis::Published.for_topology(topology).memory_socket
}

impl Sam {
    /// A policy of this preset without observations.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self {
            preset,
            latest: Latest::default(),
            marks: Marks::default(),
            apps: Apps::default(),
            state: Consolidated::default(),
            assigned: Assignments::default(),
            forget_in: FORGET_EVERY,
        }
    }

    /// Drops the state of threads and processes that ended, every [`FORGET_EVERY`] intervals.
    fn forget(&mut self, model: &Model) {
        self.forget_in -= 1;
        if self.forget_in > 0 {
            return;
        }
        self.forget_in = FORGET_EVERY;
        let tids: BTreeSet<Tid> = model.threads.iter().map(|thread| thread.tid).collect();
        self.marks.retain(|tid| tids.contains(&tid));
        self.assigned.retain(|pid| model.app(pid).is_some());
    }
}

impl Sam {
    /// The preset's thresholds for this machine.
    pub(super) fn thresholds(&self, topology: &Topology) -> Thresholds {
        self.preset.basis.for_topology(topology)
    }

    /// Updates the state with one interval. Calls `then` with the consolidated view, the
    /// applications' histories and the masks requested last, and returns its result.
    fn interval<T>(
        &mut self,
        model: &Model,
        topology: &Topology,
        then: impl FnOnce(&propose::View<'_>, &mut Apps, &mut Assignments) -> T,
    ) -> T {
        self.forget(model);
        let sockets = Sockets::new(topology);
        let (uses, threads) =
            observe::uses(model, topology, &sockets, &self.latest.observe(model, topology));
        let thresholds = self.thresholds(topology);
        self.marks.pass(model.elapsed);
        consolidate(
            &sockets.layout,
            &uses,
            &thresholds,
            &self.preset,
            &mut self.marks,
            &mut self.state,
        );
        let situation = Situation {
            layout: &sockets.layout,
            uses: &uses,
            state: &self.state,
            marks: &self.marks,
            thresholds: &thresholds,
            preset: &self.preset,
        };
        let view =
            propose::View { model, topology, sockets: &sockets, threads: &threads, situation };
        then(&view, &mut self.apps, &mut self.assigned)
    }
}

impl Policy for Sam {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        let places_applications = self.preset.places_applications;
        self.interval(model, topology, |view, apps, assigned| {
            let situation = view.situation;
            if !places_applications {
                return propose::moves(view, &decide(situation));
            }
            let (layout, uses) = (situation.layout, situation.uses);
            apps.observe(uses, situation.thresholds, |pid| model.app(pid).is_some());
            let placements = place(layout, &apps.views(layout, uses), situation.thresholds);
            let placed = |pid: Pid| placements.iter().any(|placement| placement.pid == pid);
            let mut proposals = propose::placements(view, &placements, assigned);
            proposals.extend(propose::moves(view, &decide_for_others(situation, placed)));
            proposals
        })
    }

    fn rename(&mut self, topology: &Topology, renamed: &Renamed) {
        let sockets = Sockets::new(topology);
        let of_socket =
            |socket| sockets.socket(renamed.image(sockets.node(socket))).unwrap_or(socket);
        renamed.tids.iter().for_each(|&tid| self.marks.relabel(tid, of_socket));
    }

    fn period(&self) -> Nanos {
        PERIOD
    }

    /// Five intervals (our choice): the two rounds of counters take two, and the effect of a move
    /// shows in the next ones.
    fn settles_within(&self) -> Nanos {
        Nanos(5 * self.period().0)
    }
}
