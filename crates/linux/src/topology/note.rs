//! What a machine's files leave open or contradict, and what is taken for true instead.

use std::fmt;

use crate::parse::cpulist;

/// One contradiction or assumption. Numbers are the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The list of online CPUs differs from the nodes' lists and the CPUs' folders: a container may
    /// renumber it.
    OnlineDiffers {
        /// What `cpu/online` lists.
        listed: Vec<u32>,
        /// What is counted.
        counted: Vec<u32>,
    },
    /// Several nodes list these CPUs, as on kernels with `numa=fake`.
    InSeveralNodes {
        /// The CPUs.
        cpus: Vec<u32>,
        /// Each CPU's folder names the node; otherwise the lowest node is taken.
        have_links: bool,
    },
    /// One node lists these CPUs, and their folders name another one.
    LinkDiffers {
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// No online node lists these CPUs.
    OfNoNode {
        /// The CPUs.
        cpus: Vec<u32>,
        /// The node that they are counted on.
        node: u32,
    },
    /// No node of the list has a folder, so the folders that are there are taken.
    NodesDiffer {
        /// What `node/online` lists.
        listed: Vec<u32>,
        /// What is counted.
        counted: Vec<u32>,
    },
    /// No node tells its memory, so the machine's is taken.
    MemoryOfMachine,
    /// Rows of the distance table that are missing, or whose columns belong to no known nodes.
    DistanceRows {
        /// The nodes.
        nodes: Vec<u32>,
    },
    /// Rows of the distance table with numbers that ACPI does not allow.
    DistanceValues {
        /// The nodes.
        nodes: Vec<u32>,
    },
    /// The package of these CPUs is not told.
    NoPackage {
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// These CPUs are missing in their own list of a core's threads.
    NotOfOwnCore {
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// Only a clock is told that changes with load and governor.
    NoNominalClock {
        /// That clock, MHz.
        mhz: u64,
    },
    /// A file that may be absent holds something else than expected.
    Unreadable {
        /// Beneath `/sys`.
        path: String,
        /// What was expected, and what stands there.
        problem: String,
    },
}

impl Note {
    /// A word for programs, as in `rondpoint topology --json`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OnlineDiffers { .. } => "online-differs",
            Self::InSeveralNodes { .. } => "cpus-in-several-nodes",
            Self::LinkDiffers { .. } => "node-link-differs",
            Self::OfNoNode { .. } => "cpus-of-no-node",
            Self::NodesDiffer { .. } => "nodes-differ",
            Self::MemoryOfMachine => "memory-of-machine",
            Self::DistanceRows { .. } => "distances-missing",
            Self::DistanceValues { .. } => "distances-invalid",
            Self::NoPackage { .. } => "no-package",
            Self::NotOfOwnCore { .. } => "not-of-own-core",
            Self::NoNominalClock { .. } => "no-nominal-clock",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &[u32]| match cpulist::format(numbers) {
            list if list.is_empty() => "none".to_string(),
            list => list,
        };
        match self {
            Self::OnlineDiffers { listed, counted } => write!(
                f,
                "the list of online CPUs has {}, nodes and CPU folders show {} (a container?). \
                 Rondpoint counts {1}.",
                list(listed),
                list(counted)
            ),
            Self::InSeveralNodes { cpus, have_links } => write!(
                f,
                "several nodes list CPUs {}. Each counts on the {}.",
                list(cpus),
                if *have_links { "node that its own folder names" } else { "lowest of them" }
            ),
            Self::LinkDiffers { cpus } => write!(
                f,
                "CPUs {}: the folder names another node than the node's list. The folder counts.",
                list(cpus)
            ),
            Self::OfNoNode { cpus, node } => {
                write!(f, "no online node lists CPUs {}. They count on node {node}.", list(cpus))
            }
            Self::NodesDiffer { listed, counted } => write!(
                f,
                "none of the online nodes {} has a folder. Rondpoint counts nodes {}.",
                list(listed),
                list(counted)
            ),
            Self::MemoryOfMachine => {
                write!(f, "no node tells its memory. All of the machine's counts.")
            }
            Self::DistanceRows { nodes } => write!(
                f,
                "nodes {} have no usable distances. The opposite direction counts, else 20.",
                list(nodes)
            ),
            Self::DistanceValues { nodes } => write!(
                f,
                "distances of nodes {} break ACPI's rules. A node is 10 from itself. Elsewhere the \
                 opposite direction counts, else 20.",
                list(nodes)
            ),
            Self::NoPackage { cpus } => {
                write!(f, "CPUs {} do not tell their package. They count as one.", list(cpus))
            }
            Self::NotOfOwnCore { cpus } => {
                write!(f, "CPUs {} are not in their own core's list. Each is a core.", list(cpus))
            }
            Self::NoNominalClock { mhz } => {
                write!(f, "the nominal clock is unknown. {mhz} MHz is the clock of one moment.")
            }
            Self::Unreadable { path, problem } => write!(f, "{path} is left out: {problem}"),
        }
    }
}
