//! Input from outside, within a budget: every file that a user or another program names.
//!
//! A budget bounds bytes, and the items that those bytes expand to. Nine characters can name a
//! billion CPUs, and a page count times an access count can name more work than a year holds. So
//! readers charge what a value *expands to* before they expand it.
//! ```
//! use rondpoint_input::Budget;
//! let mut budget = Budget::new(1 << 20, 1000);
//! budget.take_items(600)?;
//! let error = budget.take_product(&[1 << 40, 1 << 40]).unwrap_err();
//! assert_eq!(error.to_string(), "more than 1000 items in all");
//! # Ok::<(), rondpoint_input::OverBudget>(())
//! ```
#![forbid(unsafe_code)]

mod budget;
mod file;
mod kind;
mod mistake;

pub use budget::{Budget, OverBudget};
pub use file::{open, read, read_text};
pub use kind::Kind;
pub use mistake::{in_one_line, line_at, mistake};
