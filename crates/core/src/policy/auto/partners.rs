//! Processes that exchange data between nodes: samples of addresses name the threads to bring
//! together. They are asked before SAM's phase C, which knows less.
//!
//! Counters see one half of a pair. Of two threads that hand each other buffers only the reader
//! fetches lines from another node: stores are not counted. SAM takes all threads of a process that
//! it sees for one group. It brings the readers together, each away from the thread that fills its
//! buffers.
//!
//! Pages that both threads touched name that thread ([`Sharing`]). So where there are samples, the
//! touches of a process that exchanges data are collected, and the `sharing` policy is asked. It is
//! asked once samples name a partner for each thread that is seen, and at the end of the epoch in
//! any case. Samples are on for it, whatever Carrefour does with them. Its own rules hold: no
//! thread goes where there is no core or memory would suffer. Threads of other processes do not
//! move for it. Where it has nothing to say, SAM acts.
//! A thread may make room for others before samples name its own partner. The policy asks about it
//! once more, when it is known what became of the others. Veto alone, the thread is half of a pair
//! that comes apart again.

use super::history::EPOCH;
use super::sharing_feedback::{SharingFeedback, by_samples};
use super::veto::Veto;
use crate::model::{App, Model, Rung, Touch};
use crate::plan::{Action, Outcome, Plan, Proposal, Reason, Sampling, StepResult};
use crate::policy::carrefour::preset::FINAL;
use crate::policy::sam::STEADY_ABOVE;
use crate::policy::sharing::{self, Preset, Sharing, SharingReason};
use crate::topology::Topology;
use crate::units::{Nanos, Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// SAM has a process for itself for this long after samples named no threads to bring together (our
/// choice).
const FRUITLESS_FOR: Nanos = Nanos::from_secs(10);
/// SAM waits this long for the end of an epoch with collected samples: the rest of one, and a whole
/// one.
const PATIENCE: Nanos = Nanos(2 * EPOCH.0);
/// Touches collected for this long are enough if they name a partner for every thread (our choice).
/// SAM's flags are steady by then, if SAM does not wait.
const RIPE: Nanos = Nanos::from_millis(100 * STEADY_ABOVE as u64);
/// Wait this long for threads that were not seen (our choice). A thread that is with its partner by
/// chance fetches nothing from another node. Unless samples name it, it is sent away from its
/// partner to make room.
const RIPE_WITHOUT_UNSEEN: Nanos = Nanos(2 * RIPE.0);
/// Samples that are to name threads: Carrefour's accurate rate, as there are from the start.
const ACCURATE: Sampling = FINAL.sampling.accurate;

/// One process.
#[derive(Debug, Clone, Default)]
struct Process {
    started: Nanos,
    /// Since when its touches are collected and not yet asked about: it exchanges data between
    /// nodes, or it `finishes`.
    exchanging_since: Option<Nanos>,
    /// Samples were asked for.
    is_sampled: bool,
    /// Threads that were brought to others, or are held with them.
    joined: BTreeSet<Tid>,
    /// Threads that made room for others and are held where they went: samples named no partner for
    /// them.
    displaced: BTreeSet<Tid>,
    /// Its touches are collected for the sake of `displaced`.
    finishes: bool,
    /// Until then SAM has it for itself.
    left_until: Nanos,
}

/// All processes.
#[derive(Debug, Clone)]
pub(super) struct Partners {
    now: Nanos,
    /// There were samples once, so there are some if they are on.
    has_samples: bool,
    sharing: Sharing,
    feedback: SharingFeedback,
    processes: BTreeMap<Pid, Process>,
}

impl Default for Partners {
    fn default() -> Self {
        Self {
            now: Nanos(0),
            has_samples: false,
            sharing: Sharing::new(Preset::EXCHANGING),
            feedback: SharingFeedback::of(by_samples),
            processes: BTreeMap::new(),
        }
    }
}

impl Partners {
    /// Takes in one interval. Forgets processes that ended, and gives processes that were brought
    /// together in vain back to SAM. `above` = SAM's threshold, lines per second of CPU time.
    pub(super) fn observe(&mut self, model: &Model, above: f64) {
        self.now = model.at;
        self.feedback.observe(model);
        self.processes.retain(|pid, process| {
            model.app(*pid).is_some_and(|app| app.started == process.started)
        });
        self.has_samples |= model.sensing.rung == Rung::Samples;
        for app in &model.apps {
            let fresh = || Process { started: app.started, ..Process::default() };
            let process = self.processes.entry(app.pid).or_insert_with(fresh);
            // A new thread may have the number of one that ended, and no policy brought it
            // anywhere.
            let threads = model.threads_of(app);
            let is_there = |tid: &Tid| threads.binary_search_by_key(tid, |one| one.tid).is_ok();
            process.joined.retain(is_there);
            process.displaced.retain(is_there);
            let may_be_named = self.has_samples
                && process.left_until <= self.now
                && !self.feedback.is_judged(app.pid);
            if self.feedback.in_vain(app.pid).is_some() {
                process.joined.clear();
                process.displaced.clear();
            } else if may_be_named && !process.displaced.is_empty() {
                process.finishes = true;
                process.exchanging_since.get_or_insert(self.now);
            } else if may_be_named && exchanges(model, app, above) {
                process.exchanging_since.get_or_insert(self.now);
            }
        }
    }

    /// Takes in what was done of a plan. A step that moves a joined thread takes it from its
    /// partners, unless all threads of a node go.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        self.feedback.learn(plan, outcomes);
        for outcome in outcomes.iter().filter(|outcome| outcome.plan == plan.number) {
            let Some(step) = plan.steps.get(outcome.step) else { continue };
            let Action::SetAffinity { pid, tid, .. } = &step.action else { continue };
            let Some(process) = self.processes.get_mut(pid) else { continue };
            if outcome.result != StepResult::Done {
                continue;
            }
            if step.reason.is_indivisible() {
                continue;
            }
            process.joined.remove(tid);
            process.displaced.remove(tid);
            match step.reason {
                Reason::Sharing(SharingReason::MakeRoom { .. }) => process.displaced.insert(*tid),
                Reason::Sharing(_) => process.joined.insert(*tid),
                _ => continue,
            };
        }
    }

    /// Whether what threads touch is to be collected.
    pub(super) fn wants_touches(&self) -> bool {
        self.processes.values().any(|process| process.exchanging_since.is_some())
    }

    /// Whether what some process touches has been collected for long enough to ask about it.
    pub(super) fn is_ripe(&self) -> bool {
        let is_ripe = |since: Nanos| self.now.since(since) >= RIPE;
        self.processes.values().any(|process| process.exchanging_since.is_some_and(is_ripe))
    }

    /// Accurate samples for processes with threads to name; back to the rate that others want when
    /// that is over.
    pub(super) fn sample(&mut self) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for (&pid, process) in &mut self.processes {
            let names = process.exchanging_since.is_some();
            if core::mem::replace(&mut process.is_sampled, names) != names {
                proposals.push(Proposal {
                    policy: sharing::NAME,
                    action: Action::SetSampling { pid: Some(pid), sampling: ACCURATE },
                    reason: Reason::Sharing(SharingReason::Sampling { names }),
                });
            }
        }
        proposals
    }

    /// Whether some process was brought together a moment ago: ten looks a second show sooner what
    /// became of it.
    pub(super) fn is_judging(&self) -> bool {
        self.feedback.is_judging()
    }

    /// Why SAM leaves a process: samples are about to name threads that share data, or have just
    /// done so. SAM's other phases wait as they do for its own phase C.
    pub(super) fn samples_first(&self, pid: Pid) -> Option<Veto> {
        let process = self.processes.get(&pid)?;
        let waits = process.exchanging_since.is_some_and(|since| self.now < since + PATIENCE);
        (waits || self.feedback.is_judged(pid)).then_some(Veto::SamplesFirst)
    }

    /// Why SAM leaves a thread: counters see half of a pair, and do not take it apart again.
    pub(super) fn together(&self, pid: Pid, tid: Tid) -> Option<Veto> {
        self.processes.get(&pid)?.joined.contains(&tid).then_some(Veto::Together)
    }

    /// Proposals for threads of processes that exchanged data in what `model` shows. That is a
    /// whole epoch if it `is_over`. Else it is a part, which is enough for processes in which
    /// samples name a partner for every thread seen. `is_left` = processes that other policies work
    /// on.
    pub(super) fn propose(
        &mut self,
        model: &Model,
        is_over: bool,
        topology: &Topology,
        above: f64,
        is_left: impl Fn(&App) -> bool,
    ) -> Vec<Proposal> {
        let asked = match is_over {
            true => self.due(model, above, is_left),
            false => self.ripe(model, topology, above, is_left),
        };
        if asked.is_empty() {
            return Vec::new();
        }
        let held: BTreeSet<Tid> = self.processes.values().flat_map(Process::held).collect();
        let is_asked = |app: &App| asked.contains(&app.pid);
        let is_held = |tid| held.contains(&tid);
        let proposals = self.sharing.propose_for(model, topology, is_asked, is_held);
        for pid in asked {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let of_process = proposals.iter().filter(|one| one.action.pid() == Some(pid));
            if of_process.clone().next().is_some() {
                // Threads that are held there already need no step.
                process.joined.extend(of_process.filter_map(stays).filter(|&tid| is_held(tid)));
                process.end();
            } else if is_over {
                process.give_up(self.now);
            }
        }
        proposals
    }

    /// The processes to ask about before the epoch is over.
    fn ripe(
        &self,
        model: &Model,
        topology: &Topology,
        above: f64,
        is_left: impl Fn(&App) -> bool,
    ) -> BTreeSet<Pid> {
        let is_ripe = |app: &&App| {
            let Some(process) = self.processes.get(&app.pid) else { return false };
            let Some(collected) = process.exchanging_since.map(|since| self.now.since(since))
            else {
                return false;
            };
            // Threads that made room fetch nothing from other nodes, so all running threads are
            // needed.
            let waits_for_unseen = process.finishes || collected < RIPE_WITHOUT_UNSEEN;
            let needed: Vec<usize> = match waits_for_unseen {
                true => running(model, app).collect(),
                false => exchanging(model, app, above).collect(),
            };
            collected >= RIPE
                && (process.finishes || exchanges(model, app, above))
                && !is_left(app)
                && self.sharing.names_all(model, topology, &needed)
        };
        model.apps.iter().filter(is_ripe).map(|app| app.pid).collect()
    }

    /// The processes to ask about at the end of the epoch. A process that exchanged less than
    /// `above` in the whole epoch is dropped.
    fn due(&mut self, model: &Model, above: f64, is_left: impl Fn(&App) -> bool) -> BTreeSet<Pid> {
        let app_of = |touch: &Touch| model.threads[touch.thread as usize].app;
        let seen: BTreeSet<usize> = model.touches.iter().map(app_of).collect();
        let mut asked = BTreeSet::new();
        for (index, app) in model.apps.iter().enumerate() {
            let Some(process) = self.processes.get_mut(&app.pid) else { continue };
            let Some(since) = process.exchanging_since else { continue };
            if !process.finishes && !exchanges(model, app, above) {
                process.end();
            } else if seen.contains(&index) && !is_left(app) {
                asked.insert(app.pid);
            } else if self.now >= since + PATIENCE {
                process.give_up(self.now);
            }
        }
        asked
    }
}

