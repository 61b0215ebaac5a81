//! What is opened on real processors, without them: `fixtures/pmu` has their units.
//!
//! The expected words are those of the vendors' manuals and of the kernel's drivers, worked out by
//! hand. They are type, config, config1, config2 and CPUs of perf_event_open(2).

mod machine;

use machine::{Machine, machine, machine_as, shown};
use rondpoint_core::Topology;
use rondpoint_core::topology::{Link, synthetic};
use rondpoint_linux::perf::data_source::Vendor;
use rondpoint_linux::perf::generation::{Metric, UncoreMetric};
use rondpoint_linux::perf::whole;

/// One core metric's event.
fn core(machine: &Machine, metric: Metric) -> String {
    let found = machine.available.core.iter().find(|(found, _)| *found == metric);
    found.map_or("none".to_string(), |(_, event)| shown(event))
}

/// The events of one metric outside the cores: how many, the first and the last.
fn uncore(machine: &Machine, metric: UncoreMetric) -> String {
    let of_metric = machine.available.uncore.iter().filter(|count| count.metric == metric);
    let all: Vec<_> = of_metric.collect();
    let one = |index: usize| format!("{} {}", all[index].unit, shown(&all[index].event));
    match all.len() {
        0 => "none".to_string(),
        1 => one(0),
        count => format!("{count}: {} … {}", one(0), one(count - 1)),
    }
}

fn samples(machine: &Machine) -> Vec<String> {
    machine.available.sample.iter().map(shown).collect()
}

/// The cells of the traffic matrix and how many events each has.
fn cells(machine: &Machine) -> Vec<((usize, usize), usize)> {
    let mut cells = std::collections::BTreeMap::new();
    for part in whole::traffic(&machine.available, &machine.topology) {
        *cells.entry(part.what).or_insert(0) += 1;
    }
    cells.into_iter().collect()
}

/// The machine with a link in each direction between its two nodes.
fn linked(cpus: &str) -> Topology {
    let mut description = synthetic::describe(cpus).expect("a machine");
    let link = |from, to| Link { from, to, bytes_per_s: 2e10 };
    description.links = vec![link(0, 1), link(1, 0)];
    Topology::new(description).expect("two nodes")
}

#[test]
fn ivy_bridge_has_an_extension_bit_in_the_events_of_its_links() {
    use UncoreMetric::*;
    let it = machine("ivybridge-ep");
    assert_eq!(it.available.generation, "ivybridge-ep");
    assert_eq!(core(&it, Metric::RemoteDram), "4:0xcd3");
    assert_eq!(core(&it, Metric::StallCycles), "4:0x10001a3");
    assert_eq!(samples(&it), ["4:0x1cd,0x1e"], "stores would need the same counter");
    assert!(!it.available.samples_stores);
    let reads = "4: uncore_imc_0 20:0x304 on 0,10 … uncore_imc_5 23:0x304 on 0,10";
    assert_eq!(uncore(&it, ControllerReads), reads);
    let sent = "4: uncore_qpi_0 30:0x200800 on 0,10 … uncore_qpi_1 31:0x200401 on 0,10";
    assert_eq!(uncore(&it, LinkOut), sent);
    let received = "4: uncore_qpi_0 30:0x200802 on 0,10 … uncore_qpi_1 31:0x200403 on 0,10";
    assert_eq!(uncore(&it, LinkIn), received);
    let remote = "2: uncore_ha_0 34:0x201 on 0,10 … uncore_ha_1 35:0x201 on 0,10";
    assert_eq!(uncore(&it, HomeReadsRemote), remote);
    assert!(uncore(&it, MissesLocal).starts_with("10: uncore_cbox_0 40:0x2a35 on 0,10"));
    let eight = [((0, 0), 8), ((0, 1), 8), ((1, 0), 8), ((1, 1), 8)];
    assert_eq!(cells(&it), eight, "eight caching agents stand for ten");
}

