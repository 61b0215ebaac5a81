//! `sched_getscheduler(2)` and `sched_setscheduler(2)`: how the scheduler treats our own threads.

use std::io;

use super::check;

/// Sets `SCHED_BATCH` for the calling thread and those that it starts. They preempt no running
/// thread when they wake up, and keep their share of CPU time. A thread with another policy than
/// the default (`chrt`) keeps it. Returns whether the policy was changed. Needs no privilege.
///
/// # Errors
/// The kernel or a filter of system calls refuses it.
pub fn preempt_nobody() -> io::Result<bool> {
    // SAFETY: no memory is passed.
    let policy = check(i64::from(unsafe { libc::sched_getscheduler(0) }))?;
    if policy != i64::from(libc::SCHED_OTHER) {
        return Ok(false);
    }
    set_policy(libc::SCHED_BATCH).map(|()| true)
}

/// Sets the policy of the calling thread, one without priorities.
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
