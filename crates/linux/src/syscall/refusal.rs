//! SIGSYS: tells which system call a filter has refused, and ends the process. One that a process
//! has sent has the effect that it would have without the filter.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use super::check;
use super::signal::{self, Signals};

/// Exit status of a process that makes a refused call.
const STATUS: i32 = 125;

/// Whether this process reads SIGSYS and is not ended by it.
static IS_READ: AtomicBool = AtomicBool::new(false);

/// Installs a handler: a refused call ends this process with a line on stderr that has the call's
/// number.
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
    let blocked = signal::block(&Signals::of(&[]))?;
    IS_READ.store(blocked.contains(libc::SIGSYS), Ordering::Relaxed);
    // A refused call ends a process that blocks the signal, without calling the handler. A pending
    // signal is handled here.
    signal::unblock(&Signals::of(&[libc::SIGSYS])).map(drop)
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use super::*;
    use crate::privileges::{Needs, keep_only};

    const ROLE: &str = "RONDPOINT_TEST_ROLE";
    const NAME: &str = "each_sigsys_has_its_effect";

    /// The behaviour of a process with the handler.
    fn play(role: &str) {
        let own = Signals::of(&[libc::SIGSYS]);
        let arriving = (role == "read").then(|| {
            signal::block(&own).unwrap();
            signal::descriptor(&own).unwrap()
        });
        let pending = role == "read";
        if pending {
            // SAFETY: a signal to this very thread, which blocks it.
            unsafe { libc::raise(libc::SIGSYS) };
        }
        end_with_number().unwrap();
        for _ in 0..1 + usize::from(pending) {
            match role {
                "refused" => {
                    drop(keep_only(&Needs::to_watch()));
                    // SAFETY: no memory is involved, and the filter has no such call.
                    unsafe { libc::syscall(libc::SYS_setuid, 0) };
                }
                "sent" => {
                    // SAFETY: it ends this process.
                    unsafe { libc::raise(libc::SIGSYS) };
                }
                _ => {
                    let arriving = arriving.as_ref().unwrap().as_fd();
                    assert!(signal::next(arriving).unwrap().is_some_and(|one| one.number == 31));
                    // SAFETY: a signal to this very thread, which reads it.
                    unsafe { libc::raise(libc::SIGSYS) };
                }
            }
        }
    }

    #[test]
    fn each_sigsys_has_its_effect() {
        if let Ok(role) = std::env::var(ROLE) {
            return play(&role);
        }
        let as_role = |role: &str| -> Output {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([&format!("{}::{NAME}", module_path!().split_once("::").unwrap().1)]);
            command.args(["--exact", "--nocapture"]).env(ROLE, role).output().unwrap()
        };
        let refused = as_role("refused");
        let text = String::from_utf8_lossy(&refused.stderr);
        let told = format!("the filter refuses system call {:04}\n", libc::SYS_setuid);
        assert!(refused.status.code() == Some(STATUS) && text.contains(&told), "{refused:?}");
        assert_eq!(as_role("sent").status.signal(), Some(libc::SIGSYS));
        let read = as_role("read");
        assert!(read.status.success(), "{read:?}");
    }
}
