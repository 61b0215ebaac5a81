//! Whole machines in one line of text, for tests, simulations and quick questions:
//! `nodes=4 cpus=4 memory=2G shape=ring link=5000`.
//!
//! Words are `key=value` in any order; an absent key has the default of the table below. The
//! defaults are those of an unremarkable two-socket server of about 2020; they claim no source.

use crate::build;
use crate::error::{Fault, MachineError};
use crate::file::{File, Interconnect, LinkEntry, NodeGroup, TransferTable};
use crate::limits;
use crate::machine::{Cache, Caches, Controller, Core, Lab, Machine, Pmu, Prefetch, Vendor};
use crate::size;

/// Values of the words; [`Machine::synthetic`] explains each.
struct Words {
    nodes: u32,
    memory_only: u32,
    cpus: u32,
    domains: u32,
    smt: u32,
    memory: u64,
    clock: f64,
    misses: u32,
    prefetch: u32,
    l1: u64,
    l2: u64,
    llc: u64,
    latency: f64,
    burst: f64,
    hop: f64,
    bandwidth: f64,
    link: f64,
    shape: Shape,
    slow: f64,
    lab_cpus: Option<u32>,
    lab_memory: u64,
    cache_scale: f64,
}

#[derive(Clone, Copy)]
enum Shape {
    Full,
    Ring,
    Line,
    Star,
}

const DEFAULT: Words = Words {
    nodes: 2,
    memory_only: 0,
    cpus: 4,
    domains: 1,
    smt: 1,
    memory: 4 << 30,
    clock: 2000.0,
    misses: 10,
    prefetch: 8,
    l1: 32 << 10,
    l2: 256 << 10,
    llc: 8 << 20,
    latency: 80.0,
    burst: 80.0,
    hop: 50.0,
    bandwidth: 20_000.0,
    link: 10_000.0,
    shape: Shape::Full,
    slow: 10.0,
    lab_cpus: None,
    lab_memory: 256,
    cache_scale: 8.0,
};

const KEYS: &str = "nodes, memory_only, cpus, domains, smt, memory, clock, misses, prefetch, l1, l2, \
                    llc, latency, burst, hop, bandwidth, link, shape, slow, lab_cpus, lab_memory, \
                    cache_scale";

impl Machine {
    /// The machine of a line of `key=value` words, all optional.
    ///
    /// | key | meaning | default |
    /// |---|---|---|
    /// | `nodes`, `cpus`, `domains`, `smt` | nodes with CPUs; CPUs and cache domains of each; threads of a core | 2, 4, 1, 1 |
    /// | `memory`, `memory_only` | memory of each node; further nodes without CPUs, each linked to one with | 4G, 0 |
    /// | `clock`, `misses`, `prefetch` | MHz; outstanding misses; prefetch depth (0: none) | 2000, 10, 8 |
    /// | `l1`, `l2`, `llc` | cache sizes, 8, 8 and 16 ways | 32K, 256K, 8M |
    /// | `latency`, `burst`, `hop` | ns: unloaded, added at full use, added by a link | 80, 80, 50 |
    /// | `bandwidth`, `link` | MB/s of a controller and of a link in each direction | 20000, 10000 |
    /// | `shape` | `full`, `ring`, `line` or `star` | full |
    /// | `slow`, `lab_cpus`, `lab_memory`, `cache_scale` | the lab's factors; CPUs and MiB of a node | 10, what fits, 256, 8 |
    ///
    /// # Errors
    /// An unknown or wrong word, or values that do not fit each other.
    pub fn synthetic(text: &str) -> Result<Self, MachineError> {
        let fail = |Fault { path, expected }| MachineError::Synthetic { word: path, expected };
        let mut words = DEFAULT;
        for word in text.split_whitespace() {
            set(&mut words, word).map_err(fail)?;
        }
        build::machine(file(&words, text).map_err(fail)?).map_err(fail)
    }
}

fn set(words: &mut Words, word: &str) -> Result<(), Fault> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(Fault::new(word, "expected key=value"));
    };
    let whole = || value.parse::<u32>().map_err(|_| Fault::new(word, "expected a whole number"));
    let number = || value.parse::<f64>().map_err(|_| Fault::new(word, "expected a number"));
    let bytes = || size::parse(value).ok_or_else(|| Fault::new(word, "expected a size like 2G"));
    match key {
        "nodes" => words.nodes = whole()?,
        "memory_only" => words.memory_only = whole()?,
        "cpus" => words.cpus = whole()?,
        "domains" => words.domains = whole()?,
        "smt" => words.smt = whole()?,
        "memory" => words.memory = bytes()?,
        "clock" => words.clock = number()?,
        "misses" => words.misses = whole()?,
        "prefetch" => words.prefetch = whole()?,
        "l1" => words.l1 = bytes()?,
        "l2" => words.l2 = bytes()?,
        "llc" => words.llc = bytes()?,
        "latency" => words.latency = number()?,
        "burst" => words.burst = number()?,
        "hop" => words.hop = number()?,
        "bandwidth" => words.bandwidth = number()?,
        "link" => words.link = number()?,
        "shape" => words.shape = shape(value, word)?,
        "slow" => words.slow = number()?,
        "lab_cpus" => words.lab_cpus = Some(whole()?),
        "lab_memory" => words.lab_memory = u64::from(whole()?),
        "cache_scale" => words.cache_scale = number()?,
        _ => return Err(Fault::new(word, format!("expected one of {KEYS}"))),
    }
    Ok(())
}

