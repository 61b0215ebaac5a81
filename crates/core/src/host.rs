//! The loop: one interface for the live machine, the simulator and a replayed trace. It cannot tell which it has.

use crate::controller::{Controller, Input, Step};
use crate::observation::Observation;
use crate::plan::{Outcome, Plan};
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

    /// Writes down the plan's inverses, then does its steps in order; one outcome for each.
    ///
    /// # Errors
    /// The inverses could not be written: nothing was done.
    fn apply(&mut self, plan: &Plan) -> Result<Vec<Outcome>, Self::Error>;
}

/// Runs until the host has nothing left; `report` sees every step and what became of it.
///
/// # Errors
/// The host's.
pub fn run<H: Host>(
    host: &mut H,
    controller: &mut Controller,
    mut report: impl FnMut(&Step, &[Outcome]),
) -> Result<(), H::Error> {
    let mut outcomes = Vec::new();
    while let Some(observation) = host.observe(controller.period())? {
        let step = controller.step(Input { observation, outcomes });
        outcomes = host.apply(&step.plan)?;
        report(&step, &outcomes);
    }
    Ok(())
}
