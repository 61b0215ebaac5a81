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

/// Versions at a time: the current one, one that is being published, and old ones that are read.
pub(crate) const SLOTS: usize = 4;

/// The pins of the threads on one CPU, in cache lines of their own. Processors fetch lines in
/// pairs, so a lane fills two.
#[repr(align(128))]
struct Lane {
    pins: [AtomicU32; SLOTS],
}

/// Every slot has at most one version. See the module's comment.
pub(crate) struct Generations<T> {
    current: AtomicUsize,
    lanes: Box<[Lane]>,
    slots: [UnsafeCell<Option<T>>; SLOTS],
    /// Slots with an old version, which only the thread that holds this lock frees or fills.
    retired: Mutex<[bool; SLOTS]>,
    /// Called when the last reader of a lane has let go of an old version.
    left: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: a value is read by several threads at once, hence `Sync`, and made and dropped by
// whichever thread publishes, hence `Send`. The protocol above keeps writes apart from reads.
unsafe impl<T: Send + Sync> Sync for Generations<T> {}

impl<T> Generations<T> {
    /// Begins with one version and a number of lanes, at least one.
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

    /// The current version, which stays for as long as the result does. Any lane is correct; the
    /// lane of the caller's CPU is fast.
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

    /// Ends a pin that was kept as numbers.
    ///
    /// # Safety
    /// The parts came from a pin of this object, are given back once, and nothing reads the version
    /// by them any more.
    pub(crate) unsafe fn unpin(&self, [lane, slot]: [usize; 2]) {
        drop(Pinned { generations: self, lane, slot });
    }

    /// Makes this version current.
    ///
    /// # Errors
    /// The version comes back where every slot has an old version that is being read.
    pub(crate) fn publish(&self, version: T) -> Result<(), T> {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        self.free_unread(&mut retired);
        // Only a holder of the lock stores to it.
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

    /// Frees old versions without a reader. Returns how many are still read.
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

    /// Adding nothing is a read-modify-write: it takes its place in the order of the pin's changes,
    /// where a load might return an earlier state.
    fn is_unread(&self, slot: usize) -> bool {
        self.lanes.iter().all(|lane| lane.pins[slot].fetch_add(0, Ordering::AcqRel) == 0)
    }
}

/// A version that is kept for a reader.
pub(crate) struct Pinned<'a, T> {
    generations: &'a Generations<T>,
    lane: usize,
    slot: usize,
}

impl<T> Pinned<'_, T> {
    /// Keeps the pin as numbers, for [`Generations::unpin`].
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
        // The publisher's look at this pin may come later and finds it free. Or it came before, and
        // then its store to `current` is visible here.
        if before == 1 && generations.current.load(Ordering::Acquire) != *slot {
            (generations.left)();
        }
    }
}
