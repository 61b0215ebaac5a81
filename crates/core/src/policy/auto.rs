//! `auto`: all four policies at once, each in a lane of its own, in one order and with rules for
//! where they contradict each other. In `auto:priced` prices choose instead: see [`priced`].
//!
//! The order of a step (ALGORITHMS 5.3): SAM every 100 ms while it finds something to do, else with
//! the others. Then, once a second: N-MASS for processes that exchange no data, AsymSched, and
//! Carrefour for processes with threads that have come to rest. The rules (ALGORITHMS 5.4 and 5.6):
//!
//! | rule | where |
//! |---|---|
//! | a flag counts when it was set in more than 3 of the last 16 intervals | `flags` |
//! | coherence first: N-MASS has no thread that exchanges data | `flags` |
//! | what N-MASS left remote and Carrefour then made local settles for 5 epochs | `history` |
//! | one policy per process per step; the pages of the process then wait two epochs | here, `history` |
//! | data comes to a thread that has rested for two epochs if it is private and that costs at most 5 % of the run time, else the thread goes | `own_data` |
//! | the same at once, for a thread that was nowhere else, where the controller of its data is busier than its own, and for N-MASS too | `own_data` |
//! | where bandwidth differs, threads that use each other's memory from several nodes stay there but for coherence | here |
//! | a thread goes to its data only if clearly more of what it or its node asks for is there than here | `nearer` |
//! | where there are samples and more than two nodes, a thread goes to its data only if they say where that is | `flags` |
//! | threads that would change places do so only if samples prove that both together win more than that costs | `exchange` |
//! | a thread goes to its data only if there is room for all threads with their data there; else pages have to go | `flags` |
//! | phase C leaves threads that were brought together and exchange as much as before, for longer each time | `sharing_feedback` |
//! | where there are samples, pages that two threads touched name the partners before phase C; SAM leaves those together | `partners` |
//! | N-MASS does not weigh caches in a step in which SAM moves threads between them | here |
//! | phase R does not take back a thread that N-MASS sent away from its data | `history` |
//! | where threads take turns on CPUs the policy `home` has them, and SAM, which reckons with one on each, none | here |
//! | once the kernel has taken a thread from its data, the others of the process that are at home stay there | `sam`'s preset `WITH_HOMES` |
//! | above 20 % interleaved pages, remote accesses move no thread and join no nodes | `history` |
//! | after a change of nodes what was learnt of them is relabelled, and the samples of that epoch are dropped | here |
//! | memory that follows its threads has the process for itself; copies of pages are taken back first | here |
//! | memory that is on its way is not free for copies | here |
//! | samples are as many as Carrefour wants, and while memory follows threads or threads are to be named as many as there may be | `rates` |
//!
//! N-MASS counts a process that it may not move as staying, with its core and its share of the
//! cache. A vetoed proposal is told with its rule ([`Veto`]). Budgets, residence and undoing are
//! the guard's, as for every policy. The asymmetry and the span that AsymSched needs are its own
//! tests. Each policy leaves out in its own algorithm what it must leave. So it does not reckon
//! with a move that will not be made.
//! Not taken from the document: SAM may also move threads to nodes that a process does not occupy.

mod claims;
mod exchange;
mod flags;
mod history;
mod lane;
mod naming;
mod nearer;
mod own_data;
mod partners;
mod priced;
mod rates;
mod reserved_memory;
mod sharing_feedback;
mod veto;

pub use veto::Veto;

