//! Rivals that place threads and pages without Rondpoint: Linux's choices and other daemons.

mod balancing;
mod late;
mod numad;

use rondpoint_core::observation::AddressSample;

use crate::plant::{Epoch, Plant};
pub(crate) use balancing::Balancing;
pub(crate) use late::Late;
pub(crate) use numad::Numad;

/// At most one of them acts in a world.
pub(crate) enum Rival {
    /// Linux without automatic NUMA balancing.
    Nothing,
    /// Linux with it.
    Balancing(Box<Balancing>),
    /// The daemon that gives each process nodes of its own.
    Numad(Numad),
    /// All memory interleaved at one moment.
    Late(Late),
}

impl Rival {
    /// Acts after an epoch. Gives the hint faults that the kernel made.
    pub(crate) fn act(&mut self, plant: &mut Plant, epoch: &Epoch) -> Vec<AddressSample> {
        match self {
            Self::Nothing => {}
            Self::Balancing(balancing) => return balancing.act(plant, epoch),
            Self::Numad(numad) => numad.act(plant),
            Self::Late(late) => late.act(plant),
        }
        Vec::new()
    }
}
