//! Values in pages of their own, whose nodes and policy can be asked and set.
//!
//! Memory comes as fresh private pages, not from an allocator. So the program decides which thread
//! touches a page first, and a region begins and ends with its pages.

#![allow(unsafe_code)]

use std::fs::File;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use crate::report::Failure;
use crate::system::last_error;

/// `MPOL_BIND` of linux/mempolicy.h.
const MPOL_BIND: libc::c_int = 2;
/// `MPOL_INTERLEAVE` of linux/mempolicy.h.
const MPOL_INTERLEAVE: libc::c_int = 3;
/// Nodes that the masks and queries here reach; the kernel's limit is 1024.
const NODES: u32 = 1024;
/// Pages that a pipe is made wide enough for: 1 MiB, the most for a user without privileges
/// (`/proc/sys/fs/pipe-max-size`).
const PAGES_PER_PIPE: usize = 256;
/// Pages asked for in one query of where they are.
const PAGES_PER_QUERY: usize = 1024;

/// Types that any bytes make a valid value of, zeroes above all.
///
/// # Safety
/// Every bit pattern must be valid, and there must be nothing to drop.
pub(crate) unsafe trait Plain: Send + Sync {}
// SAFETY: an integer has no invalid bit pattern.
unsafe impl Plain for u64 {}
// SAFETY: an atomic integer has no invalid bit pattern.
unsafe impl Plain for AtomicU64 {}
// SAFETY: an array of floats has no invalid bit pattern.
unsafe impl<const COUNT: usize> Plain for [f64; COUNT] {}

/// A slice in pages of its own. No thread has touched them yet: they read as zeroes.
pub(crate) struct Pages<T: Plain> {
    start: NonNull<T>,
    length: usize,
    bytes: usize,
    owned: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone, and T may go to other threads.
unsafe impl<T: Plain> Send for Pages<T> {}
// SAFETY: shared access gives &[T] only, and T may be shared between threads.
unsafe impl<T: Plain> Sync for Pages<T> {}

/// Words of a file that other processes may have mapped too. They change under a shared reference,
/// which atomic ones bear; no process is given an exclusive one.
pub(crate) struct Shared(Pages<AtomicU64>);

impl Shared {
    /// Maps the beginning of a file that is at least as long.
    pub(crate) fn map(file: &File, bytes: usize) -> Result<Self, Failure> {
        Pages::map_from(Some(file), bytes).map(Self)
    }
}

impl Deref for Shared {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl<T: Plain> Pages<T> {
    /// Maps as many whole values as fit into `bytes`, at least one.
    pub(crate) fn map(bytes: usize, small_pages_only: bool) -> Result<Self, Failure> {
        let pages = Self::map_from(None, bytes)?;
        if small_pages_only {
            // SAFETY: the range is this mapping; the advice changes no content. A kernel without
            // huge pages refuses it, which is just as well.
            unsafe {
                libc::madvise(pages.start.as_ptr().cast(), pages.bytes, libc::MADV_NOHUGEPAGE);
            }
        }
        Ok(pages)
    }

    fn map_from(file: Option<&File>, bytes: usize) -> Result<Self, Failure> {
        let length = (bytes / size_of::<T>()).max(1);
        let bytes = (length * size_of::<T>()).next_multiple_of(page_bytes());
        let flags = match file {
            Some(_) => libc::MAP_SHARED,
            None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let source = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, source, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error(&format!("cannot map {bytes} bytes")));
        }
        let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never returns null");
        Ok(Self { start, length, bytes, owned: PhantomData })
    }

    /// Binds the pages to a node: from now on they are allocated there or not at all.
    pub(crate) fn bind(&self, node: u32) -> Result<(), Failure> {
        self.bind_values(0..self.length, node)
    }

    /// Binds the pages that hold these values to a node. A page on a boundary goes to the node of
    /// the last call.
    pub(crate) fn bind_values(&self, values: Range<usize>, node: u32) -> Result<(), Failure> {
        assert!(values.start <= values.end && values.end <= self.length, "{values:?}");
        let attempt = format!("cannot bind memory to node {node}");
        self.set_policy(values, MPOL_BIND, &[node], &attempt)
    }

    /// Gives the pages to these nodes in turn as they are allocated.
    pub(crate) fn interleave(&self, nodes: &[u32]) -> Result<(), Failure> {
        self.set_policy(0..self.length, MPOL_INTERLEAVE, nodes, "cannot interleave memory")
    }

