//! Converts JSON text into a checked model. Every error names the field by its path in the file.

use anyhow::{Context, anyhow, bail};
use rondpoint_core::limits::MAX_TRACKED_PAGES;
use rondpoint_core::model::{
    App, ModelError, PageId, ReadSource, Rung, Thread, ThreadRates, Touch, Traffic, TrafficSource,
};
use rondpoint_core::observation::{
    AddressRange, Exemption, Mapping, MappingKind, Replica, UNKNOWN_NODE,
};
use rondpoint_core::{Bytes, CpuSet, Matrix, Model, Nanos, Pid, Tid, Topology};
use rondpoint_input::Budget;

use super::wire;

/// Words of the record of one page, whatever is known of it.
const ITEMS_OF_A_PAGE: u64 = 8;

/// A model, and from which entry of the file its pages came.
struct Builder<'a> {
    topology: &'a Topology,
    budget: &'a mut Budget,
    model: Model,
    /// The first page of each entry, and the entry's path.
    page_entries: Vec<(usize, String)>,
}

/// Reads a model for a machine. The items that its numbers expand to are charged to the budget.
pub(super) fn parse(text: &str, topology: &Topology, budget: &mut Budget) -> anyhow::Result<Model> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read: wire::Model =
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            match error.path().to_string() {
                path if path == "." || path == "?" => anyhow!("{}", error.into_inner()),
                path => anyhow!("{path}: {}", error.into_inner()),
            }
        })?;
    json.end().context("after the model")?;
    if read.version != wire::VERSION {
        bail!("version: {}, this program reads {}", read.version, wire::VERSION);
    }
    let model = Model::empty(topology.node_count());
    let mut builder = Builder { topology, budget, model, page_entries: Vec::new() };
    builder.add_machine(&read)?;
    for (index, app) in read.apps.iter().enumerate() {
        let path = format!("apps[{index}]");
        builder.add_app(app, &path)?;
        builder.add_pages(app, &path)?;
    }
    builder.model.check(topology).map_err(|error| builder.in_file_terms(error))?;
    builder.sum_traffic();
    Ok(builder.model)
}

