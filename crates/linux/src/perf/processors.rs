//! The tables of `processors/`: the event strings for each metric, per processor generation.
//!
//! A table lists what *could* be counted; [`super::generation`] keeps the events that a machine's
//! units know. The form of a table is described at the head of `processors/lab.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::metric::UncoreMetric;
use crate::parse::cpuinfo::CpuIdentity;

/// The tables in the order of trying: `(file, vendor of all its processors if they have one,
/// text)`. A generation inherits within its file only.
const TABLES: [(&str, Option<&str>, &str); 6] = [
    ("lab.toml", None, include_str!("processors/lab.toml")),
    ("intel.toml", Some("GenuineIntel"), include_str!("processors/intel.toml")),
    ("amd.toml", Some("AuthenticAMD"), include_str!("processors/amd.toml")),
    ("arm.toml", None, include_str!("processors/arm.toml")),
    ("power.toml", None, include_str!("processors/power.toml")),
    ("generic.toml", None, include_str!("processors/generic.toml")),
];

/// Name of the samples in [`Entry::absent`].
const SAMPLES: &str = "address_samples";

/// Version of the tables' format.
const SCHEMA: u32 = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    schema: u32,
    generation: Vec<Entry>,
}

/// One generation of processors.
#[derive(Debug, Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the generation.
    pub name: String,
    /// Condition for its machines.
    #[serde(default)]
    pub when: When,
    /// Generation from which it inherits lines.
    pub inherits: Option<String>,
    /// Folders of the kernel's event lists for this processor, beneath
    /// `tools/perf/pmu-events/arch`.
    #[serde(default)]
    pub witness: Vec<String>,
    /// Vendor of the conventions that its samples follow: `intel`, `amd`, `arm` or `ampere`.
    pub vendor: Option<String>,
    /// Number of events that a core counts at once, beside instructions and cycles.
    pub counters: Option<usize>,
    /// Event strings by metric.
    #[serde(default)]
    pub core: BTreeMap<String, String>,
    /// Events with addresses in their samples.
    #[serde(default)]
    pub sample: Sample,
    /// Counts outside the cores. Of several lines for a metric the first that resolves counts.
    #[serde(default)]
    pub uncore: Vec<UncoreLine>,
    /// Metrics that this processor cannot count, with the consequence.
    #[serde(default)]
    pub absent: BTreeMap<String, String>,
}

/// Condition for the machines of a generation.
#[derive(Debug, Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Event that the core's unit has.
    pub alias: Option<String>,
    /// Patterns of vendor, family and model, one of which fits.
    #[serde(default)]
    pub cpu: Vec<String>,
    /// Beginning of the processor's name in any case, for processors without numbers.
    pub name: Option<String>,
}

/// Events with addresses in their samples.
#[derive(Debug, Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Loads, the best choice first.
    #[serde(default)]
    pub loads: Vec<String>,
    /// Stores, the best choice first.
    #[serde(default)]
    pub stores: Vec<String>,
    /// Events of `loads` that sample stores too.
    #[serde(default)]
    pub both: Vec<String>,
    /// Events of `loads` that sample only loads which missed the last-level cache, without a level.
    #[serde(default)]
    pub beyond_cache: Vec<String>,
    /// An event with samples that come through an auxiliary buffer.
    pub buffer: Option<String>,
    /// Events per sample.
    pub period: Option<u64>,
    /// Number of which every period is a multiple; absent for 1.
    pub step: Option<u64>,
    /// Shortest period that the unit takes; absent for 1.
    pub least: Option<u64>,
    /// Least latency of a sampled load, cycles.
    pub latency: Option<u32>,
}

/// A count outside the cores.
#[derive(Debug, Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct UncoreLine {
    /// Metric of the count.
    pub metric: UncoreMetric,
    /// Name of an event that the units must list in sysfs, because their fields do not tell
    /// whether they count.
    pub listed: Option<String>,
    /// Whether a unit belongs to the node of its device, because its `cpumask` has the CPU that
    /// found it. On a machine with several nodes, each unit then needs a device with a node.
    #[serde(default)]
    pub of_device: bool,
    /// Event strings whose counts are summed.
    pub events: Vec<String>,
    /// The values of `{event}` and `{index}`, one event string for each.
    pub series: Option<Series>,
    /// Number of bytes of `counts` counts; absent if requests are counted.
    pub bytes: Option<u32>,
    /// Number of counts for `bytes`; absent for 1.
    pub counts: Option<u32>,
}

/// Evenly spaced event codes: AMD's data fabric has one for each port.
#[derive(Debug, Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The first code.
    pub first: u32,
    /// Distance from one code to the next.
    pub step: u32,
    /// Number of codes.
    pub count: u32,
}

impl UncoreLine {
    /// The event strings, one for each code of the series.
    #[must_use]
    pub fn expanded(&self) -> Vec<String> {
        let Some(series) = self.series else { return self.events.clone() };
        let code = |index: u32| format!("{:#x}", series.first + index * series.step);
        let one = |index: u32, text: &String| {
            text.replace("{event}", &code(index)).replace("{index}", &index.to_string())
        };
        let all = (0..series.count).flat_map(|index| {
            self.events.iter().map(move |text| one(index, text)).collect::<Vec<_>>()
        });
        all.collect()
    }
}

