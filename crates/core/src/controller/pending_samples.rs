//! Keeps samples and hint faults until every lane has decided on them, or longer if a policy asks.

use crate::limits::{HINT_FAULT_MEMORY, MAX_EARLIER_HINT_FAULTS};
use crate::observation::{Observation, Samples};
use crate::units::{Nanos, PAGE_SHIFT, Pid};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Samples and hint faults by the observation that they came with.
#[derive(Default)]
pub(super) struct PendingSamples {
    samples: Vec<(Nanos, Samples)>,
    hint_faults: Vec<(Nanos, Samples)>,
    kept: KeptPages,
}

/// The choice of pages whose hint faults are kept: all pages, or one in 2ⁿ if there are too many
/// faults. All faults of a chosen page are kept, so that all its sharers show.
#[derive(Debug, Clone, Copy, Default)]
struct KeptPages {
    /// The n of one page in 2ⁿ.
    halvings: u32,
    /// Changes with each choice, so that other pages are chosen each time.
    turn: u64,
}

impl KeptPages {
    fn has(self, pid: Pid, page: u64) -> bool {
        // A multiplicative hash by the golden ratio and another odd number. The order of pages does
        // not depend on it.
        let number = (page >> PAGE_SHIFT) ^ u64::from(pid.0) << 44 ^ self.turn << 22;
        let product =
            u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xd6e8_feb8_6659_fd93_u64);
        let mixed = (product as u64) ^ (product >> 64) as u64;
        mixed.trailing_zeros() >= self.halvings
    }
}

impl PendingSamples {
    /// Takes the samples and hint faults out of an observation. Hint faults stay for
    /// [`HINT_FAULT_MEMORY`]: the kernel makes one fault for a page in each pass over the memory.
    /// One fault alone says nothing about the threads that share the page.
    pub(super) fn take(&mut self, observation: &mut Observation) {
        let now = observation.at;
        self.samples.extend(observation.samples.take().map(|samples| (now, samples)));
        self.hint_faults.retain(|(at, _)| now.since(*at) < HINT_FAULT_MEMORY);
        self.kept.turn = now.0 / HINT_FAULT_MEMORY.0;
        self.hint_faults.extend(observation.hint_faults.take().map(|faults| (now, faults)));
        self.bound_hint_faults();
    }

    /// Halves the chosen pages until few enough faults of earlier observations are left, because
    /// each decision reads all of them. Faults of the newest observation are all kept until the
    /// next one.
    fn bound_hint_faults(&mut self) {
        let Some((_, earlier)) = self.hint_faults.split_last_mut() else { return };
        let thin = |faults: &mut Samples, kept: KeptPages| {
            faults.list.retain(|fault| kept.has(fault.pid, fault.page_address()));
        };
        if let Some((_, newest)) = earlier.last_mut() {
            thin(newest, self.kept);
        }
        let count = |all: &[(Nanos, Samples)]| all.iter().map(|(_, one)| one.list.len()).sum();
        let mut left: usize = count(earlier);
        if left < MAX_EARLIER_HINT_FAULTS / 8 {
            self.kept.halvings = self.kept.halvings.saturating_sub(1);
        }
        while left > MAX_EARLIER_HINT_FAULTS {
            self.kept.halvings += 1;
            earlier.iter_mut().for_each(|(_, faults)| thin(faults, self.kept));
            left = count(earlier);
        }
    }

    /// Removes samples of pages that moved: they show the old node.
    pub(super) fn forget_moved(&mut self, moved: &BTreeSet<(Pid, u64)>) {
        if moved.is_empty() {
            return;
        }
        for (_, samples) in self.samples.iter_mut().chain(&mut self.hint_faults) {
            samples.list.retain(|sample| !moved.contains(&(sample.pid, sample.page_address())));
        }
    }

    /// Removes samples up to this time, which every lane has used.
    pub(super) fn forget_until(&mut self, served: Nanos) {
        self.samples.retain(|(at, _)| *at > served);
    }

    /// Samples and hint faults that came after these times.
    pub(super) fn after(&self, samples: Nanos, hint_faults: Nanos) -> Vec<&Samples> {
        let samples = self.samples.iter().filter(|(at, _)| *at > samples);
        let hint_faults = self.hint_faults.iter().filter(|(at, _)| *at > hint_faults);
        samples.chain(hint_faults).map(|(_, list)| list).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{AddressSample, Source};
    use crate::units::Tid;
    use alloc::vec;

    /// The faults that are kept after `seconds` seconds. Ten times a second, two threads fault on
    /// each of `pages` pages.
    fn remembered(pages: u64, seconds: u64) -> (PendingSamples, u64) {
        let mut pending = PendingSamples::default();
        let mut most = 0;
        for tenth in 0..10 * seconds {
            let fault = |number: u64| AddressSample {
                pid: Pid(7),
                tid: Tid(number as u32 % 2),
                cpu: 0,
                node: 0,
                address: (number / 2) << PAGE_SHIFT,
                latency_cycles: 0,
                page_shift: PAGE_SHIFT,
                source: Source::HintFault,
                store: false,
            };
            let list = (0..2 * pages).map(fault).collect();
            let mut observation = Observation {
                at: Nanos::from_millis(100 * tenth),
                hint_faults: Some(Samples { list, ..Samples::default() }),
                ..Observation::default()
            };
            pending.take(&mut observation);
            let (_, earlier) = pending.hint_faults.split_last().expect("the newest");
            most = most.max(earlier.iter().map(|(_, one)| one.list.len()).sum::<usize>());
        }
        (pending, most as u64)
    }

    #[test]
    fn few_hint_faults_are_all_remembered() {
        let (pending, most) = remembered(500, 20);
        assert_eq!(most, 99 * 1000, "ten seconds but for the newest");
        assert_eq!(pending.kept.halvings, 0);
    }

    #[test]
    fn many_are_thinned_by_pages_and_each_page_gets_its_turn() {
        let (pending, most) = remembered(5_000, 40);
        let bound = MAX_EARLIER_HINT_FAULTS as u64;
        assert!(most <= bound && most > bound / 4, "{most} of {bound}");
        let (newest, earlier) = pending.hint_faults.split_last().expect("the newest");
        assert_eq!(newest.1.list.len(), 10_000, "whole until the next observation");
        for (_, faults) in earlier {
            for pair in faults.list.chunks_exact(2) {
                assert_eq!(pair[0].address, pair[1].address, "both of its threads");
            }
        }
        let mut kept = KeptPages { halvings: 3, turn: 0 };
        let mut never = vec![true; 5_000];
        for turn in 0..64 {
            kept.turn = turn;
            for (page, never) in never.iter_mut().enumerate() {
                *never &= !kept.has(Pid(7), (page as u64) << PAGE_SHIFT);
            }
        }
        let never = never.into_iter().filter(|never| *never).count();
        assert!(never < 25, "64 turns of an eighth leave two in ten thousand: {never} of 5000");
    }
}
