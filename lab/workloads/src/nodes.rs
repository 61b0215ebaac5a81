//! The CPUs of a node as the kernel tells them, and the CPUs that this process may use.

use crate::report::Failure;
use crate::system;

/// The CPUs of a node that this process may use, by `/sys/devices/system/node`.
pub(crate) fn cpus_of_node(node: u32) -> Result<Vec<usize>, Failure> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure(format!("node {node}: cannot read {path}: {error}")))?;
    let listed = cpu_list(&text)
        .ok_or_else(|| Failure(format!("{path}: expected a CPU list like 0-3,8, got {text:?}")))?;
    let allowed = system::allowed_cpus()?;
    let cpus: Vec<usize> = listed.into_iter().filter(|cpu| allowed.contains(cpu)).collect();
    if cpus.is_empty() {
        return Err(Failure(format!("node {node} has no CPU that this process may use")));
    }
    Ok(cpus)
}

/// The node that a CPU belongs to: the kernel links it beside the CPU.
pub(crate) fn node_of_cpu(cpu: usize) -> Result<u32, Failure> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}");
    let entries = std::fs::read_dir(&path)
        .map_err(|error| Failure(format!("CPU {cpu}: cannot list {path}: {error}")))?;
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    let found = entries.filter_map(|entry| node(entry.ok()?.file_name())).next();
    found.ok_or_else(|| Failure(format!("{path}: the kernel does not say the CPU's node")))
}

/// The nodes that have memory.
pub(crate) fn nodes_with_memory() -> Result<Vec<u32>, Failure> {
    let path = "/sys/devices/system/node/has_memory";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure(format!("cannot read {path}: {error}")))?;
    let nodes = cpu_list(&text)
        .ok_or_else(|| Failure(format!("{path}: expected a list like 0-3,8, got {text:?}")))?;
    Ok(nodes.into_iter().filter_map(|node| u32::try_from(node).ok()).collect())
}

/// Reads the kernel's list format, `0-3,8,10-11`; an empty line is an empty list.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // The kernel's own bound on CPU numbers.
        if first > last || last >= 8192 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(cpu_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpu_list("5\n"), Some(vec![5]));
        assert_eq!(cpu_list("\n"), Some(vec![]));
        for text in ["3-1", "a", "1-", "0-99999999"] {
            assert_eq!(cpu_list(text), None, "{text}");
        }
    }
}
