//! Lines that threads fetch from their partners, kept from intervals in which counters showed them.
//!
//! Lines between partners behind one cache are hits there, which many processors do not count as an
//! exchange. Without the earlier counts, a step that parts the pair would seem to cost nothing.

use super::lines::{Named, Unseen, own_lines};
use crate::model::{Model, Thread};
use crate::topology::Topology;
use crate::units::{Nanos, Tid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Shortest time for which a count is believed after counters have stopped showing it (our choice).
const BELIEVED_FOR: Nanos = Nanos::from_secs(30);
/// Share of a thread's exchange that counters must show. The rest is taken in proportion (our
/// choice).
const LEAST_SHOWN: f64 = 0.5;

/// What threads fetch from their partners.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Exchanged {
    of: BTreeMap<Tid, Fetched>,
}

/// What one thread fetches from all its partners.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fetched {
    lines_per_instruction: f64,
    /// Since when the thread fetches about as many.
    since: Nanos,
    /// When counters last showed them.
    counted: Nanos,
}

impl Fetched {
    /// Whether it is still believed. A thread is expected to go on for as long again as it has.
    fn is_known(&self, now: Nanos) -> bool {
        now.since(self.counted) < self.counted.since(self.since).max(BELIEVED_FOR)
    }
}

/// What an interval shows of a thread that stayed behind one cache, as its partners did.
#[derive(Debug, Clone, Copy)]
struct Interval {
    tid: Tid,
    /// Instructions in a µs of elapsed time.
    instructions: f64,
    /// Lines from all other caches in a µs of elapsed time.
    lines: f64,
    /// Samples in common with all partners.
    samples: f64,
    /// Share of them with partners whose lines counters show.
    shown: f64,
}

impl Exchanged {
    /// Nothing is known of any thread.
    pub(super) const fn none() -> Self {
        Self { of: BTreeMap::new() }
    }

    /// Stores what an interval shows. A thread whose partners are all behind its cache is assumed
    /// to fetch as many lines for each common sample as others of its process.
    /// `samples` = those that each thread has in common with its partners.
    pub(super) fn count(
        &mut self,
        (model, topology): (&Model, &Topology),
        named: &Named,
        samples: impl Fn(Tid) -> u32,
    ) {
        for app in &model.apps {
            let seen = named.range(app.threads.clone()).filter_map(|(place, partners)| {
                let samples = f64::from(samples(model.threads[*place].tid));
                interval((model, topology), *place, partners, samples)
            });
            let (shown, rest): (Vec<_>, Vec<_>) = seen.partition(|one| one.shown > LEAST_SHOWN);
            for one in &shown {
                self.note(one.tid, one.lines / one.shown / one.instructions, model.at);
            }
            let samples: f64 = shown.iter().map(|one| one.samples).sum();
            let lines: f64 = shown.iter().map(|one| one.lines / one.shown).sum();
            for one in rest.iter().filter(|_| lines > 0.0 && samples > 0.0) {
                if self.rate(one.tid, model.at).is_none() {
                    let fetched = lines / samples * one.samples;
                    self.note(one.tid, fetched / one.instructions, model.at);
                }
            }
        }
    }

    /// Stores the mean of a count and what was known before. So a lull in a short interval does not
    /// erase it.
    fn note(&mut self, tid: Tid, lines_per_instruction: f64, now: Nanos) {
        let new = Fetched { lines_per_instruction, since: now, counted: now };
        let fetched = self.of.entry(tid).or_insert(new);
        if lines_per_instruction < fetched.lines_per_instruction / 2.0 {
            fetched.since = now;
        }
        fetched.lines_per_instruction += lines_per_instruction;
        fetched.lines_per_instruction /= 2.0;
        fetched.counted = now;
    }

    /// Lines that a thread fetches in an instruction.
    fn rate(&self, tid: Tid, now: Nanos) -> Option<f64> {
        let fetched = self.of.get(&tid).filter(|fetched| fetched.is_known(now))?;
        Some(fetched.lines_per_instruction)
    }

