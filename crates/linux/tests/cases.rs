//! The cases of `fixtures/cases` that concern programs and the kernel's own settings.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../../../fixtures/tree.rs"]
mod tree;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use rondpoint_core::{Bytes, Pid};
use rondpoint_linux::observe::{kernel, tasks};
use rondpoint_linux::parse::{maps, numa_maps};
use rondpoint_linux::{Root, topology};

fn case(name: &str) -> tempfile::TempDir {
    let file = format!("{}/../../fixtures/cases/{name}.tree", env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    tree::unpack(&fs::read(file).unwrap(), folder.path());
    folder
}

/// Memory by node, and the kernel's numbers of the CPU and of the allowed CPUs of each thread.
fn process_42(root: &Path) -> (Vec<u64>, Vec<(u32, Vec<u32>)>) {
    let root = Root::captured(root);
    let machine = topology::discover(&root).unwrap().topology;
    let mut tasks = tasks::Tasks::new(root, Pid(42), None);
    let births = tasks::Births::default();
    let found = tasks.observe(&machine, births).unwrap();
    let process = found.iter().find(|process| process.pid == Pid(42)).unwrap();
    let memory = process.memory.clone().unwrap().iter().map(|Bytes(bytes)| *bytes).collect();
    let threads = process.threads.iter().map(|thread| {
        let allowed = thread.allowed.iter().map(|cpu| machine.kernel_cpu(cpu)).collect();
        (machine.kernel_cpu(thread.cpu), allowed)
    });
    (memory, threads.collect())
}

#[test]
fn a_thread_in_a_container_stays_on_the_cpu_that_the_kernel_tells() {
    let (memory, threads) = process_42(case("container-renumbers-cpus").path());
    assert_eq!(memory, [0, 1000 * 4096]);
    assert_eq!(threads, [(3, vec![3])]);
}

#[test]
fn shared_huge_pages_are_memory_of_the_process() {
    let (memory, _) = process_42(case("shared-huge-pages").path());
    assert_eq!(memory, [201_531_392, 8_388_608_000]);
}

#[test]
fn a_process_may_map_hundreds_of_thousands_of_files() {
    let folder = case("many-mappings");
    let process = folder.path().join("proc/42");
    let mut numa_maps =
        std::io::BufWriter::new(fs::File::create(process.join("numa_maps")).unwrap());
    let mut maps = std::io::BufWriter::new(fs::File::create(process.join("maps")).unwrap());
    for index in 0..200_000u64 {
        let (start, log, node) = (0x7f00_0000_0000 + index * 8192, index % 400, index % 2);
        let file = format!("/data/log-{log:04}/{index:020}.index");
        writeln!(numa_maps, "{start:x} default file={file} mapped=1 N{node}=1 kernelpagesize_kB=4")
            .unwrap();
        let (end, inode) = (start + 4096, index + 10);
        writeln!(maps, "{start:x}-{end:x} rw-s 00000000 fd:00 {inode}      {file}").unwrap();
    }
    drop((numa_maps, maps));
    let (memory, _) = process_42(folder.path());
    assert_eq!(memory, [100_000 * 4096; 2]);
}

#[test]
fn mounts_of_huge_pages_beneath_dev_are_shared_memory() {
    let text = fs::read(case("huge-page-mount").path().join("proc/42/maps")).unwrap();
    let shared = maps::parse_shared(&text).unwrap();
    let inodes: Vec<String> = shared.iter().map(|range| format!("{:?}", range.object)).collect();
    assert_eq!(inodes.len(), 2, "{inodes:?}");
    assert!(inodes[0].contains("77") && inodes[1].contains("79"), "{inodes:?}");
    assert_eq!(maps::parse_objects(&text).unwrap().len(), 2);
}

#[test]
fn absurd_counts_stay_at_the_largest_number() {
    let text = fs::read(case("numa-maps-sum-overflows").path().join("proc/42/numa_maps")).unwrap();
    let sums = numa_maps::bytes_by_node(&numa_maps::parse(&text).unwrap());
    assert_eq!(sums.values().copied().max(), Some(u64::MAX), "{sums:?}");
}

#[test]
fn zones_that_span_each_other_leave_frames_without_a_node() {
    let root = case("zones-interleaved");
    let map = kernel::physical_map(&Root::captured(root.path())).unwrap();
    let nodes = [0x3e_8000, 0x44_c000, 0x4b_0000, 0x51_4000].map(|address| map.node_of(address));
    for (found, node) in nodes.into_iter().zip([0, 1, 0, 1]) {
        assert!(found.is_none() || found == Some(node), "{nodes:?}");
    }
    assert_eq!(nodes[0], Some(0), "only node 0 spans it");
}

#[test]
fn a_kernel_that_only_promotes_does_not_balance() {
    let balancing = kernel::numa_balancing(&Root::captured(case("tiering-mode").path())).unwrap();
    assert!(!balancing.ordinary && balancing.tiering, "{balancing:?}");
}
