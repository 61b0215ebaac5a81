//! The running machine as the loop's host: waits and looks, writes inverses down, acts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_core::controller::Step;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::Host;
use rondpoint_core::limits::{GLANCE, QUICK_GLANCE};
use rondpoint_core::plan::{Action, Outcome, Sampling, StepResult};
use rondpoint_core::rest::{Rest, Watch};
use rondpoint_core::{Nanos, Observation, Pid, Plan, Topology};
use rondpoint_linux::act::Actor;
use rondpoint_linux::act::threads::Restored;
use rondpoint_linux::ledger_file::{Entry, LedgerFile};
use rondpoint_linux::observe::Look;
use rondpoint_linux::observe::sampler::Rate;
use rondpoint_linux::{LinuxError, Root};

use crate::session::{self, Session, Turn};

/// What a sample costs the manager, from the ring to the page table of the model: 1,155
/// instructions where there are many of them (emulated), taken as 1,200 at half an instruction a
/// cycle.
const CYCLES_PER_SAMPLE: f64 = 2_400.0;
/// Share of one CPU that samples may cost: half of what the manager may use while it acts.
const SAMPLING_SHARE: f64 = 0.01;
/// Where the clock is not known.
const CLOCK_HZ: f64 = 2e9;
/// How far above its budget a window may be before the rates are lowered: they differ by a factor
/// of four.
const OVER_BUDGET: f64 = 2.0;

/// Glances take this part of the time at most (our choice).
const GLANCES_AT_MOST: u32 = 10_000;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Its time is over.
    Passed,
    /// The program does something else now.
    Changed,
    /// There is no program any more.
    Ended,
}

/// A managed program on the running machine.
pub(super) struct LiveHost {
    pub(super) session: Session,
    actor: Actor,
    ledger: LedgerFile,
    topology: Topology,
    rates: Rates,
    first: Option<Look>,
    deadline: Option<Instant>,
    last_look: Option<Instant>,
    /// As the guard's setting.
    samples_per_s_per_cpu: u32,
    /// Threads that had inherited a mask of ours, and that chose one of their own after we had
    /// changed it.
    pub(super) heirs: u64,
    pub(super) left_alone: u64,
    /// Time in which nothing was counted.
    pub(super) rested: Duration,
    /// Sentences on what went wrong on the way; nothing of it ends the program.
    pub(super) notes: Vec<String>,
}

impl LiveHost {
    /// `first` is the look from before the program ran, `full_sampling` as the controller's.
    pub(super) fn new(
        session: Session,
        first: Look,
        ledger: LedgerFile,
        guard: &GuardSettings,
        full_sampling: Option<u64>,
    ) -> Self {
        let topology = session.observer.machine().topology.clone();
        Self {
            actor: Actor::new(Root::live(), topology.clone(), session.pid()),
            ledger,
            session,
            topology,
            rates: Rates { fastest: full_sampling, ..Rates::default() },
            first: Some(first),
            deadline: None,
            last_look: None,
            samples_per_s_per_cpu: guard.samples_per_s_per_cpu,
            heirs: 0,
            left_alone: 0,
            rested: Duration::ZERO,
            notes: Vec::new(),
        }
    }

    /// Every thread of the tree gets back the mask that it had.
    pub(super) fn put_back_masks(&mut self) -> Restored {
        // A process born since the last look may have lost the parent that would lead to it.
        if self.actor.has_changed_masks() {
            match self.session.observer.observe() {
                Ok(mut look) => {
                    let followed = self.actor.follow(&mut look.observation);
                    self.heirs += followed.heirs;
                    self.left_alone += followed.left_alone;
                }
                // Putting back needs descriptors too.
                Err(_) => self.session.observer.let_go(),
            }
        }
        self.actor.restore_masks()
    }

    /// Takes the ledger away: everything that had to be put back has been.
    pub(super) fn close(self) -> Result<()> {
        Ok(self.ledger.close()?)
    }

