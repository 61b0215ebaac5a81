//! The machine file: parse, check, write, scale for the lab, and synthetic machines.
//!
//! One description of a machine serves the hardware model, the simulator and the live manager.
//! Everything in it is in real units (ns, MB/s, MHz, bytes) and every constant in a machine file
//! names its source. This crate reads and computes; it never looks at the machine it runs on.

#![forbid(unsafe_code)]

mod machine;

pub use machine::{
    Cache, Caches, Controller, Core, LINE_BYTES, Lab, Link, Machine, Node, Pmu, Prefetch, Route,
    Transfer, Vendor,
};
