// SPDX-License-Identifier: GPL-2.0-or-later
//! The sampling slots of one vCPU: programmable counters that count down.
//!
//! The driver writes a slot's words and tells us to look (`load`). From then on `advance` is called
//! with what was counted, and says which slots came to zero.

use crate::layout as at;
use crate::shared::{Shared, cpu_block};

/// AMD's op sampling counts this many operations at most before it looks for a miss again, and so
/// hits one in half as many.
const REARM: u64 = 127;

/// One loaded slot.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    index: usize,
    /// Index of the event, as in the model's table.
    pub(crate) event: usize,
    /// Least latency in core cycles of an access that counts; only for events on accesses.
    pub(crate) threshold_cycles: u64,
    control: u64,
    pub(crate) generation: u64,
    left: u64,
    count: u64,
    /// Accesses that no cache answers until the sample that is due is taken; 0: none is due.
    misses_left: u64,
    /// The event's count when this slot last looked at it.
    pub(crate) seen: u64,
}

impl Slot {
    /// The slot's number and generation as a sample carries them.
    pub(crate) fn tag(&self) -> u64 {
        self.index as u64 | self.generation << at::ENTRY_GENERATION_SHIFT
    }

    /// Events until the next sample.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// A sample is due and waits for an access that no cache answers: hits do not matter.
    pub(crate) fn waits(&self) -> bool {
        self.misses_left > 0
    }

    /// Whether this access, of those counted, is sampled. `due`: the counter came to zero at it.
    pub(crate) fn takes(&mut self, due: bool, is_miss: bool) -> bool {
        if self.control & at::CONTROL_MISSES_MASK as u64 == 0 {
            return due;
        }
        if self.misses_left > 0 && is_miss {
            self.misses_left -= 1;
            return self.misses_left == 0;
        }
        if due && !is_miss && self.misses_left == 0 {
            // A multiplicative hash of what was counted: the same in each run.
            let random = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            self.misses_left = 1 + random % REARM;
        }
        due && is_miss
    }

    /// Whether the slot counts at this privilege level.
    pub(crate) fn counts(&self, kernel: bool) -> bool {
        let level = if kernel { at::CONTROL_KERNEL_MASK } else { at::CONTROL_USER_MASK };
        self.control & level as u64 != 0
    }

    /// Counts `amount` events. True when a sample is due. If several periods passed at once, the
    /// sample stands for the last of them, as an overflow that was served late does.
    pub(crate) fn advance(&mut self, amount: u64, period: u64) -> bool {
        self.count += amount;
        if amount < self.left {
            self.left -= amount;
            return false;
        }
        let past = amount - self.left;
        let period = period.max(1);
        self.left = period - past % period;
        true
    }
}

/// All slots of one vCPU.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    pub(crate) slots: Vec<Slot>,
    /// The driver is handling samples: nothing counts until it is done.
    pub(crate) frozen: bool,
}

impl Sampler {
    /// Looks at the slots of `cpu` in shared memory: takes up those that are new, lets go of those
    /// that were switched off. `seen` tells an event's present count.
    pub(crate) fn load(&mut self, shared: &Shared, cpu: usize, seen: impl Fn(usize) -> u64) {
        self.frozen = shared.get(cpu_block(cpu) + at::CPU_FROZEN) != 0;
        // One behind the programmable counters, for op sampling.
        let count = (shared.get(at::HEADER_SLOTS) as usize + 1).min(at::MAX_SLOTS);
        for index in 0..count {
            let base = slot_base(cpu, index);
            let control = shared.get(base + at::SLOT_CONTROL);
            let generation = shared.get(base + at::SLOT_GENERATION);
            let enabled = control & at::CONTROL_ENABLED_MASK as u64 != 0;
            let known = self.slots.iter().position(|slot| slot.index == index);
            if let Some(position) = known {
                if enabled && self.slots[position].generation == generation {
                    continue;
                }
                store(&self.slots.remove(position), shared, cpu);
            }
            if enabled {
                let event = shared.get(base + at::SLOT_EVENT) as usize;
                self.slots.push(Slot {
                    index,
                    event,
                    threshold_cycles: shared.get(base + at::SLOT_THRESHOLD),
                    control,
                    generation,
                    left: shared.get(base + at::SLOT_LEFT).max(1),
                    count: shared.get(base + at::SLOT_COUNT),
                    misses_left: 0,
                    seen: seen(event),
                });
            }
        }
    }

    /// Writes the slots' progress where the driver reads it.
    pub(crate) fn store(&self, shared: &Shared, cpu: usize) {
        for slot in &self.slots {
            store(slot, shared, cpu);
        }
    }
}

/// The period that the driver wants of a slot now; it may change while the slot runs.
pub(crate) fn period(shared: &Shared, cpu: usize, slot: &Slot) -> u64 {
    shared.get(slot_base(cpu, slot.index) + at::SLOT_PERIOD)
}

fn store(slot: &Slot, shared: &Shared, cpu: usize) {
    let base = slot_base(cpu, slot.index);
    shared.set(base + at::SLOT_COUNT, slot.count);
    shared.set(base + at::SLOT_LEFT, slot.left);
}

fn slot_base(cpu: usize, index: usize) -> usize {
    cpu_block(cpu) + at::CPU_SLOTS + index * at::SLOT_WORDS
}

/// One sample, as the ring holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) tag: u64,
    pub(crate) vaddr: u64,
    pub(crate) paddr: u64,
    pub(crate) source: u64,
    pub(crate) latency_cycles: u64,
    pub(crate) flags: u64,
    pub(crate) time_ps: u64,
    pub(crate) ip: u64,
}

