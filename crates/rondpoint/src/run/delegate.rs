//! Asks the daemon to manage a program if the user may not open counters and a daemon runs.
//!
//! The program is still a child of this user, with the terminal, limits and signals. The daemon is
//! asked before the program begins. If the daemon refuses, `run` goes on as without a daemon.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Bytes;
use rondpoint_linux::observe::Observer;
use rondpoint_linux::syscall::process::{End, Memory};
use serde::Serialize;

use super::Management;
use super::arguments::{DEFAULT_POLICY, DEFAULT_SEED};
use super::report::SCHEMA;
use crate::control::client::Client;
use crate::control::protocol::{
    Decision, ExplainReply, NotesReply, PidRequest, PidsRequest, Process, State, StatusReply,
    method,
};
use crate::control::text;
use crate::output::Output;
use crate::session::{self, Prepared, Session, Turn, panic_if_told};
use crate::story::words::many;
use crate::terminal;

/// From one question about the program to the next: the daemon forgets a program that has ended.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);
/// Longest time that a daemon without an answer delays a program's end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A daemon that manages the program.
pub(super) struct Daemon {
    client: Client,
    pid: u32,
}

/// What is told at the end.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'static str,
    command: Vec<String>,
    pid: u32,
    exit_status: Option<i32>,
    signal: Option<i32>,
    elapsed_s: f64,
    /// Process number of the daemon.
    managed_by: u32,
    /// What the daemon said last of the program; `None` of one that ended before that.
    process: Option<&'a Process>,
    decisions: &'a [Decision],
}

/// Whether this user sees nothing of the program that a policy may act on, and wants nothing that
/// only `run` itself gives.
pub(super) fn is_wanted(management: &Management, observer: &Observer) -> bool {
    let sees = observer.sampled().is_some() || !observer.metrics().is_empty();
    !sees && is_plain(management)
}

/// Whether no option is given that only `run` itself follows. The daemon has a seed, a longest time
/// for the map lock, sensors and a machine file of its own. The report is written here either way.
fn is_plain(management: &Management) -> bool {
    // Without `..`: an option that is added needs an answer here.
    let Management {
        policy,
        dry_run,
        sensor,
        seed,
        machine,
        map_lock,
        record,
        report: _,
        verbose: _,
        quiet: _,
    } = management;
    policy.iter().eq([DEFAULT_POLICY])
        && *seed == DEFAULT_SEED
        && !dry_run
        && sensor.is_none()
        && machine.is_none()
        && map_lock.is_none()
        && record.is_none()
}

impl Daemon {
    /// Asks the daemon at `socket` to manage a process; `None` where none listens.
    ///
    /// # Errors
    /// It does not manage it, and says why.
    pub(super) fn asked(socket: &Path, pid: u32) -> Result<Option<Self>> {
        let Ok(client) = Client::connect(socket) else { return Ok(None) };
        let mut client = client.with_patience(PATIENCE)?;
        let StatusReply { status } = client.call(method::STATUS, &serde_json::json!({}))?;
        if !status.acts {
            bail!("it changes nothing now (rondpoint status)");
        }
        let request = PidsRequest { pids: vec![pid] };
        let NotesReply { notes } = client.call(method::MANAGE, &request)?;
        match notes.first() {
            Some(note) => bail!("{note}"),
            None => Ok(Some(Self { client, pid: status.pid })),
        }
    }

