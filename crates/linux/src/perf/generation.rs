//! Which events measure what on this machine, from the table `events.toml` beside this file.
//!
//! A table says what *could* be counted; [`Generation::resolve`] keeps what this machine's PMUs
//! know and names the rest. It opens nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::data_source::Vendor;
use super::pmu::{Event, Pmus};
use crate::LinuxError;
use crate::parse::cpuinfo::CpuIdentity;

const TABLE: &str = include_str!("events.toml");

/// What is counted in a core, whatever it is called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of events.toml and say it")]
pub enum Metric {
    Instructions,
    Cycles,
    LocalDram,
    RemoteDram,
    RemoteHitm,
    RemoteForward,
    LocalHitm,
    LocalForward,
    LlcHits,
    LlcMisses,
    PrivateMisses,
    StallCycles,
    Refills,
    RefillsModified,
    DramLatencyCycles,
    DramRequests,
    Writebacks,
    Loads,
    Stores,
    DramReads,
    PrefetchDram,
    /// Requests to the DRAM of one node; its kernel number is put for `{node}`.
    #[serde(rename = "dram_node")]
    DramNode(#[serde(skip)] u32),
}

impl Metric {
    /// The metric of this name in the table; `dram_node` stands for all nodes.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        metric(name)
    }

    /// All names, as events.toml and the command line have them.
    #[must_use]
    pub fn names() -> Vec<String> {
        let all: std::collections::BTreeSet<String> =
            table().into_iter().flat_map(|entry| entry.core.into_keys()).collect();
        all.into_iter().collect()
    }

