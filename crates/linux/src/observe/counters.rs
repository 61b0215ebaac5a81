//! Counts of a program and all its descendants, by the CPU on which they ran.
//!
//! Each event is opened once per CPU on the program's task, inherited by everything that it starts.
//! So a child that lives for a millisecond is counted, and the accessing node is known exactly. For
//! such an event `time_enabled` also advances while the task runs on *other* CPUs. So a task clock
//! that is opened in the same way gives the time for which the event should have counted. Events
//! are opened in groups that fit on the unit. Each read interrupts a CPU, and one read of a group
//! costs as much as one of a single event. If the clock of a CPU did not advance, its groups are
//! not read; that is so for most CPUs of most machines.

use std::io;

use rondpoint_core::observation::{Counter, Counters, Event};
use rondpoint_core::{Matrix, Nanos, Topology};

use super::subject::Subject;
use crate::LinuxError;
use crate::perf::attr::{Attr, SW_TASK_CLOCK, TYPE_SOFTWARE};
use crate::perf::generation::Metric;
use crate::perf::group::{self, OpenGroup};
use crate::perf::pmu;

/// The open counters of a tree of processes.
pub struct TreeCounters {
    cpus: Vec<CpuCounters>,
    /// Whether some events are counted in user mode only, because the kernel refused more.
    pub user_only: bool,
}

struct CpuCounters {
    clocks: Vec<OpenGroup>,
    groups: Vec<TreeGroup>,
    /// The last reading; zeros at first.
    last: CpuReading,
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
        let mut cpus = Vec::new();
        for cpu in 0..topology.cpu_count() {
            let clocks = subject.open_groups(&[clock()], topology.kernel_cpu(cpu))?;
            let last = CpuReading { cpu, cpu_time: Nanos(0), counts: Vec::new() };
            cpus.push(CpuCounters { clocks, groups: Vec::new(), last });
        }
        let mut counters = Self { cpus, user_only: false };
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

