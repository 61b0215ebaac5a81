//! One access and its result.

/// One access below the first-level filter, as the vCPU makes it.
///
/// It belongs to the line of its first byte. A caller that wants both lines of a straddling access
/// charged makes a second access with [`Access::second_line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Virtual address of the first byte.
    pub vaddr: u64,
    /// Guest physical address of the first byte.
    pub paddr: u64,
    /// A store, or the read half of an atomic update (which asks for ownership at once); else a
    /// load.
    pub store: bool,
    /// The value that a load returned, where known: a later miss near that address waits for it.
    pub loaded: Option<u64>,
    /// The vCPU's own time in ps of guest time.
    pub now_ps: u64,
    /// Instructions that this vCPU has executed so far; only differences matter.
    pub instructions: u64,
}

impl Access {
    /// The part of an access of `bytes` bytes that lies on the next line, if it straddles lines.
    /// `None` also where that line is on another page: its physical address is not known here.
    #[must_use]
    pub fn second_line(&self, bytes: u64) -> Option<Access> {
        let last = self.vaddr.checked_add(bytes.max(1) - 1)?;
        let start = last & !(crate::LINE_BYTES - 1);
        if start <= self.vaddr || start.is_multiple_of(crate::PAGE_BYTES) {
            return None;
        }
        let offset = start - self.vaddr;
        Some(Access { vaddr: start, paddr: self.paddr + offset, loaded: None, ..*self })
    }
}

/// The cache or memory that answered an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The vCPU's first level. A store that first had to take other copies away is here too, with
    /// the latency of doing so.
    L1,
    /// The vCPU's second level.
    L2,
    /// A line that an earlier miss or prefetch of this vCPU is still fetching.
    InFlight,
    /// The last-level cache of the vCPU's cache domain.
    Llc,
    /// Another cache of the same node.
    CacheSameNode {
        /// It was modified there.
        dirty: bool,
        /// It came from another cache domain of the node.
        other_domain: bool,
    },
    /// A cache of another node.
    CacheRemote {
        /// It was modified there.
        dirty: bool,
        /// The node of that cache.
        node: usize,
    },
    /// DRAM.
    Dram {
        /// The node that holds it.
        node: usize,
    },
    /// A physical address of no node: a device or firmware. Costs nothing, is cached nowhere.
    Outside,
}

/// The answer to one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// By how much the vCPU's time advances for this access, ps.
    pub stall_ps: u64,
    /// From issue to data of this request, ps: what an address sample shows.
    pub latency_ps: u64,
    /// The cache or memory that answered.
    pub source: Source,
    /// The vCPU that held the line modified, if it was another one. The two share the line at a
    /// grain that may be finer than the quantum.
    pub transfer_from: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(vaddr: u64) -> Access {
        let paddr = vaddr.wrapping_add(0x10_0000);
        Access { vaddr, paddr, store: true, loaded: Some(7), now_ps: 5, instructions: 9 }
    }

    #[test]
    fn only_a_straddling_access_has_a_second_line() {
        assert_eq!(access(0x38).second_line(8), None);
        assert_eq!(access(0x40).second_line(64), None);
        let second = access(0x3c).second_line(8).expect("straddles");
        assert_eq!((second.vaddr, second.paddr, second.loaded), (0x40, 0x10_0040, None));
        assert_eq!(access(0xffc).second_line(8), None, "the next page is somewhere else");
        assert_eq!(access(u64::MAX).second_line(8), None);
    }
}
