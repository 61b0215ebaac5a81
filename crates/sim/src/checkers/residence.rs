//! No ping-pong: a thread or page moves a bounded number of times in any stretch of time of the
//! window's length. Copies of a page come and go as rarely.

use std::collections::{BTreeMap, VecDeque};

use rondpoint_core::guard::GuardSettings;
use rondpoint_core::plan::Action;
use rondpoint_core::{Nanos, Pid, Tid};

use super::{Broken, Checker, View};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Thread(Tid),
    Page(Pid, u64),
    Copies(Pid, u64),
}

pub(super) struct Residence {
    window: Nanos,
    most: usize,
    moves: BTreeMap<Subject, VecDeque<Nanos>>,
}

impl Residence {
    pub(super) fn new(settings: &GuardSettings) -> Self {
        let most = settings.max_moves_per_window as usize;
        Self { window: settings.window, most, moves: BTreeMap::new() }
    }

    fn moved(&mut self, subject: Subject, at: Nanos) -> Result<(), Broken> {
        let moves = self.moves.entry(subject).or_default();
        moves.push_back(at);
        while moves.front().is_some_and(|first| at.since(*first) >= self.window) {
            moves.pop_front();
        }
        if moves.len() > self.most {
            let what = format!("{subject:?} moved {} times in {}", moves.len(), self.window);
            return Err(Broken::new("no ping-pong", what));
        }
        Ok(())
    }
}

impl Checker for Residence {
    fn check(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let at = view.at();
        for step in view.done() {
            match &step.action {
                Action::SetAffinity { tid, .. } => self.moved(Subject::Thread(*tid), at)?,
                Action::MovePages { pid, pages, .. } => {
                    for page in pages {
                        self.moved(Subject::Page(*pid, page.address), at)?;
                    }
                }
                Action::Replicate { pid, pages } | Action::Unreplicate { pid, pages } => {
                    for page in pages {
                        self.moved(Subject::Copies(*pid, page.address), at)?;
                    }
                }
                // A bulk move has no pages of its own.
                Action::MoveProcessMemory { .. } | Action::SetSampling { .. } => {}
            }
        }
        Ok(())
    }
}
