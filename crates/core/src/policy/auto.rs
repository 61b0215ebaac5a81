//! `auto`: all policies at once. Each policy proposes when its lane is due. The cost model prices
//! the proposals, and the arbiter takes the set with the largest gain.
//!
//! A new policy joins `auto` by its line in the table of policies ([`Registered::in_auto`]); `auto`
//! needs no change for it.
//!
//! Some rules do not depend on prices:
//!
//! | rule | module |
//! |---|---|
//! | while memory follows its threads, no other step changes its process | `memory` |
//! | threads stay until samples have named the pairs that exchange data | `naming` |
//! | threads stay if moving their pages wins more and Carrefour decides soon | here |
//! | in one step only one policy changes a process | the arbiter |
//! | knowledge about old nodes is applied to new nodes after threads and memory moved | `renaming` |
//! | a process is sampled at Carrefour's rate, and at the accurate one while a policy waits for samples | `rates` |
//!
//! The guard checks budgets and residence, as for every policy. Trials undo harmful changes.

mod lane;
mod memory;
mod naming;
mod rates;
mod renaming;
mod veto;

pub use veto::Veto;

use self::lane::{CARREFOUR, EPOCH, EPOCHAL, LANES, SAM};
use self::memory::{is_part_of_the_way, reserved};
use self::naming::Naming;
use self::rates::Rates;
use self::renaming::Renaming;
use super::asymsched::{self, AsymSched};
use super::carrefour::Carrefour;
use super::carrefour::preset::STEADY;
use super::sam::{self, STEADY_ABOVE, Sam};
use super::sharing;
use super::views::Views;
use super::{POLICIES, Pace, Policy, Registered};
use crate::arbiter::Arbiter;
use crate::candidate::{has_partner, partners};
use crate::cost::{Facts, Partners, Sampled, Seen};
use crate::model::Model;
use crate::plan::{Choice, Kind, Outcome, Plan, Proposal, Refusal, Refused};
use crate::random::Random;
use crate::topology::Topology;
use crate::trial::Judged;
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "auto",
    about: "all of them: each proposes, the cost model prices, and what wins most is done",
    presets: &["priced"],
    make: |preset| {
        let is_known = preset.is_none_or(|preset| preset == "priced");
        is_known.then(|| Box::new(Auto::default()) as Box<dyn Policy>)
    },
    in_auto: None,
};

/// Intervals without a step of SAM after which SAM decides only once an epoch, with the others. So
/// many intervals make one of its flags steady. Without anything to do, ten observations a second
/// would cost more than the budget for observation.
const CALM: u32 = STEADY_ABOVE + 1;

/// State of the policy.
pub struct Auto {
    sam: Sam,
    asymsched: AsymSched,
    carrefour: Carrefour,
    members: Vec<Box<dyn Policy>>,
    naming: Naming,
    rates: Rates,
    renaming: Renaming,
    arbiter: Arbiter,
    /// Decisions of SAM since one of its moves was chosen or samples were requested to name
    /// partners.
    calm: u32,
    choice: Choice,
}

impl Auto {
    /// The policy with these members beside SAM, AsymSched and Carrefour.
    #[must_use]
    pub fn with_members(members: Vec<Box<dyn Policy>>) -> Self {
        Self {
            sam: Sam::new(sam::Preset::WITH_HOMES),
            asymsched: AsymSched::new(asymsched::Preset::MEASURED),
            carrefour: Carrefour::new(STEADY.clone()),
            members,
            naming: Naming::default(),
            rates: Rates::default(),
            renaming: Renaming::default(),
            arbiter: Arbiter::default(),
            calm: 0,
            choice: Choice::default(),
        }
    }

    /// The proposals of all policies whose lane is due.
    fn generate(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        if let Some(model) = views.due(SAM).filter(|_| views.due(CARREFOUR).is_none()) {
            proposals.extend(self.carrefour.notice(model, topology));
        }
        if let Some(model) = views.due(SAM) {
            proposals.extend(self.sam.propose(model, topology, random));
        }
        proposals.extend(self.pairs(views, topology));
        if let Some(model) = views.due(EPOCHAL) {
            for member in &mut self.members {
                proposals.extend(member.propose(model, topology, random));
            }
            proposals.extend(self.asymsched.propose(model, topology, random));
        }
        if let Some(model) = views.due(CARREFOUR) {
            let free = reserved(model, &self.asymsched);
            proposals.extend(self.carrefour.propose(&free, topology, random));
        }
        proposals
    }

