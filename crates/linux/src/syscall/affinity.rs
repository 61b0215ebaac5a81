//! `sched_getaffinity(2)` and `sched_setaffinity(2)`: the CPUs that a thread may run on.
//!
//! Masks are sets of the kernel's CPU numbers, which may be sparse, and of any length. glibc's
//! `cpu_set_t` ends at 1024 CPUs, so the calls are made without it.

use std::io;

use rondpoint_core::CpuSet;

use super::check;

/// Words of the first attempt: 1024 CPUs.
const FIRST_WORDS: usize = 16;
/// Words of the last attempt: no kernel is built for more CPUs than this has bits.
const MOST_WORDS: usize = 1024;

/// The CPUs that a thread may use now: its own mask within its cpuset. Thread 0 is the caller.
///
/// # Errors
/// ESRCH where there is no such thread.
pub fn get(thread: i32) -> io::Result<CpuSet> {
    let mut words = vec![0u64; FIRST_WORDS];
    loop {
        // SAFETY: the kernel writes at most the given number of bytes into the array.
        let written = check(unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                thread,
                size_of_val(words.as_slice()),
                words.as_mut_ptr(),
            )
        });
        match written {
            Ok(_) => return Ok(CpuSet::from_words(words)),
            // The kernel has a larger mask than [`MOST_WORDS`].
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL) && words.len() < MOST_WORDS =>
            {
                words.resize(2 * words.len(), 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Restricts a thread to these CPUs, within its cpuset.
///
/// # Errors
/// ESRCH: there is no such thread. EINVAL: its cpuset has none of the CPUs, or the kernel has bound
/// the thread. EPERM: the thread is another user's.
pub fn set(thread: i32, cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads the given number of bytes of the array; words that a shorter one
    // lacks are zero.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(words), words.as_ptr())
    };
    check(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_this_process_is_restricted_and_let_go_again() {
        std::thread::spawn(|| {
            let before = get(0).unwrap();
            let one: CpuSet = before.iter().take(1).collect();
            set(0, &one).unwrap();
            assert_eq!(get(0).unwrap(), one);
            set(0, &before).unwrap();
            assert_eq!(get(0).unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_kernel_takes_what_is_there_of_a_mask_and_refuses_one_of_which_nothing_is() {
        std::thread::spawn(|| {
            let before = get(0).unwrap();
            let absent: CpuSet = [5_000, 60_000].into_iter().collect();
            assert_eq!(set(0, &absent).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(set(0, &CpuSet::new()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            set(0, &before.union(&absent)).unwrap();
            assert_eq!(get(0).unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_not_there_is_told() {
        assert_eq!(get(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        let error = set(i32::MAX, &CpuSet::first(1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
