//! The lines of a ledger.

use rondpoint_core::plan::{Action, Inverse};
use rondpoint_core::{Nanos, Pid, Topology};
use serde::{Deserialize, Serialize};

use crate::act::Identity;
use crate::act::copies::ranges_of;
use crate::freeze::Means;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// The first line: the manager that the ledger belongs to.
    Manager {
        /// Version of the format.
        format: u32,
        /// Its process number.
        pid: u32,
        /// When it started, nanoseconds since boot.
        started: u64,
    },
    /// The mask of a thread is about to be changed.
    Mask(MaskEntry),
    /// The thread has chosen a mask of its own since: nothing of it is to be put back.
    OwnMask {
        /// Process.
        pid: u32,
        /// When the process started, nanoseconds since boot.
        started: u64,
        /// Thread.
        tid: u32,
        /// When the thread started, nanoseconds since boot.
        born: u64,
    },
    /// A process that came after the first change of a mask: its threads may have inherited one.
    Member {
        /// Process.
        pid: u32,
        /// When it started, nanoseconds since boot.
        started: u64,
    },
    /// Where pages lay before a change.
    Pages {
        /// Number of the plan.
        plan: u64,
        /// Process.
        pid: u32,
        /// When the process started, nanoseconds since boot.
        started: u64,
        /// Address, log2 of the size, and the kernel's number of the node.
        pages: Vec<(u64, u8, u32)>,
    },
    /// Pages that are about to have copies on other nodes.
    Copies {
        /// Number of the plan.
        plan: u64,
        /// Process.
        pid: u32,
        /// When the process started, nanoseconds since boot.
        started: u64,
        /// First address and one past the last of each range.
        ranges: Vec<(u64, u64)>,
    },
    /// Memory of a whole process before a change.
    Memory {
        /// Number of the plan.
        plan: u64,
        /// Process.
        pid: u32,
        /// When the process started, nanoseconds since boot.
        started: u64,
        /// Where it went (source of the way back) and where it lay (its target), as the kernel
        /// numbers nodes.
        nodes: Vec<(u32, u32)>,
    },
    /// A process is about to be stopped, until it goes on.
    Freeze {
        /// Process.
        pid: u32,
        /// When the process started, nanoseconds since boot.
        started: u64,
        /// How.
        means: Means,
    },
    /// It goes on: no process has to resume it.
    Thaw {
        /// Process.
        pid: u32,
        /// When the process started, nanoseconds since boot.
        started: u64,
    },
    /// The pages of these plans stay where they are.
    Settled {
        /// Process.
        pid: u32,
        /// Plans.
        plans: Vec<u64>,
    },
}

/// A change of a thread's mask. CPUs are as the kernel numbers them: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskEntry {
    /// Number of the plan.
    pub plan: u64,
    /// Process.
    pub pid: u32,
    /// When the process started, nanoseconds since boot.
    pub started: u64,
    /// The session that it belongs to: what is born in it may be out of reach when its parent ends.
    pub session: u32,
    /// Thread.
    pub tid: u32,
    /// When the thread started, nanoseconds since boot.
    pub born: u64,
    /// When this was written, nanoseconds since boot.
    pub at: u64,
    /// The mask before the first change of all.
    pub before: String,
    /// That was all of its cpuset: the thread had no mask of its own.
    pub whole: bool,
    /// The one CPU that it is put on first.
    pub via: Option<u32>,
    /// The mask that it is given.
    pub given: String,
}

impl Entry {
    /// The entry for an inverse. `None` where there is nothing to put back, and for masks: a
    /// thread's mask is known only when it is changed ([`crate::act::Actor::prepare`]).
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

    /// The process that it is about; `None` for the first line.
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