impl Builder<'_> {
    fn add_machine(&mut self, read: &wire::Model) -> anyhow::Result<()> {
        let model = &mut self.model;
        model.at = nanos("at_s", read.at_s)?;
        model.elapsed = nanos("elapsed_s", read.elapsed_s)?;
        model.sensing.rung = match read.rung {
            wire::Rung::Samples => Rung::Samples,
            wire::Rung::Counters => Rung::Counters,
            wire::Rung::HintFaults => Rung::HintFaults,
            wire::Rung::Statistics => Rung::Statistics,
        };
        model.sensing.confidence = read.confidence;
        model.traffic = traffic("traffic", read.traffic.as_deref())?;
        model.latency_cycles = read.latency_cycles;
        model.link_use.clone_from(&read.link_use);
        if let Some(free) = &read.free_percent {
            if free.len() != self.topology.node_count() {
                bail!(
                    "free_percent: {} entries, the machine has {} nodes",
                    free.len(),
                    self.topology.node_count()
                );
            }
            let bytes = |(node, percent): (usize, &f64)| match (0.0..=100.0).contains(percent) {
                true => Ok(Bytes((self.topology.memory(node).0 as f64 * percent / 100.0) as u64)),
                false => Err(anyhow!("free_percent[{node}]: {percent}, expected 0 to 100")),
            };
            model.free_memory =
                Some(free.iter().enumerate().map(bytes).collect::<anyhow::Result<_>>()?);
        }
        Ok(())
    }

    fn add_app(&mut self, read: &wire::App, path: &str) -> anyhow::Result<()> {
        let first = self.model.threads.len();
        let index = self.model.apps.len();
        for (place, thread) in read.threads.iter().enumerate() {
            let path = format!("{path}.threads[{place}]");
            let previous = self.model.threads[first..].last();
            if previous.is_some_and(|previous| previous.tid >= Tid(thread.tid)) {
                bail!("{path}.tid: {}, expected ascending tids", thread.tid);
            }
            let thread = make_thread(thread, index, self.topology, self.budget, &path)?;
            self.model.threads.push(thread);
        }
        let mut app = App::new(Pid(read.pid), first..self.model.threads.len());
        let run_time = nanos(&format!("{path}.run_time_s"), read.run_time_s)?;
        if run_time > self.model.at {
            bail!("{path}.run_time_s: {}, expected at most at_s", read.run_time_s);
        }
        app.started = Nanos(self.model.at.0 - run_time.0);
        app.traffic = traffic(&format!("{path}.traffic"), read.traffic.as_deref())?;
        app.traffic_source = match read.traffic_source {
            wire::TrafficSource::Counters => TrafficSource::Counters,
            wire::TrafficSource::Samples => TrafficSource::Samples,
            wire::TrafficSource::Machine => TrafficSource::Machine,
            wire::TrafficSource::HintFaults => TrafficSource::HintFaults,
        };
        app.cache_traffic =
            traffic(&format!("{path}.cache_traffic"), read.cache_traffic.as_deref())?;
        app.read_percent = read.read_percent;
        app.read_source = match read.read_source {
            wire::ReadSource::Counters => ReadSource::Counters,
            wire::ReadSource::Samples => ReadSource::Samples,
        };
        app.latency_cycles = read.latency_cycles;
        app.faults_per_s = read.faults_per_s;
        let busy: f64 = read.threads.iter().map(|thread| thread.cpu_share).sum();
        app.cpu_percent = read.cpu_percent.unwrap_or(100.0 * busy);
        app.memory = memory(&format!("{path}.memory_mib"), read.memory_mib.as_deref())?;
        let nodes = self.topology.node_count();
        if let Some(node) = read.allowed_nodes.iter().flatten().find(|node| **node >= nodes) {
            bail!("{path}.allowed_nodes: node {node}, the machine has {nodes} nodes");
        }
        app.allowed_nodes =
            read.allowed_nodes.as_ref().map(|nodes| nodes.iter().copied().collect());
        app.exempt = read.exempt.map(exemption);
        app.progress_per_s = read.progress_per_s;
        app.mappings = mappings(&format!("{path}.mappings"), read.mappings.as_deref())?;
        app.policy_read = ranges(&format!("{path}.policy_read"), read.policy_read.as_deref())?;
        app.replicas = Some(replicas(&format!("{path}.replicas"), &read.replicas)?);
        self.model.apps.push(app);
        Ok(())
    }

    fn add_pages(&mut self, read: &wire::App, path: &str) -> anyhow::Result<()> {
        let app = self.model.apps.len() - 1;
        for (place, entry) in read.pages.iter().enumerate() {
            let path = format!("{path}.pages[{place}]");
            self.add_page_entry(app, entry, &path)?;
        }
        Ok(())
    }

    fn add_page_entry(
        &mut self,
        app: usize,
        entry: &wire::Pages,
        path: &str,
    ) -> anyhow::Result<()> {
        let nodes = self.topology.node_count();
        if let Some(node) = entry.accesses.keys().chain(&entry.home).find(|node| **node >= nodes) {
            bail!("{path}: node {node}, the machine has {nodes} nodes");
        }
        let samples: u64 = entry.accesses.values().map(|count| u64::from(*count)).sum();
        if samples == 0 || samples > u64::from(u16::MAX) || u64::from(entry.stores) > samples {
            bail!(
                "{path}.accesses: {samples} accesses with {} stores, expected 1 to 65535, stores among them",
                entry.stores
            );
        }
        let left = (MAX_TRACKED_PAGES - self.model.pages.len()) as u64;
        if entry.count == 0 || entry.count > left {
            bail!("{path}.count: {}, expected 1 to {left}", entry.count);
        }
        let touches = entry.touched_by.len() as u64;
        self.budget
            .take_product(&[entry.count, ITEMS_OF_A_PAGE + samples + touches])
            .with_context(|| {
                format!("{path}: {} pages of {samples} accesses, {touches} threads", entry.count)
            })?;
        let threads = self.model.apps[app].threads.clone();
        let touched = entry.touched_by.iter().enumerate().map(|(place, tid)| {
            let own = &self.model.threads[threads.clone()];
            let found = own.binary_search_by_key(&Tid(*tid), |thread| thread.tid);
            found
                .map(|index| threads.start + index)
                .map_err(|_| anyhow!("{path}.touched_by[{place}]: the process has no thread {tid}"))
        });
        let touched = touched.collect::<anyhow::Result<Vec<usize>>>()?;
        let shift = if entry.huge { 21 } else { 12 };
        let first = address(&format!("{path}.address"), &entry.address)?;
        let known = self.model.pages.len();
        for number in 0..entry.count {
            let page = first
                .checked_add(number << shift)
                .ok_or_else(|| anyhow!("{path}.count: beyond the last address"))?;
            self.add_page(app, page, shift, entry, &touched);
        }
        if self.model.pages.len() > known {
            self.page_entries.push((known, path.to_string()));
        }
        Ok(())
    }

    /// Records the accesses of one page, its stores first.
    fn add_page(
        &mut self,
        app: usize,
        page: u64,
        shift: u8,
        entry: &wire::Pages,
        touched: &[usize],
    ) {
        let home = entry.home.map_or(UNKNOWN_NODE, |node| node as u16);
        let mut stores = entry.stores;
        let mut id = None;
        for (&node, &count) in &entry.accesses {
            for _ in 0..count {
                let store = stores > 0;
                stores -= u32::from(store);
                id = self.model.pages.record(app as u32, page, shift, home, node as u16, store);
            }
        }
        let touch = |page: PageId, thread: usize| {
            let node = self
                .topology
                .node_of_cpu(self.model.threads[thread].cpu.min(self.topology.cpu_count() - 1));
            Touch {
                page,
                thread: thread as u32,
                remote: entry.home.is_some_and(|home| home != node),
            }
        };
        if let Some(page) = id {
            let touches: Vec<Touch> = touched.iter().map(|thread| touch(page, *thread)).collect();
            self.model.touches.extend(touches);
        }
    }

    /// Without the machine's traffic: what the applications draw together.
    fn sum_traffic(&mut self) {
        let own = self.model.apps.iter().map(|app| app.traffic.as_ref());
        let Some(own) = own.collect::<Option<Vec<&Traffic>>>() else { return };
        if self.model.traffic.is_none() && !own.is_empty() {
            let cell = |n, m| own.iter().map(|traffic| traffic.requests_per_us[(n, m)]).sum();
            self.model.traffic =
                Some(Traffic::new(Matrix::from_fn(self.topology.node_count(), cell)));
        }
    }

    /// The core numbers threads and pages through the whole model; the file has them inside their
    /// process.
    fn in_file_terms(&self, error: ModelError) -> anyhow::Error {
        let place = |list: &str| -> Option<(usize, &str)> {
            let (index, rest) =
                error.path.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
            Some((index.parse().ok()?, rest))
        };
        let path = match (place("threads"), place("pages")) {
            (Some((thread, rest)), _) => {
                let app = self.model.threads[thread].app;
                let first = self.model.apps[app].threads.start;
                format!("apps[{app}].threads[{}]{rest}", thread - first)
            }
            (_, Some((page, rest))) => {
                let entry = self.page_entries.partition_point(|(first, _)| *first <= page) - 1;
                format!("{}{rest}", self.page_entries[entry].1)
            }
            _ => match error.path.as_str() {
                "elapsed" => "elapsed_s".to_string(),
                path if path.ends_with(".memory") => format!("{path}_mib"),
                path => path.trim_start_matches("sensing.").to_string(),
            },
        };
        anyhow!("{path}: {}", error.expected)
    }
}

