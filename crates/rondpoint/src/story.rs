//! Reads a recording moment by moment: measurements, proposals, actions and outcomes. `explain`,
//! `report` and `top` take all figures from here.
//!
//! A [`Teller`] takes one recorded step after the other. It gives each recorded input to this
//! version's controller, whose window has the measurements and whose typed reasons have the prices.
//! Decisions are shown as they were recorded. If this version decides differently, prices are left
//! out, and the story says so.

mod decided;
mod known;
pub(crate) mod lines;
mod measured;
mod read;
pub(crate) mod words;

pub(crate) use self::decided::{Deed, Kind, Verdict};
pub(crate) use self::known::{Known, Process, Unit, lost_by_cause};
pub(crate) use self::measured::Done;
pub(crate) use self::read::read;

use std::collections::BTreeMap;
use std::ops::Range;

use rondpoint_core::controller::{Controller, Input, Step};
use rondpoint_core::cost::Partners;
use rondpoint_core::model::UpdateSettings;
use rondpoint_core::{Model, Nanos, Observation};
use rondpoint_trace::{Decision, Header, Record, Truncated};
use serde::Serialize;

use self::decided::Told;

/// A recording, told.
#[derive(Debug)]
pub(crate) struct Story {
    /// What the recording says about itself.
    pub(crate) header: Header,
    /// One for each recorded look.
    pub(crate) moments: Vec<Moment>,
    /// What was wanted, done or not, in order.
    pub(crate) deeds: Vec<Deed>,
    /// Trials that ended, in order.
    pub(crate) verdicts: Vec<Verdict>,
    /// Looks on which today's controller decides otherwise than was recorded.
    pub(crate) differing: u64,
    /// Why this version has no such controller, if it has none.
    pub(crate) unknown_policy: Option<String>,
    /// What today's controller said when it panicked on the look after the last moment.
    pub(crate) panicked: Option<String>,
    /// The recording's last line, if it is cut off.
    pub(crate) truncated: Option<Truncated>,
}

/// One look at the machine and what was decided on it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Moment {
    /// Counted from 1.
    pub(crate) step: u64,
    /// Line of the recording.
    pub(crate) line: u64,
    /// Seconds since the first look.
    pub(crate) at_s: f64,
    /// What the time since the look before told; `None` at the first look and after a pause.
    pub(crate) known: Option<Known>,
    /// Number of the plan; 0 = nothing was decided.
    pub(crate) plan: u64,
    /// Whether today's controller decides otherwise.
    pub(crate) differs: bool,
    /// Which of [`Story::deeds`] are its.
    #[serde(skip)]
    pub(crate) deeds: Range<usize>,
    /// Which of [`Story::verdicts`] are its.
    #[serde(skip)]
    pub(crate) verdicts: Range<usize>,
}

impl Story {
    /// Seconds from the first look to the last.
    pub(crate) fn seconds(&self) -> f64 {
        self.moments.last().map_or(0.0, |moment| moment.at_s)
    }

    /// What was wanted at a moment.
    pub(crate) fn deeds_of(&self, moment: &Moment) -> &[Deed] {
        &self.deeds[moment.deeds.clone()]
    }

    /// Trials that ended at a moment.
    pub(crate) fn verdicts_of(&self, moment: &Moment) -> &[Verdict] {
        &self.verdicts[moment.verdicts.clone()]
    }

    /// The verdict on what was done, if there is one yet.
    pub(crate) fn verdict_on(&self, deed: &Deed) -> Option<&Verdict> {
        self.verdicts.get(deed.verdict?)
    }

    /// The last moment at or before this time, in seconds since the first look; the first if there
    /// is none.
    pub(crate) fn place_at(&self, at_s: f64) -> usize {
        self.moments.partition_point(|moment| moment.at_s <= at_s).saturating_sub(1)
    }

    /// Processes of the recording and the share of all CPU time that each took, most first.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut cpu: BTreeMap<u32, f64> = BTreeMap::new();
        for known in self.moments.iter().filter_map(|moment| moment.known.as_ref()) {
            for process in &known.processes {
                *cpu.entry(process.pid).or_default() += process.cpu_percent * known.seconds;
            }
        }
        let mut all: Vec<(u32, f64)> = cpu.into_iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter().map(|(pid, _)| pid).collect()
    }
}

