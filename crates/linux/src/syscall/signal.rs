//! Signals as something to read: a blocked set and a `signalfd(2)`, no handler ever runs.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{check, retry};

/// A set of signals.
#[derive(Clone, Copy)]
pub struct Signals(pub(super) libc::sigset_t);

impl Signals {
    /// The set of these numbers.
    #[must_use]
    pub fn of(numbers: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for &number in numbers {
            // SAFETY: an initialised set; an unknown number is refused with EINVAL.
            unsafe { libc::sigaddset(&raw mut set, number) };
        }
        Self(set)
    }

    /// All signals.
    #[must_use]
    pub fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the whole set.
        Self(unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        })
    }

    /// Whether a signal is in the set.
    #[must_use]
    pub fn contains(&self, number: i32) -> bool {
        // SAFETY: an initialised set; an unknown number answers -1.
        unsafe { libc::sigismember(&raw const self.0, number) == 1 }
    }
}

/// Blocks these signals for the calling thread. Returns the mask before.
///
/// # Errors
/// None that a valid set can cause.
pub fn block(signals: &Signals) -> io::Result<Signals> {
    change(libc::SIG_BLOCK, signals)
}

/// Unblocks these signals for the calling thread. Returns the mask before.
///
/// # Errors
/// As [`block`].
pub fn unblock(signals: &Signals) -> io::Result<Signals> {
    change(libc::SIG_UNBLOCK, signals)
}

fn change(how: i32, signals: &Signals) -> io::Result<Signals> {
    let mut before = Signals::of(&[]);
    // SAFETY: both sets are initialised and live through the call.
    let error = unsafe { libc::pthread_sigmask(how, &raw const signals.0, &raw mut before.0) };
    if error == 0 { Ok(before) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Restores a mask that [`block`] returned.
///
/// # Errors
/// None that a valid set can cause.
pub fn restore(mask: &Signals) -> io::Result<()> {
    // SAFETY: the set is initialised; the old mask is not asked for.
    let error = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Sends a signal to the calling thread. A blocked one waits until it is read or unblocked.
///
/// # Errors
/// EINVAL: there is no such signal.
pub fn raise(number: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::raise(number) };
    check(i64::from(result)).map(|_| ())
}

/// A descriptor that becomes readable when one of the (blocked) signals is pending.
///
/// # Errors
/// As signalfd(2).
pub fn descriptor(signals: &Signals) -> io::Result<OwnedFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set is initialised and lives through the call.
    let fd = unsafe { libc::signalfd(-1, &raw const signals.0, flags) };
    check(i64::from(fd))?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Number of the signal.
    pub number: i32,
    /// Whether another process sent it. If not, the kernel did, for a terminal's ^C, a child's end
    /// or a limit of this process.
    pub sent_by_process: bool,
}

/// The next pending signal, `None` when there is none.
///
/// # Errors
/// As read(2).
pub fn next(descriptor: BorrowedFd<'_>) -> io::Result<Option<Arrived>> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let bytes = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has `bytes` bytes and lives through the call.
    let read = retry(|| unsafe {
        libc::read(descriptor.as_raw_fd(), info.as_mut_ptr().cast(), bytes) as i64
    });
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    // SAFETY: zeroed memory is a valid signalfd_siginfo, and the kernel has filled it.
    let info = unsafe { info.assume_init() };
    let number = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
    // SI_USER, SI_QUEUE and SI_TKILL are 0 and below; codes of the kernel's own signals are above.
    // SIGXFSZ looks as if this process had sent it by kill(2) (`generic_write_check_limits`,
    // fs/read_write.c, Linux 6.12). A signal that this process raises again was sent by another.
    let is_own_limit = info.ssi_code == libc::SI_USER && info.ssi_pid == std::process::id();
    let sent_by_process = info.ssi_code <= 0 && !is_own_limit;
    Ok(Some(Arrived { number, sent_by_process }))
}

/// Waits until one of the descriptors is readable or the time is over. Returns for each whether it
/// is readable.
///
/// # Errors
/// As poll(2); an interruption counts as the end of the wait.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], timeout_ms: i32) -> io::Result<Vec<bool>> {
    wait_ready(descriptors, &[], timeout_ms)
}

/// Waits until one of `readable` is readable, one of `writable` writable, or the time is over.
/// Returns for each whether it is ready, first those of `readable`.
///
/// # Errors
/// As poll(2); an interruption counts as the end of the wait.
pub fn wait_ready(
    readable: &[BorrowedFd<'_>],
    writable: &[BorrowedFd<'_>],
    timeout_ms: i32,
) -> io::Result<Vec<bool>> {
    let polled = readable
        .iter()
        .map(|fd| entry(*fd, libc::POLLIN))
        .chain(writable.iter().map(|fd| entry(*fd, libc::POLLOUT)));
    Ok(poll(polled.collect(), timeout_ms)?.iter().map(|entry| entry.revents != 0).collect())
}

/// Returns at once, for each descriptor, whether its other end is closed.
///
/// # Errors
/// As poll(2).
pub fn hung_up(descriptors: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
    let polled = poll(descriptors.iter().map(|fd| entry(*fd, 0)).collect(), 0)?;
    Ok(polled.iter().map(|entry| entry.revents & libc::POLLHUP != 0).collect())
}

fn entry(fd: BorrowedFd<'_>, events: i16) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}

/// Calls poll(2). An interruption counts as the end of the wait.
fn poll(mut polled: Vec<libc::pollfd>, timeout_ms: i32) -> io::Result<Vec<libc::pollfd>> {
    let count = libc::nfds_t::try_from(polled.len()).map_err(io::Error::other)?;
    // SAFETY: `polled` has `count` entries and lives through the call.
    let result = unsafe { libc::poll(polled.as_mut_ptr(), count, timeout_ms) };
    match check(i64::from(result)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(polled),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_blocked_signal_is_read_instead_of_delivered() {
        let set = Signals::of(&[libc::SIGUSR2]);
        assert!(set.contains(libc::SIGUSR2) && !set.contains(libc::SIGUSR1));
        assert!(Signals::all().contains(libc::SIGUSR1));
        let before = block(&set).unwrap();
        let descriptor = descriptor(&set).unwrap();
        assert_eq!(next(descriptor.as_fd()).unwrap(), None);
        assert_eq!(wait_readable(&[descriptor.as_fd()], 0).unwrap(), [false]);
        raise(libc::SIGUSR2).unwrap();
        assert_eq!(wait_readable(&[descriptor.as_fd()], 1000).unwrap(), [true]);
        let arrived = Arrived { number: libc::SIGUSR2, sent_by_process: true };
        assert_eq!(next(descriptor.as_fd()).unwrap(), Some(arrived));
        restore(&before).unwrap();
    }
}
