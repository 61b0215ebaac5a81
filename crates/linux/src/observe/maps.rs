//! What a process's `numa_maps` tells: memory by node, and whether it has a memory policy of its own. Read
//! rarely, for the kernel holds the process's map lock meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use rondpoint_core::{Bytes, Topology};

use super::tasks::read;
use crate::LinuxError;
use crate::parse::numa_maps::{self, Mapping};

/// Reading takes about 2 ms for 256 MiB of small pages (measured on a 2-CPU virtual machine); above this
/// size `numa_maps` is read once, for the policy, and not again.
const NUMA_MAPS_LIMIT: Bytes = Bytes(1 << 30);
/// The next reading waits so many times as long as the last one took: two thousandths of the time.
const REST: u32 = 500;
/// Where nodes fill and empty within a second, nobody acts on it.
const INTERVAL: Duration = Duration::from_secs(1);
/// The readings of a process become rarer, each interval twice the one before, up to this: most memory
/// stays where it was put at the start.
const LONGEST: Duration = Duration::from_secs(4);

/// When to read again, and what was found.
#[derive(Debug, Default)]
pub(super) struct Maps {
    next: Option<Instant>,
    interval: Option<Duration>,
    own_policy: bool,
}

impl Maps {
    /// Whether somebody chose where some of its memory comes from.
    pub(super) fn has_own_policy(&self) -> bool {
        self.own_policy
    }

    /// Memory by node; `None` where the last answer still has to do, and where the file may not be read.
    pub(super) fn read(
        &mut self,
        path: &Path,
        topology: &Topology,
        resident: Bytes,
    ) -> Result<Option<Vec<Bytes>>, LinuxError> {
        if topology.node_count() == 1 {
            return Ok(Some(vec![resident]));
        }
        let begin = Instant::now();
        let rests = self.next.is_some_and(|next| begin < next || resident > NUMA_MAPS_LIMIT);
        if rests {
            return Ok(None);
        }
        // Another user's process: its maps may not be read, its threads may be watched all the same.
        let maps = match read(path, numa_maps::parse) {
            Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => None,
            other => other?,
        };
        let interval = self.interval.map_or(INTERVAL, |last| (2 * last).min(LONGEST));
        self.interval = Some(interval);
        self.next = Some(begin + (begin.elapsed() * REST).max(interval));
        let Some(maps) = maps else { return Ok(None) };
        self.own_policy = maps.iter().any(Mapping::has_own_policy);
        let mut by_node = vec![Bytes(0); topology.node_count()];
        for (kernel_id, bytes) in numa_maps::bytes_by_node(&maps) {
            if let Some(node) = topology.node_of_kernel_id(kernel_id) {
                by_node[node] = Bytes(bytes);
            }
        }
        Ok(Some(by_node))
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    #[test]
    fn maps_are_read_ever_more_rarely_and_those_of_a_large_process_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numa_maps");
        let machine = synthetic::parse("node:2 core:1").unwrap();
        std::fs::write(&path, "1000 local anon=2 N0=2 N1=3 kernelpagesize_kB=4\n").unwrap();
        let mut maps = Maps::default();
        let found = maps.read(&path, &machine, Bytes(1 << 40)).unwrap();
        assert_eq!(found, Some(vec![Bytes(8192), Bytes(12288)]));
        assert!(!maps.has_own_policy(), "local is what everybody has");
        assert_eq!(maps.read(&path, &machine, Bytes(1)).unwrap(), None, "too early");
        maps.next = Some(Instant::now());
        assert_eq!(maps.read(&path, &machine, Bytes(1 << 40)).unwrap(), None, "too large");
        std::fs::write(&path, "1000 interleave:0-1 anon=2 N0=2\n").unwrap();
        assert_eq!(
            maps.read(&path, &machine, Bytes(1)).unwrap(),
            Some(vec![Bytes(8192), Bytes(0)])
        );
        assert!(maps.has_own_policy());
        assert_eq!(maps.interval, Some(Duration::from_secs(2)));
        maps.next = None;
        maps.read(&path, &machine, Bytes(1)).unwrap();
        maps.next = None;
        maps.read(&path, &machine, Bytes(1)).unwrap();
        assert_eq!(maps.interval, Some(LONGEST));
    }
}
