//! Simulated machines and workloads around the real controller.
//!
//! A fluid model: in each epoch every thread has a rate. The rate follows from compute time, cache
//! share, and latencies, which depend on all traffic. `docs/simulator.md` lists what the model can
//! and cannot show.
//!
//! A simulated world uses no clock, no file of the host and no thread. One seed gives one world;
//! several worlds run in parallel.

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
