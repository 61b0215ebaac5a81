//! The ring of a CPU, and the events whose records go there.

use std::io;
use std::os::fd::AsFd;

use super::sampler::LEVEL_STEP;
use super::subject::Subject;
use crate::LinuxError;
use crate::perf::attr::{Attr, SW_DUMMY, SW_PAGE_FAULTS_MIN, TYPE_SOFTWARE, flag, sample_type};
use crate::perf::event::OpenEvent;
use crate::perf::pmu::Event;
use crate::perf::ring::Ring;
use crate::syscall::memory::page_bytes;
use crate::syscall::perf::set_output;

/// Most bytes of data of a ring. With the control page, of 64 KiB at most, they are below the 516
/// KiB that every user may lock per CPU (`kernel.perf_event_mlock_kb`).
const RING_BYTES: usize = 256 * 1024;

/// Fields of a sample.
pub(super) const FIELDS: u64 = sample_type::IDENTIFIER
    | sample_type::IP
    | sample_type::TID
    | sample_type::TIME
    | sample_type::ADDR
    | sample_type::CPU
    | sample_type::PERIOD
    | sample_type::PHYS_ADDR
    | sample_type::DATA_PAGE_SIZE;

/// A mapped ring.
pub(super) struct CpuRing {
    pub(super) ring: Ring,
    /// Dummy events, one for each task, which carry the task records.
    pub(super) owners: Vec<OpenEvent>,
    /// The first owner whose task lives. poll(2) returns at once for one that has ended.
    pub(super) waker: usize,
    /// Sampling events of the present level; those of other levels are closed. The period of an
    /// inherited event cannot be changed (`_perf_ioctl`, kernel/events/core.c, Linux 6.12). A
    /// stopped event costs as much at a task's switch or start as a running one.
    pub(super) events: Vec<OpenEvent>,
}

/// The event that owns a ring.
pub(super) fn owner(fields: u64) -> Event {
    let mut attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
    attr.sample_type = fields;
    attr.flags |= flag::TASK | flag::COMM | flag::SAMPLE_ID_ALL | flag::WATERMARK;
    // At half of the ring, whatever its size (`ring_buffer_init`, kernel/events/ring_buffer.c).
    attr.wakeup = 0;
    Event { name: "task records".to_string(), attr, cpus: None }
}

/// Minor page faults.
pub(super) fn faults() -> Event {
    let attr = Attr::counting(TYPE_SOFTWARE, SW_PAGE_FAULTS_MIN);
    Event { name: "minor-faults".to_string(), attr, cpus: None }
}

/// The sampling event with the sample fields and exclusions of the ring's owner, because all
/// records of a ring have one layout.
pub(super) fn sampling(event: &Event, accepted: &Attr, period: u64) -> Event {
    let mut attr = event.attr.clone();
    attr.sample_type = accepted.sample_type;
    attr.read_format = accepted.read_format;
    attr.sample_period = period.max(1);
    attr.flags |= accepted.flags & (flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV);
    attr.flags |= flag::SAMPLE_ID_ALL | flag::WATERMARK;
    attr.wakeup = accepted.wakeup;
    Event { name: event.name.clone(), attr, cpus: None }
}

/// The event at a level of sampling.
pub(super) fn slower(mut event: Event, level: usize) -> Event {
    let times = LEVEL_STEP.saturating_pow(level as u32);
    event.attr.sample_period = event.attr.sample_period.saturating_mul(times);
    event
}

/// A ring on one CPU for the task records of `subject`.
///
/// # Errors
/// The event is refused, or the ring cannot be mapped.
pub(super) fn open_ring(event: &Event, subject: &Subject, cpu: u32) -> Result<CpuRing, LinuxError> {
    // Task records must begin at the fork, before any execve.
    let owners = subject.open_now(event, cpu)?;
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let first = owners.first().ok_or_else(|| LinuxError::PerfOpen {
        event: event.name.clone(),
        target: "a process that has ended".to_string(),
        source: gone(),
    })?;
    let ring = map_ring(first)?;
    send_to(&owners[1..], first, event)?;
    Ok(CpuRing { ring, owners, waker: 0, events: Vec::new() })
}

/// Sends the records of the events `opened` to the ring of `owner`.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn send_to(
    opened: &[OpenEvent],
    owner: &OpenEvent,
    event: &Event,
) -> Result<(), LinuxError> {
    let send = |one: &OpenEvent| set_output(one.as_fd(), owner.as_fd());
    opened.iter().try_for_each(send).map_err(|source| LinuxError::Call {
        call: "ioctl(PERF_EVENT_IOC_SET_OUTPUT)",
        attempted: event.name.clone(),
        source,
    })
}

/// Maps the largest ring that may be locked.
fn map_ring(event: &OpenEvent) -> Result<Ring, LinuxError> {
    let ring = largest(pages_of(RING_BYTES, page_bytes()), |pages| Ring::new(event.as_fd(), pages));
    ring.map_err(|source| {
        let attempted = "the ring of a CPU".to_string();
        LinuxError::Call { call: "mmap", attempted, source }
    })
}

/// Number of pages of `page` bytes in `bytes`, at least 1.
pub(super) fn pages_of(bytes: usize, page: usize) -> usize {
    (bytes / page).max(1)
}

/// Maps an area of `pages` pages, or of half as many while the kernel lets no more be locked.
///
/// # Errors
/// As `map` with the last number of pages.
pub(super) fn largest<T>(mut pages: usize, map: impl Fn(usize) -> io::Result<T>) -> io::Result<T> {
    loop {
        match map(pages) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && pages > 1 => pages /= 2,
            mapped => return mapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_as_many_bytes_whatever_the_size_of_a_page() {
        let pages = |page| pages_of(RING_BYTES, page);
        assert_eq!([pages(4096), pages(16_384), pages(65_536), pages(1 << 20)], [64, 16, 4, 1]);
        assert_eq!(owner(FIELDS).attr.wakeup, 0, "half of what was mapped");
    }

    #[test]
    fn what_may_not_be_locked_is_halved_until_it_may() {
        let errno = |errno| io::Error::from_raw_os_error(errno);
        let may = |most| {
            largest(64, |pages| if pages <= most { Ok(pages) } else { Err(errno(libc::EPERM)) })
        };
        assert_eq!([may(100), may(9), may(1)].map(Result::unwrap), [64, 8, 1]);
        assert_eq!(may(0).unwrap_err().raw_os_error(), Some(libc::EPERM));
        let tried = std::cell::Cell::new(0);
        let other = largest(64, |pages| {
            tried.set(pages);
            Err::<usize, _>(errno(libc::EINVAL))
        });
        assert_eq!((other.is_err(), tried.get()), (true, 64), "another error stays");
    }
}
