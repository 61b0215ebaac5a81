//! The description itself: plain data in real units, and the common lookups.
//!
//! CPUs are numbered node by node (node 0 has 0..c0, node 1 has c0..c0+c1, …) and cache domains
//! likewise. Matrices are `[accessing node][holding node]`: the row is the node that reads.

use serde::Deserialize;

/// Bytes of one cache line, on x86-64 and on the Arm servers with a machine file.
pub const LINE_BYTES: u64 = 64;

/// A NUMA machine: nodes, caches, controllers, directed links and the routes over them.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Short name, also the file's stem: `carrefour-a`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Source of the constants: paper, data sheet, measurement.
    pub source: String,
    /// The cores, all alike.
    pub core: Core,
    /// The cache levels.
    pub caches: Caches,
    /// The stream prefetcher of each core.
    pub prefetch: Prefetch,
    /// The nodes, in node order.
    pub nodes: Vec<Node>,
    /// Consecutive nodes with CPUs that share a package (socket).
    pub nodes_per_package: u32,
    /// Unloaded DRAM latency in ns by `[accessing][holding]`: controller and links, no queue. Zero
    /// if the holding node has no memory.
    pub latency_ns: Vec<Vec<f64>>,
    /// Cache-to-cache transfer latencies.
    pub transfer_ns: Transfer,
    /// ACPI SLIT distances by `[accessing][holding]`, 10 on the diagonal.
    pub distances: Vec<Vec<u32>>,
    /// Directed links; a pair of nodes may have one in one direction only.
    pub links: Vec<Link>,
    /// Routes of the data by `[accessing][holding]`; empty on the diagonal.
    pub routes: Vec<Vec<Route>>,
    /// The performance monitoring unit.
    pub pmu: Pmu,
    /// Scale of this machine in the lab.
    pub lab: Lab,
}

/// One hardware thread; all are alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Clock in MHz.
    pub clock_mhz: f64,
    /// Cycles per instruction when every access hits the first level.
    pub cycles_per_instruction: f64,
    /// Largest number of outstanding demand misses of one CPU.
    pub outstanding_misses: u32,
    /// Instructions that may issue past the oldest outstanding miss.
    pub reorder_window: u32,
    /// Hardware threads per core; 1 without SMT. CPUs are hardware threads.
    #[serde(default = "one")]
    pub threads_per_core: u32,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Capacity in bytes; the file's key is `size`.
    #[serde(rename = "size", deserialize_with = "crate::size::deserialize")]
    pub bytes: u64,
    /// Associativity. The number of sets, `bytes / (ways * LINE_BYTES)`, may be no power of two.
    pub ways: u32,
    /// Latency of a hit in ns.
    pub latency_ns: f64,
}

/// The cache levels.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// First level, private to a CPU.
    pub l1: Cache,
    /// Second level, private to a CPU.
    pub l2: Cache,
    /// Last level, one per cache domain.
    pub llc: Cache,
}

/// The stream prefetcher of each CPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetch {
    /// Streams followed at once; 0 switches it off.
    pub streams: u32,
    /// Lines fetched ahead of the demand stream.
    pub depth: u32,
}

/// One NUMA node. It has CPUs, or memory, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// CPUs; 0 for a memory-only node.
    pub cpus: u32,
    /// Number of last-level caches, which divide the node's CPUs evenly; 0 without CPUs.
    pub cache_domains: u32,
    /// Memory in bytes; 0 for a node without memory.
    pub memory_bytes: u64,
    /// The memory controller; `None` if and only if the node has no memory.
    pub controller: Option<Controller>,
}

/// A node's memory controller (all its channels together).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Bandwidth of all requesters together, MB/s (10⁶ bytes).
    pub bandwidth_mb_s: f64,
    /// Unloaded latency of a local access, ns from the core and back.
    pub latency_ns: f64,
    /// Extra latency at full utilisation before a lasting queue builds up, ns. Requests come in
    /// bursts, so waiting grows in proportion to utilisation long before saturation.
    pub burst_latency_ns: f64,
}

