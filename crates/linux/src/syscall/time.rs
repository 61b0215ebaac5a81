//! The kernel's clocks: the one in which it tells when processes started, and the one that service
//! managers use.

use std::mem::MaybeUninit;

/// Nanoseconds since boot, suspended time included (`CLOCK_BOOTTIME`, the clock of field 22 of
/// `/proc/PID/stat`).
#[must_use]
pub fn since_boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds since boot without suspended time (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes one timespec, which lives through the call; all-zero is valid.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
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
}