    /// Runs the program to its end; its exit status.
    pub(super) fn run(
        mut self,
        who: &str,
        (prepared, mut observer): (Prepared, Observer),
        report: Option<Output>,
        (management, command): (&Management, Vec<String>),
    ) -> Result<u8> {
        let mut session = match prepared.start(who, Memory::Inherited) {
            Ok(program) => {
                observer.let_go();
                Session::of(program, observer)
            }
            Err(status) => return Ok(status),
        };
        panic_if_told("delegated");
        let last = self.follow(&mut session);
        let Some(end) = session.end()? else { bail!("the program went on without us") };
        panic_if_told("delegated-end");
        let report_of = Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command,
            pid: session.pid().0,
            exit_status: if let End::Exited(status) = end { Some(status) } else { None },
            signal: if let End::Killed(signal) = end { Some(signal) } else { None },
            elapsed_s: session.started_at().elapsed().as_secs_f64(),
            managed_by: self.pid,
            process: last.as_ref().map(|last| &last.process),
            decisions: last.as_ref().map_or(&[], |last| &last.decisions),
        };
        if let Some(file) = report
            && let Err(error) = write(file, &report_of)
        {
            terminal::say(&format!("rondpoint: {}\n", terminal::told(&error)));
        }
        if !management.quiet {
            terminal::say(&report_of.text());
        }
        if management.verbose {
            terminal::say(&report_of.details());
        }
        Ok(session::status(end))
    }

    /// Waits for the end of the program. Returns the daemon's last word on it.
    fn follow(&mut self, session: &mut Session) -> Option<ExplainReply> {
        let request = PidRequest { pid: session.pid().0 };
        let mut last = None;
        loop {
            match session.wait(Instant::now() + BETWEEN_QUESTIONS) {
                Ok(Turn::Interval) => {}
                Ok(Turn::Over) => return last,
                Err(_) => {
                    session.wait_for_end();
                    return last;
                }
            }
            // A daemon that has ended has put back all masks; the program goes on without.
            last = self.client.call(method::EXPLAIN, &request).ok().or(last);
        }
    }
}

impl Report<'_> {
    fn text(&self) -> String {
        let who =
            format!("rondpoint: the daemon (process {}) managed this program", self.managed_by);
        let Some(process) = self.process else {
            return format!("{who}, which ended before the daemon could say anything of it\n");
        };
        if process.state == State::Left {
            let daemon = self.managed_by;
            return format!(
                "rondpoint: the daemon (process {daemon}) left this program: {}\n",
                process.why
            );
        }
        let verdicts = &process.verdicts;
        format!(
            "{who}: {} moved, {} of threads; trials: {} better, {} worse, {} unclear\n",
            Bytes(process.moved_bytes),
            many(process.moved_threads, "move"),
            verdicts.better,
            verdicts.worse,
            verdicts.unclear,
        )
    }

    /// The daemon's decisions on this program that it remembers, one a line.
    fn details(&self) -> String {
        self.decisions.iter().map(|decision| text::line(decision) + "\n").collect()
    }
}

fn write(mut file: Output, report: &Report<'_>) -> Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    file.write_all(text.as_bytes()).and_then(|()| file.keep()).context("writing the report")
}

#[cfg(test)]
mod tests {
    use super::super::arguments::RunArguments;
    use super::*;

    fn is_handed_over(options: &str) -> bool {
        let mut management = RunArguments::typed(options).expect(options).management;
        management.settle(None).expect(options);
        is_plain(&management)
    }

    #[test]
    fn a_program_whose_options_only_run_follows_is_not_handed_over() {
        for options in ["", "--policy auto", "--quiet", "--verbose", "--report x.json"] {
            assert!(is_handed_over(options), "{options}");
        }
        for options in [
            "--map-lock 210",
            "--seed 7",
            "--sensor faults",
            "--machine x.toml",
            "--record x.trace",
            "--dry-run",
            "--policy carrefour",
        ] {
            assert!(!is_handed_over(options), "{options}");
        }
    }

    #[test]
    fn the_details_are_the_daemons_decisions() {
        let decision = Decision {
            number: 1,
            at_s: 3.0,
            pid: Some(42),
            plan: 1,
            policy: "carrefour".to_string(),
            event: crate::control::protocol::Event::Held,
            kind: "pages".to_string(),
            action: "move 3 pages".to_string(),
            reason: "the budget is spent".to_string(),
            detail: "later".to_string(),
        };
        let report = Report {
            schema: SCHEMA,
            version: "",
            command: Vec::new(),
            pid: 42,
            exit_status: Some(0),
            signal: None,
            elapsed_s: 1.0,
            managed_by: 7,
            process: None,
            decisions: &[decision],
        };
        let details = report.details();
        let expected = "carrefour  held back: move 3 pages (the budget is spent): later\n";
        assert!(details.ends_with(expected), "{details}");
        assert_eq!(details.lines().count(), 1);
    }
}
