//! Memory that follows its threads to other nodes. No other step changes the process meanwhile.
//! Copies of its pages are dropped first. Room on the target nodes is reserved for it, so that
//! copies do not take it.

use crate::model::{App, Model};
use crate::plan::{Action, Kind, Mechanism, PageMove, Proposal};
use crate::policy::asymsched::{self, AsymSched};
use crate::units::{Bytes, PAGE_SHIFT};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Whether a step moves memory after all threads of a node, or drops its copies before.
pub(super) fn is_part_of_the_way(step: &Proposal) -> bool {
    let is_way = matches!(step.action.kind(), Kind::Pages(Mechanism::Following) | Kind::Bulk);
    let is_before = matches!(step.action, Action::Unreplicate { .. });
    is_way || is_before && step.policy == asymsched::REGISTERED.name
}

/// Proposes to drop all copies of a process's pages, before a proposal of another policy.
pub(super) fn unreplicate(app: &App, cause: &Proposal) -> Option<Proposal> {
    let home = app.home().unwrap_or(0) as u16;
    let page = |address| PageMove { address, shift: PAGE_SHIFT, from: home, to: home };
    let pages: Vec<PageMove> =
        app.replicas.iter().flatten().map(|replica| page(replica.address)).collect();
    let action = Action::Unreplicate { pid: app.pid, pages };
    let proposal = Proposal { policy: cause.policy, action, reason: cause.reason.clone() };
    app.replicas.as_ref().is_some_and(|replicas| !replicas.is_empty()).then_some(proposal)
}

/// The model without the free memory that is reserved for memory on its way.
pub(super) fn reserved<'a>(model: &'a Model, asymsched: &AsymSched) -> Cow<'a, Model> {
    let Some(free) = &model.free_memory else { return Cow::Borrowed(model) };
    let mut left = free.clone();
    for app in &model.apps {
        for step in asymsched.on_the_way(app.pid) {
            let resident = app.memory.as_ref().and_then(|memory| memory.get(step.from));
            let follows = resident.map_or(0, |bytes| bytes.0);
            left[step.to] = Bytes(left[step.to].0.saturating_sub(follows));
        }
    }
    match left == *free {
        true => Cow::Borrowed(model),
        false => Cow::Owned(Model { free_memory: Some(left), ..model.clone() }),
    }
}
