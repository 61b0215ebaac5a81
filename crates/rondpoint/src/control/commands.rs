//! `rondpoint status`, `explain`, `pause`, `resume`, `leave`, `manage` and `reload`: each asks the
//! daemon one thing.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use rondpoint_linux::privileges::{self, Needs};
use serde::Serialize;
use serde_json::{Map, Value};

use super::SOCKET;
use super::client::Client;
use super::protocol::{
    ExplainReply, MetricsReply, NotesReply, PidRequest, PidsRequest, StatusReply, WithdrawRequest,
    Withdrawn, method,
};
use super::text;
use crate::{session, terminal};

/// Where the daemon is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct Where {
    /// The daemon's control socket
    #[arg(long, value_name = "FILE", default_value = SOCKET, hide_short_help = true)]
    pub(crate) socket: PathBuf,
}

/// Show what the daemon sees, manages and has done
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint status            # the machine, and the caller's own processes
  sudo rondpoint status       # all processes
  rondpoint status --json
  sudo rondpoint status --metrics

Exit status: 0 good, 1 no daemon answers.")]
pub(crate) struct StatusArguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print the metrics as OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    metrics: bool,

    #[command(flatten)]
    at: Where,
}

/// Tell the daemon to change nothing until `resume`; threads get back the CPUs that they had
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint pause

Exit status: 0 good, 1 the daemon refuses or does not answer.")]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    at: Where,
}

/// Tell the daemon to act again after `pause`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint resume

Exit status: 0 good, 1 the daemon refuses or does not answer.")]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    at: Where,
}

/// Tell the daemon to read its configuration again, as SIGHUP does
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint daemon --check-config
  sudo rondpoint reload

Exit status: 0 good, 1 the daemon refuses or does not answer.")]
pub(crate) struct ReloadArguments {
    #[command(flatten)]
    at: Where,
}

/// Tell the daemon to leave processes and what they start alone
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint leave 4711
  sudo rondpoint leave --withdraw 4711      # the rules decide again

Exit status: 0 good, 1 the daemon refuses or does not answer.")]
pub(crate) struct LeaveArguments {
    /// Withdraw an earlier request for them: the rules of the configuration decide again
    #[arg(long)]
    withdraw: bool,

    /// The processes
    #[arg(value_name = "PID", value_parser = session::process_number, required = true)]
    pids: Vec<u32>,

    #[command(flatten)]
    at: Where,
}

/// Tell the daemon to manage processes whatever their size, with what they start
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint manage 4711
  sudo rondpoint manage --withdraw 4711     # the rules decide again

Exclusions of the configuration win.
Exit status: 0 good, 1 the daemon refuses or does not answer.")]
pub(crate) struct ManageArguments {
    /// Withdraw an earlier request for them: the rules of the configuration decide again
    #[arg(long)]
    withdraw: bool,

    /// The processes
    #[arg(value_name = "PID", value_parser = session::process_number, required = true)]
    pids: Vec<u32>,

    #[command(flatten)]
    at: Where,
}

/// `rondpoint status`.
pub(crate) fn status(arguments: &StatusArguments) -> ExitCode {
    conclude("status", || {
        let mut client = connect(&arguments.at)?;
        if arguments.metrics {
            let reply: MetricsReply = client.call(method::METRICS, &nothing())?;
            return terminal::print(&reply.text);
        }
        let reply: StatusReply = client.call(method::STATUS, &nothing())?;
        show(arguments.json, &reply.status, || text::status(&reply.status))
    })
}

/// `rondpoint explain` of a process that runs.
pub(crate) fn explain(pid: u32, json: bool, at: &Where) -> ExitCode {
    conclude("explain", || {
        let mut client = connect(at)?;
        let reply: ExplainReply = client.call(method::EXPLAIN, &PidRequest { pid })?;
        show(json, &reply, || text::explanation(&reply))
    })
}

/// `rondpoint pause`.
pub(crate) fn pause(arguments: &PauseArguments) -> ExitCode {
    conclude("pause", || ask(&arguments.at, method::PAUSE, &nothing()))
}

/// `rondpoint resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> ExitCode {
    conclude("resume", || ask(&arguments.at, method::RESUME, &nothing()))
}

/// `rondpoint reload`.
pub(crate) fn reload(arguments: &ReloadArguments) -> ExitCode {
    conclude("reload", || ask(&arguments.at, method::RELOAD, &nothing()))
}

/// `rondpoint leave`.
pub(crate) fn leave(arguments: &LeaveArguments) -> ExitCode {
    let LeaveArguments { withdraw, pids, at } = arguments;
    let withdrawn = withdraw.then_some(Withdrawn::Leave);
    conclude("leave", || ask_for(at, method::LEAVE, withdrawn, pids))
}

/// `rondpoint manage`.
pub(crate) fn manage(arguments: &ManageArguments) -> ExitCode {
    let ManageArguments { withdraw, pids, at } = arguments;
    let withdrawn = withdraw.then_some(Withdrawn::Manage);
    conclude("manage", || ask_for(at, method::MANAGE, withdrawn, pids))
}

/// Asks for processes by a method, or withdraws what was asked by it.
fn ask_for(at: &Where, method: &str, withdrawn: Option<Withdrawn>, pids: &[u32]) -> Result<()> {
    let pids = pids.to_vec();
    match withdrawn {
        Some(request) => ask(at, method::WITHDRAW, &WithdrawRequest { pids, request }),
        None => ask(at, method, &PidsRequest { pids }),
    }
}

/// Connects to the daemon, then drops all privileges: an answer is another process's text.
fn connect(at: &Where) -> Result<Client> {
    let client = Client::connect(&at.socket)?;
    let _ = privileges::keep_only(&Needs::to_ask());
    Ok(client)
}

fn nothing() -> Map<String, Value> {
    Map::new()
}

/// Asks for something that has no answer but what is worth a line on stderr.
fn ask(at: &Where, method: &str, parameters: &impl Serialize) -> Result<()> {
    let reply: NotesReply = connect(at)?.call(method, parameters)?;
    reply.notes.iter().for_each(|note| terminal::say(&format!("rondpoint: {note}\n")));
    Ok(())
}

fn show(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    if json { terminal::print_json(value) } else { terminal::print(&text()) }
}

fn conclude(command: &str, run: impl FnOnce() -> Result<()>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail(command, &error);
            ExitCode::FAILURE
        }
    }
}
