//! The latest rates of each thread.
//!
//! Two rounds of events take turns on the counters, so an interval may end without one of them. The
//! published code decides on the latest complete sample of a thread, not on the last interval
//! [ALGORITHMS 4.2]. To take what was not counted for nothing would make a thread CPU-bound that is
//! not, and change places with it.

use crate::model::{Model, Thread, ThreadRates};
use crate::topology::Topology;
use crate::units::Tid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Intervals for which a rate stays valid without being counted [inferred: the length of SAM-MPH's
/// history].
const MOST_AGE: u32 = 16;

/// Rates of one thread, events per second of its CPU time; `None` if none is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Rates {
    /// COH: coherence between sockets.
    pub(super) coherence: Option<f64>,
    /// SNP: coherence inside the socket.
    pub(super) sharing: Option<f64>,
    /// MEM: last-level cache misses.
    pub(super) memory: Option<f64>,
    /// RDR: requests to remote memory.
    pub(super) remote: Option<f64>,
    /// COH, SNP or MEM is missing here although it is known for another thread.
    pub(super) is_incomplete: bool,
}

impl Rates {
    /// Whether COH, SNP and MEM are known: the rates that [`Flags::is_cpu_bound`] looks at.
    ///
    /// [`Flags::is_cpu_bound`]: super::Flags::is_cpu_bound
    fn known(&self) -> [bool; 3] {
        [self.coherence, self.sharing, self.memory].map(|rate| rate.is_some())
    }
}

fn or(one: [bool; 3], other: [bool; 3]) -> [bool; 3] {
    core::array::from_fn(|place| one[place] || other[place])
}

/// The latest value of one rate.
#[derive(Debug, Clone, Copy, Default)]
struct LatestRate {
    rate: Option<f64>,
    /// Intervals since it was counted.
    age: u32,
}

/// The latest rates of one thread.
#[derive(Debug, Clone, Default)]
struct LatestOfThread {
    /// Node on which they were counted. They do not hold on another node.
    node: usize,
    coherence: LatestRate,
    sharing: LatestRate,
    memory: LatestRate,
    remote: LatestRate,
}

/// The latest rates of all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    threads: BTreeMap<Tid, LatestOfThread>,
}

impl Latest {
    /// Adds one interval and forgets threads that ended. Returns the rates of the model's threads,
    /// in the model's order.
    pub(super) fn observe(&mut self, model: &Model, topology: &Topology) -> Vec<Rates> {
        let mut before = core::mem::take(&mut self.threads);
        let mut all: Vec<Rates> = Vec::with_capacity(model.threads.len());
        for thread in &model.threads {
            let node = topology.cpu(thread.cpu).node;
            let latest = before.remove(&thread.tid).filter(|latest| latest.node == node);
            let mut latest =
                latest.unwrap_or_else(|| LatestOfThread { node, ..LatestOfThread::default() });
            all.push(latest.update(thread));
            self.threads.insert(thread.tid, latest);
        }
        let known = all.iter().map(Rates::known).fold([false; 3], or);
        for rates in &mut all {
            rates.is_incomplete = or(rates.known(), known) != rates.known();
        }
        all
    }
}

impl LatestOfThread {
    fn update(&mut self, thread: &Thread) -> Rates {
        let ThreadRates {
            coherence_remote_per_s,
            coherence_local_per_s,
            memory_per_s,
            remote_dram_per_s,
            ..
        } = thread.rates;
        Rates {
            coherence: self.coherence.update(coherence_remote_per_s),
            sharing: self.sharing.update(coherence_local_per_s),
            memory: self.memory.update(memory_per_s),
            remote: self.remote.update(remote_dram_per_s),
            is_incomplete: false,
        }
    }
}

impl LatestRate {
    /// Replaces the rate by the one counted in this interval, or ages it. Returns the result.
    fn update(&mut self, now: Option<f64>) -> Option<f64> {
        *self = match now {
            Some(_) => Self { rate: now, age: 0 },
            None if self.age < MOST_AGE => Self { age: self.age + 1, ..*self },
            None => Self::default(),
        };
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::App;
    use crate::units::Pid;

    /// The latest rates of two threads after an interval. `misses` are those of each thread, `cpu`
    /// is the CPU of the first.
    fn observe(latest: &mut Latest, cpu: usize, misses: [Option<f64>; 2]) -> [Rates; 2] {
        let topology = crate::topology::synthetic::parse("node:2 core:2").expect("a machine");
        let mut model = Model::empty(2);
        model.apps.push(App::new(Pid(1), 0..2));
        for (number, (memory_per_s, cpu)) in misses.into_iter().zip([cpu, 3]).enumerate() {
            let mut thread = Thread::new(Tid(number as u32 + 1), 0, cpu, CpuSet::first(4));
            thread.rates.memory_per_s = memory_per_s;
            model.threads.push(thread);
        }
        latest.observe(&model, &topology).try_into().expect("two threads")
    }

    #[test]
    fn what_was_not_counted_is_as_it_was_until_the_thread_is_on_another_node() {
        let mut latest = Latest::default();
        let misses = |rates: [Rates; 2]| rates.map(|one| one.memory);
        let first = observe(&mut latest, 0, [Some(5.0), Some(7.0)]);
        assert_eq!(misses(first), [Some(5.0), Some(7.0)]);
        assert_eq!(misses(observe(&mut latest, 1, [None, Some(8.0)])), [Some(5.0), Some(8.0)]);
        assert_eq!(misses(observe(&mut latest, 2, [None, None])), [None, Some(8.0)]);
    }

    #[test]
    fn a_thread_that_lacks_what_others_have_is_incomplete() {
        let mut latest = Latest::default();
        let incomplete = |rates: [Rates; 2]| rates.map(|one| one.is_incomplete);
        assert_eq!(incomplete(observe(&mut latest, 0, [None, None])), [false, false]);
        assert_eq!(incomplete(observe(&mut latest, 0, [None, Some(1.0)])), [true, false]);
        assert_eq!(incomplete(observe(&mut latest, 0, [Some(1.0), None])), [false, false]);
    }

    #[test]
    fn a_rate_of_long_ago_says_nothing() {
        let mut latest = Latest::default();
        observe(&mut latest, 0, [Some(5.0), Some(7.0)]);
        for _ in 0..MOST_AGE {
            assert_eq!(observe(&mut latest, 0, [None, Some(7.0)])[0].memory, Some(5.0));
        }
        assert_eq!(observe(&mut latest, 0, [None, Some(7.0)])[0].memory, None);
    }
}
