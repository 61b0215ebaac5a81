//! Groups proposals into candidates: steps that are done together or not at all, with the processes
//! that they change.

use crate::plan::{Action, Kind, Permits, Proposal, Refusal, Refused};
use crate::units::{Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Steps of one policy that are done together or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The policy that proposed them.
    pub policy: &'static str,
    /// In the policy's order.
    pub steps: Vec<Proposal>,
    /// Processes that it changes: no other candidate changes them in the same step.
    pub claims: BTreeSet<Pid>,
    /// Kinds of its actions.
    pub kinds: BTreeSet<Kind>,
}

impl Candidate {
    /// The steps that the guard permits now, and the refused steps with their reasons.
    ///
    /// Pages that moved a moment ago stay, and so do threads, each with its partner. The rest is
    /// worth what it brings without them. Any other refusal stops all steps but moves of pages.
    #[must_use]
    pub fn permitted(mut self, permits: Permits<'_>) -> (Self, Vec<Refused>) {
        let in_parts = self.kinds.iter().all(|kind| kind.moves_pages());
        let mut refused = Vec::new();
        for step in core::mem::take(&mut self.steps) {
            let permitted = permits(step);
            self.steps.extend(permitted.step);
            refused.extend(permitted.refused);
        }
        let stops = |one: &&Refused| {
            !one.refusal.is_of_subject() || one.proposal.reason.moves_all_threads()
        };
        let stop = refused.iter().find(stops).map(|one| one.refusal).filter(|_| !in_parts);
        let partners = partners(&refused);
        let stays = |step: &mut Proposal| stop.is_some() || has_partner(step, &partners);
        let stay = self.steps.extract_if(.., stays);
        let refusal = stop.unwrap_or(Refusal::PartnerRefused);
        refused.extend(stay.map(|proposal| Refused { proposal, refusal }));
        (self, refused)
    }
}

/// Threads of steps, and those that they were to change places with.
pub(crate) fn partners(refused: &[Refused]) -> BTreeSet<Tid> {
    let of = |one: &Refused| [one.proposal.action.tid(), one.proposal.reason.exchanged_with()];
    refused.iter().flat_map(of).flatten().collect()
}

/// Whether a step is the other half of an exchange with one of these threads.
pub(crate) fn has_partner(step: &Proposal, threads: &BTreeSet<Tid>) -> bool {
    let either = [step.action.tid(), step.reason.exchanged_with()];
    either.into_iter().flatten().any(|tid| threads.contains(&tid))
}

/// Returns proposals as candidates, in the order of their first steps. Also returns the steps that
/// need no price: sampling rates, and copies of pages that are only dropped.
///
/// One candidate holds steps that belong together:
/// - all proposals of a policy for one process, but one candidate for each mechanism that moves
///   pages;
/// - both halves of an exchange;
/// - a thread that stays in place and the thread that joins it;
/// - copies that are dropped, and the move of all memory before which they are dropped;
/// - an indivisible placement of several processes.
#[must_use]
pub fn candidates(proposals: Vec<Proposal>) -> (Vec<Candidate>, Vec<Proposal>) {
    let together = Together::of(&proposals);
    let mut place: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut found, mut free): (Vec<Candidate>, Vec<Proposal>) = (Vec::new(), Vec::new());
    for (index, step) in proposals.into_iter().enumerate() {
        let Some(root) = together.root(index) else {
            free.push(step);
            continue;
        };
        let at = *place.entry(root).or_insert_with(|| {
            found.push(Candidate {
                policy: step.policy,
                steps: Vec::new(),
                claims: BTreeSet::new(),
                kinds: BTreeSet::new(),
            });
            found.len() - 1
        });
        found[at].claims.extend(step.action.pid());
        found[at].kinds.insert(step.action.kind());
        found[at].steps.push(step);
    }
    // A candidate that only drops copies needs no price.
    let is_priced = |one: &Candidate| {
        one.steps.iter().any(|step| !matches!(step.action, Action::Unreplicate { .. }))
    };
    let (priced, other): (Vec<_>, Vec<_>) = found.into_iter().partition(is_priced);
    free.extend(other.into_iter().flat_map(|one| one.steps));
    (priced, free)
}

