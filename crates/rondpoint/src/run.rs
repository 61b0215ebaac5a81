//! `rondpoint run` and `rondpoint attach`: manage a program and everything that it starts.
//!
//! The program keeps its input, output, terminal and signals. The command's own output goes to
//! stderr.

mod account;
mod arguments;
mod begin;
mod by_hand;
mod delegate;
mod files_read;
mod moves;
mod period;
mod replicate;
mod report;
mod several;
mod witnesses;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rondpoint_core::controller::Controller;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::run as run_loop;
use rondpoint_core::observation::SharedObject;
use rondpoint_core::{Pid, Topology};
use rondpoint_linux::Root;
use rondpoint_linux::act::threads::Restored;
use rondpoint_linux::ledger_file::LedgerFile;
use rondpoint_linux::observe::Settings;
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::syscall::process::{End, User};
use rondpoint_linux::topology::Discovered;
use rondpoint_trace::{Header, PolicyChoice, Recorder};

use self::account::Diary;
pub(crate) use self::account::{cause, told};
pub(crate) use self::arguments::{AttachArguments, RecordArguments, RunArguments};
use self::arguments::{DEFAULT_SEED, Management};
use self::begin::{Begun, Ready};
use self::by_hand::ByHand;
use self::files_read::CopiesWorth;
use self::moves::ThreadMoves;
use self::replicate::Replication;
use self::report::{Facts, Report};
use self::witnesses::Witnesses;
use crate::control::SOCKET;
use crate::live::{LiveHost, own_instructions::OwnInstructions, trees::Trees};
use crate::machine::Known;
use crate::observe::Sensor;
use crate::output::Output;
use crate::session::{self, OWN_FAILURE, Prepared, Session, panic_if_told, survived};
use crate::{ledgers, machine, policies, terminal};

/// `rondpoint record`: a run that changes nothing and is recorded.
pub(crate) fn record(arguments: RecordArguments) -> ExitCode {
    let RecordArguments { output, policy, sensor, machine, command } = arguments;
    let management = Management {
        policy,
        dry_run: true,
        sensor,
        map_lock: None,
        seed: DEFAULT_SEED,
        machine,
        report: None,
        record: Some(output),
        verbose: false,
        quiet: false,
    };
    let by_hand = ByHand::default();
    let socket = SOCKET.into();
    let arguments = RunArguments { management, by_hand, replicate: Vec::new(), socket, command };
    conclude("record", || start("rondpoint record", arguments))
}

/// `rondpoint run`.
pub(crate) fn run(arguments: RunArguments) -> ExitCode {
    conclude("run", || start("rondpoint run", arguments))
}

/// `rondpoint attach`.
pub(crate) fn attach(arguments: AttachArguments) -> ExitCode {
    conclude("attach", || join(arguments))
}

fn conclude(command: &str, work: impl FnOnce() -> Result<u8>) -> ExitCode {
    match survived(work) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            terminal::fail(command, &error);
            ExitCode::from(OWN_FAILURE)
        }
    }
}

/// What the command line and this machine allow, known before the program is touched.
struct Preparation {
    header: Header,
    controller: Controller,
    machine: Discovered,
    /// The sensor that was asked for.
    sensor: Option<Sensor>,
    /// What of the machine's files does not fit.
    notes: Vec<String>,
    settings: Settings,
    report: Option<Output>,
    record: Option<Output>,
}

fn prepare(
    management: &Management,
    command: &[OsString],
    caller: Option<&User>,
) -> Result<Preparation> {
    let Known { machine, sampling_period, notes } =
        machine::discover(&Root::live(), management.machine.as_deref())?;
    let only_observes = management.policy.iter().all(|word| word == "observe");
    let act = !management.dry_run && !only_observes;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let header = Header {
        written_by: format!("rondpoint {}", env!("CARGO_PKG_VERSION")),
        unix_s: now.ok().map(|since| since.as_secs()),
        host: machine::host_name(&Root::live()),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        policies: management.policy.iter().map(|word| PolicyChoice::parse(word)).collect(),
        seed: management.seed,
        guard: GuardSettings { act, ..GuardSettings::default() }.for_machine(&machine.topology),
        topology: machine.topology.clone(),
        notes: Vec::new(),
    };
    let controller = policies::controller(&header)?;
    let open = |path: &PathBuf| Output::open(path, caller);
    let report = management.report.as_ref().map(open).transpose()?.map(|output| {
        // A report on stdout comes last, and its reader may take its time, as that of any program.
        if Output::is_stdout(output.path()) { output } else { output.of_manager() }
    });
    let record = management.record.as_ref().map(open).transpose()?.map(Output::of_manager);
    let takes_stdout = management.record.as_deref().is_some_and(Output::is_stdout);
    if takes_stdout && !command.is_empty() {
        bail!("a record on stdout: the program writes there too; expected a file");
    }
    if let (Some(report), Some(record)) = (&report, &record)
        && report.is_same_file(record)
    {
        bail!("report and record are the same file; expected two");
    }
    if let Some(read) = &management.machine {
        report.iter().chain(&record).try_for_each(|output| output.check_apart(read))?;
    }
    let rung = management.sensor.map(Sensor::rung);
    let threads = policies::thread_metrics(&header.policies);
    let settings = Settings {
        period: sampling_period,
        threads,
        rung,
        map_lock: management.map_lock.map(Duration::from_millis),
        managing: true,
        ..Settings::default()
    };
    let sensor = management.sensor;
    Ok(Preparation { header, controller, machine, sensor, notes, settings, report, record })
}

