//! The policy that never proposes.

use super::{Policy, Registered};
use crate::model::Model;
use crate::plan::Proposal;
use crate::random::Random;
use crate::topology::Topology;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "observe",
    about: "watch only, never change anything",
    presets: &[],
    make: |preset| preset.is_none().then(|| Box::new(Observe) as Box<dyn Policy>),
    in_auto: None,
};

/// Only observes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Observe;

impl Policy for Observe {
    fn propose(&mut self, _: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        Vec::new()
    }
}
