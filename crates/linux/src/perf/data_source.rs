//! `union perf_mem_data_src`: where a sampled access was served from.
//!
//! The 64 bits are the same for all processors, but vendors fill them differently. The order of the
//! tests below follows from these cases:
//! - On AMD a neighbouring core complex of the *same* node sets the bits for "remote", and only the
//!   number of hops tells (arch/x86/events/amd/ibs.c).
//! - Ivy Bridge reports remote DRAM with a level of L3 (arch/x86/events/intel/ds.c, data source
//!   0x0b).
//! - Arm's SPE says "remote" without saying whether memory or cache (tools/perf/util/arm-spe.c).

/// Vendor of the conventions that a sample follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Vendor {
    /// Intel's PEBS, and the kernel's generic reading.
    #[default]
    Intel,
    /// AMD's IBS.
    Amd,
    /// Arm's SPE.
    Arm,
    /// Arm's SPE with the data sources of an AmpereOneX.
    Ampere,
}

impl Vendor {
    fn is_arm(self) -> bool {
        matches!(self, Self::Arm | Self::Ampere)
    }
}

/// The level that served an access, in the model's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServedBy {
    /// The core's first-level cache.
    FirstLevel,
    /// Another private cache of the core.
    Private,
    /// A line that a prefetch or an earlier miss had already requested, from an unknown level.
    InFlight,
    /// The last-level cache of the same node.
    LastLevel,
    /// Another core's cache in the same node.
    LocalCache {
        /// Whether the cache held the line modified.
        modified: bool,
    },
    /// A cache of another node.
    RemoteCache {
        /// Whether the cache held the line modified.
        modified: bool,
    },
    /// Memory of the same node.
    LocalDram,
    /// Memory of another node.
    RemoteDram,
    /// Another node, memory or cache unknown.
    RemoteUnknown,
    /// Beyond the last-level cache of the same node, because the event samples nothing else.
    BeyondLastLevel,
    /// Memory behind a device link (CXL) or persistent memory.
    SlowMemory {
        /// Whether it belongs to another node.
        remote: bool,
    },
    /// No level given.
    Unknown,
}

impl ServedBy {
    /// Resolves [`Self::RemoteUnknown`] and [`Self::BeyondLastLevel`]. `home_is_own`: whether the
    /// page is on the CPU's own node. If it is, only a remote cache with the modified line can be
    /// another node's answer. In all other cases memory of the home counts, though a cache is
    /// possible.
    #[must_use]
    pub fn with_home(self, home_is_own: Option<bool>) -> Self {
        match (self, home_is_own) {
            (Self::RemoteUnknown, Some(true)) => Self::RemoteCache { modified: true },
            (Self::BeyondLastLevel, Some(true)) => Self::LocalDram,
            (Self::RemoteUnknown | Self::BeyondLastLevel, Some(false)) => Self::RemoteDram,
            (known, _) => known,
        }
    }
}

/// The raw word of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSource(pub u64);

// Values of mem_op, mem_lvl, mem_snoop, mem_lvl_num, mem_snoopx (include/uapi/linux/perf_event.h).
const OP_LOAD: u64 = 2;
const OP_STORE: u64 = 4;
const LVL_HIT: u64 = 2;
const LVL_L1: u64 = 0x08;
const LVL_IN_FLIGHT: u64 = 0x10;
const LVL_PRIVATE: u64 = 0x20;
const LVL_L3: u64 = 0x40;
const LVL_LOCAL_RAM: u64 = 0x80;
const LVL_REMOTE_RAM: u64 = 0x100 | 0x200;
/// A cache one hop away, on AMD that of a near core complex.
const LVL_NEAR_CACHE: u64 = 0x400;
/// A cache two hops away, on AMD that of a far core complex.
const LVL_FAR_CACHE: u64 = 0x800;
const LVL_REMOTE_CACHE: u64 = LVL_NEAR_CACHE | LVL_FAR_CACHE;
const SNOOP_HIT: u64 = 0x04;
const SNOOP_HITM: u64 = 0x10;
const NUM_L3: u64 = 3;
const NUM_CXL: u64 = 9;
const NUM_ANY_CACHE: u64 = 0xb;
const NUM_RAM: u64 = 0xd;
const NUM_PMEM: u64 = 0xe;
const NUM_FIRST: [u64; 2] = [1, 7];
const NUM_PRIVATE: u64 = 2;
/// Fill buffers of the first level and, from 6.13, of the second.
const NUM_IN_FLIGHT: [u64; 2] = [0xc, 5];

