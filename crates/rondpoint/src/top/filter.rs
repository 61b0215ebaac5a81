//! The filter text of `/`: processes and decisions without it are hidden.

use std::borrow::Cow;

use ratatui::crossterm::event::KeyCode;

use super::frame::{DecisionRow, Frame, ProcessRow};

/// Letters at most: what fits beside the keys.
const LONGEST: usize = 24;

/// A text, and whether keys still go into it. Capitals and small letters are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    text: String,
    is_typed: bool,
}

impl Filter {
    /// From now on keys go into the text.
    pub(super) fn begin(&mut self) {
        self.is_typed = true;
    }

    /// Shows everything again. Returns whether something was left out before.
    pub(super) fn clear(&mut self) -> bool {
        let was_set = self.is_set();
        *self = Self::default();
        was_set
    }

    /// Whether keys go into the text.
    pub(super) fn is_typed(&self) -> bool {
        self.is_typed
    }

    /// Whether something may be left out.
    pub(super) fn is_set(&self) -> bool {
        !self.text.is_empty()
    }

    /// A key while the text is typed.
    pub(super) fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if self.text.chars().count() < LONGEST => {
                self.text.extend(letter.to_lowercase());
            }
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Enter => self.is_typed = false,
            KeyCode::Esc => *self = Self::default(),
            _ => {}
        }
    }

    /// As it stands on the last line of the screen.
    pub(super) fn shown(&self) -> String {
        format!("/{}{}", self.text, if self.is_typed { "█" } else { "" })
    }

    /// Whether the name, the number or the state of a process has the text.
    pub(super) fn has(&self, process: &ProcessRow) -> bool {
        let of = |text: &str| text.to_lowercase().contains(&self.text);
        !self.is_set()
            || of(&process.name)
            || of(&process.state)
            || process.pid.to_string().contains(&self.text)
    }

    /// The decisions whose sentence, number or process has the text, in their order.
    pub(super) fn decisions<'a>(&self, frame: &'a Frame) -> Cow<'a, [DecisionRow]> {
        if !self.is_set() {
            return Cow::Borrowed(&frame.decisions);
        }
        let is_shown = |one: &&DecisionRow| {
            let process = one.pid.and_then(|pid| frame.process(pid));
            one.text.to_lowercase().contains(&self.text)
                || one.pid.is_some_and(|pid| pid.to_string().contains(&self.text))
                || process.is_some_and(|process| self.has(process))
        };
        Cow::Owned(frame.decisions.iter().filter(is_shown).cloned().collect())
    }
}
