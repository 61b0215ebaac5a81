//! Starts a program: at once if possible, otherwise after the sensors are opened.

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::act::Identity;
use rondpoint_linux::claim::Claim;
use rondpoint_linux::ledger_file::LedgerFile;
use rondpoint_linux::observe::kernel::numa_balancing;
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::{Look, Observer, samples_accesses};
use rondpoint_linux::syscall::process::{Memory, has_default_memory};
use rondpoint_linux::{Root, probe};
use rondpoint_trace::Writer;

use super::arguments::{Management, RunArguments};
use super::{Preparation, delegate, tell};
use crate::output::Output;
use crate::session::{self, Prepared, Program, Session, panic_if_told, survived};
use crate::{ledgers, observe, terminal};

/// What came of starting a program.
pub(super) enum Begun {
    /// It runs and is watched.
    Watched(Box<Ready>, LedgerFile, Box<Session>),
    /// It is over for us, with this exit status.
    Over(u8),
}

/// What managing begins with.
pub(super) struct Ready {
    pub(super) preparation: Preparation,
    pub(super) recorder: Option<Writer<Output>>,
    /// No other manager has the program.
    pub(super) claim: Claim,
    /// What the program looked like before anything was changed.
    pub(super) first: Look,
}

impl Ready {
    /// Looks for the first time and writes the record's header.
    ///
    /// # Errors
    /// The sensor that was asked for is not here, or the record cannot be written.
    pub(super) fn new(
        mut preparation: Preparation,
        claim: Claim,
        observer: &mut Observer,
    ) -> Result<Self> {
        observe::insist(preparation.sensor, observer)?;
        let first = observer.observe()?;
        preparation.header.notes = observer.notes().to_vec();
        let header = &preparation.header;
        let write = |output: Output| {
            let path = output.path().to_path_buf();
            Writer::new(output, path, header)
        };
        let recorder = preparation.record.take().map(write).transpose()?;
        Ok(Self { preparation, recorder, claim, first })
    }
}

/// The program, claimed for us. Changes that an earlier manager left are put back before.
///
/// # Errors
/// Another manager has the program, it is gone, or the folder of ledgers cannot be used.
pub(super) fn claim(preparation: &Preparation, process: Identity) -> Result<Claim> {
    if !process.lives(&Root::live())? {
        bail!("process {}: it has ended", process.pid);
    }
    let claim = session::claim_of(&Root::live(), process)?;
    ledgers::put_back_what_was_left(&ledgers::folder()?, &preparation.machine.topology)?;
    Ok(claim)
}

/// The same for a program of ours, which waits to be started.
fn claim_own(preparation: &Preparation, prepared: &Prepared) -> Result<Claim> {
    claim(preparation, session::process_of(&Root::live(), prepared.pid())?)
}

/// A ledger to write to. It is made last: the next start takes one that is left behind for that of
/// a killed manager.
///
/// # Errors
/// The folder of ledgers cannot be used.
pub(super) fn ledger() -> Result<LedgerFile> {
    Ok(LedgerFile::create(&ledgers::folder()?, &Root::live())?)
}

/// Whether the program may begin before it is watched. While no other process counts, opening the
/// first counter of a task takes the kernel tens of milliseconds, which no program should wait for.
/// A sensor that was asked for is looked for before anything runs. A record has the program from
/// its first instruction. A user who may not count may need the daemon.
pub(super) fn may_begin_at_once(management: &Management, preparation: &Preparation) -> bool {
    let Management { sensor, record, .. } = management;
    let acts = preparation.header.guard.act;
    acts && sensor.is_none() && record.is_none() && probe::whole_cpu().is_ok()
}