fn shape(value: &str, word: &str) -> Result<Shape, Fault> {
    match value {
        "full" => Ok(Shape::Full),
        "ring" => Ok(Shape::Ring),
        "line" => Ok(Shape::Line),
        "star" => Ok(Shape::Star),
        _ => Err(Fault::new(word, "expected full, ring, line or star")),
    }
}

fn file(words: &Words, text: &str) -> Result<File, Fault> {
    let all = u64::from(words.nodes) + u64::from(words.memory_only);
    if words.nodes == 0 || all > limits::NODES_MAX as u64 {
        let expected = format!("expected 1 to {} nodes, got {all}", limits::NODES_MAX);
        return Err(Fault::new("nodes", expected));
    }
    Ok(File {
        name: "synthetic".into(),
        title: text.trim().into(),
        source: "synthetic: one line of text".into(),
        core: Core {
            clock_mhz: words.clock,
            cycles_per_instruction: 1.0,
            outstanding_misses: words.misses,
            reorder_window: 128,
            threads_per_core: words.smt,
        },
        caches: Caches {
            l1: Cache { bytes: words.l1, ways: 8, latency_ns: 2.0 },
            l2: Cache { bytes: words.l2, ways: 8, latency_ns: 6.0 },
            llc: Cache { bytes: words.llc, ways: 16, latency_ns: 20.0 },
        },
        prefetch: Prefetch { streams: 8 * u32::from(words.prefetch > 0), depth: words.prefetch },
        nodes: groups(words),
        nodes_per_package: 1,
        interconnect: Interconnect {
            hop_ns: Some(words.hop),
            links: links(words),
            ..Interconnect::default()
        },
        transfer: TransferTable {
            same_domain_ns: 25.0,
            same_node_ns: Some(50.0),
            remote_ns: Some(words.latency),
            matrix_ns: None,
            forwards_clean: true,
        },
        pmu: Pmu {
            counters: 4,
            vendor: Vendor::Intel,
            processor: None,
            sample_cost_ns: 1000.0,
            read_cost_ns: 50.0,
        },
        lab: lab(words),
    })
}

fn groups(words: &Words) -> Vec<NodeGroup> {
    let controller = Controller {
        bandwidth_mb_s: words.bandwidth,
        latency_ns: words.latency,
        burst_latency_ns: words.burst,
    };
    let with_cpus = NodeGroup {
        count: words.nodes,
        cpus: words.cpus,
        cache_domains: Some(words.domains),
        memory: words.memory,
        controller: (words.memory > 0).then_some(controller),
    };
    let memory_only =
        NodeGroup { count: words.memory_only, cpus: 0, cache_domains: None, ..with_cpus.clone() };
    let both = [with_cpus, memory_only];
    both.into_iter().filter(|group| group.count > 0).collect()
}

fn links(words: &Words) -> Vec<LinkEntry> {
    let nodes = words.nodes as usize;
    let mut pairs: Vec<[usize; 2]> = match words.shape {
        Shape::Full => (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| [a, b])).collect(),
        Shape::Star => (1..nodes).map(|b| [0, b]).collect(),
        Shape::Ring | Shape::Line => (1..nodes).map(|b| [b - 1, b]).collect(),
    };
    if matches!(words.shape, Shape::Ring) && nodes > 2 {
        pairs.push([nodes - 1, 0]);
    }
    pairs.extend((0..words.memory_only as usize).map(|extra| [extra % nodes, nodes + extra]));
    let entry = |between| LinkEntry {
        between: Some(between),
        from: None,
        to: None,
        bandwidth_mb_s: words.link,
        latency_ns: None,
    };
    pairs.into_iter().map(entry).collect()
}

/// The scale of the machine in the lab; `None` if it has more nodes than the lab takes.
fn lab(words: &Words) -> Option<Lab> {
    let fitting = (limits::LAB_CPUS_MAX / words.nodes).min(words.cpus);
    // As many CPUs as fit, in whole cache domains if possible.
    let domains = words.domains.clamp(1, fitting.max(1));
    let cpus_per_node = words.lab_cpus.unwrap_or(fitting - fitting % domains);
    let fits = (words.nodes + words.memory_only) as usize <= limits::LAB_NODES_MAX;
    (fits && cpus_per_node > 0).then_some(Lab {
        slow_motion: words.slow,
        manager_slow_motion: 1.0,
        cpus_per_node,
        cache_domains_per_node: domains.min(cpus_per_node),
        memory_mib: words.lab_memory,
        cache_scale: words.cache_scale,
        l2_scale: 1.0,
        quantum_ns: 20_000,
        applied: false,
    })
}