fn start(who: &str, mut arguments: RunArguments) -> Result<u8> {
    arguments.management.settle(arguments.by_hand.policy())?;
    let caller = session::caller()?;
    let preparation = prepare(&arguments.management, &arguments.command, caller.as_ref())?;
    let machine = &preparation.machine;
    let placement = arguments.by_hand.placement(&Root::live(), &machine.topology)?;
    let mut replication = Replication::prepare(&replicate::Request {
        paths: &arguments.replicate,
        command: &arguments.command,
        machine,
        caller: caller.as_ref(),
        dry_run: arguments.management.dry_run,
    })?;
    let environment = replication.environment();
    let held = replication.held();
    let prepared =
        Prepared::fork(&arguments.command, caller.as_ref(), &placement, environment, held)?;
    let (program, topology) = (prepared.program(), preparation.machine.topology.clone());
    let mut worth = None;
    let work = || -> Result<u8> {
        let begun = match begin::may_begin_at_once(&arguments.management, &preparation) {
            true => begin::at_once(who, preparation, prepared)?,
            false => begin::watched(who, preparation, prepared, &arguments)?,
        };
        let managed = match begun {
            Begun::Watched(ready, ledger, session) => {
                manage(*ready, ledger, &arguments.management, *session, replication.asked())?
            }
            Begun::Over(status) => return Ok(status),
        };
        worth = Some(managed.copies);
        let Some(end) = managed.end else { bail!("the program went on without us") };
        Ok(session::status(end))
    };
    let status = program.see_out(work, || put_back(&topology))?;
    // The copies stay until the program has ended.
    if let Some(worth) = worth {
        tell(survived(|| {
            let found = replication.finish(worth);
            if !arguments.management.quiet {
                terminal::say(&found);
            }
            Ok(())
        }));
    }
    Ok(status)
}

/// Undoes what the ledger of this process lists, as the next start would. A panic has closed the
/// ledger.
fn put_back(topology: &Topology) -> Result<()> {
    ledgers::put_back_after("managing has failed", &ledgers::folder()?, topology)
}

fn join(mut arguments: AttachArguments) -> Result<u8> {
    arguments.management.settle(None)?;
    let pid = match arguments.target.find(&Root::live())?[..] {
        [pid] => pid,
        ref several => return several::attach(&arguments.management, several),
    };
    if pid == std::process::id() {
        bail!("process {pid}: it is this command itself; expected another process");
    }
    // Preparing takes time, in which the number may become another process's.
    let process = session::process_of(&Root::live(), Pid(pid))?;
    if arguments.started.is_some_and(|started| started != process.started.0) {
        bail!("process {pid}: it has ended");
    }
    let preparation = prepare(&arguments.management, &[], session::caller()?.as_ref())?;
    if preparation.header.guard.act {
        session::may_manage(&Root::live(), process.pid)?;
    }
    let machine = preparation.machine.clone();
    let mut session = Session::join(pid, machine, &preparation.settings)?;
    let claim = begin::claim(&preparation, process)?;
    let topology = preparation.machine.topology.clone();
    let ready = Ready::new(preparation, claim, &mut session.observer)?;
    let ledger = begin::ledger()?;
    let management = &arguments.management;
    let managed = survived(|| manage(ready, ledger, management, session, Vec::new()));
    if managed.is_err() {
        tell(survived(|| put_back(&topology)));
    }
    Ok(managed?.status_of_attach())
}

/// How managing ended.
struct Managed {
    /// How the program ended; `None` where it is not ours and goes on.
    end: Option<End>,
    /// A failure of ours ended it, which was reported.
    ended_early: bool,
    /// What copies of files would be worth, where that was asked.
    copies: Option<CopiesWorth>,
}

impl Managed {
    /// The exit status of `attach`.
    fn status_of_attach(&self) -> u8 {
        if self.ended_early { OWN_FAILURE } else { 0 }
    }
}

