//! The versions of a value: many threads read one while another is published.
//!
//! A version sits in a slot. A reader pins the current slot in the lane of its CPU and checks that
//! the slot is still current. The publisher makes another slot current; a slot is freed once no
//! lane pins it. Readers take no lock and do not wait: a check fails only when a version was
//! published meanwhile.
//!
//! A slot that a reader uses is never freed. Pins are changed and inspected by read-modify-write
//! operations only, which have one order for each pin. A reader that comes first in that order is
//! counted. One that comes later sees what the publisher stored before: another slot is current, so
//! the reader lets go. `tests/generations_model.rs` tries the interleavings.

#![allow(unsafe_code, reason = "a version is shared without a lock while it is pinned")]

use std::ops::Deref;
use std::sync::PoisonError;
use std::{array, mem};

use super::sync::{AtomicU32, AtomicUsize, Mutex, Ordering, UnsafeCell};

/// Largest number of versions at a time: the current one, and old ones with readers (our choice).
pub(crate) const SLOTS: usize = 4;

/// The pins of the threads on one CPU, by slot. A lane fills two cache lines, because processors
/// fetch lines in pairs.
#[repr(align(128))]
struct Lane {
    pins: [AtomicU32; SLOTS],
}

/// The versions of a value, at most one in each slot. See the module's comment.
pub(crate) struct Generations<T> {
    current: AtomicUsize,
    lanes: Box<[Lane]>,
    slots: [UnsafeCell<Option<T>>; SLOTS],
    /// By slot, whether it has an old version. Only the holder of this lock fills or frees a slot.
    retired: Mutex<[bool; SLOTS]>,
    /// Called when a lane's last pin of an old version is dropped.
    left: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: a value is read by several threads at once, hence `Sync`, and made and dropped by
// whichever thread publishes, hence `Send`. The protocol above keeps writes apart from reads.
unsafe impl<T: Send + Sync> Sync for Generations<T> {}

impl<T> Generations<T> {
    /// The first version, with a number of lanes; panics for zero. `left`: called when a lane's
    /// last pin of an old version is dropped.
    pub(crate) fn new(first: T, lanes: usize, left: Box<dyn Fn() + Send + Sync>) -> Self {
        assert!(lanes > 0, "readers need a lane");
        let lane = || Lane { pins: array::from_fn(|_| AtomicU32::new(0)) };
        let mut first = Some(first);
        Self {
            current: AtomicUsize::new(0),
            lanes: (0..lanes).map(|_| lane()).collect(),
            slots: array::from_fn(|_| UnsafeCell::new(first.take())),
            retired: Mutex::new([false; SLOTS]),
            left,
        }
    }

    /// Pins the current version: it is not freed before the result is dropped. Any lane is correct;
    /// the lane of the caller's CPU is fast.
    pub(crate) fn pin(&self, lane: usize) -> Pinned<'_, T> {
        let mut slot = self.current.load(Ordering::Acquire);
        loop {
            let pinned = Pinned { generations: self, lane, slot };
            self.lanes[lane].pins[slot].fetch_add(1, Ordering::AcqRel);
            let now = self.current.load(Ordering::Acquire);
            if now == slot {
                return pinned;
            }
            drop(pinned);
            slot = now;
        }
    }

    /// Ends a pin that [`Pinned::into_parts`] turned into numbers.
    ///
    /// # Safety
    /// The parts came from a pin of this object and are passed once. Nothing reads the version
    /// through them any more.
    pub(crate) unsafe fn unpin(&self, [lane, slot]: [usize; 2]) {
        drop(Pinned { generations: self, lane, slot });
    }

    /// Makes this version current.
    ///
    /// # Errors
    /// The version comes back if all other slots have old versions with readers.
    pub(crate) fn publish(&self, version: T) -> Result<(), T> {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        self.free_unread(&mut retired);
        // Only a holder of the lock stores to `current`.
        let current = self.current.load(Ordering::Relaxed);
        let Some(slot) = (0..SLOTS).find(|&slot| slot != current && !retired[slot]) else {
            return Err(version);
        };
        // SAFETY: the slot is neither current nor retired, so no reader passes its check for it
        // before the store below. The lock keeps other publishers away.
        self.slots[slot].with_mut(|place| unsafe { *place = Some(version) });
        self.current.store(slot, Ordering::Release);
        retired[current] = true;
        self.free_unread(&mut retired);
        Ok(())
    }

    /// Frees old versions without a reader. Returns the number of those with readers.
    pub(crate) fn reclaim(&self) -> usize {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        self.free_unread(&mut retired);
        retired.iter().filter(|&&retired| retired).count()
    }

    fn free_unread(&self, retired: &mut [bool; SLOTS]) {
        for (slot, retired) in retired.iter_mut().enumerate() {
            if *retired && self.is_unread(slot) {
                // SAFETY: the slot is not current and no lane pins it. A later pin fails its check,
                // and the lock keeps other publishers away.
                drop(self.slots[slot].with_mut(|place| unsafe { (*place).take() }));
                *retired = false;
            }
        }
    }

    /// Whether no lane pins a slot. Adding 0 is a read-modify-write, so it has its place in the
    /// order of the pin's changes. A load might return an earlier state.
    fn is_unread(&self, slot: usize) -> bool {
        self.lanes.iter().all(|lane| lane.pins[slot].fetch_add(0, Ordering::AcqRel) == 0)
    }
}

/// A pin of one version by one reader.
pub(crate) struct Pinned<'a, T> {
    generations: &'a Generations<T>,
    lane: usize,
    slot: usize,
}

impl<T> Pinned<'_, T> {
    /// Turns the pin into numbers for [`Generations::unpin`], without ending it.
    pub(crate) fn into_parts(self) -> [usize; 2] {
        let parts = [self.lane, self.slot];
        mem::forget(self);
        parts
    }
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the slot was current after it was pinned, so it has a version, which is not
        // written or freed before this pin goes.
        let version = self.generations.slots[self.slot].with(|place| unsafe { (*place).as_ref() });
        version.expect("a pinned slot has a version")
    }
}

impl<T> Drop for Pinned<'_, T> {
    fn drop(&mut self) {
        let Self { generations, lane, slot } = self;
        let before = generations.lanes[*lane].pins[*slot].fetch_sub(1, Ordering::AcqRel);
        // If the publisher inspects this pin later, it finds the slot unread. If it did so before,
        // its store to `current` is visible here, and this call reports the old version.
        if before == 1 && generations.current.load(Ordering::Acquire) != *slot {
            (generations.left)();
        }
    }
}
