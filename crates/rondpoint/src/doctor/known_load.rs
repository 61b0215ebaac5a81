//! Known loads: one thread reads memory of a known node, and every counter is read.
//!
//! A pointer walk waits for each line, so prefetchers cannot run ahead, and events of loads count
//! all of it. A stream reads as fast as one CPU can. So units outside the cores see it above the
//! traffic of other programs.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rondpoint_core::observation::{Counter, Samples, Source};
use rondpoint_core::{Matrix, Pid, Topology};
use rondpoint_linux::Root;
use rondpoint_linux::observe::counters::{CpuReading, total};
use rondpoint_linux::observe::subject::Start;
use rondpoint_linux::observe::{Observer, Settings};
use rondpoint_linux::perf::generation::{Available, Metric};
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::syscall::memory::{Anonymous, page_bytes};
use rondpoint_linux::topology::Discovered;

use super::controllers::{Controllers, UnitCount};
use super::coverage::Coverage;
use super::judge::{Finding, Place, Reading, judge};
use super::{Check, good, limited, missing};
use crate::calibrate::{chase, stream};

/// All loads together.
const TIME: Duration = Duration::from_millis(900);
/// One load at least, so that events that take turns all have their turn: a turn is 4 ms.
const LEAST: Duration = Duration::from_millis(25);
/// Memory of a load: this many times the largest cache, within bounds.
const CACHES: u64 = 4;
const BYTES: Range<u64> = 8 << 20..256 << 20;
/// Taken where no cache is known.
const SOME_CACHE_BYTES: u64 = 32 << 20;
/// Samples that a load must give before their number is judged.
const LEAST_SAMPLES: f64 = 20.0;
const LINE_BYTES: f64 = 64.0;

/// What is believed of each kind of count, as parts of the truth. Events of loads leave out what a
/// neighbouring thread had fetched, and those of misses add page tables and adjacent lines. Units
/// outside count lines; a stream is known to some percent.
const OF_A_THREAD: (f64, f64) = (0.4, 2.6);
const OF_A_UNIT: (f64, f64) = (0.6, 1.7);
/// Of samples, the part that tells the right place; their number may be off more.
const OF_SAMPLES: (f64, f64) = (0.6, 1.01);

/// What was found out.
struct Checked {
    /// How many loads ran.
    loads: usize,
    /// The metrics that were compared, and those that could not be.
    coverage: Coverage,
    /// Metrics that are wrong, and how.
    findings: Vec<Finding>,
}

/// Runs the known loads and puts what they show beside the other checks.
///
/// # Errors
/// No CPU may be used, a node gives no memory, or a counter cannot be read.
pub(super) fn put(
    machine: &Discovered,
    available: &Available,
    checks: &mut Vec<Check>,
) -> Result<Vec<Finding>> {
    let checked = check(machine, available)?;
    checks.extend(verdicts(&checked));
    Ok(checked.findings)
}

/// A check for the metrics that agree, one for those that tell nothing, and one for each lie.
fn verdicts(Checked { loads, coverage, findings }: &Checked) -> Vec<Check> {
    const NAME: &str = "known load";
    let Coverage { compared, drowned } = coverage;
    let lies = |metric: &&String| findings.iter().any(|lie| lie.metric == **metric);
    let agree: Vec<&str> =
        compared.iter().filter(|metric| !lies(metric)).map(String::as_str).collect();
    let mut checks = Vec::new();
    if compared.is_empty() && drowned.is_empty() {
        let finding = "no counter or sampler works here, so there is nothing to compare";
        checks.push(missing(NAME, finding, None));
    } else if !agree.is_empty() {
        checks.push(good(NAME, format!("{} agree with {loads} loads", agree.join(", "))));
    } else if !compared.is_empty() {
        checks.push(limited(NAME, format!("no counter agrees with {loads} loads"), None));
    }
    if !drowned.is_empty() {
        let finding = format!(
            "other programs are too loud to compare {}; try again on a quiet machine",
            drowned.join(", ")
        );
        checks.push(limited(NAME, finding, None));
    }
    checks.extend(findings.iter().map(|lie| limited(NAME, lie.sentence.clone(), None)));
    checks
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Walk,
    Stream,
}

/// A load that ran, by the topology's nodes, and the lines that it drew.
struct Load {
    kind: Kind,
    accessing: usize,
    holding: usize,
    lines: f64,
}

