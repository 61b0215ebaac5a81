//! Memory that follows its threads to other nodes. No other step changes the process meanwhile.
//! Copies of its pages are dropped first. Room on the target nodes is reserved for it, so that
//! copies do not take it.

use crate::model::{App, Model};
use crate::plan::{Action, PageMove, Proposal};
use crate::policy::asymsched::AsymSched;
use crate::units::{Bytes, PAGE_SHIFT};
use alloc::borrow::Cow;
use alloc::vec::Vec;

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
    let promised = model.apps.iter().flat_map(|app| {
        asymsched.on_the_way(app.pid).iter().map(|step| {
            let resident = |memory: &Vec<Bytes>| memory.get(step.from).copied();
            (step.to, app.memory.as_ref().and_then(resident).unwrap_or(Bytes(0)))
        })
    });
    let left = unpromised(free, promised);
    match left == *free {
        true => Cow::Borrowed(model),
        false => Cow::Owned(Model { free_memory: Some(left), ..model.clone() }),
    }
}

/// Free memory of each node without the reservations for memory that follows its threads.
fn unpromised(free: &[Bytes], promised: impl Iterator<Item = (usize, Bytes)>) -> Vec<Bytes> {
    let mut left = free.to_vec();
    for (node, bytes) in promised {
        left[node] = Bytes(left[node].0.saturating_sub(bytes.0));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_not_free() {
        let gib = Bytes::from_gib;
        let promised = [(0, gib(1)), (1, gib(3)), (0, gib(1))].into_iter();
        assert_eq!(unpromised(&[gib(4), gib(2)], promised), [gib(2), Bytes(0)]);
    }
}
