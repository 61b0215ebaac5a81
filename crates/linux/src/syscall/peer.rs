//! Who listens at the other end of a local socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// The process and user at the other end of a connected local socket, as they were when it began to
/// listen (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// It is no local socket.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into a record of that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    };
    check(i64::from(result))?;
    Ok((found.pid.unsigned_abs(), found.uid))
}
