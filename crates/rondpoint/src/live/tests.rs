//! The host with a real process that sleeps.

use std::path::PathBuf;
use std::process::{Child, Command};

use rondpoint_core::observation::Samples;
use rondpoint_core::plan::Sampling;
use rondpoint_core::{CpuSet, Tid};
use rondpoint_linux::Root;
use rondpoint_linux::ledger_file::LedgerFile;
use rondpoint_linux::observe::{Rung, Settings};
use rondpoint_linux::syscall::affinity;
use tempfile::TempDir;

use super::*;
use crate::session::Session;

/// A real process, joined as `attach` joins it, and its host. It is killed when dropped.
struct Joined<W> {
    process: Child,
    host: LiveHost<W>,
    ledger: PathBuf,
    _folder: TempDir,
}

impl<W: Watched> Joined<W> {
    fn start(watched: impl FnOnce(Session) -> W) -> Self {
        let process = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = process.id();
        let machine = rondpoint_linux::topology::discover(&Root::live()).unwrap();
        let settings =
            Settings { rung: Some(Rung::Statistics), managing: true, ..Settings::default() };
        let mut session = Session::join(pid, machine, &settings).unwrap();
        let first = session.observer.observe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ledgers = folder.path().join("ledgers");
        let ledger = LedgerFile::create(&ledgers, &Root::live()).unwrap();
        let path = ledger.path().to_path_buf();
        let mut trees = Trees::new(session.observer.machine().topology.clone());
        trees.add(Pid(pid), ledger);
        let first = (first, session.started_at());
        let guard = GuardSettings::acting();
        let mut host = LiveHost::new(watched(session), trees, first, &guard, None);
        host.observe(Nanos(0)).unwrap().unwrap();
        Self { process, host, ledger: path, _folder: folder }
    }

    fn mask(&self) -> CpuSet {
        affinity::get(self.process.id() as i32).unwrap()
    }

    /// Binds the process to its first CPU.
    fn bind(&mut self) -> StepResult {
        let kernels = self.mask().iter().next().unwrap();
        let cpu = self.host.topology.cpu_of_kernel_id(kernels as u32).unwrap();
        let (pid, tid) = (Pid(self.process.id()), Tid(self.process.id()));
        let cpus: CpuSet = [cpu].into_iter().collect();
        let action = Action::SetAffinity { pid, tid, cpus, via: Some(cpu) };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let outcomes = self.host.apply(&Step { plan, ..Step::default() }).unwrap();
        outcomes[0].result.clone()
    }

    fn written(&self) -> String {
        std::fs::read_to_string(&self.ledger).unwrap()
    }
}

impl<W> Drop for Joined<W> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_mask_is_in_the_ledger_when_it_is_given_and_comes_back_in_the_end() {
    let mut joined = Joined::start(|session| session);
    let before = joined.mask();
    assert_eq!(joined.bind(), StepResult::Done);
    assert_eq!(joined.mask().len(), 1);
    let written = joined.written();
    assert!(written.contains(&format!("\"before\":\"{before}\"")), "{written}");
    let restored = joined.host.put_back_masks();
    assert_eq!(restored.put_back + restored.in_place, 1, "{restored:?}");
    assert_eq!(joined.mask(), before);
    joined.host.trees.remove(Pid(joined.process.id())).unwrap();
    assert!(!joined.ledger.exists());
}

/// What was decided may be forbidden when it is to be done.
struct Restrained {
    session: Session,
    may_act: bool,
    may_change: bool,
}

impl Watched for Restrained {
    fn observer(&mut self) -> &mut Observer {
        &mut self.session.observer
    }

    fn wait(&mut self, trees: &mut Trees, deadline: Instant) -> Result<Turn> {
        Watched::wait(&mut self.session, trees, deadline)
    }

    fn is_called(&mut self) -> bool {
        self.session.is_called()
    }

    fn may_act(&self) -> bool {
        self.may_act
    }

    fn may_change(&mut self, _: Pid) -> bool {
        self.may_change
    }
}

