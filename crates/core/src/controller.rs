//! One step: observation in, plan out. The only place that puts the stages in order.
//!
//! Everything that varies enters through [`Input`]: the same inputs, settings and seed give the
//! same plans, live, simulated or replayed.

use crate::accounts::Accounts;
use crate::guard::{Guard, GuardSettings, Scene};
use crate::ledger::Ledger;
use crate::limits::{HINT_FAULT_MEMORY, TRIAL_WINDOW, WATCH_BETWEEN_RESTS};
use crate::model::{App, Model, UpdateSettings};
use crate::observation::{Observation, Samples};
use crate::plan::{Action, Outcome, Plan, Proposal, Reason, Refused, Sampling, Undo};
use crate::policy::Policy;
use crate::random::Random;
use crate::rest::{IDLE_CPUS, Quiet, Rest, is_dear};
use crate::topology::Topology;
use crate::trial::{Judged, Trials, Verdict};
use crate::undo::keep_on_node;
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a controller is made with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Seed of every random choice.
    pub seed: u64,
    /// Budgets and rules.
    pub guard: GuardSettings,
}

/// What enters a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Input {
    /// The machine now.
    pub observation: Observation,
    /// What became of the last plan.
    pub outcomes: Vec<Outcome>,
}

/// What a step gives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// What to do now; its inverses are to be written down first.
    pub plan: Plan,
    /// Trials that ended.
    pub judged: Vec<Judged>,
    /// The window since the last observation; `None` at the first, and at the first after a rest.
    pub window: Option<Model>,
}

/// A policy and what came since it last decided.
struct Slot {
    policy: Box<dyn Policy>,
    /// What it measures begins here: where it decided last, or, if something was done then, where
    /// that was over.
    since: Arc<Observation>,
    /// When it decided last.
    decided_at: Nanos,
    samples: Samples,
    /// Samples that were decided on and are kept for the next decision, by when that was.
    remembered: Vec<(Nanos, Samples)>,
    /// By the observation that they came with.
    hint_faults: Vec<(Nanos, Samples)>,
    /// It decided in this step.
    decided: bool,
    /// It decided in the last step and something was done: what is measured until the next
    /// observation is still the old placement in part, and whoever took it for the new one would
    /// move too much.
    acted: bool,
}

/// The controller.
pub struct Controller {
    topology: Topology,
    slots: Vec<Slot>,
    guard: Guard,
    ledger: Ledger,
    accounts: Accounts,
    trials: Trials,
    random: Random,
    previous: Option<Arc<Observation>>,
    /// How often each process is sampled, and how many of its pages are tracked.
    sampling: BTreeMap<Option<Pid>, Sampling>,
    last_plan: Plan,
    plans: u64,
    quiet: Quiet,
    rest: Option<Rest>,
}

impl Controller {
    /// A controller that has seen nothing. Policies decide in the given order: the first has
    /// priority.
    #[must_use]
    pub fn new(topology: Topology, policies: Vec<Box<dyn Policy>>, settings: Settings) -> Self {
        let slot = |policy| Slot {
            policy,
            since: Arc::default(),
            decided_at: Nanos(0),
            samples: Samples::default(),
            remembered: Vec::new(),
            hint_faults: Vec::new(),
            decided: false,
            acted: false,
        };
        let mut guard = Guard::new(settings.guard, topology.node_count());
        guard.expect_sampling(policies.iter().filter_map(|policy| policy.full_sampling()).min());
        Self {
            guard,
            topology,
            slots: policies.into_iter().map(slot).collect(),
            ledger: Ledger::default(),
            accounts: Accounts::default(),
            trials: Trials::default(),
            random: Random::new(settings.seed),
            previous: None,
            sampling: BTreeMap::new(),
            last_plan: Plan::default(),
            plans: 0,
            quiet: Quiet::default(),
            rest: None,
        }
    }

    /// One step: learn, look, judge, propose, admit, write down.
    pub fn step(&mut self, input: Input) -> Step {
        self.learn(&input.outcomes);
        self.rest = None;
        let observation = input.observation;
        let Some(previous) = self.previous.take() else {
            return self.begin_window(observation, Slot::begin, Quiet::disturb);
        };
        if observation.after_rest {
            return self.begin_window(observation, Slot::resume, Quiet::resume);
        }
        let (proposals, window) = self.propose(&previous, &observation);
        let window = window.unwrap_or_else(|| {
            let settings = UpdateSettings { tracked_pages: 0, touches: false };
            Model::between(&self.topology, &previous, &observation, &[], &settings)
        });
        self.forget_gone(&window);
        let under_way = |pid| self.slots.iter().any(|slot| slot.policy.is_under_way(pid));
        let mut judged = self.trials.observe(&window, under_way);
        let undo = self.undo(&mut judged, &window);
        let plan = self.admit(undo, proposals, &window);
        self.keep(observation, &plan);
        self.rest = self.rest_after(&plan, &window, &previous);
        Step { plan, judged, window: Some(window) }
    }

