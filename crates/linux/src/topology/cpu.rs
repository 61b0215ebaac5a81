//! Cores, packages and cache domains of the CPUs, and the caches of one of them.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::topology::Cpu;

use super::reader::Reader;
use super::{Cache, Note};
use crate::parse::{ParseError, cpulist, fields};
use crate::root;

/// A reader of CPUs. It numbers cores, packages and cache domains densely, in the order of their
/// first CPU.
#[derive(Default)]
pub(super) struct Cpus {
    domains: BTreeMap<(usize, String), usize>,
    cores: BTreeMap<String, usize>,
    packages: BTreeMap<Option<u64>, usize>,
    no_package: Vec<u32>,
    not_of_own_core: Vec<u32>,
}

fn number<K: Ord>(map: &mut BTreeMap<K, usize>, key: K) -> usize {
    let next = map.len();
    *map.entry(key).or_insert(next)
}

impl Cpus {
    /// Reads the CPUs of a node. A CPU without a package is in that of the others, if they have the
    /// same. `node`: index of the node.
    pub(super) fn read(
        &mut self,
        reader: &mut Reader<'_>,
        node: usize,
        cpus: &[u32],
        is_isolated: impl Fn(u32) -> bool,
    ) -> Vec<Cpu> {
        let package = |cpu: &u32| {
            let file = format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            reader.told(&file, package_id).flatten()
        };
        let told: Vec<Option<u64>> = cpus.iter().map(package).collect();
        let different: BTreeSet<u64> = told.iter().copied().flatten().collect();
        let of_others = different.first().copied().filter(|_| different.len() == 1);
        let mut found = Vec::with_capacity(cpus.len());
        for (&cpu, package) in cpus.iter().zip(told) {
            if package.is_none() {
                self.no_package.push(cpu);
            }
            let package = package.or(of_others);
            found.push(self.one(reader, (cpu, node), package, is_isolated(cpu)));
        }
        found
    }

    fn one(
        &mut self,
        reader: &mut Reader<'_>,
        (cpu, node): (u32, usize),
        package: Option<u64>,
        isolated: bool,
    ) -> Cpu {
        let directory = format!("devices/system/cpu/cpu{cpu}");
        let core = self.core(reader, &directory, cpu);
        // A domain never spans nodes here. With sub-NUMA clustering one cache serves several nodes,
        // and the threads of each node compete for that node's slice.
        let domain = last_level(reader, &directory, cpu);
        let domain = domain.unwrap_or_else(|| format!("package {package:?}"));
        Cpu {
            kernel_id: cpu,
            node,
            cache_domain: number(&mut self.domains, (node, domain)),
            core: number(&mut self.cores, core),
            package: number(&mut self.packages, package),
            isolated,
        }
    }

    /// A key of the CPU's core: the list of its hardware threads.
    fn core(&mut self, reader: &mut Reader<'_>, directory: &str, cpu: u32) -> String {
        let set = |reader: &mut Reader<'_>, list: &str, mask: &str| {
            let file = |name: &str| format!("{directory}/topology/{name}");
            reader.told_set(&file(list), &file(mask))
        };
        let threads = set(reader, "core_cpus_list", "core_cpus")
            .or_else(|| set(reader, "thread_siblings_list", "thread_siblings"));
        match threads {
            Some(threads) if threads.contains(&cpu) => cpulist::format(&threads),
            Some(_) => {
                self.not_of_own_core.push(cpu);
                format!("alone {cpu}")
            }
            None => format!("alone {cpu}"),
        }
    }

    /// Notes about the CPUs read so far.
    pub(super) fn notes(self) -> impl Iterator<Item = Note> {
        let some =
            |cpus: Vec<u32>, note: fn(Vec<u32>) -> Note| (!cpus.is_empty()).then(|| note(cpus));
        let package = some(self.no_package, |cpus| Note::NoPackage { cpus });
        let core = some(self.not_of_own_core, |cpus| Note::NotOfOwnCore { cpus });
        package.into_iter().chain(core)
    }
}

/// Parses a package's number; `None` for -1, as on Arm without one in firmware.
fn package_id(bytes: &[u8]) -> Result<Option<u64>, ParseError> {
    if fields::trim(bytes) == b"-1" { Ok(None) } else { fields::single_number(bytes).map(Some) }
}

/// A key of the last-level cache: the list of CPUs that share it. `None` if it is not known.
fn last_level(reader: &mut Reader<'_>, directory: &str, cpu: u32) -> Option<String> {
    let mut last: Option<(u64, Vec<u32>)> = None;
    for index in reader.numbered(&format!("{directory}/cache"), "index") {
        let file = |name: &str| format!("{directory}/cache/index{index}/{name}");
        let level = reader.told(&file("level"), fields::single_number);
        let shared = reader.told_set(&file("shared_cpu_list"), &file("shared_cpu_map"));
        if let (Some(level), Some(shared)) = (level, shared.filter(|cpus| cpus.contains(&cpu)))
            && last.as_ref().is_none_or(|(highest, _)| level > *highest)
        {
            last = Some((level, shared));
        }
    }
    // Emulators describe only a first-level cache, which does not show sharing.
    last.filter(|(level, _)| *level > 1).map(|(_, shared)| cpulist::format(&shared))
}

/// The caches of a CPU, by level.
pub(super) fn caches(reader: &mut Reader<'_>, cpu: u32) -> Vec<Cache> {
    let directory = format!("devices/system/cpu/cpu{cpu}/cache");
    let mut caches = Vec::new();
    for index in reader.numbered(&directory, "index") {
        let file = |name: &str| format!("{directory}/index{index}/{name}");
        let level = reader.told(&file("level"), fields::single_number);
        let bytes = reader.told(&file("size"), fields::size).filter(|bytes| *bytes > 0);
        let (Some(level), Some(bytes)) = (level, bytes) else { continue };
        let kind = root::read_optional(&reader.root.in_sys(file("type"))).ok().flatten();
        let ways = reader.told(&file("ways_of_associativity"), fields::single_number);
        let shared = reader.told_set(&file("shared_cpu_list"), &file("shared_cpu_map"));
        caches.push(Cache {
            level: u32::try_from(level).unwrap_or(u32::MAX),
            kind: String::from_utf8_lossy(fields::trim(&kind.unwrap_or_default())).into_owned(),
            bytes,
            ways: ways.and_then(|ways| u32::try_from(ways).ok()).filter(|ways| *ways > 0),
            shared_by: shared.map_or(1, |cpus| cpus.len().max(1)),
        });
    }
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    caches
}