use self::claims::{claims, memory_moves, unreplicate};
use self::exchange::take_worthless;
use self::flags::Flags;
use self::history::{EPOCH, History};
use self::lane::Pace;
use self::nearer::no_nearer;
use self::own_data::{Data, OwnData};
use self::partners::Partners;
use self::priced::Priced;
use self::rates::Rates;
use self::reserved_memory::reserved;
use self::sharing_feedback::{SharingFeedback, by_counters};
use super::asymsched::{self, AsymSched};
use super::carrefour::Carrefour;
use super::carrefour::preset::{FINAL, Feedback, LP, Preset as CarrefourPreset, STEADY};
use super::home::Home;
use super::nmass::{self, NMass};
use super::sam::{self, Flagged, Phase, STEADY_ABOVE, Sam};
use super::views::Views;
use super::{Policy, Registered};
use crate::model::{App, Model};
use crate::plan::{Action, Kind, Outcome, Plan, Proposal, Refusal, Refused};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Nanos, Pid, Tid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "auto",
    about: "all four: SAM, N-MASS, AsymSched and Carrefour, with rules for where they contradict each other",
    presets: &["priced", "steady", "published"],
    make: |preset| {
        let carrefour = match preset {
            None | Some("priced") => return Some(Box::new(Priced::new())),
            Some("steady") => &STEADY,
            Some("published") => &FINAL,
            Some(_) => return None,
        };
        Some(Box::new(Auto::new(carrefour)) as Box<dyn Policy>)
    },
};

/// State of the policy.
#[derive(Debug, Clone)]
pub struct Auto {
    sam: Sam,
    nmass: NMass,
    asymsched: AsymSched,
    carrefour: Carrefour,
    home: Home,
    flags: Flags,
    feedback: SharingFeedback,
    partners: Partners,
    history: History,
    owned: OwnData,
    rates: Rates,
    /// Intervals since SAM last wanted a thread elsewhere for which that may be so in the next.
    calm: u32,
    vetoed: Vec<Refused>,
}

/// Intervals without a wish of SAM after which it is asked with the others, once an epoch: as many
/// as make a flag steady. Ten looks a second cost more than the budget for watching where there is
/// nothing to do. A wish that is not steady yet brings them back.
const CALM: u32 = STEADY_ABOVE + 1;
/// The shortest interval after which pages may move (our choice: SAM's).
const SOON: Nanos = Nanos::from_millis(100);
/// Longest time until Carrefour tries again what was of no use (our choice: that of its tenure).
const LONGEST_WAIT: Nanos = Nanos::from_secs(60);
/// Longest time between two looks, however quiet Carrefour is (our choice: that of [`STEADY`]).
const LONGEST_PERIOD: Nanos = STEADY.quiet_period;

impl Auto {
    /// A policy that has seen nothing yet. Carrefour gets the feedback of Carrefour-LP. A mechanism
    /// that found pages to move and did not help is off for the next round, after a longer period
    /// [ALGORITHMS 5.6].
    #[must_use]
    pub fn new(carrefour: &CarrefourPreset) -> Self {
        let carrefour = CarrefourPreset {
            feedback: LP.feedback.map(|lp| Feedback {
                by_latency: true,
                only_where_asked: true,
                waits_only_where_idle: true,
                longest_wait: Some(LONGEST_WAIT),
                ..lp
            }),
            idle_period: LP.idle_period,
            ..carrefour.clone()
        };
        Self {
            sam: Sam::new(sam::Preset::WITH_HOMES),
            nmass: NMass::new(nmass::Preset::STEADY),
            // A stock kernel moves memory with its own call: what that takes is measured.
            asymsched: AsymSched::new(asymsched::Preset::MEASURED),
            carrefour: Carrefour::new(carrefour),
            home: Home::default(),
            flags: Flags::default(),
            feedback: SharingFeedback::of(by_counters),
            partners: Partners::default(),
            history: History::default(),
            owned: OwnData::default(),
            rates: Rates::default(),
            calm: 0,
            vetoed: Vec::new(),
        }
    }

    /// After a change of nodes, what was learnt of the old ones holds for the new ones.
    fn relabel(&mut self, topology: &Topology) {
        for (pid, permuted) in self.history.take_permuted() {
            let image = |node| permuted.image(node);
            self.flags.relabel(&permuted.tids, image);
            self.sam.relabel(topology, &permuted.tids, image);
            self.nmass.relabel(topology, pid, image);
            self.home.relabel(&permuted.tids, image);
            self.owned.forget(pid);
        }
    }

