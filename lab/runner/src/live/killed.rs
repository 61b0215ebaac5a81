//! If the lab is killed, its emulated machine ends too.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::Lab;
use crate::physics::Finding;

/// A run that would take far longer than any check waits here.
const RUN: [&str; 11] = [
    "run",
    "--no-cache",
    "--config",
    "first-touch",
    "--",
    "rondpoint-workloads",
    "crew",
    "--start",
    "0",
    "--seconds",
    "1000",
];
/// Until the machine is there, and until it has gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Once asked to end, once killed.
pub(super) fn check(_: &Lab) -> Result<Vec<Finding>> {
    // A shell starts what it runs in the background with SIGINT ignored, and these checks run there
    // too.
    let kinds = [("SIGTERM", Signal::TERM), ("SIGKILL", Signal::KILL)];
    kinds.into_iter().map(|(name, signal)| killed_by(name, signal)).collect()
}

fn killed_by(name: &str, signal: Signal) -> Result<Finding> {
    // What a killed lab leaves of its files goes with this.
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(RUN).env("TMPDIR", folder.path()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lab = Started(command.spawn().context("cannot start the lab")?);
    let own = Pid::from_child(&lab.0);
    let machine = wait_for(|| machine_of(own)).context("the lab started no machine")?;
    kill_process(own, signal).context("cannot kill the lab")?;
    lab.0.wait()?;
    let killed = Instant::now();
    let gone = wait_for(|| Process::of(machine).is_none_or(|left| left.is_over()).then_some(()));
    let told = match gone {
        Some(()) => format!("gone after {:.2} s of the host", killed.elapsed().as_secs_f64()),
        None => "runs on".to_owned(),
    };
    if gone.is_none() {
        let _ = kill_process(machine, Signal::KILL);
    }
    let check = format!("the machine of a lab that gets {name}");
    Ok(Finding::fact("carrefour-a", &check, "gone", told, gone.is_some()))
}

/// A lab that does not outlive a check that fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `/proc/PID/stat` says.
struct Process {
    name: String,
    state: char,
    parent: i32,
}

impl Process {
    fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        Some(Self {
            name: head.split_once('(')?.1.to_owned(),
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }

    /// Whether only its remains are there, for another process to reap.
    fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// QEMU, once it is one: it begins as another instance of the lab.
fn machine_of(lab: Pid) -> Option<Pid> {
    let names = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find_map(|number| {
        let pid = Pid::from_raw(number)?;
        let process = Process::of(pid)?;
        (process.parent == lab.as_raw_pid() && process.name.starts_with("qemu")).then_some(pid)
    })
}

fn wait_for<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(LOOK);
    }
    None
}
