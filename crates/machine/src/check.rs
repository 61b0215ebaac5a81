//! Values that no machine can have, found in the file as written so that a line can be named.
//!
//! Shapes and connections are checked where they are built (`build`); this is about numbers.

use crate::error::{Fault, require};
use crate::file::{File, NodeGroup};
use crate::limits;
use crate::machine::{Cache, Controller, LINE_BYTES, Lab};

/// Checks each number of the file by itself.
pub(crate) fn values(file: &File) -> Result<(), Fault> {
    name(&file.name)?;
    core(file)?;
    caches(file)?;
    require(
        file.prefetch.streams <= 64 && file.prefetch.depth <= 64,
        || "prefetch".into(),
        || "expected at most 64 streams of depth 64".into(),
    )?;
    whole("nodes_per_package", u64::from(file.nodes_per_package), 1, limits::NODES_MAX as u64)?;
    for (index, group) in file.nodes.iter().enumerate() {
        node_group(&format!("nodes[{index}]"), group)?;
        let threads = file.core.threads_per_core;
        require(
            group.cpus.is_multiple_of(threads),
            || format!("nodes[{index}].cpus"),
            || format!("expected whole cores of {threads} threads, got {}", group.cpus),
        )?;
    }
    positive("transfer.same_domain_ns", file.transfer.same_domain_ns)?;
    positive("transfer.same_node_ns", file.transfer.same_node_ns.unwrap_or(1.0))?;
    positive("transfer.remote_ns", file.transfer.remote_ns.unwrap_or(1.0))?;
    whole("pmu.counters", u64::from(file.pmu.counters), 1, 64)?;
    if let Some(processor) = file.pmu.processor {
        require(
            processor.vendor() == file.pmu.vendor,
            || "pmu.processor".into(),
            || format!("expected a processor of the vendor, got {}", processor.name()),
        )?;
    }
    not_negative("pmu.sample_cost_ns", file.pmu.sample_cost_ns)?;
    not_negative("pmu.read_cost_ns", file.pmu.read_cost_ns)
}

/// Checks the `[lab]` table against the nodes and caches that it scales.
pub(crate) fn lab(file: &File, lab: &Lab) -> Result<(), Fault> {
    let cpus: u32 = expanded(file).map(|group| group.cpus.min(lab.cpus_per_node)).sum();
    whole("lab.cpus_per_node", u64::from(lab.cpus_per_node), 1, u64::from(limits::LAB_CPUS_MAX))?;
    require(
        cpus <= limits::LAB_CPUS_MAX,
        || "lab.cpus_per_node".into(),
        || format!("expected at most {} vCPUs in all, got {cpus}", limits::LAB_CPUS_MAX),
    )?;
    let nodes = expanded(file).count();
    require(
        nodes <= limits::LAB_NODES_MAX,
        || "lab".into(),
        || format!("expected at most {} nodes in the lab, got {nodes}", limits::LAB_NODES_MAX),
    )?;
    for group in expanded(file).filter(|group| group.cpus > 0) {
        let cpus = group.cpus.min(lab.cpus_per_node);
        let domains = group.domains().min(lab.cache_domains_per_node);
        require(
            domains > 0 && cpus.is_multiple_of(domains),
            || "lab.cache_domains_per_node".into(),
            || format!("expected a divisor of the {cpus} CPUs of a lab node, got {domains}"),
        )?;
    }
    lab_scales(file, lab)
}

fn lab_scales(file: &File, lab: &Lab) -> Result<(), Fault> {
    between("lab.slow_motion", lab.slow_motion, 1.0, limits::SLOW_MOTION_MAX)?;
    between("lab.manager_slow_motion", lab.manager_slow_motion, 1.0, lab.slow_motion)?;
    between("lab.cache_scale", lab.cache_scale, 1.0, 4096.0)?;
    between("lab.l2_scale", lab.l2_scale, 1.0, 64.0)?;
    let (least, most) = (limits::LAB_MEMORY_MIB_MIN, limits::NODE_MEMORY_MAX >> 20);
    whole("lab.memory_mib", lab.memory_mib, least, most)?;
    whole(
        "lab.quantum_ns",
        lab.quantum_ns,
        *limits::QUANTUM_NS.start(),
        *limits::QUANTUM_NS.end(),
    )?;
    let (l2, llc) = (&file.caches.l2, &file.caches.llc);
    let (l2_scale, cache_scale) =
        if lab.applied { (1.0, 1.0) } else { (lab.l2_scale, lab.cache_scale) };
    let (small, large) = (l2.bytes as f64 / l2_scale, llc.bytes as f64 / cache_scale);
    require(
        large >= small,
        || "lab.cache_scale".into(),
        || {
            format!(
                "expected a last-level cache no smaller than the second level, \
                 got {large:.0} and {small:.0} bytes after scaling"
            )
        },
    )
}

impl NodeGroup {
    pub(crate) fn domains(&self) -> u32 {
        self.cache_domains.unwrap_or(u32::from(self.cpus > 0))
    }
}

/// Each node's group, in node order.
pub(crate) fn expanded(file: &File) -> impl Iterator<Item = &NodeGroup> {
    file.nodes.iter().flat_map(|group| std::iter::repeat_n(group, group.count as usize))
}

