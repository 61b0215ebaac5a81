//! `rondpoint run` and `rondpoint attach`: manage a program and everything that it starts.
//!
//! The program keeps its input, output, terminal and signals. What this command says goes to stderr.

mod account;
mod host;
mod report;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rondpoint_core::Pid;
use rondpoint_core::controller::{Controller, Input, Step};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{Witness, run as run_loop};
use rondpoint_core::plan::Outcome;
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::{Look, Settings};
use rondpoint_linux::syscall::process::{End, Memory, User, effective_user, has_default_memory};
use rondpoint_linux::topology::Discovered;
use rondpoint_linux::{Root, probe};
use rondpoint_trace::{Header, PolicyChoice, Recorder, Writer};

use self::account::Diary;
use self::host::LiveHost;
use self::report::{Facts, Report};
use crate::observe::Sensor;
use crate::session::{self, OWN_FAILURE, Session};
use crate::{ledgers, machine};

/// Carrefour with a draw and limits of ours.
const DEFAULT_POLICY: &str = "carrefour:steady";

/// Flags that `run` and `attach` share.
#[derive(Debug, clap::Args)]
struct Management {
    /// Policies in order of priority; NAME:PRESET chooses a preset (carrefour alone: as published)
    #[arg(
        long,
        value_name = "POLICY[,POLICY]",
        value_delimiter = ',',
        default_value = DEFAULT_POLICY
    )]
    policy: Vec<String>,

    /// Decide, but change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Use this sensor and no other (default: the best there is)
    #[arg(long, value_enum)]
    sensor: Option<Sensor>,

    /// Seed of every random choice
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Links and bandwidths of this machine (default: /etc/rondpoint/machine.toml); sysfs knows none
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,

    /// Write a report as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Record observations, plans and outcomes, for `rondpoint replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// No summary on stderr
    #[arg(long, short)]
    quiet: bool,
}

/// Run a program and place its memory where it is fastest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint run -- ./app --its-own-flags
  rondpoint run --dry-run --report what-it-would-do.json -- ./app
  rondpoint run --sensor faults -- ./app        # as on a machine without counters

The program's own input, output and signals pass through, and its exit status is this command's:
128+n when signal n killed it, 125 when rondpoint failed, 126 and 127 as env(1) has them. Under sudo
the program runs as the user who called sudo.")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    management: Management,

    /// The program to run and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// Manage a program that runs already, and what it starts, until it ends or ^C
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    management: Management,

    /// Its process number
    #[arg(value_name = "PID", value_parser = session::process_number)]
    pid: u32,
}

/// Record what a policy sees of a program and would do, and do nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint record -- ./app
  rondpoint replay rondpoint.trace

To record a run in which something is done: rondpoint run --record FILE -- ./app")]
pub(crate) struct RecordArguments {
    /// Where the record goes
    #[arg(long, short, value_name = "FILE", default_value = "rondpoint.trace")]
    output: PathBuf,

    /// Policies in order of priority; NAME:PRESET chooses a preset
    #[arg(
        long,
        value_name = "POLICY[,POLICY]",
        value_delimiter = ',',
        default_value = DEFAULT_POLICY
    )]
    policy: Vec<String>,

    /// Use this sensor and no other (default: the best there is)
    #[arg(long, value_enum)]
    sensor: Option<Sensor>,

    /// Links and bandwidths of this machine (default: /etc/rondpoint/machine.toml); sysfs knows none
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,

    /// The program to run and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// `rondpoint record`: a run that changes nothing and is recorded.
pub(crate) fn record(arguments: RecordArguments) -> ExitCode {
    let RecordArguments { output, policy, sensor, machine, command } = arguments;
    let management = Management {
        policy,
        dry_run: true,
        sensor,
        seed: 1,
        machine,
        report: None,
        record: Some(output),
        quiet: false,
    };
    conclude("record", start(&RunArguments { management, command }))
}

/// `rondpoint run`.
pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    conclude("run", start(arguments))
}

/// `rondpoint attach`.
pub(crate) fn attach(arguments: &AttachArguments) -> ExitCode {
    conclude("attach", join(arguments))
}

fn conclude(command: &str, result: Result<u8>) -> ExitCode {
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("rondpoint {command}: {error:#}");
            ExitCode::from(OWN_FAILURE)
        }
    }
}

/// Everything that can be refused before the program is touched.
struct Preparation {
    header: Header,
    controller: Controller,
    machine: Discovered,
    settings: Settings,
    report: Option<File>,
    ledgers: PathBuf,
}

fn prepare(management: &Management, command: &[OsString]) -> Result<Preparation> {
    let machine = machine::discover(&Root::live(), management.machine.as_deref())?;
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
        guard: GuardSettings { act, ..GuardSettings::default() },
        topology: machine.topology.clone(),
        notes: Vec::new(),
    };
    let controller = header.controller().context("--policy")?;
    let report = management.report.as_deref().map(create).transpose()?;
    // Its header says what the sensors could not see, so it is written once they are open; that it can be
    // written is known now.
    management.record.as_deref().map(create).transpose()?;
    let ledgers = ledgers::folder();
    ledgers::put_back_what_was_left(&ledgers, &machine.topology)?;
    let rung = management.sensor.map(Sensor::rung);
    let settings = Settings { rung, managing: true, ..Settings::default() };
    Ok(Preparation { header, controller, machine, settings, report, ledgers })
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("writing {}", path.display()))
}

