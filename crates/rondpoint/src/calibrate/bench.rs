//! The benchmarks in their order, and the values that each adds to the calibration.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Topology;
use rondpoint_core::policy::sam;
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::syscall::memory::{Anonymous, page_bytes};
use rondpoint_linux::topology::Discovered;
use rondpoint_linux::{Root, probe};

use super::contention::{self, Crowd};
use super::counts::Events;
use super::file::{Calibration, Program, Sampling};
use super::handoff::{self, Pair, Point};
use super::loaded::{self, LoadedPoint};
use super::loads::Loads;
use super::sampling::{self, Try};
use super::{chase, penalty, stream};
use crate::machine;

/// Memory of a node's benchmark: this many times the last-level caches that could keep it …
const CACHES: u64 = 4;
/// … where a node's memory has room for it: at most this part of it.
const PART_OF_NODE: u64 = 4;
/// The part of a last-level cache that one thread's private data takes in SAM's experiment: one
/// fits, two do not.
const PRIVATE_PART: f64 = 0.75;
/// Taken where the caches are not known.
const SOME_CACHE_BYTES: u64 = 32 << 20;

/// What is measured, and with what.
pub(super) struct Bench<'a> {
    machine: &'a Discovered,
    topology: &'a Topology,
    /// CPUs of each node that may be used, as the kernel numbers them.
    cpus: Vec<Vec<usize>>,
    cache_bytes: u64,
    time: Duration,
    /// What all caches hold after [`Bench::flush`].
    scratch: Anonymous,
}

/// What lies behind the numbers of the file.
#[derive(Debug, Default, serde::Serialize)]
pub(super) struct Points {
    pub(super) sharing: Vec<Point>,
    pub(super) contention: Vec<Crowd>,
    pub(super) sampling: Vec<Try>,
    /// What could not be measured, and why.
    pub(super) missing: Vec<String>,
}

impl<'a> Bench<'a> {
    /// On this machine, with a last-level cache of this size (else as sysfs has it).
    ///
    /// # Errors
    /// This process may not use all of its CPUs.
    pub(super) fn new(
        machine: &'a Discovered,
        cache_bytes: Option<u64>,
        time: Duration,
    ) -> Result<Self> {
        let topology = &machine.topology;
        let allowed = affinity::get(0).context("the CPUs of this process")?;
        let of_node = |node: usize| -> Vec<usize> {
            let cpus = topology.cpus_of_node(node).iter();
            let numbers = cpus.map(|cpu| topology.kernel_cpu(cpu) as usize);
            numbers.filter(|&cpu| allowed.contains(cpu)).collect()
        };
        let cpus: Vec<Vec<usize>> = (0..topology.node_count()).map(of_node).collect();
        let usable = cpus.iter().map(Vec::len).sum::<usize>();
        if usable < topology.cpu_count() {
            let count = topology.cpu_count();
            bail!("this process may use {usable} of {count} CPUs: run it on the whole machine");
        }
        // One more of them chases pointers meanwhile.
        stream::has_threads(usable + 1)?;
        let last = machine.caches.iter().filter(|cache| cache.level >= 2);
        let last =
            last.max_by_key(|cache| cache.level).map_or(SOME_CACHE_BYTES, |cache| cache.bytes);
        let cache_bytes = cache_bytes.unwrap_or(last);
        let node = topology.memory_nodes().iter().next().context("no node has memory")?;
        let scratch = bound(topology, larger_than_caches(topology, cache_bytes, node), node)?;
        Ok(Self { machine, topology, cpus, cache_bytes, time, scratch })
    }

    /// Runs them all.
    pub(super) fn measure(&self) -> Result<(Calibration, Points)> {
        let mut found = Calibration::of(self.topology, machine::host_name(&Root::live()));
        let mut points = Points::default();
        self.measure_memory(&mut found)?;
        found.clock_mhz = self.clock_mhz();
        points.sharing = self.measure_sharing(&mut found)?;
        points.contention = self.measure_contention(&mut found)?;
        let events = Events::of(self.machine)?;
        let mut missing = Vec::new();
        let mut miss = |what: &str, why: anyhow::Error| missing.push(format!("{what}: {why:#}"));
        match self.measure_sampling(&events) {
            Ok((sampling, tries)) => {
                found.sampling = Some(sampling);
                points.sampling = tries;
            }
            Err(why) => miss("sampling", why),
        }
        match self.measure_penalty(&found, &events) {
            Ok(programs) => found.add(programs),
            Err(why) => miss("penalty", why),
        }
        points.missing = missing;
        Ok((found, points))
    }

