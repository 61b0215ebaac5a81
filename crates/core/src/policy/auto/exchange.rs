//! What moving threads nearer to their data wins, as far as samples tell where that is.
//!
//! SAM sends a thread to its data, or to memory with room, and another in its place. Where threads
//! share what they use, one comes as much nearer as the other goes away. The price counts both.

use super::veto::Veto;
use crate::cost::{Price, won_by_moving};
use crate::model::{Model, Thread};
use crate::plan::{Action, Proposal, Reason};
use crate::policy::sam::{Phase, SamReason, Side};
use crate::units::Tid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A thread must be sure to win this share of a CPU's time before it moves (our choice). What it
/// fetches anew into the caches of another node takes up to 10 ms, and it stays for a second at
/// least.
const MOVING: f64 = 0.01;

/// Takes out of SAM's proposals the moves that are not worth their price. A thread and the one that
/// makes room for it are one move. What samples do not price stays.
pub(super) fn take_worthless(
    model: &Model,
    proposals: &mut Vec<Proposal>,
) -> Vec<(Proposal, Veto)> {
    let threads: BTreeMap<Tid, &Thread> =
        model.threads.iter().map(|thread| (thread.tid, thread)).collect();
    let mut won: BTreeMap<Tid, Option<Won>> = BTreeMap::new();
    for step in proposals.iter() {
        let Some(Moved { tid, of, phase, from, to }) = moved(step) else { continue };
        let price = threads.get(&tid).and_then(|thread| won_by_moving(thread, from, to));
        let sum = won.entry(of).or_insert(Some(Won::default()));
        *sum = sum.zip(price).map(|(sum, price)| sum.with(price, phase, tid != of));
    }
    let worthless: BTreeMap<Tid, Veto> =
        won.into_iter().filter_map(|(tid, won)| Some((tid, won?.veto()?))).collect();
    if worthless.is_empty() {
        return Vec::new();
    }
    let gone: BTreeSet<Tid> = worthless.keys().copied().collect();
    let mut vetoed = Vec::new();
    proposals.retain(|step| {
        let of = moved(step).map(|moved| moved.of).or_else(|| joined(step));
        let Some(of) = of.filter(|of| gone.contains(of)) else { return true };
        vetoed.push((step.clone(), worthless[&of]));
        false
    });
    vetoed
}

/// One side of a move.
struct Moved {
    tid: Tid,
    /// The thread with the problem.
    of: Tid,
    phase: Phase,
    from: usize,
    to: usize,
}

fn moved(step: &Proposal) -> Option<Moved> {
    let Action::SetAffinity { tid, .. } = step.action else { return None };
    let Reason::Sam(SamReason::Move { phase, side, from, to, .. }) = step.reason else {
        return None;
    };
    let of = match side {
        Side::Mover => tid,
        Side::Partner { of } => of,
    };
    Some(Moved { tid, of, phase, from, to })
}

/// The moving thread that a vetoed thread keeps company.
fn joined(step: &Proposal) -> Option<Tid> {
    match step.reason {
        Reason::Sam(SamReason::Company { of, .. }) => Some(of),
        _ => None,
    }
}

/// What a move wins for all threads that take part.
#[derive(Debug, Clone, Copy)]
struct Won {
    price: Price,
    cost: f64,
    phase: Phase,
    is_exchange: bool,
}

impl Default for Won {
    fn default() -> Self {
        let price = Price { likely: 0.0, least: 0.0 };
        Self { price, cost: 0.0, phase: Phase::Coherence, is_exchange: false }
    }
}

impl Won {
    fn with(self, price: Price, phase: Phase, is_exchange: bool) -> Self {
        Self {
            price: Price {
                likely: self.price.likely + price.likely,
                least: self.price.least + price.least,
            },
            cost: self.cost + MOVING,
            phase,
            is_exchange: self.is_exchange || is_exchange,
        }
    }

    /// Distance is what phase R repairs, and all that an exchange in phase B changes while pages
    /// stay: as many threads ask as before. Phase C is about caches, which this does not price.
    fn veto(self) -> Option<Veto> {
        let is_priced = match self.phase {
            Phase::Remote => true,
            Phase::Bandwidth => self.is_exchange,
            Phase::Coherence => false,
        };
        let Self { price, cost, .. } = self;
        (is_priced && price.least <= cost).then_some(Veto::Worthless { price, cost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::policy::sam::Destination;
    use crate::units::Pid;
    use alloc::vec;

    /// Threads 1 on node 0 and 2 on node 1 change places; `accesses` are their samples of each
    /// node's memory. Returns how many steps are left.
    fn left(phase: Phase, accesses: [[u32; 2]; 2]) -> usize {
        let mut model = Model::empty(2);
        for (index, accesses) in accesses.into_iter().enumerate() {
            let mut thread = Thread::new(Tid(1 + index as u32), 0, index, CpuSet::first(2));
            (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(0.8));
            thread.accesses_by_node = Some(accesses.into());
            model.threads.push(thread);
        }
        let step = |tid: u32, side, from: usize, to: usize| Proposal {
            policy: "sam",
            action: Action::SetAffinity {
                pid: Pid(1),
                tid: Tid(tid),
                cpus: CpuSet::first(2),
                via: Some(to),
            },
            reason: Reason::Sam(SamReason::Move {
                phase,
                destination: Destination::MemoryBound,
                side,
                rate_per_s: 9e6,
                threshold_per_s: 1e6,
                from,
                to,
            }),
        };
        let partner = Side::Partner { of: Tid(1) };
        let mut proposals = vec![step(1, Side::Mover, 0, 1), step(2, partner, 1, 0)];
        let vetoed = take_worthless(&model, &mut proposals);
        assert_eq!(vetoed.len() + proposals.len(), 2);
        proposals.len()
    }

    #[test]
    fn threads_that_share_what_they_use_do_not_change_places() {
        let shared = [[500, 500], [500, 500]];
        assert_eq!(left(Phase::Remote, shared), 0);
        assert_eq!(left(Phase::Bandwidth, shared), 0);
        assert_eq!(left(Phase::Coherence, shared), 2, "that is about caches");
        // One wins what the other loses.
        assert_eq!(left(Phase::Remote, [[100, 900], [100, 900]]), 0);
    }

    #[test]
    fn threads_with_data_of_their_own_do() {
        assert_eq!(left(Phase::Remote, [[100, 900], [900, 100]]), 2);
        assert_eq!(left(Phase::Remote, [[100, 900], [500, 500]]), 2);
        assert_eq!(left(Phase::Remote, [[1, 2], [2, 1]]), 0, "six samples prove nothing");
    }
}