    /// Proposals for pairs of threads that samples named, and sampling rates for naming pairs.
    /// Gains of pairs that wait for a trial are proposed in each look, to follow when it ends.
    fn pairs(&mut self, views: &Views<'_>, topology: &Topology) -> Vec<Proposal> {
        let over = views.due(EPOCHAL);
        let is_early = self.naming.is_ripe() || self.arbiter.lets_wait(sharing::NAME);
        let shown = over.or_else(|| views.so_far(EPOCHAL).filter(|_| is_early));
        let mut proposals = Vec::new();
        if let Some(model) = shown {
            self.naming.answer(model, over.is_some(), topology);
            proposals.extend(self.naming.propose(model, topology));
        }
        proposals.extend(self.naming.sample());
        proposals
    }

    /// Separates proposals that need no price: memory that follows its threads goes on, and threads
    /// wait for names of their partners. Returns the steps that are done in any case, and the
    /// proposals to be priced.
    fn without_price(&mut self, proposals: Vec<Proposal>) -> (Vec<Proposal>, Vec<Proposal>) {
        let (mut free, mut open) = (Vec::new(), Vec::new());
        for proposal in proposals {
            let pid = proposal.action.pid();
            let is_asked = pid.is_some_and(|pid| self.naming.is_open(pid));
            let memory_moves = pid.is_some_and(|pid| self.memory_moves(pid));
            if is_asked && goes_alone(&proposal) {
                self.veto(proposal, Veto::SamplesFirst);
            } else if !memory_moves || proposal.action.kind() == Kind::Sampling {
                open.push(proposal);
            } else if is_part_of_the_way(&proposal) {
                free.push(proposal);
            } else {
                self.veto(proposal, Veto::MemoryMoves);
            }
        }
        self.hold_other_halves(&mut open);
        (free, open)
    }

    /// Refuses the halves of exchanges whose other half is vetoed: both threads move or neither.
    fn hold_other_halves(&mut self, open: &mut Vec<Proposal>) {
        let waiting = partners(&self.choice.refused);
        let is_half = |step: &mut Proposal| {
            step.policy == sam::REGISTERED.name && has_partner(step, &waiting)
        };
        let refused = |proposal| Refused { proposal, refusal: Refusal::PartnerRefused };
        self.choice.refused.extend(open.extract_if(.., is_half).map(refused));
    }

    /// Moves of pages that Carrefour would propose now, though its lane is not due. If they win
    /// more than moves of threads, the threads stay, because a moved thread makes samples of its
    /// pages useless.
    fn later(
        &self,
        views: &Views<'_>,
        topology: &Topology,
        random: &Random,
        open: &[Proposal],
    ) -> Vec<Proposal> {
        let moves_threads = open.iter().any(|one| one.action.kind() == Kind::Affinity);
        let model = views.so_far(CARREFOUR).filter(|_| views.due(CARREFOUR).is_none());
        let Some(model) = model.filter(|_| moves_threads) else { return Vec::new() };
        let free = reserved(model, &self.asymsched);
        let mut proposals = self.carrefour.clone().propose(&free, topology, &mut random.clone());
        proposals.retain(|one| one.action.kind().moves_pages());
        proposals
    }

    /// Removes the chosen steps that Carrefour will propose later, and vetoes the proposals that
    /// wait for them.
    fn leave_for_later(&mut self, chosen: Vec<Proposal>, later: &[Proposal]) -> Vec<Proposal> {
        // A step from which the guard took pages is done at once.
        let is_later = |one: &Proposal| later.contains(one);
        let (waits, now): (Vec<_>, Vec<_>) = chosen.into_iter().partition(is_later);
        let pids: BTreeSet<Pid> = waits.iter().filter_map(|step| step.action.pid()).collect();
        self.choice.refused.retain(|one| !is_later(&one.proposal));
        if !waits.is_empty() {
            // It was predicted for all chosen steps together.
            self.choice.predicted.clear();
        }
        for one in &mut self.choice.refused {
            let gives_way = one.proposal.action.pid().is_some_and(|pid| pids.contains(&pid));
            if gives_way && matches!(one.refusal, Refusal::Conflict) {
                one.refusal = Refusal::Vetoed { veto: Veto::PagesFirst };
            }
        }
        now
    }

    /// Whether memory of a process follows its threads.
    fn memory_moves(&self, pid: Pid) -> bool {
        let mut members = self.members.iter();
        self.asymsched.moves_memory(pid) || members.any(|one| one.is_under_way(pid))
    }

