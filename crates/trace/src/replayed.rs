//! A trace as the loop's host: what was observed is observed again, and nothing is done.

use std::fs::File;
use std::io::Read;

use rondpoint_core::controller::Step;
use rondpoint_core::host::Host;
use rondpoint_core::plan::{Action, StepResult};
use rondpoint_core::{Nanos, Observation, Outcome};

use crate::{Decision, Reader, Record, TraceError};

/// What the host says became of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcomes {
    /// What was recorded: for a controller that is to decide the same.
    Recorded,
    /// That it refused everything: for a controller that decides something else, of which the
    /// recorded program felt nothing.
    Refused,
}

/// A step of a trace that was taken again.
#[derive(Debug)]
pub struct Retaken<'a> {
    /// Its number, counted from 1.
    pub number: u64,
    /// Line of its input.
    pub line: u64,
    /// When the recorded host was observed.
    pub at: Nanos,
    /// What was decided; `None` where the recording ends before the decision.
    pub recorded: Option<&'a Decision>,
    /// What is decided now.
    pub now: &'a Step,
}

/// A trace as a host. Each step that the loop takes is shown to `compare`, with what was recorded.
#[derive(Debug)]
pub struct Replayed<F: FnMut(Retaken<'_>), R: Read = File> {
    reader: Reader<R>,
    outcomes: Outcomes,
    compare: F,
    /// Read ahead for its outcomes.
    next: Option<Record>,
    current: Option<(Nanos, Record)>,
}

impl<F: FnMut(Retaken<'_>), R: Read> Replayed<F, R> {
    /// Goes through a trace from its first step.
    #[must_use]
    pub fn new(reader: Reader<R>, outcomes: Outcomes, compare: F) -> Self {
        Self { reader, outcomes, compare, next: None, current: None }
    }

    /// The trace, for its header and its end.
    #[must_use]
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    /// The step that the loop has been given and has not brought back: number, line, time.
    #[must_use]
    pub fn pending(&self) -> Option<(u64, u64, Nanos)> {
        self.current.as_ref().map(|(at, record)| (record.step, record.line, *at))
    }
}

impl<F: FnMut(Retaken<'_>), R: Read> Host for Replayed<F, R> {
    type Error = TraceError;

    fn observe(&mut self, _: Nanos) -> Result<Option<Observation>, TraceError> {
        let next = self.next.take().map(Ok).or_else(|| self.reader.next());
        let Some(mut record) = next.transpose()? else { return Ok(None) };
        let observation = std::mem::take(&mut record.input.observation);
        self.current = Some((observation.at, record));
        Ok(Some(observation))
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, TraceError> {
        if let Some((at, record)) = self.current.take() {
            (self.compare)(Retaken {
                number: record.step,
                line: record.line,
                at,
                recorded: record.decision.as_ref(),
                now: step,
            });
        }
        self.next = self.reader.next().transpose()?;
        Ok(match (self.outcomes, &mut self.next) {
            (Outcomes::Refused, _) => refuse_all(step),
            (Outcomes::Recorded, Some(next)) => std::mem::take(&mut next.input.outcomes),
            (Outcomes::Recorded, None) => Vec::new(),
        })
    }
}

/// Number of errno(3), the same on x86-64 and arm64.
const EPERM: i32 = 1;

/// Sampling goes on as it was, which is the best that a recording can offer.
fn refuse_all(step: &Step) -> Vec<Outcome> {
    let outcome = |(place, action): (usize, &Action)| Outcome {
        plan: step.plan.number,
        step: place,
        result: match action {
            Action::SetSampling { .. } => StepResult::Done,
            _ => StepResult::Refused { errno: EPERM },
        },
        spent: Nanos(0),
        frozen: Nanos(0),
    };
    step.plan.steps.iter().map(|proposal| &proposal.action).enumerate().map(outcome).collect()
}
