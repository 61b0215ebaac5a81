// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory shared with the guest's PMU driver: a mirror of `lab/driver/layout.h`, which explains
//! every number. A test compares the two.

macro_rules! layout {
    ($($name:ident = $value:expr,)*) => {
        $(pub(crate) const $name: usize = $value;)*
        #[cfg(test)]
        const ALL: &[(&str, usize)] = &[$((stringify!($name), $name),)*];
    };
}

layout! {
    MAGIC = 0x554d50444e4f5052,
    LAYOUT_VERSION = 3,
    BAR_BYTES = 16777216,
    MAX_CPUS = 32,
    MAX_NODES = 16,
    MAX_LINKS = 64,
    MAX_SLOTS = 16,
    HEADER_MAGIC = 0,
    HEADER_VERSION = 1,
    HEADER_CPUS = 2,
    HEADER_NODES = 3,
    HEADER_LINKS = 4,
    HEADER_EVENTS = 5,
    HEADER_SLOTS = 6,
    HEADER_VENDOR = 7,
    HEADER_CLOCK_KHZ = 8,
    HEADER_READ_COST_PS = 9,
    HEADER_SAMPLE_COST_PS = 10,
    HEADER_SAMPLED_EVENTS_MASK = 11,
    HEADER_FEATURES_MASK = 12,
    HEADER_TIME_PS = 13,
    HEADER_PROCESSOR = 15,
    HEADER_CPU_NODE = 64,
    HEADER_LINK_ENDS = 128,
    PROCESSOR_NONE = 0,
    PROCESSOR_SKYLAKE_SP = 1,
    PROCESSOR_AMD_ZEN4 = 2,
    PROCESSOR_NEHALEM_EP = 3,
    PROCESSOR_IVYBRIDGE_EP = 4,
    PROCESSOR_AMD_ZEN1 = 5,
    PROCESSOR_NEOVERSE_N1 = 6,
    FEATURE_USER_MASK = 1,
    FEATURE_IP_MASK = 2,
    CPU_BASE = 131072,
    CPU_WORDS = 8192,
    CPU_COUNTERS = 0,
    CPU_USER_COUNTERS = 64,
    CPU_TIME_PS = 128,
    CPU_EXPORTS = 129,
    CPU_FROZEN = 130,
    CPU_PRICE = 131,
    PRICE_MANAGER = 1,
    CPU_SLOTS = 256,
    CPU_ENTRIES = 1024,
    SLOT_WORDS = 8,
    SLOT_EVENT = 0,
    SLOT_PERIOD = 1,
    SLOT_LEFT = 2,
    SLOT_THRESHOLD = 3,
    SLOT_CONTROL = 4,
    SLOT_GENERATION = 5,
    SLOT_COUNT = 6,
    CONTROL_ENABLED_MASK = 1,
    CONTROL_USER_MASK = 2,
    CONTROL_KERNEL_MASK = 4,
    CONTROL_MISSES_MASK = 8,
    RING_ENTRIES = 512,
    RING_HEAD = 512,
    RING_TAIL = 513,
    RING_DROPPED = 514,
    ENTRY_WORDS = 8,
    ENTRY_SLOT = 0,
    ENTRY_VADDR = 1,
    ENTRY_PADDR = 2,
    ENTRY_SOURCE = 3,
    ENTRY_LATENCY_CYCLES = 4,
    ENTRY_FLAGS = 5,
    ENTRY_TIME_PS = 6,
    ENTRY_IP = 7,
    SOURCE_NODE_SHIFT = 8,
    ENTRY_GENERATION_SHIFT = 8,
    SOURCE_NONE = 0,
    SOURCE_L1 = 1,
    SOURCE_L2 = 2,
    SOURCE_LLC = 3,
    SOURCE_LOCAL_FWD = 4,
    SOURCE_LOCAL_HITM = 5,
    SOURCE_REMOTE_FWD = 6,
    SOURCE_REMOTE_HITM = 7,
    SOURCE_LOCAL_DRAM = 8,
    SOURCE_REMOTE_DRAM = 9,
    SOURCE_IN_FLIGHT = 10,
    FLAG_STORE_MASK = 1,
    FLAG_KERNEL_MASK = 4,
    FLAG_OTHER_DOMAIN_MASK = 8,
    NODE_BASE = 393216,
    NODE_WORDS = 256,
    NODE_DRAM_TO = 0,
    NODE_READ_BYTES = 16,
    NODE_WRITE_BYTES = 17,
    NODE_REQUESTS = 18,
    NODE_QUEUE_PS = 19,
    NODE_WRITTEN_BY = 32,
    LINK_BASE = 397312,
    LINK_WORDS = 8,
    LINK_BYTES = 0,
    LINK_REQUESTS = 1,
    LINK_QUEUE_PS = 2,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_equals_the_header() {
        let header = include_str!("../../driver/layout.h");
        let defined = |name: &str| {
            let prefix = format!("#define RP_{name} ");
            let line = header.lines().find(|line| line.starts_with(&prefix))?;
            let value = line[prefix.len()..].split_whitespace().next()?;
            match value.strip_prefix("0x") {
                Some(digits) => usize::from_str_radix(digits, 16).ok(),
                None => value.parse().ok(),
            }
        };
        for (name, value) in ALL {
            assert_eq!(defined(name), Some(*value), "RP_{name}");
        }
    }

    #[test]
    fn the_models_events_have_the_headers_numbers() {
        use rondpoint_lab_model::Event;
        let header = include_str!("../../driver/layout.h");
        let mut compared = 0;
        for line in header.lines().filter(|line| line.starts_with("#define RP_EVENT_")) {
            let mut words = line["#define RP_EVENT_".len()..].split_whitespace();
            let (name, number) = (words.next().unwrap(), words.next().unwrap());
            let event = Event::from_number(number.parse().unwrap()).expect(name);
            assert_eq!(event.name().to_uppercase(), name);
            compared += 1;
        }
        assert!(compared > 30);
    }
}
