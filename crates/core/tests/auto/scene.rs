//! A machine, the policy, and a host that does what it is told or nothing; plans as lines of text.

use rondpoint_core::model::{App, Model, Thread, Touch, Traffic};
use rondpoint_core::plan::{
    Kind, Outcome, PageCounts, Permitted, Plan, Proposal, Refusal, Refused, StepResult,
};
use rondpoint_core::policy::POLICIES;
use rondpoint_core::policy::auto::Auto;
use rondpoint_core::policy::views::{Interval, View, Views};
use rondpoint_core::topology::synthetic;
use rondpoint_core::trial::{Comparison, Judged, Verdict};
use rondpoint_core::{Action, Bytes, Matrix, Nanos, Pid, Policy, Random, Reason, Tid, Topology};
use std::fmt::Write;
use std::rc::Rc;

/// What the host does with a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Host {
    /// All of it.
    Obeys,
    /// Nothing.
    Refuses,
}

pub(crate) struct World {
    pub(crate) topology: Topology,
    auto: Auto,
    random: Random,
    host: Host,
    plans: u64,
    lanes: Vec<Lane>,
    /// Until this time a trial makes all steps wait.
    pub(crate) trial_until: Nanos,
    /// Rates of samples that were proposed, with when.
    pub(crate) rates: Vec<String>,
}

/// What a lane has to decide on, and when it decided last.
#[derive(Default)]
struct Lane {
    decided_at: Option<Nanos>,
    seen: Option<Model>,
}

impl Lane {
    /// Adds an interval; gives all of them, and whether the lane decides.
    fn look(&mut self, model: &Model, period: Nanos) -> (bool, Model) {
        let begins = || Nanos(model.at.0.saturating_sub(model.elapsed.0));
        let decided_at = *self.decided_at.get_or_insert_with(begins);
        let seen = match self.seen.take() {
            Some(seen) => joined(&seen, model),
            None => model.clone(),
        };
        let early = (period.0 / 10).min(model.elapsed.0 / 2);
        let is_due = model.at.since(decided_at).0 >= period.0 - early;
        match is_due {
            true => self.decided_at = Some(model.at),
            false => self.seen = Some(seen.clone()),
        }
        (is_due, seen)
    }
}

