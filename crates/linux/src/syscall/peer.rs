//! Connecting to a local socket, and the process and user at its other end.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::check;

/// Most supplementary groups of a process (NGROUPS_MAX, include/uapi/linux/limits.h).
const MOST_GROUPS: usize = 65_536;

/// Connects to a local socket. If the listener's queue is full, waits for room for at most
/// `patience`. connect(2) itself would wait without end for a process that does not accept.
///
/// # Errors
/// No process listens there, or the queue stays full: `WouldBlock`.
pub fn connect_within(address: &SocketAddr, patience: Duration) -> io::Result<UnixStream> {
    let address = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path)?,
        (_, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let at_once = if patience.is_zero() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let flags = SocketFlags::CLOEXEC | at_once;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if !patience.is_zero() {
        set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    }
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// A local socket at `path` that every user may connect to. The file's mode comes from umask(2) at
/// bind(2), because our filter of calls refuses chmod(2). Where unshare(2) is refused, other
/// threads must create no file meanwhile.
///
/// # Errors
/// As bind(2).
pub fn listen_for_all(path: &Path) -> io::Result<UnixListener> {
    const NOBODY_EXECUTES: libc::mode_t = 0o111;
    own_umask();
    // SAFETY: umask(2) takes a number and has no failure.
    let usual = unsafe { libc::umask(NOBODY_EXECUTES) };
    let bound = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(usual) };
    bound
}

/// Gives the calling thread a umask of its own, once. With a shared one, a folder that another
/// thread makes could be one that nobody may enter. A thread that the filter of calls confines has
/// called this before.
fn own_umask() {
    thread_local! {
        static IS_OWN: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_OWN.replace(true) {
        // SAFETY: unshare(2) takes a number. Folder, root and umask become those of this thread.
        unsafe { libc::unshare(libc::CLONE_FS) };
    }
}

/// `(process, user)` at the other end of a connected local socket, as of its listen(2) or
/// connect(2) (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The socket is no local one.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let found = peer(socket)?;
    Ok((found.pid.unsigned_abs(), found.uid))
}

/// All groups of the other end: the primary one, then the supplementary ones (`SO_PEERGROUPS`,
/// Linux 4.13).
///
/// # Errors
/// The socket is no local one.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // A connection keeps its list, so the list is no longer than its groups.
    let mut found: Vec<libc::gid_t> = vec![0; count_groups(socket)?.min(MOST_GROUPS)];
    let size = read_groups(socket, &mut found)?;
    found.truncate(size / size_of::<libc::gid_t>());
    let own = std::iter::once(peer(socket)?.gid);
    Ok(own.chain(found).collect())
}

/// The kernel refuses a list that is too short, and says how long it has to be.
fn count_groups(socket: BorrowedFd<'_>) -> io::Result<usize> {
    match read_groups(socket, &mut []) {
        Ok(size) => Ok(size / size_of::<libc::gid_t>()),
        Err(error) => Err(error),
    }
}

/// Bytes of all groups. They are in `list` if it has room for them.
fn read_groups(socket: BorrowedFd<'_>, list: &mut [libc::gid_t]) -> io::Result<usize> {
    let mut size = size_of_val(list) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into a list of that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            list.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    match check(i64::from(result)) {
        Err(error) if error.raw_os_error() != Some(libc::ERANGE) => Err(error),
        _ => Ok(size as usize),
    }
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
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::syscall::process::effective_user;

    #[test]
    fn a_full_queue_holds_nobody_up_for_longer_than_patience_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let by_path = SocketAddr::from_pathname(&path).unwrap();
        let name = format!("rondpoint-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(name).unwrap();
        for address in [by_path, by_name] {
            assert!(connect_within(&address, Duration::ZERO).is_err(), "nothing listens");
            let listener = UnixListener::bind_addr(&address).unwrap();
            // Connections stay in the queue after their client has ended.
            let filled = std::iter::repeat_with(|| connect_within(&address, Duration::ZERO))
                .take(1 << 17)
                .find_map(Result::err);
            assert_eq!(filled.unwrap().kind(), io::ErrorKind::WouldBlock);
            let late = connect_within(&address, Duration::from_millis(1));
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            drop(listener.accept().unwrap());
            connect_within(&address, Duration::from_millis(1)).unwrap();
        }
    }

    #[test]
    fn every_user_may_connect_to_a_socket_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = listen_for_all(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        std::fs::write(folder.path().join("file"), "").unwrap();
        let file = std::fs::metadata(folder.path().join("file")).unwrap();
        assert_ne!(file.mode() & 0o777, 0o666, "the usual mask is back");
    }

    #[test]
    fn folders_that_other_threads_make_may_be_entered_while_sockets_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let (sockets, folders) = (folder.path().join("socket"), folder.path().join("folder"));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..500 {
                    let _listener = listen_for_all(&sockets.with_extension(number.to_string()));
                }
                is_done.store(true, Ordering::Relaxed);
            });
            for number in (0..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                let made = folders.with_extension(number.to_string());
                std::fs::create_dir(&made).unwrap();
                let mode = std::fs::metadata(&made).unwrap().mode();
                assert_ne!(mode & 0o100, 0, "its owner may not enter it: {mode:o}");
                std::fs::remove_dir(&made).unwrap();
            }
        });
    }

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
        assert!(groups.capacity() <= 2 * groups.len() + 4, "a connection keeps its list");
        assert!(credentials(std::fs::File::open("/").unwrap().as_fd()).is_err());
    }
}
