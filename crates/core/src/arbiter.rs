//! Chooses among the proposals of all policies: the set of candidates with the largest total gain,
//! each worth more than it costs.
//!
//! The value of a candidate is: lower bound of its gain × belief × expected length of the phase −
//! cost. The arbiter takes the candidate with the largest value and prices the others on top of it.
//! It repeats this until no candidate has a positive value. A candidate is priced again only when
//! it could be the next best. After a promise that came to nothing, a process waits before the next
//! one that is no larger (`promises`).

mod promises;
mod stays;
mod waiting;

use self::promises::VainPromises;
use self::stays::Stays;
use self::waiting::Waiting;
use crate::belief::Belief;
use crate::candidate::{Candidate, candidates};
use crate::cost::{Bill, MoveCosts, PAGE_NS, Placement, Quote, Seen, WORTH_MOVING};
use crate::limits::{MIN_TRIAL_WINDOWS, TRIAL_WINDOW};
use crate::model::Model;
use crate::plan::{
    Action, Choice, Kind, Mechanism, NodeMove, Outcome, Permits, Plan, Proposal, Refusal, Refused,
    StepResult,
};
use crate::topology::Topology;
use crate::trial::{Judged, LEAST_NOISE, Measure, Phase};
use crate::units::{Bytes, Nanos, Pid};
use crate::worth::{Needed, Worth};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Bounds of the expected length of a phase (our choice). A phase is expected to last as long again
/// as it has lasted. The lower bound is short because pages move back as fast as they came.
const HORIZON: (Nanos, Nanos) = (Nanos::from_secs(2), Nanos::from_secs(30));
/// Least time from the last step of a trial to its verdict.
const TRIAL: Nanos = Nanos(TRIAL_WINDOW.0 * MIN_TRIAL_WINDOWS as u64);
/// Pages whose moves make the known time to move a page (our choice: 4 MiB). A call has a price of
/// its own, so the time of a few pages says little of many.
const KNOWN_PAGES: f64 = 1024.0;

/// State that the arbiter keeps from step to step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arbiter {
    belief: Belief,
    /// Measured time to move a page, ns.
    page_ns: Option<f64>,
    /// The present phase of each process.
    phases: BTreeMap<Pid, Phase>,
    promises: VainPromises,
    stays: Stays,
    waiting: Waiting,
}

/// Whether samples were requested that will soon show more of a process.
type Asked<'a> = &'a dyn Fn(Pid) -> bool;

/// A candidate with its price.
struct Offer {
    candidate: Candidate,
    bill: Bill,
    price: Option<Price>,
    /// Number of candidates that were taken before it was priced.
    round: usize,
}

/// What a candidate is worth and promises on top of a placement.
#[derive(Clone, Copy)]
struct Price {
    worth: Worth,
    /// Largest predicted change of a process's speed, up or down.
    change: f64,
}

impl Arbiter {
    /// Updates the phase of each process from an interval.
    pub fn observe(&mut self, model: &Model, topology: &Topology) {
        self.stays.observe(model, topology, HORIZON.1);
        // A phase that began before its process is of an earlier process with the same number.
        let is_same = |pid, began| model.app(pid).is_some_and(|app| app.started <= began);
        self.phases.retain(|pid, phase| is_same(*pid, phase.began));
        let is_known = |pid| self.phases.contains_key(&pid);
        self.belief.forget_all_but(is_known);
        self.promises.forget_all_but(is_known);
        self.waiting.forget_old(is_known, model.at);
        for app in &model.apps {
            let measure = Measure::of(model, app);
            self.promises.take_in(app.pid, &measure, model.at);
            let first = Phase::new(app.started, measure);
            let phase = self.phases.entry(app.pid).or_insert(first);
            phase.take_in(&measure, Nanos(model.at.0.saturating_sub(model.elapsed.0)));
            *phase = phase.next(measure).unwrap_or(*phase);
        }
    }

    /// Whether a gain of this policy waits for a trial of another.
    #[must_use]
    pub fn lets_wait(&self, policy: &str) -> bool {
        self.waiting.is_any(policy)
    }

    /// Learns from trials that ended.
    pub fn judge(&mut self, judged: &[Judged], now: Nanos) {
        for one in judged {
            self.belief.learn(one, now);
            let phase = self.phases.get(&one.pid).map(|phase| phase.measure);
            self.promises.learn(one, phase.unwrap_or_default(), now);
        }
    }