    fn take_in(&mut self, mut look: Look) -> Observation {
        let now = Instant::now();
        if let Some(last) = self.last_look.replace(now) {
            self.keep_to_budget(&look, now - last);
        }
        self.spare_the_newborn();
        let mut observation = std::mem::take(&mut look.observation);
        let followed = self.actor.follow(&mut observation);
        self.heirs += followed.heirs;
        self.left_alone += followed.left_alone;
        if let Err(error) = self.ledger.write(&followed.entries) {
            self.note(format!("a process born with a changed mask is not written down: {error}"));
        }
        let there = observation.processes.iter().map(|process| process.pid).collect();
        self.rates.forget_gone(&there);
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
        let taken = samples.list.len() as f64 + samples.lost as f64;
        let cpus = self.topology.cpu_count() as f64;
        let clock_hz = self.topology.clock_hz().unwrap_or(CLOCK_HZ);
        let affordable = clock_hz * SAMPLING_SHARE / CYCLES_PER_SAMPLE;
        let budget =
            (f64::from(self.samples_per_s_per_cpu) * cpus).min(affordable) * elapsed.as_secs_f64();
        if taken > OVER_BUDGET * budget && self.session.observer.lower_rate() {
            self.notes.push(format!(
                "{taken:.0} samples in {:.2} s are too many: sampling every fourth of them",
                elapsed.as_secs_f64()
            ));
            let _ = self.session.observer.set_rate(self.rates.wanted());
        }
    }

    fn spare_the_newborn(&mut self) {
        let observer = &mut self.session.observer;
        if !observer.births_are_dear() {
            return;
        }
        let many = "the program starts so many processes that inherited counters slow it";
        let note = match observer.watch_everybody() {
            Ok(()) => format!("{many}: counts are those of the whole machine from now on"),
            Err(error) => format!("{many}; the whole machine is not counted instead: {error}"),
        };
        self.note(note);
    }

    /// Glances until something changes, at the latest until `deadline`.
    fn changes_before(&mut self, deadline: Instant, watch: &mut Watch) -> Result<Wait> {
        let mut between = Duration::from_nanos(QUICK_GLANCE.0);
        loop {
            let began = Instant::now();
            if watch.is_disturbed_by(self.session.observer.glance()?) {
                return Ok(Wait::Changed);
            }
            // Many processes make a glance dear: it may take a ten-thousandth of the time.
            between = between.max(began.elapsed() * GLANCES_AT_MOST);
            let until = (began + between).min(deadline);
            if self.session.wait(until)? == Turn::Over {
                return Ok(Wait::Ended);
            }
            if Instant::now() >= deadline {
                return Ok(Wait::Passed);
            }
        }
    }

    /// Writes down how to put back what the step is about to change, and what may stay.
    fn write_down(&mut self, step: &Step) -> Result<(), LinuxError> {
        let settled = step.judged.iter().filter(|judged| !judged.verdict.is_undone());
        let mut entries: Vec<Entry> = settled
            .map(|judged| Entry::Settled { pid: judged.pid.0, plans: judged.plans.clone() })
            .collect();
        for inverse in &step.plan.inverses {
            let pid = inverse.action.as_ref().and_then(Action::pid);
            let Some(process) = pid.and_then(|pid| self.actor.identity(pid)) else { continue };
            entries.extend(Entry::of(inverse, process.started, &self.topology));
        }
        entries.extend(self.actor.prepare(&step.plan));
        self.ledger.write(&entries)
    }

    fn act(&mut self, plan: &Plan, step: usize) -> Outcome {
        let action = &plan.steps[step].action;
        if let Action::SetSampling { pid, sampling } = action {
            let rate = self.rates.note(*pid, *sampling);
            let result = match self.session.observer.set_rate(rate) {
                Ok(true) => StepResult::Done,
                Ok(false) => StepResult::Unsupported,
                Err(error) => refused(&error),
            };
            return outcome(plan, step, result);
        }
        self.actor.step(plan, step, &mut self.ledger)
    }
}