fn name(name: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    require(
        !name.is_empty() && name.chars().all(plain),
        || "name".into(),
        || format!("expected lower-case letters, digits and `-._`, got \"{name}\""),
    )
}

fn core(file: &File) -> Result<(), Fault> {
    let core = &file.core;
    positive("core.clock_mhz", core.clock_mhz)?;
    between("core.cycles_per_instruction", core.cycles_per_instruction, 0.01, 1000.0)?;
    whole("core.outstanding_misses", u64::from(core.outstanding_misses), 1, 128)?;
    whole("core.reorder_window", u64::from(core.reorder_window), 1, 4096)?;
    whole("core.threads_per_core", u64::from(core.threads_per_core), 1, 8)
}

fn caches(file: &File) -> Result<(), Fault> {
    let caches = &file.caches;
    cache("caches.l1", &caches.l1)?;
    cache("caches.l2", &caches.l2)?;
    cache("caches.llc", &caches.llc)?;
    let levels = [("l2", &caches.l2, "l1", &caches.l1), ("llc", &caches.llc, "l2", &caches.l2)];
    for (outer, large, inner, small) in levels {
        require(
            large.bytes >= small.bytes,
            || format!("caches.{outer}.size"),
            || {
                format!(
                    "expected at least the {} bytes of {inner}, got {}",
                    small.bytes, large.bytes
                )
            },
        )?;
        require(
            large.latency_ns >= small.latency_ns,
            || format!("caches.{outer}.latency_ns"),
            || {
                format!(
                    "expected at least {inner}'s {} ns, got {}",
                    small.latency_ns, large.latency_ns
                )
            },
        )?;
    }
    Ok(())
}

fn cache(path: &str, cache: &Cache) -> Result<(), Fault> {
    whole(&format!("{path}.ways"), u64::from(cache.ways), 1, u64::from(limits::WAYS_MAX))?;
    positive(&format!("{path}.latency_ns"), cache.latency_ns)?;
    let way = u64::from(cache.ways) * LINE_BYTES;
    require(
        cache.bytes.is_multiple_of(way) && (way..=limits::CACHE_BYTES_MAX).contains(&cache.bytes),
        || format!("{path}.size"),
        || {
            format!(
                "expected a multiple of {way} bytes ({} ways of {LINE_BYTES}-byte lines) up to 4G, \
                 got {}",
                cache.ways, cache.bytes
            )
        },
    )
}

fn node_group(path: &str, group: &NodeGroup) -> Result<(), Fault> {
    whole(&format!("{path}.count"), u64::from(group.count), 1, limits::NODES_MAX as u64)?;
    whole(&format!("{path}.cpus"), u64::from(group.cpus), 0, u64::from(limits::CPUS_PER_NODE_MAX))?;
    whole(&format!("{path}.memory"), group.memory, 0, limits::NODE_MEMORY_MAX)?;
    require(
        group.cpus > 0 || group.memory > 0,
        || path.to_owned(),
        || "expected a node with CPUs or memory or both, got neither".into(),
    )?;
    let domains = group.domains();
    let fitting = if group.cpus == 0 {
        domains == 0
    } else {
        domains > 0 && group.cpus.is_multiple_of(domains)
    };
    require(
        fitting,
        || format!("{path}.cache_domains"),
        || format!("expected a divisor of the node's {} CPUs, got {domains}", group.cpus),
    )?;
    match &group.controller {
        Some(found) if group.memory > 0 => controller(&format!("{path}.controller"), found),
        None if group.memory == 0 => Ok(()),
        Some(_) => {
            Err(Fault::new(format!("{path}.controller"), "expected none on a node without memory"))
        }
        None => Err(Fault::new(format!("{path}.controller"), "expected one: the node has memory")),
    }
}

fn controller(path: &str, controller: &Controller) -> Result<(), Fault> {
    positive(&format!("{path}.bandwidth_mb_s"), controller.bandwidth_mb_s)?;
    positive(&format!("{path}.latency_ns"), controller.latency_ns)?;
    not_negative(&format!("{path}.burst_latency_ns"), controller.burst_latency_ns)
}

/// Checks that a number is above zero and at most [`limits::QUANTITY_MAX`].
pub(crate) fn positive(path: &str, value: f64) -> Result<(), Fault> {
    require(
        value > 0.0 && value <= limits::QUANTITY_MAX,
        || path.into(),
        || format!("expected a number above 0 and up to 1e9, got {value}"),
    )
}

fn not_negative(path: &str, value: f64) -> Result<(), Fault> {
    between(path, value, 0.0, limits::QUANTITY_MAX)
}

fn between(path: &str, value: f64, least: f64, most: f64) -> Result<(), Fault> {
    require(
        value >= least && value <= most,
        || path.into(),
        || format!("expected a number from {least} to {most}, got {value}"),
    )
}

fn whole(path: &str, value: u64, least: u64, most: u64) -> Result<(), Fault> {
    require(
        (least..=most).contains(&value),
        || path.into(),
        || format!("expected {least} to {most}, got {value}"),
    )
}
