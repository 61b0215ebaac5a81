//! Converts a record of the kernel into a sample: CPUs and nodes in the topology's numbers, and the
//! source of the data.

use rondpoint_core::observation::{AddressSample, Source, UNKNOWN_NODE};
use rondpoint_core::units::PAGE_SHIFT;
use rondpoint_core::{Pid, Tid, Topology};

use super::sampler::Kind;
use crate::parse::zoneinfo::PhysicalMap;
use crate::perf::data_source::{ServedBy, Vendor};
use crate::perf::sample::{Origin, Sample};
use crate::perf::spe::Operation;

/// Conversion of samples from the kernel's numbers to the topology's.
pub struct Translation {
    cpus: Vec<u16>,
    nodes: Vec<u16>,
    /// Node of each CPU, by index of the topology.
    node_of_cpu: Vec<u16>,
    physical: PhysicalMap,
    vendor: Vendor,
    loads_beyond_cache: bool,
}

impl Translation {
    /// Tables for this machine.
    #[must_use]
    pub fn new(topology: &Topology, physical: PhysicalMap, vendor: Vendor) -> Self {
        let table = |pairs: &mut dyn Iterator<Item = (u32, usize)>| {
            let mut table: Vec<u16> = Vec::new();
            for (kernel_id, index) in pairs {
                let place = kernel_id as usize;
                table.resize(table.len().max(place + 1), u16::MAX);
                table[place] = index as u16;
            }
            table
        };
        let mut cpus = (0..topology.cpu_count()).map(|cpu| (topology.kernel_cpu(cpu), cpu));
        let mut nodes = (0..topology.node_count()).map(|node| (topology.kernel_node(node), node));
        let node_of_cpu =
            (0..topology.cpu_count()).map(|cpu| topology.node_of_cpu(cpu) as u16).collect();
        let (cpus, nodes) = (table(&mut cpus), table(&mut nodes));
        Self { cpus, nodes, node_of_cpu, physical, vendor, loads_beyond_cache: false }
    }

    /// Sets whether the event of loads samples only loads that missed the last-level cache. Such an
    /// event of Intel gives no level (`precise_datala_hsw`, arch/x86/events/intel/ds.c, v6.12).
    #[must_use]
    pub fn with_loads_beyond_cache(self, loads_beyond_cache: bool) -> Self {
        Self { loads_beyond_cache, ..self }
    }

    fn node(&self, physical: u64) -> u16 {
        let kernel_id = self.physical.node_of(physical);
        let index = kernel_id.and_then(|node| self.nodes.get(node as usize));
        index.copied().unwrap_or(UNKNOWN_NODE)
    }

    /// One sample in the topology's numbers; `None` if it is no access to user memory.
    #[must_use]
    pub fn sample(&self, sample: &Sample, kind: Kind) -> Option<AddressSample> {
        let (cpu, node) = self.place(sample.cpu, sample.address, sample.physical)?;
        let (source, store) = match kind {
            Kind::Faults => (Source::HintFault, false),
            Kind::Accesses => {
                let served = match sample.source.served_by(self.vendor)? {
                    ServedBy::Unknown if self.loads_beyond_cache && sample.source.is_load() => {
                        ServedBy::BeyondLastLevel
                    }
                    served => served,
                };
                (self.source(served, cpu, node), sample.source.is_store())
            }
        };
        let page = sample.page_bytes;
        let page_shift = if page.is_power_of_two() { page.trailing_zeros() as u8 } else { 12 };
        Some(AddressSample {
            pid: Pid(sample.process),
            tid: Tid(sample.thread),
            cpu,
            node,
            address: sample.address,
            latency_cycles: sample.latency_cycles(),
            page_shift: page_shift.max(12),
            source,
            store,
        })
    }

    /// One operation sampled by Arm's SPE, without the page's size, in the topology's numbers.
    #[must_use]
    pub(super) fn operation(&self, of: &Operation, origin: Origin) -> Option<AddressSample> {
        let of = match self.vendor {
            Vendor::Ampere => of.with_source_of_ampere(),
            _ => *of,
        };
        let (address, served) = (of.address?, of.served_by_neoverse()?);
        let (cpu, node) = self.place(origin.cpu, address, of.physical.unwrap_or(0))?;
        Some(AddressSample {
            pid: Pid(origin.process),
            tid: Tid(origin.thread),
            cpu,
            node,
            address,
            latency_cycles: of.latency_cycles.unwrap_or(0).try_into().unwrap_or(u32::MAX),
            page_shift: PAGE_SHIFT,
            source: self.source(served, cpu, node),
            store: of.is_store,
        })
    }

    /// CPU and node by index of the topology; `None` if the address is not user memory.
    fn place(&self, cpu: u32, address: u64, physical: u64) -> Option<(u16, u16)> {
        const KERNEL_HALF: u64 = 1 << 63;
        if address == 0 || address & KERNEL_HALF != 0 {
            return None;
        }
        let cpu = self.cpus.get(cpu as usize).copied().filter(|cpu| *cpu != u16::MAX)?;
        Some((cpu, self.node(physical)))
    }

    fn source(&self, served: ServedBy, cpu: u16, node: u16) -> Source {
        let own = self.node_of_cpu[usize::from(cpu)];
        source(served.with_home((node != UNKNOWN_NODE).then_some(node == own)))
    }
}

