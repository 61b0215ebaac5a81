//! The events of this machine for each metric: the tables of [`super::processors`], resolved.
//!
//! [`Generation::resolve`] keeps the events that this machine's units know and lists the others. It
//! opens no event.

use std::collections::BTreeMap;

use super::data_source::Vendor;
pub use super::metric::{Metric, UncoreMetric};
use super::pmu::{Event, Pmus};
use super::processors::{self, Entry, UncoreLine};
use crate::LinuxError;
use crate::parse::cpuinfo::CpuIdentity;

/// The table of one generation of processors, with inherited lines.
pub struct Generation {
    entry: Entry,
}

/// The two nodes of a directed link, the kernel's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkEnds {
    /// The node that sends the data.
    pub from: u32,
    /// The node that receives it.
    pub to: u32,
}

/// A count of a unit outside the cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncoreCount {
    /// Metric of the count.
    pub metric: UncoreMetric,
    /// Name of the unit.
    pub unit: String,
    /// Event of the unit, with the CPUs to open it on, one for each node or socket.
    pub event: Event,
    /// `(bytes, counts)`: so many counts are so many bytes; `None` if requests are counted.
    pub bytes: Option<(u32, u32)>,
}

/// The events that this machine can count and sample.
#[derive(Debug, Default)]
pub struct Available {
    /// Name of the generation.
    pub generation: String,
    /// Vendor of the conventions that its samples follow.
    pub vendor: Vendor,
    /// Number of events of `core` that can be counted at once, beside instructions and cycles.
    pub counters: usize,
    /// Events counted in each core, ascending by metric.
    pub core: Vec<(Metric, Event)>,
    /// Events with addresses in their samples.
    pub sample: Vec<Event>,
    /// Whether these sample stores beside loads.
    pub samples_stores: bool,
    /// Whether the event of loads samples only those that missed the last-level cache, and gives
    /// no level.
    pub loads_beyond_cache: bool,
    /// An event that writes its samples into an auxiliary buffer.
    pub buffer: Option<Event>,
    /// The table's sampling period.
    pub period: u64,
    /// Number of which every sampling period is a multiple; 0 for any.
    pub period_step: u64,
    /// Shortest sampling period; 0 for any.
    pub period_least: u64,
    /// `(holding node, event)` of requests of one node's CPUs to DRAM, counted outside the cores.
    pub dram_to_node: Vec<(u32, Event)>,
    /// Bytes carried by a directed link, counted outside the cores.
    pub links: Vec<(LinkEnds, Event)>,
    /// All other counts of units outside the cores, one for each event and unit.
    pub uncore: Vec<UncoreCount>,
    /// Events of the table that the machine does not have, with the errors.
    pub missing: Vec<(String, LinuxError)>,
    /// Metrics that this processor cannot count, with the consequence.
    pub absent: BTreeMap<String, String>,
}

impl Available {
    /// Whether an event is counted by the same unit as those of `core`.
    #[must_use]
    pub fn is_of_core(&self, event: &Event) -> bool {
        self.core.iter().any(|(_, core)| core.attr.kind == event.attr.kind)
    }

    /// The sampling period to use: the table's, or `wanted` rounded up to what the unit can do.
    #[must_use]
    pub fn sampling_period(&self, wanted: Option<u64>) -> u64 {
        let least = self.period_least.max(1);
        let (period, step) = (wanted.unwrap_or(self.period).max(least), self.period_step.max(1));
        period.checked_next_multiple_of(step).unwrap_or(u64::MAX - u64::MAX % step)
    }

    /// The error that keeps a metric of the table out of `core`.
    #[must_use]
    pub fn reason(&self, metric: Metric) -> Option<&LinuxError> {
        let name = |(name, _): &&(String, LinuxError)| {
            Metric::named(name).is_some_and(|named| named.same_kind(metric))
        };
        self.missing.iter().find(name).map(|(_, reason)| reason)
    }
}