    /// The machine that it manages.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Cycles between samples at the highest rate that its policies will ask for, as admitted;
    /// `None` where they do not say.
    #[must_use]
    pub fn full_sampling(&self) -> Option<u64> {
        self.guard.full_sampling(&self.topology)
    }

    /// What was done and spent.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What is changed at this moment, for putting it back at the end.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How long to wait for the next step: while all is quiet until the next policy wants to
    /// decide, so that watching costs little. A window when something is going on: a trial needs
    /// some before and after an action.
    #[must_use]
    pub fn period(&self) -> Nanos {
        let shortest = self.slots.iter().map(|slot| slot.policy.period()).min();
        let shortest = shortest.unwrap_or(Nanos::from_secs(1));
        let window = TRIAL_WINDOW.min(shortest);
        if self.trials.need_windows() {
            return window;
        }
        let now = self.previous.as_ref().map_or(Nanos(0), |previous| previous.at);
        let due = |slot: &Slot| (slot.decided_at + slot.policy.period()).since(now);
        self.slots.iter().map(due).min().unwrap_or(shortest).max(window)
    }

    /// For how long nobody needs to be counted, and what would end that; `None` = go on watching.
    pub fn take_rest(&mut self) -> Option<Rest> {
        self.rest.take()
    }

    /// Who may only watch goes on watching: that is what he was started for. Where nobody runs
    /// there is nothing to spare.
    fn rest_after(&mut self, plan: &Plan, window: &Model, before: &Observation) -> Option<Rest> {
        let is_under_way = |app: &App| self.slots.iter().any(|s| s.policy.is_under_way(app.pid));
        let acts = plan.acts() || window.apps.iter().any(is_under_way);
        if acts || self.trials.need_windows() || !self.guard.settings().act {
            self.quiet.disturb(window.at);
            return None;
        }
        // A closer look that finds nothing to do is over when its policy says so, and then it was
        // quiet all the while.
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
        let longest = self.quiet.rest(window.at, dear)?;
        let all_decided = self.slots.iter().all(|slot| slot.decided_at > watched);
        let cpus: BTreeMap<Pid, f64> =
            window.apps.iter().map(|app| (app.pid, app.cpu_percent / 100.0)).collect();
        // Who is gone by the next look may have run all the while.
        let runs = here.births > Some(0) || cpus.values().any(|cpus| *cpus > IDLE_CPUS);
        (all_decided && runs).then(|| Rest::new(longest, (before, here), cpus))
    }

    fn learn(&mut self, outcomes: &[Outcome]) {
        let plan = core::mem::take(&mut self.last_plan);
        self.accounts.enter(&plan, outcomes);
        self.ledger.learn(&plan, outcomes);
        self.trials.learn(&plan, outcomes);
        self.slots.iter_mut().for_each(|slot| slot.policy.learn(&plan, outcomes));
    }

    /// An observation from which on there is something to compare with: the first, or the first
    /// after a rest.
    fn begin_window(
        &mut self,
        mut observation: Observation,
        of_slot: fn(&mut Slot, &Arc<Observation>),
        of_quiet: fn(&mut Quiet, Nanos),
    ) -> Step {
        let here = Arc::new(without_samples(&mut observation));
        self.slots.iter_mut().for_each(|slot| of_slot(slot, &here));
        of_quiet(&mut self.quiet, here.at);
        self.previous = Some(here);
        Step::default()
    }

