//! whole nodes of threads, then their memory: the node sets with the most bandwidth between them

pub mod cluster;
mod least_movement;
mod local;
mod part;
pub mod problem;
pub mod search;
pub mod set_bandwidth;
mod subset;
mod table;
mod wide;

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
    name: "asymsched",
    about: "whole nodes of threads, then their memory: the node sets with the most bandwidth between them",
    presets: &[],
    make: |preset| preset.is_none().then(|| Box::new(AsymSched::default()) as Box<dyn Policy>),
};

/// State of the policy.
#[derive(Debug, Clone, Default)]
pub struct AsymSched {}

/// Why it proposes something.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum AsymSchedReason {}

impl Policy for AsymSched {
    fn propose(&mut self, _: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        Vec::new()
    }
}

impl fmt::Display for AsymSchedReason {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
