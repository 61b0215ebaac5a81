//! The loop: one interface for the live machine, the simulator and a replayed trace. It cannot tell
//! which it has.

use crate::controller::{Controller, Input, Step};
use crate::counting_pause::{CountingPause, Watch};
use crate::observation::Observation;
use crate::plan::Outcome;
use crate::units::Nanos;
use alloc::vec::Vec;

/// What the loop manages.
pub trait Host {
    /// What can go wrong with the host itself. A refused action is an outcome, not an error.
    type Error;

    /// Waits for about `period` and looks; `None` when there is nothing left to manage.
    ///
    /// # Errors
    /// The host cannot be observed any more.
    fn observe(&mut self, period: Nanos) -> Result<Option<Observation>, Self::Error>;

    /// As [`Host::observe`], and glances meanwhile, once in [`QUICK_GLANCE`]. Where the watch says
    /// that something changed, it looks at once. Then it sets [`Observation::after_pause`], for the
    /// counts so far mix the time before and after. A host that cannot glance waits for `period`.
    ///
    /// [`QUICK_GLANCE`]: crate::limits::QUICK_GLANCE
    ///
    /// # Errors
    /// As [`Host::observe`].
    fn wait(&mut self, _watch: Watch, period: Nanos) -> Result<Option<Observation>, Self::Error> {
        self.observe(period)
    }

    /// Stops counting until the pause is over, then looks. A host that cannot stop goes on watching
    /// and waits for `period` only.
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

    /// Writes down the inverses of the step's plan and what its trials settled, then does the
    /// plan's steps in order; one outcome for each.
    ///
    /// # Errors
    /// The inverses could not be written: nothing was done.
    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Self::Error>;
}

/// An observer of everything that goes through the loop: a recorder, a report.
pub trait Witness {
    /// What the controller is about to be given.
    fn input(&mut self, _input: &Input) {}

    /// What it decided, and what became of that.
    fn step(&mut self, _step: &Step, _outcomes: &[Outcome]) {}
}

impl Witness for () {}

/// Runs until the host has nothing left.
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

/// Makes one turn of the loop. Returns whether the host has anything left. `outcomes` are the last
/// turn's, and then this one's.
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
