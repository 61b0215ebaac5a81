//! The controller: each step takes an observation and returns a plan. It calls the model, the
//! trials, the policies and the guard in this order.
//!
//! All data enters through [`Input`]. So equal inputs, settings and seeds give equal plans, live,
//! simulated or replayed.

mod pending_samples;
mod slot;
mod starts;

use self::pending_samples::PendingSamples;
use self::slot::{Intervals, Scene as Shown, Slot};
use self::starts::Starts;
use crate::accounts::Accounts;
use crate::cost::{Partners, predicted};
use crate::counting_pause::{CountingPause, IDLE_CPUS, Quiet, Usual, Watch, is_dear};
use crate::guard::{Guard, GuardSettings, Scene, Site, Standing};
use crate::ledger::Ledger;
use crate::limits::TRIAL_WINDOW;
use crate::model::{App, Model, UpdateSettings};
use crate::observation::Observation;
use crate::plan::{Action, Kind, Outcome, Plan, Proposal, Reason, Refused, Sampling, Undo};
use crate::policy::Policy;
use crate::policy::views::{Interval, Views};
use crate::random::Random;
use crate::topology::Topology;
use crate::trial::{Judged, Trials, Verdict};
use crate::undo::keep_on_node;
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Settings of a controller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Seed of every random choice.
    pub seed: u64,
    /// Budgets and rules of the guard.
    pub guard: GuardSettings,
}

/// Input of a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Input {
    /// The machine now.
    pub observation: Observation,
    /// Results of the last plan's steps.
    pub outcomes: Vec<Outcome>,
}

/// Result of a step of the controller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// Steps to carry out now. The host writes their inverses to the ledger first.
    pub plan: Plan,
    /// Trials that ended.
    pub judged: Vec<Judged>,
    /// The window since the last observation; `None` at the first, and at the first after a pause.
    pub window: Option<Model>,
}

/// What the policies were shown and proposed in a step.
struct Decided {
    /// Trials that ended.
    judged: Vec<Judged>,
    proposals: Vec<Proposal>,
    /// The model of the last window, and of the other intervals that policies looked at.
    window: Model,
    intervals: Vec<Model>,
}

/// The policies, the guard and the state that they need from step to step.
pub struct Controller {
    topology: Topology,
    slots: Vec<Slot>,
    pending: PendingSamples,
    guard: Guard,
    ledger: Ledger,
    accounts: Accounts,
    trials: Trials,
    random: Random,
    previous: Option<Arc<Observation>>,
    starts: Starts,
    /// How often each process is sampled, and how many of its pages are tracked.
    sampling: BTreeMap<Option<Pid>, Sampling>,
    last_plan: Plan,
    plans: u64,
    quiet: Quiet,
    pause: Option<CountingPause>,
    usual: Usual,
    /// Time at which a waiting or pausing host observes again, if nothing changes before.
    returns_at: Nanos,
}

impl Controller {
    /// A controller that has seen nothing. Policies decide in the given order: the first has
    /// priority.
    #[must_use]
    pub fn new(topology: Topology, policies: Vec<Box<dyn Policy>>, settings: Settings) -> Self {
        let mut guard = Guard::new(settings.guard, topology.node_count());
        guard.expect_sampling(policies.iter().filter_map(|policy| policy.full_sampling()).min());
        Self {
            guard,
            topology,
            slots: policies.into_iter().map(Slot::new).collect(),
            pending: PendingSamples::default(),
            ledger: Ledger::default(),
            accounts: Accounts::default(),
            trials: Trials::default(),
            random: Random::new(settings.seed),
            previous: None,
            starts: Starts::default(),
            sampling: BTreeMap::new(),
            last_plan: Plan::default(),
            plans: 0,
            quiet: Quiet::default(),
            pause: None,
            usual: Usual::default(),
            returns_at: Nanos(0),
        }
    }

    /// As [`Controller::new`], with plan numbers that begin after `plans`. For a host whose ledger
    /// still has plans of another controller.
    #[must_use]
    pub fn numbered_after(mut self, plans: u64) -> Self {
        self.plans = plans;
        self
    }

    /// Makes one step. Learns the last outcomes, computes the window, judges trials and collects
    /// proposals. Lets the guard admit proposals and enters the plan into the ledger.
    pub fn step(&mut self, input: Input) -> Step {
        self.learn(&input.outcomes);
        self.pause = None;
        let observation = input.observation;
        let Some(previous) = self.previous.take() else {
            self.begin_window(observation, Slot::begin, Quiet::disturb);
            return Step::default();
        };
        if observation.after_pause && self.is_early(observation.at, previous.at) {
            return self.wake(observation);
        }
        if observation.after_pause {
            self.begin_window(observation, Slot::resume, Quiet::resume);
            return Step::default();
        }
        let Decided { mut judged, proposals, window, intervals } =
            self.decide(&previous, &observation);
        self.forget_gone(&window);
        let undo = self.undo(&mut judged, &window);
        let plan = self.admit(undo, proposals, &window, &intervals);
        self.keep(observation, &plan);
        self.usual.take_in(&window, plan.acts());
        self.pause = self.pause_after(&plan, &window, &previous);
        let wait = self.pause.as_ref().map_or_else(|| self.period(), |pause| pause.longest);
        self.returns_at = window.at + wait;
        Step { plan, judged, window: Some(window) }
    }

