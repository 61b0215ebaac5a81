//! Checks a model against itself and its topology, and names the wrong field.

use super::{Model, Traffic};
use crate::topology::Topology;
use crate::units::Bytes;
use alloc::format;
use alloc::string::{String, ToString};

/// A field with an impossible value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {expected}")]
pub struct ModelError {
    /// The field, as `threads[3].cpu`.
    pub path: String,
    /// What it was and what was expected.
    pub expected: String,
}

fn refuse<T>(path: impl ToString, expected: impl ToString) -> Result<T, ModelError> {
    Err(ModelError { path: path.to_string(), expected: expected.to_string() })
}

impl Model {
    /// Checks every field against the topology and the other fields.
    ///
    /// # Errors
    /// The path of the first field that is wrong, and what was expected.
    pub fn check(&self, topology: &Topology) -> Result<(), ModelError> {
        if self.elapsed.0 == 0 {
            return refuse("elapsed", "0, expected more than zero");
        }
        share("sensing.confidence", self.sensing.confidence)?;
        share("sensing.lost_share", self.sensing.lost_share)?;
        share("sensing.running_share", self.sensing.running_share)?;
        traffic("traffic", self.traffic.as_ref(), topology)?;
        amount("latency_cycles", self.latency_cycles)?;
        if let Some(uses) = &self.link_use {
            length("link_use", uses.len(), topology.links().len(), "links")?;
            uses.iter()
                .enumerate()
                .try_for_each(|(i, &link)| share(format!("link_use[{i}]"), link))?;
        }
        if let Some(free) = &self.free_memory {
            length("free_memory", free.len(), topology.node_count(), "nodes")?;
            for (node, &bytes) in free.iter().enumerate() {
                if bytes > topology.memory(node) {
                    return refuse(
                        format!("free_memory[{node}]"),
                        format!("{bytes}, the node has {}", topology.memory(node)),
                    );
                }
            }
        }
        self.check_apps(topology)?;
        self.check_threads(topology)?;
        self.check_pages(topology)
    }

    fn check_apps(&self, topology: &Topology) -> Result<(), ModelError> {
        let mut next_thread = 0;
        for (i, app) in self.apps.iter().enumerate() {
            let at = |field: &str| format!("apps[{i}].{field}");
            if i > 0 && self.apps[i - 1].pid >= app.pid {
                return refuse(
                    at("pid"),
                    format!("{} after {}, expected ascending", app.pid, self.apps[i - 1].pid),
                );
            }
            if app.threads.start != next_thread || app.threads.end < app.threads.start {
                return refuse(
                    at("threads"),
                    format!("starts at {}, expected {next_thread}", app.threads.start),
                );
            }
            next_thread = app.threads.end;
            if app.started > self.at {
                return refuse(at("started"), "later than the model");
            }
            traffic(&at("traffic"), app.traffic.as_ref(), topology)?;
            traffic(&at("cache_traffic"), app.cache_traffic.as_ref(), topology)?;
            percent(at("read_percent"), app.read_percent)?;
            amount(at("latency_cycles"), app.latency_cycles)?;
            amount(at("faults_per_s"), app.faults_per_s)?;
            amount(at("cpu_percent"), Some(app.cpu_percent))?;
            amount(at("progress_per_s"), app.progress_per_s)?;
            if let Some(memory) = &app.memory {
                length(at("memory"), memory.len(), topology.node_count(), "nodes")?;
                let too_much = |(node, bytes): &(usize, &Bytes)| **bytes > topology.memory(*node);
                if let Some((node, bytes)) = memory.iter().enumerate().find(too_much) {
                    let has = topology.memory(node);
                    return refuse(
                        at("memory"),
                        format!("{bytes} on node {node}, which has {has}"),
                    );
                }
            }
            if let Some(node) = app
                .allowed_nodes
                .iter()
                .flat_map(crate::index_set::IndexSet::iter)
                .find(|n| *n >= topology.node_count())
            {
                return refuse(at("allowed_nodes"), format!("no node {node}"));
            }
        }
        if next_thread != self.threads.len() {
            return refuse(
                "threads",
                format!("{} threads, the apps have {next_thread}", self.threads.len()),
            );
        }
        Ok(())
    }

