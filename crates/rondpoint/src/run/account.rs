//! Sums of a managed run for the report, collected by a witness of the loop.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::accounts::{Account, Accounts};
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::cost::{CopiesFromStart, Interval, SpreadFromStart};
use rondpoint_core::host::Witness;
use rondpoint_core::model::Rung;
use rondpoint_core::observation::SharedObject;
use rondpoint_core::plan::{Action, Outcome, PageCounts, Reason, Refusal, StepResult};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_core::{CpuSet, Model, Nanos, Pid, Topology};
use serde::Serialize;

use super::files_read::{CopiesWorth, FilesRead, Fullest};
use super::period::{Counting, Period};

/// Steps that are described in words; later ones are only counted.
const DESCRIBED_STEPS: usize = 200;
/// Least length of what the report compares with the time before, seconds (our choice). A single
/// window of a quarter of a second may have a handful of samples.
const LEAST_AFTER_S: f64 = 1.0;
/// Bytes of a base page, in which pages are counted.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Everything that is told at the end.
#[derive(Default)]
pub(super) struct Diary {
    began: Option<Nanos>,
    pub(super) plans: u64,
    pub(super) accounts: Accounts,
    pub(super) judged: Vec<(f64, Judged)>,
    pub(super) first_action_s: Option<f64>,
    /// Plans that moved something, with their time; at most [`DESCRIBED_STEPS`].
    acting: Vec<(u64, f64)>,
    pub(super) last_action_s: Option<f64>,
    /// The windows before the first action.
    pub(super) before: Period,
    /// Those after an action, without its own. It begins anew at an action once it has
    /// [`LEAST_AFTER_S`].
    since: Period,
    /// The last that ended so.
    earlier: Period,
    pub(super) refused: BTreeMap<String, u64>,
    pub(super) steps: Vec<StepLine>,
    /// The policy that last set a sampling rate, and its reason.
    pub(super) last_reason: Option<(&'static str, String)>,
    /// The most that a manager that only watches wanted in one step.
    pub(super) wanted: Wanted,
    /// Pages that went back because a trial found their move worse; moved pages include them.
    pub(super) pages_back: u64,
    /// The sensors that fed a window.
    pub(super) rungs: BTreeSet<Rung>,
    /// Looks at the program, and samples that they brought.
    pub(super) looks: u64,
    pub(super) samples: u64,
    confidence: (f64, u64),
    counting: Counting,
    /// The last window was an action's own.
    acted: bool,
    /// The machine, where it is known, and what spread memory would have won on it.
    topology: Option<Topology>,
    spread: SpreadFromStart,
    /// What copies of files would have won, where that is asked.
    files: Option<FilesRead>,
    copies: CopiesFromStart,
}

/// Pages and threads that a step would have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    pub(super) pages: u64,
    pub(super) threads: u64,
}

/// One step of a plan, as a sentence with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StepLine {
    pub(super) at_s: f64,
    pub(super) plan: u64,
    pub(super) policy: &'static str,
    pub(super) action: String,
    pub(super) reason: String,
    pub(super) outcome: String,
    /// It sets the sampling rate and moves nothing.
    #[serde(skip)]
    pub(super) is_sampling: bool,
    /// The process and its new CPUs, for grouping threads that got the same.
    #[serde(skip)]
    pub(super) mask: Option<(Pid, String)>,
}

impl Diary {
    /// An empty one, for a run on this machine.
    pub(super) fn on(topology: Topology) -> Self {
        Self { topology: Some(topology), ..Self::default() }
    }

    /// The same, which also finds out what copies of these files would win.
    pub(super) fn asking_for_copies(mut self, files: Vec<SharedObject>) -> Self {
        self.files = (!files.is_empty()).then(|| FilesRead::of(files));
        self
    }

    /// What the samples tell of copies of the files; `None` where nobody asked or nothing was seen.
    pub(super) fn copies_from_start(&self) -> Option<CopiesWorth> {
        let share = self.files.as_ref()?.share()?;
        // A run that asks moves nothing, so all its windows are those before an action.
        let traffic = self.before.traffic();
        let fullest = traffic.and_then(|all| Fullest::of(&all, self.topology.as_ref()?));
        Some(CopiesWorth { share, gain: self.copies.gain()?, fullest })
    }

    /// What memory spread over all nodes from the program's start would have won, in relative
    /// speed; 0.1 = 10 % faster.
    pub(super) fn spread_from_start(&self) -> Option<Interval> {
        self.spread.gain()
    }

