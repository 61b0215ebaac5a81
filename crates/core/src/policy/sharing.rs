//! Thread clustering by sharing: threads that share data move to one node, unless they would
//! compete for its resources.
//!
//! Carrefour assumes that such a step has run before it. The default is Kamali's variant, as
//! Carrefour describes it: sharers are joined only if the node's memory has the capacity and the
//! load stays balanced. The sets of threads per page and their constants are those of the
//! experimental code of Carrefour's authors (preset `author`). The preset `tam` groups threads by
//! signatures and always joins a group.

mod clusters;
mod observe;
mod pairs;
mod placement;
mod preset;
mod signature;

pub use clusters::{Cluster, clusters};
pub use pairs::{Pair, pairs};
pub use placement::{Placed, Role, Sharer, Shift, Stay, place};
pub use preset::{Detection, Hold, Oversized, Preset};

use super::{Policy, Registered};
use crate::index_set::CpuSet;
use crate::model::{App, Model, Thread};
use crate::plan::{Action, Proposal, Reason};
use crate::random::Random;
use crate::topology::Topology;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The policy's name on the command line and in plans.
pub(super) const NAME: &str = "sharing";

/// The policy's entry in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    about: "threads that share data onto one node, unless they would fight for its resources",
    presets: &["kamali", "author", "tam"],
    make: |name| {
        let preset =
            Preset::ALL.into_iter().find(|preset| name.is_none_or(|name| name == preset.name))?;
        Some(Box::new(Sharing::new(preset)) as Box<dyn Policy>)
    },
    in_auto: None,
};

/// Thread clustering by sharing, with its state across rounds.
#[derive(Debug, Clone)]
pub struct Sharing {
    preset: Preset,
    /// The next round proposes nothing, because the last one moved threads and the preset
    /// alternates.
    is_page_round: bool,
}

/// Why a thread is moved or pinned, or why sampling changes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum SharingReason {
    /// The thread joins the threads with which it shares data.
    Join {
        /// Threads in the group.
        threads: usize,
        /// Common samples (or similarity) of the weakest pair that connects the group.
        weakest: u32,
        /// Node that the thread leaves.
        from: usize,
        /// Node of the group.
        to: usize,
    },
    /// The thread is pinned where it runs, because its group is on this node.
    Stay {
        /// Threads in the group.
        threads: usize,
        /// Node of the group.
        node: usize,
    },
    /// The thread has no group and makes room for one.
    MakeRoom {
        /// Node that the thread leaves.
        from: usize,
        /// Node with room.
        to: usize,
    },
    /// The samples that show which threads share data are switched on or off.
    Sampling {
        /// Whether these samples are switched on.
        names: bool,
    },
}

impl Sharing {
    /// A policy of this preset, in its first round.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self { preset, is_page_round: false }
    }

    /// As [`Policy::propose`], for the processes that `is_asked` selects. Threads of other
    /// processes stay in place.
    pub fn propose_for(
        &mut self,
        model: &Model,
        topology: &Topology,
        is_asked: impl Fn(&App) -> bool,
    ) -> Vec<Proposal> {
        if core::mem::take(&mut self.is_page_round) {
            return Vec::new();
        }
        let asked: Vec<bool> = model.apps.iter().map(is_asked).collect();
        let pairs = self.pairs(model, topology, &asked);
        self.propose_pairs(model, topology, &pairs, &asked)
    }

    /// Pairs of threads that share data, by samples, most samples first. `asked`: by model index of
    /// a process, whether it is included.
    #[must_use]
    pub fn pairs(&self, model: &Model, topology: &Topology, asked: &[bool]) -> Vec<Pair> {
        observe::pairs(model, topology, asked, &self.preset)
    }

    /// Proposals for given pairs, most samples first. `asked`: as for [`Sharing::pairs`].
    pub fn propose_pairs(
        &mut self,
        model: &Model,
        topology: &Topology,
        pairs: &[Pair],
        asked: &[bool],
    ) -> Vec<Proposal> {
        if pairs.is_empty() {
            self.is_page_round = false;
            return Vec::new();
        }
        let groups = clusters(pairs, model.threads.len());
        let threads = observe::sharers(model, topology, asked);
        let placed = place(&threads, &observe::cores(topology), groups, &self.preset);
        let mut exact = observe::ExactCpus::new(model, topology, &placed.shifts);
        let shift = |shift: Shift| Some(self.shift(shift, exact.take(shift)?, model, topology));
        let mut proposals: Vec<Proposal> = placed.shifts.into_iter().filter_map(shift).collect();
        proposals.extend(placed.stays.into_iter().map(|stay| Self::stay(stay, model, topology)));
        // A round without proposals needs no page round after it.
        self.is_page_round = self.preset.alternates && !proposals.is_empty();
        proposals
    }

    fn shift(&self, shift: Shift, cpu: usize, model: &Model, topology: &Topology) -> Proposal {
        let Shift { from, to, .. } = shift;
        let reason = match shift.role {
            Role::Member { group, weakest } => {
                SharingReason::Join { threads: group, weakest, from, to }
            }
            Role::Displaced => SharingReason::MakeRoom { from, to },
        };
        let thread = &model.threads[shift.thread as usize];
        let cpus = match self.preset.hold {
            Hold::Node => thread.usable_on(to, topology),
            Hold::Release => topology.usable(&thread.allowed),
        };
        affinity(thread, model, cpus, Some(cpu), reason)
    }

    fn stay(stay: Stay, model: &Model, topology: &Topology) -> Proposal {
        let Stay { thread, node, group } = stay;
        let thread = &model.threads[thread as usize];
        let reason = SharingReason::Stay { threads: group, node };
        affinity(thread, model, thread.usable_on(node, topology), None, reason)
    }
}

fn affinity(
    thread: &Thread,
    model: &Model,
    cpus: CpuSet,
    via: Option<usize>,
    reason: SharingReason,
) -> Proposal {
    let pid = model.apps[thread.app].pid;
    Proposal {
        policy: NAME,
        action: Action::SetAffinity { pid, tid: thread.tid, cpus, via },
        reason: Reason::Sharing(reason),
    }
}

impl Policy for Sharing {
    fn wants_touches(&self) -> bool {
        true
    }

    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        self.propose_for(model, topology, |_| true)
    }
}

impl SharingReason {
    /// The same with each node renamed.
    #[must_use]
    pub(crate) fn renamed(mut self, name: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Join { from, to, .. } | Self::MakeRoom { from, to } => {
                (*from, *to) = (name(*from), name(*to));
            }
            Self::Stay { node, .. } => *node = name(*node),
            Self::Sampling { .. } => {}
        }
        self
    }
}

impl fmt::Display for SharingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join { threads, weakest, from, to } => {
                write!(
                    f,
                    "shares data in a group of {threads} (at least {weakest} in common), {from}→{to}"
                )
            }
            Self::Stay { threads, node } => {
                write!(f, "stays on node {node} with its group of {threads}")
            }
            Self::MakeRoom { from, to } => write!(f, "makes room for a group, {from}→{to}"),
            Self::Sampling { names: true } => {
                f.write_str("samples are to name which threads exchange data")
            }
            Self::Sampling { names: false } => {
                f.write_str("samples are to name no threads that exchange data")
            }
        }
    }
}
