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
use rondpoint_core::controller::{Controller, Settings as ControllerSettings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::run as run_loop;
use rondpoint_linux::Root;
use rondpoint_linux::observe::{Look, Rung, Settings};
use rondpoint_linux::syscall::process::{
    End, Manner, Memory, User, effective_user, has_default_memory,
};

use self::account::Diary;
use self::host::LiveHost;
use self::report::{Facts, Report};
use crate::observe::Sensor;
use crate::session::{self, OWN_FAILURE, Session};
use crate::{ledgers, machine, policies};

/// Flags that `run` and `attach` share.
#[derive(Debug, clap::Args)]
struct Management {
    /// Policies in order of priority; NAME:PRESET chooses a preset
    #[arg(
        long,
        value_name = "POLICY[,POLICY]",
        value_delimiter = ',',
        default_value = "carrefour"
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
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x3fff_ffff))]
    pid: u32,
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
    controller: Controller,
    machine: rondpoint_linux::topology::Discovered,
    settings: Settings,
    report: Option<File>,
    ledgers: PathBuf,
    policy: String,
    act: bool,
}

fn prepare(management: &Management) -> Result<Preparation> {
    let machine = machine::discover(&Root::live(), management.machine.as_deref())?;
    let chosen = management.policy.iter().map(|word| policies::choose(word, None));
    let chosen = chosen.collect::<Result<Vec<_>>>()?;
    let only_observes = management.policy.iter().all(|word| word == "observe");
    let act = !management.dry_run && !only_observes;
    let guard = GuardSettings { act, ..GuardSettings::default() };
    let report = management.report.as_deref().map(create).transpose()?;
    let ledgers = ledgers::folder();
    ledgers::put_back_what_was_left(&ledgers, &machine.topology)?;
    Ok(Preparation {
        controller: Controller::new(
            machine.topology.clone(),
            chosen.into_iter().map(|one| one.policy).collect(),
            ControllerSettings { seed: management.seed, guard },
        ),
        machine,
        settings: Settings {
            rung: management.sensor.map(Sensor::rung),
            managing: true,
            ..Settings::default()
        },
        report,
        ledgers,
        policy: management.policy.join(","),
        act,
    })
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("writing {}", path.display()))
}

fn start(arguments: &RunArguments) -> Result<u8> {
    let preparation = prepare(&arguments.management)?;
    let manner = manner(&preparation);
    let (machine, settings) = (preparation.machine.clone(), &preparation.settings);
    let mut prepared = Session::prepare(&arguments.command, &manner, machine, settings)?;
    let first = match prepared.session().observer.observe() {
        Ok(first) => first,
        Err(error) => {
            prepared.cancel();
            return Err(error.into());
        }
    };
    let session = match prepared.start("rondpoint run") {
        Ok(session) => session,
        Err(status) => return Ok(status),
    };
    let command = arguments.command.iter().map(|word| word.to_string_lossy().into_owned());
    let end = manage(preparation, &arguments.management, session, first, command.collect())?;
    let Some(end) = end else { bail!("the program went on without us") };
    Ok(session::status(end))
}

fn join(arguments: &AttachArguments) -> Result<u8> {
    let preparation = prepare(&arguments.management)?;
    let machine = preparation.machine.clone();
    let mut session = Session::join(arguments.pid, machine, &preparation.settings)?;
    let first = session.observer.observe()?;
    manage(preparation, &arguments.management, session, first, Vec::new()).map(|_| 0)
}

/// Where we place pages ourselves, the kernel's balancing is kept from moving them back: not switched off,
/// which would be for everybody, but by an explicit policy that is what the program has anyway. Where its
/// faults are our only sensor it has to stay.
fn manner(preparation: &Preparation) -> Manner {
    let faults = preparation.settings.rung == Some(Rung::Faults);
    let local = preparation.act && !faults && has_default_memory().unwrap_or(false);
    Manner { memory: if local { Memory::Local } else { Memory::Inherited }, user: caller() }
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
    command: Vec<String>,
) -> Result<Option<End>> {
    let Preparation { mut controller, ledgers, report, policy, act, machine, .. } = preparation;
    let balanced = |look: &Look| look.vmstat.get("numa_pages_migrated").copied().unwrap_or(0);
    let balanced_before = balanced(&first);
    let mut host = LiveHost::new(session, first, &ledgers)?;
    let mut diary = Diary::default();
    run_loop(&mut host, &mut controller, &mut diary)?;
    let end = host.session.end()?;
    let mut notes = host.session.observer.notes().to_vec();
    notes.append(&mut host.notes);
    let facts = Facts {
        topology: &machine.topology,
        command,
        pid: host.session.pid().0,
        end,
        policy,
        act,
        elapsed_s: host.session.started_at.elapsed().as_secs_f64(),
        pages_moved_by_kernel: balanced(&host.last).saturating_sub(balanced_before),
        notes,
        own_cpu_s: session::own_cpu_s(),
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
