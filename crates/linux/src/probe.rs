//! Probes: each tries one sensor or action in its smallest form and reports the kernel's answer.
//!
//! A probe leaves no change behind.

use std::io;

use rondpoint_core::Pid;

use crate::LinuxError;
use crate::parse::{stat, status};
use crate::perf::attr::{
    Attr, SW_DUMMY, SW_PAGE_FAULTS_MIN, TYPE_HARDWARE, TYPE_SOFTWARE, flag, sample_type,
};
use crate::perf::event::OpenEvent;
use crate::perf::pmu::Event;
use crate::root::{self, Root};
use crate::syscall::affinity;
use crate::syscall::memory::{Anonymous, page_bytes};
use crate::syscall::pages::{self, Reach};
use crate::syscall::perf::Target;

const SELF: Target = Target { task: 0, cpu: -1 };

/// A capability of capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `CAP_SYS_PTRACE`: look into and move pages of other users' processes.
    SysPtrace,
    /// `CAP_SYS_ADMIN`: in older kernels also performance events.
    SysAdmin,
    /// `CAP_SYS_NICE`: affinity of other users' threads, pages that are shared.
    SysNice,
    /// `CAP_PERFMON`: performance events beyond `perf_event_paranoid`.
    PerfMon,
}

impl Capability {
    /// Bit number of the capability (include/uapi/linux/capability.h).
    #[must_use]
    pub fn bit(self) -> u32 {
        match self {
            Self::SysPtrace => 19,
            Self::SysAdmin => 21,
            Self::SysNice => 23,
            Self::PerfMon => 38,
        }
    }
}

/// Whether this process has a capability in effect.
///
/// # Errors
/// `/proc/self/status` cannot be read.
pub fn has_capability(root: &Root, capability: Capability) -> Result<bool, LinuxError> {
    let path = root.in_proc("self/status");
    let bytes = root::read_required(&path)?;
    let found = status::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    Ok(found.effective_capabilities.is_some_and(|all| all >> capability.bit() & 1 == 1))
}

/// Whether this process may count beyond `perf_event_paranoid` by the kernel's own rules; false if
/// that cannot be read. It reads a file, because the commands' filters refuse `capget`.
#[must_use]
pub fn holds_perfmon(root: &Root) -> bool {
    has_capability(root, Capability::PerfMon).unwrap_or(false)
}

/// Whether a process is a thread of the kernel; false if it cannot be read.
#[must_use]
pub fn is_kernel_thread(root: &Root, pid: Pid) -> bool {
    let bytes = root::read_optional(&root.in_proc(format!("{pid}/stat"))).ok().flatten();
    bytes.and_then(|bytes| stat::parse(&bytes).ok()).is_some_and(|found| found.is_kernel_thread)
}

/// Tries to count a hardware event of the calling thread.
///
/// # Errors
/// Those of the kernel.
pub fn hardware_counter() -> Result<(), LinuxError> {
    OpenEvent::open("cycles", &Attr::counting(TYPE_HARDWARE, 0), SELF, None).map(drop)
}

/// Tries to count an event of this machine's table for the calling thread.
///
/// # Errors
/// Those of the kernel.
pub fn event(event: &Event) -> Result<(), LinuxError> {
    let cpu = event.cpus.as_ref().and_then(|cpus| cpus.first());
    let target = match cpu {
        Some(&cpu) => Target { task: -1, cpu: cpu as i32 },
        None => SELF,
    };
    OpenEvent::open(&event.name, &event.attr, target, None).map(drop)
}

/// Tries to take address samples of an event for the calling thread. Returns whether they have
/// physical addresses.
///
/// # Errors
/// Those of the kernel.
pub fn sampling(event: &Event, period: u64) -> Result<bool, LinuxError> {
    sampling_of(event, period, SELF)
}

/// As [`sampling`], for all threads on one CPU.
///
/// # Errors
/// Those of the kernel.
pub fn sampling_of_cpu(event: &Event, period: u64) -> Result<bool, LinuxError> {
    sampling_of(event, period, Target { task: -1, cpu: cpu_that_is_on(event.cpus.as_deref()) })
}

