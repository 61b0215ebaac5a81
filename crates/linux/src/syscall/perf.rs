//! `perf_event_open(2)` and the ioctls of its descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{check, descriptors};
use crate::perf::attr::Attr;

/// The thread and the CPU that an event watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Thread; 0 for the caller, -1 for all threads on the CPU.
    pub task: i32,
    /// CPU; -1 for any.
    pub cpu: i32,
}

/// Opens one event. On E2BIG the kernel writes the size that it knows into `attr.size`.
///
/// # Errors
/// As perf_event_open(2). EMFILE also if the descriptor may not be kept open.
pub fn open(attr: &mut Attr, target: Target, group: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    let group = group.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: `attr` is a valid perf_event_attr of `attr.size` bytes (checked by Attr's layout
    // test) and stays borrowed for the call. The kernel writes at most its `size` field.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_mut(attr),
            target.task,
            target.cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = i32::try_from(check(result)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    match descriptors::may_keep(event.as_fd()) {
        true => Ok(event),
        false => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}

// _IO('$', n) of include/uapi/linux/perf_event.h; the same on x86 and Arm.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const SET_OUTPUT: libc::c_ulong = 0x2405;
const PERIOD: libc::c_ulong = 0x4008_2404;
const ID: libc::c_ulong = 0x8008_2407;

/// Starts counting.
///
/// # Errors
/// As ioctl(2).
pub fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    plain(event, ENABLE, 0)
}

/// Stops counting.
///
/// # Errors
/// As ioctl(2).
pub fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    plain(event, DISABLE, 0)
}

/// Sends the records of `event` into the ring of `ring`.
///
/// # Errors
/// EINVAL: the two events do not watch the same CPU.
pub fn set_output(event: BorrowedFd<'_>, ring: BorrowedFd<'_>) -> io::Result<()> {
    plain(event, SET_OUTPUT, i64::from(ring.as_raw_fd()))
}

fn plain(event: BorrowedFd<'_>, request: libc::c_ulong, argument: i64) -> io::Result<()> {
    // SAFETY: these requests take their argument by value and touch no memory of ours. The request
    // is cast because its C type differs between C libraries.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    check(i64::from(result)).map(|_| ())
}

/// Changes the sampling period from the next overflow on.
///
/// # Errors
/// EINVAL for an event that does not sample.
pub fn set_period(event: BorrowedFd<'_>, period: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one u64 at this address, which outlives the call.
    let result =
        unsafe { libc::ioctl(event.as_raw_fd(), PERIOD as _, std::ptr::from_ref(&period)) };
    check(i64::from(result)).map(|_| ())
}

/// The number that marks this event's records in a shared ring.
///
/// # Errors
/// As ioctl(2).
pub fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: the kernel writes one u64 at this address, which outlives the call.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), ID as _, std::ptr::from_mut(&mut id)) };
    check(i64::from(result)).map(|_| id)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;
    use crate::perf::attr::{Attr, SW_PAGE_FAULTS_MIN, TYPE_SOFTWARE};

    fn own_faults() -> Attr {
        let mut attr = Attr::counting(TYPE_SOFTWARE, SW_PAGE_FAULTS_MIN);
        attr.exclude_kernel_and_hypervisor();
        attr
    }

    #[test]
    fn a_software_event_opens_counts_stops_and_has_an_id() {
        let mut attr = own_faults();
        attr.read_format = 0;
        let event = open(&mut attr, Target { task: 0, cpu: -1 }, None).unwrap();
        enable(event.as_fd()).unwrap();
        let memory = super::super::memory::Anonymous::new(16 * 4096).unwrap();
        memory.touch_every(4096);
        disable(event.as_fd()).unwrap();
        assert_ne!(id(event.as_fd()).unwrap(), 0);
        let mut bytes = [0u8; 8];
        File::from(event).read_exact(&mut bytes).unwrap();
        assert!(u64::from_ne_bytes(bytes) >= 16);
    }

    #[test]
    fn the_kernel_refuses_what_does_not_exist() {
        let mut attr = own_faults();
        attr.kind = 9_999;
        let error = open(&mut attr, Target { task: 0, cpu: -1 }, None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        let null = File::open("/dev/null").unwrap();
        assert!(set_output(null.as_fd(), null.as_fd()).is_err());
        assert!(set_period(null.as_fd(), 1).is_err());
    }

    #[test]
    fn a_sampling_event_takes_a_new_period() {
        let mut attr = own_faults();
        attr.sample_period = 1;
        let event = open(&mut attr, Target { task: 0, cpu: -1 }, None).unwrap();
        set_period(event.as_fd(), 100).unwrap();
    }
}
