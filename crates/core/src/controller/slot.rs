//! A policy and the lanes in which it decides. Each lane has an interval of observation and a time
//! for its next decision.

use super::pending_samples::PendingSamples;
use crate::ledger::Ledger;
use crate::limits::WATCH_BETWEEN_PAUSES;
use crate::model::{Model, UpdateSettings};
use crate::observation::Observation;
use crate::policy::Policy;
use crate::policy::views::{Interval, View, Views};
use crate::topology::Topology;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A policy and its lanes.
pub(super) struct Slot {
    pub(super) policy: Box<dyn Policy>,
    lanes: Vec<Lane>,
}

/// One lane of a policy.
#[derive(Default)]
struct Lane {
    /// Begin of the lane's interval: the observation at its last decision or, if that decision
    /// acted, the next observation.
    since: Arc<Observation>,
    /// Time of its last decision.
    decided_at: Nanos,
    /// Longest time to the next decision, if the lane's period is longer. Doubles with each
    /// decision.
    soon: Nanos,
    /// Samples after this time belong to its interval.
    samples_after: Nanos,
    /// Samples before this time are never shown to the lane, however long its policy remembers
    /// samples.
    remembers_after: Nanos,
    /// Hint faults after this time belong to its interval.
    hint_faults_after: Nanos,
    /// Whether the lane decides in this step.
    is_due: bool,
    /// Whether the lane decided in the last step and the host acted. The next window mixes old and
    /// new placement, so the lane's interval begins after that window.
    acted: bool,
}

/// Where a lane's interval begins. Lanes with the same span share a model.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// When its counters begin.
    pub(super) since: Nanos,
    samples_after: Nanos,
    hint_faults_after: Nanos,
}

/// Models computed in this step, shared by lanes with the same interval.
#[derive(Default)]
pub(super) struct Intervals<'a> {
    made: Vec<(Span, Rc<Interval<'a>>)>,
}

/// Inputs from which the model of an interval is computed.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) topology: &'a Topology,
    pub(super) current: &'a Observation,
    pub(super) pending: &'a PendingSamples,
    pub(super) ledger: &'a Ledger,
    pub(super) settings: UpdateSettings,
}

impl Slot {
    /// A policy that has seen nothing.
    pub(super) fn new(policy: Box<dyn Policy>) -> Self {
        let lanes = (0..policy.lanes()).map(|_| Lane::default()).collect();
        Self { policy, lanes }
    }

    /// Observation begins here. Each lane decides after its shortest interval.
    pub(super) fn begin(&mut self, here: &Arc<Observation>) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.begin_anew(here, self.policy.pace(number).shortest);
        }
    }

    /// Counting resumes here after a pause. Each lane decides within [`WATCH_BETWEEN_PAUSES`],
    /// however long its period is.
    pub(super) fn resume(&mut self, here: &Arc<Observation>) {
        self.lanes.iter_mut().for_each(|lane| lane.begin_anew(here, WATCH_BETWEEN_PAUSES));
    }

    /// Time of the next decision of any lane.
    pub(super) fn due_at(&self) -> Option<Nanos> {
        let due = |(number, lane): (usize, &Lane)| {
            lane.decided_at + self.policy.pace(number).period.min(lane.soon)
        };
        self.lanes.iter().enumerate().map(due).min()
    }

    /// Whether every lane has decided after this time.
    pub(super) fn all_decided_after(&self, time: Nanos) -> bool {
        self.lanes.iter().all(|lane| lane.decided_at > time)
    }

    /// No lane needs samples up to this time.
    pub(super) fn served_until(&self) -> Nanos {
        let served = |(number, lane): (usize, &Lane)| lane.samples_from(&*self.policy, number);
        self.lanes.iter().enumerate().map(served).min().unwrap_or(Nanos(0))
    }

    /// Marks the lanes whose period is over at the end of a window. Returns whether there is one.
    pub(super) fn look(&mut self, now: Nanos, window: Nanos) -> bool {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.is_due = lane.is_over(now, window, self.policy.pace(number).period);
        }
        let any = self.lanes.iter().any(|lane| lane.is_due);
        self.lanes.iter_mut().take(1).for_each(|first| first.is_due = any);
        any
    }

    /// The models that the lanes are shown.
    pub(super) fn views<'a>(&self, scene: Scene<'a>, intervals: &mut Intervals<'a>) -> Views<'a> {
        let view = |(number, lane): (usize, &Lane)| View {
            is_due: lane.is_due,
            interval: intervals.of(lane, lane.span(&*self.policy, number), scene),
        };
        Views::new(self.lanes.iter().enumerate().map(view).collect())
    }

    /// Ends the step: lanes that decided begin a new interval at `here`. The samples were taken out
    /// of `here`; `had_samples` says whether there were any.
    pub(super) fn end(&mut self, here: &Arc<Observation>, had_samples: bool, acts: bool) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if self.policy.begins_anew(number) {
                lane.begin_anew(here, self.policy.pace(number).shortest);
                lane.is_due = false;
                continue;
            }
            if lane.acted {
                lane.since = Arc::clone(here);
            }
            lane.acted = lane.is_due && acts;
            if core::mem::take(&mut lane.is_due) {
                lane.soon = Nanos(lane.soon.0.saturating_mul(2));
                let hint_faults_after = if had_samples { here.at } else { lane.hint_faults_after };
                lane.begin(here);
                lane.hint_faults_after = hint_faults_after;
            }
        }
    }
}