    fn veto(&mut self, vetoed: impl IntoIterator<Item = (Proposal, Veto)>) {
        let refused = vetoed
            .into_iter()
            .map(|(proposal, veto)| Refused { proposal, refusal: Refusal::Vetoed { veto } });
        self.vetoed.extend(refused);
    }

    /// SAM's step.
    fn share(&mut self, model: &Model, topology: &Topology) -> Vec<Proposal> {
        let Self {
            sam, flags, feedback, partners, history, owned, asymsched, carrefour, home, ..
        } = self;
        let data = Data { model, topology, flags, history, owned, asymsched, carrefour };
        let homeward = |flagged: &Flagged| {
            let app = model.app(flagged.pid?)?;
            memory_moves(asymsched, app.pid)
                .or_else(|| history.interleaved(app))
                .or_else(|| history.left_remote(app))
                .or_else(|| flags.home_unknown(flagged.home, topology))
                .or_else(|| flags.no_room(flagged.home?, topology))
                .or_else(|| no_nearer(model, topology, flagged))
                .or_else(|| data.comes(app, flagged.tid, flagged.home?, flagged.node))
        };
        let stays = |flagged: &Flagged| {
            let app = model.app(flagged.pid?)?;
            asymsched.chooses_nodes_of(app, model, topology).then_some(Veto::NodesAreChosen)
        };
        let (mut proposals, mut vetoed) =
            sam.propose_unless(model, topology, |flagged: &Flagged| {
                let by_phase = || match flagged.phase {
                    Phase::Coherence => feedback.in_vain(flagged.pid?),
                    Phase::Remote => homeward(flagged).or_else(|| stays(flagged)),
                    Phase::Bandwidth => stays(flagged),
                };
                let sampled = || {
                    let pid = flagged.pid?;
                    partners.samples_first(pid).or_else(|| partners.together(pid, flagged.tid))
                };
                let take_turns = || home.crowded(flagged.pid?).map(Veto::TakeTurns);
                let steady = flags.not_steady(flagged.tid, flagged.phase);
                steady.or_else(take_turns).or_else(sampled).or_else(by_phase)
            });
        vetoed.extend(take_worthless(model, &mut proposals));
        let is_judging = feedback.is_judging() || partners.is_judging();
        let is_calm =
            !is_judging && proposals.is_empty() && vetoed.iter().all(|(_, veto)| veto.lasts());
        self.calm = if is_calm { self.calm.saturating_add(1) } else { 0 };
        self.veto(vetoed);
        proposals
    }

    /// What samples name, and the samples for it, of processes that no other policy claims.
    fn pair(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        claimed: &BTreeMap<Pid, Veto>,
    ) -> Vec<Proposal> {
        let Self { sam, feedback, partners, asymsched, .. } = self;
        let is_left = |app: &App| {
            claimed.contains_key(&app.pid)
                || feedback.is_judged(app.pid)
                || memory_moves(asymsched, app.pid).is_some()
        };
        let above = sam.thresholds(topology).coherence;
        let over = views.due(lane::SHARING);
        let is_ripe = partners.is_ripe();
        let shown = over.or_else(|| views.so_far(lane::SHARING).filter(|_| is_ripe));
        let propose = |shown| partners.propose(shown, over.is_some(), topology, above, is_left);
        let mut proposals = shown.map(propose).unwrap_or_default();
        proposals.extend(partners.sample());
        proposals
    }

