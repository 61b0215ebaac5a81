//! `rondpoint top`: the machine, its processes and the decisions about them, on the whole terminal:
//! live from the daemon, or over a recording. It changes nothing.

mod draw;
mod filter;
mod frame;
mod live;
mod local;
mod replayed;
mod state;
mod terminal_mode;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::syscall::signal;

use self::frame::Frame;
use self::live::Live;
use self::local::Local;
use self::replayed::Player;
use self::state::{After, State, View};
use self::terminal_mode::Taken;
use crate::control::SOCKET;
use crate::{session, story, terminal};

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;
/// How long a key or a signal may wait: shorter than what a user notices.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the screen has for ending by itself after a signal.
const GRACE: Duration = Duration::from_millis(500);
/// Whether a signal wants it to end.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Between two looks of our own, where no daemon runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// Show the machine, its processes and decisions on the whole terminal, live or recorded
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint top                        # the daemon's view; without a daemon, the kernel's figures
  rondpoint top --replay run.trace     # a recorded run; ← and → go back and forth, ? helps

`rondpoint observe` and `rondpoint explain` print the same as text and JSON.
Exit status: 0 good, 1 the daemon has ended, 2 bad usage or file.")]
pub(crate) struct Arguments {
    /// Show a file of `rondpoint record` or `run --record`
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    replay: Option<PathBuf>,

    /// The daemon's control socket
    ///
    /// [default: /run/rondpoint/control]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    socket: Option<PathBuf>,
}

/// Where frames come from.
enum Source {
    Recording(Box<Player>),
    Daemon(Box<Live>),
    Machine(Box<Local>, Instant),
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    // Before any thread begins: each would else suffer the signals that are read here.
    let opened = session::stop_signals().and_then(|signals| Ok((signals, open(arguments)?)));
    let (signals, source) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            terminal::fail("top", &error);
            return ExitCode::from(BAD_INPUT);
        }
    };
    watch(signals);
    match show(source) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail("top", &error);
            ExitCode::FAILURE
        }
    }
}

fn open(arguments: &Arguments) -> Result<Source> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("expected a terminal; `rondpoint observe` and `rondpoint explain` print text");
    }
    if terminal::is_dumb() {
        bail!(
            "expected a terminal that moves its cursor, TERM is dumb; `rondpoint observe` and \
             `rondpoint explain` print text"
        );
    }
    // A recording, or a socket that is named, may lie in a folder of another user.
    let is_named = arguments.replay.is_some() || arguments.socket.is_some();
    let _ = privileges::keep_only(&Needs::to_show(is_named));
    if let Some(file) = &arguments.replay {
        let story = story::read(file)?;
        if story.moments.is_empty() {
            bail!("{}: the recording has no look at the machine", file.display());
        }
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        return Ok(Source::Recording(Box::new(Player::new(story, name))));
    }
    let found = match &arguments.socket {
        Some(socket) => Some(Live::connect(socket)?),
        None => daemon(Path::new(SOCKET))?,
    };
    Ok(match found {
        Some(live) => Source::Daemon(Box::new(live)),
        None => Source::Machine(Box::new(Local::begin()?), Instant::now()),
    })
}

/// The daemon at its usual socket; `None` where none runs, be there a socket of an earlier one or
/// not.
///
/// # Errors
/// A daemon may run, but this user cannot ask it.
fn daemon(usual: &Path) -> Result<Option<Live>> {
    let is_nobody = |error: &anyhow::Error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
    };
    // A daemon opens the folder of its socket to all users. Root's ledgers alone leave it shut.
    let is_shut = || {
        let found = std::fs::symlink_metadata(usual);
        found.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    match Live::connect(usual) {
        Ok(live) => Ok(Some(live)),
        Err(error) if is_nobody(&error) || is_shut() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Source {
    /// Goes on. Returns whether there is something new to draw.
    fn pass(&mut self, elapsed: Duration, state: &State) -> Result<bool> {
        match self {
            Self::Recording(player) => Ok(player.pass(elapsed.as_secs_f64())),
            Self::Daemon(live) => {
                let opened = match state.view {
                    View::Process(pid) => Some(pid),
                    View::Machine | View::Decisions => None,
                };
                live.take_in(opened)
            }
            Self::Machine(local, last) if last.elapsed() >= INTERVAL => {
                *last = Instant::now();
                local.look().map(|()| true)
            }
            Self::Machine(..) => Ok(false),
        }
    }

    fn frame(&self) -> Frame {
        match self {
            Self::Recording(player) => player.frame(),
            Self::Daemon(live) => live.frame(),
            Self::Machine(local, _) => local.frame(),
        }
    }

    fn player(&mut self) -> Option<&mut Player> {
        match self {
            Self::Recording(player) => Some(player),
            Self::Daemon(_) | Self::Machine(..) => None,
        }
    }
}

/// Waits for a signal in a thread of its own. The library for the terminal never returns from one
/// that has gone, so where the screen does not end by itself soon the process does.
fn watch(signals: OwnedFd) {
    std::thread::spawn(move || {
        while !session::has_stopped(signals.as_fd()) {
            let _ = signal::wait_readable(&[signals.as_fd()], -1);
        }
        STOPPED.store(true, Ordering::SeqCst);
        std::thread::park_timeout(GRACE);
        terminal_mode::put_back();
        std::process::exit(0);
    });
}

/// Shows frames until a key or a signal ends it.
fn show(mut source: Source) -> Result<()> {
    let mut state = State::new();
    let mut screen = Taken::open()?;
    let mut frame = source.frame();
    let mut before = Instant::now();
    let mut is_new = true;
    loop {
        if is_new {
            let player = source.player().map(|player| &*player);
            screen.draw(|screen| draw::draw(screen, &frame, &state, player))?;
        }
        is_new = false;
        if event::poll(PATIENCE)? {
            match react(&event::read()?, &mut state, &frame, source.player()) {
                After::Quit => return Ok(()),
                After::Anew => {
                    screen.forget()?;
                    is_new = true;
                }
                After::Draw => is_new = true,
                After::Nothing => {}
            }
        }
        if STOPPED.load(Ordering::SeqCst) {
            return Ok(());
        }
        let elapsed = before.elapsed();
        before = Instant::now();
        is_new |= source.pass(elapsed, &state)?;
        if is_new && !state.held {
            frame = source.frame();
        }
    }
}

fn react(event: &Event, state: &mut State, frame: &Frame, player: Option<&mut Player>) -> After {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => state.key(*key, frame, player),
        Event::Resize(..) => After::Draw,
        _ => After::Nothing,
    }
}

#[cfg(test)]
mod without_a_daemon {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_usual_socket_of_no_daemon_is_no_failure_and_a_named_one_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let (stale, absent) = (folder.path().join("stale"), folder.path().join("absent"));
        drop(UnixListener::bind(&stale).expect("a socket"));
        for socket in [&stale, &absent] {
            assert!(matches!(daemon(socket), Ok(None)), "the kernel's own figures");
            let said = Live::connect(socket).err().expect("nobody listens").to_string();
            assert!(
                said.starts_with(&format!("no daemon answers at {}", socket.display())),
                "{said}"
            );
        }
        // As root's ledgers leave it.
        let shut = folder.path().join("shut");
        std::fs::create_dir(&shut).expect("a folder");
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(&shut, closed).expect("ours");
        assert!(matches!(daemon(&shut.join("control")), Ok(None)), "root passes it anyway");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&shut, open).expect("ours");
        let error = daemon(Path::new("/proc/self/status/x")).err().expect("no folder");
        assert!(error.to_string().starts_with("no daemon answers at"), "{error}");
    }
}
