//! Converts a model into the JSON that [`super::build`] reads, for records and bug reports. Unknown
//! values are left out.

use std::collections::BTreeMap;

use rondpoint_core::model::{App, Page, ReadSource, Rung, Thread, Traffic, TrafficSource};
use rondpoint_core::observation::{Exemption, MappingKind};
use rondpoint_core::{Model, Topology};
use serde_json::{Map, Value, json};

use super::wire::VERSION;

/// A model as a file of version 1. Sampled touches are not written.
pub(super) fn to_json(model: &Model, topology: &Topology) -> Value {
    let mut fields = Fields::default();
    fields.put("version", VERSION);
    fields.put("at_s", model.at.seconds());
    fields.put("elapsed_s", model.elapsed.seconds());
    fields.put("rung", rung(model.sensing.rung));
    fields.put("confidence", model.sensing.confidence);
    fields.put_known("traffic", model.traffic.as_ref().map(rows));
    fields.put_known("latency_cycles", model.latency_cycles);
    fields.put_known("link_use", model.link_use.clone());
    let free = model.free_memory.as_ref().map(|free| {
        let percent = |(node, bytes): (usize, &rondpoint_core::Bytes)| {
            100.0 * bytes.0 as f64 / (topology.memory(node).0 as f64).max(1.0)
        };
        free.iter().enumerate().map(percent).collect::<Vec<f64>>()
    });
    fields.put_known("free_percent", free);
    let mut pages = vec![Vec::new(); model.apps.len()];
    model.pages.iter().for_each(|page| pages[page.app].push(page));
    let apps = model.apps.iter().zip(pages).map(|(app, pages)| app_json(model, app, &pages));
    fields.put("apps", apps.collect::<Vec<Value>>());
    fields.done()
}

/// Fields of an object in the order of their names.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_string(), value.into());
    }

    fn put_known(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}

