//! Converts the model into the input of clustering: threads with their node, load and data, and the
//! threads that touched each page.

use super::pairs::{self, Pair};
use super::placement::{Sharer, Shift};
use super::preset::{Detection, Preset};
use super::signature::{Signature, founders};
use crate::index_set::CpuSet;
use crate::model::{Model, Thread, Touch};
use crate::policy::{nmass, sam};
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// Share of cycles in stalls on remote caches above which the preset `tam` acts (recalled).
const TAM_STALL_SHARE: f64 = 0.20;

/// All threads of the model, in its order. Threads of processes that are not `asked` (by model
/// index) are fixed.
pub(super) fn sharers(model: &Model, topology: &Topology, asked: &[bool]) -> Vec<Sharer> {
    let limits = Limits::new(topology);
    let usable: Vec<CpuSet> = (0..topology.node_count())
        .map(|node| topology.usable(topology.cpus_of_node(node)))
        .collect();
    // Most threads have the same mask as the thread before them.
    let mut last: Option<(&CpuSet, Vec<bool>)> = None;
    let mut sharers = Vec::with_capacity(model.threads.len());
    for thread in &model.threads {
        let may_use = match &last {
            Some((mask, may_use)) if *mask == &thread.allowed => may_use.clone(),
            _ => usable.iter().map(|cpus| cpus.intersects(&thread.allowed)).collect(),
        };
        last = Some((&thread.allowed, may_use.clone()));
        sharers.push(Sharer {
            node: topology.node_of_cpu(thread.cpu),
            demand: thread.cpu_share,
            pressure: limits.pressure(thread),
            accesses: thread.accesses_by_node.clone().unwrap_or_default(),
            may_use,
            is_fixed: !asked[thread.app]
                || model.apps[thread.app].exempt.or(thread.exempt).is_some(),
        });
    }
    sharers
}

/// Capacity of a node's memory: SAM's misses per second and N-MASS's MPKI.
struct Limits {
    misses_per_s: f64,
    mpki: f64,
}

impl Limits {
    fn new(topology: &Topology) -> Self {
        let (misses_per_s, mpki) =
            (sam::memory_limit_per_s(topology), nmass::threshold_mpki(topology));
        Self { misses_per_s, mpki }
    }

    /// The thread's share of the capacity, by misses per second, else by MPKI. Zero if neither is
    /// known.
    fn pressure(&self, thread: &Thread) -> f64 {
        let by_rate =
            thread.rates.memory_per_s.map(|rate| rate * thread.cpu_share / self.misses_per_s);
        by_rate.or(thread.rates.mpki.map(|mpki| mpki / self.mpki)).unwrap_or(0.0)
    }
}

/// Physical cores of each node, isolated CPUs left out.
pub(super) fn cores(topology: &Topology) -> Vec<usize> {
    let of_node = |node: usize| {
        let mut cores: Vec<usize> = topology
            .cpus_of_node(node)
            .iter()
            .map(|cpu| topology.cpu(cpu))
            .filter(|cpu| !cpu.isolated)
            .map(|cpu| cpu.core)
            .collect();
        cores.sort_unstable();
        cores.dedup();
        cores.len()
    };
    (0..topology.node_count()).map(of_node).collect()
}

/// The pairs that the preset's detection finds in the processes that are `asked` (by model index),
/// most samples first.
pub(super) fn pairs(
    model: &Model,
    topology: &Topology,
    asked: &[bool],
    preset: &Preset,
) -> Vec<Pair> {
    let is_asked = |touch: &&Touch| asked[model.threads[touch.thread as usize].app];
    let touches = model.touches.iter().filter(is_asked);
    match preset.detection {
        Detection::CommonSamples { minimum } => {
            let touches: Vec<(u32, u32)> =
                touches.map(|touch| (touch.page.0, touch.thread)).collect();
            pairs::pairs(&touches, model.pages.len(), minimum)
        }
        Detection::Signatures { similarity, one_of } if stalls_enough(model, topology) => {
            similar(model, touches, similarity, one_of)
        }
        Detection::Signatures { .. } => Vec::new(),
    }
}

