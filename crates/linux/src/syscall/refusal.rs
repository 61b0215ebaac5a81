//! SIGSYS: tells which system call a filter has refused, and ends the process. One that a process
//! has sent has the effect that it would have without the filter.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use super::check;
use super::signal::{self, Signals};

/// Exit status of a process with a filter that lacks a call.
const STATUS: i32 = 125;

/// Whether this process reads the signal instead of being ended by it.
static IS_READ: AtomicBool = AtomicBool::new(false);

/// From now on a refused call ends this process with a line on stderr that has its number.
///
/// # Errors
/// As sigaction(2).
pub fn end_with_number() -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero is a valid sigaction without flags, with an empty mask. The handler has the
    // signature that SA_SIGINFO asks for and calls only async-signal-safe functions.
    let result = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = arrived as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, action, std::ptr::null_mut())
    };
    check(i64::from(result))?;
    // A refused call ends a process that blocks the signal without asking the handler.
    let before = signal::unblock(&Signals::of(&[libc::SIGSYS]))?;
    IS_READ.store(before.contains(libc::SIGSYS), Ordering::Relaxed);
    Ok(())
}

/// `si_syscall` lies behind `si_call_addr` (include/uapi/asm-generic/siginfo.h, `_sigsys`): a word
/// and a pointer into the union, which begins at byte 16 on 64-bit machines.
const CALL_AT: usize = 16 + size_of::<usize>();

extern "C" fn arrived(_: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes a whole siginfo_t. Codes of signals that a process has sent are 0
    // and below.
    if unsafe { (*info).si_code } > 0 {
        refused(info);
    }
    // SAFETY: the kernel passes the context to which this returns, with its mask. The functions are
    // async-signal-safe. The signal is pending until then.
    unsafe {
        match IS_READ.load(Ordering::Relaxed) {
            true => drop(libc::sigaddset(&raw mut (*context).uc_sigmask, libc::SIGSYS)),
            false => drop(libc::signal(libc::SIGSYS, libc::SIG_DFL)),
        }
        libc::raise(libc::SIGSYS);
    }
}

fn refused(info: *const libc::siginfo_t) -> ! {
    let mut line = *b"rondpoint: the filter refuses system call 0000\n";
    let digits = line.len() - 5..line.len() - 1;
    // SAFETY: the kernel passes a whole siginfo_t of 128 bytes, aligned to eight.
    let mut number = unsafe { info.cast::<u8>().add(CALL_AT).cast::<i32>().read() };
    for digit in line[digits].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    // SAFETY: a live array, and functions that are async-signal-safe.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(STATUS);
    }
}
