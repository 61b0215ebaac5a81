//! Asks samples for pairs of threads that exchange data.
//!
//! Counters show only one thread of a pair. If two threads hand each other buffers, only the reader
//! fetches lines from another node, because stores are not counted. Samples of pages that both
//! touched name the other thread. So samples are collected while a process exchanges data between
//! nodes. The question is answered when samples name a partner for each thread, or after two
//! epochs. Until then the threads of the process stay in place.
//!
//! Pairs are kept after the samples are gone. The cost model uses them, and the `sharing` policy
//! proposes moves that join pairs while the process exchanges data.

use super::lane::EPOCH;
use crate::cost::Partners;
use crate::model::{App, Model, Rung, Touch};
use crate::plan::{Action, Proposal, Reason, Sampling};
use crate::policy::carrefour::preset::FINAL;
use crate::policy::sam::STEADY_ABOVE;
use crate::policy::sharing::{self, Pair, Preset, Sharing, SharingReason};
use crate::topology::Topology;
use crate::units::{Nanos, Pid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Time after which a process that still exchanges data is asked again (our choice).
const NAMED_FOR: Nanos = Nanos::from_secs(10);
/// Longest time for a question: the rest of an epoch, and a whole epoch.
const PATIENCE: Nanos = Nanos(2 * EPOCH.0);
/// Shortest time for a question, if samples name a partner for every thread that fetches from other
/// nodes. In this time SAM's flags become steady.
const RIPE: Nanos = Nanos::from_millis(100 * STEADY_ABOVE as u64);
/// Before this time every running thread needs a partner (our choice). A thread that is beside its
/// partner by chance fetches nothing from another node, and would be moved away to make room.
const RIPE_WITHOUT_UNSEEN: Nanos = Nanos(2 * RIPE.0);
/// Sampling rate for naming: Carrefour's accurate rate, which is also the first rate.
const ACCURATE: Sampling = FINAL.sampling.accurate;

/// The question about one process.
#[derive(Debug, Clone, Default)]
struct Question {
    started: Nanos,
    /// Time since which samples of its threads are collected.
    open_since: Option<Nanos>,
    /// Whether it was asked without a count of lines from other caches.
    is_guess: bool,
    /// Time before which it is not asked again.
    rests_until: Nanos,
}

/// The questions about all processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Naming {
    now: Nanos,
    /// SAM's threshold, lines per second of CPU time.
    above: f64,
    /// Whether there were samples before, so that this machine has them.
    has_samples: bool,
    partners: Partners,
    questions: BTreeMap<Pid, Question>,
}

impl Naming {
    /// Updates the questions from one interval. `above` = SAM's threshold, lines per second of CPU
    /// time.
    pub(super) fn observe(&mut self, model: &Model, above: f64) {
        (self.now, self.above) = (model.at, above);
        self.has_samples |= model.sensing.rung == Rung::Samples;
        self.partners.forget_gone(model);
        self.questions
            .retain(|pid, of| model.app(*pid).is_some_and(|app| app.started == of.started));
        for app in model.apps.iter().filter(|app| exchanges(model, app, above)) {
            let fresh = || Question { started: app.started, ..Question::default() };
            let question = self.questions.entry(app.pid).or_insert_with(fresh);
            if self.has_samples && question.rests_until <= self.now {
                let opens = question.open_since.is_none();
                question.is_guess = if opens { is_guess(model, app) } else { question.is_guess };
                question.open_since.get_or_insert(self.now);
            }
        }
        self.drop_wrong_guesses(model);
    }

    /// Closes the questions about processes whose remote accesses turned out to be of memory. While
    /// nothing tells caches from memory, a lull is no answer.
    fn drop_wrong_guesses(&mut self, model: &Model) {
        let (rests_until, above) = (self.now + NAMED_FOR, self.above);
        let is_told = |app: &&App| !is_guess(model, app) && !exchanges(model, app, above);
        for app in model.apps.iter().filter(is_told) {
            let question = self.questions.get_mut(&app.pid);
            if let Some(question) = question.filter(|one| one.is_guess && one.open_since.is_some())
            {
                (question.open_since, question.rests_until) = (None, rests_until);
            }
        }
    }

    /// The pairs that samples named.
    pub(super) fn partners(&self) -> &Partners {
        &self.partners
    }

    /// Whether samples of touched pages have to be collected.
    pub(super) fn wants_touches(&self) -> bool {
        self.questions.values().any(|question| question.open_since.is_some())
    }

    /// Whether a question has been open for long enough to look at the samples.
    pub(super) fn is_ripe(&self) -> bool {
        let is_ripe = |since: Nanos| self.now.since(since) >= RIPE;
        self.questions.values().any(|question| question.open_since.is_some_and(is_ripe))
    }

    /// Whether samples are about to name threads of a process.
    pub(super) fn is_open(&self, pid: Pid) -> bool {
        self.questions.get(&pid).is_some_and(|question| question.open_since.is_some())
    }

    /// Requests accurate samples for processes with an open question, and none for the others.
    pub(super) fn sample(&self) -> impl Iterator<Item = Proposal> {
        let request = |(&pid, question): (&Pid, &Question)| Proposal {
            policy: sharing::NAME,
            action: Action::SetSampling { pid: Some(pid), sampling: ACCURATE },
            reason: Reason::Sharing(SharingReason::Sampling {
                names: question.open_since.is_some(),
            }),
        };
        self.questions.iter().map(request)
    }

