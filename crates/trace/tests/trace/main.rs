//! What is written can be read again, for ever, and what is damaged is said.

mod arbitrary;
mod round_trip;