impl DataSource {
    fn bits(self, first: u32, count: u32) -> u64 {
        self.0 >> first & ((1 << count) - 1)
    }

    /// Whether the access was a load.
    #[must_use]
    pub fn is_load(self) -> bool {
        self.bits(0, 5) & OP_LOAD != 0
    }

    /// Whether the access was a store.
    #[must_use]
    pub fn is_store(self) -> bool {
        self.bits(0, 5) & OP_STORE != 0
    }

    fn level(self) -> u64 {
        self.bits(5, 14)
    }

    fn snoop(self) -> u64 {
        self.bits(19, 5)
    }

    fn level_number(self) -> u64 {
        self.bits(33, 4)
    }

    fn is_remote(self, vendor: Vendor) -> bool {
        const HOPS_OTHER_NODE: u64 = 2;
        let hops = self.bits(43, 3);
        let flagged =
            self.bits(37, 1) == 1 || self.level() & (LVL_REMOTE_RAM | LVL_REMOTE_CACHE) != 0;
        match vendor {
            // For caches only the hops show another node (1: another core of the same node). For
            // memory the level does too, and kernels before 5.16 give no hops.
            Vendor::Amd if self.is_ram() => flagged,
            // Kernels from 6.1 to 6.6 give no hops, and for a cache the level alone.
            Vendor::Amd if hops == 0 => self.level() & LVL_FAR_CACHE != 0,
            Vendor::Amd => hops >= HOPS_OTHER_NODE,
            Vendor::Intel | Vendor::Arm | Vendor::Ampere => flagged,
        }
    }

    /// Whether another core's cache in the same node is told for sure. AMD before Zen 4 has one
    /// source for the last level and the near core complexes, whose level has both bits. Nearly all
    /// of those are the last level's.
    fn is_near_cache(self) -> bool {
        match self.level() & (LVL_NEAR_CACHE | LVL_L3) {
            0 => self.level_number() == NUM_ANY_CACHE,
            level => level == LVL_NEAR_CACHE,
        }
    }

    fn is_ram(self) -> bool {
        matches!(self.level_number(), NUM_RAM | NUM_PMEM | NUM_CXL)
            || self.level() & (LVL_LOCAL_RAM | LVL_REMOTE_RAM) != 0
    }

    /// The level that served the access; `None` if it is neither a load nor a store.
    #[must_use]
    pub fn served_by(self, vendor: Vendor) -> Option<ServedBy> {
        if !self.is_load() && !self.is_store() {
            return None;
        }
        let remote = self.is_remote(vendor);
        let number = self.level_number();
        let modified = self.snoop() & SNOOP_HITM != 0;
        // Arm marks every line from the system cache as a snoop that hit.
        let snooped = self.snoop() & SNOOP_HIT != 0 && !vendor.is_arm();
        let forwarded = self.bits(38, 2) != 0 || snooped;
        Some(if self.is_ram() {
            match (number, remote) {
                (NUM_PMEM | NUM_CXL, remote) => ServedBy::SlowMemory { remote },
                (_, true) => ServedBy::RemoteDram,
                (_, false) => ServedBy::LocalDram,
            }
        } else if remote {
            let cache =
                matches!(number, NUM_ANY_CACHE | NUM_L3) || self.level() & LVL_REMOTE_CACHE != 0;
            if cache { ServedBy::RemoteCache { modified } } else { ServedBy::RemoteUnknown }
        } else if NUM_FIRST.contains(&number) || self.level() & LVL_L1 != 0 {
            match (self.missed(), self.is_load()) {
                (false, _) => ServedBy::FirstLevel,
                // On Arm "in flight" has no level.
                (true, true) => ServedBy::InFlight,
                (true, false) => ServedBy::Unknown,
            }
        } else if NUM_IN_FLIGHT.contains(&number) || self.level() & LVL_IN_FLIGHT != 0 {
            ServedBy::InFlight
        } else if number == NUM_PRIVATE || self.level() & LVL_PRIVATE != 0 {
            // A second level that a peer forwarded from is the peer's (Arm's "peer core").
            if vendor.is_arm() && forwarded {
                ServedBy::LocalCache { modified }
            } else if self.missed() {
                ServedBy::Unknown
            } else {
                ServedBy::Private
            }
        } else if self.is_near_cache() {
            ServedBy::LocalCache { modified }
        } else if number == NUM_L3 || self.level() & LVL_L3 != 0 {
            if modified || forwarded {
                ServedBy::LocalCache { modified }
            } else {
                ServedBy::LastLevel
            }
        } else {
            ServedBy::Unknown
        })
    }

