//! A tree of sysfs with two memory nodes, mounted for one command on any host.

use std::path::Path;
use std::process::Command;

/// Where the kernel tells of memory nodes.
const NODES: &str = "/sys/devices/system/node";

/// Mounts the tree of its first argument and becomes the program of the others.
const AMONG_NODES: &str = "mount --bind \"$1\" /sys/devices/system/node && shift && exec \"$@\"";

/// A command that the following arguments name, among these nodes.
pub(crate) fn namespace(nodes: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", AMONG_NODES, "sh"]).arg(nodes);
    command
}

/// This host's first node, and one with as much memory and no CPU; `None` where that is not tried.
pub(crate) fn two_nodes() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    };
    let read = |name: &str| std::fs::read_to_string(format!("{NODES}/{name}")).expect("a node");
    let memory = read("node0/meminfo");
    write("node0/meminfo", &memory);
    write("node1/meminfo", &memory.replace("Node 0", "Node 1"));
    write("node0/cpulist", &read("node0/cpulist"));
    write("node1/cpulist", "\n");
    write("node0/distance", "10 20\n");
    write("node1/distance", "20 10\n");
    write("has_cpu", "0\n");
    for name in ["has_memory", "has_normal_memory", "online", "possible"] {
        write(name, "0-1\n");
    }
    let is_mounted = namespace(folder.path()).arg("true").status();
    if is_mounted.is_ok_and(|status| status.success()) {
        return Some(folder);
    }
    println!("not tried: only root mounts, and moves pages of processes beside it");
    None
}
