//! `rondpoint top` in a real terminal, that of tmux: it draws, obeys keys, and leaves the terminal
//! as it was, however it ends.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

#[path = "harness/executable.rs"]
mod executable;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use executable::install;
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

    /// A copy with a name that no other process has on its command line.
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

    /// Starts `top` with these arguments, and waits until its screen has this text.
    #[track_caller]
    fn start_with(&self, arguments: &str, text: &str) -> String {
        let program = env!("CARGO_BIN_EXE_rondpoint");
        self.type_line(&format!("{program} top {arguments}; echo ended-$?"));
        self.wait_for(text)
    }

    /// Starts `top` on the recording, and waits until it is there.
    #[track_caller]
    fn start_top(&self) {
        self.start_with(&format!("--replay {}", self.recording()), "of 11.000 s");
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
        println!("not tried: no tmux here");
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

/// The attributes of text on the screen, as SGR sequences: `1` is bold, `38;…` and `48;…` colours.
fn attributes(screen: &str) -> Vec<String> {
    let parts = screen.split("\x1b[").skip(1);
    parts.filter_map(|part| Some(part.split_once('m')?.0.to_string())).collect()
}

#[test]
fn who_asks_for_no_colours_gets_none_and_still_bold_text() {
    let Some(tmux) = Tmux::start((80, 24)) else {
        println!("not tried: no tmux here");
        return;
    };
    let is_colour = |one: &String| {
        let codes = one.split(';').filter_map(|code| code.parse::<u32>().ok());
        codes.into_iter().any(|code| matches!(code, 30..=38 | 40..=48 | 90..=107))
    };
    for (setting, has_colours) in [("NO_COLOR=", true), ("NO_COLOR=1", false)] {
        tmux.type_line(&format!("clear; export {setting}"));
        tmux.start_top();
        let screen = String::from_utf8(tmux.run(&["capture-pane", "-p", "-e"]).stdout).unwrap();
        let found = attributes(&screen);
        assert_eq!(found.iter().any(is_colour), has_colours, "{setting}: {found:?}");
        assert!(found.iter().any(|one| one.ends_with('1')), "bold with {setting}: {found:?}");
        tmux.keys(&["q"]);
        tmux.is_left_right("0");
    }
}

#[test]
fn a_terminal_that_only_prints_lines_is_refused_and_left_as_it_is() {
    let Some(tmux) = Tmux::start((100, 24)) else {
        println!("not tried: no tmux here");
        return;
    };
    tmux.type_line("export TERM=dumb");
    tmux.start_with(&format!("--replay {}", tmux.recording()), "TERM is dumb");
    tmux.is_left_right("2");
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_left_right() {
    let Some(tmux) = Tmux::start((80, 24)) else {
        println!("not tried: no tmux here");
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

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon that only looks at programs of one name.
struct Daemon(Ended);

impl Daemon {
    fn start(folder: &Path, command: &str) -> Self {
        let config = folder.join("rondpoint.toml");
        let text = format!(
            "mode = \"observe\"\n[manage]\nmin_memory_mib = 0\nmin_cpus = 0.0\n\
             look_every_s = 0.1\ncommands = [\"{command}\"]\n\
             [control]\nsocket = \"{}\"\n",
            folder.join("control").display()
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_rondpoint"))
            .args(["daemon", "--config"])
            .arg(config)
            .env("RUNTIME_DIRECTORY", folder.join("ledgers"))
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let daemon = Self(Ended(child.unwrap()));
        let deadline = Instant::now() + PATIENCE;
        while !folder.join("control").exists() {
            assert!(Instant::now() < deadline, "no socket");
            std::thread::yield_now();
        }
        daemon
    }

    fn kill(&mut self) {
        let _ = self.0.0.kill();
        let _ = self.0.0.wait();
    }
}

#[test]
fn a_daemon_is_followed_until_its_end() {
    let Some(tmux) = Tmux::start((100, 30)) else {
        println!("not tried: no tmux here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("top-target");
    let sleep = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|path| path.join("sleep"))
        .find(|path| path.is_file());
    install(sleep.unwrap(), &program);
    let target = Ended(Command::new(&program).arg("600").spawn().unwrap());
    let mut daemon = Daemon::start(folder.path(), "top-target");
    let socket = folder.path().join("control");
    tmux.start_with(&format!("--socket {}", socket.display()), "daemon observes");
    tmux.wait_for(&format!("{} top-target", target.0.id()));
    tmux.keys(&["Enter"]);
    tmux.wait_for(&format!("process {}  top-target", target.0.id()));
    // Its thread, once the daemon has looked a second time.
    tmux.wait_for(&format!("{} top-target", target.0.id()));
    daemon.kill();
    tmux.wait_for("rondpoint top: the daemon has ended");
    tmux.is_left_right("1");
}

/// A terminal that is closed takes `top` with it.
#[test]
fn it_ends_with_its_terminal() {
    let Some(tmux) = Tmux::start((80, 24)) else {
        println!("not tried: no tmux here");
        return;
    };
    tmux.start_top();
    let process = tmux.process();
    tmux.run(&["kill-server"]);
    let deadline = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{process}/cmdline")).exists() {
        assert!(Instant::now() < deadline, "it runs without a terminal");
        std::thread::yield_now();
    }
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
