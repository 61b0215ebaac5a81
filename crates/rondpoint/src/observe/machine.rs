//! The whole machine, once each interval: its nodes, the kernel's NUMA balancing, and the processes
//! with the most CPU time. Needs no privilege.

use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::time::Instant;

use anyhow::Result;
use rondpoint_core::{Bytes, Pid, Topology};
use rondpoint_linux::observe::machine::{self, MachineLook, NodeLook};
use rondpoint_linux::syscall::signal;
use rondpoint_linux::{Root, topology};
use serde::Serialize;

use super::Arguments;
use super::report::SCHEMA;
use super::watch::Output;
use crate::session;
use crate::terminal::clean;

/// Processes shown; with more the first ones would leave the screen.
const SHOWN_PROCESSES: usize = 10;

/// One interval of the machine.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename = "machine")]
pub(crate) struct MachineLine {
    schema: u32,
    /// Seconds since the beginning.
    pub(crate) at_s: f64,
    pub(crate) nodes: Vec<NodeLine>,
    /// Pages that the kernel's automatic NUMA balancing moved, a second.
    pub(crate) kernel_moved_per_s: f64,
    /// Its hint faults a second; none where it is off.
    pub(crate) hint_faults_per_s: f64,
    /// How many of them were on pages of the thread's own node.
    hint_faults_local_percent: Option<f64>,
    /// Busiest first.
    pub(crate) processes: Vec<ProcessLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NodeLine {
    pub(crate) node: u32,
    pub(crate) cpus: u32,
    /// `None` of a node without CPUs.
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) memory_bytes: u64,
    pub(crate) free_bytes: u64,
    /// Pages a second that were allocated here for CPUs of this node.
    pub(crate) local_pages_per_s: f64,
    /// Pages a second that were allocated here for CPUs of other nodes.
    pub(crate) other_pages_per_s: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProcessLine {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// 100 is one CPU.
    pub(crate) cpu_percent: f64,
    pub(crate) resident_bytes: u64,
    /// Threads by the node on which they ran last, in the order of `nodes`.
    pub(crate) threads_by_node: Vec<u32>,
}

/// Shows the machine until a signal, or until its reader has gone.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let mut output = Output::open(arguments)?;
    let arriving = session::stop_signals()?;
    let mut machine = Machine::begin()?;
    let mut deadline = machine.began + arguments.interval;
    while !output.is_broken {
        let left = deadline.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            signal::wait_readable(&[arriving.as_fd()], session::milliseconds(left))?;
            if session::has_stopped(arriving.as_fd()) {
                break;
            }
            continue;
        }
        deadline = session::next(deadline, arguments.interval);
        let line = machine.next()?;
        output.write(
            &line,
            || text(&line),
            |reader| {
                let has_stopped = || Ok(session::has_stopped(arriving.as_fd()));
                session::wait_for_room(arriving.as_fd(), reader, has_stopped)
            },
        );
    }
    output.outcome()
}

/// The machine between two looks.
pub(crate) struct Machine {
    root: Root,
    topology: Topology,
    began: Instant,
    before: MachineLook,
}

impl Machine {
    /// Looks for the first time.
    ///
    /// # Errors
    /// `/sys` or `/proc` cannot be read.
    pub(crate) fn begin() -> Result<Self> {
        let root = Root::live();
        let topology = topology::discover(&root)?.topology;
        let began = Instant::now();
        let before = machine::look(&root, &topology)?;
        Ok(Self { root, topology, began, before })
    }

    /// What happened since the last look.
    ///
    /// # Errors
    /// As [`Machine::begin`].
    pub(crate) fn next(&mut self) -> Result<MachineLine> {
        let now = machine::look(&self.root, &self.topology)?;
        let at_s = self.began.elapsed().as_secs_f64();
        let line = between(&self.root, &self.topology, at_s, (&self.before, &now));
        self.before = now;
        Ok(line)
    }
}

fn between(
    root: &Root,
    topology: &Topology,
    at_s: f64,
    (before, now): (&MachineLook, &MachineLook),
) -> MachineLine {
    let seconds = (now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9).max(f64::MIN_POSITIVE);
    let rate = |name: &str| {
        let of = |look: &MachineLook| look.vmstat.get(name).copied().unwrap_or(0);
        of(now).saturating_sub(of(before)) as f64 / seconds
    };
    let (faults, local) = (rate("numa_hint_faults"), rate("numa_hint_faults_local"));
    let nodes = before.nodes.iter().zip(&now.nodes).enumerate();
    MachineLine {
        schema: SCHEMA,
        at_s,
        nodes: nodes.map(|(node, looks)| node_line(topology, node, looks, seconds)).collect(),
        kernel_moved_per_s: rate("numa_pages_migrated"),
        hint_faults_per_s: faults,
        hint_faults_local_percent: (faults > 0.0).then(|| 100.0 * local / faults),
        processes: process_lines(root, topology, before, now, seconds),
    }
}

