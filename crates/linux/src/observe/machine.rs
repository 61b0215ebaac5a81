//! Readings about the whole machine that need no privilege. They are CPU time and memory of each
//! node, the nodes of new allocations, and CPU time of processes.
//!
//! One reading takes a few files, and one file for each process. The caller computes rates.

use std::collections::BTreeMap;

use rondpoint_core::{Pid, Topology};

use crate::LinuxError;
use crate::parse::stat::TaskStat;
use crate::parse::{cpu_times, meminfo, stat, vmstat};
use crate::root::{self, Root};
use crate::syscall::memory::page_bytes;
use crate::syscall::process::ticks_per_second;
use crate::syscall::time::since_boot_ns;

/// The machine at one instant.
#[derive(Debug, Clone, Default)]
pub struct MachineLook {
    /// Time since boot, ns.
    pub at_ns: u64,
    /// Nodes, by index of the topology.
    pub nodes: Vec<NodeLook>,
    /// Processes by number, without kernel threads.
    pub processes: BTreeMap<Pid, ProcessLook>,
    /// The kernel's counters by name (`/proc/vmstat`).
    pub vmstat: BTreeMap<String, u64>,
}

/// One node at one instant.
#[derive(Debug, Clone, Default)]
pub struct NodeLook {
    /// Busy time of its CPUs, in seconds since boot.
    pub busy_s: f64,
    /// Busy and idle time together, in seconds since boot.
    pub all_s: f64,
    /// Memory that the kernel manages, in bytes.
    pub memory_bytes: u64,
    /// Free memory, in bytes.
    pub free_bytes: u64,
    /// Pages by result of their allocation, since boot (`numastat`).
    pub allocated: BTreeMap<String, u64>,
}

/// One process at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessLook {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Start time in clock ticks since boot. Together with the number it identifies the process.
    pub started_ticks: u64,
    /// CPU time of all its threads so far, in seconds.
    pub cpu_s: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Number of threads.
    pub threads: u32,
}

/// Reads the machine once.
///
/// # Errors
/// `/proc/stat` or a node's file is malformed or cannot be read.
pub fn look(root: &Root, topology: &Topology) -> Result<MachineLook, LinuxError> {
    let mut nodes = vec![NodeLook::default(); topology.node_count()];
    add_cpu_times(root, topology, &mut nodes)?;
    for (node, look) in nodes.iter_mut().enumerate() {
        let folder = format!("devices/system/node/node{}", topology.kernel_node(node));
        let path = root.in_sys(format!("{folder}/meminfo"));
        if let Some(bytes) = root::read_optional(&path)? {
            let memory = meminfo::parse(&bytes);
            let memory = memory.map_err(|source| LinuxError::Format { path, source })?;
            (look.memory_bytes, look.free_bytes) = (memory.total_bytes, memory.free_bytes);
        }
        look.allocated = counters(root.in_sys(format!("{folder}/numastat")))?;
    }
    let vmstat = counters(root.in_proc("vmstat"))?;
    Ok(MachineLook { at_ns: since_boot_ns(), nodes, processes: processes(root)?, vmstat })
}

/// `(idle time, all time)` of each CPU of the topology since boot, in seconds.
///
/// # Errors
/// `/proc/stat` is malformed or cannot be read.
pub fn idle(root: &Root, topology: &Topology) -> Result<Vec<(f64, f64)>, LinuxError> {
    let mut found = vec![(0.0, 0.0); topology.cpu_count()];
    let path = root.in_proc("stat");
    let bytes = root::read_required(&path)?;
    let times = cpu_times::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second() as f64;
    for (cpu, time) in times {
        if let Some(cpu) = topology.cpu_of_kernel_id(cpu) {
            found[cpu] = (seconds(time.idle), seconds(time.busy + time.idle));
        }
    }
    Ok(found)
}

/// Number of threads of a process by the node of their last CPU; zeros if it has ended.
#[must_use]
pub fn threads_by_node(root: &Root, topology: &Topology, pid: Pid) -> Vec<u32> {
    let mut counts = vec![0; topology.node_count()];
    for tid in root::list(&root.in_proc(format!("{pid}/task"))).unwrap_or_default() {
        let stat = read_stat(root, &format!("{pid}/task/{tid}/stat"));
        let cpu = stat.and_then(|stat| topology.cpu_of_kernel_id(stat.cpu));
        if let Some(cpu) = cpu {
            counts[topology.node_of_cpu(cpu)] += 1;
        }
    }
    counts
}

fn add_cpu_times(
    root: &Root,
    topology: &Topology,
    nodes: &mut [NodeLook],
) -> Result<(), LinuxError> {
    let path = root.in_proc("stat");
    let bytes = root::read_required(&path)?;
    let times = cpu_times::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second() as f64;
    for (cpu, time) in times {
        // A CPU may have come online after the topology was read.
        let Some(cpu) = topology.cpu_of_kernel_id(cpu) else { continue };
        let node = &mut nodes[topology.node_of_cpu(cpu)];
        node.busy_s += seconds(time.busy);
        node.all_s += seconds(time.busy + time.idle);
    }
    Ok(())
}

fn counters(path: std::path::PathBuf) -> Result<BTreeMap<String, u64>, LinuxError> {
    let bytes = root::read_optional(&path)?.unwrap_or_default();
    vmstat::parse(&bytes, |_| true).map_err(|source| LinuxError::Format { path, source })
}

fn processes(root: &Root) -> Result<BTreeMap<Pid, ProcessLook>, LinuxError> {
    let mut found = BTreeMap::new();
    for name in root::list(&root.proc)? {
        let Ok(pid) = name.parse::<u32>() else { continue };
        // A process that has ended, or that this user may not read, is left out.
        let Some(stat) = read_stat(root, &format!("{name}/stat")) else { continue };
        if stat.is_kernel_thread || !stat.is_alive() {
            continue;
        }
        let look = ProcessLook {
            name: stat.name,
            started_ticks: stat.start_ticks,
            cpu_s: stat.cpu_time_ticks as f64 / ticks_per_second() as f64,
            resident_bytes: stat.resident_pages.saturating_mul(page_bytes() as u64),
            threads: stat.threads,
        };
        found.insert(Pid(pid), look);
    }
    Ok(found)
}

fn read_stat(root: &Root, path: &str) -> Option<TaskStat> {
    stat::parse(&root::read_optional(&root.in_proc(path)).ok()??).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology;

    #[test]
    fn this_process_and_this_machine_are_seen() {
        let root = Root::live();
        let machine = topology::discover(&root).unwrap().topology;
        let first = look(&root, &machine).unwrap();
        let second = look(&root, &machine).unwrap();
        let own = Pid(std::process::id());
        assert!(second.processes[&own].resident_bytes > 0);
        assert!(second.processes[&own].cpu_s >= first.processes[&own].cpu_s);
        assert!(second.at_ns > first.at_ns);
        let all: f64 = second.nodes.iter().map(|node| node.all_s).sum();
        let busy: f64 = second.nodes.iter().map(|node| node.busy_s).sum();
        assert!(busy > 0.0 && busy <= all, "{busy} of {all}");
        let threads: u32 = threads_by_node(&root, &machine, own).iter().sum();
        assert!(threads >= 1);
        assert_eq!(threads_by_node(&root, &machine, Pid(0x3fff_ffff)).iter().sum::<u32>(), 0);
    }
}