fn app_json(model: &Model, app: &App, pages: &[Page<'_>]) -> Value {
    let mut fields = Fields::default();
    fields.put("pid", app.pid.0);
    fields.put("run_time_s", app.run_time(model).seconds());
    fields.put_known("traffic", app.traffic.as_ref().map(rows));
    fields.put("traffic_source", traffic_source(app.traffic_source));
    fields.put_known("cache_traffic", app.cache_traffic.as_ref().map(rows));
    fields.put_known("read_percent", app.read_percent);
    if app.read_source == ReadSource::Samples {
        fields.put("read_source", "samples");
    }
    fields.put_known("latency_cycles", app.latency_cycles);
    fields.put_known("faults_per_s", app.faults_per_s);
    fields.put("cpu_percent", app.cpu_percent);
    let mib = |bytes: &rondpoint_core::Bytes| bytes.0 as f64 / f64::from(1 << 20);
    fields.put_known(
        "memory_mib",
        app.memory.as_ref().map(|memory| memory.iter().map(mib).collect::<Vec<f64>>()),
    );
    fields.put_known(
        "allowed_nodes",
        app.allowed_nodes.as_ref().map(|nodes| nodes.iter().collect::<Vec<usize>>()),
    );
    fields.put_known("exempt", app.exempt.map(exemption));
    fields.put_known("progress_per_s", app.progress_per_s);
    if let Some(mappings) = &app.mappings {
        let one = |mapping: &rondpoint_core::observation::Mapping| json!({ "start": hex(mapping.start), "end": hex(mapping.end), "kind": mapping_kind(mapping.kind) });
        fields.put("mappings", mappings.iter().map(one).collect::<Vec<Value>>());
    }
    if let Some(ranges) = &app.policy_read {
        let one = |range: &rondpoint_core::observation::AddressRange| json!({ "start": hex(range.start), "end": hex(range.end) });
        fields.put("policy_read", ranges.iter().map(one).collect::<Vec<Value>>());
    }
    if let Some(replicas) = app.replicas.as_ref().filter(|replicas| !replicas.is_empty()) {
        let one = |replica: &rondpoint_core::observation::Replica| json!({ "address": hex(replica.address), "collapses": replica.collapses });
        fields.put("replicas", replicas.iter().map(one).collect::<Vec<Value>>());
    }
    fields.put("threads", model.threads_of(app).iter().map(thread_json).collect::<Vec<Value>>());
    fields.put("pages", pages_json(pages));
    fields.done()
}

fn thread_json(thread: &Thread) -> Value {
    let mut fields = Fields::default();
    fields.put("tid", thread.tid.0);
    fields.put("cpu", thread.cpu);
    fields.put_known("cpu_before", thread.cpu_before);
    fields.put("allowed", thread.allowed.to_string());
    fields.put("cpu_share", thread.cpu_share);
    fields.put_known("queued_share", thread.queued_share);
    fields.put("core_shared", thread.core_shared);
    fields.put("is_narrowed", thread.is_narrowed);
    fields.put_known("exempt", thread.exempt.map(exemption));
    let rates = &thread.rates;
    for (name, rate) in [
        ("instructions_per_s", rates.instructions_per_s),
        ("coherence_remote_per_s", rates.coherence_remote_per_s),
        ("coherence_local_per_s", rates.coherence_local_per_s),
        ("memory_per_s", rates.memory_per_s),
        ("remote_dram_per_s", rates.remote_dram_per_s),
        ("mpki", rates.mpki),
        ("ipc", rates.ipc),
        ("stall_share", rates.stall_share),
        ("stalls_per_coherence", rates.stalls_per_coherence),
        ("read_percent", rates.read_percent),
        ("local_dram_share", rates.local_dram_share),
    ] {
        fields.put_known(name, rate);
    }
    fields.put_known("accesses_by_node", thread.accesses_by_node.clone());
    fields.put_known("ran_on", thread.ran_on.clone());
    fields.done()
}

/// Pages that follow each other and look alike become one entry.
fn pages_json(pages: &[Page<'_>]) -> Vec<Value> {
    let next_alike = |before: &Page<'_>, page: &Page<'_>| {
        page.address == before.address + before.bytes().0
            && (page.shift, page.home, page.stores) == (before.shift, before.home, before.stores)
            && page.accesses().eq(before.accesses())
    };
    let entry = |alike: &[Page<'_>]| {
        let first = &alike[0];
        let accesses: BTreeMap<String, u32> =
            first.accesses().map(|(node, count)| (node.to_string(), count)).collect();
        let mut fields = Fields::default();
        fields.put("address", hex(first.address));
        fields.put("count", alike.len());
        fields.put("huge", first.shift > 12);
        fields.put_known("home", first.home);
        fields.put("accesses", json!(accesses));
        fields.put("stores", first.stores);
        fields.done()
    };
    pages.chunk_by(next_alike).map(entry).collect()
}

fn rows(traffic: &Traffic) -> Value {
    json!(traffic.requests_per_us.rows().collect::<Vec<&[f64]>>())
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

fn rung(rung: Rung) -> &'static str {
    match rung {
        Rung::Samples => "samples",
        Rung::Counters => "counters",
        Rung::HintFaults => "hint-faults",
        Rung::Statistics => "statistics",
    }
}

fn traffic_source(source: TrafficSource) -> &'static str {
    match source {
        TrafficSource::Counters => "counters",
        TrafficSource::Samples => "samples",
        TrafficSource::Machine => "machine",
        TrafficSource::HintFaults => "hint-faults",
    }
}

fn exemption(exemption: Exemption) -> &'static str {
    match exemption {
        Exemption::KernelThread => "kernel-thread",
        Exemption::RealTime => "real-time",
        Exemption::OwnAffinity => "own-affinity",
        Exemption::OwnMemoryPolicy => "own-memory-policy",
        Exemption::OtherManager => "other-manager",
        Exemption::OptedOut => "opted-out",
        Exemption::GivenUp => "given-up",
    }
}

fn mapping_kind(kind: MappingKind) -> &'static str {
    match kind {
        MappingKind::PrivateAnonymous => "private-anonymous",
        MappingKind::PrivateHuge => "private-huge",
        MappingKind::PrivateOther => "private-other",
        MappingKind::Shared => "shared",
        MappingKind::Special => "special",
    }
}
