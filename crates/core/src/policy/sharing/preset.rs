//! The variants of clustering by sharing as data.

/// How groups are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// Common samples on pages [Carrefour's authors, experimental code].
    CommonSamples {
        /// Common samples from which two threads belong together.
        minimum: u32,
    },
    /// Similar signatures of remote accesses [Tam et al.; recalled].
    Signatures {
        /// Dot product from which a thread joins a group.
        similarity: u64,
        /// One of this many remote accesses is taken.
        one_of: u32,
    },
}

/// The treatment of a group that a node cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversized {
    /// It is split where it shares least (inferred).
    Split,
    /// It is left alone [Carrefour's authors, experimental code].
    Skip,
}

/// How long a thread is held on its new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Its mask is the node's CPUs [inferred: the kernel's balancing would take it away again].
    Node,
    /// The thread is moved there and then gets its old mask again [Carrefour's authors,
    /// experimental code].
    Release,
}

/// One variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// How groups are found.
    pub detection: Detection,
    /// The treatment of a group that a node cannot hold.
    pub oversized: Oversized,
    /// How a moved thread is held.
    pub hold: Hold,
    /// Whether a group is placed only on a node with a core for every thread and enough memory
    /// capacity [Kamali, as Carrefour describes it]. The balance of CPU demand is kept in any case.
    pub spares_node: bool,
    /// Whether the limit of its memory may exceed its capacity (ours). The limit is then at least
    /// the earlier demand on the most pressed node, and the demand of the most pressing group
    /// alone. One thread may ask for more than a node bears wherever it runs.
    pub bears_most_pressed: bool,
    /// Whether every second round leaves threads alone, so that pages can follow [Carrefour's
    /// authors, experimental code].
    pub alternates: bool,
}

impl Preset {
    /// The default: joins sharers unless they would overload the node, and splits groups that are
    /// too large.
    pub const KAMALI: Self = Self {
        name: "kamali",
        detection: Detection::CommonSamples { minimum: 5 },
        oversized: Oversized::Split,
        hold: Hold::Node,
        spares_node: true,
        bears_most_pressed: false,
        alternates: false,
    };
    /// The default of `auto`, which counts the exchange that brings sharers together. It has no
    /// name. Data exchanged by a pair between nodes is itself a demand on memory.
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
    /// Tam et al.: signatures, and sharers always together.
    pub const TAM: Self = Self {
        name: "tam",
        detection: Detection::Signatures { similarity: 40_000, one_of: 10 },
        spares_node: false,
        ..Self::KAMALI
    };
    /// All of them.
    pub const ALL: [Self; 3] = [Self::KAMALI, Self::AUTHOR, Self::TAM];
}