    /// Learns the time to move a page from the outcomes of a plan.
    pub fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for (step, outcome) in plan.results(outcomes) {
            let StepResult::Pages(counts) = &outcome.result else { continue };
            if matches!(step.action, Action::MovePages { .. }) && counts.moved > 0 {
                let pages = counts.moved as f64;
                let each = outcome.spent.0 as f64 / pages;
                let page_ns = self.page_ns.get_or_insert(PAGE_NS);
                *page_ns += pages / (pages + KNOWN_PAGES) * (each - *page_ns);
            }
        }
    }

    /// Chooses among the proposals that `permits` allows now. Returns the steps to carry out, the
    /// most valuable first. Adds the others to `choice`, and what the steps are to bring.
    ///
    /// A trial makes the steps of other policies wait, and a candidate that waits loses its gain
    /// meanwhile. A step of another policy that prolongs or begins a trial must win at least that.
    /// While samples of a process are awaited (`asked`), a step must win [`WORTH_MOVING`] of its
    /// time. Moves of pages with a predicted change below [`LEAST_NOISE`] are exempt: their trial
    /// is open to all policies.
    #[must_use]
    pub fn choose(
        &mut self,
        seen: Seen<'_>,
        proposals: Vec<Proposal>,
        permits: Permits<'_>,
        asked: Asked<'_>,
        choice: &mut Choice,
    ) -> Vec<Proposal> {
        let (found, mut steps) = candidates(proposals);
        let mut permitted = Vec::with_capacity(found.len());
        for one in &found {
            one.claims.iter().for_each(|pid| self.waiting.forget(*pid, one.policy));
        }
        for candidate in found {
            let (candidate, refused) = candidate.permitted(permits);
            let waits = refused.iter().any(|one| one.refusal == Refusal::TrialRunning);
            match candidate.steps.is_empty() {
                true if waits => self.let_wait(seen, candidate, &refused, asked),
                true => {}
                false => permitted.push(candidate),
            }
            choice.refused.extend(refused);
        }
        let mut placement = Placement::unchanged();
        let mut offers = Vec::with_capacity(permitted.len());
        for candidate in permitted {
            let bill = self.bill(seen, &candidate);
            let price = self.price(seen, &placement, &candidate, &bill, asked);
            match price.and_then(|price| self.vain_wait(&candidate, price, seen.model.at)) {
                Some(left) => choice.refused.extend(refused(candidate, Refusal::InVain { left })),
                None => offers.push(Offer { candidate, bill, price, round: 0 }),
            }
        }
        // In one step, one policy changes a process, by all its mechanisms with a positive value.
        let mut claimed: BTreeMap<Pid, &'static str> = BTreeMap::new();
        let mut round = 0;
        while let Some(best) = best_of(&offers) {
            let offered = &offers[best].candidate;
            let by_other = |pid| claimed.get(pid).is_some_and(|policy| *policy != offered.policy);
            if offered.claims.iter().any(by_other) {
                let taken = offers.swap_remove(best);
                choice.refused.extend(refused(taken.candidate, Refusal::Conflict));
                continue;
            }
            if offers[best].round < round {
                let Offer { candidate, bill, .. } = &offers[best];
                let price = self.price(seen, &placement, candidate, bill, asked);
                (offers[best].price, offers[best].round) = (price, round);
                continue;
            }
            let Offer { candidate: taken, bill, .. } = offers.swap_remove(best);
            placement = bill.after(seen, placement);
            claimed.extend(taken.claims.into_iter().map(|pid| (pid, taken.policy)));
            steps.extend(taken.steps);
            round += 1;
        }
        for offer in offers {
            let worth = offer.price.map(|price| price.worth);
            choice.refused.extend(refused(offer.candidate, Refusal::Worth { worth }));
        }
        if round > 0 {
            let quote = Quote::between(seen.facts, &Placement::unchanged(), &placement);
            let likely = quote.changes.iter().map(|change| (change.pid, change.speed.likely));
            choice.predicted = likely.collect();
        }
        steps
    }

    /// Longest wait of a candidate's processes for a promise of this size.
    fn vain_wait(&self, candidate: &Candidate, price: Price, now: Nanos) -> Option<Nanos> {
        let left = |pid: &Pid| self.promises.left(*pid, price.change, now);
        candidate.claims.iter().filter_map(left).max()
    }

    /// Price of a candidate on top of a placement; `None` if it cannot be priced.
    fn price(
        &self,
        seen: Seen<'_>,
        placement: &Placement,
        candidate: &Candidate,
        bill: &Bill,
        asked: Asked<'_>,
    ) -> Option<Price> {
        let quote = Quote::of(seen, placement, bill);
        if quote.changes.is_empty() {
            return None;
        }
        let now = seen.model.at;
        let claims = candidate.claims.iter().copied();
        let changed = claims.flat_map(|pid| candidate.kinds.iter().map(move |kind| (pid, *kind)));
        let factors =
            changed.map(|(pid, kind)| self.belief.factor(pid, candidate.policy, kind, now));
        let asked = candidate.claims.iter().filter(|pid| asked(**pid));
        let cpus = asked.filter_map(|pid| seen.model.app(*pid)).map(|app| app.cpu_percent / 100.0);
        let lasts = candidate.claims.iter().map(|pid| self.horizon(*pid, &candidate.kinds, now));
        let horizon_s = lasts.min().unwrap_or(HORIZON.0).seconds();
        let waits = |pid: &Pid| self.waiting.beside(*pid, candidate.policy);
        let waiting: f64 = candidate.claims.iter().map(waits).sum();
        let changes = quote.changes.iter().map(|change| change.speed.likely.abs());
        let change = changes.fold(0.0, f64::max);
        // Threads wait all the same, because samples may name a partner that they would leave.
        let is_free = change < LEAST_NOISE && !candidate.kinds.contains(&Kind::Affinity);
        let asked = if is_free { 0.0 } else { WORTH_MOVING * cpus.sum::<f64>() };
        let worth = Worth {
            won: quote.won.likely,
            least: quote.won.least,
            needed: Needed::of(asked, waiting * TRIAL.seconds() / horizon_s),
            belief: factors.reduce(f64::min).unwrap_or(1.0),
            horizon_s,
            cost_s: quote.cost_s,
        };
        Some(Price { worth, change })
    }

    fn bill(&self, seen: Seen<'_>, candidate: &Candidate) -> Bill {
        let follows = memory_that_follows(seen, candidate);
        let steps: Vec<&Proposal> = candidate.steps.iter().chain(&follows).collect();
        let before = MoveCosts::of(seen.topology);
        let moving = MoveCosts { page_ns: self.page_ns.unwrap_or(before.page_ns), ..before };
        Bill::of(seen, &steps, &moving)
    }

    /// Notes the gain that the `refused` steps of a candidate lose while they wait for a trial.
    fn let_wait(
        &mut self,
        seen: Seen<'_>,
        mut candidate: Candidate,
        refused: &[Refused],
        asked: Asked<'_>,
    ) {
        candidate.steps.extend(refused.iter().map(|one| one.proposal.clone()));
        let bill = self.bill(seen, &candidate);
        let price = self.price(seen, &Placement::unchanged(), &candidate, &bill, asked);
        let would_win = |price: &Price| {
            price.worth.value() > 0.0 && self.vain_wait(&candidate, *price, seen.model.at).is_none()
        };
        let Some(Price { worth, .. }) = price.filter(would_win) else { return };
        for pid in candidate.claims {
            self.waiting.note(pid, candidate.policy, worth.belief * worth.least, seen.model.at);
        }
    }

    /// Time for which a gain by these kinds of actions is expected to last: the rest of the
    /// process's present phase. Pages at the node that accesses them gain until its threads leave.
    fn horizon(&self, pid: Pid, kinds: &BTreeSet<Kind>, now: Nanos) -> Nanos {
        let lasted = self.phases.get(&pid).map_or(Nanos(0), |phase| now.since(phase.began));
        let phase = lasted.clamp(HORIZON.0, HORIZON.1);
        let depends = kinds.contains(&Kind::Pages(Mechanism::CoLocation));
        let stay = depends.then(|| self.stays.of(pid)).flatten();
        stay.map_or(phase, |stay| stay.min(phase))
    }
}

