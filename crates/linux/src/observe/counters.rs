//! Counts of a program and all its descendants, by the CPU on which they ran.
//!
//! Each event is opened once per CPU on the program's task, inherited by everything that it starts.
//! So a child that lives for a millisecond is counted, and the accessing node is known exactly. For
//! such an event `time_enabled` also advances while the task runs on *other* CPUs. So a task clock
//! that is opened in the same way gives the time for which the event should have counted. Events
//! are opened in groups that fit on the unit. Each read interrupts a CPU, and one read of a group
//! costs as much as one of a single event. If the clock of a CPU did not advance, its groups are
//! not read; that is so for most CPUs of most machines.

use std::cell::Cell;
use std::io;

use rondpoint_core::observation::{Counter, Counters, Event};
use rondpoint_core::{Matrix, Nanos, Topology};

use super::subject::{Subject, on_cpus};
use crate::LinuxError;
use crate::perf::attr::{Attr, SW_TASK_CLOCK, TYPE_SOFTWARE};
use crate::perf::generation::Metric;
use crate::perf::group::{self, OpenGroup};
use crate::perf::pmu;
use returning::Returning;

mod returning;

/// The open counters of a tree of processes.
pub struct TreeCounters {
    cpus: Vec<CpuCounters>,
    /// What is opened anew on a CPU that was off, if the events are those of all tasks. A task's
    /// own events count there again by themselves.
    returning: Option<Returning>,
    /// The CPUs that the last reading opened anew.
    reopened: Vec<usize>,
    stopped: Cell<bool>,
    /// Whether some events are counted in user mode only, because the kernel refused more.
    pub user_only: bool,
}

struct CpuCounters {
    clocks: Vec<OpenGroup>,
    groups: Vec<TreeGroup>,
    /// The last reading; zeros at first.
    last: CpuReading,
    /// The reading before the events were opened on a CPU that was off; zeros at first.
    base: CpuReading,
}

/// One group of events on each of the tasks.
struct TreeGroup {
    metrics: Vec<Metric>,
    tasks: Vec<OpenGroup>,
}

/// Counts of the program on one CPU since counting began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuReading {
    /// Index of the CPU.
    pub cpu: usize,
    /// CPU time of the program there.
    pub cpu_time: Nanos,
    /// Counts, ascending by metric.
    pub counts: Vec<(Metric, Counter)>,
}

impl TreeCounters {
    /// Opens the available events on all CPUs, in groups of at most `room` programmable counters.
    /// Returns sentences about the refused ones too.
    ///
    /// # Errors
    /// Not even the software task clock can be opened: no performance events at all.
    pub fn open(
        subject: &Subject,
        topology: &Topology,
        events: &[(Metric, pmu::Event)],
        room: usize,
    ) -> Result<(Self, Vec<LinuxError>), LinuxError> {
        let clocks = on_each(subject, topology, |cpu| subject.open_groups(&[clock()], cpu))?;
        let on = |(cpu, clocks): (usize, Vec<OpenGroup>)| {
            let last = CpuReading { cpu, cpu_time: Nanos(0), counts: Vec::new() };
            CpuCounters { clocks, groups: Vec::new(), base: last.clone(), last }
        };
        let cpus: Vec<CpuCounters> = clocks.into_iter().enumerate().map(on).collect();
        let returning = subject.is_all_tasks().then(|| Returning::new(subject, topology));
        let stopped = Cell::new(false);
        let reopened = Vec::new();
        let mut counters = Self { cpus, returning, reopened, stopped, user_only: false };
        let mut problems = Vec::new();
        for part in group::parts(events, room) {
            let Err(problem) = counters.add(&part, subject, topology) else { continue };
            if part.len() == 1 {
                problems.push(problem);
                continue;
            }
            // An event is refused, or the PMU has fewer counters than it shows. Events that open
            // alone are kept.
            for one in &part {
                problems.extend(counters.add(std::slice::from_ref(one), subject, topology).err());
            }
        }
        Ok((counters, problems))
    }

