//! Whether copies fit: the caller's budget, the free memory of each node, the cgroup's limit.

use std::collections::BTreeMap;

use rondpoint_linux::{Root, room};

use crate::{NodeMap, Options, Refusal};

/// A node keeps one part in this many of its memory free of copies for other programs (our choice).
const RESERVE: u64 = 16;

/// Checks that a copy of `length` bytes fits at every place, beside `held` bytes of earlier copies.
pub(crate) fn check(
    root: &Root,
    map: &NodeMap,
    length: u64,
    held: u64,
    options: &Options,
) -> Result<(), Refusal> {
    let needed = length.saturating_mul(map.places().len() as u64);
    if let Some(budget) = options.budget_bytes
        && needed.saturating_add(held) > budget
    {
        return Err(Refusal::Budget { needed, held, budget });
    }
    let mut by_node = BTreeMap::new();
    for place in map.places() {
        *by_node.entry(place.node).or_insert(0u64) += length;
    }
    for (node, needed) in by_node {
        let room = room::of_node(root, node)?;
        let free = room.free_bytes.saturating_sub(room.total_bytes / RESERVE);
        if needed > free {
            return Err(Refusal::NodeFull { node, needed, free });
        }
    }
    match room::of_cgroup(root)? {
        Some(free) if needed > free => Err(Refusal::CgroupFull { needed, free }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::Place;

    const MIB: u64 = 1 << 20;

    /// Two nodes of 160 MiB, with this much free.
    fn machine(free_mib: [u64; 2]) -> (TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        for (node, free) in free_mib.iter().enumerate() {
            let folder = root.in_sys(format!("devices/system/node/node{node}"));
            fs::create_dir_all(&folder).unwrap();
            let (total, free) = (160 * 1024, free * 1024);
            let text =
                format!("Node {node} MemTotal: {total} kB\nNode {node} MemFree: {free} kB\n");
            fs::write(folder.join("meminfo"), text).unwrap();
        }
        (directory, root)
    }

    fn two_nodes() -> NodeMap {
        let places = [0, 1].map(|node| Place { node, cpus: vec![node] });
        NodeMap::by_hand(places.to_vec()).unwrap()
    }

    fn refusal(root: &Root, mib: u64, options: &Options) -> String {
        match check(root, &two_nodes(), mib * MIB, 8 * MIB, options) {
            Ok(()) => "fits".to_owned(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn copies_that_exceed_the_budget_with_earlier_ones_are_refused() {
        let (_directory, root) = machine([100, 100]);
        let options = Options { budget_bytes: Some(28 * MIB), ..Options::default() };
        assert_eq!(refusal(&root, 10, &options), "fits");
        assert_eq!(
            refusal(&root, 11, &options),
            "copies need 22 MiB beside 8 MiB of earlier ones; the budget is 28 MiB"
        );
    }

    #[test]
    fn the_node_that_is_too_full_is_named() {
        let (_directory, root) = machine([100, 30]);
        assert_eq!(refusal(&root, 20, &Options::default()), "fits");
        assert_eq!(
            refusal(&root, 21, &Options::default()),
            "node 1 has 20 MiB for copies and needs 21 MiB"
        );
    }

    #[test]
    fn two_places_on_one_node_need_twice_the_memory() {
        let (_directory, root) = machine([30, 30]);
        let places = [0, 1].map(|cpu| Place { node: 0, cpus: vec![cpu] });
        let map = NodeMap::by_hand(places.to_vec()).unwrap();
        let fits = |mib: u64| check(&root, &map, mib * MIB, 0, &Options::default()).is_ok();
        assert_eq!([fits(10), fits(11)], [true, false]);
    }

    #[test]
    fn the_tightest_cgroup_above_the_process_counts() {
        let (_directory, root) = machine([150, 150]);
        fs::create_dir_all(root.in_proc("self")).unwrap();
        fs::write(root.in_proc("self/cgroup"), "0::/jobs/one\n").unwrap();
        let one = root.in_sys("fs/cgroup/jobs/one");
        fs::create_dir_all(&one).unwrap();
        fs::write(one.join("memory.max"), "max\n").unwrap();
        assert_eq!(refusal(&root, 30, &Options::default()), "fits");
        let jobs = one.parent().unwrap();
        fs::write(jobs.join("memory.max"), format!("{}\n", 100 * MIB)).unwrap();
        fs::write(jobs.join("memory.current"), format!("{}\n", 60 * MIB)).unwrap();
        let cold = format!("anon 5\ninactive_file {}\n", 10 * MIB);
        fs::write(jobs.join("memory.stat"), cold).unwrap();
        assert_eq!(refusal(&root, 25, &Options::default()), "fits");
        assert_eq!(
            refusal(&root, 26, &Options::default()),
            "the cgroup's memory limit leaves 50 MiB and copies need 52 MiB"
        );
    }
}
