//! The witnesses of a run's loop: the report's account, the moves of threads, the record.

use rondpoint_core::controller::{Input, Step};
use rondpoint_core::host::Witness;
use rondpoint_core::plan::Outcome;
use rondpoint_trace::Recorder;

use super::account::Diary;
use super::moves::ThreadMoves;
use crate::output::Output;
use crate::session::panic_if_told;

/// All witnesses of the loop.
pub(super) struct Witnesses {
    pub(super) diary: Diary,
    pub(super) moves: ThreadMoves,
    pub(super) recorder: Option<Recorder<Output>>,
}

impl Witness for Witnesses {
    fn input(&mut self, input: &Input) {
        self.diary.input(input);
        if let Some(recorder) = &mut self.recorder {
            recorder.input(input);
        }
    }

    fn step(&mut self, step: &Step, outcomes: &[Outcome]) {
        if !outcomes.is_empty() {
            panic_if_told("step");
        }
        self.diary.step(step, outcomes);
        self.moves.step(step, outcomes);
        if let Some(recorder) = &mut self.recorder {
            recorder.step(step, outcomes);
        }
    }
}
