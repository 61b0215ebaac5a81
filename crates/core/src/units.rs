//! Quantities with their unit in the type, and the kernel's names of processes and threads.
//!
//! Whole quantities are integers in their finest unit; rates are `f64` with the unit at the end of
//! the field's name.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// Bytes of one DRAM request: a cache line on every machine of the papers and on all x86-64 and Arm
/// servers of today.
pub const LINE_BYTES: u64 = 64;
/// log2 of the base page size.
pub const PAGE_SHIFT: u8 = 12;
/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// A process (the kernel's thread group id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Pid(pub u32);

/// A thread (the kernel's task id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Tid(pub u32);

/// Time in nanoseconds: an instant of the host's monotonic clock or a duration, as the field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Nanos(pub u64);

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Bytes(pub u64);

/// A relative change as text, always with its sign: 0.31 is `+31 %`, -0.042 is `-4.2 %`. A change
/// that rounds to zero is `0.0 %`. A precision (`{:.1}`) fixes the number of digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedPercent(pub f64);

impl Nanos {
    /// Milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// Seconds as a float.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Microseconds as a float.
    #[must_use]
    pub fn micros(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The time from `earlier` to this instant, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Bytes {
    /// Gibibytes.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    /// Gigabytes (10⁹ bytes), the unit of AsymSched's cost rule.
    #[must_use]
    pub fn gigabytes(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns} ns"),
            ns if ns < 999_950 => write!(f, "{:.1} µs", ns as f64 / 1e3),
            ns if ns < 999_950_000 => write!(f, "{:.1} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.1} s", ns as f64 / 1e9),
        }
    }
}

impl fmt::Display for SignedPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.0;
        let digits = f.precision().unwrap_or(usize::from(percent.abs() < 9.95));
        let smallest = libm::pow(10.0, -(digits as f64));
        match percent.abs() < 0.5 * smallest {
            true => write!(f, "{:.digits$} %", 0.0),
            false => write!(f, "{percent:+.digits$} %"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let kib = f64::from(1 << 10);
        match self.0 {
            small if small < 1 << 10 => write!(f, "{small} B"),
            _ if bytes < 1023.95 * kib => write!(f, "{:.1} KiB", bytes / kib),
            _ if bytes < 1023.95 * kib * kib => write!(f, "{:.1} MiB", bytes / (kib * kib)),
            _ => write!(f, "{:.1} GiB", bytes / (kib * kib * kib)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_time_has_the_unit_that_keeps_its_number_below_a_thousand() {
        for (ns, expected) in [
            (999, "999 ns"),
            (1_000, "1.0 µs"),
            (999_949, "999.9 µs"),
            (999_999, "1.0 ms"),
            (999_960_000, "1.0 s"),
            (4_600_000_000, "4.6 s"),
        ] {
            assert_eq!(Nanos(ns).to_string(), expected);
        }
    }

    #[test]
    fn an_amount_has_the_unit_that_keeps_its_number_below_1024() {
        let mib = 1 << 20;
        for (bytes, expected) in [
            (1023, "1023 B"),
            (4096, "4.0 KiB"),
            (1023 << 10, "1023.0 KiB"),
            (mib - 1, "1.0 MiB"),
            (6076 << 10, "5.9 MiB"),
            (1 << 30, "1.0 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), expected);
        }
    }

    #[test]
    fn a_change_has_its_sign_unless_it_rounds_to_zero() {
        for (change, expected) in [
            (0.3149, "+31 %"),
            (-0.0421, "-4.2 %"),
            (-0.0004, "0.0 %"),
            (0.0004, "0.0 %"),
            (-0.0006, "-0.1 %"),
            (-0.0, "0.0 %"),
        ] {
            assert_eq!(SignedPercent(change).to_string(), expected);
        }
        assert_eq!(alloc::format!("{:.1}", SignedPercent(0.231)), "+23.1 %");
        assert_eq!(alloc::format!("{:.0}", SignedPercent(-0.004)), "0 %");
    }
}
