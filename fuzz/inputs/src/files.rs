//! Text of `/proc` and `/sys`, whole machines of such files, and lists of numbers.

use std::path::{Component, Path};

use rondpoint_linux::parse::{
    cpu_times, cpuinfo, cpulist, maps, meminfo, numa_maps, sched, schedstat, stat, status, vmstat,
    zoneinfo,
};
use rondpoint_linux::{Root, topology};

use crate::Target;

/// Any file of `/proc`, to every parser of one.
pub(crate) const PROC: Target = Target { name: "proc", run: proc, seeds: proc_seeds };

/// A machine: files as `path = content` in lines.
pub(crate) const SYSFS: Target = Target { name: "sysfs", run: sysfs, seeds: sysfs_seeds };

/// Lists of CPUs and nodes, as the kernel and users write them.
pub(crate) const NUMBER_LISTS: Target =
    Target { name: "number_lists", run: number_lists, seeds: number_list_seeds };

fn proc(bytes: &[u8]) -> bool {
    let _ = cpu_times::parse(bytes);
    let _ = cpuinfo::parse(bytes);
    let _ = maps::parse(bytes);
    let _ = maps::parse_shared(bytes);
    let _ = maps::parse_objects(bytes);
    let _ = meminfo::parse(bytes);
    let _ = meminfo::total_bytes(bytes);
    let _ = sched::parse(bytes);
    let _ = schedstat::parse(bytes);
    let _ = status::parse(bytes);
    let _ = vmstat::parse(bytes, |_| true);
    let _ = zoneinfo::parse(bytes);
    if let Ok(mappings) = numa_maps::parse(bytes) {
        let _ = numa_maps::bytes_by_node(&mappings);
        for mapping in mappings {
            let _ = (mapping.has_own_policy(), mapping.is_shared_file(), mapping.is_candidate());
        }
    }
    // Other parsers skip lines that they do not know, and so accept nearly everything.
    stat::parse(bytes).is_ok()
}

fn proc_seeds() -> Vec<Vec<u8>> {
    [
        "cpu  10 0 20 300 4 0 5 0 0 0\ncpu0 10 0 20 300 4 0 5 0 0 0\nctxt 17\n",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nstepping\t: 6\n\n",
        "7f00c0000000-7f00c4000000 rw-s 00001000 00:05 1030 /dev/shm/a b\n\
         7f00d0000000-7f00d0001000 r-xp 00000000 08:01 77 /lib/libc.so.6\n",
        "Node 0 MemTotal:       16000000 kB\nNode 0 MemFree:         8000000 kB\n",
        "mm->numa_scan_seq : 12\nnuma_pages_migrated : 3\nnuma_faults node=0 task_private=1\n",
        "1234567 890 12\n",
        "4242 (a (b) c) S 1 4242 4242 0 -1 4194304 90 0 0 0 7 3 0 0 20 0 5 0 8000 9000000 700 \
         18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0\n",
        "Name:\ta\nUid:\t0\t0\t0\t0\nVmRSS:\t  100 kB\nCpus_allowed_list:\t0-3\n",
        "numa_hint_faults 12\npgmigrate_success 9\n",
        "Node 0, zone   Normal\n  pages free     10\n        spanned  4096\n  start_pfn:           256\n",
        "7f00c0000000 bind:0-1 file=/dev/shm/a\\040b dirty=9 N0=5 N1=4 kernelpagesize_kB=4\n\
         55d000000000 default anon=3 dirty=3 N1=3 kernelpagesize_kB=2048 huge\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Files that one input makes at most.
const MOST_FILES: usize = 200;

fn sysfs(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines().take(MOST_FILES) {
        let Some((path, content)) = line.split_once(" = ") else { continue };
        let path = Path::new(path);
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if path.as_os_str().is_empty() || !is_below {
            continue;
        }
        let path = folder.path().join(path);
        let parent = path.parent().expect("it is below the folder");
        // A name may be too long, hold a NUL, or be a folder by now.
        let _ = std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, format!("{}\n", content.replace("\\n", "\n"))));
    }
    let root = Root::captured(folder.path());
    let Ok(found) = topology::discover(&root) else { return false };
    assert!(found.topology.node_count() > 0, "a machine has a node");
    true
}

fn sysfs_seeds() -> Vec<Vec<u8>> {
    let two_nodes = "proc/cpuinfo = processor\\t: 0\\nvendor_id\\t: GenuineIntel\n\
        sys/devices/system/cpu/online = 0-3\n\
        sys/devices/system/node/online = 0-1\n\
        sys/devices/system/node/has_memory = 0-1\n\
        sys/devices/system/node/node0/cpulist = 0-1\n\
        sys/devices/system/node/node1/cpulist = 2-3\n\
        sys/devices/system/node/node0/distance = 10 21\n\
        sys/devices/system/node/node1/distance = 21 10\n\
        sys/devices/system/node/node0/meminfo = Node 0 MemTotal: 1000 kB\\nNode 0 MemFree: 500 kB\n\
        sys/devices/system/node/node1/meminfo = Node 1 MemTotal: 1000 kB\\nNode 1 MemFree: 500 kB\n\
        sys/devices/system/cpu/cpu0/topology/physical_package_id = 0\n\
        sys/devices/system/cpu/cpu0/topology/core_cpus_list = 0\n\
        sys/devices/system/cpu/cpu0/cache/index3/level = 3\n\
        sys/devices/system/cpu/cpu0/cache/index3/size = 32M\n\
        sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list = 0-1\n\
        sys/devices/system/cpu/cpu0/cpufreq/base_frequency = 2400000\n";
    vec![two_nodes.as_bytes().to_vec()]
}

fn number_lists(bytes: &[u8]) -> bool {
    let read = [cpulist::parse(bytes), cpulist::parse_mask(bytes)];
    let is_accepted = read.iter().any(Result::is_ok);
    for numbers in read.into_iter().flatten() {
        let text = cpulist::format(&numbers);
        let again = cpulist::parse(text.as_bytes()).expect("its own text is accepted");
        assert_eq!(again, numbers);
    }
    is_accepted
}

fn number_list_seeds() -> Vec<Vec<u8>> {
    ["0-3,8,10-11\n", "0", "\n", "0-62:2/4", "00000000,000000ff", "1023"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