    /// Whether the level is marked as a miss. A store that missed L1 has "L1 MISS" and was served
    /// by an unknown level beyond it.
    fn missed(self) -> bool {
        const LVL_MISS: u64 = 4;
        self.level() & LVL_MISS != 0 && self.level() & LVL_HIT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds the word as the kernel's `PERF_MEM_S` macros do, from `field=value` words.
    fn word(text: &str) -> DataSource {
        let field = |name: &str| match name {
            "op" => 0,
            "lvl" => 5,
            "snoop" => 19,
            "num" => 33,
            "remote" => 37,
            "snoopx" => 38,
            "hops" => 43,
            _ => panic!("no field {name}"),
        };
        DataSource(text.split_whitespace().fold(0, |bits, part| {
            let (name, value) = part.split_once('=').unwrap();
            bits | u64::from_str_radix(value, 16).unwrap() << field(name)
        }))
    }

    fn check(vendor: Vendor, text: &str, expected: ServedBy) {
        assert_eq!(word(text).served_by(vendor), Some(expected), "{vendor:?} {text}");
    }

    #[test]
    fn intel_sources_are_told_apart() {
        let check = |text, expected| check(Vendor::Intel, text, expected);
        check("op=2 lvl=a num=1", ServedBy::FirstLevel);
        check("op=2 lvl=12 num=c", ServedBy::InFlight);
        check("op=2 num=5", ServedBy::InFlight);
        check("op=2 lvl=22 num=2", ServedBy::Private);
        check("op=2 lvl=42 num=3 snoop=2", ServedBy::LastLevel);
        check("op=2 lvl=42 num=3 snoop=10", ServedBy::LocalCache { modified: true });
        check("op=2 lvl=42 num=3 snoopx=1", ServedBy::LocalCache { modified: false });
        check("op=2 lvl=82 num=d", ServedBy::LocalDram);
        check("op=2 num=d remote=1 snoop=2", ServedBy::RemoteDram);
        check("op=2 num=b remote=1 snoop=10", ServedBy::RemoteCache { modified: true });
        check("op=2 num=b remote=1 snoopx=1", ServedBy::RemoteCache { modified: false });
        check("op=2 num=e remote=1", ServedBy::SlowMemory { remote: true });
        check("op=2 num=9", ServedBy::SlowMemory { remote: false });
        check("op=4 lvl=c", ServedBy::Unknown);
        check("op=4 lvl=a", ServedBy::FirstLevel);
    }

    #[test]
    fn ivy_bridge_reports_remote_dram_with_a_level_of_l3() {
        check(Vendor::Intel, "op=2 lvl=102 num=3 remote=1", ServedBy::RemoteDram);
    }

    #[test]
    fn a_near_core_complex_of_amd_is_the_same_node() {
        let near = "op=2 lvl=402 num=b remote=1 hops=1";
        check(Vendor::Amd, near, ServedBy::LocalCache { modified: false });
        let far = "op=2 lvl=802 num=b remote=1 hops=2 snoop=10";
        check(Vendor::Amd, far, ServedBy::RemoteCache { modified: true });
        check(Vendor::Amd, "op=2 lvl=102 num=d remote=1 hops=2", ServedBy::RemoteDram);
        check(Vendor::Amd, "op=2 lvl=82 num=d", ServedBy::LocalDram);
        check(Vendor::Amd, "op=2 lvl=42 num=3", ServedBy::LastLevel);
    }

    #[test]
    fn amds_caches_are_told_apart_by_the_level_where_the_kernel_gives_no_hops() {
        let check = |text, expected| check(Vendor::Amd, text, expected);
        check("op=2 lvl=802 snoop=10", ServedBy::RemoteCache { modified: true });
        check("op=2 lvl=802 num=b", ServedBy::RemoteCache { modified: false });
        check("op=2 lvl=402", ServedBy::LocalCache { modified: false });
        check("op=2 lvl=102", ServedBy::RemoteDram);
        check("op=2 lvl=82", ServedBy::LocalDram);
        check("op=2 lvl=42", ServedBy::LastLevel);
    }

    #[test]
    fn the_one_source_of_older_amds_for_both_caches_of_a_node_is_the_last_level() {
        check(Vendor::Amd, "op=2 lvl=442", ServedBy::LastLevel);
        check(Vendor::Amd, "op=2 lvl=442 num=b hops=1", ServedBy::LastLevel);
    }

    #[test]
    fn arm_may_say_remote_and_nothing_more() {
        check(Vendor::Arm, "op=2 num=f remote=1", ServedBy::RemoteUnknown);
        check(Vendor::Arm, "op=2 lvl=1 num=f remote=1 snoopx=2", ServedBy::RemoteUnknown);
        check(
            Vendor::Arm,
            "op=2 lvl=802 num=b remote=1",
            ServedBy::RemoteCache { modified: false },
        );
        check(Vendor::Arm, "op=2 num=d", ServedBy::LocalDram);
        check(Vendor::Arm, "op=2 num=b snoopx=2", ServedBy::LocalCache { modified: false });
    }

    #[test]
    fn another_node_is_memory_or_a_cache_by_where_the_page_is() {
        let unknown = ServedBy::RemoteUnknown;
        assert_eq!(unknown.with_home(Some(false)), ServedBy::RemoteDram);
        assert_eq!(unknown.with_home(Some(true)), ServedBy::RemoteCache { modified: true });
        assert_eq!(unknown.with_home(None), unknown);
        assert_eq!(ServedBy::LocalDram.with_home(Some(false)), ServedBy::LocalDram);
    }

    #[test]
    fn what_missed_the_last_level_is_memory_of_the_pages_home() {
        let missed = ServedBy::BeyondLastLevel;
        assert_eq!(missed.with_home(Some(true)), ServedBy::LocalDram);
        assert_eq!(missed.with_home(Some(false)), ServedBy::RemoteDram);
        assert_eq!(missed.with_home(None), missed);
    }

    #[test]
    fn arms_system_cache_is_told_from_its_peers() {
        let peer = ServedBy::LocalCache { modified: false };
        check(Vendor::Arm, "op=2 lvl=42 num=3 snoop=4", ServedBy::LastLevel);
        check(Vendor::Arm, "op=2 lvl=42 num=3 snoopx=2", peer);
        check(Vendor::Arm, "op=2 lvl=22 num=2 snoopx=2", peer);
        check(Vendor::Arm, "op=2 lvl=22 num=2 snoop=2", ServedBy::Private);
        check(Vendor::Arm, "op=2 lvl=c num=f snoop=1", ServedBy::InFlight);
        check(Vendor::Arm, "op=4 lvl=1 num=f snoop=1", ServedBy::Unknown);
    }

    #[test]
    fn what_is_no_access_has_no_source() {
        assert_eq!(word("op=1 num=d").served_by(Vendor::Intel), None);
        assert_eq!(word("op=8 num=d").served_by(Vendor::Intel), None);
        assert_eq!(DataSource(0).served_by(Vendor::Amd), None);
        check(Vendor::Intel, "op=2", ServedBy::Unknown);
    }

    proptest! {
        #[test]
        fn reserved_bits_never_change_the_answer(bits: u64, reserved in 0u64..1 << 13) {
            let clean = DataSource(bits & ((1 << 51) - 1));
            let noisy = DataSource(clean.0 | reserved << 51);
            for vendor in [Vendor::Intel, Vendor::Amd, Vendor::Arm, Vendor::Ampere] {
                prop_assert_eq!(clean.served_by(vendor), noisy.served_by(vendor));
            }
        }
    }
}
