//! Notes on gaps and contradictions in a machine's files, with the value that is used instead.

use std::fmt;

use crate::parse::cpulist;

/// One contradiction or assumption. Numbers are the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The list of online CPUs differs from the nodes' lists and the CPUs' folders. A container may
    /// renumber it.
    OnlineDiffers {
        /// CPUs in `cpu/online`.
        listed: Vec<u32>,
        /// CPUs of the topology.
        counted: Vec<u32>,
    },
    /// Several nodes list these CPUs, as on kernels with `numa=fake`.
    InSeveralNodes {
        /// The CPUs.
        cpus: Vec<u32>,
        /// Whether each CPU's folder names its node. If not, the lowest node is taken.
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
        /// The node that they are assigned to.
        node: u32,
    },
    /// No node of the list has a folder, so the existing folders are taken.
    NodesDiffer {
        /// Nodes in `node/online`.
        listed: Vec<u32>,
        /// Nodes of the topology.
        counted: Vec<u32>,
    },
    /// No node has its memory in sysfs, so the machine's memory is taken.
    MemoryOfMachine,
    /// Rows of the distance table are missing, or have columns of unknown nodes.
    DistanceRows {
        /// The nodes.
        nodes: Vec<u32>,
    },
    /// Rows of the distance table have numbers that ACPI does not allow.
    DistanceValues {
        /// The nodes.
        nodes: Vec<u32>,
    },
    /// The package of these CPUs is not known.
    NoPackage {
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// These CPUs are missing in their own list of a core's threads.
    NotOfOwnCore {
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// Only a clock that changes with load and governor is known.
    NoNominalClock {
        /// The changing clock, MHz.
        mhz: u64,
    },
    /// An optional file is malformed.
    Unreadable {
        /// Path beneath `/sys`.
        path: String,
        /// The expected form and the text found.
        problem: String,
    },
}

impl Note {
    /// Name of the kind for programs, as in `rondpoint topology --json`.
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
                write!(
                    f,
                    "no package is known for {}. That of the node's other CPUs is assumed, else one.",
                    cpus_named(cpus)
                )
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