/// Cache-to-cache transfer latencies, ns from request to data.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// From another CPU's private cache under the same last-level cache.
    pub same_domain_ns: f64,
    /// From another cache domain of the same node.
    pub same_node_ns: f64,
    /// From a cache of another node, by `[accessing][owner]`; the diagonal equals `same_node_ns`.
    /// Zero if one of the two has no CPUs.
    pub remote_ns: Vec<Vec<f64>>,
    /// Whether a cache of another node serves a clean line that it holds. If not, DRAM does.
    pub forwards_clean: bool,
}

/// A directed link of the interconnect. It carries data from the holding to the accessing node.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Node that sends the data.
    pub from: usize,
    /// Node that receives the data.
    pub to: usize,
    /// Capacity in MB/s (10⁶ bytes).
    pub bandwidth_mb_s: f64,
}

/// The route of the data from a holding node to an accessing node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Route {
    /// Indices into `Machine::links`, from the holding node on.
    pub links: Vec<usize>,
    /// Bandwidth of this pair in MB/s, if it is below that of its narrowest link.
    pub limit_mb_s: Option<f64>,
}

/// The encoding of a sample's data source by the PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// PEBS load latency data-source values.
    Intel,
    /// IBS op data 2 values.
    Amd,
    /// SPE data source packets.
    Arm,
}

/// A processor whose PMU the lab can emulate, with the names and encodings of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// Intel's Xeon 5500: one uncore unit per socket, without QPI events.
    NehalemEp,
    /// Intel's Xeon E5 v2: memory controllers, home and caching agents, QPI.
    IvybridgeEp,
    /// Intel's Skylake and Cascade Lake servers: memory controllers, caching agents, UPI.
    SkylakeSp,
    /// AMD's first EPYC, one node per die: data fabric, op sampling, no core event by node.
    AmdZen1,
    /// AMD's EPYC of the fourth Zen generation: data fabric, memory controllers, op sampling.
    AmdZen4,
    /// Arm's Neoverse N1, as in Altra and Graviton 2: a mesh of its own in each node, SPE.
    NeoverseN1,
}

impl Processor {
    /// All processors.
    pub const ALL: [Self; 6] = [
        Self::NehalemEp,
        Self::IvybridgeEp,
        Self::SkylakeSp,
        Self::AmdZen1,
        Self::AmdZen4,
        Self::NeoverseN1,
    ];

    /// The processor's name in machine files and in the product's table of events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NehalemEp => "nehalem-ep",
            Self::IvybridgeEp => "ivybridge-ep",
            Self::SkylakeSp => "skylake-sp",
            Self::AmdZen1 => "amd-zen1",
            Self::AmdZen4 => "amd-zen4",
            Self::NeoverseN1 => "neoverse-n1",
        }
    }

    /// The processor's vendor, which gives the encoding of samples.
    #[must_use]
    pub const fn vendor(self) -> Vendor {
        match self {
            Self::NehalemEp | Self::IvybridgeEp | Self::SkylakeSp => Vendor::Intel,
            Self::AmdZen1 | Self::AmdZen4 => Vendor::Amd,
            Self::NeoverseN1 => Vendor::Arm,
        }
    }
}

/// The performance monitoring unit of each CPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pmu {
    /// Number of general counters. More events than this are multiplexed.
    pub counters: u32,
    /// Encoding of a sample's data source.
    pub vendor: Vendor,
    /// The processor whose units, events and identity the lab's guest shows. `None`: the model's
    /// own units and events, which no real processor has.
    #[serde(default)]
    pub processor: Option<Processor>,
    /// Time one sample takes from the program, ns.
    pub sample_cost_ns: f64,
    /// Time one counter read takes, ns.
    pub read_cost_ns: f64,
}

fn one() -> u32 {
    1
}

fn one_float() -> f64 {
    1.0
}