/// Everything cumulative that can be read at one moment, and the samples since the moment before.
struct Look {
    at: Instant,
    readings: Vec<CpuReading>,
    traffic: Option<Matrix<Counter>>,
    links: Option<Vec<Counter>>,
    units: Vec<UnitCount>,
    samples: Option<Samples>,
}

/// Runs the loads, at most one second of them where there are few nodes.
///
/// # Errors
/// As [`put`].
fn check(machine: &Discovered, available: &Available) -> Result<Checked> {
    let topology = &machine.topology;
    let settings = Settings {
        metrics: Some(vec![
            Metric::LlcMisses,
            Metric::LocalDram,
            Metric::RemoteDram,
            Metric::DramNode(0),
        ]),
        ..Settings::default()
    };
    let own = Pid(std::process::id());
    let observer = Observer::open(Root::live(), machine.clone(), own, Start::Now, &settings)?;
    let mut bench = Bench {
        topology,
        available,
        observer,
        controllers: Controllers::open(available, topology),
    };
    let pairs = pairs(topology)?;
    let time = (TIME / (2 * pairs.len().max(1)) as u32).max(LEAST);
    let mut readings = Vec::new();
    let before = bench.look()?;
    std::thread::sleep(time);
    let quiet = bench.look()?;
    let mut laid: Option<(usize, Anonymous)> = None;
    for &(accessing, holding, cpu) in &pairs {
        // Readers of the same node's memory follow each other.
        if laid.as_ref().is_none_or(|(node, _)| *node != holding) {
            let memory = memory(machine, holding)?;
            chase::lay(memory.words(), holding as u64 + 1);
            laid = Some((holding, memory));
        }
        let Some((_, memory)) = &laid else { continue };
        for kind in [Kind::Walk, Kind::Stream] {
            let earlier = bench.look()?;
            let lines = match kind {
                Kind::Walk => walk(cpu, memory, time)?,
                Kind::Stream => {
                    let rate = stream::bandwidth(&[cpu], memory.words(), time)?;
                    rate / LINE_BYTES * time.as_secs_f64()
                }
            };
            let later = bench.look()?;
            let load = Load { kind, accessing, holding, lines };
            let window =
                Window { before: &before, quiet: &quiet, earlier: &earlier, later: &later };
            readings.extend(bench.readings(&load, &window));
        }
    }
    Ok(Checked {
        loads: 2 * pairs.len(),
        coverage: Coverage::of(&readings),
        findings: judge(&readings),
    })
}

/// For each node with memory a CPU of its own and one of another node, as far as there are:
/// `(accessing, holding, the kernel's CPU)`.
fn pairs(topology: &Topology) -> Result<Vec<(usize, usize, usize)>> {
    let allowed = affinity::get(0).context("the CPUs of this process")?;
    let cpu_of = |node: usize| {
        let cpus = topology.cpus_of_node(node).iter();
        cpus.map(|cpu| topology.kernel_cpu(cpu) as usize).find(|&cpu| allowed.contains(cpu))
    };
    let nodes = topology.node_count();
    let mut pairs = Vec::new();
    for holding in topology.memory_nodes().iter() {
        let others = (1..nodes).map(|step| (holding + step) % nodes);
        let other = others.filter_map(|node| Some((node, cpu_of(node)?))).next();
        let own = cpu_of(holding).map(|cpu| (holding, cpu));
        pairs.extend(own.into_iter().chain(other).map(|(node, cpu)| (node, holding, cpu)));
    }
    Ok(pairs)
}

fn memory(machine: &Discovered, node: usize) -> Result<Anonymous> {
    let largest = machine.caches.iter().map(|cache| cache.bytes).max().unwrap_or(SOME_CACHE_BYTES);
    let bytes = (CACHES * largest).clamp(BYTES.start, BYTES.end);
    let bytes = bytes.min(machine.topology.memory(node).0 / CACHES) as usize;
    let number = machine.topology.kernel_node(node);
    let memory = Anonymous::new(bytes.next_multiple_of(page_bytes()))?;
    let bound = memory.bind(number);
    if machine.topology.node_count() > 1 {
        bound.with_context(|| format!("memory of node {number}"))?;
    }
    memory.touch_every(page_bytes());
    Ok(memory)
}

/// Lines that a walk on a CPU visits in this time.
fn walk(cpu: usize, memory: &Anonymous, time: Duration) -> Result<f64> {
    let nanoseconds = std::thread::scope(|scope| {
        let work = || stream::pin(cpu).map(|()| chase::latency_ns(memory.words(), time));
        scope.spawn(work).join().expect("no thread panics")
    })?;
    Ok(time.as_secs_f64() * 1e9 / nanoseconds)
}

