//! The running machine as the loop's host: it waits, observes, writes inverses to the ledger, and
//! acts.
//!
//! [`Watched`] provides the observed processes and the work during a wait. `run` and `attach` have
//! one program; the daemon has many, which start and end.

mod clocks;
mod glances;
pub(crate) mod own_instructions;
mod rates;
mod sampling_budget;
pub(crate) mod trees;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_core::controller::Step;
use rondpoint_core::counting_pause::{CountingPause, Glance, Watch};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::Host;
use rondpoint_core::limits::GLANCE;
use rondpoint_core::plan::{Action, Kind, Outcome, Proposal, Reason, StepResult};
use rondpoint_core::{Nanos, Observation, Pid, Plan, Topology};
use rondpoint_linux::LinuxError;
use rondpoint_linux::act::threads::Restored;
use rondpoint_linux::observe::sampler::Rate;
use rondpoint_linux::observe::{Look, Observer};

use self::clocks::Clocks;
use self::glances::Glances;
use self::own_instructions::OwnInstructions;
use self::rates::Rates;
use self::sampling_budget::{Change, Levels, Window};
use self::trees::Trees;
use crate::session::{self, Turn};

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Its time is over.
    Passed,
    /// The program does something else now.
    Changed,
    /// The program has ended.
    Ended,
}

/// The processes that are watched.
pub(crate) trait Watched {
    /// What watches.
    fn observer(&mut self) -> &mut Observer;

    /// The rates that the budget of samples lowers and raises.
    fn levels(&mut self) -> &mut dyn Levels {
        self.observer()
    }

    /// Waits until `deadline` or for the end of it all; the sensors' rings are emptied meanwhile,
    /// and trees may come and go.
    ///
    /// # Errors
    /// The wait itself fails.
    fn wait(&mut self, trees: &mut Trees, deadline: Instant) -> Result<Turn>;

    /// Whether a plan may be carried out now.
    fn may_act(&self) -> bool {
        true
    }

    /// Called often while memory moves, which may take long: whether something has come that ends
    /// the move.
    fn is_called(&mut self) -> bool;

    /// Whether a process may be changed now. Asked before each plan that changes it.
    fn may_change(&mut self, _pid: Pid) -> bool {
        true
    }
}

/// Managed programs on the running machine.
pub(crate) struct LiveHost<W> {
    pub(crate) watched: W,
    pub(crate) trees: Trees,
    topology: Topology,
    rates: Rates,
    first: Option<Look>,
    began: Instant,
    deadline: Option<Instant>,
    last_look: Option<Instant>,
    clocks: Clocks,
    /// What the last look told that a glance tells too.
    seen: Glance,
    glances: Glances,
    /// As the guard's setting.
    samples_per_s_per_cpu: u32,
    /// Counts nothing unless it is asked to.
    pub(crate) own_instructions: OwnInstructions,
    /// Time in which nothing was counted.
    pub(crate) rested: Duration,
    /// Sentences on what went wrong on the way; nothing of it ends the program.
    pub(crate) notes: Vec<String>,
}

impl<W: Watched> LiveHost<W> {
    /// `first` is the look from before the program ran, from `began` on; `full_sampling` as the
    /// controller's.
    pub(crate) fn new(
        mut watched: W,
        trees: Trees,
        (first, began): (Look, Instant),
        guard: &GuardSettings,
        full_sampling: Option<u64>,
    ) -> Self {
        let topology = watched.observer().machine().topology.clone();
        Self {
            watched,
            trees,
            topology,
            began,
            rates: Rates { fastest: full_sampling, ..Rates::default() },
            first: Some(first),
            deadline: None,
            last_look: None,
            clocks: Clocks::default(),
            seen: Glance::default(),
            glances: Glances::default(),
            samples_per_s_per_cpu: guard.samples_per_s_per_cpu,
            own_instructions: OwnInstructions::default(),
            rested: Duration::ZERO,
            notes: Vec::new(),
        }
    }

    /// From now on the budget of samples is that of a new controller; arguments as in
    /// [`LiveHost::new`].
    pub(crate) fn keep_to(&mut self, guard: &GuardSettings, full_sampling: Option<u64>) {
        self.samples_per_s_per_cpu = guard.samples_per_s_per_cpu;
        self.rates.fastest = full_sampling;
    }

    /// Every thread of the tree gets back the mask that it had.
    pub(crate) fn put_back_masks(&mut self) -> Restored {
        // A process born since the last look may have lost the parent that would lead to it.
        if self.trees.has_changed_masks() {
            let observer = self.watched.observer();
            observer.look_again_at_all();
            match observer.observe() {
                // Where a ledger cannot be written, masks are put back all the same.
                Ok(mut look) => {
                    let (origins, all) = (observer.origins(), BTreeSet::new());
                    let _ = self.trees.follow(&mut look.observation, origins, &all);
                }
                // Putting back needs descriptors too.
                Err(_) => observer.let_go(),
            }
        }
        self.trees.restore_masks()
    }