    /// Its name, with the node's number where it has one.
    #[must_use]
    pub fn name(self) -> String {
        let text = match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::LocalDram => "local_dram",
            Self::RemoteDram => "remote_dram",
            Self::RemoteHitm => "remote_hitm",
            Self::RemoteForward => "remote_forward",
            Self::LocalHitm => "local_hitm",
            Self::LocalForward => "local_forward",
            Self::LlcHits => "llc_hits",
            Self::LlcMisses => "llc_misses",
            Self::PrivateMisses => "private_misses",
            Self::StallCycles => "stall_cycles",
            Self::Refills => "refills",
            Self::RefillsModified => "refills_modified",
            Self::DramLatencyCycles => "dram_latency_cycles",
            Self::DramRequests => "dram_requests",
            Self::Writebacks => "writebacks",
            Self::Loads => "loads",
            Self::Stores => "stores",
            Self::DramReads => "dram_reads",
            Self::PrefetchDram => "prefetch_dram",
            Self::DramNode(node) => return format!("dram_node{node}"),
        };
        text.to_string()
    }

    /// Whether the two differ at most in the node.
    #[must_use]
    pub fn same_kind(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    schema: u32,
    generation: Vec<Entry>,
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    when: When,
    inherits: Option<String>,
    vendor: Option<String>,
    counters: Option<usize>,
    #[serde(default)]
    core: BTreeMap<String, String>,
    #[serde(default)]
    sample: Sample,
    #[serde(default)]
    uncore: BTreeMap<String, String>,
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct When {
    alias: Option<String>,
    #[serde(default)]
    cpu: Vec<String>,
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct Sample {
    loads: Option<String>,
    stores: Option<String>,
    period: Option<u64>,
    latency: Option<u32>,
}

/// The table of one generation, with what it inherits.
pub struct Generation {
    entry: Entry,
}

/// The two nodes of a directed link, by the kernel's numbers: data flows from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkEnds {
    /// The node that sends the data.
    pub from: u32,
    /// The node that receives it.
    pub to: u32,
}

/// What this machine can count and sample.
#[derive(Debug, Default)]
pub struct Available {
    /// Name of the generation.
    pub generation: String,
    /// Whose conventions its samples follow.
    pub vendor: Vendor,
    /// How many of `core` can be counted at once, beside instructions and cycles.
    pub counters: usize,
    /// Events counted in each core, ascending by metric.
    pub core: Vec<(Metric, Event)>,
    /// Events whose samples carry addresses.
    pub sample: Vec<Event>,
    /// The table's sampling period.
    pub period: u64,
    /// Requests of one node's CPUs to the DRAM of node `.0`, counted outside the cores.
    pub dram_to_node: Vec<(u32, Event)>,
    /// Bytes carried by a directed link, counted outside the cores.
    pub links: Vec<(LinkEnds, Event)>,
    /// What the table has and the machine has not, each with its reason.
    pub missing: Vec<(String, LinuxError)>,
}

impl Available {
    /// Whether an event is counted by the same unit as those of `core`.
    #[must_use]
    pub fn is_of_core(&self, event: &Event) -> bool {
        self.core.iter().any(|(_, core)| core.attr.kind == event.attr.kind)
    }

    /// Why a metric of the table is not among `core`.
    #[must_use]
    pub fn reason(&self, metric: Metric) -> Option<&LinuxError> {
        let name = |(name, _): &&(String, LinuxError)| {
            Metric::named(name).is_some_and(|named| named.same_kind(metric))
        };
        self.missing.iter().find(name).map(|(_, reason)| reason)
    }
}

fn table() -> Vec<Entry> {
    let table: Table = toml::from_str(TABLE).expect("events.toml is checked by a test");
    assert_eq!(table.schema, 1, "events.toml has the schema of this program");
    table.generation
}

impl Generation {
    /// The table for this machine: by alias, else by processor, else the generic one.
    #[must_use]
    pub fn choose(pmus: &Pmus, identity: &CpuIdentity) -> Self {
        let entries = table();
        let key = identity.key();
        let has_alias =
            |alias: &String| pmus.core().is_some_and(|core| core.aliases.contains_key(alias));
        let fits = |entry: &&Entry| {
            let cpu = &entry.when.cpu;
            match &entry.when.alias {
                Some(alias) => has_alias(alias),
                None => cpu.is_empty() || cpu.iter().any(|pattern| matches(pattern, &key)),
            }
        };
        let chosen = entries.iter().find(fits).expect("the last table fits every machine");
        Self { entry: inherited(chosen, &entries) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// What of it this machine's PMUs know. `nodes` are the kernel's numbers of the nodes with
    /// memory.
    #[must_use]
    pub fn resolve(&self, pmus: &Pmus, nodes: &[u32]) -> Available {
        let entry = &self.entry;
        // The lab's unit says in `caps/` what it was told to be like.
        let cap = |name: &str| pmus.core().and_then(|core| core.caps.get(name).cloned());
        let counters = cap("counters").and_then(|count| count.parse().ok());
        let mut available = Available {
            generation: entry.name.clone(),
            vendor: match cap("data_source").or(entry.vendor.clone()).as_deref() {
                Some("amd") => Vendor::Amd,
                Some("arm") => Vendor::Arm,
                _ => Vendor::Intel,
            },
            counters: counters.or(entry.counters).unwrap_or(4),
            period: entry.sample.period.unwrap_or(DEFAULT_PERIOD),
            ..Available::default()
        };
        let mut missing = Vec::new();
        let mut resolve =
            |name: &str, text: &str| match text.parse().and_then(|spec| pmus.resolve(&spec)) {
                Ok(event) => Some(event),
                Err(reason) => {
                    missing.push((name.to_string(), reason));
                    None
                }
            };
        for (name, text) in &entry.core {
            for (metric, text) in expanded(name, text, nodes) {
                available.core.extend(resolve(name, &text).map(|event| (metric, event)));
            }
        }
        let latency = entry.sample.latency.unwrap_or(0).to_string();
        for (name, text) in [("loads", &entry.sample.loads), ("stores", &entry.sample.stores)] {
            let text = text.as_ref().map(|text| text.replace("{latency}", &latency));
            available.sample.extend(text.and_then(|text| resolve(name, &text)));
        }
        if let Some(text) = entry.uncore.get("dram_to_node") {
            for &node in nodes {
                let text = text.replace("{node}", &node.to_string());
                available.dram_to_node.extend(resolve("dram_to_node", &text).map(|e| (node, e)));
            }
        }
        if let Some(text) = entry.uncore.get("link") {
            for (number, ends) in link_ends(text, pmus) {
                let text = text.replace("{link}", &number.to_string());
                available.links.extend(resolve("link", &text).map(|event| (ends, event)));
            }
        }
        available.core.sort_by_key(|(metric, _)| *metric);
        available.missing = missing;
        available
    }
}

/// Where a table names none: a prime, so that it does not fall into step with a loop.
const DEFAULT_PERIOD: u64 = 10_007;

/// The links that the unit of `text` describes, by number.
fn link_ends(text: &str, pmus: &Pmus) -> BTreeMap<u32, LinkEnds> {
    let unit = text.split('/').next().and_then(|name| pmus.get(name));
    let mut links = BTreeMap::new();
    for (name, ends) in unit.into_iter().flat_map(|unit| &unit.links) {
        let number = name.strip_prefix("link").and_then(|number| number.parse().ok());
        let ends = ends.split_once(' ').and_then(|(from, to)| {
            Some(LinkEnds { from: from.parse().ok()?, to: to.parse().ok()? })
        });
        links.extend(number.zip(ends));
    }
    links
}

fn expanded(name: &str, text: &str, nodes: &[u32]) -> Vec<(Metric, String)> {
    let metric = metric(name).expect("events.toml is checked by a test");
    match metric {
        Metric::DramNode(_) => nodes
            .iter()
            .map(|node| (Metric::DramNode(*node), text.replace("{node}", &node.to_string())))
            .collect(),
        other => vec![(other, text.to_string())],
    }
}

fn metric(name: &str) -> Option<Metric> {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};
    if name == "dram_node" {
        return Some(Metric::DramNode(0));
    }
    let name: StrDeserializer<'_, Error> = name.into_deserializer();
    Metric::deserialize(name).ok()
}

fn matches(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == pattern,
    }
}

fn inherited(entry: &Entry, all: &[Entry]) -> Entry {
    let Some(parent) = &entry.inherits else { return entry.clone() };
    let parent = all.iter().find(|other| other.name == *parent);
    let parent = parent.expect("events.toml is checked by a test");
    let mut whole = inherited(parent, all);
    whole.name.clone_from(&entry.name);
    whole.vendor = entry.vendor.clone().or(whole.vendor);
    whole.counters = entry.counters.or(whole.counters);
    whole.core.extend(entry.core.clone());
    whole.uncore.extend(entry.uncore.clone());
    whole.sample = Sample {
        loads: entry.sample.loads.clone().or(whole.sample.loads),
        stores: entry.sample.stores.clone().or(whole.sample.stores),
        period: entry.sample.period.or(whole.sample.period),
        latency: entry.sample.latency.or(whole.sample.latency),
    };
    whole
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::perf::spec::EventSpec;
    use crate::root::Root;

    #[test]
    fn every_name_and_event_string_of_the_table_is_understood() {
        let entries = table();
        for entry in &entries {
            let whole = inherited(entry, &entries);
            for (name, text) in &whole.core {
                let found = metric(name);
                assert!(found.is_some(), "{}: no metric `{name}`", entry.name);
                assert!(found.unwrap().name().starts_with(name.as_str()), "{name}");
                let text = text.replace("{node}", "0");
                assert!(text.parse::<EventSpec>().is_ok(), "{}: {text}", entry.name);
            }
            for text in [&whole.sample.loads, &whole.sample.stores].into_iter().flatten() {
                let text = text.replace("{latency}", "30");
                assert!(text.parse::<EventSpec>().is_ok(), "{}: {text}", entry.name);
            }
        }
        let last = entries.last().unwrap();
        assert!(last.when.alias.is_none() && last.when.cpu.is_empty(), "the last fits all");
    }

    fn chosen(vendor: &str, family: u32, model: u32) -> String {
        let identity = CpuIdentity {
            vendor: vendor.to_string(),
            family: Some(family),
            model: Some(model),
            ..CpuIdentity::default()
        };
        Generation::choose(&Pmus::default(), &identity).name().to_string()
    }

    #[test]
    fn processors_find_their_table() {
        assert_eq!(chosen("GenuineIntel", 6, 0x8f), "sapphire-rapids");
        assert_eq!(chosen("GenuineIntel", 6, 0x55), "skylake-sp");
        assert_eq!(chosen("AuthenticAMD", 16, 0x8), "amd-fam10h");
        assert_eq!(chosen("AuthenticAMD", 23, 0x01), "amd-zen2");
        assert_eq!(chosen("AuthenticAMD", 23, 0x31), "amd-zen2");
        assert_eq!(chosen("AuthenticAMD", 25, 0x01), "amd-zen3");
        assert_eq!(chosen("AuthenticAMD", 25, 0x11), "amd-zen4");
        assert_eq!(chosen("AuthenticAMD", 26, 0x02), "amd-zen4");
        assert_eq!(chosen("GenuineIntel", 6, 0x01), "generic");
    }

    #[test]
    fn the_lab_is_known_by_its_alias_and_what_it_lacks_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        let unit = root.in_sys("bus/event_source/devices/cpu");
        fs::create_dir_all(unit.join("events")).unwrap();
        fs::create_dir_all(unit.join("format")).unwrap();
        fs::write(unit.join("type"), "4\n").unwrap();
        fs::write(unit.join("format/event"), "config:0-7\n").unwrap();
        for (name, code) in [("dram_node0", 32), ("dram_node1", 33), ("remote_hitm", 15)] {
            fs::write(unit.join("events").join(name), format!("event={code}\n")).unwrap();
        }
        let (pmus, _) = Pmus::discover(&root).unwrap();
        let generation = Generation::choose(&pmus, &CpuIdentity::default());
        assert_eq!(generation.name(), "rondpoint-lab");
        let available = generation.resolve(&pmus, &[0, 1, 2]);
        let metrics: Vec<Metric> = available.core.iter().map(|(metric, _)| *metric).collect();
        let expected = [
            Metric::Instructions,
            Metric::Cycles,
            Metric::RemoteHitm,
            Metric::DramNode(0),
            Metric::DramNode(1),
        ];
        assert_eq!(metrics, expected);
        let missing: Vec<&str> = available.missing.iter().map(|(name, _)| name.as_str()).collect();
        assert!(missing.contains(&"dram_node") && missing.contains(&"llc_misses"), "{missing:?}");
        assert!(available.sample.is_empty() && available.dram_to_node.is_empty());
    }
}
