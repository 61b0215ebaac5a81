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

/// Most data pages of a ring: 256 KiB. With the control page it is below the 516 KiB that every
/// user may lock per CPU (`kernel.perf_event_mlock_kb`).
const RING_PAGES: usize = 64;

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
    attr.wakeup = u32::try_from(RING_PAGES * page_bytes() / 2).unwrap_or(u32::MAX);
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
    let mut pages = RING_PAGES;
    loop {
        match Ring::new(event.as_fd(), pages) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && pages > 1 => pages /= 2,
            Err(source) => {
                let attempted = format!("a ring of {pages} pages");
                return Err(LinuxError::Call { call: "mmap", attempted, source });
            }
        }
    }
}
