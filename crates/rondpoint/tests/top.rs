//! `rondpoint top` in a real terminal, that of tmux: it draws, obeys keys, and leaves the terminal
//! as it was, however it ends.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rondpoint_linux::syscall::process::kill;
use tempfile::TempDir;

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");
// Numbers of signal(7), the same on x86-64 and arm64.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
/// How long a screen may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell; nothing of it is left afterwards.
struct Tmux {
    folder: TempDir,
}

impl Tmux {
    /// `None` where there is no tmux.
    fn start(size: (u16, u16)) -> Option<Self> {
        let tmux = Self { folder: tempfile::tempdir().unwrap() };
        let [width, height] = [size.0.to_string(), size.1.to_string()];
        let started = tmux
            .command()
            .args(["new-session", "-d", "-x", &width, "-y", &height])
            .arg("env -u BASH_ENV PS1='ready> ' bash --norc --noprofile")
            .stdin(Stdio::null())
            .output()
            .ok()?;
        assert!(started.status.success(), "{started:?}");
        tmux.wait_for("ready>");
        Some(tmux)
    }

    /// tmux with a server of its own and no configuration.
    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").env("TERM", "screen-256color").env("LC_ALL", "C.UTF-8");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(self.folder.path().join("socket"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    fn screen(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// A copy whose name no other process has on its command line.
    fn recording(&self) -> String {
        let file = self.folder.path().join("run.trace");
        std::fs::copy(RECORDING, &file).unwrap();
        file.display().to_string()
    }

    /// The process of `top`.
    fn process(&self) -> i32 {
        let words = format!("top\0--replay\0{}", self.recording());
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_it = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&words)
        };
        pids.into_iter().find(is_it).expect("it runs")
    }

    /// What tmux knows of the terminal.
    fn say(&self, format: &str) -> String {
        let output = self.run(&["display-message", "-p", format]);
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn type_line(&self, line: &str) {
        self.run(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < deadline, "no {text:?} on:\n{screen}");
        }
    }

    /// Starts `top` on the recording, and waits until it is there.
    #[track_caller]
    fn start_top(&self) {
        let (program, file) = (env!("CARGO_BIN_EXE_rondpoint"), self.recording());
        self.type_line(&format!("{program} top --replay {file}; echo ended-$?"));
        self.wait_for("of 11.000 s");
        assert_eq!(self.say("#{alternate_on}"), "1", "on the terminal's second page");
    }

    /// The terminal is as it was: its first page, a cursor, and lines that echo.
    #[track_caller]
    fn is_left_right(&self, status: &str) {
        self.wait_for(&format!("ended-{status}"));
        assert_eq!(self.say("#{alternate_on}"), "0");
        assert_eq!(self.say("#{cursor_flag}"), "1");
        self.type_line("clear; stty -a | tr ' ;' '\\n\\n' | grep -xE 'icanon|echo|isig' | wc -l");
        self.wait_for("3");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

#[test]
fn keys_go_through_a_recording_and_the_terminal_is_left_right() {
    let Some(tmux) = Tmux::start((80, 24)) else {
        eprintln!("did not run: no tmux here");
        return;
    };
    tmux.start_top();
    tmux.keys(&["Home"]);
    tmux.wait_for("0.000 of 11.000 s");
    tmux.keys(&["]"]);
    let screen = tmux.wait_for("3.000 of 11.000 s");
    assert!(screen.contains("row←column") && screen.contains("66.8"), "{screen}");
    tmux.keys(&["Enter"]);
    tmux.wait_for("process 100");
    tmux.keys(&["?"]);
    tmux.wait_for("quit");
    tmux.keys(&["x"]);
    tmux.keys(&["b"]);
    tmux.wait_for("threads by node");
    tmux.run(&["resize-window", "-x", "120", "-y", "40"]);
    tmux.wait_for("space ← → [ ] time");
    tmux.keys(&["q"]);
    tmux.is_left_right("0");
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_left_right() {
    let Some(tmux) = Tmux::start((80, 24)) else {
        eprintln!("did not run: no tmux here");
        return;
    };
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        tmux.type_line("clear");
        tmux.start_top();
        kill(tmux.process(), signal).unwrap();
        tmux.is_left_right("0");
    }
    tmux.type_line("clear");
    tmux.start_top();
    tmux.keys(&["C-c"]);
    tmux.is_left_right("0");
}

#[test]
fn without_a_terminal_it_says_what_prints_text() {
    let output = Command::new(env!("CARGO_BIN_EXE_rondpoint"))
        .args(["top", "--replay", RECORDING])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("expected a terminal; `rondpoint observe`"), "{said}");
}