    /// The managed machine.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Cycles between samples at the highest rate that the policies will ask for, within the
    /// guard's budget. `None` if no policy declares a rate.
    #[must_use]
    pub fn full_sampling(&self) -> Option<u64> {
        self.guard.full_sampling(&self.topology)
    }

    /// Number of the last plan.
    #[must_use]
    pub fn last_plan_number(&self) -> u64 {
        self.plans
    }

    /// Sums of the actions done and the time spent.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// All present changes, so that they can be undone at the end.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Time until the next step. Without a trial that is the time until the next policy decides, so
    /// that observation costs little. During a trial it is one window, because a trial needs
    /// several windows before and after an action.
    #[must_use]
    pub fn period(&self) -> Nanos {
        let shortest = self.slots.iter().map(|slot| slot.policy.period()).min();
        let shortest = shortest.unwrap_or(Nanos::from_secs(1));
        let window = TRIAL_WINDOW.min(shortest);
        if self.trials.need_windows() {
            return window;
        }
        let now = self.previous.as_ref().map_or(Nanos(0), |previous| previous.at);
        let due = self.slots.iter().filter_map(Slot::due_at).min();
        due.map_or(shortest, |due| due.since(now)).max(window)
    }

    /// A pause of counting and the changes that would end it. `None`: go on counting.
    pub fn take_pause(&mut self) -> Option<CountingPause> {
        self.pause.take()
    }

    /// The changes that end the wait for the next step early. `None` if the wait is short anyway.
    pub fn take_watch(&mut self) -> Option<Watch> {
        let is_long = self.period() > TRIAL_WINDOW && self.guard.settings().act;
        self.usual.watch().filter(|_| is_long)
    }

    /// Whether the host observed again over a tenth of the wait too early. Then a change ended the
    /// wait.
    fn is_early(&self, now: Nanos, began: Nanos) -> bool {
        self.returns_at.since(now).0 > self.returns_at.since(began).0 / 10
    }

    /// The program has begun another phase: all policies and trials look closely again.
    fn wake(&mut self, observation: Observation) -> Step {
        let mut window = Model::empty(self.topology.node_count());
        window.at = observation.at;
        self.begin_window(observation, Slot::begin, Quiet::disturb);
        self.usual.wake(window.at);
        let wishes: Vec<Proposal> =
            self.slots.iter_mut().flat_map(|slot| slot.policy.wake()).collect();
        match wishes.is_empty() {
            true => Step::default(),
            false => Step { plan: self.admit(Vec::new(), wishes, &window, &[]), ..Step::default() },
        }
    }

    /// The pause of counting after this step; `None` = go on counting. A manager that may only
    /// observe goes on, because observing is its purpose. Without a running process a pause would
    /// save nothing.
    fn pause_after(
        &mut self,
        plan: &Plan,
        window: &Model,
        before: &Observation,
    ) -> Option<CountingPause> {
        let is_under_way = |app: &App| self.slots.iter().any(|s| s.policy.is_under_way(app.pid));
        let acts = plan.acts() || window.apps.iter().any(is_under_way);
        if acts || self.trials.need_windows() || !self.guard.settings().act {
            self.quiet.disturb(window.at);
            return None;
        }
        // While a process is sampled at the full rate, counting goes on. The quiet time keeps
        // running until the policy lowers the rate.
        let full = self.full_sampling();
        let is_full =
            |sampling: &Sampling| sampling.cycles().zip(full).is_some_and(|(c, f)| c <= f);
        if self.sampling.values().any(is_full) {
            return None;
        }
        let here = self.previous.as_ref()?;
        let settled = self.slots.iter().map(|slot| slot.policy.settles_within()).max();
        let dear = settled.filter(|_| is_dear(before, here));
        let watched = self.quiet.watched_since();
        let longest = self.quiet.pause(window.at, dear)?;
        let all_decided = self.slots.iter().all(|slot| slot.all_decided_after(watched));
        let cpus: BTreeMap<Pid, f64> =
            window.apps.iter().map(|app| (app.pid, app.cpu_percent / 100.0)).collect();
        // Births count too: a process that was born and ended between two looks used CPU time.
        let runs = here.births > Some(0) || cpus.values().any(|cpus| *cpus > IDLE_CPUS);
        (all_decided && runs)
            .then(|| CountingPause::new(longest, (before, here), cpus, self.usual.watch()))
    }