    /// Accounts of all processes together.
    pub(super) fn total(&self) -> Account {
        let mut sum = Account::default();
        for (_, account) in self.accounts.iter() {
            for (to, from) in [
                (&mut sum.colocated, &account.colocated),
                (&mut sum.interleaved, &account.interleaved),
                (&mut sum.followed, &account.followed),
                (&mut sum.replicated, &account.replicated),
                (&mut sum.dropped, &account.dropped),
                (&mut sum.bulk, &account.bulk),
            ] {
                to.add(from);
            }
            sum.threads += account.threads;
            sum.refused += account.refused;
            sum.gone += account.gone;
            sum.spent += account.spent;
            sum.frozen += account.frozen;
        }
        sum
    }

    /// Mean confidence of the windows.
    pub(super) fn confidence(&self) -> Option<f64> {
        (self.confidence.1 > 0).then(|| self.confidence.0 / self.confidence.1 as f64)
    }

    /// The best sensor that fed a window. It need not feed all of them: hint faults come in bursts,
    /// and samples are off while nothing is jammed.
    pub(super) fn rung(&self) -> Option<Rung> {
        self.rungs.first().copied()
    }

    /// The clock at the first look, seconds since boot.
    pub(super) fn began_s(&self) -> Option<f64> {
        self.began.map(Nanos::seconds)
    }

    /// When something was moved first that no trial judged worse, seconds from the first
    /// look.
    pub(super) fn first_kept_action_s(&self) -> Option<f64> {
        let judged = self.judged.iter().map(|(_, one)| (one.verdict, &one.plans[..]));
        first_kept(&self.acting, judged)
    }

    fn seconds(&self, at: Nanos) -> f64 {
        self.began.map_or(0.0, |began| at.since(began).seconds())
    }

    pub(super) fn take_in(&mut self, window: &Model) {
        self.rungs.insert(window.sensing.rung);
        self.confidence = (self.confidence.0 + window.sensing.confidence, self.confidence.1 + 1);
        let is_counted = self.counting.is_whole(window);
        if let Some(topology) = &self.topology {
            self.spread.observe(window, topology);
            if let Some(files) = &self.files {
                self.copies.observe(window, topology, &files.shares());
            }
        }
        if self.first_action_s.is_none() {
            self.before.add(window, is_counted);
        } else if !std::mem::take(&mut self.acted) {
            self.since.add(window, is_counted);
        } else if self.since.seconds >= LEAST_AFTER_S {
            self.earlier = std::mem::take(&mut self.since);
        }
    }

    /// The windows after the last action, and those after actions that came less than
    /// [`LEAST_AFTER_S`] later. Where these are shorter, the period before them too.
    pub(super) fn after(&self) -> Period {
        let mut after = self.since.clone();
        if after.seconds < LEAST_AFTER_S {
            after.join(&self.earlier);
        }
        after
    }

    fn describe(&mut self, step: &Step, outcomes: &[Outcome], at: f64) {
        for (index, proposal) in step.plan.steps.iter().enumerate() {
            let outcome = outcomes.iter().find(|outcome| outcome.step == index);
            if let (Reason::Undo(_), Some(StepResult::Pages(counts))) =
                (&proposal.reason, outcome.map(|outcome| &outcome.result))
            {
                self.pages_back += counts.moved;
            }
            let outcome = outcome.map_or_else(String::new, |outcome| told(&outcome.result));
            let is_sampling = matches!(proposal.action, Action::SetSampling { .. });
            if is_sampling {
                self.last_reason = Some((proposal.policy, self.told_reason(&proposal.reason)));
            }
            if self.steps.len() < DESCRIBED_STEPS {
                self.steps.push(StepLine {
                    at_s: at,
                    plan: step.plan.number,
                    policy: proposal.policy,
                    action: self.told_action(&proposal.action),
                    reason: self.told_reason(&proposal.reason),
                    outcome,
                    is_sampling,
                    mask: match &proposal.action {
                        Action::SetAffinity { pid, cpus, .. } => Some((*pid, self.told_cpus(cpus))),
                        _ => None,
                    },
                });
            }
        }
        self.hold_back(step);
    }

    /// The action with the kernel's numbers, where the machine is known.
    fn told_action(&self, action: &Action) -> String {
        let topology = self.topology.as_ref();
        topology.map_or_else(|| action.to_string(), |topology| action.on(topology).to_string())
    }

    /// The reason with the kernel's numbers, where the machine is known.
    fn told_reason(&self, reason: &Reason) -> String {
        let topology = self.topology.as_ref();
        topology.map_or_else(|| reason.to_string(), |topology| reason.on(topology).to_string())
    }