    /// Replaces the requests for sampling rates by the rates that all policies together need.
    fn set_rates(&mut self, steps: &mut Vec<Proposal>) {
        let waits = |pid| {
            let mut members = self.members.iter();
            let is_asked = self.naming.is_open(pid) || self.asymsched.wants_samples(pid);
            is_asked || members.any(|one| one.wants_samples(pid))
        };
        self.rates.merge(steps, waits);
    }

    fn veto(&mut self, proposal: Proposal, veto: Veto) {
        self.choice.refused.push(Refused { proposal, refusal: Refusal::Vetoed { veto } });
    }

    fn choose(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        proposals: Vec<Proposal>,
    ) -> Vec<Proposal> {
        if proposals.iter().all(|one| one.action.kind() == Kind::Sampling) {
            return proposals;
        }
        let shown = views.each_due().chain(views.so_far(CARREFOUR));
        let sampled = shown.max_by_key(|model| model.pages.len());
        let model = self.window(views, &proposals);
        let Some((model, pages)) = model.zip(sampled) else { return Vec::new() };
        let facts = Facts::with_partners(model, topology, self.naming.partners());
        let pages = Sampled::of(pages, topology);
        let seen = Seen { model, pages: &pages, topology, facts: &facts };
        let asked = |pid| self.naming.is_open(pid);
        self.arbiter.choose(seen, proposals, views.permits(), &asked, &mut self.choice)
    }

    /// The interval by which proposals are priced. Pages are priced by the interval in which they
    /// were sampled, because an earlier serial phase, for example, used them otherwise. Threads are
    /// priced by the time since the last epoch, because a tenth of a second has too few counts.
    fn window<'a>(&self, views: &'a Views<'_>, proposals: &[Proposal]) -> Option<&'a Model> {
        let moves_pages = proposals.iter().any(|one| one.action.kind().moves_pages());
        if let Some(model) = views.due(CARREFOUR).filter(|_| moves_pages) {
            return Some(model);
        }
        let longest = views.each_due().max_by_key(|model| model.elapsed);
        if longest.is_some_and(|model| model.elapsed >= EPOCH) {
            return longest;
        }
        views.so_far(EPOCHAL).filter(|model| model.elapsed > Nanos(0)).or(longest)
    }

    fn look(&mut self, model: &Model, topology: &Topology) {
        self.choice = Choice::default();
        self.naming.observe(model, self.sam.thresholds(topology).coherence);
        for renamed in self.renaming.take(model) {
            self.sam.rename(topology, &renamed);
            self.members.iter_mut().for_each(|member| member.rename(topology, &renamed));
        }
        self.rates.observe(model);
        self.arbiter.observe(model, topology);
    }
}

impl Default for Auto {
    /// The policy with all members of the table.
    fn default() -> Self {
        let members = POLICIES.iter().filter_map(|policy| policy.in_auto);
        Self::with_members(members.map(|make| make()).collect())
    }
}

impl Policy for Auto {
    fn propose(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        self.propose_due(&Views::all_due(LANES, model), topology, random)
    }

    fn propose_due(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        let Some(model) = views.due(SAM) else { return Vec::new() };
        self.look(model, topology);
        let proposals = self.generate(views, topology, random);
        let (mut steps, mut open) = self.without_price(proposals);
        let later = self.later(views, topology, random, &open);
        open.extend(later.iter().cloned());
        let chosen = self.choose(views, topology, open);
        steps.extend(self.leave_for_later(chosen, &later));
        let moves = |step: &Proposal| step.policy == sam::REGISTERED.name;
        let is_calm = !steps.iter().any(moves) && !self.naming.wants_touches();
        self.calm = if is_calm { self.calm.saturating_add(1) } else { 0 };
        self.set_rates(&mut steps);
        steps
    }

