//! Samples in a row that tell no access.
//!
//! AMD's IBS samples operations of all kinds. Kernels before 6.1 open it and tell neither address
//! nor source (`perf_ibs_get_data_src`, arch/x86/events/amd/ibs.c), so no sample is of use. Nothing
//! else shows that: the event opens, and its samples come.

use super::{Kind, Sampler};
use crate::perf::sample::Sample;

/// Samples without an access after which the kernel is held to tell none (our choice). At the
/// table's period that is 17 billion operations. About one in three is an access, those of the
/// kernel's clock interrupts among them.
const MOST_SOURCELESS: u32 = 1 << 16;

/// Samples without an access since the last one with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sourceless {
    in_a_row: u32,
    told: bool,
}

impl Sourceless {
    /// Adds a sample. Returns true once, if too many in a row tell no access.
    fn add(&mut self, is_access: bool) -> bool {
        self.in_a_row = if is_access { 0 } else { self.in_a_row.saturating_add(1) };
        let is_news = self.in_a_row >= MOST_SOURCELESS && !self.told;
        self.told |= is_news;
        is_news
    }
}

impl Sampler {
    /// Notes whether samples tell accesses, with a sentence if none does.
    pub(super) fn note_source(&mut self, sample: &Sample) {
        let is_access = sample.source.is_load() || sample.source.is_store();
        if self.kind == Kind::Accesses && self.sourceless.add(is_access) {
            self.lost_counter = Some(format!(
                "none of {MOST_SOURCELESS} address samples tells an access: this kernel does not \
                 decode their source (for AMD's IBS it does from 6.1 on); `--sensor faults` samples \
                 page faults instead"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_row_without_an_access_is_told_and_once() {
        let mut row = Sourceless::default();
        let mut add = |accesses: bool, times: u32| (0..times).filter(|_| row.add(accesses)).count();
        assert_eq!(add(false, MOST_SOURCELESS - 1), 0);
        assert_eq!((add(true, 1), add(false, MOST_SOURCELESS - 1)), (0, 0), "it begins anew");
        assert_eq!((add(false, 1), add(false, 2 * MOST_SOURCELESS)), (1, 0));
    }
}
