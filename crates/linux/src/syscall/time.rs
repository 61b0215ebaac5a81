//! The kernel's clocks: the one in which it tells when processes started, the one that service
//! managers use, and those of CPU time.

use std::mem::MaybeUninit;

use libc::clockid_t;

/// Kind of a process's clock: CPU time of all its threads by the scheduler, in nanoseconds
/// (`CPUCLOCK_SCHED`, include/linux/posix-timers.h, v6.12).
const SCHEDULED: clockid_t = 2;

/// Nanoseconds since boot, suspended time included (`CLOCK_BOOTTIME`, the clock of field 22 of
/// `/proc/PID/stat`).
#[must_use]
pub fn since_boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME).unwrap_or(0)
}

/// Nanoseconds since boot without suspended time (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// CPU time of a process since its start, in nanoseconds: of all its threads, ended ones included.
/// `None` if it has ended. It costs a fraction of reading `/proc/PID/stat`.
#[must_use]
pub fn cpu_time_ns(pid: u32) -> Option<u64> {
    // Number 0 would be the caller.
    let pid = clockid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // `MAKE_PROCESS_CPUCLOCK` of the same header.
    read((!pid << 3) | SCHEDULED)
}

/// CPU time of the calling thread, in nanoseconds.
#[must_use]
pub fn own_cpu_time_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Nanoseconds of a clock; `None` if there is no such clock.
fn read(clock: clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes one timespec, which lives through the call; all-zero is valid.
    let (result, time) =
        unsafe { (libc::clock_gettime(clock, time.as_mut_ptr()), time.assume_init()) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    (result == 0).then(|| part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let first = since_boot_ns();
        assert!(first > 0 && since_boot_ns() >= first);
        let first = monotonic_ns();
        assert!(first > 0 && monotonic_ns() >= first && since_boot_ns() >= first);
    }

    #[test]
    fn a_process_has_a_clock_of_all_its_threads_until_it_is_gone() {
        const RUNS_NS: u64 = 20_000_000;
        let own = std::process::id();
        let before = cpu_time_ns(own).expect("this process is there");
        let work = || while own_cpu_time_ns() < RUNS_NS {};
        std::thread::spawn(work).join().expect("it ends");
        let ran = cpu_time_ns(own).expect("this process is there") - before;
        assert!(ran >= RUNS_NS, "{ran} ns: the thread that ended counts");
        let mut child = std::process::Command::new("true").spawn().expect("true");
        assert!(cpu_time_ns(child.id()).is_some(), "it is there until it is waited for");
        child.wait().expect("a child");
        assert_eq!(cpu_time_ns(child.id()), None);
        assert_eq!((cpu_time_ns(0), cpu_time_ns(u32::MAX)), (None, None));
    }
}