/// Starts the program, then watches it. A failure or a panic of watching leaves it alone.
///
/// # Errors
/// Nothing was started: no ledger can be made.
pub(super) fn at_once(who: &str, preparation: Preparation, prepared: Prepared) -> Result<Begun> {
    let (prepared, (claim, ledger)) =
        prepared.first(|prepared| Ok((claim_own(&preparation, prepared)?, ledger()?)))?;
    let machine = &preparation.machine;
    let memory = memory(true, || {
        let is_balanced = numa_balancing(&Root::live()).is_some_and(|found| found.ordinary);
        (is_balanced && samples_accesses(&Root::live(), machine)).then_some(Kind::Accesses)
    });
    let program = match prepared.start(who, memory) {
        Ok(program) => program,
        Err(status) => {
            take_away(ledger);
            return Ok(Begun::Over(status));
        }
    };
    match survived(|| watch(preparation, claim, &program)) {
        Ok((ready, observer)) => {
            let session = Session::of(program, observer);
            Ok(Begun::Watched(Box::new(ready), ledger, Box::new(session)))
        }
        Err(error) => {
            tell::<()>(Err(error.context("managing has not begun; the program runs without it")));
            take_away(ledger);
            program.wait_for_end();
            let end = program.end()?.context("the program went on without us")?;
            Ok(Begun::Over(session::status(end)))
        }
    }
}

fn watch(preparation: Preparation, claim: Claim, program: &Program) -> Result<(Ready, Observer)> {
    panic_if_told("watch");
    let mut observer = program.observer(preparation.machine.clone(), &preparation.settings)?;
    let ready = Ready::new(preparation, claim, &mut observer)?;
    Ok((ready, observer))
}

/// Watches the program, then starts it. Where its user sees nothing of it the daemon is asked.
///
/// # Errors
/// Nothing was started.
pub(super) fn watched(
    who: &str,
    mut preparation: Preparation,
    prepared: Prepared,
    arguments: &RunArguments,
) -> Result<Begun> {
    let management = &arguments.management;
    let machine = preparation.machine.clone();
    let (prepared, mut observer) =
        prepared.first(|prepared| prepared.observer(machine, &preparation.settings))?;
    if arguments.replicate.is_empty() && delegate::is_wanted(management, &observer) {
        match delegate::Daemon::asked(&arguments.socket, prepared.pid().0) {
            Ok(None) => {}
            Ok(Some(daemon)) => {
                let told = (management, preparation.header.command);
                let watched = (prepared, observer);
                return daemon.run(who, watched, preparation.report, told).map(Begun::Over);
            }
            Err(error) => {
                preparation.notes.push(format!(
                    "the daemon does not manage the program: {}",
                    terminal::told(&error)
                ));
            }
        }
    }
    let (prepared, (ready, ledger)) = prepared.first(|prepared| {
        let claim = claim_own(&preparation, prepared)?;
        Ok((Ready::new(preparation, claim, &mut observer)?, ledger()?))
    })?;
    let memory = memory(ready.preparation.header.guard.act, || observer.sampled());
    match prepared.start(who, memory) {
        Ok(program) => {
            let session = Session::of(program, observer);
            Ok(Begun::Watched(Box::new(ready), ledger, Box::new(session)))
        }
        Err(status) => {
            take_away(ledger);
            Ok(Begun::Over(status))
        }
    }
}

/// Nothing was changed: a ledger that cannot be removed is empty, and no failure of the program.
fn take_away(ledger: LedgerFile) {
    tell(ledger.close().map_err(anyhow::Error::from));
}

/// The memory policy of the program. Where we place pages ourselves, an explicit local policy keeps
/// the kernel's balancing from moving them back. It places pages as the default does, and the
/// balancing of other programs goes on. Where its faults are our sensor the balancing has to stay.
fn memory(act: bool, sampled: impl FnOnce() -> Option<Kind>) -> Memory {
    let own = act && has_default_memory().unwrap_or(false) && sampled() == Some(Kind::Accesses);
    if own { Memory::Local } else { Memory::Inherited }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_balancers_faults_are_the_sensor_it_keeps_the_program() {
        assert_eq!(memory(true, || Some(Kind::Faults)), Memory::Inherited);
        assert_eq!(memory(true, || None), Memory::Inherited);
        assert_eq!(memory(false, || Some(Kind::Accesses)), Memory::Inherited);
        let expected = match has_default_memory() {
            Ok(true) => Memory::Local,
            _ => Memory::Inherited,
        };
        assert_eq!(memory(true, || Some(Kind::Accesses)), expected);
    }
}