    /// CPUs by the kernel's numbers, where the machine is known.
    fn told_cpus(&self, cpus: &CpuSet) -> String {
        let topology = self.topology.as_ref();
        topology.map_or_else(|| cpus.to_string(), |topology| topology.kernel_cpus(cpus).to_string())
    }

    /// Counts what the guard refused, and what a manager that only watches wanted.
    fn hold_back(&mut self, step: &Step) {
        let mut wanted = Wanted::default();
        for refused in &step.plan.refused {
            let is_watching = refused.refusal == Refusal::ObserveOnly;
            let (count, threads, pages) = match &refused.proposal.action {
                Action::MovePages { pages, .. } | Action::Replicate { pages, .. } => {
                    (pages.len() as u64, 0, pages.len() as u64)
                }
                Action::SetAffinity { .. } => (1, 1, 0),
                Action::MoveProcessMemory { memory, .. } => (1, 0, memory.0 / PAGE_BYTES),
                _ => (1, 0, 0),
            };
            if is_watching {
                wanted.threads += threads;
                wanted.pages += pages;
            }
            *self.refused.entry(cause(&refused.refusal)).or_insert(0) += count;
        }
        self.wanted.pages = self.wanted.pages.max(wanted.pages);
        self.wanted.threads = self.wanted.threads.max(wanted.threads);
    }
}

impl Witness for Diary {
    fn input(&mut self, input: &Input) {
        let observation = &input.observation;
        if let Some(files) = &mut self.files {
            files.take_in(observation);
        }
        self.began.get_or_insert(observation.at);
        self.looks += 1;
        let taken = [&observation.samples, &observation.hint_faults].into_iter().flatten();
        self.samples += taken.map(|samples| samples.list.len() as u64).sum::<u64>();
    }

    fn step(&mut self, step: &Step, outcomes: &[Outcome]) {
        let Some(window) = &step.window else { return };
        self.plans += u64::from(!step.plan.steps.is_empty());
        self.take_in(window);
        let at = self.seconds(window.at);
        self.judged.extend(step.judged.iter().map(|judged| (at, judged.clone())));
        self.accounts.enter(&step.plan, outcomes);
        if outcomes.iter().any(|outcome| has_moved(step, outcome)) {
            self.first_action_s.get_or_insert(at);
            if self.acting.len() < DESCRIBED_STEPS {
                self.acting.push((step.plan.number, at));
            }
            self.last_action_s = Some(at);
            self.acted = true;
        }
        self.describe(step, outcomes, at);
    }
}

/// The time of the first plan in `acting` that is in no trial with a bad end.
fn first_kept<'a>(
    acting: &[(u64, f64)],
    judged: impl Iterator<Item = (Verdict, &'a [u64])>,
) -> Option<f64> {
    let is_bad = |verdict: &Verdict| verdict.is_undone() || *verdict == Verdict::NoWayBack;
    let bad: Vec<u64> = judged
        .filter(|(verdict, _)| is_bad(verdict))
        .flat_map(|(_, plans)| plans.to_vec())
        .collect();
    acting.iter().find(|(plan, _)| !bad.contains(plan)).map(|(_, at)| *at)
}

/// Whether pages or a thread are somewhere else now.
fn has_moved(step: &Step, outcome: &Outcome) -> bool {
    match &outcome.result {
        StepResult::Pages(counts) => counts.moved > 0,
        StepResult::Done => {
            let action = step.plan.steps.get(outcome.step).map(|step| &step.action);
            matches!(action, Some(Action::SetAffinity { .. }))
        }
        _ => false,
    }
}

/// A result in words.
pub(crate) fn told(result: &StepResult) -> String {
    match result {
        StepResult::Done => "done".to_string(),
        StepResult::Pages(counts) => pages_told(counts),
        StepResult::Gone => "it had ended".to_string(),
        StepResult::Unsupported => "this machine cannot".to_string(),
        StepResult::Refused { errno } => {
            format!("refused: {}", std::io::Error::from_raw_os_error(*errno))
        }
    }
}

/// Counts of pages in words; zero counts are left out.
pub(super) fn pages_told(counts: &PageCounts) -> String {
    let all = [
        (counts.moved, "moved"),
        (counts.in_place, "in place already"),
        (counts.elsewhere, "elsewhere and left there"),
        (counts.absent, "absent"),
        (counts.busy, "busy"),
        (counts.no_memory, "without room on the target"),
        (counts.failed, "refused"),
        (counts.collapsed, "collapsed"),
    ];
    let parts: Vec<String> = all
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if parts.is_empty() { "no pages".to_string() } else { parts.join(", ") }
}