    /// Takes the ledger away: everything that had to be put back has been.
    pub(crate) fn close(self) -> Result<()> {
        self.trees.close()
    }

    /// `period` is the length of the window that was wanted.
    fn take_in(&mut self, mut look: Look, period: Nanos) -> Observation {
        let now = Instant::now();
        if let Some(last) = self.last_look.replace(now) {
            self.keep_to_budget(&look, now - last);
        }
        self.spare_the_newborn();
        self.seen = std::mem::take(&mut look.glance);
        let mut observation = std::mem::take(&mut look.observation);
        observation.after_pause |= self.clocks.are_torn(period);
        let observer = self.watched.observer();
        let followed = self.trees.follow(&mut observation, observer.origins(), observer.still());
        if let Err(error) = followed {
            self.note(format!("a process born with a changed mask is not written down: {error}"));
        }
        let there = observation.processes.iter().map(|process| process.pid).collect();
        if let Some(rate) = self.rates.forget_gone(&there) {
            let result = self.watched.observer().set_rate(rate).map(|_| ());
            self.note_failure("setting the rate of sampling", result);
        }
        observation
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    fn note_failure(&mut self, what: &str, result: Result<(), LinuxError>) {
        if let Err(error) = result {
            self.note(format!("{what}: {error}"));
        }
    }

    fn keep_to_budget(&mut self, look: &Look, elapsed: Duration) {
        let Some(samples) = &look.observation.samples else { return };
        // An interrupt is one whatever process it came in.
        let taken = samples.list.len() as f64 + (samples.lost + look.samples_of_others) as f64;
        let window = Window { samples: taken, reading: look.reading_samples, elapsed };
        let per_s = f64::from(self.samples_per_s_per_cpu) * self.topology.cpu_count() as f64;
        let change = window.change(per_s);
        let wanted = self.rates.wanted();
        let levels = self.watched.levels();
        let changed = match change {
            Change::Lower => levels.lower(),
            // A low rate that a policy asked for says nothing of the full one.
            Change::Raise => wanted == Rate::Full && levels.raise(),
            Change::Keep => false,
        };
        if !changed {
            return;
        }
        let result = levels.set(wanted);
        self.note_failure("setting the rate of sampling", result);
        if change == Change::Lower {
            self.note("more samples than the budget allows: fewer while there are".to_string());
        }
    }

    fn spare_the_newborn(&mut self) {
        let observer = &mut self.watched.observer();
        if !observer.inheriting_costs_much() {
            return;
        }
        let many = "the program starts so many processes that inherited counters slow it";
        let note = match observer.watch_all_tasks() {
            Ok(()) => format!("{many}: counts are those of the whole machine from now on"),
            Err(error) => format!("{many}; the whole machine is not counted instead: {error}"),
        };
        self.note(note);
    }

    /// Glances until something changes, at the latest until `deadline`.
    fn changes_before(&mut self, deadline: Instant, watch: &mut Watch) -> Result<Wait> {
        watch.begin(self.seen.clone());
        self.glances.begin();
        let busy = watch.busy();
        loop {
            let until = (Instant::now() + self.glances.pause()).min(deadline);
            if self.watched.wait(&mut self.trees, until)? == Turn::Over {
                return Ok(Wait::Ended);
            }
            if Instant::now() >= deadline {
                return Ok(Wait::Passed);
            }
            let (glance, has_begun) = self.glances.glance(self.watched.observer(), watch, &busy)?;
            if has_begun || watch.is_disturbed_by(glance) {
                return Ok(Wait::Changed);
            }
        }
    }

    fn act(&mut self, plan: &Plan, step: usize) -> Outcome {
        let action = &plan.steps[step].action;
        if let Action::SetSampling { pid, sampling } = action {
            let rate = self.rates.note(*pid, *sampling);
            let result = match self.watched.observer().set_rate(rate) {
                Ok(true) => StepResult::Done,
                Ok(false) => StepResult::Unsupported,
                Err(error) => refused(&error),
            };
            return outcome(plan, step, result);
        }
        let watched = &mut self.watched;
        let outcome = self.trees.act(plan, step, &mut || watched.is_called());
        if let Some(pid) = action.pid() {
            self.watched.observer().look_again_at(pid);
        }
        outcome
    }

    /// Writes the plan's inverse down, then does each of its steps.
    fn carry_out(&mut self, step: &Step) -> Vec<Outcome> {
        let plan = &step.plan;
        let all = 0..plan.steps.len();
        if !self.watched.may_act() {
            let refused = || StepResult::Refused { errno: EPERM };
            return all.map(|index| outcome(plan, index, refused())).collect();
        }
        if let Err(error) = self.trees.write_down(step) {
            // What cannot be put back is not done; the program runs on.
            self.note(format!("nothing is changed: {error}"));
            return all.map(|index| outcome(plan, index, refused(&error))).collect();
        }
        let closed = self.closed_to(plan);
        let is_closed = |index: usize| {
            let Proposal { action, reason, .. } = &plan.steps[index];
            let is_change = action.kind() != Kind::Sampling && !matches!(reason, Reason::Undo(_));
            is_change && action.pid().is_some_and(|pid| closed.contains(&pid))
        };
        let mut outcomes = Vec::new();
        for index in all {
            outcomes.push(match is_closed(index) {
                true => outcome(plan, index, StepResult::Refused { errno: EPERM }),
                false => self.act(plan, index),
            });
        }
        outcomes
    }

    /// Processes of a plan that may not be changed.
    fn closed_to(&mut self, plan: &Plan) -> BTreeSet<Pid> {
        let pids: BTreeSet<Pid> = plan.steps.iter().filter_map(|step| step.action.pid()).collect();
        pids.into_iter().filter(|pid| !self.watched.may_change(*pid)).collect()
    }
}

impl<W: Watched> Host for LiveHost<W> {
    type Error = anyhow::Error;