/// Manages until the program's end or ours. Of these files it finds out what copies would win.
fn manage(
    ready: Ready,
    ledger: LedgerFile,
    management: &Management,
    session: Session,
    files: Vec<SharedObject>,
) -> Result<Managed> {
    let Ready { preparation, mut recorder, claim, first } = ready;
    let Preparation { header, mut controller, machine, report, notes: mut problems, .. } =
        preparation;
    // The program runs, and everything that needs more is open.
    let needs = if header.guard.act { Needs::to_manage() } else { Needs::to_watch() };
    problems.extend(privileges::keep_only(&needs));
    // The program runs: what the record's file held before is not wanted now.
    let kept = recorder.as_mut().map_or(Ok(()), |recorder| recorder.sink().keep());
    let is_told = kept.is_err();
    problems.extend(kept.err().map(|error| format!("the record is incomplete: {error}")));
    let balanced_before = balanced(&session);
    let mut witness = Witnesses {
        diary: Diary::on(machine.topology.clone()).asking_for_copies(files),
        moves: ThreadMoves::on(machine.topology.clone()),
        recorder: recorder.map(Recorder::new),
    };
    let mut trees = Trees::new(machine.topology.clone());
    trees.add(session.pid(), ledger);
    panic_if_told("begin");
    let first = (first, session.started_at());
    let mut host = LiveHost::new(session, trees, first, &header.guard, controller.full_sampling());
    host.own_instructions = OwnInstructions::counted();
    let ran = survived(|| run_loop(&mut host, &mut controller, &mut witness));
    if ran.is_err() {
        // Perhaps for want of descriptors, which putting back needs too.
        host.watched.observer.let_go();
    }
    // Even after a failure no thread keeps a mask of ours.
    let restored = survived(|| Ok(host.put_back_masks()));
    let restored = restored.or_else(|_| survived(|| Ok(host.trees.restore_masks())));
    // The ledger stays for `restore` then.
    let restored = restored.unwrap_or(Restored { refused: 1, ..Restored::default() });
    let ended_early = ran.is_err();
    if let Err(error) = ran {
        give_up(&mut host, &error);
    }
    let end = host.watched.end()?;
    panic_if_told("end");
    let Witnesses { diary, moves: mut threads, recorder } = witness;
    (threads.heirs, threads.left_alone, threads.restored) =
        (host.trees.heirs, host.trees.left_alone, restored);
    problems.append(&mut host.notes);
    let mut facts = Facts {
        topology: &machine.topology,
        command: header.command,
        pid: host.watched.pid().0,
        end,
        policy: management.policy.join(","),
        act: header.guard.act,
        elapsed_s: host.watched.started_at().elapsed().as_secs_f64(),
        pages_moved_by_kernel: balanced(&host.watched).saturating_sub(balanced_before),
        threads,
        sensor_notes: header.notes,
        problems,
        rested_s: host.rested.as_secs_f64(),
        own_cpu_s: session::own_cpu_s(),
        own_instructions: host.own_instructions.all(),
        acting_instructions: host.own_instructions.acting(),
    };
    // From here on a failure is told, and the program's status is still what counts.
    if restored.refused == 0 {
        tell(host.close());
    }
    drop(claim);
    // Only then, for its reader may be slow.
    facts.problems.extend(finish(recorder, management.quiet).filter(|_| !is_told));
    panic_if_told("report");
    let summary = Report::new(&diary, facts);
    if let Some(file) = report {
        tell(write_report(file, &summary));
    }
    if !management.quiet {
        terminal::say(&summary.text(management.verbose));
    }
    Ok(Managed { end, ended_early, copies: diary.copies_from_start() })
}

/// Passes on the rest of the record. Returns what it lacks: what there is of it can be read. With
/// `quiet`, when no report is printed, that is said at once.
fn finish(recorder: Option<Recorder<Output>>, quiet: bool) -> Option<String> {
    let mut recorder = recorder?;
    let passed_on = recorder.sink().finish().map_err(anyhow::Error::from);
    let error = recorder.finish().map_err(anyhow::Error::from).and(passed_on).err()?;
    let text = format!("the record is incomplete: {error}");
    if quiet {
        terminal::say(&format!("rondpoint: {text}\n"));
    }
    Some(text)
}

/// What went wrong is ours and not the program's: it goes on, unmanaged, and a program of ours is
/// waited for.
fn give_up(host: &mut LiveHost<Session>, error: &anyhow::Error) {
    let text = format!("managing has ended early: {}", terminal::told(error));
    tell::<()>(Err(anyhow::anyhow!("{text}; the program goes on")));
    host.notes.push(text);
    host.watched.wait_for_end();
}

fn tell<T>(result: Result<T>) {
    if let Err(error) = result {
        terminal::say(&format!("rondpoint: {}\n", terminal::told(&error)));
    }
}

fn write_report(mut file: Output, summary: &Report) -> Result<()> {
    let text = serde_json::to_string_pretty(summary)? + "\n";
    file.write_all(text.as_bytes()).and_then(|()| file.keep()).context("writing the report")
}

/// Pages that the kernel's automatic NUMA balancing has moved since boot; 0 where that cannot be
/// read.
fn balanced(session: &Session) -> u64 {
    let counters = session.observer.kernel_statistics().unwrap_or_default();
    counters.get("numa_pages_migrated").copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_that_ends_early_says_that_rondpoint_failed() {
        let status =
            |ended_early| Managed { end: None, ended_early, copies: None }.status_of_attach();
        assert_eq!((status(true), status(false)), (125, 0));
    }
}
