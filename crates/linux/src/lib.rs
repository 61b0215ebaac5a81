//! The imperative shell: everything that Rondpoint reads from Linux and changes there.
//!
//! This is the only crate of the product with `unsafe`, and all of it sits in [`syscall`]. Parsers
//! take bytes and return values. Readers open paths beneath a [`root::Root`]. No code here compares
//! a counter with a threshold: decisions are in `rondpoint-core`.

pub mod act;
pub mod bulk;
pub mod capture;
pub mod claim;
pub mod cpuset;
pub mod devices;
pub mod error;
pub mod freeze;
mod kept;
pub mod launch;
pub mod ledger_file;
pub mod lines;
pub mod observe;
pub mod parse;
pub mod perf;
pub mod privileges;
pub mod probe;
pub mod replicas;
pub mod room;
pub mod root;
#[cfg(test)]
mod sleeper;
pub mod syscall;
pub mod topology;
pub mod weights;

pub use error::LinuxError;
pub use root::Root;
