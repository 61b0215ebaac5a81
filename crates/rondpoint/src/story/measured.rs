//! The predicted gain of an action, and its outcome on the host.

use rondpoint_core::plan::{Outcome, PageCounts, StepResult};
use serde::Serialize;

/// Relative change of speed that the cost model predicts for a deed by itself, 0.1 = 10 % faster;
/// `None` where it is not priced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Predicted(pub(crate) Option<f64>);

/// What the host did of a deed, over its actions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Done {
    /// Actions of which the recording has the outcome.
    pub(crate) known: usize,
    /// Done.
    pub(crate) done: usize,
    /// The process or thread had ended.
    pub(crate) gone: usize,
    /// The host has no such mechanism.
    pub(crate) unsupported: usize,
    /// Refused by the host.
    pub(crate) refused: usize,
    /// The error of the last refusal, a number of errno(3).
    pub(crate) errno: Option<i32>,
    /// Base pages of 4 KiB.
    pub(crate) pages: PageCounts,
    /// How long the host worked on it.
    pub(crate) spent_s: f64,
    /// How long the process stood still for it.
    pub(crate) frozen_s: f64,
}

impl Done {
    pub(super) fn take_in(&mut self, outcome: &Outcome) {
        self.known += 1;
        match &outcome.result {
            StepResult::Done => self.done += 1,
            StepResult::Pages(counts) => {
                self.done += 1;
                self.pages.add(counts);
            }
            StepResult::Gone => self.gone += 1,
            StepResult::Unsupported => self.unsupported += 1,
            StepResult::Refused { errno } => {
                self.refused += 1;
                self.errno = Some(*errno);
            }
        }
        self.spent_s += outcome.spent.seconds();
        self.frozen_s += outcome.frozen.seconds();
    }
}