    /// Lines that no counter shows, of each thread by place in the model.
    pub(super) fn unseen(&self, model: &Model, topology: &Topology, named: &Named) -> Unseen {
        let unseen = |(place, partners): (&usize, &Vec<(usize, f64)>)| {
            let thread = &model.threads[*place];
            let rate = self.rate(thread.tid, model.at)?;
            let instructions = thread.rates.instructions_per_s? / 1e6;
            let all = rate * instructions / thread.cpu_share;
            let [_, hidden] = sides((model, topology), thread, partners);
            let lines = (hidden * all).min(all - own_lines(thread)?);
            (thread.cpu_share > 0.0 && lines > 0.0).then_some((*place, lines))
        };
        named.iter().filter_map(unseen).collect()
    }

    /// Forgets threads that have other partners now.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.of.remove(&tid);
    }

    /// Forgets threads that are gone.
    pub(super) fn retain(&mut self, alive: &BTreeSet<Tid>) {
        self.of.retain(|tid, _| alive.contains(tid));
    }
}

/// What an interval shows of a thread; `None` where it shows nothing, or one of them moved.
fn interval(
    (model, topology): (&Model, &Topology),
    place: usize,
    partners: &[(usize, f64)],
    samples: f64,
) -> Option<Interval> {
    let thread = &model.threads[place];
    let mut all = partners.iter().map(|(place, _)| &model.threads[*place]).chain([thread]);
    let instructions = thread.rates.instructions_per_s? / 1e6;
    let lines = own_lines(thread)? * thread.cpu_share;
    let [shown, _] = sides((model, topology), thread, partners);
    let is_shown = instructions > 0.0 && samples > 0.0 && all.all(|one| stayed(one, topology));
    is_shown.then_some(Interval { tid: thread.tid, instructions, lines, samples, shown })
}

/// Shares of a thread's exchange: lines that counters show, and lines that they do not. Caches of
/// one node may exchange lines uncounted, too.
fn sides(
    (model, topology): (&Model, &Topology),
    thread: &Thread,
    partners: &[(usize, f64)],
) -> [f64; 2] {
    let counts_near = thread.rates.coherence_local_per_s.is_some();
    let is_hidden = |partner: &Thread| {
        let [here, there] = [thread.cpu, partner.cpu];
        topology.domain_of_cpu(here) == topology.domain_of_cpu(there)
            || !counts_near && topology.node_of_cpu(here) == topology.node_of_cpu(there)
    };
    let mut sides = [0.0; 2];
    for (place, share) in partners {
        sides[usize::from(is_hidden(&model.threads[*place]))] += share;
    }
    sides
}

