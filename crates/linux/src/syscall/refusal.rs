//! SIGSYS: tells which system call a filter has refused, and ends the process.

use std::io;
use std::mem::MaybeUninit;

use super::check;

/// Exit status of a process with a filter that lacks a call.
const STATUS: i32 = 125;

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
        action.sa_sigaction = refused as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, action, std::ptr::null_mut())
    };
    check(i64::from(result)).map(drop)
}

/// `si_syscall` lies behind `si_call_addr` (include/uapi/asm-generic/siginfo.h, `_sigsys`): a word
/// and a pointer into the union, which begins at byte 16 on 64-bit machines.
const CALL_AT: usize = 16 + size_of::<usize>();

extern "C" fn refused(_: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
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
