//! A shell that starts a program, and ends before it.

use std::path::PathBuf;
use std::rc::Rc;

use rondpoint_linux::syscall::process::kill;
use tempfile::TempDir;

use crate::Sleepers;
use crate::fixture::{self, Daemon};

// Number of signal(7).
const SIGKILL: i32 = 9;
/// The line of the program in `/proc`.
const SLEEPER: &[u8] = b"sleep\x001000\x00";

/// The shell and its program. Both end with the test.
pub(crate) struct Launcher {
    pub(crate) shell: Sleepers,
    pub(crate) child: u32,
    /// The shell ends when this file is there.
    go: PathBuf,
    _folder: Rc<TempDir>,
}

impl Launcher {
    /// `shell` = sh(1), by any name.
    pub(crate) fn start(daemon: &Daemon, shell: &str, user: u32) -> Self {
        let folder = fixture::folder();
        let go = folder.path().join("go");
        let waits = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
        let shell = Sleepers::of(&[shell, "-c", &format!("sleep 1000 & {waits}")], user);
        let pid = shell.pid(0);
        let child = || {
            let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let line = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).ok();
            let list = list.expect("it lives");
            let sleeper = list.split_whitespace().find(|pid| line(pid).as_deref() == Some(SLEEPER));
            sleeper.map(|pid| pid.parse::<u32>().expect("a number"))
        };
        daemon.wait_for("its program", || child().is_some());
        let child = child().expect("it sleeps");
        Self { shell, child, go, _folder: folder }
    }

    pub(crate) fn end_the_shell(&self) {
        std::fs::write(&self.go, "").expect("ours");
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = kill(self.child.cast_signed(), SIGKILL);
    }
}
