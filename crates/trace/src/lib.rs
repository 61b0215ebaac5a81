//! The record of a managed run: everything that entered the controller and everything that it
//! decided, in a file that outlives the code.
//!
//! A trace is text, one JSON object a line. The first is a header with the machine, the policies,
//! the seed and the guard's settings. Each step has a line with its input and a line with its
//! decision. Each line is written as soon as it is known, the input before the controller sees it.
//! So a manager that is killed, or that fails on an input, leaves a file that can be read.
//! `docs/trace.md` has the fields; `wire` has their types, which do not change when the core's do.
//!
//! Neither a clock nor a host is read here.
//! ```no_run
//! # fn main() -> Result<(), rondpoint_trace::TraceError> {
//! let trace = rondpoint_trace::Reader::open("run.trace")?;
//! let mut controller = trace.header().controller()?;
//! for record in trace {
//!     let step = controller.step(record?.input);
//!     println!("{} actions", step.plan.steps.len());
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod check;
mod decision;
mod error;
mod header;
mod reader;
mod replayed;
mod wire;
mod writer;

pub use decision::{Decision, Difference, Extent, Told, Trial, Veto};
pub use error::TraceError;
pub use header::{Header, PolicyChoice};
pub use reader::{Reader, Record, Truncated};
pub use replayed::{Outcomes, Replayed, Retaken};
pub use writer::{Recorder, Writer};

/// Name of the format in the first line.
pub const FORMAT: &str = "rondpoint-trace";
/// Version of the format that is written. Older versions stay readable.
pub const VERSION: u32 = 1;
