//! Closed-loop vCPUs: synthetic access loops that wait for the stalls of the model.
//!
//! Virtual addresses equal physical ones; node `n` holds the range from `n * SPAN`. Each vCPU runs
//! to the end of a quantum and then the next one does, as in the emulator.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;

use rondpoint_lab_model::{Access, Event, Hardware, Kind, Region, Served};
use rondpoint_machine::Machine;

/// Bytes of memory on each node.
pub(crate) const SPAN: u64 = 128 << 20;
/// Bytes of a line.
pub(crate) const LINE: u64 = 64;
const PS_PER_NS: u64 = 1000;

/// One step of a program: instructions without memory, then one access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Instructions, this access included.
    pub(crate) instructions: u64,
    /// Where.
    pub(crate) address: u64,
    /// Store or load.
    pub(crate) store: bool,
    /// What the load returns.
    pub(crate) loaded: Option<u64>,
}

impl Step {
    /// A load after `instructions` instructions that returns nothing of interest.
    pub(crate) fn load(instructions: u64, address: u64) -> Step {
        Step { instructions, address, store: false, loaded: None }
    }

    /// A store after `instructions` instructions.
    pub(crate) fn store(instructions: u64, address: u64) -> Step {
        Step { instructions, address, store: true, loaded: None }
    }
}

/// A running program; `None` when it has ended.
pub(crate) type Program = Box<dyn FnMut() -> Option<Step>>;

/// One vCPU and its program.
struct Vcpu {
    cpu: usize,
    program: Program,
    now_ps: u64,
    instructions: u64,
    running: bool,
}

/// The emulator's stand-in.
pub(crate) struct Driver {
    /// The lab's version of the machine.
    pub(crate) machine: Machine,
    /// The model under test.
    pub(crate) hardware: Hardware,
    vcpus: Vec<Vcpu>,
    now_ps: u64,
    /// Runs the vCPUs of a quantum in falling order.
    pub(crate) backwards: bool,
}

/// The lab's version of `machines/NAME.toml`.
pub(crate) fn lab_machine(name: &str) -> Machine {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("machines").join(name).with_extension("toml");
    Machine::load(&path).expect("the machine file is good").for_lab().expect("fit for the lab")
}

/// The names of all machine files.
pub(crate) fn machine_names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let files = folder.read_dir().expect("the machines are in the repository");
    let paths = files.map(|file| file.expect("a readable folder").path());
    let machines = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let stem = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let mut names: Vec<String> = machines.map(|path| stem(&path)).collect();
    names.sort();
    names
}

impl Driver {
    /// The machine `machines/NAME.toml`, scaled for the lab, idle.
    pub(crate) fn new(name: &str) -> Driver {
        Driver::with(lab_machine(name))
    }

    /// A machine that is scaled already, idle.
    pub(crate) fn with(machine: Machine) -> Driver {
        let with_memory =
            (0..machine.nodes.len()).filter(|&n| machine.nodes[n].controller.is_some());
        let region = |node| Region { start: node as u64 * SPAN, bytes: SPAN, node };
        let memory: Vec<Region> = with_memory.map(region).collect();
        let hardware = Hardware::new(&machine, &memory).expect("the lab's machines fit the model");
        Driver { machine, hardware, vcpus: Vec::new(), now_ps: 0, backwards: false }
    }

    /// Starts a program on a vCPU, now.
    pub(crate) fn start(&mut self, cpu: usize, program: impl FnMut() -> Option<Step> + 'static) {
        let program = Box::new(program);
        let now_ps = self.now_ps;
        self.vcpus.push(Vcpu { cpu, program, now_ps, instructions: 0, running: true });
    }

    /// The first vCPU of a node.
    pub(crate) fn cpu_of(&self, node: usize) -> usize {
        self.machine.first_cpu(node)
    }

    /// Time that `instructions` take without misses, ps.
    fn instruction_ps(&self, instructions: u64) -> u64 {
        let ns = self.machine.cycle_ns() * self.machine.core.cycles_per_instruction;
        (instructions as f64 * ns * PS_PER_NS as f64) as u64
    }