/// Which proposals belong together: a forest of parents (union-find).
struct Together {
    parent: Vec<Option<usize>>,
}

/// What a proposal has in common with others of its candidate.
type Key = (&'static str, Option<Pid>, Option<Kind>);

impl Together {
    fn of(proposals: &[Proposal]) -> Self {
        let is_free = |step: &Proposal| step.action.kind() == Kind::Sampling;
        let parent = |(index, step)| (!is_free(step)).then_some(index);
        let mut together = Self { parent: proposals.iter().enumerate().map(parent).collect() };
        let mut first: BTreeMap<Key, usize> = BTreeMap::new();
        let mut of_thread: BTreeMap<(&str, Tid), usize> = BTreeMap::new();
        for (index, step) in proposals.iter().enumerate().filter(|(_, step)| !is_free(step)) {
            if let Some(tid) = step.action.tid() {
                of_thread.insert((step.policy, tid), index);
            }
            let other = *first.entry(key(step)).or_insert(index);
            together.join(index, other);
        }
        for (index, step) in proposals.iter().enumerate() {
            let with = step.reason.exchanged_with().or_else(|| step.reason.joined_by());
            if let Some(other) = with.and_then(|tid| of_thread.get(&(step.policy, tid))) {
                together.join(index, *other);
            }
        }
        together
    }

    fn root(&self, mut index: usize) -> Option<usize> {
        while let Some(parent) = self.parent[index] {
            if parent == index {
                return Some(index);
            }
            index = parent;
        }
        None
    }

    fn join(&mut self, one: usize, other: usize) {
        if let (Some(one), Some(other)) = (self.root(one), self.root(other)) {
            self.parent[one.max(other)] = Some(one.min(other));
        }
    }
}

fn key(step: &Proposal) -> Key {
    if step.reason.is_indivisible() {
        return (step.policy, None, None);
    }
    // Each mechanism that moves pages is priced by itself. Copies are dropped for another step of
    // their policy, or alone.
    let kind = step.action.kind();
    let is_dropped = matches!(step.action, Action::Unreplicate { .. });
    (step.policy, step.action.pid(), Some(kind).filter(|kind| kind.moves_pages() && !is_dropped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::plan::{Mechanism, PageMove, Permitted, Reason, Sampling};
    use crate::policy::asymsched::{AsymSchedReason, PlacementReason};
    use crate::policy::sam::{Destination, Phase, SamReason, Side};
    use crate::units::Bytes;
    use alloc::string::String;

    fn step(policy: &'static str, action: Action, reason: Reason) -> Proposal {
        Proposal { policy, action, reason }
    }

    fn other() -> Reason {
        Reason::Other(String::from("a test"))
    }

    fn mask(pid: u32, tid: u32) -> Action {
        let (pid, tid) = (Pid(pid), Tid(tid));
        Action::SetAffinity { pid, tid, cpus: CpuSet::first(1), via: None }
    }

    fn pages(pid: u32, mechanism: Mechanism) -> Action {
        let page = PageMove { address: 0, shift: 12, from: 0, to: 1 };
        Action::MovePages { pid: Pid(pid), mechanism, pages: Vec::from([page]) }
    }

    fn shapes(proposals: Vec<Proposal>) -> (Vec<usize>, usize) {
        let (found, free) = candidates(proposals);
        (found.iter().map(|one| one.steps.len()).collect(), free.len())
    }

    #[test]
    fn a_process_is_one_candidate_for_threads_and_one_for_each_way_to_move_pages() {
        let all = Vec::from([
            step("sam", mask(1, 1), other()),
            step("carrefour", pages(1, Mechanism::CoLocation), other()),
            step("sam", mask(1, 2), other()),
            step("carrefour", pages(1, Mechanism::Interleaving), other()),
            step("sam", mask(2, 3), other()),
        ]);
        assert_eq!(shapes(all), (Vec::from([2, 1, 1, 1]), 0));
    }

    #[test]
    fn a_thread_that_stays_for_another_goes_with_it() {
        let company = Reason::Sam(SamReason::Company { of: Tid(1), node: 0 });
        let all = Vec::from([
            step("sam", mask(1, 1), other()),
            step("sam", mask(2, 2), company),
            step("sam", mask(3, 3), other()),
        ]);
        let (found, _) = candidates(all);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].claims, BTreeSet::from([Pid(1), Pid(2)]));
    }

    #[test]
    fn what_two_policies_want_of_the_same_thread_is_two_candidates() {
        let company = Reason::Sam(SamReason::Company { of: Tid(1), node: 0 });
        let all = Vec::from([
            step("sam", mask(1, 1), other()),
            step("sam", mask(1, 2), company),
            step("sharing", mask(1, 1), other()),
        ]);
        assert_eq!(shapes(all), (Vec::from([2, 1]), 0));
    }

    #[test]
    fn looking_and_taking_copies_back_need_no_price() {
        let sampling = Action::SetSampling { pid: Some(Pid(1)), sampling: Sampling::Off };
        let back = Action::Unreplicate { pid: Pid(1), pages: Vec::new() };
        let all =
            Vec::from([step("carrefour", sampling, other()), step("carrefour", back, other())]);
        assert_eq!(shapes(all), (Vec::new(), 2));
    }

    #[test]
    fn copies_go_with_the_move_of_all_memory_before_which_they_are_dropped() {
        let back = Action::Unreplicate { pid: Pid(1), pages: Vec::new() };
        let (nodes, memory) = (Vec::new(), Bytes(1));
        let all = Action::MoveProcessMemory { pid: Pid(1), nodes, freeze: false, memory };
        let steps = Vec::from([step("asymsched", back, other()), step("asymsched", all, other())]);
        assert_eq!(shapes(steps), (Vec::from([2]), 0));
    }

    #[test]
    fn the_pins_of_staying_threads_are_part_of_a_placement() {
        let placement = AsymSchedReason::Placement(PlacementReason::default());
        let staying = AsymSchedReason::Staying { node: 1 };
        let steps = Vec::from([
            step("asymsched", mask(1, 1), Reason::AsymSched(placement)),
            step("asymsched", mask(1, 2), Reason::AsymSched(staying)),
        ]);
        assert_eq!(shapes(steps), (Vec::from([2]), 0));
    }

    /// The threads that still move when the moves of `threads` are refused, and the number of
    /// refused steps.
    fn left(steps: Vec<Proposal>, threads: &[u32], refusal: Refusal) -> (Vec<u32>, usize) {
        let (mut found, _) = candidates(steps);
        let permits = |step: Proposal| match step.action.tid() {
            Some(Tid(tid)) if threads.contains(&tid) => {
                let refused = Vec::from([Refused { proposal: step, refusal }]);
                Permitted { step: None, refused }
            }
            _ => Permitted::all(step),
        };
        let (left, refused) = found.remove(0).permitted(&permits);
        let tids = left.steps.iter().filter_map(|step| step.action.tid()).map(|Tid(tid)| tid);
        (tids.collect(), refused.len())
    }

    #[test]
    fn a_thread_that_moved_a_moment_ago_stays_with_its_partner_and_the_others_go() {
        let half = Reason::Sam(SamReason::Move {
            phase: Phase::Remote,
            destination: Destination::Homeward,
            rate_per_s: 1.0,
            threshold_per_s: 1.0,
            from: 0,
            to: 1,
            side: Side::Partner { of: Tid(1) },
        });
        let steps = || {
            Vec::from([
                step("sam", mask(1, 1), other()),
                step("sam", mask(1, 2), half.clone()),
                step("sam", mask(1, 3), other()),
            ])
        };
        let moved = Refusal::PingPong { moves: 3 };
        assert_eq!(left(steps(), &[1], moved), (Vec::from([3]), 2), "its partner stays");
        assert_eq!(left(steps(), &[2], moved), (Vec::from([3]), 2), "and the other way round");
        assert_eq!(left(steps(), &[3], moved), (Vec::from([1, 2]), 1));
        assert_eq!(left(steps(), &[3], Refusal::TrialRunning), (Vec::new(), 3));
    }
}