/// The reading as one of the loading program alone.
fn own(reading: Reading) -> Reading {
    Reading { is_own: true, ..reading }
}

/// The looks around a load, and those around an equal time without one.
struct Window<'a> {
    before: &'a Look,
    quiet: &'a Look,
    earlier: &'a Look,
    later: &'a Look,
}

impl Window<'_> {
    /// How many times the quiet time the load's window lasted.
    fn times_the_quiet(&self) -> f64 {
        let seconds = |from: &Look, to: &Look| (to.at - from.at).as_secs_f64();
        seconds(self.earlier, self.later) / seconds(self.before, self.quiet).max(f64::EPSILON)
    }

    /// A place with the counter that `of` finds, and how long that was on its counter. `None` where
    /// it is not counted.
    fn place(
        &self,
        name: impl Into<String>,
        of: impl Fn(&Look) -> Option<Counter>,
    ) -> Option<(Place, f64)> {
        let loaded = (of(self.earlier)?, of(self.later)?);
        let idle = (of(self.before)?, of(self.quiet)?);
        let fell = [loaded, idle].iter().any(|(before, after)| after.value < before.value);
        // `None` between two readings: the event was never on a counter, or fell.
        let [loaded, idle] = [loaded, idle].map(|(before, after)| after.since(before));
        let (count, share) = loaded.map_or((0.0, 0.0), |delta| (delta.events, delta.running_share));
        let idle = idle.map_or(0.0, |delta| delta.events) * self.times_the_quiet();
        Some((Place { name: name.into(), count, idle, fell }, share))
    }
}

struct Bench<'a> {
    topology: &'a Topology,
    available: &'a Available,
    observer: Observer,
    controllers: Controllers,
}

