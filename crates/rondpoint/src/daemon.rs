//! `rondpoint daemon`: manages the placement of many programs as they start, change and stop.

mod accounts;
mod board;
mod census;
mod cgroups;
pub(crate) mod config;
mod failures;
mod http;
mod log;
mod metrics;
mod notify;
mod own;
pub(crate) mod rules;
mod station;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rondpoint_core::controller::Controller;
use rondpoint_core::host::turn;
use rondpoint_linux::Root;
use rondpoint_linux::observe::{Observer, Settings};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_trace::Header;

use self::board::{Board, Note, Shared};
use self::config::Config;
use self::failures::{Failures, Remedy};
use self::http::Http;
use self::notify::Notify;
use self::station::{Parts, Station};
use crate::control::server::Server;
use crate::live::trees::Trees;
use crate::live::{LiveHost, Watched as _};
use crate::machine::Known;
use crate::observe::Sensor;
use crate::session::Turn;
use crate::{ledgers, machine, policies, session, terminal};

const EXAMPLES: &str = "\
Examples:
  rondpoint daemon --check-config
  sudo rondpoint daemon                             # /etc/rondpoint/rondpoint.toml
  sudo rondpoint daemon --config ./rondpoint.toml

The daemon only observes until its configuration says `mode = \"act\"`. SIGHUP reads the
configuration again. SIGTERM gives threads back their first CPUs and ends the daemon.
Exit status: 0 good, 1 it failed, 2 the configuration is wrong.";

/// Exit status of a wrong configuration. The service manager does not start such a daemon anew:
/// `RestartPreventExitStatus=` of packaging/rondpoint.service.
const BAD_CONFIGURATION: u8 = 2;
/// How long no process is looked for while none is managed, at most: `[manage] look_every_s` is
/// usually shorter.
const IDLE: Duration = Duration::from_secs(60);

/// Time until the next look after one that failed (our choice).
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Manage the placement of many processes as they start, change and stop
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Configuration file (default: /etc/rondpoint/rondpoint.toml, if it exists)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, print in one line what the daemon would do, and end
    #[arg(long)]
    check_config: bool,
}

/// `rondpoint daemon`.
pub(crate) fn main(arguments: Arguments) -> ExitCode {
    let config = match Config::load(arguments.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            terminal::fail("daemon", &error);
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    if arguments.check_config {
        let policy = &config.policy;
        let files = machine::check_files(policy.machine.as_deref(), policy.calibration.as_deref());
        if let Err(error) = files {
            terminal::fail("daemon", &error.context("[policy]"));
            return ExitCode::from(BAD_CONFIGURATION);
        }
        let file = arguments.config.as_deref();
        let is_there = file.unwrap_or(Path::new(config::SYSTEM_FILE)).exists();
        return match terminal::print(&(config.summary(file, is_there) + "\n")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                terminal::fail("daemon", &error);
                ExitCode::FAILURE
            }
        };
    }
    if let Err(error) = session::has_heap() {
        terminal::fail("daemon", &error);
        return ExitCode::FAILURE;
    }
    log::begin(config.log.level);
    let failed = |error: &anyhow::Error| tracing::error!("{}", terminal::told(error));
    let (station, board) = match open(config, arguments.config) {
        Ok(opened) => opened,
        Err(error) => {
            failed(&error);
            return ExitCode::FAILURE;
        }
    };
    match run(station, &board) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failed(&error);
            ExitCode::FAILURE
        }
    }
}

/// What decides, for a configuration and a machine.
fn controller(config: &Config, act: bool, observer: &Observer) -> Result<Controller> {
    let header = Header {
        written_by: format!("rondpoint {}", env!("CARGO_PKG_VERSION")),
        unix_s: None,
        host: None,
        command: Vec::new(),
        policies: config.policies(),
        seed: config.policy.seed,
        guard: config.guard(act, &observer.machine().topology),
        topology: observer.machine().topology.clone(),
        notes: Vec::new(),
    };
    header.controller().context("[policy] policies")
}

/// Opens everything and says that it is ready.
fn open(config: Config, file: Option<PathBuf>) -> Result<(Station, Shared)> {
    let arriving = session::stop_signals()?;
    let rules = config.rules()?;
    let Known { machine, sampling_period, notes } = machine::discover_with(
        &Root::live(),
        config.policy.machine.as_deref(),
        config.policy.calibration.as_deref(),
    )?;
    let ledgers = ledgers::folder_of_service()?;
    ledgers::put_back_what_was_left(&ledgers, &machine.topology)?;
    session::prepare_to_watch();
    let settings = Settings {
        period: sampling_period,
        threads: policies::thread_metrics(&config.policies()),
        rung: config.policy.sensor.map(Sensor::rung),
        map_lock: config.map_lock(),
        managing: true,
        ..Settings::default()
    };
    let observer = Observer::open_for_many(Root::live(), machine, &settings)?;
    let server = Server::listen(&config.control.socket).context("[control] socket")?;
    let http = config.metrics.listen.map(Http::listen).transpose()?;
    let board = Board::new(&observer.machine().topology);
    let notify = Notify::from_environment();
    // All that needs more is open. A daemon that may act one day keeps the privileges for it from
    // the beginning.
    let needs = Needs::to_serve(config.acts(), config.freezes());
    let notes = [notes, privileges::keep_only(&needs)].concat();
    let shared = board.clone();
    let parts =
        Parts { observer, arriving, server, http, config, rules, file, ledgers, board, notify };
    Ok((Station::new(parts, notes), shared))
}

