//! The machine file: parse, check, write, scale for the lab, and synthetic machines.
//!
//! One description of a machine serves the hardware model, the simulator and the live manager.
//! Everything in it is in real units (ns, MB/s, MHz, bytes) and every constant in a machine file
//! names its source. This crate reads and computes; it never looks at the machine it runs on.
//!
//! ```
//! use rondpoint_machine::Machine;
//! let machine = Machine::synthetic("nodes=4 cpus=4 memory=2G shape=ring")?;
//! assert_eq!(machine.hops(0, 2), 2);
//! assert_eq!(Machine::parse(&machine.to_toml(), "again")?, machine);
//! # Ok::<(), rondpoint_machine::MachineError>(())
//! ```

#![forbid(unsafe_code)]

mod build;
mod check;
mod error;
mod file;
mod lab;
mod latency;
pub mod limits;
mod locate;
mod machine;
mod matrix;
mod network;
mod parse;
mod route;
mod saturation;
mod size;
mod synthetic;
mod topology;
mod write;

pub use error::MachineError;
pub use machine::{
    Cache, Caches, Controller, Core, LINE_BYTES, Lab, Link, Machine, Node, Pmu, Prefetch,
    Processor, Route, Transfer, Vendor,
};
pub use saturation::{Contended, Demand, Saturation};