impl Host for LiveHost {
    type Error = anyhow::Error;

    fn observe(&mut self, period: Nanos) -> Result<Option<Observation>> {
        if let Some(first) = self.first.take() {
            self.deadline = Some(self.session.started_at);
            return Ok(Some(self.take_in(first)));
        }
        let period = Duration::from_nanos(period.0);
        let deadline = session::next(self.deadline.unwrap_or_else(Instant::now), period);
        self.deadline = Some(deadline);
        if self.session.wait(deadline)? == Turn::Over {
            return Ok(None);
        }
        let look = self.session.observer.observe()?;
        Ok(Some(self.take_in(look)))
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
        let look = self.session.observer.observe()?;
        let mut observation = self.take_in(look);
        observation.after_rest |= changed;
        Ok(Some(observation))
    }

    fn rest(&mut self, mut rest: Rest, period: Nanos) -> Result<Option<Observation>> {
        if !self.session.observer.can_pause() {
            return self.observe(period);
        }
        let paused = self.session.observer.pause();
        self.note_failure("counting goes on during rests", paused);
        let began = Instant::now();
        let longest = Duration::from_nanos(rest.longest.0);
        let goes_on = loop {
            let next = Duration::from_nanos(GLANCE.0).min(longest.saturating_sub(began.elapsed()));
            let waited = match &mut rest.watch {
                Some(watch) => self.changes_before(Instant::now() + next, watch)?,
                None => Wait::Passed,
            };
            let left = match (waited, &rest.watch) {
                (Wait::Ended, _) => break false,
                (Wait::Passed, None) => next,
                _ => Duration::ZERO,
            };
            self.deadline = Some(Instant::now());
            let seen = self.observe(Nanos(left.as_nanos() as u64))?;
            let disturbed = waited == Wait::Changed
                || seen.as_ref().is_none_or(|seen| rest.is_disturbed_by(seen, &self.topology));
            if disturbed || began.elapsed() >= longest {
                break seen.is_some();
            }
        };
        self.rested += began.elapsed();
        if !goes_on {
            return Ok(None);
        }
        let resumed = self.session.observer.resume();
        self.note_failure("not all is counted since a rest", resumed);
        self.deadline = Some(Instant::now());
        let look = self.session.observer.observe()?;
        Ok(Some(self.take_in(look)))
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>> {
        let plan = &step.plan;
        if let Err(error) = self.write_down(step) {
            // What cannot be put back is not done; the program runs on.
            self.note(format!("nothing is changed: {error}"));
            let all = 0..plan.steps.len();
            return Ok(all.map(|index| outcome(plan, index, refused(&error))).collect());
        }
        Ok((0..plan.steps.len()).map(|index| self.act(plan, index)).collect())
    }
}

/// Number of errno(3), the same on x86-64 and arm64: where an error has none of the kernel's.
const EIO: i32 = 5;

fn refused(error: &LinuxError) -> StepResult {
    StepResult::Refused { errno: error.errno().unwrap_or(EIO) }
}

fn outcome(plan: &Plan, step: usize, result: StepResult) -> Outcome {
    Outcome { plan: plan.number, step, result, spent: Nanos(0), frozen: Nanos(0) }
}

/// What rate each process wants; the events are the whole tree's, so the highest is taken.
#[derive(Default)]
struct Rates {
    wanted: BTreeMap<Option<Pid>, Sampling>,
    /// Cycles between two samples at the full rate: what the policies say, or the fewest that were
    /// ever asked for.
    fastest: Option<u64>,
}

impl Rates {
    fn note(&mut self, pid: Option<Pid>, sampling: Sampling) -> Rate {
        self.wanted.insert(pid, sampling);
        if let Sampling::Every { cycles, .. } = sampling {
            self.fastest = Some(self.fastest.map_or(cycles, |fastest| fastest.min(cycles)));
        }
        self.wanted()
    }