    /// The matrices of the file.
    pub(super) fn measure_memory(&self, found: &mut Calibration) -> Result<()> {
        let all = self.cpus.concat();
        for holding in self.topology.memory_nodes().iter() {
            let memory = self.memory(holding)?;
            let words = memory.words();
            found.controller_mb_s[holding] = stream::bandwidth(&all, words, self.time)? / 1e6;
            for (accessing, cpus) in self.with_cpus() {
                let rate = stream::bandwidth(cpus, words, self.time)?;
                found.bandwidth_mb_s[accessing][holding] = rate / 1e6;
            }
            chase::lay(words, holding as u64 + 1);
            for (accessing, cpus) in self.with_cpus() {
                self.flush()?;
                found.latency_ns[accessing][holding] =
                    self.on(cpus[0], || chase::latency_ns(words, self.time))?;
            }
        }
        Ok(())
    }

    /// Latency of a node's own memory under more and more load by its own CPUs.
    pub(super) fn loaded(&self, node: usize) -> Result<Vec<LoadedPoint>> {
        let memory = self.memory(node)?;
        loaded::sweep(&self.cpus[node], memory.words(), self.time)
    }

    /// The nodes that have CPUs, with them.
    fn with_cpus(&self) -> impl Iterator<Item = (usize, &Vec<usize>)> {
        self.cpus.iter().enumerate().filter(|(_, cpus)| !cpus.is_empty())
    }

    /// Cycles of this thread in a second while it works without memory; `None` where they cannot be
    /// counted.
    fn clock_mhz(&self) -> Option<f64> {
        let event = probe::own_cycles()?;
        let cycles = || Some(event.read(1).ok()?.first()?.value);
        let (begin, before) = (Instant::now(), cycles()?);
        while begin.elapsed() < self.time {
            std::hint::black_box((0..1000u32).fold(1u32, |all, one| all.wrapping_mul(one | 1)));
        }
        let counted = cycles()?.checked_sub(before)?;
        // Time off the CPU makes it too low; on an idle machine there is hardly any.
        (counted > 0).then(|| counted as f64 / begin.elapsed().as_secs_f64() / 1e6)
    }

    /// Memory on a node, larger than any cache that could keep it, and in none.
    fn memory(&self, node: usize) -> Result<Anonymous> {
        let bytes = larger_than_caches(self.topology, self.cache_bytes, node);
        let memory = bound(self.topology, bytes, node)?;
        self.flush()?;
        Ok(memory)
    }

    /// Fills every cache with other data. Lines that a cache still held would answer in place of
    /// the memory, also for other CPUs. Modified lines would be written back during a measurement.
    fn flush(&self) -> Result<()> {
        stream::pass(&self.cpus.concat(), self.scratch.words())
    }

