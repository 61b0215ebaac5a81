//! The lines of a ledger.

use rondpoint_core::plan::{Action, Inverse};
use rondpoint_core::{Nanos, Pid, Topology};
use serde::{Deserialize, Serialize};

use crate::act::Identity;
use crate::act::copies::ranges_of;
use crate::freeze::Means;

/// One line of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// The first line: the manager that the ledger belongs to.
    Manager {
        /// Version of the format.
        format: u32,
        /// Process number of the manager.
        pid: u32,
        /// Start time of the manager, nanoseconds since boot.
        started: u64,
        /// Namespaces of the manager, as `Namespaces::text` writes them. Ledgers of older versions
        /// have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespaces: Option<String>,
    },
    /// The mask of a thread is about to be changed.
    Mask(MaskEntry),
    /// The thread has chosen a mask of its own, or has got its first one back. What it has must not
    /// be restored.
    OwnMask {
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
        /// Number of the thread.
        tid: u32,
        /// Start time of the thread, nanoseconds since boot.
        born: u64,
        /// When it got its first mask back, nanoseconds since boot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        returned: Option<u64>,
    },
    /// A process younger than the first change of a mask. Its threads may have inherited one.
    Member {
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
    },
    /// Nodes of pages before a change.
    Pages {
        /// Number of the plan.
        plan: u64,
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
        /// `(address, log2 of the size, the kernel's number of the node)`.
        pages: Vec<(u64, u8, u32)>,
    },
    /// Pages that are about to be copied to other nodes.
    Copies {
        /// Number of the plan.
        plan: u64,
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
        /// `(first address, one past the last)` of each range.
        ranges: Vec<(u64, u64)>,
    },
    /// The move of a whole process's memory.
    Memory {
        /// Number of the plan.
        plan: u64,
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
        /// `(node that it moved to, node that it was on)`: source and target of the way back, the
        /// kernel's numbers.
        nodes: Vec<(u32, u32)>,
    },
    /// A process is about to be stopped.
    Freeze {
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
        /// Means of stopping it.
        means: Means,
    },
    /// The process was resumed.
    Thaw {
        /// Number of the process.
        pid: u32,
        /// Start time of the process, nanoseconds since boot.
        started: u64,
    },
    /// The pages of these plans stay where they are, and are not restored.
    Settled {
        /// Number of the process.
        pid: u32,
        /// Numbers of the plans.
        plans: Vec<u64>,
    },
}

/// A change of a thread's mask. CPUs are lists of the kernel's numbers: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskEntry {
    /// Number of the plan.
    pub plan: u64,
    /// Number of the process.
    pub pid: u32,
    /// Start time of the process, nanoseconds since boot.
    pub started: u64,
    /// Session of the process. Descendants are found by it after their parents have ended.
    pub session: u32,
    /// Number of the thread.
    pub tid: u32,
    /// Start time of the thread, nanoseconds since boot.
    pub born: u64,
    /// Time of writing, nanoseconds since boot.
    pub at: u64,
    /// The thread's mask before our first change.
    pub before: String,
    /// Whether that was all CPUs of its cpuset, so that the thread had no mask of its own.
    pub whole: bool,
    /// The CPU that the thread is moved to first.
    pub via: Option<u32>,
    /// The new mask.
    pub given: String,
}

/// Fields with a time since boot.
const TIMES: [&str; 3] = ["started", "born", "at"];

impl Entry {
    /// The entry of a line. `later_ns` is added to each time since boot: a time namespace has its
    /// own.
    ///
    /// # Errors
    /// The line is not understood, or no time of this namespace.
    pub(super) fn read(line: &str, later_ns: i128) -> Result<Self, serde_json::Error> {
        if later_ns == 0 {
            return serde_json::from_str(line);
        }
        let mut value: serde_json::Value = serde_json::from_str(line)?;
        for name in TIMES {
            let Some(time) = value.get_mut(name) else { continue };
            let moved = time.as_u64().map(|time| i128::from(time) + later_ns);
            let moved = moved.and_then(|time| u64::try_from(time).ok());
            *time = moved.map_or(serde_json::Value::Null, serde_json::Value::from);
        }
        serde_json::from_value(value)
    }

    /// The entry of an inverse. `None` if there is nothing to undo, and for masks:
    /// [`crate::act::Actor::prepare`] makes those, because a thread's mask is read then.
    #[must_use]
    pub fn of(inverse: &Inverse, started: Nanos, topology: &Topology) -> Option<Self> {
        let (plan, started) = (inverse.plan, started.0);
        let node = |node: usize| topology.kernel_node(node);
        Some(match inverse.action.as_ref()? {
            Action::MovePages { pid, pages, .. } => {
                let back = |page: &rondpoint_core::plan::PageMove| {
                    (page.address, page.shift, node(usize::from(page.to)))
                };
                Self::Pages { plan, pid: pid.0, started, pages: pages.iter().map(back).collect() }
            }
            Action::MoveProcessMemory { pid, nodes, .. } => {
                let nodes = nodes.iter().map(|way| (node(way.from), node(way.to))).collect();
                Self::Memory { plan, pid: pid.0, started, nodes }
            }
            Action::Unreplicate { pid, pages } => {
                Self::Copies { plan, pid: pid.0, started, ranges: ranges_of(pages) }
            }
            Action::SetAffinity { .. } | Action::Replicate { .. } | Action::SetSampling { .. } => {
                return None;
            }
        })
    }

    /// The process of the entry; `None` for the first line.
    #[must_use]
    pub fn process(&self) -> Option<Identity> {
        match self {
            Self::Mask(MaskEntry { pid, started, .. })
            | Self::OwnMask { pid, started, .. }
            | Self::Member { pid, started }
            | Self::Pages { pid, started, .. }
            | Self::Copies { pid, started, .. }
            | Self::Memory { pid, started, .. }
            | Self::Freeze { pid, started, .. }
            | Self::Thaw { pid, started } => {
                Some(Identity { pid: Pid(*pid), started: Nanos(*started) })
            }
            Self::Manager { .. } | Self::Settled { .. } => None,
        }
    }
}