    fn judge(&mut self, judged: &[Judged], now: Nanos) {
        self.arbiter.judge(judged, now);
        self.members.iter_mut().for_each(|member| member.judge(judged, now));
    }

    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        self.renaming.learn(plan, outcomes);
        self.asymsched.learn(plan, outcomes);
        self.members.iter_mut().for_each(|member| member.learn(plan, outcomes));
        self.carrefour.learn(plan, outcomes);
        self.arbiter.learn(plan, outcomes);
    }

    fn take_choice(&mut self) -> Choice {
        core::mem::take(&mut self.choice)
    }

    fn is_under_way(&self, pid: Pid) -> bool {
        self.asymsched.is_under_way(pid) || self.memory_moves(pid)
    }

    fn begins_anew(&mut self, lane: usize) -> bool {
        lane == CARREFOUR && self.carrefour.take_noticed()
    }

    fn wake(&mut self) -> Vec<Proposal> {
        self.calm = 0;
        let mut proposals = self.carrefour.look_again();
        self.set_rates(&mut proposals);
        proposals
    }

    fn wants_touches(&self) -> bool {
        self.naming.wants_touches()
    }

    fn partners(&self) -> Option<&Partners> {
        Some(self.naming.partners())
    }

    fn full_sampling(&self) -> Option<u64> {
        self.carrefour.full_sampling()
    }

    fn lanes(&self) -> usize {
        LANES
    }

    fn pace(&self, lane: usize) -> Pace {
        let mut members = self.members.iter();
        let is_moving = self.asymsched.is_any_moving() || members.any(|one| one.is_any_under_way());
        let is_calm = self.calm >= CALM;
        let others = match is_calm && !is_moving {
            true => self.carrefour.period().clamp(EPOCH, lane::LONGEST_PERIOD),
            false => EPOCH,
        };
        match lane {
            SAM if is_calm => Pace::every(lane::LONGEST_PERIOD),
            SAM => self.sam.pace(0),
            CARREFOUR => Pace { shortest: lane::SOON, ..self.carrefour.pace(0) },
            _ => Pace::every(others),
        }
    }

    fn period(&self) -> Nanos {
        (0..LANES).map(|lane| self.pace(lane).period).min().unwrap_or(EPOCH)
    }

    fn settles_within(&self) -> Nanos {
        lane::SETTLES_WITHIN
    }
}

/// Whether a step moves a single thread, not as a part of an indivisible placement.
fn goes_alone(step: &Proposal) -> bool {
    step.action.kind() == Kind::Affinity && !step.reason.moves_all_threads()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::plan::{Action, Mechanism, PageMove, Reason};
    use crate::policy::sam::{Destination, Phase, SamReason, Side};
    use crate::units::Tid;
    use alloc::collections::BTreeMap;
    use alloc::string::ToString;
    use alloc::vec;

    fn step(policy: &'static str, action: Action) -> Proposal {
        Proposal { policy, action, reason: Reason::Other("a test".to_string()) }
    }

    fn pages(pid: u32) -> Proposal {
        let pages = vec![PageMove { address: 4096, shift: 12, from: 0, to: 1 }];
        let mechanism = Mechanism::CoLocation;
        step("carrefour", Action::MovePages { pid: Pid(pid), mechanism, pages })
    }

    fn thread(pid: u32) -> Proposal {
        let (pid, tid, cpus) = (Pid(pid), Tid(pid), CpuSet::first(1));
        step("sam", Action::SetAffinity { pid, tid, cpus, via: None })
    }

    #[test]
    fn an_exchange_waits_if_its_other_half_does() {
        let partner = |of: u32| {
            Reason::Sam(SamReason::Move {
                phase: Phase::Remote,
                destination: Destination::Homeward,
                side: Side::Partner { of: Tid(of) },
                rate_per_s: 1.0,
                threshold_per_s: 1.0,
                from: 0,
                to: 1,
            })
        };
        let left = |vetoed: Proposal, mut open: Vec<Proposal>| {
            let mut auto = Auto::default();
            auto.veto(vetoed, Veto::MemoryMoves);
            auto.hold_other_halves(&mut open);
            open
        };
        let half = Proposal { reason: partner(1), ..thread(2) };
        assert_eq!(left(thread(1), vec![half.clone(), thread(3)]), [thread(3)]);
        assert_eq!(left(half, vec![thread(1), thread(3)]), [thread(3)]);
        let other = Proposal { policy: "home", ..thread(1) };
        assert_eq!(left(thread(1), vec![other.clone()]), [other], "of another policy");
    }

    #[test]
    fn what_is_done_later_is_not_done_now_and_its_threads_are_told_why() {
        let mut auto = Auto::default();
        let conflict = |proposal| Refused { proposal, refusal: Refusal::Conflict };
        auto.choice.refused = vec![conflict(thread(1)), conflict(thread(2)), conflict(pages(3))];
        auto.choice.predicted = BTreeMap::from([(Pid(1), 0.2)]);
        let later = [pages(1), pages(3)];
        let now = auto.leave_for_later(vec![pages(1), thread(4)], &later);
        assert_eq!(now, [thread(4)]);
        assert!(auto.choice.predicted.is_empty(), "it was of the pages too");
        let told: Vec<_> =
            auto.choice.refused.iter().map(|one| (&one.proposal, one.refusal)).collect();
        let waits = Refusal::Vetoed { veto: Veto::PagesFirst };
        assert_eq!(told, [(&thread(1), waits), (&thread(2), Refusal::Conflict)]);
    }
}
