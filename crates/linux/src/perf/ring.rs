//! The ring into which the kernel writes records, drained into a contiguous stream of bytes.
//!
//! The bytes between tail and head are copied at once, in two pieces if they wrap. The space is
//! returned to the kernel before any record is parsed. The copy costs less than a lost sample, and
//! the parser never sees a wrapped record.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::attr::{Attr, SW_DUMMY, TYPE_SOFTWARE};
use super::event::OpenEvent;
use super::switches::Clock;
use crate::syscall::memory::{AuxMemory, RingMemory};
use crate::syscall::perf::Target;

/// A mapped ring.
pub struct Ring {
    memory: RingMemory,
}

/// Whether this kernel converts a CPU's timer to the perf clock: see [`Ring::clock`]. In a buffer
/// of all tasks only the time of a sample tells its task.
#[must_use]
pub fn has_clock() -> bool {
    let this_thread = Target { task: 0, cpu: -1 };
    let dummy = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
    OpenEvent::open("dummy", &dummy, this_thread, None)
        .is_ok_and(|event| Ring::new(event.as_fd(), 1).is_ok_and(|ring| ring.clock().is_some()))
}

impl Ring {
    /// Maps a ring of `data_pages` (a power of two) for an event that was opened on one CPU.
    ///
    /// # Errors
    /// As mmap(2); EPERM above `kernel.perf_event_mlock_kb`.
    pub fn new(event: BorrowedFd<'_>, data_pages: usize) -> io::Result<Self> {
        Ok(Self { memory: RingMemory::new(event, data_pages)? })
    }

    /// Appends all waiting records to `stream` and returns their number of bytes.
    pub fn drain(&mut self, stream: &mut Vec<u8>) -> usize {
        let (head, tail) = (self.memory.head(), self.memory.tail());
        let (first, second) = spans(tail, head, self.memory.data_bytes());
        let bytes = first.len() + second.len();
        self.memory.copy(first.start, first.len(), stream);
        self.memory.copy(second.start, second.len(), stream);
        self.memory.set_tail(head);
        bytes
    }

    /// The conversion from a CPU's timer to the perf clock; `None` where the kernel offers none.
    #[must_use]
    pub fn clock(&self) -> Option<Clock> {
        let (zero_ns, multiplier, shift) = self.memory.timer()?;
        Some(Clock { zero_ns, multiplier, shift })
    }

    /// Maps an auxiliary area of `pages` (a power of two) for the same event.
    ///
    /// # Errors
    /// As mmap(2); EPERM above `kernel.perf_event_mlock_kb`.
    pub fn map_aux(&self, event: BorrowedFd<'_>, pages: usize) -> io::Result<AuxMemory> {
        self.memory.map_aux(event, pages)
    }

    /// Appends the bytes of a record about the auxiliary area and releases them to the kernel.
    /// `from`: position of the first byte, since the beginning. Returns false for a record with
    /// more bytes than the area has, of which nothing is appended.
    pub fn take_aux(&self, aux: &AuxMemory, from: u64, bytes: u64, into: &mut Vec<u8>) -> bool {
        let fits = bytes <= aux.bytes() as u64;
        if fits {
            let (first, second) = spans(from, from.wrapping_add(bytes), aux.bytes());
            aux.copy(first.start, first.len(), into);
            aux.copy(second.start, second.len(), into);
        }
        self.memory.set_aux_tail(from.wrapping_add(bytes));
        fits
    }
}

/// The one or two ranges of a ring of `size` bytes (a power of two) with the bytes from `tail` to
/// `head`. Both are positions since the beginning.
///
/// # Panics
/// More bytes are waiting than the ring has. The kernel never overwrites bytes that were not
/// released.
fn spans(tail: u64, head: u64, size: usize) -> (Range<usize>, Range<usize>) {
    assert!(size.is_power_of_two(), "a ring of {size} bytes");
    let waiting = head.wrapping_sub(tail);
    assert!(waiting <= size as u64, "{waiting} bytes wait in a ring of {size}");
    let start = (tail & (size as u64 - 1)) as usize;
    let waiting = waiting as usize;
    let first = waiting.min(size - start);
    (start..start + first, 0..waiting - first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_wraps_comes_in_two_pieces() {
        assert_eq!(spans(0, 0, 64), (0..0, 0..0));
        assert_eq!(spans(0, 64, 64), (0..64, 0..0));
        assert_eq!(spans(56, 72, 64), (56..64, 0..8));
        assert_eq!(spans(64, 72, 64), (0..8, 0..0));
        assert_eq!(spans(u64::MAX - 7, 8, 64), (56..64, 0..8));
    }

    proptest! {
        #[test]
        fn every_byte_comes_once_and_in_order(tail: u64, power in 3u32..12, part in 0.0f64..=1.0) {
            let size = 1usize << power;
            let waiting = (size as f64 * part) as usize;
            let (first, second) = spans(tail, tail.wrapping_add(waiting as u64), size);
            let places: Vec<usize> = first.chain(second).collect();
            let expected: Vec<usize> =
                (0..waiting).map(|index| (tail as usize).wrapping_add(index) % size).collect();
            prop_assert_eq!(places, expected);
        }
    }
}
