//! The lanes of `auto` and their periods.

use crate::policy::Policy;
use crate::policy::asymsched::AsymSched;
use crate::policy::carrefour::Carrefour;
use crate::policy::carrefour::preset::STEADY;
use crate::policy::sam::Sam;
use crate::units::Nanos;

/// SAM's lane. In it `auto` also updates its state from each interval.
pub(super) const SAM: usize = 0;
/// Pairs of threads that samples name.
pub(super) const SHARING: usize = 1;
/// AsymSched.
pub(super) const ASYMSCHED: usize = 2;
/// Carrefour.
pub(super) const CARREFOUR: usize = 3;
/// The first lane of the members; each member has a lane.
pub(super) const FIRST_MEMBER: usize = 4;

/// An epoch: the period of all policies but SAM.
pub(super) const EPOCH: Nanos = Nanos::from_secs(1);
/// The shortest interval after which pages may move (our choice: SAM's).
const SOON: Nanos = Nanos::from_millis(100);
/// Longest time between two decisions, however quiet Carrefour is (our choice: that of [`STEADY`]).
const LONGEST_PERIOD: Nanos = STEADY.quiet_period;

/// The period of each lane.
///
/// SAM decides at its own period while it has something to do, otherwise with the other lanes. The
/// other lanes decide once an epoch. While neither SAM nor AsymSched has anything to do, they
/// decide with Carrefour, whose period grows while it finds nothing.
pub(super) struct Pace<'a> {
    /// Whether SAM has had nothing to do for [`CALM`](super::CALM) intervals.
    pub(super) is_calm: bool,
    pub(super) sam: &'a Sam,
    pub(super) asymsched: &'a AsymSched,
    pub(super) carrefour: &'a Carrefour,
}

impl Pace<'_> {
    /// Period of SAM's lane.
    pub(super) fn of_sam(&self) -> Nanos {
        if self.is_calm { LONGEST_PERIOD } else { self.sam.period() }
    }

    /// Period of Carrefour's lane.
    pub(super) fn of_carrefour(&self) -> Nanos {
        self.carrefour.period()
    }

    /// Period of every other lane.
    pub(super) fn of_others(&self) -> Nanos {
        match self.is_calm && !self.asymsched.is_any_moving() {
            true => self.carrefour.period().clamp(EPOCH, LONGEST_PERIOD),
            false => EPOCH,
        }
    }
}

/// Shortest interval of Carrefour's lane. A tenth of a second of samples shows where a page is
/// used, and a trial judges the move. The other lanes need their whole period.
pub(super) const LEAST_OF_CARREFOUR: Nanos = SOON;
/// Time in which every policy has decided once: an epoch, and a tenth more, so that a pause does
/// not begin just before its end.
pub(super) const SETTLES_WITHIN: Nanos = Nanos(EPOCH.0 + EPOCH.0 / 4);
