//! Trees of files that look like sysfs.

use std::fs;

use super::*;

/// A tree from lines `path: content` beneath `sys`, or beneath `proc` where the path says so.
fn check(text: &str, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    for line in text.lines() {
        let (path, content) = line.trim_start().split_once(": ").unwrap();
        let path = match path.strip_prefix("/proc/") {
            Some(path) => root.in_proc(path),
            None => root.in_sys("devices/system").join(path),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.replace('|', "\n")).unwrap();
    }
    let shown = match discover(&root) {
        Ok(found) => shown(&found.topology),
        Err(error) => error.to_string().replace(&directory.path().display().to_string(), ""),
    };
    assert_eq!(shown.trim(), expected.lines().map(str::trim).collect::<Vec<_>>().join("\n"));
}

fn shown(topology: &Topology) -> String {
    let nodes = (0..topology.node_count()).map(|node| {
        let distances: Vec<String> = (0..topology.node_count())
            .map(|other| topology.distance(node, other).to_string())
            .collect();
        let cpus: Vec<String> = topology
            .cpus_of_node(node)
            .iter()
            .map(|cpu| {
                let cpu = topology.cpu(cpu);
                let isolated = if cpu.isolated { "!" } else { "" };
                let (domain, core) = (cpu.cache_domain, cpu.core);
                format!("{}:d{domain}c{core}p{}{isolated}", cpu.kernel_id, cpu.package)
            })
            .collect();
        let (id, memory) = (topology.kernel_node(node), topology.memory(node).0 >> 10);
        format!("node{id} {memory} KiB [{}] {}", distances.join(" "), cpus.join(" "))
    });
    nodes.map(|line| line.trim().to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn two_sockets_with_sparse_numbers_and_a_memory_only_node() {
    check(
        "cpu/online: 0-1,4-5
        cpu/isolated: 5
        cpu/nohz_full: (null)
        cpu/cpu0/topology/physical_package_id: 0
        cpu/cpu1/topology/physical_package_id: 0
        cpu/cpu4/topology/physical_package_id: 3
        cpu/cpu5/topology/physical_package_id: 3
        cpu/cpu0/topology/core_cpus_list: 0-1
        cpu/cpu1/topology/core_cpus_list: 0-1
        cpu/cpu4/cache/index3/level: 3
        cpu/cpu4/cache/index3/shared_cpu_list: 4
        cpu/cpu5/cache/index3/level: 3
        cpu/cpu5/cache/index3/shared_cpu_list: 5
        node/online: 0,2,5
        node/node0/cpulist: 0-1
        node/node0/meminfo: Node 0 MemTotal: 100 kB|Node 0 MemFree: 50 kB
        node/node0/distance: 10 21 30
        node/node2/cpulist: 4-6
        node/node2/meminfo: Node 2 MemTotal: 200 kB|Node 2 MemFree: 50 kB
        node/node2/distance: 21 10 30
        node/node5/cpulist: 
        node/node5/meminfo: Node 5 MemTotal: 900 kB|Node 5 MemFree: 50 kB
        node/node5/distance: 30 30 10",
        "node0 100 KiB [10 21 30] 0:d0c0p0 1:d0c0p0
        node2 200 KiB [21 10 30] 4:d1c1p1 5:d2c2p1!
        node5 900 KiB [30 30 10]",
    );
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    check(
        "cpu/online: 0-1
        /proc/meminfo: MemTotal: 4096 kB|MemFree: 1 kB",
        "node0 4096 KiB [10] 0:d0c0p0 1:d0c1p0",
    );
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    check(
        "x: y",
        "/sys/devices/system/cpu/online: cannot open: No such file or directory (os error 2)",
    );
    check(
        "cpu/online: 0-z",
        "/sys/devices/system/cpu/online: line 1: expected a list such as 0-3,8, found `0-z`",
    );
}

#[test]
fn a_machine_without_usable_distances_gets_linux_defaults() {
    check(
        "cpu/online: 0
        node/online: 0-1
        node/node0/cpulist: 0
        node/node0/meminfo: Node 0 MemTotal: 100 kB|Node 0 MemFree: 50 kB
        node/node1/meminfo: Node 1 MemTotal: 100 kB|Node 1 MemFree: 50 kB
        node/node0/distance: 10",
        "node0 100 KiB [10 20] 0:d0c0p0
        node1 100 KiB [20 10]",
    );
}