    fn step(&mut self, index: usize) {
        let Some(step) = (self.vcpus[index].program)() else {
            self.vcpus[index].running = false;
            return;
        };
        let time = self.instruction_ps(step.instructions);
        let vcpu = &mut self.vcpus[index];
        vcpu.now_ps += time;
        vcpu.instructions += step.instructions;
        if self.hardware.first_level_hit(vcpu.cpu, step.address, step.store) {
            return;
        }
        let access = Access {
            vaddr: step.address,
            paddr: step.address,
            store: step.store,
            loaded: step.loaded,
            now_ps: vcpu.now_ps,
            instructions: vcpu.instructions,
        };
        vcpu.now_ps += self.hardware.access(vcpu.cpu, access).stall_ps;
    }

    /// Runs for `duration_ns` of guest time, or until all programs have ended.
    pub(crate) fn run(&mut self, duration_ns: u64) {
        let end = self.now_ps + duration_ns * PS_PER_NS;
        let quantum = self.machine.lab.quantum_ns * PS_PER_NS;
        while self.now_ps < end && self.vcpus.iter().any(|vcpu| vcpu.running) {
            let until = self.now_ps + quantum;
            let count = self.vcpus.len();
            for place in 0..count {
                let index = if self.backwards { count - 1 - place } else { place };
                while self.vcpus[index].running && self.vcpus[index].now_ps < until {
                    self.step(index);
                }
            }
            self.hardware.end_quantum(quantum);
            self.now_ps = until;
        }
    }

    /// Runs step by step, always the vCPU that is furthest behind: what a quantum that shrinks
    /// while lines are shared comes to. Until all programs have ended.
    pub(crate) fn run_finely(&mut self) {
        let quantum = self.machine.lab.quantum_ns * PS_PER_NS;
        let next = |vcpus: &[Vcpu]| {
            let running = vcpus.iter().enumerate().filter(|(_, vcpu)| vcpu.running);
            running.min_by_key(|(_, vcpu)| vcpu.now_ps).map(|(index, vcpu)| (index, vcpu.now_ps))
        };
        while let Some((index, now_ps)) = next(&self.vcpus) {
            while now_ps >= self.now_ps + quantum {
                self.hardware.end_quantum(quantum);
                self.now_ps += quantum;
            }
            self.step(index);
        }
    }

    /// Runs all programs to their end, and returns the time the slowest took, ns.
    pub(crate) fn finish(&mut self) -> f64 {
        let began = self.now_ps;
        self.run(u64::MAX / PS_PER_NS / 2);
        let last = self.vcpus.iter().map(|vcpu| vcpu.now_ps).max().expect("a program ran");
        self.vcpus.clear();
        (last - began) as f64 / PS_PER_NS as f64
    }

    /// The own time of the slowest vCPU, ns.
    pub(crate) fn time_ns(&self) -> f64 {
        let last = self.vcpus.iter().map(|vcpu| vcpu.now_ps).max().unwrap_or(0);
        last as f64 / PS_PER_NS as f64
    }

    /// The sum of a counter over all vCPUs.
    pub(crate) fn total(&self, event: Event) -> u64 {
        (0..self.hardware.cpu_count()).map(|cpu| self.hardware.counters(cpu).get(event)).sum()
    }

    /// Lines read from DRAM of `holding`, by all nodes.
    pub(crate) fn reads_at(&self, holding: usize) -> u64 {
        (0..self.machine.nodes.len()).map(|a| self.hardware.traffic().dram_reads(a, holding)).sum()
    }

    /// Mean latency of DRAM requests, prefetches included, in core cycles, of what `run` moves.
    pub(crate) fn mean_latency_cycles(&self, run: &Measured) -> f64 {
        run.latency_ns / self.machine.cycle_ns()
    }

    /// Runs for `duration_ns` after letting the queues settle for as long.
    pub(crate) fn measure(&mut self, duration_ns: u64) -> Measured {
        self.run(duration_ns);
        let before = Snapshot::of(self);
        self.run(duration_ns);
        Snapshot::of(self).since(&before, duration_ns as f64)
    }
}

/// Numbers of a stretch of time.
#[derive(Debug)]
pub(crate) struct Measured {
    /// DRAM reads by `[accessing][holding]`, MB/s.
    pub(crate) read_mb_s: Vec<Vec<f64>>,
    /// Bytes over each link, MB/s.
    pub(crate) link_mb_s: Vec<f64>,
    /// Bytes through each controller, MB/s; zero without one.
    pub(crate) controller_mb_s: Vec<f64>,
    /// Mean latency of DRAM reads, prefetches included, ns.
    pub(crate) latency_ns: f64,
}

struct Snapshot {
    reads: Vec<Vec<u64>>,
    links: Vec<u64>,
    controllers: Vec<u64>,
    lines: f64,
    latency_ps: f64,
}

