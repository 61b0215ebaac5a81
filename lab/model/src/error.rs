//! Why a machine or a memory map cannot be modelled.

/// A machine or memory map that the model cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// More of something than the model's fixed-width records hold.
    #[error("machine {machine}: {found} {what}, the hardware model takes {least} to {most}")]
    Count {
        /// The machine's name.
        machine: String,
        /// What there is too much or too little of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
    },
    /// A cache that has no whole set.
    #[error("machine {machine}: {cache} of {bytes} bytes and {ways} ways has no whole set of {line}-byte lines", line = crate::LINE_BYTES)]
    Cache {
        /// The machine's name.
        machine: String,
        /// Which cache.
        cache: &'static str,
        /// Its capacity.
        bytes: u64,
        /// Its associativity.
        ways: u32,
    },
    /// A region that is empty, not made of whole pages, or ends too high.
    #[error("memory region {index} ({start:#x}, {bytes:#x} bytes): expected whole 4 KiB pages below {end:#x}", end = crate::memory::PHYSICAL_END)]
    Region {
        /// Its place in the list.
        index: usize,
        /// Its first address.
        start: u64,
        /// Its length.
        bytes: u64,
    },
    /// Two regions with an address in common.
    #[error("memory regions {first} and {second} overlap")]
    Overlap {
        /// One region's place in the list.
        first: usize,
        /// The other's.
        second: usize,
    },
    /// A region on a node that has no memory controller.
    #[error("memory region {index}: node {node} has no memory controller in machine {machine}")]
    NoController {
        /// The region's place in the list.
        index: usize,
        /// The node it names.
        node: usize,
        /// The machine's name.
        machine: String,
    },
}
