//! Overlap of misses: the part of a latency for which a vCPU really waits.
//!
//! An out-of-order core goes on while loads are under way, until one of four things stops it:
//! - all `outstanding_misses` slots are taken;
//! - `reorder_window` instructions have issued past the oldest load that is still under way;
//! - an address depends on a load that is still under way. It lies within one page of the value
//!   that the load returns, as in a pointer chase. The miss can start only after that load;
//! - a chain of shorter waits (second level, last level) has run ahead by a whole window.
//!
//! Stores take a slot but never fill the window: they retire into the store buffer.
//!
//! Time is the vCPU's own. The caller gets the stall, and its next `now_ps` must include it.

use crate::PAGE_BYTES;

/// Most outstanding misses that a machine file may ask for.
pub(crate) const MAX_SLOTS: usize = 32;
/// Loads with values that are remembered. More would not matter, even if they fit in a window at
/// once: only the latest few can still be under way.
const RECENT: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    ready_ps: u64,
    /// Count of instructions when it was issued; `u64::MAX` for a store.
    instructions: u64,
    line: u32,
}

/// What an issued miss costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Issued {
    /// The vCPU's time advances by this much.
    pub(crate) stall_ps: u64,
    /// When the data is there.
    pub(crate) ready_ps: u64,
}

/// One request, as the core sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) now_ps: u64,
    pub(crate) instructions: u64,
    pub(crate) vaddr: u64,
    pub(crate) line: u32,
    pub(crate) store: bool,
    pub(crate) loaded: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Misses {
    /// In order of issue.
    slots: [Slot; MAX_SLOTS],
    used: usize,
    capacity: usize,
    window: u64,
    instruction_ps: u64,
    recent_values: [u64; RECENT],
    recent_ready_ps: [u64; RECENT],
    next_recent: usize,
    /// No remembered load is ready later than this.
    latest_ready_ps: u64,
}

impl Misses {
    pub(crate) fn new(capacity: usize, window: u64, instruction_ps: u64) -> Misses {
        assert!((1..=MAX_SLOTS).contains(&capacity), "checked when the hardware is built");
        Misses {
            slots: [Slot::default(); MAX_SLOTS],
            used: 0,
            capacity,
            window,
            instruction_ps,
            recent_values: [0; RECENT],
            recent_ready_ps: [0; RECENT],
            next_recent: 0,
            latest_ready_ps: 0,
        }
    }

    /// A miss that takes a slot. Its data comes `latency_ps` after it starts, and not before
    /// `not_before_ps` (a prefetch that is under way). The caller has settled already.
    pub(crate) fn issue(
        &mut self,
        request: &Request,
        latency_ps: u64,
        not_before_ps: u64,
    ) -> Issued {
        let mut now = request.now_ps;
        if self.used == self.capacity {
            let slots = self.slots[..self.used].iter();
            let first = slots.map(|slot| slot.ready_ps).min().expect("a slot is taken");
            now = now.max(first);
            self.retire(now);
        }
        let start = now.max(self.dependence(request.vaddr, now));
        let ready_ps = (start + latency_ps).max(not_before_ps);
        let instructions = if request.store { u64::MAX } else { request.instructions };
        self.slots[self.used] = Slot { ready_ps, instructions, line: request.line };
        self.used += 1;
        self.remember(request.loaded, ready_ps);
        Issued { stall_ps: now - request.now_ps, ready_ps }
    }

    /// A hit in a lower cache: takes no slot, and stalls only for what a window does not hide.
    pub(crate) fn hit(&mut self, request: &Request, latency_ps: u64) -> Issued {
        let start = request.now_ps.max(self.dependence(request.vaddr, request.now_ps));
        let ready_ps = start + latency_ps;
        self.remember(request.loaded, ready_ps);
        if request.store {
            return Issued { stall_ps: 0, ready_ps };
        }
        let hidden_until = request.now_ps + self.window * self.instruction_ps;
        Issued { stall_ps: ready_ps.saturating_sub(hidden_until), ready_ps }
    }

    /// When a miss that is still fetching `line` will have it.
    #[inline]
    pub(crate) fn in_flight(&self, line: u32, now_ps: u64) -> Option<u64> {
        let slots = self.slots[..self.used].iter();
        slots
            .filter(|slot| slot.line == line && slot.ready_ps > now_ps)
            .map(|slot| slot.ready_ps)
            .max()
    }

    /// Remembers that `value` arrives at `ready_ps`.
    #[inline]
    pub(crate) fn remember(&mut self, value: Option<u64>, ready_ps: u64) {
        // Small numbers point to nothing.
        if let Some(value) = value.filter(|&value| value >= PAGE_BYTES) {
            self.recent_values[self.next_recent] = value;
            self.recent_ready_ps[self.next_recent] = ready_ps;
            self.next_recent = (self.next_recent + 1) % RECENT;
            self.latest_ready_ps = self.latest_ready_ps.max(ready_ps);
        }
    }

    /// When the loads that `vaddr` was computed from have arrived; 0 if it depends on none.
    #[inline]
    fn dependence(&self, vaddr: u64, now_ps: u64) -> u64 {
        if self.latest_ready_ps <= now_ps {
            return 0;
        }
        let pairs = self.recent_values.iter().zip(&self.recent_ready_ps);
        let near = pairs.filter(|&(&value, _)| vaddr.abs_diff(value) < PAGE_BYTES);
        near.map(|(_, &ready_ps)| ready_ps).max().unwrap_or(0)
    }

