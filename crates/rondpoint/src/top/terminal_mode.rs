//! The mode of the terminal during `top`: raw, alternate screen, no cursor. It is restored at every
//! end of the command: a key, an error, a signal, a panic.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::style::Color;

use crate::terminal;

/// Whether there is something to put back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken.
pub(super) struct Taken {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    is_without_colours: bool,
}

impl Taken {
    /// Takes the terminal. From now on a panic puts it back before it is told.
    ///
    /// # Errors
    /// It cannot be set up; it is as it was.
    pub(super) fn open() -> Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |information| {
            put_back();
            before(information);
        }));
        enable_raw_mode().context("setting up the terminal")?;
        TAKEN.store(true, Ordering::SeqCst);
        let opened = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match opened {
            Ok(terminal) => {
                let is_without_colours = terminal::is_without_colours();
                Ok(Self { terminal, is_without_colours })
            }
            Err(error) => {
                put_back();
                Err(error).context("setting up the terminal")
            }
        }
    }

    /// Draws a screen.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> Result<()> {
        let is_without_colours = self.is_without_colours;
        let draw = |screen: &mut ratatui::Frame<'_>| {
            draw(screen);
            if is_without_colours {
                remove_colours(screen.buffer_mut());
            }
        };
        self.terminal.draw(draw).context("drawing").map(|_| ())
    }

    /// Draws everything anew the next time, whatever is on the terminal.
    pub(super) fn forget(&mut self) -> Result<()> {
        self.terminal.clear().context("drawing")
    }
}

/// Leaves bold, faint and reversed text.
fn remove_colours(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.set_fg(Color::Reset).set_bg(Color::Reset);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        put_back();
    }
}

/// Puts the terminal back, once. A terminal that cannot be put back has gone, which is no failure.
pub(super) fn put_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}
