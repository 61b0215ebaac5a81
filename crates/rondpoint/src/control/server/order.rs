//! The order in which waiting clients are answered.

use std::collections::BTreeMap;

use super::{Id, MOST};

/// A connection, as the order of answers sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) id: Id,
    pub(super) user: u32,
    pub(super) pid: u32,
    /// Number of the event when its waiting call was first seen.
    pub(super) arrived: Option<u64>,
    /// Number of the event when its last call was taken; 0 before the first.
    pub(super) taken: u64,
}

/// Notes that a call of a user was taken. Users whose last calls are the oldest are forgotten.
pub(super) fn note_taken(taken: &mut BTreeMap<u32, u64>, user: u32, event: u64) {
    taken.insert(user, event);
    if taken.len() > MOST {
        let oldest = taken.iter().min_by_key(|(_, event)| **event).map(|(user, _)| *user);
        oldest.map(|user| taken.remove(&user));
    }
}

/// The waiting connection that is answered next. Users take turns, then the processes of a user,
/// then the connections of a process. The turn of a group comes by its last answer, or by the
/// arrival of its first waiting call if that is later. So no newcomer passes a client that waits.
pub(super) fn next_in_turn(open: &[Standing], taken: &BTreeMap<u32, u64>) -> Option<Id> {
    let users = turns(open, |one| one.user, |one| taken.get(&one.user).copied().unwrap_or(0));
    let processes = turns(open, |one| (one.user, one.pid), |one| one.taken);
    let waiting = open.iter().filter(|one| one.arrived.is_some());
    let first =
        waiting.min_by_key(|one| (users[&one.user], processes[&(one.user, one.pid)], one.arrived));
    first.map(|one| one.id)
}

/// The number of each group's turn.
fn turns<G: Ord>(
    open: &[Standing],
    group: impl Fn(&Standing) -> G,
    taken: impl Fn(&Standing) -> u64,
) -> BTreeMap<G, u64> {
    let mut found: BTreeMap<G, (u64, u64)> = BTreeMap::new();
    for one in open {
        let (last, first) = found.entry(group(one)).or_insert((0, u64::MAX));
        *last = taken(one).max(*last);
        *first = one.arrived.map_or(*first, |at| at.min(*first));
    }
    found.into_iter().map(|(group, (last, first))| (group, last.max(first))).collect()
}
