//! The CPU that the calling thread runs on.

#![allow(unsafe_code, reason = "reads what the C library and the kernel keep for each thread")]

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Offset of `cpu_id` in struct rseq (include/uapi/linux/rseq.h), fixed ABI.
const CPU_ID: isize = 4;

/// Offset of `cpu_id` from a thread's thread pointer; 0 if the C library has no rseq area.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// The kernel's number of the CPU that the caller runs on; 0 if it is unknown.
///
/// The kernel keeps it current in memory of each thread (rseq(2)), which glibc registers from 2.35
/// on. A thread without it, and any other C library, asks the vDSO.
#[inline]
pub(crate) fn current() -> usize {
    let offset = OFFSET.load(Ordering::Relaxed);
    if offset != 0 {
        // SAFETY: glibc keeps a struct rseq at this offset for every thread.
        let cpu = unsafe { read_thread_memory(offset) };
        // Not registered: a negative number.
        if let Ok(cpu) = usize::try_from(cpu.cast_signed()) {
            return cpu;
        }
    }
    ask()
}

#[cold]
fn ask() -> usize {
    // SAFETY: no memory of ours is involved.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Sets [`OFFSET`] from the C library, once.
pub(crate) fn prepare() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| OFFSET.store(registered_offset().unwrap_or(0), Ordering::Relaxed));
}

/// Offset of `cpu_id` by glibc's `__rseq_offset`. `None` if `__rseq_size` is 0: the kernel or the
/// user (`GLIBC_TUNABLES=glibc.pthread.rseq=0`) refused rseq.
fn registered_offset() -> Option<isize> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return None;
    }
    // SAFETY: glibc documents both types (sys/rseq.h); neither changes once threads run.
    let (offset, size) =
        unsafe { (*symbol::<isize>(c"__rseq_offset")?, *symbol::<libc::c_uint>(c"__rseq_size")?) };
    let read = size_of::<u32>() as isize;
    (size as isize >= CPU_ID + read).then_some(offset + CPU_ID)
}

fn symbol<T>(name: &CStr) -> Option<*const T> {
    // SAFETY: the name ends with 0; a look-up changes nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const().cast())
}

/// Reads four bytes at an offset from the thread pointer in one instruction.
///
/// # Safety
/// There are four aligned bytes that belong to the calling thread.
#[inline]
unsafe fn read_thread_memory(offset: isize) -> u32 {
    let value: u32;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's; the instruction reads memory and changes nothing.
    unsafe {
        std::arch::asm!(
            "mov {value:e}, fs:[{offset}]",
            value = out(reg) value,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's; the instructions read memory and change nothing.
    unsafe {
        std::arch::asm!(
            "mrs {pointer}, tpidr_el0",
            "ldr {value:w}, [{pointer}, {offset}]",
            pointer = out(reg) _,
            value = lateout(reg) value,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = offset;
        value = u32::MAX;
    }
    value
}

#[cfg(test)]
mod tests {
    use rondpoint_linux::syscall::affinity;

    use super::*;

    #[test]
    fn the_current_cpu_is_the_one_that_a_thread_is_held_on() {
        prepare();
        for cpu in affinity::get(0).unwrap().iter() {
            std::thread::spawn(move || {
                affinity::set(0, &std::iter::once(cpu).collect()).unwrap();
                assert_eq!((current(), ask()), (cpu, cpu));
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn the_offset_is_glibc_s_for_the_cpu_that_its_own_function_returns() {
        let Some(offset) = registered_offset() else { return };
        std::thread::spawn(move || {
            let cpu = affinity::get(0).unwrap().iter().last().unwrap();
            affinity::set(0, &std::iter::once(cpu).collect()).unwrap();
            // SAFETY: glibc keeps a struct rseq there.
            assert_eq!(unsafe { read_thread_memory(offset) } as usize, ask());
        })
        .join()
        .unwrap();
    }
}
