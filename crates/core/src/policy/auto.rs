//! `auto`: all four policies at once, each at its own period, in one order and with rules for where
//! they contradict each other.
//!
//! The order of an epoch (ALGORITHMS 5.3): SAM in steps of 100 ms while it finds something to do,
//! else once a second; then, once a second, N-MASS for processes that exchange data with nobody,
//! AsymSched, and Carrefour for processes whose threads have come to rest. The rules (ALGORITHMS
//! 5.4 and 5.6):
//!
//! | rule | where |
//! |---|---|
//! | a flag counts when it was set in more than 3 of the last 16 intervals | `flags` |
//! | coherence first: N-MASS has no thread that exchanges data | `flags` |
//! | what N-MASS left remote and Carrefour then made local settles for 5 epochs | `past` |
//! | who is moved by one is not moved by another in the same step, and its pages wait for two epochs | here, `past` |
//! | data comes to a thread that has rested for two epochs if it is private and that costs at most 5 % of the run time, else the thread goes | `private` |
//! | the same at once, for a thread that was nowhere else, where the controller of its data is busier than its own, and for N-MASS too | `private` |
//! | where bandwidth differs, threads that use each other's memory from several nodes stay there but for coherence | here |
//! | a thread goes to its data only if clearly more of what it or its node asks for is there than here | `nearer` |
//! | where there are samples and more than two nodes, a thread goes to its data only if they say where that is | `flags` |
//! | a thread goes to its data only if there is room for all whose data is there; else pages have to go | `flags` |
//! | who was brought together and exchanges as much as before is left by phase C, for longer each time | `gathered` |
//! | where there are samples, pages that two threads touched say who exchanges data with whom, before phase C; SAM leaves those together | `paired` |
//! | N-MASS does not weigh caches in a step in which SAM changes who uses them | here |
//! | whom N-MASS sent away from its data phase R does not take back | `past` |
//! | where threads take turns on CPUs the policy `home` has them, and SAM, which reckons with one on each, none | here |
//! | once the kernel has taken a thread from its data, the others of the process that are at home stay there | `sam`'s preset `WITH_HOMES` |
//! | above 20 % interleaved pages, remote accesses move no thread and join no nodes | `past` |
//! | after a change of nodes what was learnt of them is relabelled, and the samples of that epoch are dropped | here |
//! | memory that follows its threads has the process for itself; copies of pages are taken back first | here |
//! | memory that is on its way is not free for copies | here |
//! | samples are as many as Carrefour wants, and while memory follows threads or threads are to be named as many as there may be | `rates` |
//!
//! Whom N-MASS may not move it takes to stay, with its core and its share of the cache.
//!
//! What the rules hold back is told with the rule ([`Held`]). Budgets, residence and undoing are
//! the guard's, as for every policy; the asymmetry and the span that AsymSched needs are its own
//! tests. What a policy is told to leave it leaves in its own algorithm, so that it does not reckon
//! with a move that will not be made.
//!
//! Not taken from the document: SAM may also move threads to nodes that the process does not
//! occupy, without which phases R and B would repair nothing in a process on one node; nor may it
//! move them inside the nodes that AsymSched chooses, whose number and threads a move would change
//! as well.

mod epoch;
mod flags;
mod gathered;
mod held;
mod nearer;
mod paired;
mod past;
mod private;
mod promised;
mod rates;

pub use held::Held;

