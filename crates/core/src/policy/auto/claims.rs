//! What one policy has to do with a process while others are asked.

use super::history::RESTING_EPOCHS;
use super::veto::Veto;
use crate::model::App;
use crate::plan::{Action, Kind, PageMove, Proposal};
use crate::policy::asymsched::AsymSched;
use crate::units::{PAGE_SHIFT, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What the proposals of a step mean for the policies that are asked later.
pub(super) fn claims(proposals: &[Proposal]) -> BTreeMap<Pid, Veto> {
    let claim = |one: &Proposal| Some((one.action.pid()?, claim_of(one)?));
    proposals.iter().filter_map(claim).collect()
}

fn claim_of(proposal: &Proposal) -> Option<Veto> {
    match proposal.action.kind() {
        Kind::Affinity if proposal.reason.is_indivisible() => Some(Veto::NodesChange),
        Kind::Affinity => Some(Veto::ThreadsMoved { epochs: 0, needed: RESTING_EPOCHS }),
        Kind::Bulk => Some(Veto::MemoryMoves),
        Kind::Pages(_) | Kind::Replication | Kind::Sampling => None,
    }
}

/// AsymSched's lock on a process while its memory follows its threads.
pub(super) fn memory_moves(asymsched: &AsymSched, pid: Pid) -> Option<Veto> {
    (!asymsched.on_the_way(pid).is_empty()).then_some(Veto::MemoryMoves)
}

/// All copies of a process's pages back to one, for the sake of a proposal of another policy.
pub(super) fn unreplicate(app: &App, cause: &Proposal) -> Option<Proposal> {
    let home = app.home().unwrap_or(0) as u16;
    let page = |address| PageMove { address, shift: PAGE_SHIFT, from: home, to: home };
    let pages: Vec<PageMove> =
        app.replicas.iter().flatten().map(|replica| page(replica.address)).collect();
    let action = Action::Unreplicate { pid: app.pid, pages };
    let proposal = Proposal { policy: cause.policy, action, reason: cause.reason.clone() };
    app.replicas.as_ref().is_some_and(|replicas| !replicas.is_empty()).then_some(proposal)
}