/// Index of the most valuable offer with a positive value; the first one on a tie.
fn best_of(offers: &[Offer]) -> Option<usize> {
    let value = |(place, offer): (usize, &Offer)| Some((offer.price?.worth.value(), place));
    let winning = offers.iter().enumerate().rev().filter_map(value).filter(|one| one.0 > 0.0);
    winning.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, place)| place)
}

fn refused(candidate: Candidate, refusal: Refusal) -> impl Iterator<Item = Refused> {
    candidate.steps.into_iter().map(move |proposal| Refused { proposal, refusal })
}

/// Moves of memory that a policy will propose after its threads have moved. A placement of threads
/// on other nodes is priced with these moves.
fn memory_that_follows(seen: Seen<'_>, candidate: &Candidate) -> Vec<Proposal> {
    let follows = |pid: &Pid| {
        let held = seen.model.app(*pid)?.memory.as_deref().unwrap_or_default();
        let own = candidate.steps.iter().filter(|step| step.action.pid() == Some(*pid));
        let reason = own.clone().next()?.reason.clone();
        let moves: BTreeSet<_> = own.flat_map(|step| step.reason.memory_follows(held)).collect();
        let memory = Bytes(moves.iter().filter_map(|step| Some(held.get(step.from)?.0)).sum());
        let nodes: Vec<NodeMove> = moves.into_iter().collect();
        let is_any = !nodes.is_empty();
        let action = Action::MoveProcessMemory { pid: *pid, nodes, freeze: false, memory };
        is_any.then_some(Proposal { policy: candidate.policy, action, reason })
    };
    candidate.claims.iter().filter_map(follows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{App, Thread};
    use crate::plan::{PageCounts, Reason};
    use crate::topology::synthetic;
    use crate::trial::Verdict;
    use crate::units::Tid;

    #[test]
    fn pages_beside_their_threads_gain_only_until_the_threads_leave() {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut model = Model::empty(2);
        model.threads = Vec::from([Thread::new(Tid(1), 0, 0, topology.all_cpus())]);
        model.apps = Vec::from([App::new(Pid(1), 0..1)]);
        (model.at, model.elapsed) = (Nanos::from_secs(60), Nanos::from_millis(100));
        let lasts = |model: &Model, mechanism| {
            let mut arbiter = Arbiter::default();
            (0..50).for_each(|_| arbiter.observe(model, &topology));
            arbiter.horizon(Pid(1), &BTreeSet::from([Kind::Pages(mechanism)]), model.at)
        };
        assert_eq!(lasts(&model, Mechanism::CoLocation), HORIZON.1);
        model.threads[0].cpu_before = Some(2);
        assert!(lasts(&model, Mechanism::CoLocation) < Nanos::from_millis(200));
        assert_eq!(lasts(&model, Mechanism::Interleaving), HORIZON.1, "all nodes use them");
    }

    #[test]
    fn a_new_process_with_the_number_of_an_old_one_is_a_stranger() {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let (mut arbiter, mut model) = (Arbiter::default(), Model::empty(2));
        model.threads = Vec::from([Thread::new(Tid(1), 0, 0, topology.all_cpus())]);
        model.apps = Vec::from([App::new(Pid(1), 0..1)]);
        model.elapsed = Nanos::from_millis(100);
        let mut believed = |model: &Model, judged: &[Judged]| {
            arbiter.observe(model, &topology);
            arbiter.judge(judged, model.at);
            arbiter.belief.factor(Pid(1), "test", Kind::Affinity, model.at)
        };
        let mut vain = Judged { predicted: Some(0.3), ..Judged::sample(Verdict::Unclear, 0.0) };
        vain.comparison.instructions = vain.comparison.combined;
        model.at = Nanos::from_secs(10);
        let first = believed(&model, &[vain]);
        model.at = Nanos::from_secs(11);
        assert!(believed(&model, &[]) < 1.1 * first, "the same process");
        model.apps[0].started = Nanos::from_millis(10_950);
        let stranger = believed(&model, &[]);
        assert!(stranger > 1.5 * first, "only what is known of all counts: {first} {stranger}");
    }

    #[test]
    fn the_time_of_a_few_pages_says_little_of_many() {
        let mut arbiter = Arbiter::default();
        let mut moved_in = |moved: u64, spent: Nanos| {
            let action = Action::MovePages {
                pid: Pid(1),
                mechanism: Mechanism::CoLocation,
                pages: Vec::new(),
            };
            let step = Proposal { policy: "test", action, reason: Reason::Other("a test".into()) };
            let plan = Plan { steps: Vec::from([step]), ..Plan::default() };
            let result = StepResult::Pages(PageCounts { moved, ..PageCounts::default() });
            let outcome = Outcome { plan: plan.number, step: 0, result, spent, frozen: Nanos(0) };
            arbiter.learn(&plan, &[outcome]);
            arbiter.page_ns.expect("pages were moved")
        };
        let many = moved_in(100_000, Nanos::from_millis(5_000));
        assert!((many / 50_000.0 - 1.0).abs() < 0.02, "50 µs a page: {many}");
        let few = moved_in(2, Nanos::from_millis(20));
        assert!((few / many - 1.0).abs() < 0.5, "a call's own price: {few}");
    }
}
