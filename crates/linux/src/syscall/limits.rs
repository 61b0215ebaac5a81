//! Limits of memory and CPU time (setrlimit(2)) that are too small for this process. It raises its
//! own as far as it may. A program that it starts gets the limits of the caller back.

use std::io;
use std::sync::OnceLock;

use super::check;

/// A limit that this process may raise for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of the main thread's stack.
    Stack,
    /// Bytes of the address space.
    AddressSpace,
    /// Bytes of private writable memory.
    Data,
}

/// The limits of the caller, once one was raised.
static GIVEN: [OnceLock<libc::rlimit>; 3] = [const { OnceLock::new() }; 3];

impl Limit {
    const ALL: [Self; 3] = [Self::Stack, Self::AddressSpace, Self::Data];

    fn number(self) -> u32 {
        match self {
            Self::Stack => libc::RLIMIT_STACK as _,
            Self::AddressSpace => libc::RLIMIT_AS as _,
            Self::Data => libc::RLIMIT_DATA as _,
        }
    }

    fn given(self) -> &'static OnceLock<libc::rlimit> {
        &GIVEN[self as usize]
    }

    fn get(self) -> io::Result<libc::rlimit> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes one rlimit that lives through the call.
        check(i64::from(unsafe { libc::getrlimit(self.number() as _, &raw mut limit) }))?;
        Ok(limit)
    }

    fn set(self, limit: libc::rlimit) -> io::Result<()> {
        // SAFETY: the kernel reads one rlimit that lives through the call.
        check(i64::from(unsafe { libc::setrlimit(self.number() as _, &raw const limit) })).map(drop)
    }
}

/// Raises a limit below `bytes` to `bytes`, or as far as this process may. Returns the limit that
/// then holds. The main thread's stack grows up to a limit that is raised while it runs.
///
/// # Errors
/// As getrlimit(2).
pub fn raise(limit: Limit, bytes: u64) -> io::Result<u64> {
    let given = limit.get()?;
    if given.rlim_cur >= bytes {
        return Ok(given.rlim_cur);
    }
    // Only a privileged process raises the hard limit.
    let wanted = libc::rlimit { rlim_cur: bytes, rlim_max: given.rlim_max.max(bytes) };
    let allowed = libc::rlimit { rlim_cur: given.rlim_max.min(bytes), ..given };
    let _ = limit.given().set(given);
    let _ = limit.set(wanted).or_else(|_| limit.set(allowed));
    Ok(limit.get()?.rlim_cur)
}

/// Takes away this process's limit of CPU time. Where that is refused, SIGXCPU comes before the
/// kernel's SIGKILL, early enough to put back what was changed. Processes that were forked before
/// keep the limit.
///
/// # Errors
/// As getrlimit(2) and setrlimit(2).
pub fn outlive_cpu_time() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit that lives through the call.
    check(i64::from(unsafe { libc::getrlimit(libc::RLIMIT_CPU, &raw mut limit) }))?;
    if limit.rlim_max == libc::RLIM_INFINITY && limit.rlim_cur == libc::RLIM_INFINITY {
        return Ok(());
    }
    let set = |limit: libc::rlimit| {
        // SAFETY: the kernel reads one rlimit that lives through the call.
        check(i64::from(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) })).map(drop)
    };
    let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    set(none).or_else(|_| set(libc::rlimit { rlim_cur: early(limit.rlim_max), ..limit }))
}

/// The CPU time, s, after which this process is told of a limit at which it is killed. A quarter of
/// it is left, and at least a second (our choice).
fn early(killed_at: u64) -> u64 {
    match killed_at {
        libc::RLIM_INFINITY => killed_at,
        _ => killed_at - (killed_at / 4).max(1).min(killed_at),
    }
}

/// Sets the limits of the caller. Between fork(2) and execve(2) it does nothing but system calls.
pub(super) fn give_back() {
    for limit in Limit::ALL {
        if let Some(given) = limit.given().get() {
            let _ = limit.set(*given);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use crate::syscall::process::{Attempt, End, Memory, fork, wait};
    use crate::syscall::signal::Signals;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_manager_is_told_of_its_limit_of_cpu_time_before_it_is_killed() {
        let told = [(0, 0), (1, 0), (2, 1), (8, 6), (3600, 2700)];
        assert!(told.iter().all(|&(killed_at, expected)| early(killed_at) == expected));
        assert_eq!(early(libc::RLIM_INFINITY), libc::RLIM_INFINITY);
    }

    /// The one test that changes limits of this process.
    #[test]
    fn a_raised_limit_is_not_the_programs() {
        let all = Limit::AddressSpace.get().unwrap();
        let few = libc::rlimit { rlim_cur: 1 << 40, ..all };
        Limit::AddressSpace.set(few).unwrap();
        assert_eq!(raise(Limit::AddressSpace, MIB).unwrap(), 1 << 40, "it is enough");
        assert!(Limit::AddressSpace.given().get().is_none());
        assert_eq!(raise(Limit::AddressSpace, 2 << 40).unwrap(), 2 << 40);
        let text = |part: &str| CString::new(part).unwrap();
        let script = format!("test $(ulimit -v) = {}", (1u64 << 40) >> 10);
        let arguments = vec![text("sh"), text("-c"), text(&script)];
        let attempt = Attempt { path: text("/bin/sh"), arguments, is_fallback: false };
        let waiting = fork(&[attempt], &[], &Signals::of(&[]), None).unwrap();
        assert_eq!(wait(waiting.start(Memory::Inherited).unwrap()).unwrap(), End::Exited(0));
        Limit::AddressSpace.set(all).unwrap();
    }
}
