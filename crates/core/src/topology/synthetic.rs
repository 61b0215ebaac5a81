//! A machine in one line of text, for tests: `node:2 llc:2 core:4 pu:2 mem:16`.
//!
//! `node` nodes, each with `llc` cache domains of `core` cores with `pu` hardware threads and `mem`
//! GiB. Missing parts are 1, `mem` 16. `gbs:6` gives each controller 6 GB/s, `mhz:2300` the clock.
//! Every node is a package; CPUs are numbered node by node.

use super::{Cpu, Description, NodeDescription, Topology, TopologyError};
use crate::limits::{MAX_CPUS, MAX_NODES};
use crate::units::Bytes;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// The topology that a line describes.
///
/// # Errors
/// A word that is not `key:number`, an unknown key, or a machine that is too large.
pub fn parse(line: &str) -> Result<Topology, TopologyError> {
    Topology::new(describe(line)?)
}

/// The description that a line gives, without [`Topology::new`]'s check, so that a test can change
/// it.
///
/// # Errors
/// A word that is not `key:number`, an unknown key, or a machine that is too large.
pub fn describe(line: &str) -> Result<Description, TopologyError> {
    let (mut nodes, mut domains, mut cores, mut threads, mut gib) = (1, 1, 1, 1, 16);
    let (mut gigabytes_per_s, mut megahertz) = (None, None);
    for word in line.split_whitespace() {
        let error = || TopologyError {
            path: format!("synthetic machine, word `{word}`"),
            expected: "expected node:N, llc:N, core:N, pu:N, mem:GIB, gbs:GB/S or mhz:MHZ"
                .to_string(),
        };
        let (key, value) = word.split_once(':').ok_or_else(error)?;
        let number: usize = value.parse().map_err(|_| error())?;
        match key {
            "node" => nodes = number,
            "llc" => domains = number,
            "core" => cores = number,
            "pu" => threads = number,
            "mem" => gib = number as u64,
            "gbs" => gigabytes_per_s = Some(number as f64 * 1e9),
            "mhz" => megahertz = Some(number as f64 * 1e6),
            _ => return Err(error()),
        }
    }
    let all = [nodes, domains, cores, threads];
    let count = all.iter().try_fold(1, |product: usize, count| product.checked_mul(*count));
    let Some(count) = count.filter(|count| *count <= MAX_CPUS && nodes <= MAX_NODES) else {
        let path = "synthetic machine".to_string();
        let expected = format!("expected at most {MAX_NODES} nodes and {MAX_CPUS} CPUs");
        return Err(TopologyError { path, expected });
    };
    let node = |i| NodeDescription {
        kernel_id: i,
        memory: Bytes::from_gib(gib),
        controller_bytes_per_s: gigabytes_per_s,
    };
    let cpu = |i: usize| Cpu {
        kernel_id: i as u32,
        node: i / (threads * cores * domains),
        cache_domain: i / (threads * cores),
        core: i / threads,
        package: i / (threads * cores * domains),
        isolated: false,
    };
    let cpus: Vec<Cpu> = (0..count).map(cpu).collect();
    let mut description = Description::plain((0..nodes as u32).map(node).collect(), cpus);
    description.clock_hz = megahertz;
    Ok(description)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Link, Route};
    use alloc::vec;

    #[test]
    fn a_line_is_a_machine() {
        let machine = parse("node:2 llc:2 core:2 pu:2 mem:8").expect("a good line");
        assert_eq!((machine.node_count(), machine.domain_count(), machine.cpu_count()), (2, 4, 16));
        assert_eq!(machine.cpus_of_node(1).to_string(), "8-15");
        assert_eq!(machine.cpus_of_domain(3).to_string(), "12-15");
        assert_eq!(machine.cpu(13).core, 6);
        assert_eq!(machine.memory(1), Bytes::from_gib(8));
    }

    #[test]
    fn a_bad_word_is_named() {
        let error = parse("node:2 cores:4").expect_err("no such word");
        assert!(error.to_string().contains("`cores:4`"), "{error}");
        assert!(parse("node:0").expect_err("no node").to_string().contains("nodes"));
        assert!(parse("node:2 core:0").expect_err("no CPU").to_string().contains("cpus"));
    }

    #[test]
    fn contradictions_name_their_field() {
        let change = |change: fn(&mut Description)| {
            let mut description = describe("node:2 core:2").expect("a good line");
            change(&mut description);
            Topology::new(description).expect_err("a contradiction").path
        };
        assert_eq!(change(|d| d.cpus[3].node = 2), "cpus[3].node");
        assert_eq!(change(|d| d.cpus[3].kernel_id = 0), "cpus[3].kernel_id");
        assert_eq!(change(|d| d.nodes[1].kernel_id = 0), "nodes[1].kernel_id");
        assert_eq!(change(|d| d.distances[(1, 0)] = 5), "distances[1][0]");
        assert_eq!(change(|d| d.clock_hz = Some(f64::NAN)), "clock_hz");
        assert_eq!(
            change(|d| d.links = vec![Link { from: 0, to: 0, bytes_per_s: 1.0 }]),
            "links[0]"
        );
    }

    #[test]
    fn a_route_must_be_a_chain_from_holder_to_reader() {
        let mut description = describe("node:3 core:1").expect("a good line");
        let link = |from, to| Link { from, to, bytes_per_s: 1e9 };
        description.links = vec![link(0, 1), link(1, 2)];
        let mut routes = vec![vec![Route::default(); 3]; 3];
        routes[2][0] = Route { links: vec![0, 1] };
        description.routes = Some(routes.clone());
        assert!(Topology::new(description.clone()).is_ok());
        routes[2][0] = Route { links: vec![1, 0] };
        description.routes = Some(routes);
        assert_eq!(Topology::new(description).expect_err("backwards").path, "routes[2][0]");
    }
}