/// Scale of the machine in the lab; see [`Machine::for_lab`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    /// Factor that stretches all times of the machine: latencies, clock, bandwidth, PMU costs.
    pub slow_motion: f64,
    /// Factor that stretches the instructions of a manager, and samples. With 1, the default, a
    /// manager costs as much time as on the real machine. With `slow_motion` it costs as much as a
    /// managed program. A value between models a machine with that many times the memory.
    #[serde(default = "one_float")]
    pub manager_slow_motion: f64,
    /// CPUs kept on each node with CPUs; a node with fewer keeps all. 0: the machine is not for the
    /// lab, because its file has no `[lab]` table.
    pub cpus_per_node: u32,
    /// Cache domains kept on each node with CPUs; a node with fewer keeps all.
    #[serde(default = "one")]
    pub cache_domains_per_node: u32,
    /// Memory of each node that has memory, MiB.
    pub memory_mib: u64,
    /// Divisor of the last-level cache. Working sets should be divided by it too.
    pub cache_scale: f64,
    /// Divisor of the second-level cache, 1 to 4. With more the kernel's own misses dominate.
    #[serde(default = "one_float")]
    pub l2_scale: f64,
    /// Longest time that one vCPU runs before the others catch up, ns of guest time; not stretched.
    pub quantum_ns: u64,
    /// Whether [`Machine::for_lab`] already scaled this machine.
    #[serde(default)]
    pub applied: bool,
}

impl Lab {
    /// Speed of a manager in the lab divided by that of a managed program, at least 1.
    #[must_use]
    pub fn manager_speed_up(&self) -> f64 {
        self.slow_motion / self.manager_slow_motion
    }
}

impl Machine {
    /// CPUs of all nodes together.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.nodes.iter().map(|node| node.cpus as usize).sum()
    }

    /// Cache domains of all nodes together.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        self.nodes.iter().map(|node| node.cache_domains as usize).sum()
    }

    /// The first CPU of `node`; equals the next node's where `node` has no CPUs.
    #[must_use]
    pub fn first_cpu(&self, node: usize) -> usize {
        self.nodes[..node].iter().map(|node| node.cpus as usize).sum()
    }

    /// The node of `cpu`. Panics if there is no such CPU.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        let mut end = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            end += node.cpus as usize;
            if cpu < end {
                return index;
            }
        }
        panic!("cpu {cpu} of a machine with {end} CPUs");
    }

    /// The cache domain of `cpu`, numbered over the whole machine. Panics if there is no such CPU.
    #[must_use]
    pub fn domain_of_cpu(&self, cpu: usize) -> usize {
        let node = self.node_of_cpu(cpu);
        let before: usize = self.nodes[..node].iter().map(|node| node.cache_domains as usize).sum();
        let cpus_per_domain = self.nodes[node].cpus / self.nodes[node].cache_domains;
        before + (cpu - self.first_cpu(node)) / cpus_per_domain as usize
    }

    /// The package (socket) of a node with CPUs; counted without the memory-only nodes.
    #[must_use]
    pub fn package_of_node(&self, node: usize) -> usize {
        let before = self.nodes[..node].iter().filter(|node| node.cpus > 0).count();
        before / self.nodes_per_package as usize
    }

    /// Number of links on the route between two nodes; 0 on the diagonal.
    #[must_use]
    pub fn hops(&self, accessing: usize, holding: usize) -> usize {
        self.routes[accessing][holding].links.len()
    }

    /// Bandwidth that `accessing` can draw from `holding`, MB/s: of the route's narrowest link or
    /// its limit, on the diagonal of the controller. 0 without memory.
    #[must_use]
    pub fn bandwidth_mb_s(&self, accessing: usize, holding: usize) -> f64 {
        let Some(controller) = &self.nodes[holding].controller else { return 0.0 };
        let route = &self.routes[accessing][holding];
        let links = route.links.iter().map(|&link| self.links[link].bandwidth_mb_s);
        links.chain(route.limit_mb_s).fold(controller.bandwidth_mb_s, f64::min)
    }

    /// The period of one core cycle, ns.
    #[must_use]
    pub fn cycle_ns(&self) -> f64 {
        1000.0 / self.core.clock_mhz
    }
}
