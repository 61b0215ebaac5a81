//! Pairs of threads that exchange cache lines, as named by samples.
//!
//! Counters show how many lines a thread fetches from other caches, but not the other thread.
//! Samples of pages that two threads touched name both. So the cost model can price a step that
//! parts the pair.
//!
//! Once a pair shares a cache, no counter shows what it exchanges: its lines are hits there. So the
//! counts from the time when pairs were apart are kept.

use super::lines::own_lines;
use crate::model::Model;
use crate::topology::Topology;
use crate::units::{Nanos, Tid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Time for which counts from before a pair was joined are believed (our choice). The program may
/// do something else by then.
const COUNTED_FOR: Nanos = Nanos::from_secs(30);

/// Partners of threads, kept beyond the samples that named them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partners {
    /// By thread: each partner, with the samples in common.
    of: BTreeMap<Tid, BTreeMap<Tid, u32>>,
    /// By thread: lines that it fetches from its partners.
    fetched: BTreeMap<Tid, Fetched>,
}

/// Lines that a thread fetched when its partners were behind other caches.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fetched {
    /// In an instruction.
    each: f64,
    /// When they were counted.
    at: Nanos,
}

/// What an interval shows of a thread. Rates are of a µs of elapsed time.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// Lines that it fetches from other caches.
    lines: f64,
    instructions: f64,
    /// Samples in common with its partners.
    samples: f64,
    /// Share of them with partners behind its own cache.
    together: f64,
}

/// Places of threads in the model by process and thread.
type Places = BTreeMap<(usize, Tid), usize>;

impl Fetched {
    fn is_known(&self, now: Nanos) -> bool {
        now.since(self.at) < COUNTED_FOR
    }
}

/// The empty set of partners.
static NONE: Partners = Partners { of: BTreeMap::new(), fetched: BTreeMap::new() };