/// A CPU that is on, of these if one is known to be: the kernel refuses events of the others. Any
/// CPU may be off, the first one too. Those that this process may use are on.
fn cpu_that_is_on(cpus: Option<&[u32]>) -> i32 {
    let usable = affinity::get(0).unwrap_or_default();
    let is_on = |cpu: &&u32| usable.contains(**cpu as usize);
    let of_these = cpus.and_then(|cpus| cpus.iter().find(is_on).or(cpus.first()));
    let cpu = of_these.map(|cpu| *cpu as usize).or_else(|| usable.iter().next());
    cpu.unwrap_or(0) as i32
}

fn sampling_of(event: &Event, period: u64, target: Target) -> Result<bool, LinuxError> {
    let mut attr = event.attr.clone();
    attr.sample_period = period.max(1);
    attr.sample_type = sample_type::ADDR | sample_type::PHYS_ADDR | sample_type::DATA_SRC;
    let opened = OpenEvent::open(&event.name, &attr, target, None)?;
    Ok(opened.attr.sample_type & sample_type::PHYS_ADDR != 0)
}

/// As [`sampling`], for minor page faults.
///
/// # Errors
/// Those of the kernel.
pub fn fault_sampling() -> Result<bool, LinuxError> {
    let attr = Attr::counting(TYPE_SOFTWARE, SW_PAGE_FAULTS_MIN);
    sampling(&Event { name: "minor-faults".to_string(), attr, cpus: None }, 1)
}

/// Tries to count events of all threads on one CPU.
///
/// # Errors
/// Those of the kernel.
pub fn whole_cpu() -> Result<(), LinuxError> {
    let attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
    let target = Target { task: -1, cpu: cpu_that_is_on(None) };
    OpenEvent::open("dummy", &attr, target, None).map(drop)
}

/// A counter of the calling thread's instructions, with those of the kernel on its behalf if they
/// may be counted. `None` if instructions cannot be counted.
#[must_use]
pub fn own_instructions() -> Option<OpenEvent> {
    const INSTRUCTIONS: u64 = 1; // PERF_COUNT_HW_INSTRUCTIONS
    own("instructions", INSTRUCTIONS)
}

/// As [`own_instructions`], for core cycles, which pass at the core's present clock.
#[must_use]
pub fn own_cycles() -> Option<OpenEvent> {
    const CYCLES: u64 = 0; // PERF_COUNT_HW_CPU_CYCLES
    own("cycles", CYCLES)
}

fn own(name: &str, event: u64) -> Option<OpenEvent> {
    let mut attr = Attr::counting(TYPE_HARDWARE, event);
    attr.flags &= !flag::DISABLED;
    OpenEvent::open(name, &attr, SELF, None).ok()
}

/// Tries to locate and move a page of this process, to its own node.
///
/// # Errors
/// Those of the kernel.
pub fn page_move() -> io::Result<()> {
    page_move_with(Reach::Own)
}

/// Whether the kernel lets this process move pages that several processes have mapped. A
/// capability in a user namespace does not suffice.
#[must_use]
pub fn may_move_shared() -> bool {
    page_move_with(Reach::Shared).is_ok()
}

/// Whether the kernel refuses that for want of a right, while pages of this process alone move.
#[must_use]
pub fn may_not_move_shared() -> bool {
    let is_refused = |error: io::Error| error.raw_os_error() == Some(libc::EPERM);
    page_move().is_ok() && page_move_with(Reach::Shared).is_err_and(is_refused)
}

fn page_move_with(reach: Reach) -> io::Result<()> {
    let memory = Anonymous::new(page_bytes())?;
    memory.touch_every(page_bytes());
    let page = [memory.address()];
    let refused = io::Error::from_raw_os_error;
    let located = pages::locate(0, &page)?.first().copied();
    let home = located.unwrap_or(Err(libc::ENOENT)).map_err(refused)?;
    let moved = pages::relocate(0, &page, home, reach)?.first().copied().flatten();
    moved.unwrap_or(Err(libc::EBUSY)).map_err(refused).map(|_| ())
}

