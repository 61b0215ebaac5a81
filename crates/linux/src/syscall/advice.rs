//! `process_madvise(2)`: advice about another process's memory.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::check;

/// Advice of a kernel with NUMA replication (`kernel/` in this repository). The numbers are that
/// series' placeholders; other kernels refuse them with EINVAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Each node gets a copy of the pages (`MADV_NUMA_REPLICATE`).
    Replicate = 240,
    /// The copies are dropped (`MADV_NUMA_UNREPLICATE`).
    Unreplicate = 241,
}

/// Most ranges of one call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
pub const MOST_RANGES: usize = 1024;

/// Gives advice about ranges `(first address, bytes)` of the process of a pidfd. The kernel stops
/// at the first range that it refuses. Returns the bytes before that.
///
/// # Errors
/// The kernel refuses the first range: EINVAL (unknown advice, or another kind of memory), ENOMEM
/// (not mapped, or no memory), EPERM. ESRCH if the process has ended.
pub fn give(process: BorrowedFd<'_>, ranges: &[(u64, u64)], advice: Advice) -> io::Result<u64> {
    let vector: Vec<libc::iovec> = ranges
        .iter()
        .map(|&(start, bytes)| libc::iovec {
            iov_base: start as usize as *mut libc::c_void,
            iov_len: bytes as usize,
        })
        .collect();
    // SAFETY: the vector has as many entries as are named and lives through the call. The kernel
    // reads the addresses in it as numbers of the other process.
    let taken = check(unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            vector.as_ptr(),
            vector.len(),
            advice as i32,
            0,
        )
    })?;
    Ok(taken.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::syscall::memory::{Anonymous, page_bytes};
    use crate::syscall::process::watch_end;

    #[test]
    fn a_kernel_without_replication_refuses_and_one_with_it_takes_a_page_of_ours() {
        let memory = Anonymous::new(page_bytes()).unwrap();
        memory.touch_every(page_bytes());
        let own = watch_end(std::process::id() as i32).unwrap();
        let page = [(memory.address(), page_bytes() as u64)];
        match give(own.as_fd(), &page, Advice::Unreplicate) {
            Ok(taken) => assert_eq!(taken, page[0].1),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
        }
    }
}
