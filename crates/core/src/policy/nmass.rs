//! single-threaded processes: locality against last-level cache pressure

use super::{Policy, Registered};
use crate::model::Model;
use crate::plan::Proposal;
use crate::random::Random;
use crate::topology::Topology;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "nmass",
    about: "single-threaded processes: locality against last-level cache pressure",
    presets: &[],
    make: |preset| preset.is_none().then(|| Box::new(NMass::default()) as Box<dyn Policy>),
};

/// State of the policy.
#[derive(Debug, Clone, Default)]
pub struct NMass {}

/// Why it proposes something.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum NMassReason {}

impl Policy for NMass {
    fn propose(&mut self, _: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        Vec::new()
    }
}

impl fmt::Display for NMassReason {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
