//! `attach` to a unit or a cgroup with several unrelated processes. Each of them gets a manager of
//! its own.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Pid;
use rondpoint_linux::Root;
use rondpoint_linux::act::Identity;
use rondpoint_linux::syscall::process::kill;
use rondpoint_linux::syscall::{dispositions, signal};

use super::arguments::Management;
use crate::session::{self, survived};
use crate::terminal;

/// Managers at most.
const MOST: usize = 64;
/// How often an ended manager is looked for.
const PATIENCE_MS: i32 = 500;
/// Time in which managers that were told to end put back what they changed (our choice).
const END: Duration = Duration::from_secs(10);
/// Between two looks at managers that were told to end.
const LOOK: Duration = Duration::from_millis(20);
const SIGTERM: i32 = 15;

/// A manager of one process.
struct Manager {
    child: Child,
    process: Identity,
}

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It ended before a manager had it.
    Vanished,
    /// The exit status of its manager.
    Managed(u8),
}

/// Runs a manager for each process until all have ended, or until we are told to stop or fail. Then
/// the managers end, and this waits for them, after a failure 10 s at most. The status is the worst
/// of the managers'.
///
/// # Errors
/// No manager can be started, or all processes have ended before.
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
    let (mut managers, mut outcomes) = (Vec::new(), Vec::new());
    with_managers(&mut managers, |managers| {
        for pid in pids {
            let Some(process) = Identity::of(&Root::live(), Pid(*pid)) else {
                outcomes.push(vanished(*pid));
                continue;
            };
            let mut command = Command::new(&own);
            command.arg("attach").args(management.words());
            // The number may become another process's before the manager reads it.
            command.args(["--started", &process.started.0.to_string(), &pid.to_string()]);
            let child = command.stdin(Stdio::null()).spawn().context("starting a manager")?;
            managers.push(Manager { child, process });
        }
        wait(managers, arriving.as_fd(), &mut outcomes)
    })?;
    worst(&outcomes)
}

/// Does the work with managers. If it fails or panics, the managers end, and this waits for them,
/// 10 s at most.
///
/// # Errors
/// The work's, or its panic.
fn with_managers(
    managers: &mut Vec<Manager>,
    work: impl FnOnce(&mut Vec<Manager>) -> Result<()>,
) -> Result<()> {
    let done = survived(|| work(managers));
    if done.is_err() {
        end(managers);
        let until = Instant::now() + END;
        let runs = |manager: &mut Manager| matches!(manager.child.try_wait(), Ok(None));
        while managers.iter_mut().any(runs) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        if managers.iter_mut().any(runs) {
            terminal::say("rondpoint attach: managers have not ended yet; they go on\n");
        }
    }
    done
}

/// Waits for the end of all managers. On an error those that run are left in the list.
fn wait(
    managers: &mut Vec<Manager>,
    arriving: BorrowedFd<'_>,
    outcomes: &mut Vec<Outcome>,
) -> Result<()> {
    while !managers.is_empty() {
        if signal::wait_readable(&[arriving], PATIENCE_MS)?[0] && session::has_stopped(arriving) {
            end(managers);
        }
        let mut index = 0;
        while index < managers.len() {
            match managers[index].child.try_wait()? {
                Some(status) => {
                    let manager = managers.swap_remove(index);
                    outcomes.push(outcome(status.code(), manager.process));
                }
                None => index += 1,
            }
        }
    }
    Ok(())
}

/// The outcome by a manager's exit status; `None`: a signal killed the manager. A manager that
/// failed because its process had ended is no failure.
fn outcome(status: Option<i32>, process: Identity) -> Outcome {
    let has_ended = || matches!(process.lives(&Root::live()), Ok(false));
    match status.map(u8::try_from) {
        Some(Ok(session::OWN_FAILURE)) if has_ended() => vanished(process.pid.0),
        Some(Ok(status)) => Outcome::Managed(status),
        _ => Outcome::Managed(session::OWN_FAILURE),
    }
}

fn vanished(pid: u32) -> Outcome {
    terminal::say(&format!("rondpoint attach: note: process {pid} has ended\n"));
    Outcome::Vanished
}

fn worst(outcomes: &[Outcome]) -> Result<u8> {
    let status = |outcome: &Outcome| match outcome {
        Outcome::Vanished => None,
        Outcome::Managed(status) => Some(*status),
    };
    let found = outcomes.iter().filter_map(status).max();
    found.with_context(|| format!("all {} processes ended before it had them", outcomes.len()))
}

/// Each puts back what it changed.
fn end(managers: &[Manager]) {
    for manager in managers {
        let _ = kill(manager.child.id() as i32, SIGTERM);
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Nanos;

    use super::*;

    #[test]
    fn a_process_that_ended_meanwhile_is_no_failure_and_a_failed_manager_is() {
        let own = Pid(std::process::id());
        let living = Identity::of(&Root::live(), own).expect("this process");
        let ended = Identity { started: Nanos(1), ..living };
        let status = |found: &[(Option<i32>, Identity)]| {
            let outcomes = found.iter().map(|(status, process)| outcome(*status, *process));
            worst(&outcomes.collect::<Vec<_>>()).map_err(|error| error.to_string())
        };
        assert_eq!(status(&[(Some(0), living), (Some(125), ended)]), Ok(0));
        assert_eq!(status(&[(Some(0), ended), (Some(125), living)]), Ok(125));
        assert_eq!(status(&[(Some(0), living), (None, ended)]), Ok(125), "its manager was killed");
        let none = "all 2 processes ended before it had them".to_string();
        assert_eq!(status(&[(Some(125), ended), (Some(125), ended)]), Err(none));
    }

    #[test]
    fn a_panic_beside_managers_ends_them_and_is_told() {
        let process = Identity::of(&Root::live(), Pid(std::process::id())).expect("this process");
        let manager = || {
            let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn();
            Manager { child: child.expect("coreutils"), process }
        };
        let mut managers = vec![manager(), manager()];
        let done = with_managers(&mut managers, |managers| {
            managers.push(manager());
            panic!("no room");
        });
        let told = done.expect_err("it panicked").to_string();
        let ended = managers.iter_mut().map(|one| one.child.try_wait().expect("ours").is_some());
        let ended: Vec<bool> = ended.collect();
        for manager in &mut managers {
            // Where the test fails, nothing stays.
            let _ = manager.child.kill();
            let _ = manager.child.wait();
        }
        assert_eq!(ended, [true, true, true], "{told}");
        assert!(told.starts_with("a fault of rondpoint: "), "{told}");
    }
}
