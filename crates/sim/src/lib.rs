//! Simulated machines and workloads around the real controller.
//!
//! A fluid model: in each epoch every thread has a rate, which follows from compute, cache share
//! and the latencies that all traffic together gives. `docs/simulator.md` says what it can and
//! cannot tell.
//!
//! What is not here: a clock, a file of the machine that it runs on, a thread inside a world. One
//! seed gives one world; worlds run side by side.

#![forbid(unsafe_code)]

pub mod catalogue;
mod checkers;
pub mod cli;
mod contender;
mod faults;
mod fleet;
mod host;
mod judgement;
mod oracle;
mod parallel;
mod plant;
mod predictions;
mod rank_correlation;
mod report;
mod reproduce;
mod results;
mod rivals;
mod run;
mod sensors;
mod swarm;
mod workload;
mod world;

pub use contender::Contender;
pub use plant::Truth;
pub use run::{Outcome, ProcessTime, run};
pub use sensors::{PMUS, Pmu};
pub use workload::{Workload, WorkloadError};
pub use world::Scene;