impl Partners {
    /// No partner of any thread is known.
    #[must_use]
    pub fn none() -> &'static Self {
        &NONE
    }

    /// Stores pairs of threads with their common samples. Earlier partners of these threads are
    /// replaced.
    pub fn learn(&mut self, pairs: impl Iterator<Item = (Tid, Tid, u32)>) {
        let mut common: BTreeMap<Tid, BTreeMap<Tid, u32>> = BTreeMap::new();
        for (one, other, samples) in pairs {
            for (tid, with) in [(one, other), (other, one)] {
                *common.entry(tid).or_default().entry(with).or_default() += samples;
            }
        }
        self.of.extend(common);
    }

    /// Stores what threads fetch from their partners, as far as the counts of an interval show it.
    ///
    /// A thread that shares the cache of a partner shows nothing. It is assumed to fetch as many
    /// lines for each common sample as the threads of its process whose partners are all elsewhere.
    pub fn count(&mut self, model: &Model, topology: &Topology) {
        let places = self.places(model);
        let mut of_app: BTreeMap<usize, Vec<(Tid, Counted)>> = BTreeMap::new();
        for &(app, tid) in places.keys() {
            let counted = self.counted((app, tid), &places, (model, topology));
            of_app.entry(app).or_default().extend(counted.map(|one| (tid, one)));
        }
        for threads in of_app.values() {
            let apart = || threads.iter().map(|(_, one)| one).filter(|one| one.together == 0.0);
            let samples: f64 = apart().map(|one| one.samples).sum();
            let each = apart().map(|one| one.lines).sum::<f64>() / samples;
            for (tid, one) in threads.iter().filter(|_| samples > 0.0) {
                let lines = if one.together > 0.0 { each * one.samples } else { one.lines };
                let known = self.fetched.get(tid).filter(|_| one.together > 0.0);
                if known.is_none_or(|fetched| !fetched.is_known(model.at)) {
                    let fetched = Fetched { each: lines / one.instructions, at: model.at };
                    self.fetched.insert(*tid, fetched);
                }
            }
        }
    }

    /// What the counts of an interval show of a thread with partners; `None` if not enough.
    fn counted(
        &self,
        (app, tid): (usize, Tid),
        places: &Places,
        seen: (&Model, &Topology),
    ) -> Option<Counted> {
        let (model, topology) = seen;
        let thread = &model.threads[*places.get(&(app, tid))?];
        let here = topology.domain_of_cpu(thread.cpu);
        let of = |(with, samples): (&Tid, &u32)| {
            let partner = &model.threads[*places.get(&(app, *with))?];
            let is_here = topology.domain_of_cpu(partner.cpu) == here;
            Some((f64::from(*samples), is_here))
        };
        let with: Vec<(f64, bool)> = self.of.get(&tid)?.iter().filter_map(of).collect();
        let samples: f64 = with.iter().map(|(samples, _)| samples).sum();
        let here: f64 =
            with.iter().filter(|(_, is_here)| *is_here).map(|(samples, _)| samples).sum();
        let instructions = thread.rates.instructions_per_s? / 1e6;
        let lines = own_lines(thread)? * thread.cpu_share;
        let is_counted = samples > 0.0 && instructions > 0.0;
        is_counted.then(|| Counted { lines, samples, together: here / samples, instructions })
    }

    /// Lines that each thread, by place in the model, exchanges within its cache in a µs of its CPU
    /// time, where no counter shows them.
    pub(super) fn unseen(&self, model: &Model, topology: &Topology) -> BTreeMap<usize, f64> {
        let places = self.places(model);
        let unseen = |(&(app, tid), &place): (&(usize, Tid), &usize)| {
            let fetched = self.fetched.get(&tid).filter(|fetched| fetched.is_known(model.at))?;
            let counted = self.counted((app, tid), &places, (model, topology))?;
            let thread = &model.threads[place];
            let near = thread.rates.coherence_local_per_s.unwrap_or(0.0) / 1e6;
            let lines = counted.together * fetched.each * counted.instructions / thread.cpu_share;
            Some((place, (lines - near).max(0.0)))
        };
        places.iter().filter_map(unseen).collect()
    }

    /// Forgets threads that are gone.
    pub fn forget_gone(&mut self, model: &Model) {
        if self.of.is_empty() {
            return;
        }
        let alive: BTreeSet<Tid> = model.threads.iter().map(|one| one.tid).collect();
        self.of.retain(|tid, _| alive.contains(tid));
        self.fetched.retain(|tid, _| alive.contains(tid));
    }

    /// Pairs by the places of their threads in the model, lower place first. Pairs with the most
    /// samples come first.
    pub fn pairs(&self, model: &Model) -> impl Iterator<Item = (usize, usize, u32)> + use<> {
        let places = self.places(model);
        let mut pairs = Vec::new();
        for (&(app, tid), &place) in &places {
            for (with, samples) in self.of.get(&tid).into_iter().flatten() {
                let partner = places.get(&(app, *with)).filter(|partner| **partner > place);
                pairs.extend(partner.map(|partner| (place, *partner, *samples)));
            }
        }
        pairs.sort_by_key(|(lower, upper, samples)| (Reverse(*samples), *lower, *upper));
        pairs.into_iter()
    }

    /// For each thread, by place in the model: its partners, with their share of its common
    /// samples.
    pub(super) fn shares(&self, model: &Model) -> BTreeMap<usize, Vec<(usize, f64)>> {
        let places = self.places(model);
        let named = |(&(app, tid), &place): (&(usize, Tid), &usize)| {
            let with = self.of.get(&tid)?;
            let all: f64 = with.values().map(|samples| f64::from(*samples)).sum();
            let partner = |(with, samples): (&Tid, &u32)| {
                Some((*places.get(&(app, *with))?, f64::from(*samples) / all))
            };
            Some((place, with.iter().filter_map(partner).collect()))
        };
        places.iter().filter_map(named).collect()
    }

    /// The threads with partners.
    fn places(&self, model: &Model) -> Places {
        let known =
            model.threads.iter().enumerate().filter(|(_, one)| self.of.contains_key(&one.tid));
        known.map(|(place, thread)| ((thread.app, thread.tid), place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::{App, Thread};
    use crate::topology::synthetic;
    use crate::units::Pid;
    use alloc::vec;

    fn model(tids: &[u32]) -> Model {
        let mut model = Model::empty(1);
        model.apps.push(App::new(Pid(1), 0..tids.len()));
        let thread =
            |(place, tid): (usize, &u32)| Thread::new(Tid(*tid), 0, place, CpuSet::first(8));
        model.threads = tids.iter().enumerate().map(thread).collect();
        model
    }

    #[test]
    fn shares_are_of_what_a_thread_has_in_common_with_all_and_the_last_word_counts() {
        let mut partners = Partners::default();
        partners.learn([(Tid(5), Tid(6), 30), (Tid(5), Tid(7), 10)].into_iter());
        let found = partners.shares(&model(&[5, 6, 7]));
        assert_eq!(found[&0], vec![(1, 0.75), (2, 0.25)]);
        assert_eq!((&found[&1], &found[&2]), (&vec![(0, 1.0)], &vec![(0, 1.0)]));
        partners.learn([(Tid(5), Tid(7), 1)].into_iter());
        assert_eq!(partners.shares(&model(&[5, 6, 7]))[&0], vec![(2, 1.0)]);
        let pairs: Vec<_> = partners.pairs(&model(&[5, 6, 7])).collect();
        assert_eq!(pairs, [(0, 2, 1)]);
    }

    /// What a thread fetches from its partner, in lines per µs, by its own count and by those of a
    /// pair that is apart. All have as many samples in common.
    fn unseen(together: bool, counted: f64) -> Option<f64> {
        let topology = synthetic::parse("node:2 core:4").expect("a machine");
        let mut model = model(&[5, 6, 7, 8]);
        let cpus = [0, if together { 1 } else { 4 }, 2, 5];
        for (place, thread) in model.threads.iter_mut().enumerate() {
            (thread.cpu, thread.cpu_share) = (cpus[place], 1.0);
            let lines = [counted, 0.0, 6e6, 2e6][place];
            thread.rates.coherence_remote_per_s = Some(lines);
            thread.rates.instructions_per_s = Some(1e9);
        }
        let mut partners = Partners::default();
        partners.learn([(Tid(5), Tid(6), 30), (Tid(7), Tid(8), 30)].into_iter());
        partners.count(&model, &topology);
        model.threads[1].cpu = 1;
        partners.unseen(&model, &topology).get(&0).copied()
    }

    #[test]
    fn what_a_pair_exchanges_is_counted_apart_and_estimated_by_others_where_it_never_was() {
        assert_eq!(unseen(false, 3e6), Some(3.0));
        assert_eq!(unseen(true, 0.0), Some(4.0), "the mean of the threads of the other pair");
    }

    #[test]
    fn a_thread_that_ended_is_nobodys_partner() {
        let mut partners = Partners::default();
        partners.learn([(Tid(5), Tid(6), 30)].into_iter());
        assert_eq!(partners.shares(&model(&[5]))[&0], vec![]);
        partners.forget_gone(&model(&[6]));
        assert_eq!(partners.shares(&model(&[5, 6])).keys().collect::<Vec<_>>(), [&1]);
    }
}