impl Process {
    /// Samples name no partner: for the process, or for its displaced threads, which are asked
    /// about once.
    fn give_up(&mut self, now: Nanos) {
        if !self.finishes {
            self.left_until = now + FRUITLESS_FOR;
        }
        self.end();
    }

    /// The question about its touches is answered.
    fn end(&mut self) {
        self.exchanging_since = None;
        if core::mem::take(&mut self.finishes) {
            self.displaced.clear();
        }
    }

    /// The threads that a mask holds on a node.
    fn held(&self) -> impl Iterator<Item = Tid> {
        self.joined.union(&self.displaced).copied()
    }
}

/// The thread that a step holds where it is.
fn stays(step: &Proposal) -> Option<Tid> {
    match (&step.reason, &step.action) {
        (Reason::Sharing(SharingReason::Stay { .. }), Action::SetAffinity { tid, .. }) => {
            Some(*tid)
        }
        _ => None,
    }
}

/// Whether several threads of a process run and one of them fetches many lines from caches of other
/// nodes.
fn exchanges(model: &Model, app: &App, above: f64) -> bool {
    running(model, app).count() > 1 && exchanging(model, app, above).next().is_some()
}

/// The running threads of a process (by place in the model).
fn running<'a>(model: &'a Model, app: &App) -> impl Iterator<Item = usize> + 'a {
    app.threads.clone().filter(|&place| model.threads[place].is_running())
}

/// The running threads that fetch more than `above` lines per second from caches of other nodes.
fn exchanging<'a>(model: &'a Model, app: &'a App, above: f64) -> impl Iterator<Item = usize> + 'a {
    running(model, app).filter(move |&place| {
        let fetched = model.threads[place].rates.coherence_remote_per_s;
        fetched.is_some_and(|rate| rate > above)
    })
}