fn make_thread(
    read: &wire::Thread,
    app: usize,
    topology: &Topology,
    budget: &mut Budget,
    path: &str,
) -> anyhow::Result<Thread> {
    let allowed = match &read.allowed {
        None => topology.all_cpus(),
        Some(list) => cpus(&format!("{path}.allowed"), list, topology.cpu_count(), budget)?,
    };
    let mut thread = Thread::new(Tid(read.tid), app, read.cpu, allowed);
    (thread.cpu_before, thread.cpu_share) = (read.cpu_before, read.cpu_share);
    (thread.queued_share, thread.core_shared) = (read.queued_share, read.core_shared);
    thread.is_narrowed = read.is_narrowed;
    thread.exempt = read.exempt.map(exemption);
    thread.accesses_by_node.clone_from(&read.accesses_by_node);
    thread.ran_on.clone_from(&read.ran_on);
    thread.rates = ThreadRates {
        instructions_per_s: read.instructions_per_s,
        coherence_remote_per_s: read.coherence_remote_per_s,
        coherence_local_per_s: read.coherence_local_per_s,
        memory_per_s: read.memory_per_s,
        remote_dram_per_s: read.remote_dram_per_s,
        mpki: read.mpki,
        ipc: read.ipc,
        stall_share: read.stall_share,
        stalls_per_coherence: read.stalls_per_coherence,
        read_percent: read.read_percent,
        local_dram_share: read.local_dram_share,
    };
    Ok(thread)
}

