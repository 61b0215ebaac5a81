//! The functional core of Rondpoint: model, policies, guard, plan, ledger, controller.
//!
//! The stages of a decision are modules: [`observation`] (readings of the sensors) → [`model`]
//! (rates and ratios) → [`policy`] (proposals) → guard → [`plan`] → outcomes.
//!
//! Nodes, CPUs and cache domains are dense indices (`usize`) into the [`topology::Topology`]; the
//! kernel's own numbers, which may have holes, appear only in its tables. Matrices are `[accessing
//! node][holding node]`.
//!
//! This crate uses no clock, file, thread, environment variable or unsafe code. The order of a hash
//! map never reaches a result. Randomness comes from a [`random::Random`], which the caller seeds.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accounts;
pub mod advice;
pub mod arbiter;
pub mod belief;
pub mod candidate;
pub mod controller;
pub mod cost;
pub mod counting_pause;
pub mod guard;
pub mod host;
pub mod index_set;
pub mod interleave;
pub mod ledger;
pub mod limits;
pub mod matrix;
pub mod model;
pub mod observation;
pub mod plan;
pub mod policy;
pub mod random;
pub mod reference;
pub mod topology;
pub mod trial;
mod undo;
pub mod units;
pub mod worth;

pub use index_set::{CpuSet, IndexSet, NodeSet};
pub use matrix::Matrix;
pub use model::Model;
pub use observation::Observation;
pub use plan::{Action, Outcome, Plan, Proposal, Reason};
pub use policy::Policy;
pub use random::Random;
pub use topology::Topology;
pub use units::{Bytes, Nanos, Pid, Tid};