    fn forget_gone(&mut self, there: &BTreeSet<Pid>) {
        self.wanted.retain(|pid, _| pid.is_none_or(|pid| there.contains(&pid)));
    }

    /// The rate that the policies want. Before the first request addresses are sampled at the full
    /// rate: a policy that sees nothing asks for nothing.
    fn wanted(&self) -> Rate {
        let rate = |sampling: &Sampling| match sampling {
            Sampling::Off => Rate::Off,
            // The cheap rates of the published presets are a fourth of the accurate ones, our idle
            // one a sixteenth.
            Sampling::Every { cycles, .. } => match *cycles / self.fastest.unwrap_or(1).max(1) {
                0..2 => Rate::Full,
                2..8 => Rate::Cheap,
                _ => Rate::Idle,
            },
        };
        self.wanted.values().map(rate).max().unwrap_or(Rate::Full)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rondpoint_core::plan::{Proposal, Reason};
    use rondpoint_core::{CpuSet, Tid};
    use rondpoint_linux::observe::{Rung, Settings};
    use rondpoint_linux::syscall::affinity;

    use super::*;

    /// A real process, joined as `attach` joins it.
    #[test]
    fn a_mask_is_in_the_ledger_when_it_is_given_and_comes_back_in_the_end() {
        let mut sleeping = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = sleeping.id();
        let mask = || affinity::get(pid as i32).unwrap();
        let before = mask();
        let machine = rondpoint_linux::topology::discover(&Root::live()).unwrap();
        let cpu = machine.topology.cpu_of_kernel_id(before.iter().next().unwrap() as u32);
        let cpu = cpu.unwrap();
        let settings =
            Settings { rung: Some(Rung::Statistics), managing: true, ..Settings::default() };
        let mut session = Session::join(pid, machine, &settings).unwrap();
        let first = session.observer.observe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ledgers = folder.path().join("ledgers");
        let ledger = LedgerFile::create(&ledgers, &Root::live()).unwrap();
        let file = ledger.path().to_path_buf();
        let mut host = LiveHost::new(session, first, ledger, &GuardSettings::acting(), None);
        host.observe(Nanos(0)).unwrap().unwrap();
        let cpus: CpuSet = [cpu].into_iter().collect();
        let action = Action::SetAffinity { pid: Pid(pid), tid: Tid(pid), cpus, via: Some(cpu) };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let outcomes = host.apply(&Step { plan, ..Step::default() }).unwrap();
        assert_eq!(outcomes[0].result, StepResult::Done);
        assert_eq!(mask().len(), 1);
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.contains(&format!("\"before\":\"{before}\"")), "{written}");
        let restored = host.put_back_masks();
        assert_eq!(restored.put_back + restored.in_place, 1, "{restored:?}");
        assert_eq!(mask(), before);
        host.close().unwrap();
        assert!(!file.exists());
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
    }

    #[test]
    fn the_tree_is_sampled_at_the_highest_rate_that_a_process_wants() {
        let every = |cycles| Sampling::Every { cycles, tracked_pages: 1 };
        let mut rates = Rates::default();
        assert_eq!(rates.wanted(), Rate::Full);
        assert_eq!(rates.note(Some(Pid(1)), Sampling::Off), Rate::Off);
        assert_eq!(rates.note(Some(Pid(2)), every(65_000)), Rate::Full);
        assert_eq!(rates.note(Some(Pid(2)), every(260_000)), Rate::Cheap);
        rates.forget_gone(&[Pid(1)].into());
        assert_eq!(rates.wanted(), Rate::Off);
        let mut told = Rates { fastest: Some(65_000), ..Rates::default() };
        assert_eq!(
            told.note(None, every(260_000)),
            Rate::Cheap,
            "also where it is asked for first"
        );
    }
}
