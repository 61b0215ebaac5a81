//! SAM held by the slides' worked example, by the rules of each phase, by the repaired defects, and
//! by what must always be true.

mod closed_loop;
mod defects;
mod mph;
mod notation;
mod phases;
mod policy;
mod properties;
mod worked_example;