    /// Opens a group on all CPUs or on none, because a sum over some CPUs would be wrong without a
    /// sign.
    fn add(
        &mut self,
        part: &[(Metric, pmu::Event)],
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let (metrics, events): (Vec<Metric>, Vec<pmu::Event>) = part.iter().cloned().unzip();
        let open =
            |on: &CpuCounters| subject.open_groups(&events, topology.kernel_cpu(on.last.cpu));
        let opened: Result<Vec<Vec<OpenGroup>>, LinuxError> = self.cpus.iter().map(open).collect();
        for (on, tasks) in self.cpus.iter_mut().zip(opened?) {
            self.user_only |= tasks.iter().any(OpenGroup::is_user_only);
            on.last.counts.extend(metrics.iter().map(|metric| (*metric, Counter::default())));
            on.last.counts.sort_by_key(|(metric, _)| *metric);
            on.groups.push(TreeGroup { metrics: metrics.clone(), tasks });
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
        self.cpus.iter_mut().map(CpuCounters::read).collect()
    }
}

fn clock() -> pmu::Event {
    let mut attr = Attr::counting(TYPE_SOFTWARE, SW_TASK_CLOCK);
    attr.exclude_kernel_and_hypervisor();
    pmu::Event { name: "task-clock".to_string(), attr, cpus: None }
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
        let mut time = 0;
        for clock in &self.clocks {
            let Some(counts) = clock.read_inherited()? else { return Ok(None) };
            time += counts[0].running_ns;
        }
        if self.last.cpu_time == Nanos(time) {
            return Ok(None);
        }
        let mut counts = Vec::new();
        for group in &self.groups {
            let mut sums = vec![Counter::default(); group.metrics.len()];
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
/// Otherwise local and remote requests give them if at most two nodes have memory.
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
    if with_memory.len() > 2 || nodes > 2 || !targets.is_empty() {
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
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::super::subject::Start;
    use super::*;
    use crate::sleeper::{Sleeper, own_thread};

    fn counter(value: u64, enabled: u64, running: u64) -> Counter {
        Counter { value, enabled: Nanos(enabled), running: Nanos(running) }
    }

    fn reading(cpu: usize, counts: &[(Metric, Counter)]) -> CpuReading {
        CpuReading { cpu, cpu_time: Nanos(0), counts: counts.to_vec() }
    }

    #[test]
    fn targets_counted_one_by_one_make_the_matrix() {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let readings = [
            reading(
                0,
                &[
                    (Metric::DramNode(0), counter(5, 10, 5)),
                    (Metric::DramNode(1), counter(7, 10, 5)),
                ],
            ),
            reading(
                1,
                &[
                    (Metric::DramNode(0), counter(1, 10, 10)),
                    (Metric::DramNode(1), counter(0, 10, 10)),
                ],
            ),
            reading(
                3,
                &[(Metric::DramNode(0), counter(9, 4, 4)), (Metric::DramNode(1), counter(2, 4, 4))],
            ),
        ];
        let matrix = node_traffic(&readings, &machine).unwrap();
        assert_eq!(matrix[(0, 0)], counter(6, 20, 15));
        assert_eq!(matrix[(0, 1)], counter(7, 20, 15));
        assert_eq!(matrix[(1, 0)], counter(9, 4, 4));
        assert_eq!(total(&readings, Metric::DramNode(1)), Some(counter(9, 24, 19)));
    }

    #[test]
    fn reads_and_writes_stand_for_the_same_time() {
        let readings = [reading(
            0,
            &[
                (Metric::Writebacks, counter(10, 100, 50)),
                (Metric::DramNode(0), counter(30, 100, 25)),
                (Metric::DramNode(1), counter(60, 100, 100)),
            ],
        )];
        let counters = of_process(&readings);
        assert_eq!(counters.get(Event::DramReads), Some(counter(180, 100, 100)));
        assert_eq!(counters.get(Event::DramReadsAndWrites), Some(counter(200, 100, 100)));
        assert_eq!(counters.get(Event::Instructions), None);
    }

    #[test]
    fn local_and_remote_make_the_matrix_of_two_nodes_and_of_no_more() {
        let counts =
            [(Metric::LocalDram, counter(5, 1, 1)), (Metric::RemoteDram, counter(3, 1, 1))];
        let two = synthetic::parse("node:2 core:1").unwrap();
        let matrix = node_traffic(&[reading(1, &counts)], &two).unwrap();
        assert_eq!((matrix[(1, 1)].value, matrix[(1, 0)].value), (5, 3));
        let four = synthetic::parse("node:4 core:1").unwrap();
        assert_eq!(node_traffic(&[reading(1, &counts)], &four), None);
        assert_eq!(node_traffic(&[reading(1, &[])], &two), None);
    }

    #[test]
    fn the_task_clock_of_this_thread_is_split_by_cpu() {
        let machine = synthetic::parse("node:1 core:1").unwrap();
        let subject = Subject::tasks(&[0], Start::Now);
        let (mut counters, problems) = TreeCounters::open(&subject, &machine, &[], 4).unwrap();
        assert!(problems.is_empty());
        let readings = counters.read().unwrap();
        assert_eq!(readings.len(), 1);
        assert!(counters.metrics().next().is_none());
    }

    #[test]
    fn what_did_not_run_is_told_again_and_what_ran_is_read() {
        let machine = synthetic::parse("node:1 core:1").unwrap();
        // Another event stands for the unit's, so that this runs where there is no unit.
        let events = [(Metric::Instructions, clock())];
        let stopped = Sleeper::start();
        let number = stopped.identity().pid.0;
        crate::syscall::process::kill(number as i32, libc::SIGSTOP).unwrap();
        while !stopped.is_stopped() {}
        let check = |task: u32, runs: bool| {
            let subject = Subject::tasks(&[task], Start::Now);
            let (mut counters, _) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
            let first = counters.read().unwrap();
            let busy = std::time::Instant::now();
            while busy.elapsed().as_millis() < 2 {}
            let second = counters.read().unwrap();
            assert_eq!(second != first, runs, "{first:?} {second:?}");
            assert_eq!(Some(&counters.cpus[0].last), second.first());
        };
        check(number, false);
        // Of this one CPU only: the test may run on another.
        let own = crate::syscall::affinity::get(0).unwrap();
        let counted = [machine.kernel_cpu(0) as usize].into_iter().collect();
        crate::syscall::affinity::set(0, &counted).unwrap();
        check(0, true);
        crate::syscall::affinity::set(0, &own).unwrap();
    }

    #[test]
    fn what_is_stopped_stands_still_with_its_times_and_goes_on() {
        let machine = crate::topology::discover(&crate::Root::live()).unwrap().topology;
        let subject = Subject::tasks(&[own_thread().0], Start::Now);
        let events = [(Metric::LlcMisses, clock())];
        let (mut counters, _) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
        let ran = |counters: &mut TreeCounters, milliseconds| {
            let busy = std::time::Instant::now();
            while busy.elapsed().as_millis() < milliseconds {}
            let readings = counters.read().unwrap();
            let of = total(&readings, Metric::LlcMisses).unwrap();
            (of.value, of.enabled)
        };
        let before = ran(&mut counters, 5);
        counters.stop(true).unwrap();
        let (stopped, later) = (ran(&mut counters, 5), ran(&mut counters, 50));
        assert!(stopped == later && stopped.0 < before.0 + 50_000_000, "{before:?} {later:?}");
        counters.stop(false).unwrap();
        assert!(ran(&mut counters, 5).1 > later.1);
    }

    #[test]
    fn threads_that_come_and_go_while_their_groups_are_read_break_nothing() {
        let machine = synthetic::parse("node:1 core:1").unwrap();
        // As many as it can be, for it is in the making of the group that a thread has a part of
        // it.
        let events: Vec<(Metric, pmu::Event)> =
            (0..64).map(|node| (Metric::DramNode(node), clock())).collect();
        let (told, hear) = std::sync::mpsc::channel();
        let parent = std::thread::spawn(move || {
            told.send(own_thread().0).unwrap();
            for _ in 0..3000 {
                std::thread::spawn(|| {}).join().unwrap();
            }
        });
        let task = hear.recv().unwrap();
        let subject = Subject::tasks(&[task], Start::Now);
        let (mut counters, problems) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let mut before = Nanos(0);
        while !parent.is_finished() {
            let now = counters.read().unwrap()[0].cpu_time;
            assert!(now >= before);
            before = now;
        }
        parent.join().unwrap();
    }
}