#[test]
fn skylake_filters_misses_in_the_upper_half_of_config1() {
    use UncoreMetric::*;
    let it = machine("skylake-sp");
    assert_eq!(core(&it, Metric::RemoteHitm), "4:0x4d3");
    let local = "16: uncore_cha_0 20:0x2135,0x4043200000000 on 0,16 … uncore_cha_17 35:0x2135,0x4043200000000 on 0,16";
    assert_eq!(uncore(&it, MissesLocal), local);
    assert_eq!(
        uncore(&it, LinkOut),
        "3: uncore_upi_0 60:0xf02 on 0,16 … uncore_upi_2 62:0xf02 on 0,16"
    );
    let choices = whole::traffic_choices(&it.available, &it.topology);
    let filters = |parts: &Vec<whole::Part<whole::Cell>>| {
        let filters = parts.iter().map(|part| part.event.attr.config1);
        filters.collect::<std::collections::BTreeSet<_>>().len()
    };
    let filters: Vec<usize> = choices.iter().map(filters).collect();
    assert_eq!(filters, [2, 1], "one unit cannot filter by both; at the home it needs no filter");
    let machine = Machine { topology: linked("node:2 core:16"), ..it };
    let parts = whole::links(&machine.available, &machine.topology);
    let seen: Vec<_> = parts.iter().map(|part| (part.what, part.cpu, part.scale)).collect();
    let of_node = |link, cpu| [(link, cpu, (64, 9)); 3];
    assert_eq!(seen, [of_node(0, 0), of_node(1, 16)].concat());
}

#[test]
fn ice_lake_spreads_the_mask_over_two_places() {
    use UncoreMetric::*;
    let it = machine("icelake-sp");
    assert_eq!((core(&it, Metric::LocalDram), it.available.counters), ("4:0x1d3".to_string(), 4));
    let reads = "8: uncore_imc_0 11:0xf04 on 0,32 … uncore_imc_11 18:0xf04 on 0,32";
    assert_eq!(uncore(&it, ControllerReads), reads, "not the free running ones");
    let local = uncore(&it, MissesLocal);
    assert!(local.starts_with("96: uncore_cha_0 40:0xc816fe00000135 on 0,32 "), "{local}");
    let remote = uncore(&it, MissesRemote);
    assert!(remote.ends_with(" uncore_cha_31 71:0xc8077e00000135 on 0,32"), "{remote}");
}

#[test]
fn sapphire_and_granite_rapids_and_sierra_forest_differ_where_they_should() {
    use UncoreMetric::*;
    let sapphire = machine("sapphire-rapids");
    assert_eq!(core(&sapphire, Metric::PrivateMisses), "4:0x1f25");
    assert_eq!(samples(&sapphire), ["4:0xfd3", "4:0x2cd"], "local memory is sampled too");
    assert!(sapphire.available.loads_beyond_cache && sapphire.available.samples_stores);
    let reads = "8: uncore_imc_0 11:0xcf05 on 0,56 … uncore_imc_7 18:0xcf05 on 0,56";
    assert_eq!(uncore(&sapphire, ControllerReads), reads);
    let granite = machine("granite-rapids");
    assert_eq!(samples(&granite), ["4:0x1cd,0x1e", "4:0x2cd"]);
    assert!(!granite.available.loads_beyond_cache, "its event of loads gives levels");
    let reads = "24: uncore_imc_0 11:0xcf05 on 0,120 … uncore_imc_11 22:0xcf06 on 0,120";
    assert_eq!(uncore(&granite, ControllerReads), reads);
    let forest = machine("sierra-forest");
    assert_eq!(samples(&forest), ["4:0x5d0,0x1e", "4:0x6d0"]);
    assert_eq!(core(&forest, Metric::RemoteHitm), "none");
    assert!(forest.available.absent.contains_key("remote_hitm"));
    let local = uncore(&forest, MissesLocal);
    assert!(local.starts_with("324: uncore_cha_0 100:0xc826fe00000135 on 0,144 "), "{local}");
    let rooms = [&sapphire, &granite, &forest].map(|it| it.available.counters);
    assert_eq!(rooms, [4, 4, 8], "memory events of the first two fit four of eight counters");
    let parts = whole::traffic(&forest.available, &forest.topology);
    assert_eq!(cells(&forest), [((0, 0), 24), ((0, 1), 24), ((1, 0), 24), ((1, 1), 24)]);
    // Eight of 108 agents, each counting three kinds of request.
    assert!(parts.iter().all(|part| part.scale == (108, 8)));
}

