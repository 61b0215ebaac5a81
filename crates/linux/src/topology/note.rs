//! Notes on gaps and contradictions in a machine's files, with the value that is used instead.

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
    /// Rows of the distance table that are missing, or with columns of no known nodes.
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
        let named = |kind: &str, numbers: &[u32]| match numbers {
            [one] => format!("{kind} {one}"),
            several => format!("{kind}s {}", list(several)),
        };
        let (cpus_named, nodes_named) = (|cpus| named("CPU", cpus), |nodes| named("node", nodes));
        match self {
            Self::OnlineDiffers { listed, counted } => write!(
                f,
                "the list of online CPUs is {}, nodes and CPU folders show {} (a container?). \
                 Rondpoint counts {1}.",
                list(listed),
                list(counted)
            ),
            Self::InSeveralNodes { cpus, have_links } => {
                let rule = match have_links {
                    true => "The node that a CPU's own folder names counts.",
                    false => "The lowest of these nodes counts.",
                };
                write!(f, "several nodes list {}. {rule}", cpus_named(cpus))
            }
            Self::LinkDiffers { cpus } => write!(
                f,
                "{}: the folder names another node than the node's list. The folder counts.",
                cpus_named(cpus)
            ),
            Self::OfNoNode { cpus, node } => {
                write!(f, "no online node lists {}. Node {node} is assumed.", cpus_named(cpus))
            }
            Self::NodesDiffer { listed, counted } => write!(
                f,
                "the list of online nodes is {}, and none of them has a folder. Rondpoint counts {}.",
                list(listed),
                nodes_named(counted)
            ),
            Self::MemoryOfMachine => {
                write!(f, "no node reports its memory. The memory of the whole machine is used.")
            }
            Self::DistanceRows { nodes } => write!(
                f,
                "{}: no usable distances. The opposite direction counts, else 20.",
                nodes_named(nodes)
            ),
            Self::DistanceValues { nodes } => write!(
                f,
                "{}: distances break ACPI's rules. A node is 10 from itself. Elsewhere the opposite \
                 direction counts, else 20.",
                nodes_named(nodes)
            ),
            Self::NoPackage { cpus } => {
                write!(f, "no package is known for {}. One package is assumed.", cpus_named(cpus))
            }
            Self::NotOfOwnCore { cpus } => write!(
                f,
                "{}: missing from the list of the own core. A core for each CPU is assumed.",
                cpus_named(cpus)
            ),
            Self::NoNominalClock { mhz } => {
                write!(f, "the nominal clock is unknown. {mhz} MHz is the clock of one moment.")
            }
            Self::Unreadable { path, problem } => write!(f, "{path} is left out: {problem}"),
        }
    }
}