impl Lane {
    /// Discards everything before `here`. The lane decides after `soon`, or after its period if
    /// that is shorter.
    fn begin_anew(&mut self, here: &Arc<Observation>, soon: Nanos) {
        self.begin(here);
        self.acted = false;
        self.soon = soon;
        self.remembers_after = here.at;
    }

    /// Begins a new interval after a decision. Hint faults are kept where they are the only sensor.
    fn begin(&mut self, here: &Arc<Observation>) {
        self.since = Arc::clone(here);
        self.decided_at = here.at;
        self.samples_after = here.at;
    }

    /// Whether the lane's period is over, within a tenth. Otherwise a host that wakes slightly
    /// early would halve the rate of decisions. With short windows, the lane decides at the window
    /// end nearest to the period.
    fn is_over(&self, now: Nanos, window: Nanos, period: Nanos) -> bool {
        let period = period.min(self.soon);
        let early = (period.0 / 10).min(window.0 / 2);
        now.since(self.decided_at).0 >= period.0 - early
    }

    /// The lane is shown samples after this time.
    fn samples_from(&self, policy: &dyn Policy, number: usize) -> Nanos {
        let remembered = self.samples_after.0.saturating_sub(policy.pace(number).remembers.0);
        self.remembers_after.max(Nanos(remembered))
    }

    fn span(&self, policy: &dyn Policy, number: usize) -> Span {
        Span {
            since: self.since.at,
            samples_after: self.samples_from(policy, number),
            hint_faults_after: self.hint_faults_after,
        }
    }
}

impl<'a> Intervals<'a> {
    fn of(&mut self, lane: &Lane, span: Span, scene: Scene<'a>) -> Rc<Interval<'a>> {
        if let Some((_, interval)) = self.made.iter().find(|(made, _)| *made == span) {
            return Rc::clone(interval);
        }
        let since = Arc::clone(&lane.since);
        let earlier = scene.pending.after(span.samples_after, span.hint_faults_after);
        let Scene { topology, current, ledger, settings, .. } = scene;
        let interval = Rc::new(Interval::new(move || {
            let mut model = Model::between(topology, &since, current, &earlier, &settings);
            ledger.tell_masks(&mut model);
            model
        }));
        self.made.push((span, Rc::clone(&interval)));
        interval
    }

    /// The interval that begins here, if a lane shares one.
    pub(super) fn since(&self, since: Nanos) -> Option<Rc<Interval<'a>>> {
        let interval = self.made.iter().find(|(span, _)| span.since == since);
        interval.map(|(_, interval)| Rc::clone(interval))
    }

    /// The model of the interval that begins here, if one was made, and those of all others.
    pub(super) fn into_models(self, since: Nanos) -> (Option<Model>, Vec<Model>) {
        let (mut window, mut others) = (None, Vec::new());
        let made = self.made.into_iter().filter(|(_, interval)| interval.is_made());
        for (span, interval) in made {
            let model = Rc::try_unwrap(interval).ok().and_then(Interval::into_model);
            match span.since == since && window.is_none() {
                true => window = model,
                false => others.extend(model),
            }
        }
        (window, others)
    }
}