#[test]
fn clearwater_forest_tells_remote_caches_where_sierra_forest_does_not() {
    let it = machine_as("sierra-forest", Some("GenuineIntel 6 0xdd"));
    assert_eq!((it.available.generation.as_str(), it.available.counters), ("clearwater-forest", 8));
    let codes = [Metric::LlcHits, Metric::RemoteHitm, Metric::LocalHitm, Metric::LocalDram];
    assert_eq!(codes.map(|metric| core(&it, metric)), ["4:0x1cd1", "4:0x8d3", "4:0x8d4", "none"]);
    assert!(!it.available.absent.contains_key("remote_hitm"));
    assert_eq!(cells(&it), [((0, 0), 24), ((0, 1), 24), ((1, 0), 24), ((1, 1), 24)]);
}

#[test]
fn controllers_are_counted_for_each_node_or_not_at_all() {
    let nodes = |machine: &Machine, topology: &Topology| {
        let parts = whole::controller_lines(&machine.available, topology);
        let mut nodes: Vec<usize> = parts.iter().map(|part| part.what).collect();
        nodes.sort_unstable();
        (nodes.len(), nodes.first().copied(), nodes.last().copied())
    };
    let skylake = machine("skylake-sp");
    let (units, first, last) = nodes(&skylake, &skylake.topology);
    assert!(units > 0 && (first, last) == (Some(0), Some(1)));
    let parts = whole::controller_lines(&skylake.available, &skylake.topology);
    assert!(parts.iter().all(|part| part.scale == (64, 64)), "a count is a line");
    let halves = synthetic::parse("node:4 core:8").expect("two nodes in a socket");
    assert_eq!(nodes(&skylake, &halves).0, 0, "its units count for sockets");
    let first = machine_as("amd-zen2", Some("AuthenticAMD 23 0x1"));
    assert!(nodes(&first, &first.topology).0 > 0, "reads and writes together");
}

#[test]
fn relatives_with_the_same_units_differ_in_their_codes() {
    use UncoreMetric::*;
    let haswell = machine_as("ivybridge-ep", Some("GenuineIntel 6 0x3f"));
    assert_eq!(haswell.available.generation, "haswell-ep");
    assert_eq!(core(&haswell, Metric::RemoteDram), "4:0x4d3");
    assert_eq!(samples(&haswell), ["4:0x1cd,0x1e", "4:0x82d0"]);
    let first = machine_as("amd-zen2", Some("AuthenticAMD 23 0x1"));
    assert_eq!(first.available.generation, "amd-zen1");
    assert_eq!(core(&first, Metric::LocalDram), "none");
    let dhyana = machine_as("amd-zen2", Some("HygonGenuine 24 0x0"));
    assert_eq!(dhyana.available.generation, "amd-zen1");
    let later = machine_as("amd-zen2", Some("HygonGenuine 24 0x4"));
    assert_eq!((samples(&later), uncore(&later, LinkOut)), (samples(&dhyana), "none".to_string()));
    let third = machine_as("amd-zen2", Some("AuthenticAMD 25 0x1"));
    assert_eq!(core(&third, Metric::RemoteDram), "4:0x4044");
    assert_eq!(core(&third, Metric::LocalForward), "4:0x444");
    let sixth = machine_as("amd-zen4", Some("AuthenticAMD 26 0x50"));
    assert_eq!(sixth.available.generation, "amd-zen6");
    assert_eq!((uncore(&sixth, LinkOut), cells(&sixth)), ("none".to_string(), vec![]));
    assert!(uncore(&sixth, ControllerReads).starts_with("23: amd_umc_0 20:0x10a on 0 "));
    let second = machine_as("graviton3", Some("0x41 - 0xd49"));
    assert_eq!(second.available.generation, "neoverse-n2");
    assert_eq!(core(&second, Metric::LlcMisses), "8:0x37");
}

#[test]
fn the_old_northbridges_count_requests_by_target() {
    let tenth = machine("amd-fam10h");
    assert_eq!(tenth.available.generation, "amd-fam10h");
    let targets: Vec<String> =
        tenth.available.dram_to_node.iter().map(|(_, event)| shown(event)).collect();
    assert_eq!((&targets[0][..], &targets[3][..]), ("4:0x1000001e0", "4:0x1000008e0"));
    assert_eq!(targets[7], "4:0x1000080e0");
    let cells = cells(&tenth);
    assert_eq!(cells.len(), 64);
    assert!(cells.iter().all(|(_, events)| *events == 1), "one core of a node counts for all");
    let fifteenth = machine("amd-fam15h");
    let (_, event) = &fifteenth.available.dram_to_node[2];
    assert_eq!(shown(event), "10:0x1000004e0 on 0,8,16,24");
    assert_eq!(core(&fifteenth, Metric::Refills), "4:0x43");
}

