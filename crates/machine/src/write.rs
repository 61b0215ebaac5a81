//! Writes a machine as a file that parses back to the same machine, number for number.
//!
//! Everything derived is written out: latencies, distances, and the routes that are not a link.

use std::fmt::{Display, Write};

use crate::machine::{Cache, Machine, Node, Vendor};
use crate::size;

impl Machine {
    /// The machine as TOML, without the comments of the file that it was read from.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = head(self, &mut out);
        let _ = nodes(&self.nodes, &mut out);
        let _ = interconnect(self, &mut out);
        let _ = tail(self, &mut out);
        out
    }
}

fn head(machine: &Machine, out: &mut String) -> std::fmt::Result {
    writeln!(out, "name = {}", quoted(&machine.name))?;
    writeln!(out, "title = {}", quoted(&machine.title))?;
    writeln!(out, "source = {}", quoted(&machine.source))?;
    writeln!(out, "nodes_per_package = {}", machine.nodes_per_package)?;
    let core = &machine.core;
    writeln!(out, "\n[core]\nclock_mhz = {}", core.clock_mhz)?;
    writeln!(out, "cycles_per_instruction = {}", core.cycles_per_instruction)?;
    writeln!(out, "outstanding_misses = {}", core.outstanding_misses)?;
    writeln!(out, "reorder_window = {}", core.reorder_window)?;
    writeln!(out, "threads_per_core = {}", core.threads_per_core)?;
    writeln!(out, "\n[caches]")?;
    let caches = &machine.caches;
    for (name, Cache { bytes, ways, latency_ns }) in
        [("l1", &caches.l1), ("l2", &caches.l2), ("llc", &caches.llc)]
    {
        let size = size::format(*bytes);
        writeln!(
            out,
            "{name} = {{ size = \"{size}\", ways = {ways}, latency_ns = {latency_ns} }}"
        )?;
    }
    let prefetch = &machine.prefetch;
    writeln!(out, "\n[prefetch]\nstreams = {}\ndepth = {}", prefetch.streams, prefetch.depth)
}

fn nodes(nodes: &[Node], out: &mut String) -> std::fmt::Result {
    for group in nodes.chunk_by(|a, b| a == b) {
        let node = &group[0];
        writeln!(out, "\n[[nodes]]\ncount = {}\ncpus = {}", group.len(), node.cpus)?;
        writeln!(out, "cache_domains = {}", node.cache_domains)?;
        writeln!(out, "memory = \"{}\"", size::format(node.memory_bytes))?;
        if let Some(controller) = &node.controller {
            write!(out, "controller = {{ bandwidth_mb_s = {}", controller.bandwidth_mb_s)?;
            write!(out, ", latency_ns = {}", controller.latency_ns)?;
            writeln!(out, ", burst_latency_ns = {} }}", controller.burst_latency_ns)?;
        }
    }
    Ok(())
}

fn interconnect(machine: &Machine, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[interconnect]")?;
    matrix("distances", &machine.distances, out)?;
    matrix("latency_ns", &machine.latency_ns, out)?;
    writeln!(out, "links = [")?;
    for link in &machine.links {
        write!(out, "  {{ from = {}, to = {}", link.from, link.to)?;
        writeln!(out, ", bandwidth_mb_s = {} }},", link.bandwidth_mb_s)?;
    }
    writeln!(out, "]\nroutes = [")?;
    for (accessing, row) in machine.routes.iter().enumerate() {
        for (holding, route) in row.iter().enumerate() {
            if route.links.len() < 2 && route.limit_mb_s.is_none() {
                continue;
            }
            let inner = route.links.split_last().map_or(&[][..], |(_, inner)| inner);
            let via: Vec<usize> = inner.iter().map(|&link| machine.links[link].to).collect();
            write!(out, "  {{ accessing = {accessing}, holding = {holding}, via = {via:?}")?;
            if let Some(limit) = route.limit_mb_s {
                write!(out, ", limit_mb_s = {limit}")?;
            }
            writeln!(out, " }},")?;
        }
    }
    writeln!(out, "]")
}

fn tail(machine: &Machine, out: &mut String) -> std::fmt::Result {
    let transfer = &machine.transfer_ns;
    writeln!(out, "\n[transfer]\nsame_domain_ns = {}", transfer.same_domain_ns)?;
    writeln!(out, "same_node_ns = {}", transfer.same_node_ns)?;
    writeln!(out, "forwards_clean = {}", transfer.forwards_clean)?;
    matrix("matrix_ns", &transfer.remote_ns, out)?;
    let pmu = &machine.pmu;
    let vendor = match pmu.vendor {
        Vendor::Intel => "intel",
        Vendor::Amd => "amd",
        Vendor::Arm => "arm",
    };
    writeln!(out, "\n[pmu]\ncounters = {}\nvendor = \"{vendor}\"", pmu.counters)?;
    if let Some(processor) = pmu.processor {
        writeln!(out, "processor = \"{}\"", processor.name())?;
    }
    writeln!(out, "sample_cost_ns = {}\nread_cost_ns = {}", pmu.sample_cost_ns, pmu.read_cost_ns)?;
    let lab = &machine.lab;
    if lab.cpus_per_node == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\n[lab]\nslow_motion = {}\nmanager_slow_motion = {}\ncpus_per_node = {}",
        lab.slow_motion, lab.manager_slow_motion, lab.cpus_per_node
    )?;
    writeln!(out, "cache_domains_per_node = {}", lab.cache_domains_per_node)?;
    writeln!(out, "memory_mib = {}\ncache_scale = {}", lab.memory_mib, lab.cache_scale)?;
    writeln!(out, "l2_scale = {}\nquantum_ns = {}", lab.l2_scale, lab.quantum_ns)?;
    writeln!(out, "applied = {}", lab.applied)
}

fn matrix<T: Display>(name: &str, rows: &[Vec<T>], out: &mut String) -> std::fmt::Result {
    writeln!(out, "{name} = [")?;
    for row in rows {
        let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
        writeln!(out, "  [{}],", cells.join(", "))?;
    }
    writeln!(out, "]")
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