#[test]
fn a_plan_that_may_not_be_carried_out_any_more_changes_nothing() {
    let mut joined =
        Joined::start(|session| Restrained { session, may_act: false, may_change: true });
    let (before, written) = (joined.mask(), joined.written());
    assert_eq!(joined.bind(), StepResult::Refused { errno: EPERM }, "paused");
    assert_eq!((joined.mask(), joined.written()), (before.clone(), written));
    joined.host.watched.may_act = true;
    joined.host.watched.may_change = false;
    assert_eq!(joined.bind(), StepResult::Refused { errno: EPERM }, "excluded");
    assert_eq!(joined.mask(), before);
    joined.host.watched.may_change = true;
    assert_eq!(joined.bind(), StepResult::Done);
    assert_eq!(joined.mask().len(), 1);
}

/// The machine is suspended for an hour, and then both clocks stand still.
#[test]
fn a_window_without_a_true_length_has_no_rates() {
    thread_local! {
        static SECONDS: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
    }
    let mut joined = Joined::start(|session| session);
    joined.host.clocks.read = || {
        let (boot, awake) = SECONDS.get();
        super::clocks::Reading { boot: Nanos::from_secs(boot), awake: Nanos::from_secs(awake) }
    };
    let mut begins_anew = |boot, awake| {
        SECONDS.set((boot, awake));
        joined.host.observe(Nanos(0)).unwrap().unwrap().after_pause
    };
    begins_anew(100, 100);
    assert!(!begins_anew(101, 101));
    assert!(begins_anew(3_702, 102));
    assert!(!begins_anew(3_703, 103));
    assert!(begins_anew(3_703, 103));
}

#[test]
fn a_new_controller_brings_its_budget_of_samples() {
    let mut joined = Joined::start(|session| session);
    let guard = GuardSettings { samples_per_s_per_cpu: 7, ..GuardSettings::acting() };
    assert_ne!(joined.host.samples_per_s_per_cpu, guard.samples_per_s_per_cpu);
    joined.host.keep_to(&guard, Some(12_345));
    assert_eq!(joined.host.samples_per_s_per_cpu, guard.samples_per_s_per_cpu);
    assert_eq!(joined.host.rates.fastest, Some(12_345));
}

/// A session on a host whose levels of sampling are only noted, as no host need have samples.
struct Sampled {
    session: Session,
    levels: Noted,
}

/// What a budget did, in order.
#[derive(Default)]
struct Noted(Vec<&'static str>);

impl Levels for Noted {
    fn lower(&mut self) -> bool {
        self.0.push("lower");
        true
    }

    fn raise(&mut self) -> bool {
        self.0.push("raise");
        true
    }

    fn set(&mut self, _: Rate) -> Result<(), LinuxError> {
        self.0.push("set");
        Ok(())
    }
}

impl Watched for Sampled {
    fn observer(&mut self) -> &mut Observer {
        &mut self.session.observer
    }

    fn levels(&mut self) -> &mut dyn Levels {
        &mut self.levels
    }

    fn wait(&mut self, trees: &mut Trees, deadline: Instant) -> Result<Turn> {
        Watched::wait(&mut self.session, trees, deadline)
    }

    fn is_called(&mut self) -> bool {
        self.session.is_called()
    }
}

#[test]
fn a_look_with_too_many_samples_lowers_the_rates_and_one_with_few_raises_them() {
    let mut joined = Joined::start(|session| Sampled { session, levels: Noted::default() });
    let mut after = |lost: Option<u64>| {
        let host = &mut joined.host;
        let mut look = host.watched.observer().observe().unwrap();
        look.observation.samples = lost.map(|lost| Samples { lost, ..Samples::default() });
        host.take_in(look, Nanos(0));
        std::mem::take(&mut host.watched.levels.0)
    };
    assert_eq!(after(Some(u64::from(u32::MAX))), ["lower", "set"]);
    assert_eq!(after(None), [""; 0], "nothing is sampled");
    assert_eq!(after(Some(0)), ["raise", "set"]);
    let told = |joined: &Joined<Sampled>| joined.host.notes.join(" ").matches("samples").count();
    assert_eq!(told(&joined), 1, "{:?}", joined.host.notes);
    joined.host.rates.note(None, Sampling::Off);
    let mut look = joined.host.watched.observer().observe().unwrap();
    look.observation.samples = Some(Samples::default());
    joined.host.take_in(look, Nanos(0));
    assert_eq!(joined.host.watched.levels.0, [""; 0], "a policy wants few samples");
}
