//! AsymSched held by enumeration, by its conformance vector and tables, and by what must always be
//! true.

mod brute_force;
mod case;
mod machines;
mod notation;
mod policy;
mod properties;
mod search;
mod tables;
mod vectors;
