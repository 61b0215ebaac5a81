//! Counts of a thread or a program, by the same counters that `run` uses.

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Topology;
use rondpoint_core::observation::{Counter, Event};
use rondpoint_linux::observe::counters::{TreeCounters, node_traffic, of_process};
use rondpoint_linux::observe::subject::Subject;
use rondpoint_linux::perf::generation::{Available, Generation, Metric};
use rondpoint_linux::perf::pmu::{self, Pmus};
use rondpoint_linux::topology::Discovered;
use rondpoint_linux::{LinuxError, Root};

/// Without these there is neither a pressure nor a penalty. They are on the counters together, in
/// one group.
const WORK: [Metric; 3] = [Metric::Instructions, Metric::Cycles, Metric::LlcMisses];

/// The events of this machine's table.
pub(super) struct Events {
    available: Available,
}

/// What was done, in user code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Work {
    pub(super) instructions: f64,
    pub(super) cycles: f64,
    /// Last-level cache misses.
    pub(super) misses: f64,
}

impl Work {
    /// Last-level cache misses per 1000 instructions.
    pub(super) fn mpki(&self) -> f64 {
        1e3 * self.misses / self.instructions
    }

    pub(super) fn cycles_per_instruction(&self) -> f64 {
        self.cycles / self.instructions
    }
}

impl Events {
    /// What this machine's processor can count by the table.
    pub(super) fn of(machine: &Discovered) -> Result<Self> {
        let (pmus, _) = Pmus::discover(&Root::live())?;
        let topology = &machine.topology;
        let with_memory = topology.memory_nodes();
        let nodes: Vec<u32> = with_memory.iter().map(|node| topology.kernel_node(node)).collect();
        let available = Generation::choose(&pmus, &machine.identity).resolve(&pmus, &nodes);
        Ok(Self { available })
    }

    /// Events per address sample by the table.
    pub(super) fn period(&self) -> u64 {
        self.available.period
    }

    /// Opens what [`work`] reads, on a task.
    ///
    /// # Errors
    /// Which event there is not, and why.
    pub(super) fn open_work(&self, subject: &Subject, topology: &Topology) -> Result<TreeCounters> {
        for needed in WORK {
            if self.available.core.iter().all(|(metric, _)| *metric != needed) {
                let why = self.available.reason(needed).map(ToString::to_string);
                let why = why.unwrap_or(format!("not in the table {}", self.available.generation));
                bail!("{} cannot be counted: {why}", needed.name());
            }
        }
        let mut events = self.events(|metric| WORK.contains(&metric));
        for (_, event) in &mut events {
            // What the kernel does in the meantime, ticks above all, is no part of the program and
            // no slower far away.
            event.attr.exclude_kernel_and_hypervisor();
        }
        let (counters, problems) = self.open(subject, topology, &events)?;
        let counted: Vec<Metric> = counters.metrics().collect();
        if let Some(missing) = WORK.iter().find(|needed| !counted.contains(needed)) {
            let why = problems.first().map(ToString::to_string).unwrap_or_default();
            bail!("{} cannot be counted: {why}", missing.name());
        }
        Ok(counters)
    }

    /// Opens what [`requests`] reads, as far as it is there. Apart from the others, which would
    /// take turns with it on the counters: a program does not do the same all the time.
    pub(super) fn open_requests(
        &self,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<TreeCounters> {
        let by_node = self.events(|metric| matches!(metric, Metric::DramNode(_)));
        let by_distance =
            || self.events(|metric| matches!(metric, Metric::LocalDram | Metric::RemoteDram));
        let events = if by_node.is_empty() { by_distance() } else { by_node };
        Ok(self.open(subject, topology, &events)?.0)
    }

    fn events(&self, wanted: impl Fn(Metric) -> bool) -> Vec<(Metric, pmu::Event)> {
        self.available.core.iter().filter(|(metric, _)| wanted(*metric)).cloned().collect()
    }

    fn open(
        &self,
        subject: &Subject,
        topology: &Topology,
        events: &[(Metric, pmu::Event)],
    ) -> Result<(TreeCounters, Vec<LinuxError>)> {
        Ok(TreeCounters::open(subject, topology, events, self.available.counters)?)
    }
}

/// What was done since the counters were opened.
pub(super) fn work(counters: &mut TreeCounters) -> Result<Work> {
    let sums = of_process(&counters.read()?);
    let of = |event: Event| {
        let delta = sums.get(event).and_then(|counter| counter.since(Counter::default()));
        delta.map(|delta| delta.events).with_context(|| format!("{event:?}: never on a counter"))
    };
    let work = Work {
        instructions: of(Event::Instructions)?,
        cycles: of(Event::Cycles)?,
        misses: of(Event::LlcMisses)?,
    };
    if work.instructions <= 0.0 || work.cycles <= 0.0 {
        bail!("{work:?}: expected instructions and cycles");
    }
    Ok(work)
}

/// Requests to DRAM since the counters were opened; `None` where they cannot be counted.
pub(super) fn requests(counters: &mut TreeCounters, topology: &Topology) -> Result<Option<f64>> {
    let Some(matrix) = node_traffic(&counters.read()?, topology) else { return Ok(None) };
    // On a CPU where the program was not nothing counted: that is none.
    let events = |counter: Counter| counter.since(Counter::default()).map_or(0.0, |d| d.events);
    Ok(Some(matrix.cells().map(|(_, _, counter)| events(counter)).sum()))
}