impl Bench<'_> {
    fn look(&mut self) -> Result<Look> {
        let look = self.observer.observe()?;
        Ok(Look {
            at: Instant::now(),
            readings: look.readings,
            traffic: look.observation.node_traffic,
            links: look.observation.link_bytes,
            units: self.controllers.read()?,
            samples: look.observation.samples,
        })
    }

    fn readings(&self, load: &Load, window: &Window<'_>) -> Vec<Reading> {
        let all = match load.kind {
            Kind::Walk => [
                self.misses(load, window),
                self.by_distance(load, window),
                self.by_node(load, window),
                self.samples(load, window),
            ],
            Kind::Stream => [
                self.traffic(load, window),
                self.links(load, window),
                self.controllers(load, window),
                None,
            ],
        };
        all.into_iter().flatten().collect()
    }

    /// A reading of what `places` counted, without its units.
    fn reading(
        &self,
        metric: &str,
        load: &Load,
        places: Vec<(Place, f64)>,
        expected: usize,
        band: (f64, f64),
    ) -> Reading {
        let number = |node| self.topology.kernel_node(node);
        let (reader, holder) = (number(load.accessing), number(load.holding));
        Reading {
            metric: metric.to_string(),
            load: format!("node {reader} reading memory of node {holder}"),
            holding: holder,
            remote: load.accessing != load.holding,
            expected,
            amount: load.lines,
            band,
            running_share: places.get(expected).map_or(0.0, |(_, share)| *share),
            places: places.into_iter().map(|(place, _)| place).collect(),
            units: Vec::new(),
            is_own: false,
        }
    }

    fn misses(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let of = |look: &Look| total(&look.readings, Metric::LlcMisses);
        let place = window.place("the thread", of)?;
        Some(own(self.reading("llc_misses", load, vec![place], 0, OF_A_THREAD)))
    }

    fn by_distance(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let place = |name, metric| window.place(name, move |look| total(&look.readings, metric));
        let places = [
            place("local memory", Metric::LocalDram)?,
            place("remote memory", Metric::RemoteDram)?,
        ];
        let expected = usize::from(load.accessing != load.holding);
        let name = "local_dram and remote_dram";
        Some(own(self.reading(name, load, places.into(), expected, OF_A_THREAD)))
    }

    fn by_node(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let place = |node: usize| {
            let number = self.topology.kernel_node(node);
            let of = move |look: &Look| total(&look.readings, Metric::DramNode(number));
            window.place(format!("node {number}"), of)
        };
        let nodes = self.topology.memory_nodes();
        let expected = nodes.iter().position(|node| node == load.holding)?;
        let places: Option<Vec<_>> = nodes.iter().map(place).collect();
        Some(own(self.reading("dram_node", load, places?, expected, OF_A_THREAD)))
    }

    /// Where samples that missed all caches say that their data lies.
    fn samples(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let samples = window.later.samples.as_ref()?;
        let due = load.lines / samples.period.unwrap_or(self.available.period).max(1) as f64;
        let of_memory: Vec<_> =
            samples.list.iter().filter(|sample| sample.source == Source::Dram).collect();
        if samples.throttled || (due < LEAST_SAMPLES && of_memory.len() < LEAST_SAMPLES as usize) {
            return None;
        }
        let place = |node: usize| {
            let count = of_memory.iter().filter(|sample| usize::from(sample.node) == node).count();
            let name = format!("node {}", self.topology.kernel_node(node));
            (Place { name, count: count as f64, idle: 0.0, fell: false }, 1.0)
        };
        let places = (0..self.topology.node_count()).map(place).collect();
        let mut reading = self.reading("address samples", load, places, load.holding, OF_SAMPLES);
        // How many there are is the processor's choice; that there are any is not.
        reading.amount = if of_memory.is_empty() { due } else { of_memory.len() as f64 };
        Some(reading)
    }

    fn traffic(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let nodes = self.topology.node_count();
        let number = |node| self.topology.kernel_node(node);
        let mut places = Vec::new();
        for cell in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            let name = format!("node {} at node {}", number(cell.0), number(cell.1));
            places.push(window.place(name, |look| Some(look.traffic.as_ref()?[cell]))?);
        }
        let expected = load.accessing * nodes + load.holding;
        Some(self.reading("dram_to_node", load, places, expected, OF_A_UNIT))
    }

    /// Only where the data takes one link: on a longer way several links are right.
    fn links(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let [expected] = self.topology.route(load.accessing, load.holding)?.links[..] else {
            return None;
        };
        let mut places = Vec::new();
        for (index, link) in self.topology.links().iter().enumerate() {
            let number = |node| self.topology.kernel_node(node);
            let name =
                format!("the link from node {} to node {}", number(link.from), number(link.to));
            places.push(window.place(name, |look| look.links.as_ref()?.get(index).copied())?);
        }
        let mut reading = self.reading("link_out", load, places, expected, OF_A_UNIT);
        reading.amount *= LINE_BYTES;
        Some(reading)
    }

    fn controllers(&self, load: &Load, window: &Window<'_>) -> Option<Reading> {
        let of_node = |look: &Look, node: usize| {
            let units = look.units.iter().filter(|unit| unit.node == node);
            units.map(|unit| unit.bytes).reduce(rondpoint_linux::observe::counters::added)
        };
        let place = |node: usize| {
            let name = format!("node {}", self.topology.kernel_node(node));
            window.place(name, |look| of_node(look, node))
        };
        let nodes = self.topology.memory_nodes();
        let places: Option<Vec<_>> = nodes.iter().map(place).collect();
        let expected = nodes.iter().position(|node| node == load.holding)?;
        let name = self.controllers.metric()?.name();
        let mut reading = self.reading(name, load, places?, expected, OF_A_UNIT);
        reading.amount *= LINE_BYTES;
        for (index, unit) in window.later.units.iter().enumerate() {
            if unit.node == load.holding {
                let of = |look: &Look| look.units.get(index).map(|unit| unit.bytes);
                reading.units.extend(window.place(unit.name.clone(), of).map(|(place, _)| place));
            }
        }
        Some(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(compared: &[&str], drowned: &[&str]) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let coverage = Coverage { compared: names(compared), drowned: names(drowned) };
        let checks = verdicts(&Checked { loads: 8, coverage, findings: Vec::new() });
        checks.into_iter().map(|check| check.finding).collect()
    }

    #[test]
    fn what_was_not_compared_does_not_agree() {
        let agree = "llc_misses agree with 8 loads".to_string();
        let loud = "other programs are too loud to compare dram_to_node, link_out; try again on a \
            quiet machine"
            .to_string();
        assert_eq!(shown(&["llc_misses"], &[])[..], *std::slice::from_ref(&agree));
        assert_eq!(shown(&["llc_misses"], &["dram_to_node", "link_out"]), [agree, loud.clone()]);
        assert_eq!(shown(&[], &["dram_to_node", "link_out"]), [loud]);
        assert!(shown(&[], &[])[0].starts_with("no counter or sampler works here"));
    }
}
