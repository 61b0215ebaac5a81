//! A trace as the loop's host: what was observed is observed again, and nothing is done.

use std::fs::File;
use std::io::Read;

use rondpoint_core::controller::Step;
use rondpoint_core::host::Host;
use rondpoint_core::plan::{Action, StepResult};
use rondpoint_core::{Nanos, Observation, Outcome};

use crate::{Decision, Reader, Record, TraceError};

/// The outcomes that the replaying host reports for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcomes {
    /// The recorded outcomes, for a controller that must decide the same.
    Recorded,
    /// Every step refused, for a controller that decides something else. Its plans had no effect on
    /// the recorded program.
    Refused,
}

/// A step of a trace that a controller decided again.
#[derive(Debug)]
pub struct Retaken<'a> {
    /// Number of the step, from 1.
    pub number: u64,
    /// Line of its input.
    pub line: u64,
    /// Time of the recorded observation.
    pub at: Nanos,
    /// The recorded decision; `None` if the recording ends before it.
    pub recorded: Option<&'a Decision>,
    /// Today's decision.
    pub now: &'a Step,
}

/// A trace as a host. It passes each step of the loop to `compare`, with the recorded decision.
#[derive(Debug)]
pub struct Replayed<F: FnMut(Retaken<'_>), R: Read = File> {
    reader: Reader<R>,
    outcomes: Outcomes,
    compare: F,
    /// The next step. It is read ahead, because its input has the outcomes of the step before.
    next: Option<Record>,
    current: Option<(Nanos, Record)>,
}

impl<F: FnMut(Retaken<'_>), R: Read> Replayed<F, R> {
    /// Replays a trace from its first step.
    #[must_use]
    pub fn new(reader: Reader<R>, outcomes: Outcomes, compare: F) -> Self {
        Self { reader, outcomes, compare, next: None, current: None }
    }

    /// The reader of the trace, for its header and its truncated last line.
    #[must_use]
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    /// `(number, line, time)` of the step that was observed and not yet applied.
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

/// The outcomes "refused" for all steps of a plan. Steps of sampling are done, because the recorded
/// samples continue in any case.
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