fn source(served: ServedBy) -> Source {
    match served {
        ServedBy::FirstLevel => Source::FirstLevel,
        ServedBy::Private => Source::Private,
        ServedBy::InFlight => Source::InFlight,
        ServedBy::LastLevel => Source::LastLevel,
        ServedBy::LocalCache { .. } => Source::CacheSameNode,
        ServedBy::RemoteCache { modified: false } => Source::CacheRemote,
        ServedBy::RemoteCache { modified: true } => Source::CacheRemoteModified,
        ServedBy::LocalDram | ServedBy::RemoteDram | ServedBy::SlowMemory { .. } => Source::Dram,
        ServedBy::RemoteUnknown | ServedBy::BeyondLastLevel | ServedBy::Unknown => Source::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::parse::zoneinfo::ZoneSpan;
    use crate::perf::data_source::DataSource;

    fn translation() -> Translation {
        translation_of(Vendor::Intel)
    }

    fn translation_of(vendor: Vendor) -> Translation {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let span = |node, first_frame| ZoneSpan { node, first_frame, frames: 16 };
        let physical = PhysicalMap::new(vec![span(0, 16), span(1, 32)], 4096);
        Translation::new(&machine, physical, vendor)
    }

    #[test]
    fn arms_remote_source_is_memory_where_the_page_is_remote() {
        const REMOTE: u64 = 2 | 1 << 5 | 0xf << 33 | 1 << 37;
        let translation = translation_of(Vendor::Arm);
        let sample = |cpu, frame: u64| Sample {
            cpu,
            address: 0x5008,
            physical: frame << 12,
            source: DataSource(REMOTE),
            ..Sample::default()
        };
        let source =
            |cpu, frame| translation.sample(&sample(cpu, frame), Kind::Accesses).unwrap().source;
        assert_eq!(source(3, 17), Source::Dram);
        assert_eq!(source(3, 33), Source::CacheRemoteModified);
        assert_eq!(source(3, 900), Source::Unknown);
    }

    #[test]
    fn a_source_of_spe_is_read_in_the_processors_own_numbers() {
        let source = |vendor, number| {
            let operation = Operation {
                address: Some(0x5008),
                physical: Some(33 << 12),
                is_memory: true,
                source: Some(number),
                ..Operation::default()
            };
            let origin = Origin { process: 7, thread: 8, cpu: 3 };
            translation_of(vendor).operation(&operation, origin).unwrap().source
        };
        assert_eq!(
            (source(Vendor::Arm, 0x8), source(Vendor::Ampere, 0x8)),
            (Source::Private, Source::FirstLevel)
        );
        assert_eq!(
            (source(Vendor::Arm, 0xe), source(Vendor::Ampere, 0x7)),
            (Source::Dram, Source::Dram)
        );
    }

    /// The word of a load without a level: `PERF_MEM_NA` with the operation of a load.
    #[test]
    fn a_load_without_a_level_is_memory_if_its_event_samples_misses_alone() {
        const LOAD: u64 = 2 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26 | 0xf << 33;
        const STORE: u64 = LOAD - 2 + 4;
        let found = |translation: &Translation, word, cpu, frame: u64| {
            let source = DataSource(word);
            let physical = frame << 12;
            let sample = Sample { cpu, address: 0x5008, physical, source, ..Sample::default() };
            let found = translation.sample(&sample, Kind::Accesses).unwrap();
            (found.source, found.node)
        };
        let of_misses = translation().with_loads_beyond_cache(true);
        assert_eq!(found(&of_misses, LOAD, 3, 33), (Source::Dram, 1), "local memory");
        assert_eq!(found(&of_misses, LOAD, 3, 17), (Source::Dram, 0), "remote memory");
        assert_eq!(found(&of_misses, LOAD, 3, 900), (Source::Unknown, UNKNOWN_NODE));
        assert_eq!(found(&of_misses, STORE, 3, 33), (Source::Unknown, 1), "another event");
        assert_eq!(found(&translation(), LOAD, 3, 33), (Source::Unknown, 1));
    }

    #[test]
    fn a_sample_is_put_into_the_topologys_numbers() {
        const LOAD_FROM_LOCAL_RAM: u64 = 2 | 0x82 << 5;
        let sample = Sample {
            process: 7,
            thread: 8,
            cpu: 3,
            address: 0x5008,
            physical: 33 << 12,
            weight: 250,
            source: DataSource(LOAD_FROM_LOCAL_RAM),
            ..Sample::default()
        };
        let found = translation().sample(&sample, Kind::Accesses).unwrap();
        assert_eq!((found.pid, found.tid, found.cpu, found.node), (Pid(7), Tid(8), 3, 1));
        assert_eq!((found.source, found.latency_cycles, found.store), (Source::Dram, 250, false));
        assert_eq!(found.page_address(), 0x5000);
    }

    #[test]
    fn kernel_addresses_unknown_cpus_and_what_is_no_access_are_dropped() {
        let translation = translation();
        let good = Sample { address: 0x1000, source: DataSource(2), ..Sample::default() };
        assert!(translation.sample(&good, Kind::Accesses).is_some());
        let refuse =
            |sample: Sample| assert!(translation.sample(&sample, Kind::Accesses).is_none());
        refuse(Sample { address: 0xffff_8000_0000_0000, ..good });
        refuse(Sample { address: 0, ..good });
        refuse(Sample { cpu: 9, ..good });
        refuse(Sample { source: DataSource(1), ..good });
    }

    #[test]
    fn a_fault_without_physical_address_has_no_node() {
        let sample = Sample { address: 0x20_0000, page_bytes: 2 << 20, ..Sample::default() };
        let found = translation().sample(&sample, Kind::Faults).unwrap();
        assert_eq!(
            (found.node, found.page_shift, found.source),
            (UNKNOWN_NODE, 21, Source::HintFault)
        );
    }
}