    /// Opens a group on all CPUs that are on or on none, because a sum over some of them would be
    /// wrong without a sign.
    fn add(
        &mut self,
        part: &[(Metric, pmu::Event)],
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let (metrics, events): (Vec<Metric>, Vec<pmu::Event>) = part.iter().cloned().unzip();
        let opened = on_each(subject, topology, |cpu| subject.open_groups(&events, cpu))?;
        for (on, tasks) in self.cpus.iter_mut().zip(opened) {
            self.user_only |= tasks.iter().any(OpenGroup::is_user_only);
            on.last.counts.extend(metrics.iter().map(|metric| (*metric, Counter::default())));
            on.last.counts.sort_by_key(|(metric, _)| *metric);
            on.groups.push(TreeGroup { metrics: metrics.clone(), tasks });
        }
        if let Some(returning) = &mut self.returning {
            returning.parts.push(part.to_vec());
        }
        Ok(())
    }

    /// The counted metrics.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let groups = self.cpus.first().into_iter().flat_map(|on| &on.groups);
        groups.flat_map(|group| group.metrics.iter().copied())
    }

    /// Stops (`stop`) or resumes counting. The counters' times stop too, because they come from
    /// clock events.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn stop(&self, stop: bool) -> io::Result<()> {
        self.stopped.set(stop);
        self.cpus.iter().try_for_each(|on| {
            let groups = on.groups.iter().flat_map(|group| &group.tasks);
            on.clocks.iter().chain(groups).try_for_each(|group| group.stop(stop))
        })
    }

    /// Number of its descriptors.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        let each = |group: &TreeGroup| group.tasks.len() * group.metrics.len();
        let of = |on: &CpuCounters| on.clocks.len() + on.groups.iter().map(each).sum::<usize>();
        self.cpus.iter().map(of).sum()
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&mut self) -> Result<Vec<CpuReading>, LinuxError> {
        let returning = self.returning.as_ref().filter(|_| !self.stopped.get());
        self.reopened.clear();
        let mut readings = Vec::with_capacity(self.cpus.len());
        for on in &mut self.cpus {
            let before = on.last.cpu_time;
            let reading = on.read()?;
            if let Some(returning) = returning
                && reading.cpu_time == before
                && returning.reopen(on)
            {
                self.reopened.push(reading.cpu);
            }
            readings.push(reading);
        }
        Ok(readings)
    }

    /// Indices of the CPUs whose events the last reading opened anew, because the CPU was off.
    #[must_use]
    pub fn reopened(&self) -> &[usize] {
        &self.reopened
    }
}

/// What opens on each CPU. A CPU that is off has no events of all tasks until it is on again. The
/// first reading then finds that its clock stands still. A task may have events on such a CPU.
fn on_each<T: Default>(
    subject: &Subject,
    topology: &Topology,
    open: impl Fn(u32) -> Result<T, LinuxError>,
) -> Result<Vec<T>, LinuxError> {
    let open = |cpu| open(topology.kernel_cpu(cpu));
    match subject.is_all_tasks() {
        true => on_cpus(topology.cpu_count(), open),
        false => (0..topology.cpu_count()).map(open).collect(),
    }
}

fn clock() -> pmu::Event {
    let mut attr = Attr::counting(TYPE_SOFTWARE, SW_TASK_CLOCK);
    attr.exclude_kernel_and_hypervisor();
    pmu::Event { name: "task-clock".to_string(), attr, cpus: None }
}

impl CpuReading {
    /// The count of a metric; zeros if it is not counted.
    fn count(&self, metric: Metric) -> Counter {
        let found = self.counts.iter().find(|(found, _)| *found == metric);
        found.map_or_else(Counter::default, |(_, counter)| *counter)
    }
}

impl CpuCounters {
    fn read(&mut self) -> Result<CpuReading, LinuxError> {
        if let Some(reading) = self.read_anew()? {
            self.last = reading;
        }
        Ok(self.last.clone())
    }

