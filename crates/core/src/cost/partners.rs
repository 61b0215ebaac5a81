//! Pairs of threads that exchange cache lines, as named by samples.
//!
//! Counters show how many lines a thread fetches from other caches, but not the other thread.
//! Samples of pages that two threads touched name both. So the cost model can price a step that
//! parts the pair.

use super::exchanged::Exchanged;
use super::lines::{Named, Unseen};
use crate::model::Model;
use crate::topology::Topology;
use crate::units::Tid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Two threads and the number of their common samples. Threads are indices in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The lower thread.
    pub lower: u32,
    /// The higher thread.
    pub upper: u32,
    /// Samples of either on pages that the other had touched before.
    pub samples: u32,
}

/// Partners of threads, kept beyond the samples that named them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partners {
    /// By thread: each partner, with the samples in common.
    of: BTreeMap<Tid, BTreeMap<Tid, u32>>,
    /// Lines that they exchange.
    exchanged: Exchanged,
}

/// Places of threads in the model by process and thread.
type Places = BTreeMap<(usize, Tid), usize>;

/// The empty set of partners.
static NONE: Partners = Partners { of: BTreeMap::new(), exchanged: Exchanged::none() };

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
        for (tid, with) in common {
            let before = self.of.insert(tid, with);
            let now = &self.of[&tid];
            if before.is_some_and(|before| before.keys().all(|one| !now.contains_key(one))) {
                self.exchanged.forget(tid);
            }
        }
    }

    /// Stores what threads fetch from their partners, as far as an interval shows it.
    pub fn count(&mut self, model: &Model, topology: &Topology) {
        let named = self.shares(model);
        let Self { of, exchanged } = self;
        exchanged.count((model, topology), &named, |tid| of[&tid].values().sum());
    }

    /// Lines that partners exchange and no counter shows. `named` = [`Self::shares`].
    pub(super) fn unseen(&self, model: &Model, topology: &Topology, named: &Named) -> Unseen {
        self.exchanged.unseen(model, topology, named)
    }

    /// Forgets threads that are gone.
    pub fn forget_gone(&mut self, model: &Model) {
        if self.of.is_empty() {
            return;
        }
        let alive: BTreeSet<Tid> = model.threads.iter().map(|one| one.tid).collect();
        self.of.retain(|tid, _| alive.contains(tid));
        self.exchanged.retain(&alive);
    }

    /// All pairs of threads of the model, most samples first, then by thread.
    #[must_use]
    pub fn pairs(&self, model: &Model) -> Vec<Pair> {
        let places = self.places(model);
        let mut pairs = Vec::new();
        for (&(app, tid), &place) in &places {
            for (with, samples) in self.of.get(&tid).into_iter().flatten() {
                let partner = places.get(&(app, *with)).filter(|partner| **partner > place);
                let (lower, samples) = (place as u32, *samples);
                pairs.extend(partner.map(|upper| Pair { lower, upper: *upper as u32, samples }));
            }
        }
        pairs.sort_by_key(|pair| (Reverse(pair.samples), pair.lower, pair.upper));
        pairs
    }

    /// For each thread, by place in the model: its partners, with their share of its common
    /// samples.
    pub(super) fn shares(&self, model: &Model) -> Named {
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
        let pairs = partners.pairs(&model(&[5, 6, 7]));
        assert_eq!(pairs, [Pair { lower: 0, upper: 2, samples: 1 }]);
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