    fn observe(&mut self, period: Nanos) -> Result<Option<Observation>> {
        if let Some(first) = self.first.take() {
            self.deadline = Some(self.began);
            return Ok(Some(self.take_in(first, period)));
        }
        let began = self.deadline.unwrap_or_else(Instant::now);
        let deadline = session::next(began, Duration::from_nanos(period.0));
        self.deadline = Some(deadline);
        if self.watched.wait(&mut self.trees, deadline)? == Turn::Over {
            return Ok(None);
        }
        let look = self.watched.observer().observe()?;
        Ok(Some(self.take_in(look, period)))
    }

    fn wait(&mut self, mut watch: Watch, period: Nanos) -> Result<Option<Observation>> {
        let began = self.deadline.unwrap_or_else(Instant::now);
        let deadline = session::next(began, Duration::from_nanos(period.0));
        self.deadline = Some(deadline);
        let changed = match self.changes_before(deadline, &mut watch)? {
            Wait::Ended => return Ok(None),
            Wait::Changed => true,
            Wait::Passed => false,
        };
        if changed {
            self.deadline = Some(Instant::now());
        }
        let look = self.watched.observer().observe()?;
        let mut observation = self.take_in(look, period);
        observation.after_pause |= changed;
        Ok(Some(observation))
    }

    fn pause_counting(
        &mut self,
        mut pause: CountingPause,
        period: Nanos,
    ) -> Result<Option<Observation>> {
        if !self.watched.observer().can_pause() {
            return self.observe(period);
        }
        let paused = self.watched.observer().pause();
        self.note_failure("counting goes on during pauses", paused);
        let began = Instant::now();
        let longest = Duration::from_nanos(pause.longest.0);
        let goes_on = loop {
            let next = Duration::from_nanos(GLANCE.0).min(longest.saturating_sub(began.elapsed()));
            let waited = match &mut pause.watch {
                Some(watch) => self.changes_before(Instant::now() + next, watch)?,
                None => Wait::Passed,
            };
            let left = match (waited, &pause.watch) {
                (Wait::Ended, _) => break false,
                (Wait::Passed, None) => next,
                _ => Duration::ZERO,
            };
            self.deadline = Some(Instant::now());
            let seen = self.observe(Nanos(left.as_nanos() as u64))?;
            let disturbed = waited == Wait::Changed
                || seen.as_ref().is_none_or(|seen| pause.is_disturbed_by(seen, &self.topology));
            if disturbed || began.elapsed() >= longest {
                break seen.is_some();
            }
        };
        self.rested += began.elapsed();
        if !goes_on {
            return Ok(None);
        }
        let resumed = self.watched.observer().resume();
        self.note_failure("not all is counted since a pause", resumed);
        self.deadline = Some(Instant::now());
        let look = self.watched.observer().observe()?;
        Ok(Some(self.take_in(look, period)))
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>> {
        let began = self.own_instructions.all();
        let outcomes = self.carry_out(step);
        self.own_instructions.acted_since(began);
        Ok(outcomes)
    }
}

/// Number of errno(3), the same on x86-64 and arm64: where an error has none of the kernel's.
const EIO: i32 = 5;
/// We were told to change nothing.
const EPERM: i32 = 1;

fn refused(error: &LinuxError) -> StepResult {
    StepResult::Refused { errno: error.errno().unwrap_or(EIO) }
}

fn outcome(plan: &Plan, step: usize, result: StepResult) -> Outcome {
    Outcome { plan: plan.number, step, result, spent: Nanos(0), frozen: Nanos(0) }
}

#[cfg(test)]
mod tests;