    /// A new reading. `None` if nothing has changed, or if a thread that is starting or ending has
    /// no complete group. The last reading then holds, and the next one has the rest.
    fn read_anew(&self) -> Result<Option<CpuReading>, LinuxError> {
        let mut time = self.base.cpu_time.0;
        for clock in &self.clocks {
            let Some(counts) = clock.read_inherited()? else { return Ok(None) };
            time += counts[0].running_ns;
        }
        if self.last.cpu_time == Nanos(time) {
            return Ok(None);
        }
        let mut counts = Vec::new();
        for group in &self.groups {
            let mut sums: Vec<Counter> =
                group.metrics.iter().map(|metric| self.base.count(*metric)).collect();
            for task in &group.tasks {
                let Some(counts) = task.read_inherited()? else { return Ok(None) };
                for (sum, count) in sums.iter_mut().zip(counts) {
                    sum.value += count.value;
                    sum.running.0 += count.running_ns;
                }
            }
            // The clock is read first, so a counter may have run a little longer.
            sums.iter_mut().for_each(|sum| sum.enabled = Nanos(time.max(sum.running.0)));
            counts.extend(group.metrics.iter().copied().zip(sums));
        }
        counts.sort_by_key(|(metric, _)| *metric);
        Ok(Some(CpuReading { cpu: self.last.cpu, cpu_time: Nanos(time), counts }))
    }
}

/// Adds two counts of the same event.
#[must_use]
pub fn added(one: Counter, other: Counter) -> Counter {
    Counter {
        value: one.value + other.value,
        enabled: one.enabled + other.enabled,
        running: one.running + other.running,
    }
}

/// The sum of one metric over all CPUs; `None` where it is not counted.
#[must_use]
pub fn total(readings: &[CpuReading], metric: Metric) -> Option<Counter> {
    let of = |reading: &CpuReading| {
        let place = reading.counts.iter().position(|(found, _)| *found == metric)?;
        Some(reading.counts[place].1)
    };
    readings.iter().filter_map(of).reduce(added)
}

/// The model's event of a metric, if they mean the same.
#[must_use]
pub fn event_of(metric: Metric) -> Option<Event> {
    Some(match metric {
        Metric::Instructions => Event::Instructions,
        Metric::Cycles => Event::Cycles,
        Metric::LocalDram => Event::LocalDram,
        Metric::RemoteDram => Event::RemoteDram,
        Metric::RemoteHitm => Event::RemoteHitm,
        Metric::RemoteForward => Event::RemoteForward,
        Metric::LlcHits => Event::LlcHits,
        Metric::LlcMisses => Event::LlcMisses,
        Metric::PrivateMisses => Event::PrivateMisses,
        Metric::StallCycles => Event::StallCycles,
        Metric::Refills => Event::Refills,
        Metric::RefillsModified => Event::RefillsModified,
        Metric::DramLatencyCycles => Event::DramLatencyCycles,
        Metric::DramRequests => Event::DramRequests,
        _ => return None,
    })
}

/// Counts under the model's events. If the hits in other caches of the own node are counted by the
/// state of the line, their sum is SAM's SNP.
#[must_use]
pub fn named(counts: &[(Metric, Counter)]) -> Counters {
    let known = |(metric, counter): &(Metric, Counter)| Some((event_of(*metric)?, *counter));
    let mut counters: Counters = counts.iter().filter_map(known).collect();
    let of = |wanted| counts.iter().find(|(metric, _)| *metric == wanted).map(|(_, c)| *c);
    let snoops = [Metric::LocalHitm, Metric::LocalForward].into_iter().filter_map(of);
    if let Some(sum) = snoops.reduce(beside) {
        counters.set(Event::SnoopLocal, sum);
    }
    counters
}

