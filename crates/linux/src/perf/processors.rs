//! The tables of `processors/`: the event strings for each metric, per processor generation.
//!
//! A table lists what *could* be counted; [`super::generation`] keeps the events that a machine's
//! units know. The form of a table is described at the head of `processors/lab.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::metric::UncoreMetric;
use crate::parse::cpuinfo::CpuIdentity;

/// The tables in the order in which they are tried: file, vendor of all processors in it where they
/// have one, and text. A generation inherits within its file only.
const TABLES: [(&str, Option<&str>, &str); 6] = [
    ("lab.toml", None, include_str!("processors/lab.toml")),
    ("intel.toml", Some("GenuineIntel"), include_str!("processors/intel.toml")),
    ("amd.toml", Some("AuthenticAMD"), include_str!("processors/amd.toml")),
    ("arm.toml", None, include_str!("processors/arm.toml")),
    ("power.toml", None, include_str!("processors/power.toml")),
    ("generic.toml", None, include_str!("processors/generic.toml")),
];

/// The form of the tables that this program reads.
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
    /// Its name.
    pub name: String,
    /// Which machines it is for.
    #[serde(default)]
    pub when: When,
    /// The generation that it takes lines over from.
    pub inherits: Option<String>,
    /// Folders of the kernel's event lists that know this processor, beneath
    /// `tools/perf/pmu-events/arch`.
    #[serde(default)]
    pub witness: Vec<String>,
    /// Vendor of the conventions that its samples follow: `intel`, `amd` or `arm`.
    pub vendor: Option<String>,
    /// Events that a core counts at once, beside instructions and cycles.
    pub counters: Option<usize>,
    /// Event strings by metric.
    #[serde(default)]
    pub core: BTreeMap<String, String>,
    /// Events with addresses in their samples.
    #[serde(default)]
    pub sample: Sample,
    /// Counts outside the cores. Of several lines for a metric the first that resolves is taken.
    #[serde(default)]
    pub uncore: Vec<UncoreLine>,
    /// What this processor cannot count, and what that costs.
    #[serde(default)]
    pub absent: BTreeMap<String, String>,
}

/// Which machines a table is for.
#[derive(Debug, Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The core's unit has an event of this name.
    pub alias: Option<String>,
    /// Patterns of vendor, family and model.
    #[serde(default)]
    pub cpu: Vec<String>,
    /// How the processor's name begins, where it has no numbers.
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
    /// Those of `loads` that sample stores too.
    #[serde(default)]
    pub both: Vec<String>,
    /// An event with samples that come through an auxiliary buffer.
    pub buffer: Option<String>,
    /// Events per sample.
    pub period: Option<u64>,
    /// Loads that take fewer cycles are not sampled.
    pub latency: Option<u32>,
}

/// A count outside the cores.
#[derive(Debug, Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct UncoreLine {
    /// What is counted.
    pub metric: UncoreMetric,
    /// Event strings with counts that add up.
    pub events: Vec<String>,
    /// The values of `{event}` and `{index}`, one event string for each.
    pub series: Option<Series>,
    /// Bytes that `counts` stand for; absent where requests are counted.
    pub bytes: Option<u32>,
    /// See `bytes`; 1 where absent.
    pub counts: Option<u32>,
}

/// Evenly spaced event codes: AMD's data fabric has one for each port.
#[derive(Debug, Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The first code.
    pub first: u32,
    /// From one code to the next.
    pub step: u32,
    /// How many.
    pub count: u32,
}

impl UncoreLine {
    /// Its event strings with the series written out.
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

/// All generations with what they inherit, in the order in which they are tried. The last one fits
/// every machine.
///
/// # Panics
/// A table has another form: a test reads them all.
pub fn all() -> impl Iterator<Item = Entry> {
    generations(|_| true)
}

/// Those of `all` that may be meant for a vendor's processors. A table is read when its turn comes,
/// for every managed program waits for it.
pub(super) fn of_vendor(vendor: &str) -> impl Iterator<Item = Entry> {
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
    whole.absent.retain(|name, _| {
        let counted = entry.uncore.iter().any(|line| line.metric.name() == name);
        !counted && !entry.core.contains_key(name)
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
    let sample = Sample {
        loads: or(&entry.sample.loads, of_parent.loads),
        stores: or(&entry.sample.stores, of_parent.stores),
        both: or(&entry.sample.both, of_parent.both),
        buffer: entry.sample.buffer.clone().or(of_parent.buffer),
        period: entry.sample.period.or(of_parent.period),
        latency: entry.sample.latency.or(of_parent.latency),
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
    /// Whether a machine is meant with `has_alias` of its core unit. Without any condition every
    /// machine is.
    pub(super) fn fits(&self, identity: &CpuIdentity, has_alias: impl Fn(&str) -> bool) -> bool {
        match (&self.alias, &self.name) {
            (Some(alias), _) => has_alias(alias),
            (None, Some(name)) => identity.name.starts_with(name.as_str()),
            (None, None) => {
                self.cpu.is_empty() || self.cpu.iter().any(|pattern| is_in(pattern, identity))
            }
        }
    }
}

/// `GenuineIntel-6-8F`, `AuthenticAMD-25-10..1F`, `AuthenticAMD-21-*`, `0x41-D0C`: models are
/// hexadecimal, both ends of a range are in it.
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
