//! N-MASS held by its conformance vectors, the paper's derived figures, and what must always be
//! true.

mod derived;
mod literal;
mod notation;
mod policy;
mod properties;
mod vectors;