impl Generation {
    /// Chooses the table for this machine: by alias, else by processor, else the generic one.
    #[must_use]
    pub fn choose(pmus: &Pmus, identity: &CpuIdentity) -> Self {
        let has_alias =
            |alias: &str| pmus.core().is_some_and(|core| core.aliases.contains_key(alias));
        let fits = |entry: &Entry| entry.when.fits(identity, has_alias);
        let entry = processors::of_vendor(&identity.vendor).find(fits);
        Self { entry: entry.expect("the last table fits every machine") }
    }

    /// Name of the generation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The events of the table that this machine's PMUs have. `nodes`: the kernel's numbers of the
    /// nodes with memory.
    #[must_use]
    pub fn resolve(&self, pmus: &Pmus, nodes: &[u32]) -> Available {
        let entry = &self.entry;
        // The lab's PMU shows its configured properties in `caps/`.
        let cap = |name: &str| pmus.core().and_then(|core| core.caps.get(name).cloned());
        let counters = cap("counters").and_then(|count| count.parse().ok());
        let mut available = Available {
            generation: entry.name.clone(),
            vendor: match cap("data_source").or(entry.vendor.clone()).as_deref() {
                Some("amd") => Vendor::Amd,
                Some("arm") => Vendor::Arm,
                Some("ampere") => Vendor::Ampere,
                _ => Vendor::Intel,
            },
            counters: counters.or(entry.counters).unwrap_or(4),
            period: entry.sample.period.unwrap_or(DEFAULT_PERIOD),
            period_step: entry.sample.step.unwrap_or(1),
            period_least: entry.sample.least.unwrap_or(1),
            absent: entry.absent.clone(),
            ..Available::default()
        };
        let mut resolving = Resolving { pmus, nodes, missing: Vec::new() };
        for (name, text) in &entry.core {
            for (metric, text) in expanded(name, text, nodes) {
                let event = resolving.first(name, &[text]);
                available.core.extend(event.map(|event| (metric, event)));
            }
        }
        let latency = entry.sample.latency.unwrap_or(0).to_string();
        let filled = |text: &String| text.replace("{latency}", &latency);
        for (name, texts) in [("loads", &entry.sample.loads), ("stores", &entry.sample.stores)] {
            let texts: Vec<String> = texts.iter().map(filled).collect();
            let found = resolving.first(name, &texts);
            let is_in = |texts: &[String]| {
                found
                    .as_ref()
                    .is_some_and(|event| texts.iter().any(|text| filled(text) == event.name))
            };
            available.samples_stores |=
                is_in(&entry.sample.both) || (name == "stores" && found.is_some());
            available.loads_beyond_cache |= is_in(&entry.sample.beyond_cache);
            available.sample.extend(found);
        }
        if let Some(text) = &entry.sample.buffer {
            available.buffer =
                resolving.each("buffer", &filled(text)).map(|mut all| all.remove(0).1);
        }
        resolving.uncore(&entry.uncore, &mut available);
        available.core.sort_by_key(|(metric, _)| *metric);
        available.missing = resolving.missing;
        available
    }
}

/// Sampling period for tables without one: a prime, so that it does not coincide with a loop.
const DEFAULT_PERIOD: u64 = 10_007;

/// Resolver of event strings, with the strings that do not resolve.
struct Resolving<'a> {
    pmus: &'a Pmus,
    nodes: &'a [u32],
    missing: Vec<(String, LinuxError)>,
}