/// Makes a story, one recorded step after the other.
pub(crate) struct Teller {
    story: Story,
    /// `None` where this version has no such policy.
    controller: Option<Controller>,
    /// The look before, where there is no controller that remembers it.
    previous: Option<Observation>,
    began: Option<Nanos>,
    /// The deed that each step of the last plan is part of.
    last_plan: Vec<usize>,
    /// Deeds of each plan that no verdict was passed on.
    unjudged: BTreeMap<u64, Range<usize>>,
}

impl Teller {
    /// Of a recording of which nothing but the first line is known. A policy that this version does
    /// not have is no failure: what was recorded is told without prices.
    pub(crate) fn new(header: Header) -> Self {
        let (controller, unknown_policy) = match header.controller() {
            Ok(controller) => (Some(controller), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let story = Story {
            header,
            moments: Vec::new(),
            deeds: Vec::new(),
            verdicts: Vec::new(),
            differing: 0,
            unknown_policy,
            panicked: None,
            truncated: None,
        };
        let (last_plan, unjudged) = (Vec::new(), BTreeMap::new());
        Self { story, controller, previous: None, began: None, last_plan, unjudged }
    }

    /// Takes in the next recorded step.
    pub(crate) fn take(&mut self, record: Record) {
        for outcome in &record.input.outcomes {
            let deed = self.last_plan.get(outcome.step).copied();
            if let Some(deed) = deed.and_then(|deed| self.story.deeds.get_mut(deed)) {
                deed.came_of_it.take_in(outcome);
            }
        }
        let at = record.input.observation.at;
        let began = *self.began.get_or_insert(at);
        let counts_requests = record.input.observation.node_traffic.is_some();
        let (window, step) = self.decide_again(record.input);
        let again = step.as_ref().map(Decision::from);
        let recorded = record.decision;
        let differs = recorded.as_ref().zip(again.as_ref());
        let differs = differs.is_some_and(|(recorded, again)| recorded.difference(again).is_some());
        self.story.differing += u64::from(differs);
        let decision = recorded.or(again).unwrap_or_else(|| Decision::from(&Step::default()));
        let topology = &self.story.header.topology;
        let known = window.as_ref().map(|window| Known::of(window, topology, counts_requests));
        let first = (self.story.deeds.len(), self.story.verdicts.len());
        let place = self.story.moments.len();
        let same = step.as_ref().filter(|_| !differs);
        let partners = self.controller.as_ref().map_or(Partners::none(), Controller::partners);
        let window = window.as_ref();
        let told = Told { decision: &decision, step: same, window, topology, partners };
        let (deeds, last_plan) = told.deeds();
        self.last_plan = last_plan.into_iter().map(|deed| first.0 + deed).collect();
        self.story.deeds.extend(deeds);
        let done = first.0..self.story.deeds.len();
        if !done.is_empty() {
            self.unjudged.insert(decision.plan_number(), done.clone());
        }
        self.judge(place, &decision);
        self.story.moments.push(Moment {
            step: record.step,
            line: record.line,
            at_s: at.since(began).seconds(),
            known,
            plan: decision.plan_number(),
            differs,
            deeds: done,
            verdicts: first.1..self.story.verdicts.len(),
        });
    }

    /// What the time since the last look told, and what today's controller decides on it.
    fn decide_again(&mut self, input: Input) -> (Option<Model>, Option<Step>) {
        if let Some(controller) = &mut self.controller {
            let mut step = controller.step(input);
            return (step.window.take(), Some(step));
        }
        let now = input.observation;
        let previous = self.previous.take().filter(|_| !now.after_pause);
        let window = previous.map(|previous| {
            let (topology, settings) = (&self.story.header.topology, UpdateSettings::default());
            Model::between(topology, &previous, &now, &[], &settings)
        });
        self.previous = Some(now);
        (window, None)
    }

    fn judge(&mut self, place: usize, decision: &Decision) {
        for trial in decision.trials() {
            let verdict = Verdict::of(place, &trial);
            for plan in trial.plans {
                let Some(deeds) = self.unjudged.get(plan) else { continue };
                for deed in &mut self.story.deeds[deeds.clone()] {
                    if deed.is_tried() && deed.pid == Some(verdict.pid) {
                        deed.verdict = Some(self.story.verdicts.len());
                    }
                }
            }
            self.story.verdicts.push(verdict);
        }
    }

    /// The whole story.
    pub(crate) fn end(mut self, truncated: Option<Truncated>, panicked: Option<String>) -> Story {
        self.story.truncated = truncated;
        self.story.panicked = panicked;
        self.story
    }
}