    fn check_threads(&self, topology: &Topology) -> Result<(), ModelError> {
        for (i, thread) in self.threads.iter().enumerate() {
            let at = |field: &str| format!("threads[{i}].{field}");
            if self.apps.get(thread.app).is_none_or(|app| !app.threads.contains(&i)) {
                return refuse(
                    at("app"),
                    format!("{}, which does not have this thread", thread.app),
                );
            }
            for (name, cpu) in [("cpu", Some(thread.cpu)), ("cpu_before", thread.cpu_before)] {
                if let Some(cpu) = cpu.filter(|cpu| *cpu >= topology.cpu_count()) {
                    let count = topology.cpu_count();
                    return refuse(at(name), format!("{cpu}, the machine has {count} CPUs"));
                }
            }
            if thread.allowed.is_empty() || !thread.allowed.is_subset(&topology.all_cpus()) {
                return refuse(
                    at("allowed"),
                    format!("{{{}}}, expected CPUs of the machine", thread.allowed),
                );
            }
            share(at("cpu_share"), thread.cpu_share)?;
            share(at("queued_share"), thread.queued_share.unwrap_or(0.0))?;
            share(at("core_shared"), thread.core_shared)?;
            let rates = &thread.rates;
            for (name, rate) in [
                ("instructions_per_s", rates.instructions_per_s),
                ("coherence_remote_per_s", rates.coherence_remote_per_s),
                ("coherence_local_per_s", rates.coherence_local_per_s),
                ("memory_per_s", rates.memory_per_s),
                ("remote_dram_per_s", rates.remote_dram_per_s),
                ("mpki", rates.mpki),
                ("ipc", rates.ipc),
                ("stalls_per_coherence", rates.stalls_per_coherence),
            ] {
                amount(at(name), rate)?;
            }
            share(at("stall_share"), rates.stall_share.unwrap_or(0.0))?;
            share(at("local_dram_share"), rates.local_dram_share.unwrap_or(0.0))?;
            let by_node =
                [("accesses_by_node", &thread.accesses_by_node), ("ran_on", &thread.ran_on)];
            for (name, counts) in by_node.into_iter().filter_map(|(n, of)| Some((n, of.as_ref()?)))
            {
                length(at(name), counts.len(), topology.node_count(), "nodes")?;
            }
        }
        Ok(())
    }

    fn check_pages(&self, topology: &Topology) -> Result<(), ModelError> {
        for (i, page) in self.pages.iter().enumerate() {
            let at = |field: &str| format!("pages[{i}].{field}");
            if page.app >= self.apps.len() {
                return refuse(
                    at("app"),
                    format!("{}, expected below {}", page.app, self.apps.len()),
                );
            }
            if page.shift > 40 || page.address & (page.bytes().0 - 1) != 0 {
                return refuse(
                    at("address"),
                    format!("{:#x} is not the start of a page of {}", page.address, page.bytes()),
                );
            }
            if let Some(node) = page
                .home
                .into_iter()
                .chain(page.accesses().map(|(n, _)| n))
                .find(|n| *n >= topology.node_count())
            {
                return refuse(
                    at("node"),
                    format!("{node}, the machine has {} nodes", topology.node_count()),
                );
            }
        }
        for (i, touch) in self.touches.iter().enumerate() {
            if touch.page.0 as usize >= self.pages.len()
                || touch.thread as usize >= self.threads.len()
            {
                return refuse(format!("touches[{i}]"), "no such page or thread");
            }
        }
        Ok(())
    }
}

fn share(path: impl ToString, value: f64) -> Result<(), ModelError> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => refuse(path, format!("{value}, expected 0 to 1")),
    }
}

fn percent(path: impl ToString, value: Option<f64>) -> Result<(), ModelError> {
    match value {
        Some(value) if !(0.0..=100.0).contains(&value) => {
            refuse(path, format!("{value}, expected 0 to 100"))
        }
        _ => Ok(()),
    }
}

/// Largest rate. It is far above the counts of a present machine, and sums of such rates stay
/// finite.
const MOST: f64 = 1e18;

fn amount(path: impl ToString, value: Option<f64>) -> Result<(), ModelError> {
    match value {
        Some(value) if !(value.is_finite() && value >= 0.0) => {
            refuse(path, format!("{value}, expected zero or more"))
        }
        Some(value) if value > MOST => refuse(path, format!("{value}, expected at most {MOST:e}")),
        _ => Ok(()),
    }
}

fn length(
    path: impl ToString,
    found: usize,
    expected: usize,
    what: &str,
) -> Result<(), ModelError> {
    match found == expected {
        true => Ok(()),
        false => refuse(path, format!("{found} entries, the machine has {expected} {what}")),
    }
}

fn traffic(path: &str, traffic: Option<&Traffic>, topology: &Topology) -> Result<(), ModelError> {
    let Some(traffic) = traffic else { return Ok(()) };
    length(path, traffic.requests_per_us.size(), topology.node_count(), "nodes")?;
    let cells = traffic.requests_per_us.cells();
    cells.into_iter().try_for_each(|(a, h, rate)| amount(format!("{path}[{a}][{h}]"), Some(rate)))
}