/// Sums over all CPUs under the model's events.
#[must_use]
pub fn of_process(readings: &[CpuReading]) -> Counters {
    let metrics: std::collections::BTreeSet<Metric> =
        readings.iter().flat_map(|reading| &reading.counts).map(|(metric, _)| *metric).collect();
    let sums: Vec<(Metric, Counter)> =
        metrics.into_iter().filter_map(|metric| Some((metric, total(readings, metric)?))).collect();
    let mut counters = named(&sums);
    if let Some((reads, writes)) = lines_read(readings).zip(total(readings, Metric::Writebacks)) {
        counters.set(Event::DramReads, reads);
        counters.set(Event::DramReadsAndWrites, beside(reads, writes));
    }
    counters
}

/// Lines read from memory: counted directly, else summed over local and remote.
fn lines_read(readings: &[CpuReading]) -> Option<Counter> {
    let counts = readings.iter().flat_map(|reading| &reading.counts);
    let by_node = counts.filter(|(metric, _)| matches!(metric, Metric::DramNode(_)));
    let by_node: Vec<(Metric, Counter)> = by_node.copied().collect();
    let nodes: std::collections::BTreeSet<Metric> = by_node.iter().map(|(node, _)| *node).collect();
    let sums = nodes.into_iter().filter_map(|node| total(readings, node));
    total(readings, Metric::DramReads).or_else(|| sums.reduce(beside))
}

/// Adds counts of different events over the same time. Each is scaled to the whole time for the
/// part in which it was off its counter.
fn scaled_sum(one: Counter, other: Counter) -> Counter {
    let whole = |counter: Counter| match counter.running.0 {
        0 => 0,
        running => {
            let scaled = u128::from(counter.value) * u128::from(counter.enabled.0);
            u64::try_from(scaled / u128::from(running)).unwrap_or(u64::MAX)
        }
    };
    let enabled = one.enabled.max(other.enabled);
    let value = whole(one).saturating_add(whole(other));
    // If one of them never counted, the sum means nothing, so its running time is zero.
    let counted = one.running.0 > 0 && other.running.0 > 0;
    Counter { value, enabled, running: if counted { enabled } else { Nanos(0) } }
}

/// Adds counts of different events. Counts of one group, which ran at the same times, are added
/// without scaling.
fn beside(one: Counter, other: Counter) -> Counter {
    if (one.enabled, one.running) != (other.enabled, other.running) {
        return scaled_sum(one, other);
    }
    Counter { value: one.value + other.value, ..one }
}

/// DRAM requests by `[accessing][holding]`. They are counted by target node if the machine can.
/// Otherwise local and remote requests give them if at most two nodes have memory, and each node
/// has CPUs. A remote request is one to another socket, so memory without CPUs (CXL) is in neither
/// count.
#[must_use]
pub fn node_traffic(readings: &[CpuReading], topology: &Topology) -> Option<Matrix<Counter>> {
    let nodes = topology.node_count();
    let mut matrix = Matrix::filled(nodes, Counter::default());
    let mut add = |cpu: usize, holding: usize, counter: Counter| {
        let cell = &mut matrix[(topology.node_of_cpu(cpu), holding)];
        *cell = added(*cell, counter);
    };
    let mut targets = rondpoint_core::NodeSet::new();
    for reading in readings {
        for (metric, counter) in &reading.counts {
            if let Metric::DramNode(kernel_id) = metric
                && let Some(node) = topology.node_of_kernel_id(*kernel_id)
            {
                targets.insert(node);
                add(reading.cpu, node, *counter);
            }
        }
    }
    let with_memory = topology.memory_nodes();
    if with_memory.is_subset(&targets) {
        return Some(matrix);
    }
    let is_of_sockets = nodes <= 2 && topology.compute_nodes().len() == nodes;
    if with_memory.len() > 2 || !is_of_sockets || !targets.is_empty() {
        return None;
    }
    total(readings, Metric::LocalDram)?;
    for reading in readings {
        let own = topology.node_of_cpu(reading.cpu);
        for (metric, counter) in &reading.counts {
            match metric {
                Metric::LocalDram => add(reading.cpu, own, *counter),
                Metric::RemoteDram if nodes == 2 => add(reading.cpu, 1 - own, *counter),
                _ => {}
            }
        }
    }
    Some(matrix)
}

#[cfg(test)]
mod tests;