fn start(arguments: &RunArguments) -> Result<u8> {
    let preparation = prepare(&arguments.management, &arguments.command)?;
    let (machine, settings) = (preparation.machine.clone(), &preparation.settings);
    let mut prepared = Session::prepare(&arguments.command, caller().as_ref(), machine, settings)?;
    let first = match prepared.session().observer.observe() {
        Ok(first) => first,
        Err(error) => {
            prepared.cancel();
            return Err(error.into());
        }
    };
    let memory = memory(preparation.header.guard.act, prepared.session().observer.sampled());
    let session = match prepared.start("rondpoint run", memory) {
        Ok(session) => session,
        Err(status) => return Ok(status),
    };
    let end = manage(preparation, &arguments.management, session, first)?;
    let Some(end) = end else { bail!("the program went on without us") };
    Ok(session::status(end))
}

fn join(arguments: &AttachArguments) -> Result<u8> {
    let preparation = prepare(&arguments.management, &[])?;
    if preparation.header.guard.act {
        let refused =
            || format!("process {}: its pages may not be moved by this user", arguments.pid);
        probe::may_move_pages_of(Pid(arguments.pid)).with_context(refused)?;
    }
    let machine = preparation.machine.clone();
    let mut session = Session::join(arguments.pid, machine, &preparation.settings)?;
    let first = session.observer.observe()?;
    manage(preparation, &arguments.management, session, first).map(|_| 0)
}

/// Where we place pages ourselves, the kernel's balancing is kept from moving them back: not switched off,
/// which would be for everybody, but by an explicit policy that is what the program has anyway. Where its
/// faults are what we see, asked for or for want of anything better, it has to stay.
fn memory(act: bool, sampled: Option<Kind>) -> Memory {
    let own = act && sampled == Some(Kind::Accesses) && has_default_memory().unwrap_or(false);
    if own { Memory::Local } else { Memory::Inherited }
}

/// Under sudo: who called it.
fn caller() -> Option<User> {
    if effective_user() != 0 {
        return None;
    }
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let (user, group) = (number("SUDO_UID")?, number("SUDO_GID")?);
    (user != 0).then(|| User::with_number(user, group))?
}

fn manage(
    preparation: Preparation,
    management: &Management,
    session: Session,
    first: Look,
) -> Result<Option<End>> {
    let Preparation { mut header, mut controller, machine, report, ledgers, .. } = preparation;
    let own_instructions = probe::own_instructions();
    header.notes = session.observer.notes().to_vec();
    let balanced_before = balanced(&session)?;
    let record = management.record.as_deref().map(|path| Writer::create(path, &header));
    let mut witness =
        Witnesses { diary: Diary::default(), recorder: record.transpose()?.map(Recorder::new) };
    let mut host = LiveHost::new(session, first, &ledgers, &header.guard)?;
    run_loop(&mut host, &mut controller, &mut witness)?;
    let end = host.session.end()?;
    let Witnesses { diary, recorder } = witness;
    let mut notes = header.notes;
    notes.append(&mut host.notes);
    // A record that ends early is worth telling, and what there is of it can be read.
    let incomplete = recorder.and_then(|recorder| recorder.finish().err());
    notes.extend(incomplete.map(|error| format!("the record is incomplete: {error}")));
    let facts = Facts {
        topology: &machine.topology,
        command: header.command,
        pid: host.session.pid().0,
        end,
        policy: management.policy.join(","),
        act: header.guard.act,
        elapsed_s: host.session.started_at.elapsed().as_secs_f64(),
        pages_moved_by_kernel: balanced(&host.session)?.saturating_sub(balanced_before),
        notes,
        own_cpu_s: session::own_cpu_s(),
        own_instructions: own_instructions.and_then(|event| Some(event.read(1).ok()?[0].value)),
    };
    host.close()?;
    let summary = Report::new(&diary, facts);
    if let Some(mut file) = report {
        let text = serde_json::to_string_pretty(&summary)? + "\n";
        file.write_all(text.as_bytes()).context("writing the report")?;
    }
    if !management.quiet {
        // Nobody has to read it.
        let _ = io::stderr().write_all(summary.text().as_bytes());
    }
    Ok(end)
}

/// Pages that the kernel's automatic NUMA balancing has moved since boot.
fn balanced(session: &Session) -> Result<u64> {
    let counters = session.observer.kernel_statistics()?;
    Ok(counters.get("numa_pages_migrated").copied().unwrap_or(0))
}

/// All who watch the loop.
struct Witnesses {
    diary: Diary,
    recorder: Option<Recorder>,
}

impl Witness for Witnesses {
    fn input(&mut self, input: &Input) {
        self.diary.input(input);
        if let Some(recorder) = &mut self.recorder {
            recorder.input(input);
        }
    }

    fn step(&mut self, step: &Step, outcomes: &[Outcome]) {
        self.diary.step(step, outcomes);
        if let Some(recorder) = &mut self.recorder {
            recorder.step(step, outcomes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_by_the_balancers_faults_leaves_it_the_program() {
        assert_eq!(memory(true, Some(Kind::Faults)), Memory::Inherited);
        assert_eq!(memory(true, None), Memory::Inherited);
        assert_eq!(memory(false, Some(Kind::Accesses)), Memory::Inherited);
        let expected = match has_default_memory() {
            Ok(true) => Memory::Local,
            _ => Memory::Inherited,
        };
        assert_eq!(memory(true, Some(Kind::Accesses)), expected);
    }
}