/// The rates of the later interval, and what was sampled in both, of scenes in which the same
/// threads are there throughout.
fn joined(before: &Model, now: &Model) -> Model {
    let mut both = Model { elapsed: before.elapsed + now.elapsed, ..now.clone() };
    let names = |model: &Model| model.threads.iter().map(|one| one.tid).collect::<Vec<_>>();
    if names(before) != names(now) {
        return both;
    }
    let moved: Vec<_> =
        before.pages.iter().map(|page| both.pages.add(&page, page.app as u32)).collect();
    for touch in &before.touches {
        both.touches.push(Touch { page: moved[touch.page.0 as usize].expect("room"), ..*touch });
    }
    for (thread, before) in both.threads.iter_mut().zip(&before.threads) {
        let (Some(sum), Some(more)) = (&mut thread.accesses_by_node, &before.accesses_by_node)
        else {
            continue;
        };
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    both
}

impl World {
    pub(crate) fn new(topology: Topology, host: Host) -> Self {
        Self::of(Auto::default(), topology, host)
    }

    /// A world without one of the members of `auto`, for scenes of the others.
    pub(crate) fn without(member: &str, topology: Topology, host: Host) -> Self {
        let others = POLICIES.iter().filter(|policy| policy.name != member);
        let members = others.filter_map(|policy| policy.in_auto).map(|make| make()).collect();
        Self::of(Auto::with_members(members), topology, host)
    }

    fn of(auto: Auto, topology: Topology, host: Host) -> Self {
        let random = Random::new(1);
        let lanes = (0..auto.lanes()).map(|_| Lane::default()).collect();
        Self {
            topology,
            auto,
            random,
            host,
            plans: 0,
            lanes,
            trial_until: Nanos(0),
            rates: Vec::new(),
        }
    }

    /// One interval: the steps and the vetoed proposals, without sampling rates.
    pub(crate) fn decide(&mut self, model: &Model) -> (Vec<Proposal>, Vec<Refused>) {
        model.check(&self.topology).expect("a model without contradictions");
        let mut proposals = self.propose(model);
        let vetoed = self.auto.take_choice().refused;
        self.learn(proposals.clone());
        let second = model.at.0 / 1_000_000_000;
        let sampling = proposals.extract_if(.., |one| is_sampling(one));
        self.rates.extend(sampling.map(|one| format!("{second} s: {}", one.action)));
        (proposals, vetoed)
    }

    /// One interval: what is proposed and what is held back, in words.
    pub(crate) fn step(&mut self, model: &Model) -> String {
        let (proposals, vetoed) = self.decide(model);
        let mut out = String::new();
        for one in &proposals {
            writeln!(out, "{}: {}", one.policy, one.action).expect("text");
        }
        for held in vetoed {
            let (policy, action) = (held.proposal.policy, &held.proposal.action);
            let why = match held.refusal {
                Refusal::Worth { .. } => "it is not worth it".to_string(),
                other => other.to_string(),
            };
            writeln!(out, "held: {policy}: {action}; {why}").expect("text");
        }
        if out.is_empty() { "nothing\n".to_string() } else { out }
    }

    /// Asks the first lane, and the others that are due.
    fn propose(&mut self, model: &Model) -> Vec<Proposal> {
        let periods = (0..self.lanes.len()).map(|lane| self.auto.pace(lane).period);
        let mut periods: Vec<Nanos> = periods.collect();
        periods[0] = Nanos(0);
        let lanes = self.lanes.iter_mut().zip(periods);
        let looks: Vec<(bool, Model)> =
            lanes.map(|(lane, period)| lane.look(model, period)).collect();
        let view = |(is_due, model): (bool, Model)| View {
            is_due,
            interval: Rc::new(Interval::new(move || model.clone())),
        };
        let is_trial = model.at < self.trial_until;
        let permits = move |step: Proposal| match is_trial && !is_sampling(&step) {
            true => {
                let refused = vec![Refused { proposal: step, refusal: Refusal::TrialRunning }];
                Permitted { step: None, refused }
            }
            false => Permitted::all(step),
        };
        let views = Views::new(looks.into_iter().map(view).collect()).with_permits(&permits);
        self.auto.propose_due(&views, &self.topology, &mut self.random)
    }

    /// The shortest period of a lane.
    pub(crate) fn period(&self) -> Nanos {
        self.auto.period()
    }

    /// How long until the next lane is due.
    pub(crate) fn wait(&self) -> Nanos {
        let now = self.lanes.iter().filter_map(|lane| lane.decided_at).max().unwrap_or_default();
        let due = |(number, lane): (usize, &Lane)| {
            let decided_at = lane.decided_at.unwrap_or(now);
            (decided_at + self.auto.pace(number).period).since(now)
        };
        self.lanes.iter().enumerate().map(due).min().unwrap_or_default()
    }

    /// Says that a trial of a process ended so.
    pub(crate) fn judge(&mut self, pid: u32, kinds: &[Kind], verdict: Verdict) {
        let judged = Judged {
            pid: Pid(pid),
            policy: "gather",
            plans: vec![self.plans],
            kinds: kinds.to_vec(),
            verdict,
            comparison: Comparison::between(&[], &[]),
            predicted: None,
        };
        self.auto.judge(&[judged], Nanos(0));
    }

    pub(crate) fn is_under_way(&self, pid: u32) -> bool {
        self.auto.is_under_way(Pid(pid))
    }

    fn learn(&mut self, steps: Vec<Proposal>) {
        let results: Vec<StepResult> = steps.iter().map(|one| self.result(&one.action)).collect();
        self.tell(steps, results);
    }

    fn tell(&mut self, steps: Vec<Proposal>, results: Vec<StepResult>) {
        self.plans += 1;
        let plan = Plan { number: self.plans, steps, ..Plan::default() };
        let outcome = |(step, result)| Outcome {
            plan: self.plans,
            step,
            result,
            spent: Nanos::from_millis(1),
            frozen: Nanos(0),
        };
        let outcomes: Vec<Outcome> = results.into_iter().enumerate().map(outcome).collect();
        self.auto.learn(&plan, &outcomes);
    }

    fn result(&self, action: &Action) -> StepResult {
        match (self.host, action) {
            (Host::Refuses, _) => StepResult::Refused { errno: 1 },
            (_, Action::SetAffinity { .. } | Action::SetSampling { .. }) => StepResult::Done,
            _ => StepResult::Pages(PageCounts { moved: 1, ..PageCounts::default() }),
        }
    }

    /// Says that this was done.
    pub(crate) fn did(&mut self, action: Action, reason: Reason, moved: u64) {
        let result = match action {
            Action::SetAffinity { .. } => StepResult::Done,
            _ => StepResult::Pages(PageCounts { moved, ..PageCounts::default() }),
        };
        self.tell(vec![Proposal { policy: "test", action, reason }], vec![result]);
    }
}

fn is_sampling(proposal: &Proposal) -> bool {
    matches!(proposal.action, Action::SetSampling { .. })
}

/// A machine without known bandwidths.
pub(crate) fn machine(line: &str) -> Topology {
    Topology::new(synthetic::describe(line).expect("a machine")).expect("a machine")
}

/// An interval of a second.
pub(crate) fn second(second: u64, topology: &Topology) -> Model {
    let mut model = Model::empty(topology.node_count());
    model.at = Nanos::from_secs(second);
    model
}

/// A process since time zero with a thread on each of these CPUs, its memory in GB by node and its
/// requests/µs `from>to:rate`.
pub(crate) fn process<'a>(
    model: &'a mut Model,
    topology: &Topology,
    pid: u32,
    cpus: &[usize],
    memory_gb: &[f64],
    traffic: &str,
) -> &'a mut [Thread] {
    let first = model.threads.len();
    for &cpu in cpus {
        let tid = Tid(100 * pid + cpu as u32);
        model.threads.push(Thread::new(tid, model.apps.len(), cpu, topology.all_cpus()));
    }
    let mut app = App::new(Pid(pid), first..model.threads.len());
    let mut rates = Matrix::filled(topology.node_count(), 0.0);
    for word in traffic.split_whitespace() {
        let (pair, rate) = word.split_once(':').expect("pair:rate");
        let (from, to) = pair.split_once('>').expect("from>to");
        let node = |text: &str| text.parse::<usize>().expect("a node");
        rates[(node(from), node(to))] = rate.parse().expect("a rate");
    }
    app.traffic = (!traffic.is_empty()).then(|| Traffic::new(rates));
    let mut memory = vec![Bytes(0); topology.node_count()];
    for (bytes, gb) in memory.iter_mut().zip(memory_gb) {
        *bytes = Bytes((gb * 1e9) as u64);
    }
    app.memory = Some(memory);
    model.apps.push(app);
    &mut model.threads[first..]
}

/// Pages of the process of this index on `home`, each accessed twice by each of these nodes.
pub(crate) fn pages(model: &mut Model, app: u32, count: u64, home: u16, nodes: &[u16]) {
    let before = model.pages.len() as u64;
    for page in 1..=count {
        for &node in [nodes, nodes].concat().iter() {
            let address = (before + page) << 12;
            model.pages.record(app, address, 12, home, node, false).expect("room");
        }
    }
}
