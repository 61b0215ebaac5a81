//! What is written can be read again, for ever, and what is damaged is said.

mod arbitrary;
mod damaged;
mod fuzz;
mod golden;
mod replay;
mod round_trip;
