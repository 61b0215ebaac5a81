//! Free memory that is promised to memory on its way is not free for copies.

use crate::model::Model;
use crate::policy::asymsched::AsymSched;
use crate::units::Bytes;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The model without the free memory that is promised to memory on its way.
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

/// Free memory of each node without what is promised to memory that follows its threads.
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