    /// Threads that take turns, to their data.
    fn settle(
        &mut self,
        model: &Model,
        topology: &Topology,
        claimed: &BTreeMap<Pid, Veto>,
    ) -> Vec<Proposal> {
        let Self { home, partners, history, asymsched, .. } = self;
        let (proposals, vetoed) = home.propose_unless(model, topology, |app, thread| {
            let chosen = || {
                let chooses = asymsched.chooses_nodes_of(app, model, topology);
                chooses.then_some(Veto::NodesAreChosen)
            };
            claimed
                .get(&app.pid)
                .copied()
                .or_else(|| memory_moves(asymsched, app.pid))
                .or_else(|| partners.together(app.pid, thread.tid))
                .or_else(|| history.interleaved(app))
                .or_else(chosen)
        });
        self.veto(vetoed);
        proposals
    }

    /// N-MASS, once an epoch. `claimed` = what SAM does in this step.
    fn balance(
        &mut self,
        model: &Model,
        topology: &Topology,
        claimed: &BTreeMap<Pid, Veto>,
    ) -> Vec<Proposal> {
        let Self { nmass, flags, history, owned, asymsched, carrefour, .. } = self;
        let data = Data { model, topology, flags, history, owned, asymsched, carrefour };
        let is_single = |pid: &Pid| model.app(*pid).is_some_and(|app| app.threads.len() == 1);
        let company = claimed.keys().any(is_single).then_some(Veto::CompanyChanges);
        let (proposals, vetoed) = nmass.propose_unless(model, topology, |pid: Pid, tid: Tid| {
            flags
                .shares_data(tid)
                .or_else(|| claimed.get(&pid).copied())
                .or(company)
                .or_else(|| memory_moves(asymsched, pid))
                .or_else(|| history.settling(pid))
                .or_else(|| data.comes_to_process(pid, tid))
        });
        self.veto(vetoed);
        proposals
    }

    /// AsymSched, once an epoch. Copies of pages are taken back before all memory of a process
    /// goes.
    fn permute(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        self.asymsched.set_interleaved(self.history.all_interleaved(model));
        let mut proposals = Vec::new();
        let found = self.asymsched.propose(model, topology, random);
        for proposal in found {
            let bulk = (proposal.action.kind() == Kind::Bulk).then(|| proposal.action.pid());
            if let Some(app) = bulk.flatten().and_then(|pid| model.app(pid)) {
                proposals.extend(unreplicate(app, &proposal));
            }
            proposals.push(proposal);
        }
        proposals
    }

    /// Carrefour, after the others. `claimed` = what the others do in this step.
    fn place_pages(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
        claimed: &BTreeMap<Pid, Veto>,
    ) -> Vec<Proposal> {
        let reserved = reserved(model, &self.asymsched);
        let mut proposals = Vec::new();
        for proposal in self.carrefour.propose(&reserved, topology, random) {
            match self.pages_wait(&proposal, claimed) {
                None => proposals.push(proposal),
                Some(veto) => {
                    proposal.action.pid().iter().for_each(|pid| self.carrefour.withdraw(*pid));
                    self.veto([(proposal, veto)]);
                }
            }
        }
        let Self { owned, carrefour, .. } = self;
        owned.observe(model, topology.node_count(), |pid| {
            let colocates = |pid| carrefour.mechanisms(pid).is_some_and(|used| used.colocation);
            colocates(pid) && !claimed.contains_key(&pid)
        });
        proposals
    }

    /// Why the pages of a proposal stay for now. Taking copies back is never wrong.
    fn pages_wait(&self, proposal: &Proposal, claimed: &BTreeMap<Pid, Veto>) -> Option<Veto> {
        let pid = match proposal.action {
            Action::MovePages { pid, .. } | Action::Replicate { pid, .. } => pid,
            _ => return None,
        };
        claimed
            .get(&pid)
            .copied()
            .or_else(|| memory_moves(&self.asymsched, pid))
            .or_else(|| self.history.settling(pid))
            .or_else(|| self.history.threads_moved(pid))
    }

