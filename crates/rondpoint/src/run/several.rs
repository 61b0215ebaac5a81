//! `attach` to a unit or a cgroup with several unrelated processes. Each of them gets a manager of
//! its own.

use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::syscall::process::kill;
use rondpoint_linux::syscall::{dispositions, signal};

use super::arguments::Management;
use crate::session;

/// Managers at most.
const MOST: usize = 64;
/// How often an ended manager is looked for.
const PATIENCE_MS: i32 = 500;
const SIGTERM: i32 = 15;

/// Runs a manager for each process until all have ended, or until we are told to stop; then the
/// managers end. The status is the worst of the managers'.
pub(super) fn attach(management: &Management, pids: &[u32]) -> Result<u8> {
    if pids.len() > MOST {
        bail!("{} processes without an ancestor among them; expected {MOST} at most", pids.len());
    }
    if management.report.is_some() || management.record.is_some() {
        bail!(
            "--report and --record are of one process, and there are {}; expected one process",
            pids.len()
        );
    }
    let own = std::env::current_exe().context("this program's own file")?;
    let arriving = session::stop_signals()?;
    dispositions::keep_ended_children();
    let mut managers: Vec<Child> = Vec::new();
    for pid in pids {
        let mut command = Command::new(&own);
        command.arg("attach").args(management.words()).arg(pid.to_string()).stdin(Stdio::null());
        match command.spawn() {
            Ok(manager) => managers.push(manager),
            Err(error) => {
                end(&managers);
                return Err(error).context("starting a manager");
            }
        }
    }
    let mut worst = 0;
    while !managers.is_empty() {
        if signal::wait_readable(&[arriving.as_fd()], PATIENCE_MS)?[0]
            && session::has_stopped(arriving.as_fd())
        {
            end(&managers);
        }
        let mut running = Vec::new();
        for mut manager in managers {
            match manager.try_wait()? {
                Some(status) => worst = worst.max(status.code().unwrap_or(1)),
                None => running.push(manager),
            }
        }
        managers = running;
    }
    Ok(u8::try_from(worst).unwrap_or(session::OWN_FAILURE))
}

/// Each puts back what it changed.
fn end(managers: &[Child]) {
    for manager in managers {
        let _ = kill(manager.id() as i32, SIGTERM);
    }
}