/// Appends a sample to the ring of `cpu`; false when the ring is full, which is counted there.
pub(crate) fn append(shared: &Shared, cpu: usize, sample: &Sample) -> bool {
    let block = cpu_block(cpu);
    let head = shared.get(block + at::RING_HEAD);
    let tail = shared.get(block + at::RING_TAIL);
    if head.wrapping_sub(tail) >= at::RING_ENTRIES as u64 {
        let dropped = shared.get(block + at::RING_DROPPED);
        shared.set(block + at::RING_DROPPED, dropped + 1);
        return false;
    }
    let entry = block + at::CPU_ENTRIES + (head as usize % at::RING_ENTRIES) * at::ENTRY_WORDS;
    shared.set(entry + at::ENTRY_SLOT, sample.tag);
    shared.set(entry + at::ENTRY_VADDR, sample.vaddr);
    shared.set(entry + at::ENTRY_PADDR, sample.paddr);
    shared.set(entry + at::ENTRY_SOURCE, sample.source);
    shared.set(entry + at::ENTRY_LATENCY_CYCLES, sample.latency_cycles);
    shared.set(entry + at::ENTRY_FLAGS, sample.flags);
    shared.set(entry + at::ENTRY_TIME_PS, sample.time_ps);
    shared.set(entry + at::ENTRY_IP, sample.ip);
    shared.set(block + at::RING_HEAD, head + 1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Sample = Sample {
        tag: 1,
        vaddr: 2,
        paddr: 3,
        source: 4,
        latency_cycles: 5,
        flags: 6,
        time_ps: 7,
        ip: 8,
    };

    fn start(shared: &Shared, slot: usize, left: u64, period: u64, generation: u64) {
        let base = slot_base(0, slot);
        shared.set(base + at::SLOT_EVENT, 11);
        shared.set(base + at::SLOT_PERIOD, period);
        shared.set(base + at::SLOT_LEFT, left);
        shared.set(base + at::SLOT_GENERATION, generation);
        shared.set(base + at::SLOT_CONTROL, 7);
    }

    fn shared() -> Shared {
        let shared = Shared::anonymous();
        shared.set(at::HEADER_SLOTS, 4);
        shared
    }

    #[test]
    fn a_slot_counts_down_and_keeps_the_remainder() {
        let shared = shared();
        start(&shared, 0, 10, 10, 1);
        let mut sampler = Sampler::default();
        sampler.load(&shared, 0, |_| 0);
        let slot = &mut sampler.slots[0];
        assert!(!slot.advance(9, 10));
        assert!(slot.advance(4, 10), "13 events with a period of 10");
        assert!(!slot.advance(6, 10));
        assert!(slot.advance(1, 10));
        assert!(slot.advance(35, 10), "several periods at once are one sample");
        sampler.store(&shared, 0);
        assert_eq!(shared.get(slot_base(0, 0) + at::SLOT_COUNT), 55);
        assert_eq!(shared.get(slot_base(0, 0) + at::SLOT_LEFT), 5);
    }

    #[test]
    fn a_slot_that_wants_misses_waits_for_one() {
        let shared = shared();
        start(&shared, 0, 10, 10, 1);
        shared.set(slot_base(0, 0) + at::SLOT_CONTROL, 7 | at::CONTROL_MISSES_MASK as u64);
        let mut sampler = Sampler::default();
        sampler.load(&shared, 0, |_| 0);
        let slot = &mut sampler.slots[0];
        let mut step = |is_miss| {
            let due = slot.advance(1, 10);
            slot.takes(due, is_miss)
        };
        assert!((0..9).all(|_| !step(false)));
        assert!(!step(false), "due at a hit");
        let waited = (1..=REARM).find(|_| step(true)).expect("within 127 misses");
        assert!(waited > 0);
        assert!((0..1000).all(|_| !step(false)), "hits alone are never sampled");
    }

    #[test]
    fn a_new_generation_replaces_a_slot_and_control_zero_stops_it() {
        let shared = shared();
        start(&shared, 2, 10, 10, 1);
        let mut sampler = Sampler::default();
        sampler.load(&shared, 0, |_| 100);
        assert_eq!(sampler.slots[0].seen, 100);
        sampler.slots[0].advance(3, 10);
        sampler.load(&shared, 0, |_| 0);
        assert_eq!(sampler.slots[0].left, 7, "the same generation goes on");
        start(&shared, 2, 50, 50, 2);
        sampler.load(&shared, 0, |_| 0);
        assert_eq!(sampler.slots.len(), 1);
        assert_eq!(sampler.slots[0].tag(), 2 | 2 << 8);
        shared.set(slot_base(0, 2) + at::SLOT_CONTROL, 0);
        sampler.load(&shared, 0, |_| 0);
        assert!(sampler.slots.is_empty());
    }

    #[test]
    fn a_full_ring_counts_what_it_drops() {
        let shared = shared();
        for _ in 0..at::RING_ENTRIES {
            assert!(append(&shared, 1, &SAMPLE));
        }
        assert!(!append(&shared, 1, &SAMPLE));
        assert_eq!(shared.get(cpu_block(1) + at::RING_DROPPED), 1);
        shared.set(cpu_block(1) + at::RING_TAIL, 1);
        assert!(append(&shared, 1, &SAMPLE));
        assert_eq!(shared.get(cpu_block(1) + at::CPU_ENTRIES + at::ENTRY_IP), 8);
    }
}
