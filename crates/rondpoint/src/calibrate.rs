//! `rondpoint calibrate`: what this machine's memory can do, measured by benchmarks of its own, written to a file
//! that every later command reads. Nothing of the machine is changed.
//!
//! Published thresholds belong to the machines that they were found on. What is measured here is what they are
//! relative to: N-MASS's link saturation, AsymSched's matrix, the capacity behind Carrefour's MAPTU, and
//! the transfers behind SAM's coherence threshold, with SAM's own experiment beside them.

mod chase;
mod file;
mod handoff;
mod report;
mod stream;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Topology;
use rondpoint_core::policy::sam;
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::syscall::memory::{Anonymous, page_bytes};
use rondpoint_linux::topology::Discovered;
use rondpoint_linux::{Root, probe, topology};

pub(crate) use self::file::{Calibration, SYSTEM_FILE};
use self::handoff::{Pair, Point};
use crate::machine;

const FAILURE: u8 = 1;
/// Memory of a node's benchmark: so many times the last-level caches that could keep it …
const CACHES: u64 = 4;
/// … where a node's memory has room for it: at most this part of it.
const PART_OF_NODE: u64 = 4;
/// The part of a last-level cache that one thread's private data takes in SAM's experiment: one fits, two do not.
const PRIVATE_PART: f64 = 0.75;
/// Taken where the caches are not known.
const SOME_CACHE_BYTES: u64 = 32 << 20;

/// Measure this machine's memory, so that decisions fit it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint calibrate                         # writes /etc/rondpoint/calibration.toml
  rondpoint calibrate --output mine.toml --json

Every CPU and node that this process may use is measured, so run it on the whole machine, idle. It takes about
half a second for each pair of nodes. Exit status: 0 good, 1 something could not be measured or written, 2 bad usage.")]
pub(crate) struct Arguments {
    /// Where the measurements go
    #[arg(long, short, value_name = "FILE", default_value = SYSTEM_FILE)]
    output: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Milliseconds of each measurement
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(5..=60_000))]
    time: u64,

    /// Size of a last-level cache, where sysfs is wrong about it (as on emulated machines); K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", value_parser = crate::move_memory::bytes)]
    cache: Option<u64>,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    match run(arguments) {
        Ok(text) => {
            // Whoever reads may have read enough; the file is written.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rondpoint calibrate: {error:#}");
            ExitCode::from(FAILURE)
        }
    }
}

fn run(arguments: &Arguments) -> Result<String> {
    let found = topology::discover(&Root::live())?;
    let writable = prepare(&arguments.output)?;
    let bench = Bench::new(&found, arguments)?;
    let (calibration, points) = bench.measure()?;
    writable.write(&calibration.to_toml()?)?;
    let thresholds = report::thresholds(&calibration, &found.topology)?;
    Ok(match arguments.json {
        true => report::json(&calibration, &thresholds, &points)?,
        false => report::text(&calibration, &thresholds, &arguments.output),
    })
}

/// A file beside the one that is wanted: what was there stays until all is measured.
struct Writable {
    beside: PathBuf,
    target: PathBuf,
}

/// Finds out before minutes are spent that the result can be written.
fn prepare(output: &Path) -> Result<Writable> {
    if let Some(folder) = output.parent().filter(|folder| *folder == Path::new("/etc/rondpoint")) {
        // Of the system's folder it is ours to make; it may be there.
        let _ = std::fs::create_dir(folder);
    }
    let beside = output.with_extension(format!("toml.{}", std::process::id()));
    std::fs::write(&beside, "").with_context(|| format!("writing {}", output.display()))?;
    Ok(Writable { beside, target: output.to_path_buf() })
}