    /// The stall that the reorder window has caused up to now, and retires what has arrived.
    ///
    /// The core stopped when the window behind a load filled up. That may be long past: the
    /// accesses since then hit the first level and did not ask.
    pub(crate) fn settle(&mut self, now_ps: u64, instructions: u64) -> u64 {
        let mut now = now_ps;
        for slot in &self.slots[..self.used] {
            let filled = slot.instructions.saturating_add(self.window);
            if filled < instructions {
                let filled_ps = now.saturating_sub((instructions - filled) * self.instruction_ps);
                now += slot.ready_ps.saturating_sub(filled_ps);
            }
        }
        self.retire(now);
        now - now_ps
    }

    #[inline]
    fn retire(&mut self, now_ps: u64) {
        let mut kept = 0;
        for index in 0..self.used {
            let slot = self.slots[index];
            if slot.ready_ps > now_ps {
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        self.used = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: u64 = 100_000;

    /// Three slots, a window of 50 instructions of 1 ns.
    fn misses() -> Misses {
        Misses::new(3, 50, 1000)
    }

    /// Runs misses `gap` instructions apart and returns the time they take together.
    fn run(count: u64, gap: u64, store: bool, address: impl Fn(u64) -> (u64, Option<u64>)) -> u64 {
        let mut misses = misses();
        let (mut now_ps, mut instructions) = (0, 0);
        for index in 0..count {
            let (vaddr, loaded) = address(index);
            let line = (vaddr >> 6) as u32;
            now_ps += misses.settle(now_ps, instructions);
            let request = Request { now_ps, instructions, vaddr, line, store, loaded };
            now_ps += misses.issue(&request, LATENCY, 0).stall_ps + gap * 1000;
            instructions += gap;
        }
        now_ps
    }

    fn far(index: u64) -> u64 {
        (index + 1) << 20
    }

    #[test]
    fn a_pointer_chase_pays_every_latency() {
        let time = run(1000, 1, false, |index| (far(index), Some(far(index + 1) + 8)));
        assert!((99_000_000..=100_000_000).contains(&time), "{time}");
    }

    #[test]
    fn independent_misses_overlap_as_far_as_there_are_slots() {
        let time = run(900, 1, false, |index| (far(index), Some(3)));
        assert!((29_000_000..=30_100_000).contains(&time), "{time}");
    }

    #[test]
    fn a_window_that_fills_up_ends_the_overlap() {
        // 40 instructions apart: two fit into a window of 50. The first stops the core after 50
        // instructions until it arrives (100 ns); 30 more until the next pair begins: 130 ns a
        // pair.
        let time = run(1000, 40, false, |index| (far(index), None));
        assert!((64_900_000..=65_100_000).contains(&time), "{time}");
        // 60 apart: none overlap, and 50 instructions of each latency are hidden.
        let alone = run(1000, 60, false, |index| (far(index), None));
        assert!((109_000_000..=111_000_000).contains(&alone), "{alone}");
    }

    #[test]
    fn the_window_stall_is_charged_although_the_load_has_arrived_since() {
        let mut misses = misses();
        let request =
            Request { now_ps: 0, instructions: 0, vaddr: 0, line: 0, store: false, loaded: None };
        assert_eq!(misses.issue(&request, LATENCY, 0).stall_ps, 0);
        // 500 instructions later: the core stood still from 50 ns to 100 ns.
        assert_eq!(misses.settle(500_000, 500), 50_000);
        assert_eq!(misses.settle(550_000, 500), 0);
    }

    #[test]
    fn stores_fill_slots_but_no_window() {
        let time = run(1000, 60, true, |index| (far(index), None));
        assert!((60_000_000..=60_100_000).contains(&time), "slots are enough: {time}");
    }

    #[test]
    fn short_hits_stall_only_in_chains() {
        let mut misses = misses();
        let (mut chain, mut apart) = (0, 0);
        for index in 0..1000 {
            let request = Request {
                now_ps: chain,
                instructions: index,
                vaddr: far(index),
                line: 0,
                store: false,
                loaded: Some(far(index + 1)),
            };
            chain += misses.hit(&request, 10_000).stall_ps + 1000;
        }
        let mut misses = self::misses();
        for index in 0..1000 {
            let request = Request {
                now_ps: apart,
                instructions: index,
                vaddr: far(index),
                line: 0,
                store: false,
                loaded: None,
            };
            apart += misses.hit(&request, 10_000).stall_ps + 1000;
        }
        assert!((9_900_000..=10_000_000).contains(&chain), "{chain}");
        assert_eq!(apart, 1_000_000);
    }

    #[test]
    fn a_prefetch_under_way_is_not_waited_for_twice() {
        let mut misses = misses();
        let request =
            Request { now_ps: 0, instructions: 0, vaddr: 0, line: 0, store: false, loaded: None };
        assert_eq!(misses.issue(&request, 10, 70).ready_ps, 70);
        assert_eq!(misses.issue(&request, 90, 70).ready_ps, 90);
    }

    #[test]
    fn a_line_under_way_is_known_until_it_arrives() {
        let mut misses = misses();
        let request =
            Request { now_ps: 0, instructions: 0, vaddr: 64, line: 1, store: false, loaded: None };
        misses.issue(&request, LATENCY, 0);
        assert_eq!(misses.in_flight(1, 99_999), Some(100_000));
        assert_eq!(misses.in_flight(1, 100_000), None);
        assert_eq!(misses.in_flight(2, 0), None);
    }
}
