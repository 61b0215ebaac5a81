//! `sched_getscheduler(2)` and `sched_setscheduler(2)`: how the scheduler treats our own threads.

use std::io;

use super::check;

/// The calling thread, and those that it starts from now on, take no CPU away from a running thread
/// when they wake up (`SCHED_BATCH`). They wait for an idle one or for their turn, with the same
/// share as before. A thread with another policy (`chrt`) keeps it. Returns whether it was changed.
///
/// # Errors
/// The kernel or a filter of system calls refuses it; needs no privilege.
pub fn preempt_nobody() -> io::Result<bool> {
    // SAFETY: no memory is passed.
    let policy = check(i64::from(unsafe { libc::sched_getscheduler(0) }))?;
    if policy != i64::from(libc::SCHED_OTHER) {
        return Ok(false);
    }
    set_policy(libc::SCHED_BATCH).map(|()| true)
}

/// Of the calling thread; of those without priorities.
fn set_policy(policy: libc::c_int) -> io::Result<()> {
    // SAFETY: a structure of integers only. Its fields besides the priority depend on the C
    // library.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads the parameter, which lives through the call.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
    check(i64::from(result)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, for the others of the tests keep what they have.
    fn in_a_thread<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(what).join().expect("it does not panic")
    }

    fn policy() -> i32 {
        // SAFETY: no memory is passed.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_thread_and_those_that_it_starts_preempt_nobody() {
        let (changed, own, child) =
            in_a_thread(|| (preempt_nobody().expect("anybody may"), policy(), in_a_thread(policy)));
        assert_eq!((changed, own, child), (true, libc::SCHED_BATCH, libc::SCHED_BATCH));
    }

    #[test]
    fn whoever_was_given_another_policy_keeps_it() {
        let (changed, own) = in_a_thread(|| {
            set_policy(libc::SCHED_IDLE).expect("anybody may");
            (preempt_nobody().expect("anybody may ask"), policy())
        });
        assert_eq!((changed, own), (false, libc::SCHED_IDLE));
    }
}