    /// Asks each policy whose period is over. Also gives the model of the last window, if one was
    /// made for that.
    fn propose(
        &mut self,
        previous: &Observation,
        current: &Observation,
    ) -> (Vec<Proposal>, Option<Model>) {
        let tracked_pages = self.sampling.values().filter_map(|sampling| sampling.tracked_pages());
        let tracked_pages = tracked_pages.max().unwrap_or(UpdateSettings::default().tracked_pages);
        let touches = self.slots.iter().any(|slot| slot.policy.wants_touches());
        let settings = UpdateSettings { tracked_pages, touches };
        let mut proposals = Vec::new();
        let mut models: Vec<(Nanos, Model)> = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| slot.is_due(current.at)) {
            let since = slot.since.at;
            if !models.iter().any(|(of, _)| *of == since) {
                let earlier = slot.earlier();
                let model =
                    Model::between(&self.topology, &slot.since, current, &earlier, &settings);
                models.push((since, model));
            }
            let model = models.iter().find(|(of, _)| *of == since).map(|(_, model)| model);
            if let Some(model) = model {
                proposals.extend(slot.policy.propose(model, &self.topology, &mut self.random));
            }
            slot.decided = true;
        }
        let window = models.into_iter().find(|(since, _)| *since == previous.at);
        (proposals, window.map(|(_, model)| model))
    }

    /// Policies that decided start over; the others keep the samples for later.
    fn keep(&mut self, mut observation: Observation, plan: &Plan) {
        let moved = moved_pages(plan);
        for slot in &mut self.slots {
            slot.collect(&observation);
            slot.forget_moved(&moved);
        }
        let bare = Arc::new(without_samples(&mut observation));
        let acts = plan.acts();
        for slot in &mut self.slots {
            if slot.acted {
                slot.since = Arc::clone(&bare);
            }
            slot.acted = slot.decided && acts;
            if slot.decided {
                slot.begin(&bare);
            }
            slot.decided = false;
        }
        self.previous = Some(bare);
    }

    /// Turns bad verdicts into proposals that undo, as far as there is a way back, and settles the
    /// others.
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
            let undo = |action| Proposal {
                policy: trial.policy,
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

    fn admit(&mut self, undo: Vec<Proposal>, proposals: Vec<Proposal>, window: &Model) -> Plan {
        let running = self.trials.running();
        let unready = self.trials.unready();
        let scene = Scene {
            model: window,
            topology: &self.topology,
            accounts: &self.accounts,
            trials: &running,
            unready: &unready,
            ledger: &self.ledger,
        };
        let proposals = undo.into_iter().chain(proposals).collect();
        let (steps, mut refused): (Vec<Proposal>, Vec<Refused>) =
            self.guard.admit(proposals, &scene);
        refused.extend(self.slots.iter_mut().flat_map(|slot| slot.policy.take_held()));
        self.plans += 1;
        let mut plan = Plan { number: self.plans, steps, inverses: Vec::new(), refused };
        plan.inverses = self.ledger.enter(&plan, window);
        self.trials.begin(&plan);
        self.note_sampling(&plan);
        // What was refused is for reports only.
        self.last_plan = Plan {
            number: plan.number,
            steps: plan.steps.clone(),
            inverses: plan.inverses.clone(),
            refused: Vec::new(),
        };
        plan
    }

    fn note_sampling(&mut self, plan: &Plan) {
        for step in &plan.steps {
            if let Action::SetSampling { pid, sampling } = &step.action {
                self.sampling.insert(*pid, *sampling);
            }
        }
    }

    fn forget_gone(&mut self, window: &Model) {
        self.guard.forget_gone(window);
        self.ledger.forget_gone(window);
        self.accounts.forget_gone(window);
        self.sampling.retain(|pid, _| pid.is_none_or(|pid| window.app(pid).is_some()));
    }
}

impl Slot {
    /// It has decided on everything up to here.
    fn begin(&mut self, here: &Arc<Observation>) {
        self.since = Arc::clone(here);
        self.decided_at = here.at;
    }

    /// Counting goes on here after a rest. It decides again when it has seen enough, however long
    /// its period is.
    fn resume(&mut self, here: &Arc<Observation>) {
        let period = self.policy.period();
        self.since = Arc::clone(here);
        self.samples = Samples::default();
        self.acted = false;
        let early = period.since(WATCH_BETWEEN_RESTS);
        self.decided_at = Nanos(here.at.0.saturating_sub(early.0));
    }

    /// Whether its period is over, give or take a tenth: a host that wakes a little early would
    /// else halve the rate of decisions.
    fn is_due(&self, now: Nanos) -> bool {
        let period = self.policy.period();
        now.since(self.decided_at).0 >= period.0 - period.0 / 10
    }

    /// What came before the current observation and belongs to the policy's interval.
    fn earlier(&self) -> Vec<&Samples> {
        let kept = self.remembered.iter().chain(&self.hint_faults).map(|(_, samples)| samples);
        core::iter::once(&self.samples).chain(kept).collect()
    }

    /// Keeps samples for a policy that has yet to decide. Hint faults are kept longer where they
    /// are the only sensor: the kernel makes one for a page in a pass over the memory, which says
    /// nothing about who shares it.
    fn collect(&mut self, observation: &Observation) {
        if let Some(new) = &observation.samples {
            self.samples.list.extend_from_slice(&new.list);
            self.samples.lost += new.lost;
            self.samples.throttled |= new.throttled;
            self.samples.period = new.period;
        }
        if self.decided {
            let samples = core::mem::take(&mut self.samples);
            let memory = self.policy.sample_memory();
            // What was decided on now is an interval old when it is wanted again.
            self.remembered.retain(|(at, _)| observation.at.since(*at) < memory);
            if memory > Nanos(0) {
                self.remembered.push((observation.at, samples));
            }
        }
        let memory = match (self.decided, &observation.samples) {
            (true, Some(_)) => Nanos(0),
            _ => HINT_FAULT_MEMORY,
        };
        self.hint_faults.retain(|(at, _)| observation.at.since(*at) < memory);
        if let Some(new) = observation.hint_faults.as_ref().filter(|_| memory > Nanos(0)) {
            self.hint_faults.push((observation.at, new.clone()));
        }
    }

    /// What was seen of a page before it moved says where it was.
    fn forget_moved(&mut self, moved: &BTreeSet<(Pid, u64)>) {
        if moved.is_empty() {
            return;
        }
        for (_, samples) in self.remembered.iter_mut().chain(&mut self.hint_faults) {
            samples.list.retain(|sample| !moved.contains(&(sample.pid, sample.page_address())));
        }
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

/// Takes the samples out, which nobody needs any more, and gives the rest.
fn without_samples(observation: &mut Observation) -> Observation {
    observation.samples = None;
    observation.hint_faults = None;
    core::mem::take(observation)
}
