//! The process and user at the other end of a local socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Supplementary groups of a process at most (NGROUPS_MAX, include/uapi/linux/limits.h).
const MOST_GROUPS: usize = 65_536;

/// The process and user at the other end of a connected local socket, as they were when it began to
/// listen or connected (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// It is no local socket.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let found = peer(socket)?;
    Ok((found.pid.unsigned_abs(), found.uid))
}

/// All groups of the other end: its own, then the supplementary ones (`SO_PEERGROUPS`, Linux 4.13).
///
/// # Errors
/// It is no local socket.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut found: Vec<libc::gid_t> = vec![0; MOST_GROUPS];
    let mut size = (found.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into a list of that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            found.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    check(i64::from(result))?;
    found.truncate(size as usize / size_of::<libc::gid_t>());
    found.insert(0, peer(socket)?.gid);
    Ok(found)
}

fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
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
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::syscall::process::effective_user;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = (std::process::id(), effective_user());
        assert_eq!(credentials(one.as_fd()).unwrap(), own);
        let groups = groups(one.as_fd()).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        for group in line.split_whitespace() {
            assert!(groups.contains(&group.parse().unwrap()), "{groups:?}");
        }
        assert!(credentials(std::fs::File::open("/").unwrap().as_fd()).is_err());
    }
}