#[test]
fn zen_2_counts_channels_and_links_of_its_fabric() {
    use UncoreMetric::*;
    let it = machine("amd-zen2");
    assert_eq!(core(&it, Metric::RemoteDram), "4:0x4043");
    assert_eq!(samples(&it), ["9:0x80000"]);
    let channels = "8: amd_df 12:0x3807 on 0,64 … amd_df 12:0x1000038c7 on 0,64";
    assert_eq!(uncore(&it, ControllerBytes), channels);
    let links = "4: amd_df 12:0x7000002c7 on 0,64 … amd_df 12:0x800000287 on 0,64";
    assert_eq!(uncore(&it, LinkOut), links);
    assert_eq!(uncore(&it, CacheMisses), "amd_l3 13:0x106 on 0,4,8,12,64,68,72,76");
    let period = |wanted| it.available.sampling_period(wanted);
    assert_eq!([period(None), period(Some(100_001)), period(Some(0))], [262_144, 100_016, 144]);
    assert_eq!(cells(&it), [], "the fabric does not tell who asked");
}

#[test]
fn zen_4_and_5_spread_event_and_mask_and_have_controllers_of_their_own() {
    use UncoreMetric::*;
    let it = machine("amd-zen4");
    assert_eq!(it.available.generation, "amd-zen4");
    assert_eq!(samples(&it), ["9:0x90000"]);
    let remote = "12: amd_df 12:0xb00fe1f on 0,96 … amd_df 12:0x20b00fedf on 0,96";
    assert_eq!(uncore(&it, HomeReadsRemote), remote);
    let reads = "23: amd_umc_0 20:0x10a on 0 … amd_umc_23 42:0x10a on 96";
    assert_eq!(uncore(&it, ControllerReads), reads);
    let writes = "23: amd_umc_0 20:0x20a on 0 … amd_umc_23 42:0x20a on 96";
    assert_eq!(uncore(&it, ControllerWrites), writes);
    assert_eq!(cells(&it), [((0, 0), 24), ((0, 1), 24), ((1, 0), 24), ((1, 1), 24)]);
    let fifth = machine("amd-zen5");
    assert_eq!(fifth.available.generation, "amd-zen5");
    let links = "6: amd_df 12:0xd0f003e5f on 0,96 … amd_df 12:0xe0f003e9f on 0,96";
    assert_eq!(uncore(&fifth, LinkOut), links);
    assert_eq!((uncore(&fifth, HomeReadsLocal), cells(&fifth)), ("none".to_string(), vec![]));
}

#[test]
fn neoverse_machines_are_told_apart_by_their_units() {
    use UncoreMetric::*;
    let altra = machine("altra-2");
    assert_eq!(core(&altra, Metric::RemoteDram), "8:0x31");
    let buffer = altra.available.buffer.as_ref().map(shown);
    assert_eq!(buffer.as_deref(), Some("9:0x600010003,0x0,0x64 on 0-159"));
    let homes = "2: arm_cmn_0 10:0xd0005 on 0 … arm_cmn_1 11:0xd0005 on 80";
    assert_eq!(uncore(&altra, ControllerBytes), homes, "its controllers tell no node");
    assert_eq!(
        uncore(&altra, CacheMisses),
        "2: arm_cmn_0 10:0x10005 on 0 … arm_cmn_1 11:0x10005 on 80"
    );
    let graviton = machine("graviton3");
    assert_eq!(graviton.available.generation, "neoverse-v1");
    assert_eq!(core(&graviton, Metric::StallCycles), "8:0x4005");
    assert_eq!((graviton.available.buffer.is_none(), graviton.available.uncore.len()), (true, 0));
    let grace = machine("grace-2");
    let read = "2: nvidia_scf_pmu_0 20:0x1a5 on 0 … nvidia_scf_pmu_1 21:0x1a5 on 72";
    assert_eq!(uncore(&grace, ControllerReads), read);
    let missing: Vec<&str> =
        grace.available.missing.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(missing, ["controller_bytes"; 3], "the fabric counts the caches");
}