impl Snapshot {
    fn of(driver: &Driver) -> Snapshot {
        let traffic = driver.hardware.traffic();
        let nodes = traffic.nodes();
        let row = |a| (0..nodes).map(|h| traffic.dram_reads(a, h)).collect();
        let reads: Vec<Vec<u64>> = (0..nodes).map(row).collect();
        let lines = reads.iter().flatten().sum::<u64>() as f64;
        Snapshot {
            latency_ps: (driver.total(Event::DramLatency) + driver.total(Event::PrefetchLatency))
                as f64,
            lines,
            reads,
            links: driver.hardware.links().map(|usage| usage.bytes).collect(),
            controllers: driver
                .hardware
                .controllers()
                .map(|usage| usage.map_or(0, |usage| usage.bytes))
                .collect(),
        }
    }

    fn since(&self, before: &Snapshot, duration_ns: f64) -> Measured {
        // Bytes per ns are 10⁹ bytes per second.
        let mb_s = |bytes: u64| bytes as f64 / duration_ns * 1000.0;
        let rates = |now: &[u64], then: &[u64], unit: u64| -> Vec<f64> {
            now.iter().zip(then).map(|(now, then)| mb_s((now - then) * unit)).collect()
        };
        let rows = self.reads.iter().zip(&before.reads);
        Measured {
            read_mb_s: rows.map(|(now, then)| rates(now, then, LINE)).collect(),
            link_mb_s: rates(&self.links, &before.links, 1),
            controller_mb_s: rates(&self.controllers, &before.controllers, 1),
            latency_ns: (self.latency_ps - before.latency_ps) / (self.lines - before.lines) / 1e3,
        }
    }
}

/// A generator of numbers from a seed (splitmix64, Steele et al., OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Independent loads of lines by chance from one node, `gap` instructions apart, for ever.
pub(crate) fn random_loads(node: usize, gap: u64, seed: u64) -> impl FnMut() -> Option<Step> {
    let mut random = Random(seed);
    move || Some(Step::load(gap, node as u64 * SPAN + random.below(SPAN / LINE) * LINE))
}

/// A pointer chase over `lines` lines by chance (a single cycle), `count` steps.
pub(crate) fn chase(
    node: usize,
    lines: u64,
    count: u64,
    seed: u64,
) -> impl FnMut() -> Option<Step> {
    let mut order: Vec<u64> = (0..lines).collect();
    let mut random = Random(seed);
    // Sattolo's shuffle: one cycle through all.
    for last in (1..lines as usize).rev() {
        order.swap(last, random.below(last as u64) as usize);
    }
    let (mut at, mut left) = (0, count);
    move || {
        left = left.checked_sub(1)?;
        let address = |line: u64| node as u64 * SPAN + line * LINE;
        let from = at;
        at = order[at as usize];
        Some(Step { loaded: Some(address(at)), ..Step::load(2, address(from)) })
    }
}

/// Loads every `stride` bytes from `start`, `count` times.
pub(crate) fn scan(start: u64, stride: u64, count: u64, gap: u64) -> impl FnMut() -> Option<Step> {
    let mut index = 0;
    move || {
        (index < count).then(|| {
            index += 1;
            Step::load(gap, start + (index - 1) * stride)
        })
    }
}

/// The sum of lines of `kind` over all pairs.
pub(crate) fn lines(hardware: &Hardware, kind: Kind) -> u64 {
    let nodes = hardware.traffic().nodes();
    let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |h| (a, h)));
    pairs.map(|(a, h)| hardware.traffic().lines(kind, a, h)).sum()
}

/// Asserts that `measured` is within `percent` of `target`.
#[track_caller]
pub(crate) fn within(what: &str, measured: f64, target: f64, percent: f64) {
    let off = (measured / target - 1.0) * 100.0;
    assert!(
        off.abs() <= percent,
        "{what}: measured {measured:.2}, target {target:.2} ({off:+.1} %)"
    );
}

/// One access on its own, outside any program.
pub(crate) fn touch(
    hardware: &mut Hardware,
    cpu: usize,
    address: u64,
    store: bool,
) -> Option<Served> {
    if hardware.first_level_hit(cpu, address, store) {
        return None;
    }
    let access =
        Access { vaddr: address, paddr: address, store, loaded: None, now_ps: 0, instructions: 0 };
    Some(hardware.access(cpu, access))
}