/// Pairs of threads with similar signatures of remote accesses. One of `one_of` touches is used.
fn similar<'a>(
    model: &Model,
    touches: impl Iterator<Item = &'a Touch>,
    similarity: u64,
    one_of: u32,
) -> Vec<Pair> {
    let mut signatures = vec![Signature::default(); model.threads.len()];
    for touch in touches.filter(|touch| touch.remote).step_by(one_of.max(1) as usize) {
        signatures[touch.thread as usize].add(u64::from(touch.page.0));
    }
    let pair = |(founder, thread, alike): (u32, u32, u64)| Pair {
        lower: founder.min(thread),
        upper: founder.max(thread),
        samples: u32::try_from(alike).unwrap_or(u32::MAX),
    };
    let mut pairs: Vec<Pair> = founders(&signatures, similarity).into_iter().map(pair).collect();
    pairs.sort_unstable_by_key(|pair| (core::cmp::Reverse(pair.samples), pair.lower, pair.upper));
    pairs
}

/// Whether some thread stalls on remote caches in more than [`TAM_STALL_SHARE`] of its cycles. True
/// if it is known for no thread.
fn stalls_enough(model: &Model, topology: &Topology) -> bool {
    let share = |thread: &Thread| {
        let rates = &thread.rates;
        Some(rates.stalls_per_coherence? * rates.coherence_remote_per_s? / topology.clock_hz()?)
    };
    let mut known = model.threads.iter().filter_map(share).peekable();
    known.peek().is_none() || known.any(|share| share > TAM_STALL_SHARE)
}

/// Target CPUs for threads that change their node. First hardware threads of cores come first,
/// among them those of the cores with the least load.
pub(super) struct ExactCpus<'a> {
    model: &'a Model,
    /// CPUs of each node, best first.
    free: Vec<Vec<usize>>,
}

impl<'a> ExactCpus<'a> {
    pub(super) fn new(model: &'a Model, topology: &Topology, shifts: &[Shift]) -> Self {
        let mut load = vec![0.0; topology.cpu_count()];
        for (index, thread) in model.threads.iter().enumerate() {
            let leaves = shifts.binary_search_by_key(&(index as u32), |shift| shift.thread).is_ok();
            load[thread.cpu] += if leaves { 0.0 } else { thread.cpu_share };
        }
        let mut core_load =
            vec![0.0; topology.cpus().iter().map(|cpu| cpu.core + 1).max().unwrap_or(0)];
        topology.cpus().iter().zip(&load).for_each(|(cpu, load)| core_load[cpu.core] += load);
        let of_node = |node: usize| {
            let cpus = topology.usable(topology.cpus_of_node(node));
            let mut ordered: Vec<(usize, f64, usize)> = cpus
                .iter()
                .map(|cpu| (place_in_core(topology, cpu), core_load[topology.cpu(cpu).core], cpu))
                .collect();
            ordered.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            ordered.into_iter().map(|(_, _, cpu)| cpu).collect()
        };
        Self { model, free: (0..topology.node_count()).map(of_node).collect() }
    }

    /// The best allowed CPU of the shift's target that was taken least. `None` if the thread may
    /// use none.
    pub(super) fn take(&mut self, shift: Shift) -> Option<usize> {
        let allowed = &self.model.threads[shift.thread as usize].allowed;
        let free = &mut self.free[shift.to];
        let place = free.iter().position(|&cpu| allowed.contains(cpu))?;
        let cpu = free.remove(place);
        // CPUs are taken in turn, so more threads than CPUs spread evenly.
        free.push(cpu);
        Some(cpu)
    }
}

/// Rank of a CPU among the hardware threads of its core, from 0.
fn place_in_core(topology: &Topology, cpu: usize) -> usize {
    let of_node = topology.cpus_of_node(topology.node_of_cpu(cpu));
    let before = of_node.iter().take_while(|&other| other < cpu);
    before.filter(|&other| topology.cpu(other).core == topology.cpu(cpu).core).count()
}
