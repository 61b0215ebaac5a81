//! QEMU's command line for a machine: nodes, CPUs, distances, and the memory of each node.

use rondpoint_machine::Machine;

/// A stretch of guest-physical memory that belongs to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) node: usize,
}

/// q35 keeps this much below 4 GiB when all of memory fits (`hw/i386/pc_q35.c`).
const LOW_MEMORY_WHOLE: u64 = 0xb000_0000;
/// Otherwise it splits at this address.
const LOW_MEMORY_SPLIT: u64 = 0x8000_0000;
const HIGH_MEMORY: u64 = 1 << 32;

/// Where QEMU's q35 machine puts the memory of each node.
pub(crate) fn memory_map(machine: &Machine) -> Vec<Region> {
    let total: u64 = machine.nodes.iter().map(|node| node.memory_bytes).sum();
    let low_end = if total <= LOW_MEMORY_WHOLE { total } else { LOW_MEMORY_SPLIT };
    let mut regions = Vec::new();
    let mut offset = 0;
    for (index, node) in machine.nodes.iter().enumerate() {
        let end = offset + node.memory_bytes;
        if offset < low_end && node.memory_bytes > 0 {
            let bytes = end.min(low_end) - offset;
            regions.push(Region { start: offset, bytes, node: index });
        }
        if end > low_end {
            let start = offset.max(low_end);
            let high = HIGH_MEMORY + start - low_end;
            regions.push(Region { start: high, bytes: end - start, node: index });
        }
        offset = end;
    }
    regions
}

/// `-smp`, `-m`, `-object` and `-numa` arguments.
pub(crate) fn arguments(machine: &Machine) -> Vec<String> {
    let mut out = Vec::new();
    let mut put = |key: &str, value: String| out.extend([key.to_owned(), value]);
    let with_cpus = machine.nodes.iter().filter(|node| node.cpus > 0).count();
    let most_cpus = machine.nodes.iter().map(|node| node.cpus).max().unwrap_or(1);
    let memory_mib: u64 = machine.nodes.iter().map(|node| node.memory_bytes >> 20).sum();
    let cpus = machine.cpu_count();
    put("-smp", format!("{cpus},sockets={with_cpus},cores={most_cpus},threads=1"));
    put("-m", format!("{memory_mib}M"));
    let mut socket = 0;
    for (index, node) in machine.nodes.iter().enumerate() {
        let mut numa = format!("node,nodeid={index}");
        if node.memory_bytes > 0 {
            let mib = node.memory_bytes >> 20;
            put("-object", format!("memory-backend-ram,id=memory{index},size={mib}M"));
            numa.push_str(&format!(",memdev=memory{index}"));
        }
        put("-numa", numa);
        for core in 0..node.cpus {
            let place = format!("socket-id={socket},core-id={core},thread-id=0");
            put("-numa", format!("cpu,node-id={index},{place}"));
        }
        socket += u32::from(node.cpus > 0);
    }
    for (accessing, row) in machine.distances.iter().enumerate() {
        for (holding, distance) in
            row.iter().enumerate().filter(|(holding, _)| *holding != accessing)
        {
            put("-numa", format!("dist,src={accessing},dst={holding},val={distance}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Machine {
        Machine::synthetic(text).expect("a machine")
    }

    #[test]
    fn small_memory_lies_in_one_piece() {
        let map = memory_map(&machine("nodes=2 cpus=1 memory=1G"));
        assert_eq!(map[1], Region { start: 1 << 30, bytes: 1 << 30, node: 1 });
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn large_memory_jumps_over_the_pci_hole() {
        let map = memory_map(&machine("nodes=3 cpus=1 memory=1536M"));
        let mib =
            |start: u64, bytes: u64, node| Region { start: start << 20, bytes: bytes << 20, node };
        assert_eq!(
            map,
            [mib(0, 1536, 0), mib(1536, 512, 1), mib(4096, 1024, 1), mib(5120, 1536, 2)]
        );
    }

    #[test]
    fn every_node_and_cpu_is_on_the_command_line() {
        let line = arguments(&machine("nodes=2 cpus=2 memory=256M")).join(" ");
        assert!(line.starts_with("-smp 4,sockets=2,cores=2,threads=1 -m 512M"), "{line}");
        assert!(line.contains("-numa cpu,node-id=1,socket-id=1,core-id=1,thread-id=0"), "{line}");
        assert!(line.contains("-numa dist,src=1,dst=0,val="), "{line}");
    }
}
