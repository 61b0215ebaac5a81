//! SAM's problems of each thread: in how many of the last 16 intervals it had each of them
//! (ALGORITHMS 5.6). Also where its data was when samples last told, and since when it runs where
//! it is.

use super::veto::Veto;
use crate::model::{Model, SampledHome, Thread};
use crate::policy::sam::{History, Phase, STEADY_ABOVE, Thresholds};
use crate::topology::Topology;
use crate::units::{Nanos, Tid};
use alloc::collections::{BTreeMap, BTreeSet};

/// The flags of one thread.
#[derive(Debug, Clone, Copy, Default)]
struct Histories {
    coherence: History,
    /// Exchanges data with others, on whatever node.
    exchange: History,
    memory: History,
    remote: History,
    /// The node of its data; `None` if that is on several, or was never seen.
    home: Option<usize>,
    /// The node where it runs, and when it was first seen there.
    node: usize,
    since: Nanos,
    /// It has not been seen anywhere else.
    is_first: bool,
    /// Intervals since it came from another node, the one in which it came not among them.
    intervals_here: u32,
}

/// How long a thread has been where it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Here {
    pub(super) since: Nanos,
    /// It was nowhere else before, as far as was seen.
    pub(super) is_first: bool,
}

/// For this many intervals after a thread came, it may fetch its own lines from the caches where it
/// was before. These are the interval in which it came, perhaps at its end, and the next (our
/// choice). Its lines stay for longer where no thread runs that would push them out. With all of
/// four programs on one node, 0.1 to 0.9 million lines a second came from the other's cache for two
/// seconds (emulated, nmass-2).
const OWN_LINES: u32 = 2;

/// The flags of all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Flags {
    threads: BTreeMap<Tid, Histories>,
    /// Samples have told of some thread.
    has_samples: bool,
}

impl Flags {
    /// Takes in one interval. Forgets threads that are gone.
    pub(super) fn observe(&mut self, model: &Model, topology: &Topology, thresholds: &Thresholds) {
        let mut before = core::mem::take(&mut self.threads);
        let node_of = |thread: &Thread| topology.node_of_cpu(thread.cpu);
        let running = model.threads.iter().filter(|thread| thread.is_running());
        let busy: BTreeSet<usize> = running.map(node_of).collect();
        for thread in &model.threads {
            let node = node_of(thread);
            let is_alone = busy.iter().all(|other| *other == node);
            let here = Histories { node, since: model.at, is_first: true, ..Histories::default() };
            let fresh = || Histories { intervals_here: OWN_LINES, ..here };
            let mut histories = before.remove(&thread.tid).unwrap_or_else(fresh);
            histories.intervals_here = histories.intervals_here.saturating_add(1);
            if histories.node != node {
                histories = Histories {
                    node,
                    since: model.at,
                    is_first: false,
                    intervals_here: 0,
                    ..histories
                };
            }
            histories.push(thread, thresholds, is_alone);
            self.has_samples |= thread.accesses_by_node.is_some();
            self.threads.insert(thread.tid, histories);
        }
    }

    /// These threads went to other nodes and their data goes there with them.
    pub(super) fn relabel(&mut self, tids: &BTreeSet<Tid>, image: impl Fn(usize) -> usize) {
        for (_, histories) in self.threads.iter_mut().filter(|(tid, _)| tids.contains(tid)) {
            histories.home = histories.home.map(&image);
        }
    }

    /// A phase acts on a flag only if it is steady.
    pub(super) fn not_steady(&self, tid: Tid, phase: Phase) -> Option<Veto> {
        let histories = self.threads.get(&tid).copied().unwrap_or_default();
        let history = match phase {
            Phase::Coherence => histories.coherence,
            Phase::Remote => histories.remote,
            Phase::Bandwidth => histories.memory,
        };
        let veto = Veto::NotSteady { set: history.count(), above: STEADY_ABOVE };
        (!history.is_steady()).then_some(veto)
    }