fn run(mut station: Station, board: &Shared) -> Result<()> {
    let trees = Trees::new(station.observer().machine().topology.clone());
    let first = (station.observer().observe()?, Instant::now());
    let act = station.acts();
    let mut controller = controller(station.config(), act, station.observer_ref())?;
    let topology = &station.observer_ref().machine().topology;
    let guard = station.config().guard(act, topology);
    station.notify().ready();
    tracing::info!(acts = act, policies = ?station.config().policy.policies, "ready");
    let full = controller.full_sampling();
    let mut host = LiveHost::new(station, trees, first, &guard, full);
    let ran = manage(&mut host, &mut controller, board);
    host.watched.notify().stopping();
    if ran.is_err() {
        // Perhaps for want of descriptors, which putting back needs too.
        host.watched.observer().let_go();
    }
    let restored = host.put_back_masks();
    tracing::info!(?restored, "the masks are as they were");
    match restored.refused {
        0 => reason(ran, host.close()),
        _ => ran,
    }
}

/// Why the daemon fails. The first failure counts, and the second, of closing, is only told.
fn reason(ran: Result<()>, closed: Result<()>) -> Result<()> {
    match (ran, closed) {
        (Err(first), Err(second)) => {
            tracing::error!("{}", terminal::told(&second));
            Err(first)
        }
        (ran, closed) => ran.and(closed),
    }
}

/// Until it is told to end.
fn manage(host: &mut LiveHost<Station>, controller: &mut Controller, board: &Shared) -> Result<()> {
    let mut outcomes = Vec::new();
    let mut note = Note(board.clone());
    let mut is_idle = false;
    let mut failures = Failures::default();
    loop {
        if host.trees.is_empty() {
            is_idle = rest(host, board, is_idle);
            let until = Instant::now() + host.watched.config().look_every().min(IDLE);
            if host.watched.wait(&mut host.trees, until)? == Turn::Over {
                return Ok(());
            }
        } else {
            if std::mem::take(&mut is_idle)
                && let Err(error) = host.watched.observer().resume()
            {
                host.watched.note(format!("not all is counted: {error}"));
            }
            match turn(host, controller, &mut note, &mut outcomes) {
                Ok(true) => failures.end(),
                Ok(false) => return Ok(()),
                Err(error) => {
                    outcomes.clear();
                    if go_on(host, failures.next(), error)? == Turn::Over {
                        return Ok(());
                    }
                }
            }
        }
        let notes = std::mem::take(&mut host.notes);
        notes.into_iter().for_each(|text| host.watched.note(text));
        if host.watched.take_stale() {
            let act = host.watched.acts();
            let config = host.watched.config();
            let guard = config.guard(act, &host.watched.observer_ref().machine().topology);
            let plans = controller.last_plan_number();
            let anew = self::controller(config, act, host.watched.observer_ref())?;
            *controller = anew.numbered_after(plans);
            host.keep_to(&guard, controller.full_sampling());
            outcomes.clear();
        }
    }
}

/// After a look that failed: decisions begin anew at the next, a second from now.
fn go_on(host: &mut LiveHost<Station>, remedy: Remedy, error: anyhow::Error) -> Result<Turn> {
    match remedy {
        Remedy::LookAgain => {}
        Remedy::CountNothing => host.watched.observer().let_go(),
        Remedy::End => return Err(error),
    }
    host.watched.count_failed_look();
    host.watched.note(format!("a look failed, so masks were restored: {}", terminal::told(&error)));
    host.watched.begin_anew(&mut host.trees);
    host.watched.wait(&mut host.trees, Instant::now() + AFTER_FAILURE)
}

/// No process is managed: nothing is counted.
fn rest(host: &mut LiveHost<Station>, board: &Shared, is_idle: bool) -> bool {
    if is_idle {
        return true;
    }
    board.borrow_mut().window = None;
    if let Err(error) = host.watched.observer().pause() {
        host.watched.note(format!("counting goes on while no process is managed: {error}"));
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_reason_of_the_end() {
        let failed = |why: &'static str| Err(anyhow::anyhow!(why));
        let told = |ran, closed| reason(ran, closed).map_err(|error| error.to_string());
        assert_eq!(told(failed("no look"), failed("no closing")), Err("no look".to_string()));
        assert_eq!(told(Ok(()), failed("no closing")), Err("no closing".to_string()));
        assert_eq!(told(failed("no look"), Ok(())), Err("no look".to_string()));
        assert_eq!(told(Ok(()), Ok(())), Ok(()));
    }
}
