//! Lanes of `auto`, in the order in which they are asked in a step.

/// SAM, and all that is remembered from interval to interval.
pub(super) const SAM: usize = 0;
/// Pairs that samples name.
pub(super) const SHARING: usize = 1;
/// Threads that take turns.
pub(super) const HOME: usize = 2;
/// N-MASS.
pub(super) const NMASS: usize = 3;
/// AsymSched.
pub(super) const ASYMSCHED: usize = 4;
/// Carrefour.
pub(super) const CARREFOUR: usize = 5;
/// How many there are.
pub(super) const COUNT: usize = 6;
