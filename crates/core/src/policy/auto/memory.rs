//! Memory that follows its threads to other nodes. No other step changes the process meanwhile.
//! Room on the target nodes is reserved for it, so that copies do not take it.

use crate::model::Model;
use crate::plan::{Action, Kind, Mechanism, Proposal};
use crate::policy::asymsched::{self, AsymSched};
use crate::units::Bytes;
use alloc::borrow::Cow;

/// Whether a step moves memory after all threads of a node, or drops its copies before.
pub(super) fn is_part_of_the_way(step: &Proposal) -> bool {
    let is_way = matches!(step.action.kind(), Kind::Pages(Mechanism::Following) | Kind::Bulk);
    let is_before = matches!(step.action, Action::Unreplicate { .. });
    is_way || is_before && step.policy == asymsched::REGISTERED.name
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