impl Resolving<'_> {
    /// The first of `texts` that this machine has. If it has none, the error of the first text is
    /// kept.
    fn first(&mut self, name: &str, texts: &[String]) -> Option<Event> {
        let mut reason = None;
        for text in texts {
            match text.parse().and_then(|spec| self.pmus.resolve(&spec)) {
                Ok(event) => return Some(event),
                Err(error) => drop(reason.get_or_insert(error)),
            }
        }
        self.missing.extend(reason.map(|reason| (name.to_string(), reason)));
        None
    }

    /// The event on each unit that `text` names, at least one; `None` if one does not resolve.
    fn each(&mut self, name: &str, text: &str) -> Option<Vec<(String, Event)>> {
        match text.parse().and_then(|spec| self.pmus.resolve_each(&spec)) {
            Ok(events) => Some(events),
            Err(reason) => {
                self.missing.push((name.to_string(), reason));
                None
            }
        }
    }

    fn uncore(&mut self, lines: &[UncoreLine], available: &mut Available) {
        let mut found: Vec<UncoreMetric> = Vec::new();
        for line in lines {
            if found.contains(&line.metric) {
                continue;
            }
            let before = self.missing.len();
            let is_here = match line.metric {
                UncoreMetric::DramToNode => self.requests(line, available),
                UncoreMetric::Link => self.links(line, available),
                _ => self.counts(line, available),
            };
            if is_here {
                // A missing alternative is no error if another one resolves.
                let of_this_line = self.missing.split_off(before);
                self.missing.retain(|(name, _)| name != line.metric.name());
                self.missing.extend(of_this_line);
                found.push(line.metric);
            }
        }
    }

    /// Adds the events of requests to each node. Returns whether any resolves.
    fn requests(&mut self, line: &UncoreLine, available: &mut Available) -> bool {
        for &node in self.nodes {
            for text in &line.events {
                // A node beyond the unit's bits does not resolve.
                let bit = 1u64.checked_shl(node).unwrap_or(u64::MAX);
                let text = text
                    .replace("{node}", &node.to_string())
                    .replace("{node_bit}", &format!("{bit:#x}"));
                let event = self.first(line.metric.name(), &[text]);
                available.dram_to_node.extend(event.map(|event| (node, event)));
            }
        }
        !available.dram_to_node.is_empty()
    }

    fn links(&mut self, line: &UncoreLine, available: &mut Available) -> bool {
        for text in &line.events {
            for (number, ends) in link_ends(text, self.pmus) {
                let text = text.replace("{link}", &number.to_string());
                let event = self.first(line.metric.name(), &[text]);
                available.links.extend(event.map(|event| (ends, event)));
            }
        }
        !available.links.is_empty()
    }

    /// The error that one of the units does not list the event that the line needs.
    fn unlisted(
        &self,
        line: &UncoreLine,
        text: &str,
        events: &[(String, Event)],
    ) -> Option<LinuxError> {
        let needed = line.listed.as_ref()?;
        let lists = |unit: &str| {
            self.pmus.get(unit).is_some_and(|unit| unit.aliases.contains_key(needed.as_str()))
        };
        let (unit, _) = events.iter().find(|(unit, _)| !lists(unit))?;
        Some(LinuxError::Input {
            what: format!("event `{text}`"),
            problem: format!("`{unit}` lists no event `{needed}`"),
        })
    }

    /// The events, each on a CPU of the node of its unit's device if the line needs that. The
    /// kernel takes any CPU for such a unit and reads it on the CPU of its `cpumask`.
    ///
    /// # Errors
    /// There are several nodes, and a device tells none with CPUs.
    fn placed(
        &self,
        line: &UncoreLine,
        text: &str,
        events: Vec<(String, Event)>,
    ) -> Result<Vec<(String, Event)>, LinuxError> {
        if !line.of_device || self.nodes.len() < 2 {
            return Ok(events);
        }
        let place = |(unit, event): (String, Event)| {
            let home = self.pmus.get(&unit).and_then(|unit| unit.home);
            let home = home.ok_or_else(|| LinuxError::Input {
                what: format!("event `{text}`"),
                problem: format!(
                    "`{unit}` does not tell its node: its CPU is the one that found it"
                ),
            })?;
            Ok((unit, Event { cpus: Some(vec![home]), ..event }))
        };
        events.into_iter().map(place).collect()
    }

    /// Adds all events of the line on all their units, or none.
    fn counts(&mut self, line: &UncoreLine, available: &mut Available) -> bool {
        let mut counts = Vec::new();
        for text in line.expanded() {
            let Some(events) = self.each(line.metric.name(), &text) else { return false };
            let placed = match self.unlisted(line, &text, &events) {
                Some(reason) => Err(reason),
                None => self.placed(line, &text, events),
            };
            let events = match placed {
                Ok(events) => events,
                Err(reason) => {
                    self.missing.push((line.metric.name().to_string(), reason));
                    return false;
                }
            };
            counts.extend(events.into_iter().map(|(unit, event)| UncoreCount {
                metric: line.metric,
                unit,
                event,
                bytes: line.bytes.map(|bytes| (bytes, line.counts.unwrap_or(1))),
            }));
        }
        available.uncore.append(&mut counts);
        true
    }
}