    fn learn(&mut self, outcomes: &[Outcome]) {
        let plan = core::mem::take(&mut self.last_plan);
        self.accounts.enter(&plan, outcomes);
        self.ledger.learn(&plan, outcomes);
        self.trials.learn(&plan, outcomes);
        self.slots.iter_mut().for_each(|slot| slot.policy.learn(&plan, outcomes));
    }

    /// Begins a window at an observation without a predecessor: the first one, or the first after a
    /// pause.
    fn begin_window(
        &mut self,
        mut observation: Observation,
        of_slot: fn(&mut Slot, &Arc<Observation>),
        of_quiet: fn(&mut Quiet, Nanos),
    ) {
        observation.samples = None;
        observation.hint_faults = None;
        let here = Arc::new(observation);
        self.slots.iter_mut().for_each(|slot| of_slot(slot, &here));
        of_quiet(&mut self.quiet, here.at);
        self.returns_at = here.at;
        self.previous = Some(here);
        self.returns_at += self.period();
    }

    /// Judges trials by the last window. Then asks each policy whose period is over for proposals.
    fn decide(&mut self, previous: &Observation, current: &Observation) -> Decided {
        let tracked_pages = self.sampling.values().filter_map(|sampling| sampling.tracked_pages());
        let tracked_pages = tracked_pages.max().unwrap_or(UpdateSettings::default().tracked_pages);
        let touches = self.slots.iter().any(|slot| slot.policy.wants_touches());
        let settings = UpdateSettings { tracked_pages, touches };
        let Self { slots, pending, topology, ledger, random, trials, guard, .. } = self;
        let shown = Shown { topology, current, pending, ledger, settings };
        let mut intervals = Intervals::default();
        let mut view = |slot: &mut Slot| {
            let is_due = slot.look(current.at, current.at.since(previous.at));
            is_due.then(|| slot.views(shown, &mut intervals))
        };
        let views: Vec<Option<Views<'_>>> = slots.iter_mut().map(&mut view).collect();
        let shared = intervals.since(previous.at);
        let own = Interval::new(|| {
            let settings = UpdateSettings { tracked_pages: 0, touches: false };
            Model::between(topology, previous, current, &[], &settings)
        });
        let window = shared.as_deref().unwrap_or(&own).model();
        let under_way = |pid| slots.iter().any(|slot| slot.policy.is_under_way(pid));
        let judged = trials.observe(window, under_way);
        slots.iter_mut().for_each(|slot| slot.policy.judge(&judged, window.at));
        let (running, unready) = (trials.running(), trials.unready());
        let standing =
            Standing { now: window.at, running: &running, unready: &unready, tried: trials };
        let site = Site { model: window, topology };
        let permits = |step: Proposal| guard.permit(step, &standing, site);
        let mut proposals = Vec::new();
        for (slot, views) in slots.iter_mut().zip(views) {
            let Some(views) = views else { continue };
            let views = views.with_permits(&permits);
            proposals.extend(slot.policy.propose_due(&views, topology, random));
        }
        drop(shared);
        let (window, intervals) = intervals.into_models(previous.at);
        let window = window.or_else(|| own.into_model());
        let window = window.unwrap_or_else(|| Model::empty(topology.node_count()));
        Decided { judged, proposals, window, intervals }
    }

    /// Starts a new interval for the lanes that decided. Keeps samples for the lanes that have not
    /// decided yet.
    fn keep(&mut self, mut observation: Observation, plan: &Plan) {
        let had_samples = observation.samples.is_some();
        self.pending.take(&mut observation);
        self.pending.forget_moved(&moved_pages(plan));
        let here = Arc::new(observation);
        let acts = plan.acts();
        self.slots.iter_mut().for_each(|slot| slot.end(&here, had_samples, acts));
        let served = self.slots.iter().map(Slot::served_until).min();
        self.pending.forget_until(served.unwrap_or(here.at));
        self.previous = Some(here);
    }