/// All generations with inherited lines, in the order of trying. The last one fits every machine.
///
/// # Panics
/// A table is malformed. A test reads them all.
pub fn all() -> impl Iterator<Item = Entry> {
    generations(|_| true)
}

/// The generations of `all` that may fit a vendor's processors. Tables are parsed lazily, because
/// every managed program waits for it.
pub(super) fn of_vendor(vendor: &str) -> impl Iterator<Item = Entry> {
    // Hygon's processors are relatives of AMD's, in the same table.
    let vendor = if vendor == "HygonGenuine" { "AuthenticAMD" } else { vendor };
    generations(move |of| of.is_none_or(|of| of == vendor))
}

fn generations(is_wanted: impl Fn(Option<&str>) -> bool) -> impl Iterator<Item = Entry> {
    TABLES.into_iter().filter(move |(_, vendor, _)| is_wanted(*vendor)).flat_map(
        |(file, _, text)| {
            let table: Table =
                toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(table.schema, SCHEMA, "{file}: schema");
            let written = table.generation;
            (0..written.len()).map(move |index| inherited(&written[index], &written))
        },
    )
}

fn inherited(entry: &Entry, all: &[Entry]) -> Entry {
    let Some(parent) = &entry.inherits else { return entry.clone() };
    let parent = all.iter().find(|other| other.name == *parent);
    let parent = parent.unwrap_or_else(|| panic!("{}: inherits what is not there", entry.name));
    let mut whole = inherited(parent, all);
    let Sample { loads, stores, buffer, .. } = &entry.sample;
    let samples = !loads.is_empty() || !stores.is_empty() || buffer.is_some();
    whole.absent.retain(|name, _| {
        let counted = entry.uncore.iter().any(|line| line.metric.name() == name);
        let sampled = samples && name == SAMPLES;
        !counted && !sampled && !entry.core.contains_key(name)
    });
    whole.core.retain(|name, _| !entry.absent.contains_key(name));
    whole.uncore.retain(|line| {
        let replaced = entry.uncore.iter().any(|other| other.metric == line.metric);
        !replaced && !entry.absent.contains_key(line.metric.name())
    });
    let or = |own: &[String], parents: Vec<String>| match own {
        [] => parents,
        own => own.to_vec(),
    };
    let of_parent = whole.sample;
    let loads = or(&entry.sample.loads, of_parent.loads);
    // An inherited property of an event that the child does not sample means nothing.
    let of_loads = |own: &[String], mut parents: Vec<String>| {
        parents.retain(|text| loads.contains(text));
        or(own, parents)
    };
    let sample = Sample {
        both: of_loads(&entry.sample.both, of_parent.both),
        beyond_cache: of_loads(&entry.sample.beyond_cache, of_parent.beyond_cache),
        stores: or(&entry.sample.stores, of_parent.stores),
        buffer: entry.sample.buffer.clone().or(of_parent.buffer),
        period: entry.sample.period.or(of_parent.period),
        step: entry.sample.step.or(of_parent.step),
        least: entry.sample.least.or(of_parent.least),
        latency: entry.sample.latency.or(of_parent.latency),
        loads,
    };
    whole.core.extend(entry.core.clone());
    whole.absent.extend(entry.absent.clone());
    let mut uncore = entry.uncore.clone();
    uncore.append(&mut whole.uncore);
    Entry {
        vendor: entry.vendor.clone().or(whole.vendor),
        counters: entry.counters.or(whole.counters),
        core: whole.core,
        absent: whole.absent,
        sample,
        uncore,
        ..entry.clone()
    }
}

impl When {
    /// Whether a machine meets the condition. `has_alias`: whether the core's unit has an event.
    /// Without any condition every machine does.
    pub(super) fn fits(&self, identity: &CpuIdentity, has_alias: impl Fn(&str) -> bool) -> bool {
        match (&self.alias, &self.name) {
            (Some(alias), _) => has_alias(alias),
            // The kernel writes "POWER10" and "Power11".
            (None, Some(name)) => {
                let begin = identity.name.get(..name.len());
                begin.is_some_and(|begin| begin.eq_ignore_ascii_case(name))
            }
            (None, None) => {
                self.cpu.is_empty() || self.cpu.iter().any(|pattern| is_in(pattern, identity))
            }
        }
    }
}

/// Whether a processor fits a pattern: `GenuineIntel-6-8F`, `AuthenticAMD-25-10..1F`,
/// `AuthenticAMD-21-*`, `0x41-D0C`. Models are hexadecimal, and ranges include both ends.
fn is_in(pattern: &str, identity: &CpuIdentity) -> bool {
    let Some((head, models)) = pattern.rsplit_once('-') else { return false };
    let family = identity.family.map_or(String::new(), |family| format!("-{family}"));
    let Some(model) = identity.model.filter(|_| head == format!("{}{family}", identity.vendor))
    else {
        return false;
    };
    let hexadecimal = |text: &str| u32::from_str_radix(text, 16).ok();
    match models.split_once("..") {
        _ if models == "*" => true,
        Some((first, last)) => hexadecimal(first)
            .zip(hexadecimal(last))
            .is_some_and(|(first, last)| (first..=last).contains(&model)),
        None => hexadecimal(models) == Some(model),
    }
}

#[cfg(test)]
mod tests;