    fn set_policy(
        &self,
        values: Range<usize>,
        mode: libc::c_int,
        nodes: &[u32],
        attempt: &str,
    ) -> Result<(), Failure> {
        let mut mask = [0u64; NODES as usize / 64];
        for &node in nodes {
            if node >= NODES {
                return Err(Failure(format!("node {node}: expected a node below {NODES}")));
            }
            mask[node as usize / 64] |= 1 << (node % 64);
        }
        let first = values.start * size_of::<T>() / page_bytes() * page_bytes();
        let last = (values.end * size_of::<T>()).next_multiple_of(page_bytes());
        // The kernel reads one bit less than it is told (mm/mempolicy.c, get_nodes, v6.12).
        let bits = NODES as usize + 1;
        // SAFETY: the range lies in this mapping, which is whole pages, and the mask outlives the
        // call; only placement changes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr().cast::<u8>().wrapping_add(first),
                last - first,
                mode,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(last_error(attempt)) }
    }

    /// Gives advice that changes no content. Returns whether the kernel takes it.
    pub(crate) fn advise(&self, advice: libc::c_int) -> bool {
        // SAFETY: the range is this mapping.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, advice) == 0 }
    }

    /// Makes the kernel allocate and clear every page, without a user-mode access.
    pub(crate) fn populate(&self) -> Result<(), Failure> {
        // SAFETY: the range is this mapping; zero pages are filled in where there were none.
        let result = unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE)
        };
        if result == 0 { Ok(()) } else { Err(last_error("cannot populate pages")) }
    }

    /// Moves the pages to `node` with one call of `move_pages(2)`, naming the first address of each
    /// `stride` bytes.
    pub(crate) fn move_to(&self, node: u32, stride: usize) -> Result<(), Failure> {
        const MPOL_MF_MOVE: libc::c_int = 2;
        let base = self.start.as_ptr().cast::<u8>();
        let addresses: Vec<_> =
            (0..self.bytes).step_by(stride).map(|offset| base.wrapping_add(offset)).collect();
        let targets = vec![node as libc::c_int; addresses.len()];
        let mut found = vec![-1i32; addresses.len()];
        // SAFETY: all three arrays have as many entries as the call is told and outlive it. It
        // writes `found` only, and the content of the pages stays as it is.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                addresses.len(),
                addresses.as_ptr(),
                targets.as_ptr(),
                found.as_mut_ptr(),
                MPOL_MF_MOVE,
            )
        };
        if result < 0 {
            Err(last_error(&format!("cannot move pages to node {node}")))
        } else {
            Ok(())
        }
    }

    /// Puts a reference to every page into pipes. The pages must have been written to: of others
    /// the kernel would take its page of zeroes.
    pub(crate) fn hold(&self) -> Result<Held, Failure> {
        let mut pipes = Vec::new();
        let base = self.start.as_ptr().cast::<u8>();
        for start in (0..self.bytes).step_by(PAGES_PER_PIPE * page_bytes()) {
            let end = self.bytes.min(start + PAGES_PER_PIPE * page_bytes());
            pipes.push(full_pipe(base.wrapping_add(start), end - start)?);
        }
        Ok(Held { _pipes: pipes })
    }

    /// How many pages are not on `node`, by the kernel's account. Pages that no node has count too:
    /// those without memory, and those that the kernel copies in this moment.
    pub(crate) fn pages_elsewhere(&self, node: u32) -> Result<usize, Failure> {
        self.count_pages(|found| u32::try_from(found) != Ok(node))
    }

    /// How many pages another node than `node` has. A page that the kernel copies in this moment,
    /// to compact its memory for example, does not count.
    pub(crate) fn pages_of_others(&self, node: u32) -> Result<usize, Failure> {
        self.count_pages(|found| u32::try_from(found).is_ok_and(|other| other != node))
    }

    /// How many pages have a status of `move_pages(2)` that `counts`: a node, or an error below 0.
    fn count_pages(&self, counts: impl Fn(i32) -> bool) -> Result<usize, Failure> {
        let base = self.start.as_ptr().cast::<u8>();
        let count = self.bytes / page_bytes();
        let mut counted = 0;
        for first in (0..count).step_by(PAGES_PER_QUERY) {
            let last = (first + PAGES_PER_QUERY).min(count);
            let addresses: Vec<_> =
                (first..last).map(|page| base.wrapping_add(page * page_bytes())).collect();
            let mut found = vec![-1i32; addresses.len()];
            let nowhere = ptr::null::<libc::c_int>();
            // SAFETY: both arrays have as many entries as the call is told and outlive it; without
            // target nodes it moves nothing and only fills `found`.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_move_pages,
                    0,
                    addresses.len(),
                    addresses.as_ptr(),
                    nowhere,
                    found.as_mut_ptr(),
                    0,
                )
            };
            if result < 0 {
                return Err(last_error("cannot ask where pages are"));
            }
            counted += found.into_iter().filter(|&status| counts(status)).count();
        }
        Ok(counted)
    }
}