    /// Where there are samples they will tell where a thread's data is; SAM by itself tries one
    /// node after the other.
    pub(super) fn home_unknown(&self, home: Option<usize>, topology: &Topology) -> Option<Veto> {
        let is_guess = home.is_none() && topology.compute_nodes().len() > 2;
        (is_guess && self.has_samples).then_some(Veto::HomeUnknown)
    }

    /// A node has no room for all threads that use memory much and have their data there.
    pub(super) fn no_room(&self, home: usize, topology: &Topology) -> Option<Veto> {
        let is_of = |one: &&Histories| one.home == Some(home) && one.memory.count() > 0;
        let threads = self.threads.values().filter(is_of).count();
        let cpus = topology.cpus_of_node(home).len();
        (threads > cpus).then_some(Veto::NoRoom { threads, cpus })
    }

    /// Since when a thread has been on the node where it runs.
    pub(super) fn here_since(&self, tid: Tid) -> Option<Here> {
        let histories = self.threads.get(&tid)?;
        Some(Here { since: histories.since, is_first: histories.is_first })
    }

    /// The node of a thread's data, as samples last told; `None` where that is on several or none
    /// was seen.
    pub(super) fn home(&self, tid: Tid) -> Option<usize> {
        self.threads.get(&tid)?.home
    }

    /// N-MASS has only threads that exchanged no data in any of these intervals, on any socket: it
    /// must not part sharers. Not to act takes no steady flag. A thread's own lines, left in a
    /// cache on another node, are no exchange.
    pub(super) fn shares_data(&self, tid: Tid) -> Option<Veto> {
        let histories = self.threads.get(&tid)?;
        (histories.exchange.count() > 0).then_some(Veto::SharesData)
    }
}

