//! CPUs, signals and children from the kernel.

#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::time::Duration;

use crate::report::Failure;

/// The CPUs that the calling thread may use, ascending.
pub(crate) fn allowed_cpus() -> Result<Vec<usize>, Failure> {
    let mut mask = CpuMask::default();
    let bytes = size_of_val(&mask.0);
    // SAFETY: the kernel writes at most `bytes` bytes of mask, which outlives the call.
    let written =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, mask.0.as_mut_ptr()) };
    if written < 0 {
        return Err(last_error("cannot read the CPUs of this process"));
    }
    Ok((0..CpuMask::CPUS).filter(|cpu| mask.0[cpu / 64] >> (cpu % 64) & 1 == 1).collect())
}

/// Confines the calling thread to these CPUs.
pub(crate) fn run_on(cpus: &[usize]) -> Result<(), Failure> {
    let mut mask = CpuMask::default();
    for &cpu in cpus {
        let word = mask.0.get_mut(cpu / 64);
        *word.ok_or_else(|| {
            Failure(format!("CPU {cpu}: expected a CPU below {}", CpuMask::CPUS))
        })? |= 1 << (cpu % 64);
    }
    let bytes = size_of_val(&mask.0);
    // SAFETY: the kernel reads `bytes` bytes of mask, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, mask.0.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(last_error(&format!("cannot run on CPUs {cpus:?}"))) }
}

/// How often the calling thread was taken off its CPU or left it.
pub(crate) fn switches() -> u64 {
    // SAFETY: rusage is plain data, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local. The call cannot fail for the calling thread.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned()
}

/// Stops this process, all threads of it, and lets it go on after this time: a child wakes it.
pub(crate) fn stop_for(time: Duration) -> Result<(), Failure> {
    let pause = timespec(time);
    // SAFETY: the child calls only async-signal-safe functions on memory of its own copy, and ends.
    unsafe {
        let own = libc::getpid();
        let child = libc::fork();
        if child == 0 {
            if !time.is_zero() {
                libc::nanosleep(&raw const pause, ptr::null_mut());
            }
            libc::kill(own, libc::SIGCONT);
            libc::_exit(0);
        }
        if child < 0 {
            return Err(last_error("cannot start a child"));
        }
        libc::kill(own, libc::SIGSTOP);
        libc::waitpid(child, ptr::null_mut(), 0);
    }
    Ok(())
}

/// Stops this process, all threads of it, until another process wakes it.
pub(crate) fn stop() {
    // SAFETY: the call takes a number.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Has a copy of this process (and of its memory, until one of them writes) for this time.
pub(crate) fn fork_for(time: Duration) -> Result<(), Failure> {
    let pause = timespec(time);
    // SAFETY: the child calls only async-signal-safe functions on memory of its own copy, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::nanosleep(&raw const pause, ptr::null_mut());
            libc::_exit(0);
        }
        if child < 0 {
            return Err(last_error("cannot start a child"));
        }
        libc::waitpid(child, ptr::null_mut(), 0);
    }
    Ok(())
}

/// Makes this process undumpable: its memory is for the privileged alone, even of the same user.
pub(crate) fn refuse_dumps() -> Result<(), Failure> {
    // SAFETY: the call takes numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(last_error("cannot refuse dumps")) }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: i64::from(time.subsec_nanos()) as _,
    }
}

/// As many CPUs as the kernel's largest configuration has.
#[derive(Clone)]
struct CpuMask([u64; Self::CPUS / 64]);

impl CpuMask {
    const CPUS: usize = 8192;
}

impl Default for CpuMask {
    fn default() -> Self {
        Self([0; Self::CPUS / 64])
    }
}

/// The failure of an attempt, with what the kernel says about it.
pub(crate) fn last_error(attempt: &str) -> Failure {
    Failure(format!("{attempt}: {}", io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_told() {
        let allowed = allowed_cpus().unwrap();
        let last = *allowed.last().unwrap();
        std::thread::spawn(move || {
            run_on(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus().unwrap(), allowed);
        assert!(run_on(&[9999]).unwrap_err().0.contains("below 8192"));
        assert!(run_on(&[]).is_err());
    }
}