/// `0-3,8` within the machine.
fn cpus(path: &str, list: &str, count: usize, budget: &mut Budget) -> anyhow::Result<CpuSet> {
    let mut set = CpuSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < count => {
                budget
                    .take_items((last - first) as u64 / 64 + 1)
                    .with_context(|| path.to_string())?;
                set.insert_range(first, last);
            }
            (Ok(first), Ok(last)) if first <= last => {
                bail!("{path}: CPU {last}, the machine has {count} CPUs")
            }
            _ => bail!("{path}: `{part}`, expected CPUs as 0-3,8"),
        }
    }
    Ok(set)
}

fn nanos(path: &str, seconds: f64) -> anyhow::Result<Nanos> {
    match seconds.is_finite() && (0.0..1e9).contains(&seconds) {
        true => Ok(Nanos((seconds * 1e9) as u64)),
        false => bail!("{path}: {seconds}, expected seconds, zero or more"),
    }
}

fn traffic(path: &str, rows: Option<&[Vec<f64>]>) -> anyhow::Result<Option<Traffic>> {
    let Some(rows) = rows else { return Ok(None) };
    if let Some((place, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != rows.len()) {
        bail!("{path}[{place}]: {} entries, expected {} as there are rows", row.len(), rows.len());
    }
    Ok(Matrix::from_rows(rows).map(Traffic::new))
}

fn memory(path: &str, mib: Option<&[f64]>) -> anyhow::Result<Option<Vec<Bytes>>> {
    let bytes = |(node, mib): (usize, &f64)| match mib.is_finite() && *mib >= 0.0 {
        true => Ok(Bytes((mib * f64::from(1 << 20)) as u64)),
        false => Err(anyhow!("{path}[{node}]: {mib}, expected zero or more")),
    };
    mib.map(|mib| mib.iter().enumerate().map(bytes).collect()).transpose()
}

fn mappings(path: &str, list: Option<&[wire::Mapping]>) -> anyhow::Result<Option<Vec<Mapping>>> {
    let Some(list) = list else { return Ok(None) };
    let mut mappings: Vec<Mapping> = Vec::new();
    for (place, read) in list.iter().enumerate() {
        let (words, before) = ((&read.start, &read.end), mappings.last().map(|one| one.end));
        let (start, end) = range(&format!("{path}[{place}]"), words, before)?;
        let kind = match read.kind {
            wire::MappingKind::PrivateAnonymous => MappingKind::PrivateAnonymous,
            wire::MappingKind::PrivateHuge => MappingKind::PrivateHuge,
            wire::MappingKind::PrivateOther => MappingKind::PrivateOther,
            wire::MappingKind::Shared => MappingKind::Shared,
            wire::MappingKind::Special => MappingKind::Special,
        };
        mappings.push(Mapping { start, end, kind });
    }
    Ok(Some(mappings))
}

fn ranges(path: &str, list: Option<&[wire::Range]>) -> anyhow::Result<Option<Vec<AddressRange>>> {
    let Some(list) = list else { return Ok(None) };
    let mut ranges: Vec<AddressRange> = Vec::new();
    for (place, read) in list.iter().enumerate() {
        let (words, before) = ((&read.start, &read.end), ranges.last().map(|one| one.end));
        let (start, end) = range(&format!("{path}[{place}]"), words, before)?;
        ranges.push(AddressRange { start, end });
    }
    Ok(Some(ranges))
}

/// Start and end of a range behind the one that ends at `before`.
fn range(
    path: &str,
    (start, end): (&wire::Address, &wire::Address),
    before: Option<u64>,
) -> anyhow::Result<(u64, u64)> {
    let start = address(&format!("{path}.start"), start)?;
    let end = address(&format!("{path}.end"), end)?;
    if end <= start || before.is_some_and(|before| before > start) {
        bail!("{path}: {start:#x} to {end:#x}, expected ascending ranges that do not overlap");
    }
    Ok((start, end))
}

fn replicas(path: &str, list: &[wire::Replica]) -> anyhow::Result<Vec<Replica>> {
    let mut replicas: Vec<Replica> = Vec::new();
    for (place, read) in list.iter().enumerate() {
        let address = address(&format!("{path}[{place}].address"), &read.address)?;
        if replicas.last().is_some_and(|before| before.address >= address) {
            bail!("{path}[{place}].address: {address:#x}, expected ascending addresses");
        }
        replicas.push(Replica { address, collapses: read.collapses });
    }
    Ok(replicas)
}

fn address(path: &str, address: &wire::Address) -> anyhow::Result<u64> {
    match address {
        wire::Address::Number(number) => Ok(*number),
        wire::Address::Text(text) => {
            let digits =
                text.strip_prefix("0x").ok_or_else(|| anyhow!("{path}: `{text}`, expected 0x…"))?;
            u64::from_str_radix(digits, 16)
                .map_err(|_| anyhow!("{path}: `{text}`, expected a hexadecimal address"))
        }
    }
}

fn exemption(read: wire::Exemption) -> Exemption {
    match read {
        wire::Exemption::KernelThread => Exemption::KernelThread,
        wire::Exemption::RealTime => Exemption::RealTime,
        wire::Exemption::OwnAffinity => Exemption::OwnAffinity,
        wire::Exemption::OwnMemoryPolicy => Exemption::OwnMemoryPolicy,
        wire::Exemption::OtherManager => Exemption::OtherManager,
        wire::Exemption::OptedOut => Exemption::OptedOut,
        wire::Exemption::GivenUp => Exemption::GivenUp,
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_machine::Machine;

    use super::*;

    #[test]
    fn a_mutated_model_is_read_or_refused() {
        let machine = Machine::parse(include_str!("../../../../machines/carrefour-a.toml"), "a")
            .expect("a machine");
        let topology = machine.topology();
        let seeds = [
            include_str!("../../../../fixtures/models/read-shared.json"),
            include_str!("../../../../fixtures/models/two-programs.json"),
            include_str!("../../../../fixtures/models/well-placed.json"),
        ];
        crate::seeded::check(&seeds, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            // A small budget, so that no input takes long.
            let mut budget = Budget::new(1 << 16, 100_000);
            parse(text, &topology, &mut budget).is_ok()
        });
    }
}