impl Histories {
    /// `is_alone`: no thread runs on another node.
    fn push(&mut self, thread: &Thread, thresholds: &Thresholds, is_alone: bool) {
        // An interval in which a rate was not counted says nothing of it.
        let above = |rate: Option<f64>, threshold| rate.map(|rate| rate > threshold);
        let rates = &thread.rates;
        match thread.sampled_home() {
            SampledHome::Node(home) => self.home = Some(home),
            SampledHome::Scattered => self.home = None,
            SampledHome::Unknown => {}
        }
        let uses_memory = above(rates.memory_per_s, thresholds.memory_thread);
        let asks_afar = above(rates.remote_dram_per_s, thresholds.remote);
        let is_away = self.home.is_some_and(|home| home != self.node);
        let is_remote = match (asks_afar, uses_memory) {
            (None, None) => None,
            (afar, memory) => Some(afar == Some(true) || memory == Some(true) && is_away),
        };
        let coherent = above(rates.coherence_remote_per_s, thresholds.coherence);
        let sharing = above(rates.coherence_local_per_s, thresholds.coherence);
        let exchanges = match (coherent, sharing) {
            (None, None) => None,
            _ => Some(coherent == Some(true) && !is_alone || sharing == Some(true)),
        };
        for (history, flag) in [
            (&mut self.coherence, coherent),
            (&mut self.exchange, exchanges.filter(|_| self.intervals_here >= OWN_LINES)),
            (&mut self.memory, uses_memory),
            (&mut self.remote, is_remote),
        ] {
            if let Some(flag) = flag {
                history.push(flag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::App;
    use crate::units::Pid;
    use alloc::string::ToString;

    /// Intervals of one thread, `c`oherent, `s`haring, `m`emory-bound, `r`emote, nothing, or `?`
    /// not counted; in capitals if it has changed nodes.
    fn observed(intervals: &str) -> Flags {
        observed_beside(true, intervals)
    }

    /// `with_another`: a thread runs on the other node.
    fn observed_beside(with_another: bool, intervals: &str) -> Flags {
        let topology = crate::topology::synthetic::parse("node:2 core:2").expect("a machine");
        let mut flags = Flags::default();
        let mut cpu = 0;
        for what in intervals.chars() {
            if what.is_uppercase() {
                cpu = 2 - cpu;
            }
            let what = what.to_ascii_lowercase();
            let mut model = Model::empty(1);
            model.apps.push(App::new(Pid(1), 0..2));
            let mut thread = Thread::new(Tid(1), 0, cpu, CpuSet::first(1));
            let rate =
                |letter: char| (what != '?').then_some(if what == letter { 1e9 } else { 0.0 });
            thread.rates.coherence_remote_per_s = rate('c');
            thread.rates.coherence_local_per_s = rate('s');
            thread.rates.memory_per_s = rate('m');
            thread.rates.remote_dram_per_s = rate('r');
            model.threads.push(thread);
            let mut other = Thread::new(Tid(2), 0, 2 - cpu, CpuSet::first(1));
            other.cpu_share = if with_another { 1.0 } else { 0.0 };
            model.threads.push(other);
            flags.observe(&model, &topology, &Thresholds::TWO_SOCKET);
        }
        flags
    }

    #[test]
    fn each_phase_waits_for_its_own_flag() {
        let all = [Phase::Coherence, Phase::Remote, Phase::Bandwidth];
        for (letter, phase) in
            [('c', Phase::Coherence), ('r', Phase::Remote), ('m', Phase::Bandwidth)]
        {
            let three = observed(&letter.to_string().repeat(3));
            let expected = Some(Veto::NotSteady { set: 3, above: 3 });
            assert_eq!(three.not_steady(Tid(1), phase), expected, "{letter}");
            let four = observed(&letter.to_string().repeat(4));
            let free = all.map(|phase| four.not_steady(Tid(1), phase).is_none());
            assert_eq!(free, all.map(|other| other == phase), "{letter}");
        }
        let unknown = Some(Veto::NotSteady { set: 0, above: 3 });
        assert_eq!(observed("cccc").not_steady(Tid(3), Phase::Coherence), unknown);
    }

    #[test]
    fn an_interval_that_was_not_counted_says_nothing() {
        let steady = |intervals| observed(intervals).not_steady(Tid(1), Phase::Bandwidth).is_none();
        assert!(!steady("mmm????????????????????"));
        assert!(steady("m??m????????????m????????????m"));
        assert!(!steady("m--m------------m------------m"));
    }

    #[test]
    fn coherence_of_either_kind_keeps_a_thread_from_n_mass() {
        assert_eq!(observed("c").shares_data(Tid(1)), Some(Veto::SharesData));
        assert_eq!(observed("s---------------").shares_data(Tid(1)), Some(Veto::SharesData));
        assert_eq!(observed("s----------------").shares_data(Tid(1)), None);
        assert_eq!(observed("mmmmrrrr").shares_data(Tid(1)), None);
    }

    #[test]
    fn what_a_thread_fetches_from_the_cache_that_it_left_is_no_exchange() {
        assert_eq!(observed("--Cc--").shares_data(Tid(1)), None);
        assert_eq!(observed("--Ccc-").shares_data(Tid(1)), Some(Veto::SharesData));
        assert_eq!(observed("--CcC-").shares_data(Tid(1)), None);
        assert_eq!(observed_beside(false, "cccc").shares_data(Tid(1)), None);
        assert_eq!(observed_beside(false, "s").shares_data(Tid(1)), Some(Veto::SharesData));
        // It is to be brought together all the same.
        assert_eq!(observed("CCCC").not_steady(Tid(1), Phase::Coherence), None);
    }
    #[test]
    fn data_that_goes_along_to_another_node_is_looked_for_there() {
        let topology = crate::topology::synthetic::parse("node:2 core:2").expect("a machine");
        let tids = [1, 2, 3].map(Tid);
        let mut model = Model::empty(2);
        for tid in tids {
            let mut thread = Thread::new(tid, 0, 0, CpuSet::first(1));
            thread.rates.memory_per_s = Some(1e9);
            thread.accesses_by_node = Some([100, 0].into());
            model.threads.push(thread);
        }
        let mut flags = Flags::default();
        flags.observe(&model, &topology, &Thresholds::TWO_SOCKET);
        let crowded = |flags: &Flags| [0, 1].map(|node| flags.no_room(node, &topology).is_some());
        assert_eq!(crowded(&flags), [true, false]);
        flags.relabel(&tids.into(), |node| 1 - node);
        assert_eq!(crowded(&flags), [false, true]);
    }
}