/// A refusal without its numbers, for counting: `policy-unread`, `exempt: own memory policy`.
pub(crate) fn cause(refusal: &Refusal) -> String {
    let value = serde_json::to_value(refusal).unwrap_or_default();
    let word = |field| value.get(field).and_then(|word| word.as_str());
    let name = word("refusal").unwrap_or("refused");
    match word("exemption") {
        Some(exemption) => format!("{name}: {}", exemption.replace('-', " ")),
        None => name.to_string(),
    }
}

/// Processes that something was done to.
pub(super) fn touched(accounts: &Accounts) -> impl Iterator<Item = (Pid, &Account)> {
    accounts.iter().filter(|(_, account)| **account != Account::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondpoint_core::model::{App, Thread, Traffic};
    use rondpoint_core::observation::Exemption;
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{CpuSet, Matrix, Tid};

    /// A second in which a thread on each of four nodes waits for the memory of node 0.
    fn jam() -> Model {
        let mut window = Model::empty(4);
        (window.at, window.elapsed) = (Nanos::from_secs(1), Nanos::from_secs(1));
        window.sensing.rung = Rung::Samples;
        for node in 0..4 {
            let mut thread = Thread::new(Tid(node as u32), 0, 2 * node, CpuSet::first(8));
            (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(0.8));
            window.threads.push(thread);
        }
        let mut app = App::new(Pid(1), 0..4);
        (app.latency_cycles, app.latency_accesses) = (Some(900.0), 1e6);
        app.cpu_percent = 400.0;
        let on_node_0 = |_, holding| if holding == 0 { 15.0 } else { 0.0 };
        app.traffic = Some(Traffic::new(Matrix::from_fn(4, on_node_0)));
        window.traffic.clone_from(&app.traffic);
        window.apps.push(app);
        window
    }

    #[test]
    fn a_refusal_is_counted_under_words() {
        let exempt = |exemption| cause(&Refusal::Exempt { exemption });
        assert_eq!(exempt(Exemption::OwnMemoryPolicy), "exempt: own memory policy");
        assert_eq!(exempt(Exemption::OwnAffinity), "exempt: own affinity");
        assert_eq!(cause(&Refusal::ObserveOnly), "observe-only");
    }

    /// The period after the last action, after windows of a second that act or do not.
    fn seconds_after(acts: &[bool]) -> f64 {
        let mut diary = Diary { first_action_s: Some(0.0), ..Diary::default() };
        for &acted in acts {
            diary.acted = acted;
            diary.take_in(&jam());
        }
        diary.after().seconds
    }

    #[test]
    fn the_period_after_the_last_action_has_none_of_its_own_window_and_none_before() {
        assert_eq!(seconds_after(&[true, false, false]), 2.0);
        assert_eq!(seconds_after(&[true, false, false, true, false, false, false]), 3.0);
    }

    /// The last action may come just before the end.
    #[test]
    fn the_period_after_the_last_action_reaches_back_where_it_is_short() {
        assert_eq!(seconds_after(&[true, false, false, true]), 2.0);
        let mut diary = Diary { first_action_s: Some(0.0), ..Diary::default() };
        let mut short = jam();
        short.elapsed = Nanos::from_millis(250);
        for act in [true, false, false, true, false, true, false] {
            diary.acted = act;
            diary.take_in(&short);
        }
        assert_eq!(diary.after().seconds, 1.0, "four windows that are not an action's own");
    }

    #[test]
    fn windows_of_a_run_tell_what_spread_memory_would_have_won() {
        let topology = synthetic::parse("node:4 core:2 gbs:4 mhz:2000").unwrap();
        let mut diary = Diary::on(topology);
        assert_eq!(diary.spread_from_start(), None);
        diary.take_in(&jam());
        let gain = diary.spread_from_start().unwrap();
        assert!(gain.least > 0.2, "{gain:?}");
    }

    #[test]
    fn the_first_kept_action_is_in_no_trial_that_ended_badly() {
        let acting = [(5, 1.0), (10, 2.0), (11, 2.5), (20, 4.0)];
        let first = |judged: &[(Verdict, &[u64])]| first_kept(&acting, judged.iter().copied());
        assert_eq!(first(&[]), Some(1.0));
        assert_eq!(first(&[(Verdict::Better, &[5]), (Verdict::Worse, &[10])]), Some(1.0));
        assert_eq!(first(&[(Verdict::Worse, &[5, 10])]), Some(2.5));
        assert_eq!(first(&[(Verdict::Worse, &[5]), (Verdict::NoWayBack, &[10])]), Some(2.5));
        assert_eq!(first(&[(Verdict::Returned, &[5, 10, 11, 20])]), None);
        assert_eq!(first(&[(Verdict::Unclear, &[5])]), Some(1.0));
    }
}