impl Writable {
    fn write(&self, text: &str) -> Result<()> {
        let written = std::fs::write(&self.beside, text)
            .and_then(|()| std::fs::rename(&self.beside, &self.target));
        written.with_context(|| format!("writing {}", self.target.display()))
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        // There only where something went wrong.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// What is measured, and with what.
struct Bench<'a> {
    topology: &'a Topology,
    /// CPUs of each node that may be used, as the kernel numbers them.
    cpus: Vec<Vec<usize>>,
    cache_bytes: u64,
    time: Duration,
}

impl<'a> Bench<'a> {
    fn new(found: &'a Discovered, arguments: &Arguments) -> Result<Self> {
        let topology = &found.topology;
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
        let last = found.caches.iter().filter(|cache| cache.level >= 2);
        let last =
            last.max_by_key(|cache| cache.level).map_or(SOME_CACHE_BYTES, |cache| cache.bytes);
        let cache_bytes = arguments.cache.unwrap_or(last);
        Ok(Self { topology, cpus, cache_bytes, time: Duration::from_millis(arguments.time) })
    }

    fn measure(&self) -> Result<(Calibration, Vec<Point>)> {
        let mut found = Calibration::of(self.topology, machine::host_name(&Root::live()));
        for holding in self.topology.memory_nodes().iter() {
            let memory = self.memory(holding)?;
            let words = memory.words();
            let everybody = self.cpus.concat();
            // Its first touches are still to be written back.
            stream::pass(&everybody, words)?;
            found.controller_mb_s[holding] = stream::bandwidth(&everybody, words, self.time)? / 1e6;
            for (accessing, cpus) in
                self.cpus.iter().enumerate().filter(|(_, cpus)| !cpus.is_empty())
            {
                let rate = stream::bandwidth(cpus, words, self.time)?;
                found.bandwidth_mb_s[accessing][holding] = rate / 1e6;
            }
            chase::lay(words, holding as u64 + 1);
            let scratch = self.memory(holding)?;
            for (accessing, cpus) in
                self.cpus.iter().enumerate().filter(|(_, cpus)| !cpus.is_empty())
            {
                // Other caches would answer in place of the memory for what they hold of it.
                stream::pass(&everybody, scratch.words())?;
                found.latency_ns[accessing][holding] =
                    self.on(cpus[0], || chase::latency_ns(words, self.time))?;
            }
        }
        found.clock_mhz = self.clock_mhz();
        let points = self.measure_sharing(&mut found)?;
        Ok((found, points))
    }

    /// Cycles of this thread in a second while it works without memory; `None` where they cannot be counted.
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

    /// Memory on a node, larger than any cache that could keep it.
    fn memory(&self, node: usize) -> Result<Anonymous> {
        let domains = self.topology.domain_count().max(1) as u64;
        let wanted = CACHES * self.cache_bytes * domains;
        let most = self.topology.memory(node).0 / PART_OF_NODE;
        self.bound(wanted.min(most), node)
    }

    fn bound(&self, bytes: u64, node: usize) -> Result<Anonymous> {
        let number = self.topology.kernel_node(node);
        let whole = (bytes as usize).next_multiple_of(page_bytes());
        let memory = Anonymous::new(whole).with_context(|| format!("{whole} bytes of memory"))?;
        match memory.bind(number) {
            // Without NUMA in the kernel there is but one node.
            Err(error) if self.topology.node_count() > 1 => {
                return Err(error).with_context(|| format!("memory of node {number}"));
            }
            _ => memory.touch_every(page_bytes()),
        }
        Ok(memory)
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
        let (near, far) = (self.together(), self.apart(found));
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
        let own = [self.bound(bytes, nodes[0])?, self.bound(bytes, nodes[1])?];
        let both = [self.bound(bytes, node)?, self.bound(bytes, node)?];
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

    /// CPUs of the two nodes that are nearest to each other by their loads, and the nodes.
    fn apart(&self, found: &Calibration) -> Option<([usize; 2], [usize; 2])> {
        let usable = |node: &usize| !self.cpus[*node].is_empty() && self.topology.has_memory(*node);
        let nodes: Vec<usize> = (0..self.cpus.len()).filter(usable).collect();
        let pairs = nodes.iter().flat_map(|&a| nodes.iter().map(move |&b| (a, b)));
        let nearest = pairs
            .filter(|(a, b)| a < b)
            .min_by(|x, y| found.latency_ns[x.0][x.1].total_cmp(&found.latency_ns[y.0][y.1]))?;
        let (a, b) = nearest;
        Some(([a, b], [self.cpus[a][0], self.cpus[b][0]]))
    }
}
