//! For how many of the last 16 intervals each thread had each of SAM's problems (ALGORITHMS 5.6), where its data was when samples last
//! told, and since when it is where it runs.

use super::held::Held;
use crate::model::{Model, SampledHome, Thread};
use crate::policy::sam::{History, Phase, STEADY_ABOVE, Thresholds};
use crate::topology::Topology;
use crate::units::{Nanos, Tid};
use alloc::collections::BTreeMap;

/// The flags of one thread.
#[derive(Debug, Clone, Copy, Default)]
struct Histories {
    coherence: History,
    sharing: History,
    memory: History,
    remote: History,
    /// The node of its data; `None` if that is on several, or was never seen.
    home: Option<usize>,
    /// The node where it runs, and when it was first seen there.
    node: usize,
    since: Nanos,
}

/// The flags of all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Flags {
    threads: BTreeMap<Tid, Histories>,
}

impl Flags {
    /// Takes in one interval; who is gone is forgotten.
    pub(super) fn observe(&mut self, model: &Model, topology: &Topology, thresholds: &Thresholds) {
        let mut before = core::mem::take(&mut self.threads);
        for thread in &model.threads {
            let node = topology.node_of_cpu(thread.cpu);
            let fresh = || Histories { node, since: model.at, ..Histories::default() };
            let mut histories = before.remove(&thread.tid).unwrap_or_else(fresh);
            if histories.node != node {
                histories = Histories { node, since: model.at, ..histories };
            }
            histories.push(thread, thresholds);
            self.threads.insert(thread.tid, histories);
        }
    }

    /// A phase acts on a flag only if it is steady.
    pub(super) fn not_steady(&self, tid: Tid, phase: Phase) -> Option<Held> {
        let histories = self.threads.get(&tid).copied().unwrap_or_default();
        let history = match phase {
            Phase::Coherence => histories.coherence,
            Phase::Remote => histories.remote,
            Phase::Bandwidth => histories.memory,
        };
        let held = Held::NotSteady { set: history.count(), above: STEADY_ABOVE };
        (!history.is_steady()).then_some(held)
    }

    /// A node has no room for all threads that use memory much and have their data there.
    pub(super) fn no_room(&self, home: usize, topology: &Topology) -> Option<Held> {
        let is_of = |one: &&Histories| one.home == Some(home) && one.memory.count() > 0;
        let threads = self.threads.values().filter(is_of).count();
        let cpus = topology.cpus_of_node(home).len();
        (threads > cpus).then_some(Held::NoRoom { threads, cpus })
    }

    /// Since when a thread has been on the node where it runs.
    pub(super) fn here_since(&self, tid: Tid) -> Option<Nanos> {
        self.threads.get(&tid).map(|histories| histories.since)
    }

    /// N-MASS has only threads that exchanged data with nobody in any of these intervals, neither on another socket nor on their own:
    /// those it must not take away from each other. Not to act takes no steady flag.
    pub(super) fn shares_data(&self, tid: Tid) -> Option<Held> {
        let histories = self.threads.get(&tid)?;
        (histories.coherence.or(histories.sharing).count() > 0).then_some(Held::SharesData)
    }
}

impl Histories {
    fn push(&mut self, thread: &Thread, thresholds: &Thresholds) {
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
        for (history, flag) in [
            (&mut self.coherence, above(rates.coherence_remote_per_s, thresholds.coherence)),
            (&mut self.sharing, above(rates.coherence_local_per_s, thresholds.coherence)),
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

    /// Intervals of one thread, `c`oherent, `s`haring, `m`emory-bound, `r`emote, nothing, or `?` not counted.
    fn observed(intervals: &str) -> Flags {
        let topology = crate::topology::synthetic::parse("node:2 core:2").expect("a machine");
        let mut flags = Flags::default();
        for what in intervals.chars() {
            let mut model = Model::empty(1);
            model.apps.push(App::new(Pid(1), 0..1));
            let mut thread = Thread::new(Tid(1), 0, 0, CpuSet::first(1));
            let rate =
                |letter: char| (what != '?').then_some(if what == letter { 1e9 } else { 0.0 });
            thread.rates.coherence_remote_per_s = rate('c');
            thread.rates.coherence_local_per_s = rate('s');
            thread.rates.memory_per_s = rate('m');
            thread.rates.remote_dram_per_s = rate('r');
            model.threads.push(thread);
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
            let held = Some(Held::NotSteady { set: 3, above: 3 });
            assert_eq!(three.not_steady(Tid(1), phase), held, "{letter}");
            let four = observed(&letter.to_string().repeat(4));
            let free = all.map(|phase| four.not_steady(Tid(1), phase).is_none());
            assert_eq!(free, all.map(|other| other == phase), "{letter}");
        }
        let unknown = Some(Held::NotSteady { set: 0, above: 3 });
        assert_eq!(observed("cccc").not_steady(Tid(2), Phase::Coherence), unknown);
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
        assert_eq!(observed("c").shares_data(Tid(1)), Some(Held::SharesData));
        assert_eq!(observed("s---------------").shares_data(Tid(1)), Some(Held::SharesData));
        assert_eq!(observed("s----------------").shares_data(Tid(1)), None);
        assert_eq!(observed("mmmmrrrr").shares_data(Tid(1)), None);
    }
}
