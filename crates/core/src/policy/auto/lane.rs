//! The lanes of `auto`, and their pace.

use crate::policy::Policy;
use crate::policy::asymsched::AsymSched;
use crate::policy::carrefour::Carrefour;
use crate::policy::carrefour::preset::STEADY;
use crate::policy::sam::Sam;
use crate::units::Nanos;

/// SAM, and all that is taken in from interval to interval.
pub(super) const SAM: usize = 0;
/// Pairs that samples name.
pub(super) const SHARING: usize = 1;
/// AsymSched.
pub(super) const ASYMSCHED: usize = 2;
/// Carrefour.
pub(super) const CARREFOUR: usize = 3;
/// The first of the members, which have a lane each.
pub(super) const FIRST_MEMBER: usize = 4;

/// An epoch: the period of all policies but SAM.
pub(super) const EPOCH: Nanos = Nanos::from_secs(1);
/// The shortest interval after which pages may move (our choice: SAM's).
const SOON: Nanos = Nanos::from_millis(100);
/// Longest time between two looks, however quiet Carrefour is (our choice: that of [`STEADY`]).
const LONGEST_PERIOD: Nanos = STEADY.quiet_period;

/// How often each lane decides.
///
/// SAM decides at its own period while it has something to do, else with the others. The others but
/// Carrefour decide once an epoch. Where neither SAM nor AsymSched has anything to do they wait for
/// Carrefour. Its period grows while it finds nothing.
pub(super) struct Pace<'a> {
    /// SAM has had nothing to do for a while.
    pub(super) is_calm: bool,
    pub(super) sam: &'a Sam,
    pub(super) asymsched: &'a AsymSched,
    pub(super) carrefour: &'a Carrefour,
}

impl Pace<'_> {
    /// Of SAM's lane.
    pub(super) fn of_sam(&self) -> Nanos {
        if self.is_calm { LONGEST_PERIOD } else { self.sam.period() }
    }

    /// Of Carrefour's lane.
    pub(super) fn of_carrefour(&self) -> Nanos {
        self.carrefour.period()
    }

    /// Of every other lane.
    pub(super) fn of_others(&self) -> Nanos {
        match self.is_calm && !self.asymsched.is_anybody_moving() {
            true => self.carrefour.period().clamp(EPOCH, LONGEST_PERIOD),
            false => EPOCH,
        }
    }
}

/// Pages move on a tenth of a second of samples: samples of a page say where it is used, and what
/// moves is judged. The other lanes need their whole period.
pub(super) const LEAST_OF_CARREFOUR: Nanos = SOON;
/// Every policy was asked once: at the end of an epoch, which a rest that comes a little early must
/// not cut off.
pub(super) const SETTLES_WITHIN: Nanos = Nanos(EPOCH.0 + EPOCH.0 / 4);