fn node_line(
    topology: &Topology,
    node: usize,
    (before, now): (&NodeLook, &NodeLook),
    seconds: f64,
) -> NodeLine {
    let pages = |name: &str| {
        let of = |look: &NodeLook| look.allocated.get(name).copied().unwrap_or(0);
        of(now).saturating_sub(of(before)) as f64 / seconds
    };
    let (busy, all) = (now.busy_s - before.busy_s, now.all_s - before.all_s);
    NodeLine {
        node: topology.kernel_node(node),
        cpus: topology.cpus_of_node(node).len() as u32,
        cpu_percent: (all > 0.0).then(|| (100.0 * busy / all).clamp(0.0, 100.0)),
        memory_bytes: now.memory_bytes,
        free_bytes: now.free_bytes,
        local_pages_per_s: pages("local_node"),
        other_pages_per_s: pages("other_node"),
    }
}

fn process_lines(
    root: &Root,
    topology: &Topology,
    before: &MachineLook,
    now: &MachineLook,
    seconds: f64,
) -> Vec<ProcessLine> {
    let used = |(pid, process): (&Pid, &machine::ProcessLook)| {
        let known = before.processes.get(pid);
        let known = known.filter(|known| known.started_ticks == process.started_ticks);
        (*pid, process.cpu_s - known.map_or(0.0, |known| known.cpu_s))
    };
    let mut busiest: Vec<(Pid, f64)> = now.processes.iter().map(used).collect();
    busiest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    busiest.truncate(SHOWN_PROCESSES);
    let line = |(pid, used): (Pid, f64)| {
        let process = &now.processes[&pid];
        ProcessLine {
            pid: pid.0,
            name: process.name.clone(),
            cpu_percent: 100.0 * used / seconds,
            resident_bytes: process.resident_bytes,
            threads_by_node: machine::threads_by_node(root, topology, pid),
        }
    };
    busiest.into_iter().map(line).collect()
}

fn text(line: &MachineLine) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "── {:.1} s ──", line.at_s);
    let _ = writeln!(
        text,
        "{:<6} {:>7} {:>12} {:>12} {:>16} {:>16}",
        "node", "CPU %", "memory", "free", "own pages/s", "others' pages/s"
    );
    for node in &line.nodes {
        let cpu = node.cpu_percent.map_or("-".to_string(), |percent| format!("{percent:.1}"));
        let (memory, free) = (Bytes(node.memory_bytes), Bytes(node.free_bytes));
        let _ = writeln!(
            text,
            "{:<6} {cpu:>7} {:>12} {:>12} {:>16.0} {:>16.0}",
            node.node,
            memory.to_string(),
            free.to_string(),
            node.local_pages_per_s,
            node.other_pages_per_s
        );
    }
    let local = line
        .hint_faults_local_percent
        .map_or(String::new(), |percent| format!(", {percent:.0} % of them local"));
    let _ = writeln!(
        text,
        "NUMA balancing: {:.0} pages/s moved, {:.0} hint faults/s{local}",
        line.kernel_moved_per_s, line.hint_faults_per_s
    );
    let _ = writeln!(
        text,
        "{:>8} {:<15} {:>8} {:>12}  threads by node",
        "process", "name", "CPU %", "memory"
    );
    for process in &line.processes {
        let threads: Vec<String> = process.threads_by_node.iter().map(u32::to_string).collect();
        let _ = writeln!(
            text,
            "{:>8} {:<15} {:>8.1} {:>12}  {}",
            process.pid,
            clean(&process.name),
            process.cpu_percent,
            Bytes(process.resident_bytes).to_string(),
            threads.join(" ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    #[test]
    fn rates_are_those_of_the_interval_and_a_reused_number_is_another_process() {
        let machine = synthetic::parse("node:2 core:1").expect("a machine");
        let process = |started_ticks, cpu_s| machine::ProcessLook {
            name: "app".to_string(),
            started_ticks,
            cpu_s,
            resident_bytes: 4096,
            threads: 1,
        };
        let look = |at_ns, busy_s, pages, faults: [u64; 2], process| MachineLook {
            at_ns,
            nodes: vec![
                NodeLook {
                    busy_s,
                    all_s: 10.0 + busy_s * 2.0,
                    allocated: [("local_node".to_string(), pages)].into(),
                    ..NodeLook::default()
                },
                NodeLook::default(),
            ],
            processes: [(Pid(0x3fff_fffe), process)].into(),
            vmstat: [
                ("numa_hint_faults".to_string(), faults[0]),
                ("numa_hint_faults_local".to_string(), faults[1]),
            ]
            .into(),
        };
        let root = Root::captured(std::path::Path::new("/nonexistent"));
        let before = look(1_000_000_000, 1.0, 100, [10, 10], process(7, 3.0));
        let now = look(3_000_000_000, 2.0, 300, [50, 20], process(7, 4.0));
        let line = between(&root, &machine, 2.0, (&before, &now));
        let node = &line.nodes[0];
        assert_eq!((node.cpu_percent, node.local_pages_per_s), (Some(50.0), 100.0));
        assert_eq!(line.nodes[1].cpu_percent, None);
        assert_eq!((line.hint_faults_per_s, line.hint_faults_local_percent), (20.0, Some(25.0)));
        assert_eq!(line.processes[0].cpu_percent, 50.0);
        assert_eq!(line.processes[0].threads_by_node, [0, 0]);
        let reused = look(3_000_000_000, 2.0, 300, [50, 20], process(9, 0.5));
        let line = between(&root, &machine, 2.0, (&before, &reused));
        assert_eq!(line.processes[0].cpu_percent, 25.0);
        assert!(text(&line).contains("20 hint faults/s, 25 % of them local"), "{}", text(&line));
    }
}