#[test]
fn data_between_the_sockets_of_grace_is_what_one_writes_and_the_other_reads() {
    let grace = Machine { topology: linked("node:2 core:72"), ..machine("grace-2") };
    let parts = whole::links(&grace.available, &grace.topology);
    let seen: Vec<_> =
        parts.iter().map(|part| (part.what, shown(&part.event), part.cpu, part.scale)).collect();
    let part = |link, event: &str, cpu, scale| (link, event.to_string(), cpu, scale);
    let expected = [
        part(0, "20:0x1a1 on 0", 0, (1, 1)),
        part(0, "21:0x1a2 on 72", 72, (32, 1)),
        part(1, "21:0x1a1 on 72", 72, (1, 1)),
        part(1, "20:0x1a2 on 0", 0, (32, 1)),
    ];
    assert_eq!(seen, expected);
}

/// Node, event, CPU and scale of what counts the lines of each node's controllers.
fn controllers(machine: &Machine) -> Vec<(usize, String, u32, (u32, u32))> {
    let parts = whole::controller_lines(&machine.available, &machine.topology);
    parts.iter().map(|part| (part.what, shown(&part.event), part.cpu, part.scale)).collect()
}

#[test]
fn a_mesh_is_asked_for_the_home_nodes_that_it_lists() {
    use UncoreMetric::*;
    let newer = machine("mesh-of-hns");
    let expected = [
        (0, "10:0xd0200 on 0".to_string(), 0, (64, 64)),
        (1, "11:0xd0200 on 96".to_string(), 96, (64, 64)),
    ];
    assert_eq!(controllers(&newer), expected, "meshes 0 and 2");
    let misses = "2: arm_cmn_0 10:0x10200 on 0 … arm_cmn_2 11:0x10200 on 96";
    assert_eq!(uncore(&newer, CacheMisses), misses);
    let older = machine("altra-2");
    let lookups = "2: arm_cmn_0 10:0x20005 on 0 … arm_cmn_1 11:0x20005 on 80";
    assert_eq!(uncore(&older, CacheLookups), lookups);
}

#[test]
fn ampere_one_counts_reads_of_each_controller_and_only_its_successor_samples() {
    use UncoreMetric::*;
    let x = machine_as("ampere-one-2", Some("0xc0 - 0xac4"));
    assert_eq!(x.available.generation, "ampere-one-x");
    let buffer = x.available.buffer.as_ref().map(shown);
    assert_eq!(buffer.as_deref(), Some("9:0x600010003,0x0,0x64 on 0-383"));
    assert_eq!(x.available.vendor, Vendor::Ampere);
    assert!(!x.available.absent.contains_key("address_samples"));
    let it = machine("ampere-one-2");
    assert_eq!(it.available.generation, "ampere-one");
    let reads = "15: ampere_mcu_pmu_0 10:0xf on 0 … ampere_mcu_pmu_15 24:0xf on 192";
    assert_eq!(uncore(&it, ControllerReads), reads);
    let nodes: Vec<usize> = controllers(&it).iter().map(|(node, ..)| *node).collect();
    assert_eq!(nodes, [[0; 7].as_slice(), &[1; 8]].concat());
    assert!(it.available.buffer.is_none() && it.available.sample.is_empty());
    assert!(it.available.absent.contains_key("address_samples"));
}

#[test]
fn hybrid_and_unknown_processors_count_the_generic_events() {
    let hybrid = machine("hybrid");
    assert_eq!(hybrid.available.generation, "generic");
    assert_eq!(core(&hybrid, Metric::RemoteDram), "3:0x10006");
    assert!(hybrid.available.uncore.is_empty() && hybrid.available.sample.is_empty());
    let power = machine("power9");
    assert_eq!(core(&power, Metric::RemoteDram), "4:0x3c04a");
    let older = machine_as("power9", Some("POWER8 (raw)"));
    assert_eq!(core(&older, Metric::LlcMisses), "none", "its generic event is the first level's");
    let arm = machine("arm-other");
    assert_eq!(arm.available.generation, "generic-arm");
    let misses = [Metric::LlcMisses, Metric::RemoteDram].map(|metric| core(&arm, metric));
    assert_eq!(misses, ["8:0x37", "8:0x31"], "not those of the first level");
    let newer = machine_as("graviton3", Some("0x41 - 0xd84"));
    assert_eq!(newer.available.generation, "neoverse-v3");
    assert_eq!(core(&newer, Metric::StallCycles), "8:0x4005");
    assert_eq!(core(&newer, Metric::LlcMisses), "none", "its event is the second level's");
}
