//! The variants of clustering by sharing as data.

/// The rule that finds pairs of threads that share data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// Common samples on pages [Carrefour's authors, experimental code].
    CommonSamples {
        /// Least number of common samples of a pair.
        minimum: u32,
    },
    /// Similar signatures of remote accesses [Tam et al.; recalled].
    Signatures {
        /// Least dot product with which a thread joins a group.
        similarity: u64,
        /// One of this many remote accesses is used.
        one_of: u32,
    },
}

/// The treatment of a group that a node cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversized {
    /// The group is split at its weakest pair (inferred).
    Split,
    /// The group is left alone [Carrefour's authors, experimental code].
    Skip,
}

/// The mask of a thread after its move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The node's CPUs. Inferred: the kernel's balancing would move the thread away again.
    Node,
    /// All CPUs that the thread may use [Carrefour's authors, experimental code].
    Release,
}

/// One variant of clustering by sharing.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// The rule that finds pairs.
    pub detection: Detection,
    /// The treatment of a group that a node cannot hold.
    pub oversized: Oversized,
    /// The mask of a thread after its move.
    pub hold: Hold,
    /// Whether a group is placed only on a node with a core for every thread and enough memory
    /// capacity [Kamali, as Carrefour describes it]. The balance of CPU demand is kept in any case.
    pub spares_node: bool,
    /// Whether a node's memory pressure may exceed its capacity where that cannot be avoided (our
    /// rule). The limit is then the highest pressure of a node before the round or of one group
    /// alone. One thread may exceed the capacity of any node.
    pub bears_most_pressed: bool,
    /// Whether the round after a move proposes nothing, so that pages can follow [Carrefour's
    /// authors, experimental code].
    pub alternates: bool,
}

impl Preset {
    /// The default: joins sharers unless they would overload the node, and splits groups that no
    /// node can hold. At least 5 common samples [Carrefour's authors, experimental code].
    pub const KAMALI: Self = Self {
        name: "kamali",
        detection: Detection::CommonSamples { minimum: 5 },
        oversized: Oversized::Split,
        hold: Hold::Node,
        spares_node: true,
        bears_most_pressed: false,
        alternates: false,
    };
    /// The default of `auto`. The data that a pair exchanges between nodes is itself a demand on
    /// memory, so pressure may be unavoidable. The command line does not offer it.
    pub const EXCHANGING: Self =
        Self { name: "exchanging", bears_most_pressed: true, ..Self::KAMALI };
    /// The rules of the experimental code of Carrefour's authors.
    pub const AUTHOR: Self = Self {
        name: "author",
        oversized: Oversized::Skip,
        hold: Hold::Release,
        spares_node: false,
        alternates: true,
        ..Self::KAMALI
    };
    /// Tam et al.: signatures, and sharers always together. Its numbers are recalled.
    pub const TAM: Self = Self {
        name: "tam",
        detection: Detection::Signatures { similarity: 40_000, one_of: 10 },
        spares_node: false,
        ..Self::KAMALI
    };
    /// The presets that the command line offers.
    pub const ALL: [Self; 3] = [Self::KAMALI, Self::AUTHOR, Self::TAM];
}
