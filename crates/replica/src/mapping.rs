//! Memory for copies, and files mapped for reading.

#![allow(unsafe_code, reason = "maps memory and hands it out as slices")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::slice;

use rondpoint_linux::syscall::memory::page_bytes;

/// Bytes of a huge page with base pages of 4 KiB. Regions of this size and more are aligned to it.
/// The alignment does no harm where huge pages have another size.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// `MPOL_PREFERRED` (include/uapi/linux/mempolicy.h).
const MPOL_PREFERRED: libc::c_int = 1;

/// A readable memory mapping; dropping it unmaps the memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    mapped_bytes: usize,
    length: usize,
}

// SAFETY: the memory belongs to the process and is only read through `&Mapping`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a whole file, which must not be empty.
    ///
    /// # Errors
    /// As mmap(2).
    ///
    /// # Safety
    /// Nothing writes to the file or truncates it while the mapping is there.
    pub(crate) unsafe fn of_file(file: &File, length: usize) -> io::Result<Self> {
        map(length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), length)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes from `address` are mapped for reading as long as `self` is there.
        // Nothing writes to a file by its caller's promise, nor to a copy, which is sealed.
        unsafe { slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }

    /// First address.
    pub(crate) fn address(&self) -> usize {
        self.address.as_ptr() as usize
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; slices of it borrow `self`.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn map(
    mapped_bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    length: usize,
) -> io::Result<Mapping> {
    // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory of Rust's.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
    Ok(Mapping { address, mapped_bytes, length })
}

/// New writable memory with one owner. [`Self::seal`] turns it into a [`Mapping`].
#[derive(Debug)]
pub(crate) struct Blank(Mapping);

impl Blank {
    /// Maps `length` bytes, at least one, without touching them.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let spare = if length < HUGE_BYTES { 0 } else { HUGE_BYTES };
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        let whole = length.checked_next_multiple_of(page_bytes()).ok_or_else(too_long)?;
        let total = whole.checked_add(spare).ok_or_else(too_long)?;
        let mut mapping = map(total, protection, flags, -1, length)?;
        let head = mapping.address().next_multiple_of(spare.max(1)) - mapping.address();
        // SAFETY: both ranges are unused parts of this mapping, which shrinks by them; page sizes
        // divide HUGE_BYTES, so all bounds are at pages.
        unsafe {
            let start = mapping.address.as_ptr();
            unmap(start, head);
            unmap(start.add(head + whole), spare - head);
            mapping.address = mapping.address.add(head);
        }
        mapping.mapped_bytes = whole;
        Ok(Self(mapping))
    }

    /// Asks for huge pages.
    ///
    /// # Errors
    /// EINVAL where the kernel has none.
    pub(crate) fn advise_huge_pages(&self) -> io::Result<()> {
        // SAFETY: advice about this mapping; its contents stay.
        check(unsafe {
            libc::madvise(self.0.address.as_ptr().cast(), self.0.mapped_bytes, libc::MADV_HUGEPAGE)
        })
    }

    /// Sets a memory policy that prefers this node. With a strict binding the kernel would kill a
    /// process when the node runs out of memory.
    ///
    /// # Errors
    /// EPERM in most containers, EINVAL for a node that is not there or not allowed, ENOSYS where
    /// the kernel has no NUMA.
    pub(crate) fn prefer(&self, node: u32) -> io::Result<()> {
        let mut mask = vec![0u64; node as usize / 64 + 1];
        mask[node as usize / 64] |= 1 << (node % 64);
        // The kernel reads one bit less (get_nodes, mm/mempolicy.c, Linux 6.12).
        let bits = mask.len() * 64 + 1;
        // SAFETY: the range is this mapping; the kernel reads the mask, which outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.0.address.as_ptr(),
                self.0.mapped_bytes,
                MPOL_PREFERRED,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        check(result)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `length` bytes from `address` are mapped for reading and writing, zero or
        // written, and borrowed from their only owner.
        unsafe { slice::from_raw_parts_mut(self.0.address.as_ptr(), self.0.length) }
    }

    /// Makes the memory read-only. A stray write then ends the program instead of making copies
    /// differ.
    ///
    /// # Errors
    /// As mprotect(2).
    pub(crate) fn seal(self) -> io::Result<Mapping> {
        // SAFETY: the mapping has no reference to its contents now, and none that writes from now
        // on.
        check(unsafe {
            libc::mprotect(self.0.address.as_ptr().cast(), self.0.mapped_bytes, libc::PROT_READ)
        })?;
        Ok(self.0)
    }
}

/// # Safety
/// The range is mapped, of whole pages, and not used by anything.
unsafe fn unmap(address: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(address.cast(), bytes) };
    }
}

fn check(result: impl Into<i64>) -> io::Result<()> {
    if result.into() == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn protection_of(address: usize) -> String {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split_once(' ').unwrap().0;
            let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
            (start..end).contains(&address)
        });
        line.map_or("gone".to_owned(), |line| line.split_whitespace().nth(1).unwrap().to_owned())
    }

    #[test]
    fn large_memory_begins_where_huge_pages_do_and_keeps_only_its_own() {
        let length = HUGE_BYTES + 5;
        let mut blank = Blank::new(length).unwrap();
        assert_eq!(blank.0.address() % HUGE_BYTES, 0);
        assert_eq!(blank.0.mapped_bytes, HUGE_BYTES + page_bytes());
        assert_eq!(blank.bytes_mut().len(), length);
        blank.bytes_mut()[length - 1] = 7;
        let copy = blank.seal().unwrap();
        assert_eq!((copy.bytes()[0], copy.bytes()[length - 1]), (0, 7));
    }

    #[test]
    fn sealed_memory_is_read_only() {
        let blank = Blank::new(10).unwrap();
        assert_eq!(protection_of(blank.0.address()), "rw-p");
        let copy = blank.seal().unwrap();
        assert_eq!(protection_of(copy.address()), "r--p");
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let refused = Blank::new(10).unwrap().prefer(1000).unwrap_err();
        let numbers = [libc::EINVAL, libc::EPERM, libc::ENOSYS];
        assert!(numbers.contains(&refused.raw_os_error().unwrap()), "{refused}");
    }

    #[test]
    fn more_memory_than_addresses_is_refused() {
        let refused = Blank::new(usize::MAX).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM));
    }
}
