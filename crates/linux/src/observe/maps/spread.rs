//! Estimates the memory of a large process on each node from a few of its pages. The work grows
//! with its mappings, not with its memory. The kernel takes the process's map lock for sixteen
//! pages at a time (`do_pages_stat`, mm/migrate.c, Linux 6.12).

use rondpoint_core::{Bytes, Pid, Topology};

use super::in_proportion;
use crate::parse::maps::Mapping;
use crate::syscall::memory::page_bytes;
use crate::syscall::pages::{PageStatus, locate};

/// Number of sampled pages. The standard error of a share is at most 1.6 %.
const PAGES: u64 = 1024;

/// The `resident` memory by node, in proportion to sampled pages. `None` if pages may not be
/// located, or none of them is present.
pub(super) fn by_pages(
    mappings: &[Mapping],
    pid: Pid,
    topology: &Topology,
    resident: Bytes,
) -> Option<Vec<Bytes>> {
    let process = i32::try_from(pid.0).ok()?;
    let accessible: Vec<Mapping> =
        mappings.iter().copied().filter(|mapping| mapping.is_accessible).collect();
    // A process that has ended, or of another user, gives no nodes.
    let found = locate(process, &evenly(&accessible)).ok()?;
    split(&found, topology, resident)
}

/// Addresses of pages at equal distances in the concatenation of all mappings.
fn evenly(mappings: &[Mapping]) -> Vec<u64> {
    let page = page_bytes() as u64;
    let pages_of = |mapping: &Mapping| mapping.end.saturating_sub(mapping.start) / page;
    let all = mappings.iter().map(pages_of).fold(0, u64::saturating_add);
    let step = (all / PAGES).max(1);
    let mut addresses = Vec::new();
    // Pages of this mapping before the next sampled one.
    let mut skip = step / 2;
    for mapping in mappings {
        let pages = pages_of(mapping);
        while skip < pages {
            addresses.push(mapping.start + skip * page);
            skip = skip.saturating_add(step);
        }
        skip -= pages;
    }
    addresses
}

/// The resident memory by node, in proportion to the present sampled pages.
fn split(found: &[PageStatus], topology: &Topology, resident: Bytes) -> Option<Vec<Bytes>> {
    let mut pages = vec![0_u64; topology.node_count()];
    for node in found.iter().flatten().filter_map(|node| topology.node_of_kernel_id(*node)) {
        pages[node] += 1;
    }
    in_proportion(resident, &pages)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::observe::maps::mappings;
    use crate::syscall::memory::Anonymous;

    fn mapping(start: u64, pages: u64) -> Mapping {
        let bytes = pages * page_bytes() as u64;
        Mapping { start, end: start + bytes, is_accessible: true, is_copy: false }
    }

    #[test]
    fn pages_of_each_mapping_are_asked_for_in_proportion_to_its_size() {
        let (small, large) = (mapping(0, 40_000), mapping(1 << 40, 120_000));
        let addresses = evenly(&[small, mapping(1 << 38, 1), large]);
        let of_small = addresses.iter().filter(|&&address| address < small.end).count();
        assert!(addresses.len().abs_diff(1024) <= 8, "{}", addresses.len());
        assert!(of_small.abs_diff(256) <= 4, "{of_small}");
        assert!(addresses.iter().all(|address| address % page_bytes() as u64 == 0));
        assert_eq!(evenly(&[mapping(4096, 3)]).len(), 3, "every page of a small process");
        assert!(evenly(&[mapping(4096, 0)]).is_empty());
    }

    #[test]
    fn the_resident_memory_is_split_as_the_pages_that_are_there() {
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let found = [Ok(0), Err(libc::ENOENT), Ok(1), Ok(1), Ok(1), Ok(77)];
        let bytes = split(&found, &machine, Bytes(4 << 40));
        assert_eq!(bytes, Some(vec![Bytes(1 << 40), Bytes(3 << 40)]));
        assert_eq!(split(&[Err(libc::ENOENT)], &machine, Bytes(1)), None);
    }

    #[test]
    fn this_process_has_its_memory_where_the_kernel_says() {
        let memory = Anonymous::new(64 * page_bytes()).unwrap();
        memory.touch_every(page_bytes());
        let machine = synthetic::parse("node:1 core:1").unwrap();
        let own = Pid(std::process::id());
        let mappings = mappings(Path::new("/proc/self/maps")).unwrap().unwrap();
        let found = by_pages(&mappings, own, &machine, Bytes(1 << 20));
        assert_eq!(found, Some(vec![Bytes(1 << 20)]));
    }
}