    /// Runs something on a CPU, in a thread of its own.
    fn on<T: Send>(&self, cpu: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| stream::pin(cpu).map(|()| work()));
            thread.join().expect("no thread panics")
        })
    }

    /// Transfers, and SAM's experiment where there are CPUs for it: its points.
    fn measure_sharing(&self, found: &mut Calibration) -> Result<Vec<Point>> {
        let nothing: [&[AtomicU64]; 2] = [&[], &[]];
        let pair = |cpus: [usize; 2]| Pair { cpus, private: nothing };
        let (near, far) = (self.together(), found.nearest(self.topology));
        let far = far.map(|nodes| (nodes, nodes.map(|node| self.cpus[node][0])));
        let ns = |cpus: Option<[usize; 2]>| -> Result<Option<f64>> {
            let seconds = cpus.map(|cpus| pair(cpus).handoff_s(self.time)).transpose()?;
            Ok(seconds.map(|seconds| seconds * 1e9))
        };
        found.sharing.same_domain_ns = ns(near.map(|(_, cpus)| cpus))?;
        found.sharing.remote_ns = ns(far.map(|(_, cpus)| cpus))?;
        let extra = found.sharing.remote_ns.zip(found.sharing.same_domain_ns);
        let extra = extra.map(|(remote, same)| remote - same).filter(|extra| *extra > 0.0);
        found.sharing.coherence_per_s = extra.map(sam::Thresholds::coherence_per_s);
        let (Some((node, near)), Some((nodes, far))) = (near, far) else { return Ok(Vec::new()) };
        let bytes = (self.cache_bytes as f64 * PRIVATE_PART) as u64;
        let bound = |node| bound(self.topology, bytes, node);
        let own = [bound(nodes[0])?, bound(nodes[1])?];
        let both = [bound(node)?, bound(node)?];
        let together = Pair { cpus: near, private: [both[0].words(), both[1].words()] };
        let apart = Pair { cpus: far, private: [own[0].words(), own[1].words()] };
        let points = handoff::sweep(&together, &apart, self.time)?;
        found.sharing.crossover_per_s = handoff::crossover_per_s(&points);
        Ok(points)
    }

    /// Two CPUs of one cache domain, on different cores where there are such, and their node.
    fn together(&self) -> Option<(usize, [usize; 2])> {
        let topology = self.topology;
        (0..topology.domain_count()).find_map(|domain| {
            let cpus: Vec<usize> = topology.cpus_of_domain(domain).iter().collect();
            let &first = cpus.first()?;
            let core = |cpu: usize| topology.cpu(cpu).core;
            let second = *cpus.iter().find(|&&cpu| core(cpu) != core(first))?;
            let number = |cpu: usize| topology.kernel_cpu(cpu) as usize;
            let node = topology.node_of_cpu(first);
            topology.has_memory(node).then(|| (node, [number(first), number(second)]))
        })
    }

    /// SAM's other two thresholds: its experiment on one socket, and what a remote load takes
    /// longer.
    fn measure_contention(&self, found: &mut Calibration) -> Result<Vec<Crowd>> {
        if let Some([home, away]) = found.nearest(self.topology) {
            let ns = &found.latency_ns;
            let extra = (ns[home][away] + ns[away][home] - ns[home][home] - ns[away][away]) / 2.0;
            let remote = Some(extra).filter(|extra| *extra > 0.0);
            found.contention.remote_per_s = remote.map(sam::Thresholds::remote_per_s);
        }
        let Some(node) = self.home() else { return Ok(Vec::new()) };
        let memory = self.memory(node)?;
        let crowds = contention::sweep(&self.cpus[node], memory.words(), self.time)?;
        found.contention.memory_per_s = contention::threshold_per_s(&crowds);
        let local_ns = found.latency_ns[node][node];
        found.contention.outstanding_misses = contention::outstanding(&crowds, local_ns);
        found.contention.burst_ns =
            contention::burst_ns(&crowds, local_ns, found.controller_mb_s[node]);
        Ok(crowds)
    }

    /// The first node with both CPUs and memory.
    fn home(&self) -> Option<usize> {
        self.with_cpus().map(|(node, _)| node).find(|&node| self.topology.has_memory(node))
    }

    fn measure_sampling(&self, events: &Events) -> Result<(Sampling, Vec<Try>)> {
        let node = self.home().context("no node has both CPUs and memory")?;
        let cpu = self.cpus[node][0];
        let other = self.cpus.iter().flatten().find(|&&other| other != cpu);
        let other = *other.context("it takes two CPUs, one for the reader of the samples")?;
        let memory = self.memory(node)?;
        let (words, time, period) = (memory.words(), self.time, events.period());
        let subject = sampling::Subject { machine: self.machine, cpu, words, time, period };
        let tries = self.on(other, || subject.sweep())??;
        let chosen = sampling::choose(&tries);
        let chosen = chosen.with_context(|| format!("each period costs too much: {tries:?}"))?;
        Ok((chosen, tries))
    }

    fn measure_penalty(&self, found: &Calibration, events: &Events) -> Result<Vec<Program>> {
        let nodes = found.nearest(self.topology).context("there is no remote memory")?;
        let cpu = self.cpus[nodes[0]][0];
        let [local, remote] = [self.memory(nodes[0])?, self.memory(nodes[1])?];
        for memory in [&local, &remote] {
            chase::lay(memory.words(), 1);
        }
        self.flush()?;
        let count = |loads: Loads, memory: &Anonymous| {
            let words = memory.words();
            self.on(cpu, || penalty::count(loads, words, self.time, events, self.topology))?
        };
        let point = |loads: Loads| -> Result<Program> {
            Ok(penalty::point(loads, &count(loads, &local)?, &count(loads, &remote)?))
        };
        penalty::loops().map(point).collect()
    }
}

fn larger_than_caches(topology: &Topology, cache_bytes: u64, node: usize) -> u64 {
    let domains = topology.domain_count().max(1) as u64;
    (CACHES * cache_bytes * domains).min(topology.memory(node).0 / PART_OF_NODE)
}

/// `bytes` of a node's memory, touched.
fn bound(topology: &Topology, bytes: u64, node: usize) -> Result<Anonymous> {
    let number = topology.kernel_node(node);
    let whole = (bytes as usize).next_multiple_of(page_bytes());
    let memory = Anonymous::new(whole).with_context(|| format!("{whole} bytes of memory"))?;
    match memory.bind(number) {
        // Without NUMA in the kernel there is but one node.
        Err(error) if topology.node_count() > 1 => {
            return Err(error).with_context(|| format!("memory of node {number}"));
        }
        _ => memory.touch_every(page_bytes()),
    }
    Ok(memory)
}