/// The links of the unit in `text`, by number.
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
    match Metric::named(name).expect("the tables are checked by a test") {
        Metric::DramNode(_) => nodes
            .iter()
            .map(|node| (Metric::DramNode(*node), text.replace("{node}", &node.to_string())))
            .collect(),
        other => vec![(other, text.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::root::Root;

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

    /// Two controllers of an Altra, both found by CPU 0. `nodes`: what their devices tell.
    fn altra(nodes: [Option<i32>; 2], memory: &[u32]) -> Vec<(String, Option<Vec<u32>>)> {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        let write = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        let sys = |path: &str| root.in_sys(path);
        fs::create_dir_all(sys("bus/event_source/devices")).unwrap();
        for (index, node) in nodes.into_iter().enumerate() {
            let device = format!("devices/platform/ARMHD620:0{index}");
            let unit = format!("arm_dmc620_{}0008c000", 1 + 4 * index);
            write(sys(&format!("{device}/{unit}/type")), "20");
            write(sys(&format!("{device}/{unit}/format/event")), "config2:3-8");
            write(sys(&format!("{device}/{unit}/format/clkdiv2")), "config2:9");
            write(sys(&format!("{device}/{unit}/cpumask")), "0");
            if let Some(node) = node {
                write(sys(&format!("{device}/numa_node")), &node.to_string());
            }
            let link = sys("bus/event_source/devices").join(&unit);
            std::os::unix::fs::symlink(format!("../../../{device}/{unit}"), link).unwrap();
        }
        write(sys("devices/system/node/node0/cpulist"), "0-79");
        write(sys("devices/system/node/node1/cpulist"), "80-159");
        let (pmus, problems) = Pmus::discover(&root).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let identity = CpuIdentity {
            vendor: "0x41".to_string(),
            model: Some(0xd0c),
            ..CpuIdentity::default()
        };
        let available = Generation::choose(&pmus, &identity).resolve(&pmus, memory);
        let is_told = |(name, why): &(String, LinuxError)| {
            name == "controller_bytes" && why.to_string().contains("does not tell its node")
        };
        assert_eq!(available.uncore.is_empty(), available.missing.iter().any(is_told));
        available.uncore.into_iter().map(|count| (count.unit, count.event.cpus)).collect()
    }

    #[test]
    fn a_controller_counts_for_the_node_of_its_device_and_not_for_the_cpu_that_found_it() {
        let unit = |name: &str, cpu| (name.to_string(), Some(vec![cpu]));
        let names = ["arm_dmc620_10008c000", "arm_dmc620_50008c000"];
        let expected = [unit(names[0], 0), unit(names[1], 80)];
        assert_eq!(altra([Some(0), Some(1)], &[0, 1]), expected);
        for unknown in [None, Some(-1), Some(7)] {
            assert_eq!(altra([Some(0), unknown], &[0, 1]), [], "{unknown:?}");
        }
        // One node: there is no other that they could count for.
        assert_eq!(altra([None, None], &[0]), [unit(names[0], 0), unit(names[1], 0)]);
    }
}