    /// Takes in what the last interval showed.
    fn look(&mut self, model: &Model, topology: &Topology) {
        let thresholds = self.sam.thresholds(topology);
        self.vetoed.clear();
        self.history.advance(model);
        self.relabel(topology);
        self.flags.observe(model, topology, &thresholds);
        self.feedback.observe(model);
        self.partners.observe(model, thresholds.coherence);
        self.home.look(model, topology);
        self.rates.forget_gone(model);
    }
}

impl Policy for Auto {
    fn propose(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        self.propose_due(&Views::all_due(lane::COUNT, model), topology, random)
    }

    fn propose_due(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        let Some(model) = views.due(lane::SAM) else { return Vec::new() };
        self.look(model, topology);
        let mut proposals = self.share(model, topology);
        let pairs = self.pair(views, topology, &claims(&proposals));
        proposals.extend(pairs);
        if let Some(model) = views.due(lane::HOME) {
            proposals.extend(self.settle(model, topology, &claims(&proposals)));
        }
        if let Some(model) = views.due(lane::NMASS) {
            proposals.extend(self.balance(model, topology, &claims(&proposals)));
        }
        if let Some(model) = views.due(lane::ASYMSCHED) {
            proposals.extend(self.permute(model, topology, random));
        }
        if let Some(model) = views.due(lane::CARREFOUR) {
            let claimed = claims(&proposals);
            proposals.extend(self.place_pages(model, topology, random, &claimed));
        } else {
            proposals.extend(self.carrefour.notice(model, topology));
        }
        self.rates.merge(&mut proposals);
        proposals
    }

    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        self.history.learn(plan, outcomes);
        self.feedback.learn(plan, outcomes);
        self.partners.learn(plan, outcomes);
        self.sam.learn(plan, outcomes);
        self.nmass.learn(plan, outcomes);
        self.asymsched.learn(plan, outcomes);
        self.home.learn(plan, outcomes);
        self.carrefour.learn(plan, outcomes);
    }

    fn take_vetoed(&mut self) -> Vec<Refused> {
        core::mem::take(&mut self.vetoed)
    }

    fn is_under_way(&self, pid: Pid) -> bool {
        self.asymsched.is_under_way(pid)
    }

    fn wants_touches(&self) -> bool {
        self.partners.wants_touches()
    }

    fn full_sampling(&self) -> Option<u64> {
        self.carrefour.full_sampling()
    }

    fn lanes(&self) -> usize {
        lane::COUNT
    }

    fn lane_period(&self, lane: usize) -> Nanos {
        let pace = Pace {
            is_calm: self.calm >= CALM,
            sam: &self.sam,
            asymsched: &self.asymsched,
            carrefour: &self.carrefour,
        };
        match lane {
            lane::SAM => pace.of_sam(),
            lane::CARREFOUR => pace.of_carrefour(),
            _ => pace.of_others(),
        }
    }

    fn lane_least(&self, lane: usize) -> Nanos {
        match lane {
            lane::CARREFOUR => lane::LEAST_OF_CARREFOUR,
            _ => self.lane_period(lane),
        }
    }

    fn begins_anew(&mut self, lane: usize) -> bool {
        lane == lane::CARREFOUR && self.carrefour.take_noticed()
    }

    fn wake(&mut self) -> Vec<Proposal> {
        self.calm = 0;
        let mut proposals = self.carrefour.look_again();
        self.rates.merge(&mut proposals);
        proposals
    }

    fn lane_memory(&self, lane: usize) -> Nanos {
        match lane {
            lane::CARREFOUR => self.carrefour.sample_memory(),
            _ => Nanos(0),
        }
    }

    fn sample_memory(&self) -> Nanos {
        self.carrefour.sample_memory()
    }

    fn period(&self) -> Nanos {
        (0..lane::COUNT).map(|lane| self.lane_period(lane)).min().unwrap_or(EPOCH)
    }

    fn settles_within(&self) -> Nanos {
        lane::SETTLES_WITHIN
    }
}