    /// Answers questions by the samples that were collected for [`RIPE`] or longer. `is_over`: an
    /// epoch ends. Before that, samples are enough if they name a partner for every thread.
    pub(super) fn answer(&mut self, model: &Model, is_over: bool, topology: &Topology) {
        let Self { now, above, partners, questions, .. } = self;
        let app_of = |touch: &Touch| model.threads[touch.thread as usize].app;
        let touched: BTreeSet<usize> = model.touches.iter().map(app_of).collect();
        for (index, app) in model.apps.iter().enumerate() {
            let Some(question) = questions.get_mut(&app.pid) else { continue };
            let Some(since) = question.open_since else { continue };
            let collected = now.since(since);
            let is_ripe = collected >= RIPE;
            let is_over = is_over && is_ripe;
            let exchanges = exchanges(model, app, *above);
            let pairs = (exchanges && is_ripe && touched.contains(&index)).then(|| {
                let asked: Vec<bool> = (0..model.apps.len()).map(|one| one == index).collect();
                Sharing::new(Preset::EXCHANGING).pairs(model, topology, &asked)
            });
            let needs = || needed(model, app, *above, collected);
            let answer = pairs.filter(|pairs| is_over || names_all(pairs, needs()));
            if answer.is_some() || collected >= PATIENCE {
                question.open_since = None;
                question.rests_until = *now + NAMED_FOR;
            } else if is_over && !exchanges {
                question.open_since = None;
            }
            let tid = |place: u32| model.threads[place as usize].tid;
            let named = answer.iter().flatten();
            partners.learn(named.map(|one| (tid(one.lower), tid(one.upper), one.samples)));
        }
        partners.count(model, topology);
    }

    /// Proposes moves that join pairs, in processes that exchange data.
    pub(super) fn propose(&self, model: &Model, topology: &Topology) -> Vec<Proposal> {
        let asked = model.apps.iter().map(|app| exchanges(model, app, self.above));
        let asked: Vec<bool> = asked.collect();
        let mut pairs = self.partners.pairs(model);
        pairs.retain(|pair| asked[model.threads[pair.lower as usize].app]);
        Sharing::new(Preset::EXCHANGING).propose_pairs(model, topology, &pairs, &asked)
    }
}

/// Threads that need a partner if the epoch is not over.
fn needed(model: &Model, app: &App, above: f64, collected: Nanos) -> Vec<usize> {
    match collected < RIPE_WITHOUT_UNSEEN {
        true => running(model, app).collect(),
        false => exchanging(model, app, above).collect(),
    }
}

fn names_all(pairs: &[Pair], needed: Vec<usize>) -> bool {
    let named: BTreeSet<u32> = pairs.iter().flat_map(|pair| [pair.lower, pair.upper]).collect();
    needed.into_iter().all(|place| named.contains(&(place as u32)))
}

/// Whether only samples can tell what the threads of a process fetch from other caches.
fn is_guess(model: &Model, app: &App) -> bool {
    running(model, app).all(|place| model.threads[place].rates.coherence_remote_per_s.is_none())
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

/// The running threads that fetch more than `above` lines per second from caches of other nodes, or
/// may do so where only samples can tell.
fn exchanging<'a>(model: &'a Model, app: &'a App, above: f64) -> impl Iterator<Item = usize> + 'a {
    running(model, app).filter(move |&place| {
        let fetched = model.threads[place].rates.coherence_at_most_per_s();
        fetched.is_some_and(|rate| rate > above)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Thread;
    use crate::topology::synthetic;
    use crate::units::Tid;

    /// Whether samples are asked for after a tenth of a second each, with what two threads fetch
    /// from other nodes: from caches, and from memory.
    fn is_asked(fetched: &[(Option<f64>, f64)]) -> Vec<bool> {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut naming = Naming { has_samples: true, ..Naming::default() };
        let mut is_asked = Vec::new();
        for (number, &(from_caches, from_memory)) in (1..).zip(fetched) {
            let mut model = Model::empty(2);
            model.at = Nanos::from_millis(100 * number);
            model.apps = Vec::from([App::new(Pid(1), 0..2)]);
            for place in 0..2 {
                let mut thread = Thread::new(Tid(place), 0, 0, topology.all_cpus());
                thread.rates.coherence_remote_per_s = from_caches;
                thread.rates.remote_dram_per_s = Some(from_memory);
                model.threads.push(thread);
            }
            naming.observe(&model, 1e6);
            is_asked.push(naming.is_open(Pid(1)));
        }
        is_asked
    }

    #[test]
    fn a_guess_is_dropped_when_samples_show_memory_and_not_made_again_at_once() {
        let guessed = [(None, 2e6), (None, 2e6), (Some(0.0), 2e6), (None, 2e6)];
        assert_eq!(is_asked(&guessed), [true, true, false, false]);
        let exchanges = [(None, 2e6), (Some(2e6), 0.0), (Some(2e6), 0.0)];
        assert_eq!(is_asked(&exchanges), [true; 3]);
        let lull = [(None, 2e6), (None, 0.0), (None, 2e6)];
        assert_eq!(is_asked(&lull), [true; 3], "a lull is no answer");
        let counted = [(Some(2e6), 0.0), (Some(0.0), 2e6)];
        assert_eq!(is_asked(&counted), [true; 2], "a lull in what is counted is no answer");
        assert_eq!(is_asked(&[(None, 0.5e6)]), [false], "too little whatever it is");
    }
}
