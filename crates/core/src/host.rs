//! The control loop and its interface [`Host`], which the live machine, the simulator and a
//! replayed trace implement.

use crate::controller::{Controller, Input, Step};
use crate::counting_pause::{CountingPause, Watch};
use crate::observation::Observation;
use crate::plan::Outcome;
use crate::units::Nanos;
use alloc::vec::Vec;

/// A machine with processes that the loop observes and changes.
pub trait Host {
    /// Failure of the host itself. A refused action is an outcome, not an error.
    type Error;

    /// Waits for about `period` and observes. `None` when no process is left to manage.
    ///
    /// # Errors
    /// The host cannot be observed any more.
    fn observe(&mut self, period: Nanos) -> Result<Option<Observation>, Self::Error>;

    /// As [`Host::observe`], with a quick check for changes each [`QUICK_GLANCE`]. If `_watch`
    /// reports a change, the host observes at once. It then sets [`Observation::after_pause`],
    /// because the counts mix the time before and after the change. A host without quick checks
    /// waits for `period`.
    ///
    /// [`QUICK_GLANCE`]: crate::limits::QUICK_GLANCE
    ///
    /// # Errors
    /// As [`Host::observe`].
    fn wait(&mut self, _watch: Watch, period: Nanos) -> Result<Option<Observation>, Self::Error> {
        self.observe(period)
    }

    /// Stops counting until the pause ends, then observes. A host that cannot stop counting waits
    /// for `period` only.
    ///
    /// # Errors
    /// As [`Host::observe`].
    fn pause_counting(
        &mut self,
        _pause: CountingPause,
        period: Nanos,
    ) -> Result<Option<Observation>, Self::Error> {
        self.observe(period)
    }

    /// Writes the inverses of the step's plan and the settled trials to the ledger. Then carries
    /// out the plan's steps in order and returns one outcome for each.
    ///
    /// # Errors
    /// The inverses could not be written, and no step was carried out.
    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Self::Error>;
}

/// An observer of everything that goes through the loop: a recorder, a report.
pub trait Witness {
    /// Called with the input before the controller gets it.
    fn input(&mut self, _input: &Input) {}

    /// Called with the controller's decision and its outcomes.
    fn step(&mut self, _step: &Step, _outcomes: &[Outcome]) {}
}

impl Witness for () {}

/// Runs until the host has no process left.
///
/// # Errors
/// The host's.
pub fn run<H: Host>(
    host: &mut H,
    controller: &mut Controller,
    witness: &mut impl Witness,
) -> Result<(), H::Error> {
    let mut outcomes = Vec::new();
    while turn(host, controller, witness, &mut outcomes)? {}
    Ok(())
}

/// Makes one turn of the loop. Returns whether the host has a process left. `outcomes` holds those
/// of the last turn and receives those of this turn.
///
/// # Errors
/// The host's.
pub fn turn<H: Host>(
    host: &mut H,
    controller: &mut Controller,
    witness: &mut impl Witness,
    outcomes: &mut Vec<Outcome>,
) -> Result<bool, H::Error> {
    let period = controller.period();
    let observation = match (controller.take_pause(), controller.take_watch()) {
        (Some(pause), _) => host.pause_counting(pause, period)?,
        (None, Some(watch)) => host.wait(watch, period)?,
        (None, None) => host.observe(period)?,
    };
    let Some(observation) = observation else { return Ok(false) };
    let input = Input { observation, outcomes: core::mem::take(outcomes) };
    witness.input(&input);
    let step = controller.step(input);
    *outcomes = host.apply(&step)?;
    witness.step(&step, outcomes);
    Ok(true)
}