use self::epoch::Epoch;
use self::flags::Flags;
use self::gathered::{Gathered, by_counters};
use self::nearer::no_nearer;
use self::paired::Paired;
use self::past::{EPOCH, Past, RESTING_EPOCHS};
use self::private::{Data, Private};
use self::promised::reserve;
use self::rates::Rates;
use super::asymsched::{self, AsymSched};
use super::carrefour::Carrefour;
use super::carrefour::preset::{FINAL, Feedback, LP, Preset as CarrefourPreset, STEADY};
use super::home::Home;
use super::nmass::{self, NMass};
use super::sam::{self, Flagged, Phase, STEADY_ABOVE, Sam};
use super::{Policy, Registered};
use crate::model::{App, Model};
use crate::plan::{Action, Kind, Outcome, PageMove, Plan, Proposal, Refusal, Refused};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Nanos, PAGE_SHIFT, Pid, Tid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "auto",
    about: "all four: SAM, N-MASS, AsymSched and Carrefour, with rules for where they contradict each other",
    presets: &["steady", "published"],
    make: |preset| {
        let carrefour = match preset {
            None | Some("steady") => &STEADY,
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
    /// What the intervals since the last decision of the slower three showed.
    epoch: Epoch,
    carrefour_decided: Option<Nanos>,
    flags: Flags,
    gathered: Gathered,
    paired: Paired,
    past: Past,
    private: Private,
    rates: Rates,
    /// Intervals since SAM last wanted a thread elsewhere for which that may be so in the next.
    calm: u32,
    held: Vec<Refused>,
}

/// Intervals without a wish of SAM after which it is asked with the others, once an epoch: as many
/// as make a flag steady. Ten looks a second cost more than watching may where there is nothing to
/// do, and a wish that is not steady yet brings them back.
const CALM: u32 = STEADY_ABOVE + 1;
/// Longest time between two looks, however quiet Carrefour is (our choice: that of [`STEADY`]).
const LONGEST_PERIOD: Nanos = STEADY.quiet_period;

impl Auto {
    /// A policy that has seen nothing yet. Carrefour gets the feedback of Carrefour-LP: a mechanism
    /// that found pages to move and did not help is off for the next round, after a longer period
    /// [ALGORITHMS 5.6].
    #[must_use]
    pub fn new(carrefour: &CarrefourPreset) -> Self {
        let carrefour = CarrefourPreset {
            feedback: LP.feedback.map(|lp| Feedback {
                only_where_asked: true,
                waits_only_where_idle: true,
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
            epoch: Epoch::default(),
            carrefour_decided: None,
            flags: Flags::default(),
            gathered: Gathered::of(by_counters),
            paired: Paired::default(),
            past: Past::default(),
            private: Private::default(),
            rates: Rates::default(),
            calm: 0,
            held: Vec::new(),
        }
    }

    /// After a change of nodes, what was learnt of the old ones holds for the new ones.
    fn relabel(&mut self, topology: &Topology) {
        for (pid, permuted) in self.past.take_permuted() {
            let image = |node| permuted.image(node);
            self.flags.relabel(&permuted.tids, image);
            self.sam.relabel(topology, &permuted.tids, image);
            self.nmass.relabel(topology, pid, image);
            self.home.relabel(&permuted.tids, image);
            self.private.forget(pid);
        }
    }

    fn hold(&mut self, withheld: impl IntoIterator<Item = (Proposal, Held)>) {
        let refused = withheld
            .into_iter()
            .map(|(proposal, held)| Refused { proposal, refusal: Refusal::Held { held } });
        self.held.extend(refused);
    }

    /// SAM's step.
    fn share(&mut self, model: &Model, topology: &Topology) -> Vec<Proposal> {
        let Self {
            sam, flags, gathered, paired, past, private, asymsched, carrefour, home, ..
        } = self;
        let data = Data { model, topology, flags, past, private, asymsched, carrefour };
        let homeward = |flagged: &Flagged| {
            let app = model.app(flagged.pid?)?;
            memory_moves(asymsched, app.pid)
                .or_else(|| past.interleaved(app))
                .or_else(|| past.left_remote(app))
                .or_else(|| flags.home_unknown(flagged.home, topology))
                .or_else(|| flags.no_room(flagged.home?, topology))
                .or_else(|| no_nearer(model, topology, flagged))
                .or_else(|| data.comes(app, flagged.tid, flagged.home?, flagged.node))
        };
        let stays = |flagged: &Flagged| {
            let app = model.app(flagged.pid?)?;
            asymsched.chooses_nodes_of(app, model, topology).then_some(Held::NodesAreChosen)
        };
        let (proposals, withheld) = sam.propose_unless(model, topology, |flagged: &Flagged| {
            let held = || match flagged.phase {
                Phase::Coherence => gathered.in_vain(flagged.pid?),
                Phase::Remote => homeward(flagged).or_else(|| stays(flagged)),
                Phase::Bandwidth => stays(flagged),
            };
            let sampled = || {
                let pid = flagged.pid?;
                paired.samples_first(pid).or_else(|| paired.together(pid, flagged.tid))
            };
            let take_turns = || home.crowded(flagged.pid?).map(Held::TakeTurns);
            let steady = flags.not_steady(flagged.tid, flagged.phase);
            steady.or_else(take_turns).or_else(sampled).or_else(held)
        });
        let is_judging = gathered.is_judging() || paired.is_judging();
        let is_calm =
            !is_judging && proposals.is_empty() && withheld.iter().all(|(_, held)| held.lasts());
        self.calm = if is_calm { self.calm.saturating_add(1) } else { 0 };
        self.hold(withheld);
        proposals
    }

    /// What samples name, and the samples for it, of processes with which nobody else has to do.
    /// `over` = the epoch, if it ends.
    fn pair(
        &mut self,
        over: Option<&Model>,
        topology: &Topology,
        claimed: &BTreeMap<Pid, Held>,
    ) -> Vec<Proposal> {
        let Self { sam, gathered, paired, asymsched, epoch, .. } = self;
        let is_left = |app: &App| {
            claimed.contains_key(&app.pid)
                || gathered.is_judged(app.pid)
                || memory_moves(asymsched, app.pid).is_some()
        };
        let above = sam.thresholds(topology).coherence;
        let shown = over.or_else(|| epoch.so_far());
        let propose = |shown| paired.propose(shown, over.is_some(), topology, above, is_left);
        let mut proposals = shown.map(propose).unwrap_or_default();
        proposals.extend(paired.sample());
        proposals
    }

    /// Threads that take turns, to their data.
    fn settle(
        &mut self,
        model: &Model,
        topology: &Topology,
        claimed: &BTreeMap<Pid, Held>,
    ) -> Vec<Proposal> {
        let Self { home, paired, past, asymsched, .. } = self;
        let (proposals, withheld) = home.propose_unless(model, topology, |app, thread| {
            let chosen = || {
                let chooses = asymsched.chooses_nodes_of(app, model, topology);
                chooses.then_some(Held::NodesAreChosen)
            };
            claimed
                .get(&app.pid)
                .copied()
                .or_else(|| memory_moves(asymsched, app.pid))
                .or_else(|| paired.together(app.pid, thread.tid))
                .or_else(|| past.interleaved(app))
                .or_else(chosen)
        });
        self.hold(withheld);
        proposals
    }

    /// N-MASS, once an epoch. `claimed` = what SAM does in this step.
    fn balance(
        &mut self,
        model: &Model,
        topology: &Topology,
        claimed: &BTreeMap<Pid, Held>,
    ) -> Vec<Proposal> {
        let Self { nmass, flags, past, private, asymsched, carrefour, .. } = self;
        let data = Data { model, topology, flags, past, private, asymsched, carrefour };
        let is_single = |pid: &Pid| model.app(*pid).is_some_and(|app| app.threads.len() == 1);
        let company = claimed.keys().any(is_single).then_some(Held::CompanyChanges);
        let (proposals, withheld) = nmass.propose_unless(model, topology, |pid: Pid, tid: Tid| {
            flags
                .shares_data(tid)
                .or_else(|| claimed.get(&pid).copied())
                .or(company)
                .or_else(|| memory_moves(asymsched, pid))
                .or_else(|| past.settling(pid))
                .or_else(|| data.comes_to_process(pid, tid))
        });
        self.hold(withheld);
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
        self.asymsched.set_interleaved(self.past.all_interleaved(model));
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

    /// Carrefour, once an epoch or less often, after the others. `claimed` = what the others do in
    /// this step.
    fn place_pages(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
        claimed: &BTreeMap<Pid, Held>,
    ) -> Vec<Proposal> {
        let is_due = |at: Nanos| {
            let period = self.carrefour.period();
            model.at.since(at).0 >= period.0 - period.0 / 10
        };
        if !self.carrefour_decided.is_none_or(is_due) {
            return Vec::new();
        }
        self.carrefour_decided = Some(model.at);
        let mut proposals = Vec::new();
        for proposal in self.carrefour.propose(model, topology, random) {
            match self.pages_wait(&proposal, claimed) {
                None => proposals.push(proposal),
                Some(held) => {
                    proposal.action.pid().iter().for_each(|pid| self.carrefour.withdraw(*pid));
                    self.hold([(proposal, held)]);
                }
            }
        }
        proposals
    }

    /// Why the pages of a proposal stay for now. Taking copies back is never wrong.
    fn pages_wait(&self, proposal: &Proposal, claimed: &BTreeMap<Pid, Held>) -> Option<Held> {
        let pid = match proposal.action {
            Action::MovePages { pid, .. } | Action::Replicate { pid, .. } => pid,
            _ => return None,
        };
        claimed
            .get(&pid)
            .copied()
            .or_else(|| memory_moves(&self.asymsched, pid))
            .or_else(|| self.past.settling(pid))
            .or_else(|| self.past.threads_moved(pid))
    }

    /// The slower three, on what the whole epoch showed; `proposals` has SAM's of this step and
    /// gets theirs.
    fn end_epoch(
        &mut self,
        mut model: Model,
        topology: &Topology,
        random: &mut Random,
        proposals: &mut Vec<Proposal>,
    ) {
        let pairs = self.pair(Some(&model), topology, &claims(proposals));
        proposals.extend(pairs);
        let homeward = self.settle(&model, topology, &claims(proposals));
        proposals.extend(homeward);
        let moves = self.balance(&model, topology, &claims(proposals));
        proposals.extend(moves);
        proposals.extend(self.permute(&model, topology, random));
        let claimed = claims(proposals);
        reserve(&mut model, &self.asymsched);
        proposals.extend(self.place_pages(&model, topology, random, &claimed));
        let Self { private, carrefour, rates, .. } = self;
        rates.forget_gone(&model);
        rates.merge(proposals);
        private.observe(&model, topology.node_count(), |pid| {
            let colocates = |pid| carrefour.mechanisms(pid).is_some_and(|used| used.colocation);
            colocates(pid) && !claimed.contains_key(&pid)
        });
    }
}

/// What proposals mean for those who come later in the same step.
fn claims(proposals: &[Proposal]) -> BTreeMap<Pid, Held> {
    let claim = |one: &Proposal| Some((one.action.pid()?, claim_of(one)?));
    proposals.iter().filter_map(claim).collect()
}

fn claim_of(proposal: &Proposal) -> Option<Held> {
    match proposal.action.kind() {
        Kind::Affinity if proposal.reason.is_indivisible() => Some(Held::NodesChange),
        Kind::Affinity => Some(Held::ThreadsMoved { epochs: 0, needed: RESTING_EPOCHS }),
        Kind::Bulk => Some(Held::MemoryMoves),
        Kind::Pages(_) | Kind::Replication | Kind::Sampling => None,
    }
}

/// The lock of AsymSched on a process whose memory follows its threads.
fn memory_moves(asymsched: &AsymSched, pid: Pid) -> Option<Held> {
    (!asymsched.on_the_way(pid).is_empty()).then_some(Held::MemoryMoves)
}

/// All copies of a process's pages back to one, for the sake of a proposal of another policy.
fn unreplicate(app: &App, cause: &Proposal) -> Option<Proposal> {
    let home = app.home().unwrap_or(0) as u16;
    let page = |address| PageMove { address, shift: PAGE_SHIFT, from: home, to: home };
    let pages: Vec<PageMove> =
        app.replicas.iter().flatten().map(|replica| page(replica.address)).collect();
    let action = Action::Unreplicate { pid: app.pid, pages };
    let proposal = Proposal { policy: cause.policy, action, reason: cause.reason.clone() };
    app.replicas.as_ref().is_some_and(|replicas| !replicas.is_empty()).then_some(proposal)
}

impl Policy for Auto {
    fn propose(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        self.held.clear();
        self.past.advance(model);
        self.relabel(topology);
        self.flags.observe(model, topology, &self.sam.thresholds(topology));
        self.gathered.observe(model);
        self.paired.observe(model, self.sam.thresholds(topology).coherence);
        self.home.look(model, topology);
        let mut proposals = self.share(model, topology);
        match self.epoch.add(model, EPOCH) {
            Some(epoch) => self.end_epoch(epoch, topology, random, &mut proposals),
            None => {
                let pairs = self.pair(None, topology, &claims(&proposals));
                proposals.extend(pairs);
                self.rates.merge(&mut proposals);
            }
        }
        proposals
    }

    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        self.past.learn(plan, outcomes);
        self.gathered.learn(plan, outcomes);
        self.paired.learn(plan, outcomes);
        self.sam.learn(plan, outcomes);
        self.nmass.learn(plan, outcomes);
        self.asymsched.learn(plan, outcomes);
        self.home.learn(plan, outcomes);
        self.carrefour.learn(plan, outcomes);
    }

    fn take_held(&mut self) -> Vec<Refused> {
        core::mem::take(&mut self.held)
    }

    fn is_under_way(&self, pid: Pid) -> bool {
        self.asymsched.is_under_way(pid)
    }

    fn wants_touches(&self) -> bool {
        self.paired.wants_touches()
    }

    fn full_sampling(&self) -> Option<u64> {
        self.carrefour.full_sampling()
    }

    /// SAM's while it has something to do; the others are asked once an epoch inside. Else what is
    /// left of the epoch, or of Carrefour's longer period while no memory follows threads: a look
    /// that comes a little early would find it not over, and the next one would end it a whole
    /// period late.
    fn period(&self) -> Nanos {
        let shortest = self.sam.period();
        if self.calm < CALM {
            return shortest;
        }
        let whole = match self.asymsched.is_anybody_moving() {
            true => EPOCH,
            false => self.carrefour.period().clamp(EPOCH, LONGEST_PERIOD),
        };
        Nanos(whole.0.saturating_sub(self.epoch.elapsed().0)).max(shortest)
    }

    /// Every policy was asked once: at the end of an epoch, which a rest that comes a little early
    /// must not cut off.
    fn settles_within(&self) -> Nanos {
        Nanos(EPOCH.0 + EPOCH.0 / 4)
    }
}