/// References to pages, which go when this goes.
pub(crate) struct Held {
    _pipes: Vec<[OwnedFd; 2]>,
}

/// A pipe that holds the pages of this range, which is whole pages. Their writer could change them
/// until they are read, so the kernel keeps them where they are.
fn full_pipe(start: *mut u8, bytes: usize) -> Result<[OwnedFd; 2], Failure> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into the array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(last_error("cannot make a pipe"));
    }
    // SAFETY: both descriptors are new and have no other owner.
    let pipe = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let room = PAGES_PER_PIPE * page_bytes();
    // SAFETY: the call takes a number.
    if unsafe { libc::fcntl(pipe[1].as_raw_fd(), libc::F_SETPIPE_SZ, room as libc::c_int) } < 0 {
        return Err(last_error("cannot widen a pipe"));
    }
    let mut taken = 0;
    while taken < bytes {
        let rest =
            libc::iovec { iov_base: start.wrapping_add(taken).cast(), iov_len: bytes - taken };
        // SAFETY: the range is mapped for as long as the caller's pages are, and is only referred
        // to.
        let result = unsafe { libc::vmsplice(pipe[1].as_raw_fd(), &raw const rest, 1, 0) };
        if result <= 0 {
            return Err(last_error("cannot put pages into a pipe"));
        }
        taken += result as usize;
    }
    Ok(pipe)
}

impl<T: Plain> Deref for Pages<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `length` values fit the mapping, which lives as long as self. Zeroes and whatever
        // was stored later are valid values of a Plain type, and page alignment exceeds T's.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and the exclusive borrow of self is the only way to the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and nothing borrows it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The size of a small page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: asks for a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("the page size is known and positive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_pages_read_as_zeroes_and_keep_what_is_written() {
        let mut pages = Pages::<u64>::map(10_000, true).unwrap();
        assert_eq!(pages.len(), 1250);
        assert!(pages.iter().all(|&word| word == 0));
        pages[1249] = 7;
        assert_eq!(pages.iter().sum::<u64>(), 7);
    }

    #[test]
    fn no_machine_maps_everything() {
        let failure = Pages::<u64>::map(usize::MAX / 2, false).map(|_| ()).unwrap_err();
        assert!(failure.0.starts_with("cannot map "), "{}", failure.0);
    }

    #[test]
    fn populated_pages_are_on_some_node() {
        let pages = Pages::<u64>::map(64 << 10, true).unwrap();
        let before = pages.pages_elsewhere(0);
        let untouched = pages.pages_of_others(0);
        pages.populate().unwrap();
        // Some containers forbid the query; then there is nothing to compare.
        if let Ok(before) = before {
            assert_eq!(before, 16);
            assert_eq!(untouched.unwrap(), 0, "no node has them");
            assert!(
                pages.pages_elsewhere(0).unwrap() == 0 || pages.pages_elsewhere(1).unwrap() == 0
            );
        }
    }

    #[test]
    fn pages_are_moved_to_where_they_are_and_nowhere_else() {
        let mut pages = Pages::<u64>::map(64 << 10, true).unwrap();
        pages.populate().unwrap();
        pages[7] = 9;
        // Some containers forbid the call; then there is nothing to try.
        if pages.pages_elsewhere(0).is_ok_and(|elsewhere| elsewhere == 0) {
            pages.move_to(0, page_bytes()).unwrap();
            assert_eq!(pages.pages_elsewhere(0).unwrap(), 0);
            assert!(pages.move_to(999, page_bytes()).is_err());
        }
        assert_eq!(pages[7], 9);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let pages = Pages::<u64>::map(4096, true).unwrap();
        assert!(pages.bind(1023).is_err());
        assert!(pages.bind(5000).unwrap_err().0.contains("below 1024"));
    }
}
