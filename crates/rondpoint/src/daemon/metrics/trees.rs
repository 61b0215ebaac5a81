//! Families of the groups of process trees. Sums of a group are those of its trees; a ratio is that
//! of the group as a whole.

use std::collections::BTreeMap;

use rondpoint_core::Pid;
use rondpoint_core::cost::Cause;

use super::groups::{Groups, Moved, Name};
use super::text::{Family, Kind, Labels};
use super::{BYTES, RATIO, Unit, gauges};
use crate::control::protocol::{Process, State, Status};
use crate::story::words::name_of;

/// A group as a whole.
#[derive(Debug, Default)]
struct Sum {
    trees: usize,
    processes: u64,
    threads: u64,
    cpus: f64,
    resident: u64,
    /// By node, in the order of the state; empty where no process is measured.
    memory: Vec<u64>,
    /// DRAM traffic that stays on its node, and all of it, in bytes per second.
    traffic: Option<(f64, f64)>,
    /// CPU time that is lost, and the CPU time of the processes whose loss is known.
    lost: Option<(f64, f64)>,
    /// CPUs whose time is lost, by cause.
    lost_by_cause: BTreeMap<String, f64>,
    /// CPUs that the processes ask for whose loss is known by cause.
    asked_cpus: f64,
    moved: Moved,
}

impl Sum {
    fn add(&mut self, process: &Process) {
        let cpus = process.cpu_percent / 100.0;
        self.processes += 1;
        self.threads += u64::from(process.threads);
        self.cpus += cpus;
        self.resident += process.resident_bytes;
        if let Some(memory) = &process.memory_bytes {
            self.memory.resize(memory.len().max(self.memory.len()), 0);
            self.memory.iter_mut().zip(memory).for_each(|(sum, bytes)| *sum += bytes);
        }
        if let Some(rows) = &process.traffic_bytes_per_s {
            let (local, all) = self.traffic.get_or_insert_default();
            *local += rows.iter().enumerate().map(|(node, row)| row[node]).sum::<f64>();
            *all += rows.iter().flatten().sum::<f64>();
        }
        if let Some(share) = process.lost_share {
            let (lost, used) = self.lost.get_or_insert_default();
            *lost += share * cpus;
            *used += cpus;
        }
        // The shares are of what the threads ask for, of which they get what does not wait.
        let waiting = process.lost_by_cause.get(&name_of(Cause::WaitingForCpu));
        let waiting = waiting.copied().unwrap_or(0.0);
        let asked = if waiting < 1.0 { cpus / (1.0 - waiting) } else { 0.0 };
        if !process.lost_by_cause.is_empty() {
            self.asked_cpus += asked;
        }
        for (cause, share) in &process.lost_by_cause {
            *self.lost_by_cause.entry(cause.clone()).or_default() += share * asked;
        }
    }
}

/// A part of a whole; `None` where the whole is nothing.
fn ratio((part, whole): (f64, f64)) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0))
}

fn sums(status: &Status, groups: &Groups) -> BTreeMap<Name, Sum> {
    let with_sums = |(moved, trees)| Sum { moved, trees, ..Sum::default() };
    let all = groups.all().into_iter();
    let mut sums: BTreeMap<Name, Sum> = all.map(|(name, sum)| (name, with_sums(sum))).collect();
    for process in status.processes.iter().filter(|process| process.state != State::Left) {
        sums.entry(groups.name(Pid(process.root))).or_default().add(process);
    }
    sums
}

fn labels(name: &Name) -> Labels {
    vec![("unit", name.unit.clone()), ("command", name.command.clone())]
}

pub(super) fn families(status: &Status, groups: &Groups) -> Vec<Family> {
    type Get = fn(&Sum) -> Option<f64>;
    const GAUGES: [(&str, Unit, &str, Get); 7] = [
        ("trees", None, "Trees of a group.", |one| Some(one.trees as f64)),
        ("tree_processes", None, "Processes.", |one| Some(one.processes as f64)),
        ("tree_threads", None, "Threads.", |one| Some(one.threads as f64)),
        ("tree_cpus", None, "CPUs that are used.", |one| Some(one.cpus)),
        ("tree_resident", BYTES, "Resident memory.", |one| Some(one.resident as f64)),
        ("tree_local_accesses", RATIO, "Share of DRAM accesses that stay on their node.", |one| {
            one.traffic.and_then(ratio)
        }),
        ("tree_lost", RATIO, "Share of CPU time that placement loses.", |one| {
            one.lost.and_then(ratio)
        }),
    ];
    type GetMoved = fn(&Moved) -> u64;
    const COUNTERS: [(&str, Unit, &str, GetMoved); 2] = [
        ("tree_moved", BYTES, "Memory that was moved, of ended trees too.", |moved| moved.bytes),
        ("tree_moved_threads", None, "Masks given to threads, of ended trees too.", |moved| {
            moved.threads
        }),
    ];
    let sums = sums(status, groups);
    let all = || sums.iter().map(|(name, sum)| (labels(name), sum));
    let mut families: Vec<Family> = GAUGES
        .into_iter()
        .map(|(name, unit, help, get)| {
            gauges((name, unit, help), all().map(|(labels, sum)| (labels, get(sum))))
        })
        .collect();
    let memory = all().flat_map(|(labels, sum)| {
        sum.memory.iter().zip(&status.nodes).map(move |(bytes, node)| {
            let node = ("node", node.node.to_string());
            ([labels.clone(), vec![node]].concat(), Some(*bytes as f64))
        })
    });
    let causes = all().flat_map(|(labels, sum)| {
        sum.lost_by_cause.iter().map(move |(cause, lost)| {
            let cause = ("cause", cause.clone());
            ([labels.clone(), vec![cause]].concat(), ratio((*lost, sum.asked_cpus)))
        })
    });
    let help = "Share of the CPU time that threads ask for which a cause loses, by the cost model.";
    families.push(gauges(("tree_lost_cause", RATIO, help), causes));
    families.push(gauges(("tree_node_memory", BYTES, "Resident memory on a node."), memory));
    families.extend(COUNTERS.into_iter().map(|(name, unit, help, get)| Family {
        kind: Kind::Counter,
        name,
        unit,
        help,
        samples: all().map(|(labels, sum)| (labels, get(&sum.moved) as f64)).collect(),
    }));
    families
}