/// Tries to locate a page of a process, which needs the same right as moving it.
///
/// # Errors
/// EPERM for another user's process, ESRCH for none.
pub fn may_move_pages_of(pid: Pid) -> io::Result<()> {
    pages::locate(pid.0 as i32, &[page_bytes() as u64]).map(drop)
}

/// Whether the main thread of a process has ended and others live. The kernel then refuses to tell
/// or move the process's pages (EINVAL), because the main thread has no memory any more.
#[must_use]
pub fn outlives_its_main_thread(root: &Root, pid: Pid) -> bool {
    let text = root::read_optional(&root.in_proc(pid.to_string()).join("stat"));
    let stat = text.ok().flatten().and_then(|text| stat::parse(&text).ok());
    stat.is_some_and(|stat| stat.state == 'Z' && stat.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_kernel_is_told_by_its_flags() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        std::fs::create_dir_all(root.in_proc("2")).unwrap();
        assert!(!is_kernel_thread(&root, Pid(2)), "nothing can be read");
        // PF_KTHREAD of include/linux/sched.h.
        for (flags, is_kernels) in [(0x0020_0000, true), (0x0040_0000, false)] {
            let line = format!(
                "2 (x) S 0 0 0 0 -1 {flags} 7 0 1 0 9 0 0 0 20 0 1 0 100 0 99 \
                 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0\n"
            );
            std::fs::write(root.in_proc("2/stat"), line).unwrap();
            assert_eq!(is_kernel_thread(&root, Pid(2)), is_kernels, "{flags:x}");
        }
    }

    #[test]
    fn a_process_that_outlives_its_main_thread_is_no_ended_one() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        std::fs::create_dir_all(root.in_proc("7")).unwrap();
        for (state, threads, outlives) in [("Z", "3", true), ("Z", "1", false), ("S", "3", false)] {
            std::fs::write(root.in_proc("7/stat"), stat::sample(state, threads)).unwrap();
            assert_eq!(outlives_its_main_thread(&root, Pid(7)), outlives, "{state} {threads}");
        }
        assert!(!outlives_its_main_thread(&root, Pid(8)));
    }

    #[test]
    fn probes_of_what_every_linux_has_succeed() {
        page_move().unwrap();
        may_move_pages_of(Pid(std::process::id())).unwrap();
        assert!(may_move_pages_of(Pid(i32::MAX as u32)).is_err());
        fault_sampling().unwrap();
        has_capability(&Root::live(), Capability::SysNice).unwrap();
    }

    #[test]
    fn capabilities_are_read_from_the_mask() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        std::fs::create_dir_all(root.in_proc("self")).unwrap();
        std::fs::write(root.in_proc("self/status"), "CapEff:\t0000000000800000\n").unwrap();
        assert!(has_capability(&root, Capability::SysNice).unwrap());
        assert!(!has_capability(&root, Capability::PerfMon).unwrap());
    }

    #[test]
    fn a_cpu_of_this_process_is_tried_because_any_other_may_be_off() {
        let usable = affinity::get(0).unwrap();
        let last = usable.iter().last().unwrap();
        affinity::set(0, &[last].into_iter().collect()).unwrap();
        let (one, none) = ([60_000, last as u32], [60_000]);
        let tried = [None, Some(&one[..]), Some(&none[..])].map(cpu_that_is_on);
        affinity::set(0, &usable).unwrap();
        assert_eq!(tried, [last as i32, last as i32, 60_000]);
    }

    #[test]
    fn an_unknown_event_is_refused() {
        let odd = Event { name: "odd".into(), attr: Attr::counting(9_999, 0), cpus: None };
        assert!(event(&odd).is_err() && sampling(&odd, 10).is_err());
    }
}
