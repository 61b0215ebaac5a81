//! `struct perf_event_attr` of 136 bytes (`PERF_ATTR_SIZE_VER8`, include/uapi/linux/perf_event.h).

use std::mem::{offset_of, size_of};

/// `PERF_TYPE_HARDWARE`.
pub const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_HW_CACHE`.
pub const TYPE_HW_CACHE: u32 = 3;
/// `PERF_TYPE_RAW`.
pub const TYPE_RAW: u32 = 4;
/// `PERF_COUNT_SW_TASK_CLOCK`: time on a CPU, ns.
pub const SW_TASK_CLOCK: u64 = 1;
/// `PERF_COUNT_SW_PAGE_FAULTS_MIN`: counted after the page is mapped, so its physical address is
/// known (`PERF_COUNT_SW_PAGE_FAULTS`, 2, is counted before).
pub const SW_PAGE_FAULTS_MIN: u64 = 5;
/// `PERF_COUNT_SW_DUMMY`: counts nothing; carries task records, and shows how long it was enabled.
pub const SW_DUMMY: u64 = 9;

/// Bits of `read_format`.
pub mod read_format {
    /// Adds the time for which the event was enabled.
    pub const TOTAL_TIME_ENABLED: u64 = 1 << 0;
    /// Adds the time for which the event was on a counter.
    pub const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    /// Adds the event's number.
    pub const ID: u64 = 1 << 2;
    /// One read returns the whole group.
    pub const GROUP: u64 = 1 << 3;
    /// Adds the number of lost samples (Linux 6.0 and later).
    pub const LOST: u64 = 1 << 4;
}

/// Bits of `sample_type`.
pub mod sample_type {
    #![allow(missing_docs, reason = "the kernel's own names, PERF_SAMPLE_*")]
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const TRANSACTION: u64 = 1 << 17;
    pub const REGS_INTR: u64 = 1 << 18;
    pub const PHYS_ADDR: u64 = 1 << 19;
    pub const AUX: u64 = 1 << 20;
    pub const CGROUP: u64 = 1 << 21;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// Bits of the flag word, in the order of the C bit field.
pub mod flag {
    /// The event is created stopped.
    pub const DISABLED: u64 = 1 << 0;
    /// New tasks of the task inherit the event.
    pub const INHERIT: u64 = 1 << 1;
    /// The event is always on a counter, or in error.
    pub const PINNED: u64 = 1 << 2;
    /// User mode is not counted.
    pub const EXCLUDE_USER: u64 = 1 << 4;
    /// Kernel mode is not counted.
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    /// The hypervisor is not counted.
    pub const EXCLUDE_HV: u64 = 1 << 6;
    /// Names of programs and threads give records.
    pub const COMM: u64 = 1 << 9;
    /// `sample_period` is a frequency.
    pub const FREQ: u64 = 1 << 10;
    /// The event starts when the task calls `execve`.
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    /// Forks and exits give records.
    pub const TASK: u64 = 1 << 13;
    /// `wakeup` counts bytes, not records.
    pub const WATERMARK: u64 = 1 << 14;
    /// Lowest bit of the two-bit `precise_ip`.
    pub const PRECISE_SHIFT: u32 = 15;
    /// Every record has the identifying fields of a sample.
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    /// Task switches give records.
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
}

/// `struct perf_event_attr`, field for field; `flags` is the C bit field.
#[repr(C)]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the kernel's own names, documented in perf_event_open(2)")]
pub struct Attr {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup: u32,
    pub breakpoint_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clock: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved_2: u16,
    pub aux_sample_size: u32,
    pub reserved_3: u32,
    pub sig_data: u64,
    pub config3: u64,
}

const SIZE: u32 = size_of::<Attr>() as u32;
const _: () = assert!(SIZE == 136, "PERF_ATTR_SIZE_VER8");
const _: () = assert!(offset_of!(Attr, flags) == 40 && offset_of!(Attr, config1) == 56);
const _: () = assert!(offset_of!(Attr, sample_regs_intr) == 96 && offset_of!(Attr, config3) == 128);

impl Attr {
    /// A counting event, created stopped. Reads give its times, number and lost samples.
    #[must_use]
    pub fn counting(kind: u32, config: u64) -> Self {
        use read_format::{ID, LOST, TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING};
        Self {
            kind,
            config,
            size: SIZE,
            read_format: TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | ID | LOST,
            flags: flag::DISABLED,
            ..Self::default()
        }
    }

    /// Excludes the kernel and the hypervisor, which needs less privilege.
    pub fn exclude_kernel_and_hypervisor(&mut self) {
        self.flags |= flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV;
    }

    /// Sets how precisely a sample points at its instruction, 0 to 3.
    pub fn set_precise(&mut self, precise: u8) {
        assert!(precise <= 3, "precise_ip has two bits");
        self.flags &= !(3 << flag::PRECISE_SHIFT);
        self.flags |= u64::from(precise) << flag::PRECISE_SHIFT;
    }

    /// The name of a field that this event uses beyond the first `size` bytes, which an older
    /// kernel does not have.
    #[must_use]
    pub fn field_beyond(&self, size: u32) -> Option<&'static str> {
        let fields = [
            (offset_of!(Attr, config3), "config3", self.config3),
            (offset_of!(Attr, sig_data), "sig_data", self.sig_data),
            (offset_of!(Attr, aux_watermark), "aux_watermark", u64::from(self.aux_watermark)),
            (offset_of!(Attr, config2), "config2", self.config2),
        ];
        let beyond = |offset: usize| offset >= size as usize;
        fields.iter().find(|(at, _, value)| beyond(*at) && *value != 0).map(|(_, name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_is_two_bits_of_the_flags() {
        let mut attr = Attr::counting(TYPE_RAW, 0);
        attr.set_precise(3);
        attr.set_precise(2);
        assert_eq!(attr.flags, flag::DISABLED | 1 << 16);
    }

    #[test]
    fn a_field_that_an_old_kernel_lacks_is_named() {
        let mut attr = Attr::counting(TYPE_RAW, 0);
        assert_eq!(attr.field_beyond(112), None);
        attr.config3 = 1;
        assert_eq!(attr.field_beyond(128), Some("config3"));
        assert_eq!(attr.field_beyond(136), None);
    }
}