    /// Turns bad verdicts into proposals that undo the change, if the ledger has an inverse. Marks
    /// other changes as settled.
    fn undo(&mut self, judged: &mut [Judged], window: &Model) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for trial in judged {
            if trial.verdict == Verdict::Better {
                self.accounts.prove(trial.pid);
            }
            if !trial.verdict.is_undone() {
                self.ledger.settle(trial.pid, &trial.plans);
                continue;
            }
            self.guard.note_failure(trial.pid, &trial.kinds, window.at);
            let (change, noise) =
                trial.comparison.combined.map_or((0.0, 0.0), |c| (c.change, c.noise));
            let plan = trial.plans.first().copied().unwrap_or(0);
            let undo = |(policy, action)| Proposal {
                policy,
                action,
                reason: Reason::Undo(Undo { plan, change, noise }),
            };
            let back = self.ledger.undo(trial.pid, &trial.plans);
            if back.is_empty() {
                trial.verdict = Verdict::NoWayBack;
            }
            proposals.extend(back.into_iter().map(undo));
        }
        let is_left_alone = |pid| self.guard.has_given_up(pid);
        keep_on_node(&mut proposals, window, &self.topology, is_left_alone);
        proposals
    }

    fn admit(
        &mut self,
        undo: Vec<Proposal>,
        proposals: Vec<Proposal>,
        window: &Model,
        intervals: &[Model],
    ) -> Plan {
        let running = self.trials.running();
        let unready = self.trials.unready();
        let scene = Scene {
            model: window,
            topology: &self.topology,
            accounts: &self.accounts,
            standing: Standing {
                now: window.at,
                running: &running,
                unready: &unready,
                tried: &self.trials,
            },
            ledger: &self.ledger,
        };
        let proposals = undo.into_iter().chain(proposals).collect();
        let (steps, mut refused): (Vec<Proposal>, Vec<Refused>) =
            self.guard.admit(proposals, &scene);
        let acts = |one: &&Refused| one.proposal.action.kind() != Kind::Sampling;
        let cut: BTreeSet<Pid> =
            refused.iter().filter(acts).filter_map(|one| one.proposal.action.pid()).collect();
        let mut chosen_for = BTreeMap::new();
        for choice in self.slots.iter_mut().map(|slot| slot.policy.take_choice()) {
            refused.extend(choice.refused);
            chosen_for.extend(choice.predicted);
        }
        // A promise for steps of which the guard has refused a part is none for the rest.
        chosen_for.retain(|pid, _| !cut.contains(pid));
        self.plans += 1;
        let mut plan = Plan { number: self.plans, steps, refused, ..Plan::default() };
        plan.inverses = self.ledger.enter(&plan, window);
        if plan.acts() {
            plan.predicted = self.predicted(&plan, window, intervals, chosen_for);
        }
        for (pid, plans) in self.trials.begin(&plan) {
            self.ledger.settle(pid, &plans);
        }
        self.note_sampling(&plan);
        // Refused steps are for reports only.
        self.last_plan = Plan {
            number: plan.number,
            steps: plan.steps.clone(),
            inverses: plan.inverses.clone(),
            ..Plan::default()
        };
        plan
    }

    /// Change of speed that a plan is to bring to each process: the change for which a policy chose
    /// its steps (`chosen_for`). If it lacks a process, the cost model predicts that one.
    fn predicted(
        &self,
        plan: &Plan,
        window: &Model,
        intervals: &[Model],
        chosen_for: BTreeMap<Pid, f64>,
    ) -> BTreeMap<Pid, f64> {
        let acts = plan.steps.iter().filter(|step| step.action.kind() != Kind::Sampling);
        let mut pids = acts.filter_map(|step| step.action.pid());
        if pids.all(|pid| chosen_for.contains_key(&pid)) {
            return chosen_for;
        }
        let partners = self.partners();
        let mut all = predicted(window, intervals, &self.topology, &plan.steps, partners);
        all.extend(chosen_for);
        all
    }

    /// The threads that exchange data with each other, as far as samples named them.
    #[must_use]
    pub fn partners(&self) -> &Partners {
        let known = self.slots.iter().find_map(|slot| slot.policy.partners());
        known.unwrap_or(Partners::none())
    }

    fn note_sampling(&mut self, plan: &Plan) {
        for step in &plan.steps {
            if let Action::SetSampling { pid, sampling } = &step.action {
                self.sampling.insert(*pid, *sampling);
            }
        }
    }

    /// Forgets what concerns processes that are gone. A later process with the same number inherits
    /// nothing.
    fn forget_gone(&mut self, window: &Model) {
        let is_there = |pid| self.starts.is_there(pid, window);
        self.guard.forget_gone(is_there);
        self.ledger.forget_gone(window, is_there);
        self.accounts.forget_gone(is_there);
        self.sampling.retain(|pid, _| pid.is_none_or(is_there));
        self.starts.take_over(window);
    }
}

fn moved_pages(plan: &Plan) -> BTreeSet<(Pid, u64)> {
    let pages = |step: &Proposal| match &step.action {
        Action::MovePages { pid, pages, .. } => {
            pages.iter().map(|page| (*pid, page.address)).collect()
        }
        _ => Vec::new(),
    };
    plan.steps.iter().flat_map(pages).collect()
}
