//! The lanes of `auto` and their times.
//!
//! SAM decides at its own period while it has something to do, otherwise with the other lanes.
//! Carrefour has its own lane, because its period grows while it finds nothing. The others share a
//! lane and decide once an epoch. While neither SAM nor they have anything to do, they decide with
//! Carrefour.

use crate::policy::carrefour::preset::STEADY;
use crate::units::Nanos;

/// SAM's lane. In it `auto` also updates its state from each interval.
pub(super) const SAM: usize = 0;
/// Carrefour's lane.
pub(super) const CARREFOUR: usize = 1;
/// The lane of all others: pairs of threads that samples name, the members and AsymSched. Of two
/// equally long intervals, its interval gives the prices of threads, so it is the last.
pub(super) const EPOCHAL: usize = 2;
/// Number of lanes.
pub(super) const LANES: usize = 3;

/// An epoch: the period of all policies but SAM.
pub(super) const EPOCH: Nanos = Nanos::from_secs(1);
/// Shortest interval of Carrefour's lane (our choice: SAM's period). A tenth of a second of samples
/// shows where a page is used, and a trial judges the move. Other lanes need their whole period.
pub(super) const SOON: Nanos = Nanos::from_millis(100);
/// Longest time between two decisions, however quiet Carrefour is (our choice: that of [`STEADY`]).
pub(super) const LONGEST_PERIOD: Nanos = STEADY.quiet_period;
/// Time in which every policy has decided once: an epoch, and a quarter more, so that a pause does
/// not begin just before its end.
pub(super) const SETTLES_WITHIN: Nanos = Nanos(EPOCH.0 + EPOCH.0 / 4);