/// Whether a thread ran behind one cache in the whole interval, as far as is known.
fn stayed(thread: &Thread, topology: &Topology) -> bool {
    let (domain, node) = (topology.domain_of_cpu(thread.cpu), topology.node_of_cpu(thread.cpu));
    let ran_elsewhere = |ran_on: &Vec<u32>| {
        ran_on.iter().enumerate().any(|(other, samples)| other != node && *samples > 0)
    };
    thread.cpu_before.is_none_or(|cpu| topology.domain_of_cpu(cpu) == domain)
        && !thread.ran_on.as_ref().is_some_and(ran_elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::App;
    use crate::topology::synthetic;
    use crate::units::Pid;
    use alloc::vec;

    /// Two pairs on two nodes: threads 0 and 1, and threads 2 and 3. The first of each fetches.
    struct Pairs {
        model: Model,
        topology: Topology,
        named: Named,
        exchanged: Exchanged,
    }

    impl Pairs {
        fn new() -> Self {
            let mut model = Model::empty(2);
            model.at = Nanos::from_secs(1);
            model.apps.push(App::new(Pid(1), 0..4));
            model.threads =
                (0..4).map(|tid| Thread::new(Tid(tid), 0, 0, CpuSet::first(8))).collect();
            for thread in &mut model.threads {
                thread.cpu_share = 1.0;
                thread.rates.instructions_per_s = Some(1e9);
            }
            let with = |partner: usize| vec![(partner, 1.0)];
            let named = BTreeMap::from([(0, with(1)), (1, with(0)), (2, with(3)), (3, with(2))]);
            let topology = synthetic::parse("node:2 core:4").expect("a machine");
            Self { model, topology, named, exchanged: Exchanged::none() }
        }

        /// An interval of a second with the CPUs of all threads and what they fetch in a µs.
        fn interval(&mut self, cpus: [usize; 4], lines: [f64; 4]) -> &mut Self {
            self.model.at += Nanos::from_secs(1);
            for (place, thread) in self.model.threads.iter_mut().enumerate() {
                thread.cpu_before = Some(thread.cpu);
                thread.cpu = cpus[place];
                thread.rates.coherence_remote_per_s = Some(1e6 * lines[place]);
            }
            self.exchanged.count((&self.model, &self.topology), &self.named, |_| 30);
            self
        }

        /// Lines that no counter shows of the first thread.
        fn unseen(&self) -> f64 {
            let unseen = self.exchanged.unseen(&self.model, &self.topology, &self.named);
            unseen.get(&0).copied().unwrap_or(0.0)
        }
    }

    const APART: [usize; 4] = [0, 4, 1, 5];
    const JOINED: [usize; 4] = [0, 1, 2, 3];
    /// The first pair joined, the other apart.
    const HALF: [usize; 4] = [0, 1, 2, 5];

    #[test]
    fn a_pair_that_is_joined_exchanges_what_it_did_apart_whatever_others_exchange() {
        let mut pairs = Pairs::new();
        pairs.interval(APART, [3.0, 0.0, 6.0, 0.0]).interval(APART, [3.0, 0.0, 6.0, 0.0]);
        assert_eq!(pairs.unseen(), 0.0, "counters show it");
        for _ in 0..20 {
            pairs.interval(HALF, [0.0, 0.0, 9.0, 0.0]);
        }
        assert_eq!(pairs.unseen(), 3.0);
    }

    #[test]
    fn a_pair_that_was_never_seen_apart_exchanges_as_much_for_a_sample_as_another() {
        let mut pairs = Pairs::new();
        pairs.model.threads[1].cpu = 1;
        pairs.model.threads[3].cpu = 5;
        pairs.interval(HALF, [0.0, 0.0, 6.0, 2.0]).interval(HALF, [0.0, 0.0, 6.0, 2.0]);
        assert_eq!(pairs.unseen(), 4.0);
    }

    #[test]
    fn an_interval_in_which_a_thread_moved_shows_nothing_of_its_pair() {
        let mut pairs = Pairs::new();
        pairs.interval(APART, [3.0, 0.0, 0.0, 0.0]).interval(APART, [3.0, 0.0, 0.0, 0.0]);
        pairs.interval(JOINED, [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(pairs.unseen(), 2.0, "the rest was counted before they joined");
        pairs.interval(APART, [0.0; 4]).interval(JOINED, [0.0; 4]);
        assert_eq!(pairs.unseen(), 3.0);
    }

    #[test]
    fn caches_of_one_node_exchange_lines_that_only_some_processors_count() {
        for (counted, unseen) in [(None, 3.0), (Some(3e6), 0.0)] {
            let mut pairs = Pairs::new();
            pairs.interval(APART, [3.0, 0.0, 0.0, 0.0]).interval(APART, [3.0, 0.0, 0.0, 0.0]);
            pairs.topology = synthetic::parse("node:2 llc:2 core:2").expect("a machine");
            let apart_on_the_node = [0, 2, 1, 3];
            pairs.interval(apart_on_the_node, [0.0; 4]);
            pairs.model.threads[0].rates.coherence_local_per_s = counted;
            assert_eq!(pairs.unseen(), unseen);
        }
    }

    #[test]
    fn a_count_is_believed_for_as_long_again_as_it_held() {
        for (seconds, believed) in [(2, 29), (100, 90)] {
            let mut pairs = Pairs::new();
            for _ in 0..seconds {
                pairs.interval(APART, [3.0, 0.0, 0.0, 0.0]);
            }
            let last = pairs.model.at;
            pairs.interval(JOINED, [0.0; 4]);
            pairs.model.at = last + Nanos::from_secs(believed);
            assert_eq!(pairs.unseen(), 3.0);
            pairs.model.at = last + Nanos::from_secs(believed + 20);
            assert_eq!(pairs.unseen(), 0.0);
        }
    }

    #[test]
    fn a_thread_without_cpu_time_exchanges_nothing() {
        let mut pairs = Pairs::new();
        pairs.interval(APART, [3.0; 4]).interval(APART, [3.0; 4]).interval(JOINED, [0.0; 4]);
        pairs.model.threads[0].cpu_share = 0.0;
        assert_eq!(pairs.unseen(), 0.0);
    }
}
