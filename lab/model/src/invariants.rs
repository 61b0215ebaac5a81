//! Invariants that must hold after any sequence of accesses, checked on the whole state.

use proptest::prelude::*;
use rondpoint_machine::{Cache, Caches, Machine, Prefetch};

use crate::directory::Owner;
use crate::event::Event;
use crate::hardware::Hardware;
use crate::memory::Region;
use crate::source::Access;
use crate::traffic::Kind;

/// Two nodes with two domains of two CPUs each and tiny caches, so that everything gets evicted;
/// and a third node with memory only.
pub(crate) fn tiny(forwards_clean: bool) -> Machine {
    let words = "nodes=2 memory_only=1 cpus=4 domains=2 misses=3 shape=full";
    let mut machine = Machine::synthetic(words).expect("a good description");
    machine.name = "tiny".to_owned();
    let cache = |bytes, ways, latency_ns| Cache { bytes, ways, latency_ns };
    machine.caches = Caches {
        // A set of the first level may fall into one set of the second, all of it spared.
        l1: cache(8 * 64, 4, 1.0),
        l2: cache(16 * 64, 4, 4.0),
        llc: cache(24 * 64, 4, 15.0),
    };
    machine.prefetch = Prefetch { streams: 2, depth: 3 };
    machine.transfer_ns.forwards_clean = forwards_clean;
    machine.lab.quantum_ns = 20_000;
    machine
}

pub(crate) fn memory() -> Vec<Region> {
    (0..3).map(|node| Region { start: (node as u64) << 20, bytes: 1 << 20, node }).collect()
}

/// One step of a random program.
#[derive(Debug, Clone)]
enum Step {
    Touch { cpu: usize, line: u64, store: bool, alias: bool },
    Flush { cpu: usize },
    FlushPage { cpu: usize, line: u64 },
    Quantum,
}

fn step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![3 => 0u64..48, 1 => 0u64..3 * 16384];
    prop_oneof![
        60 => (0usize..8, line.clone(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(
            |(cpu, line, store, alias)| Step::Touch { cpu, line, store, alias }
        ),
        1 => (0usize..8).prop_map(|cpu| Step::Flush { cpu }),
        1 => (0usize..8, line).prop_map(|(cpu, line)| Step::FlushPage { cpu, line }),
        1 => Just(Step::Quantum),
    ]
}

/// Two names of each line: the physical address, and one far above it.
const ALIAS: u64 = 1 << 40;

/// Runs the steps as closed-loop vCPUs would.
struct Run {
    hardware: Hardware,
    now_ps: [u64; 8],
    instructions: u64,
}

impl Run {
    fn new(forwards_clean: bool) -> Run {
        let machine = tiny(forwards_clean);
        let hardware = Hardware::new(&machine, &memory()).expect("the tiny machine is good");
        Run { hardware, now_ps: [0; 8], instructions: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Touch { cpu, line, store, alias } => {
                let paddr = line * 64;
                let vaddr = if alias { ALIAS + paddr } else { paddr };
                self.instructions += 1;
                self.now_ps[cpu] += 1000;
                if !self.hardware.first_level_hit(cpu, vaddr, store) {
                    let (now_ps, instructions) = (self.now_ps[cpu], self.instructions);
                    let loaded = Some(line << 12);
                    let access = Access { vaddr, paddr, store, loaded, now_ps, instructions };
                    self.now_ps[cpu] += self.hardware.access(cpu, access).stall_ps;
                }
            }
            Step::Flush { cpu } => self.hardware.flush_first_level(cpu),
            Step::FlushPage { cpu, line } => self.hardware.flush_page(cpu, line * 64),
            Step::Quantum => self.hardware.end_quantum(20_000_000),
        }
    }
}

fn check_directory(hardware: &Hardware) {
    for (line, entry) in hardware.directory.lines() {
        let (sharers, domains) = (entry.sharers(), entry.domains());
        match entry.owner() {
            Owner::Nobody => {}
            Owner::Cpu(cpu) => {
                assert_eq!((sharers, domains), (1 << cpu, 0), "line {line} owned by cpu {cpu}");
            }
            Owner::Domain(domain) => {
                assert_eq!(domains, 1 << domain, "line {line} owned by domain {domain}");
                assert_eq!(sharers & !hardware.groups.cpus_of_domain[domain], 0, "line {line}");
            }
        }
    }
}

fn check_caches(hardware: &Hardware) {
    let mut held = 0;
    for (index, cpu) in hardware.cpus.iter().enumerate() {
        for line in cpu.second.lines() {
            assert!(hardware.directory.get(line).sharers() >> index & 1 == 1, "line {line}");
            held += 1;
        }
        let first: Vec<_> = cpu.first.lines().collect();
        let second: Vec<_> = cpu.second.lines().collect();
        for (line, _) in &first {
            assert!(second.contains(line), "line {line}: the second level includes the first");
        }
        for (virtual_line, writable) in cpu.first.filter.entries() {
            let line = (virtual_line % (ALIAS >> 6)) as u32;
            assert!(first.contains(&(line, virtual_line)), "filter entry {virtual_line:#x}");
            if writable {
                let owner = hardware.directory.get(line).owner();
                assert_eq!(owner, Owner::Cpu(index), "line {line} takes stores");
            }
        }
    }
    for (index, cache) in hardware.last_levels.iter().enumerate() {
        for line in cache.lines() {
            assert!(hardware.directory.get(line).domains() >> index & 1 == 1, "line {line}");
            held += 1;
        }
    }
    let listed = hardware.directory.lines().map(|(_, entry)| {
        entry.sharers().count_ones() as usize + entry.domains().count_ones() as usize
    });
    assert_eq!(listed.sum::<usize>(), held, "the directory lists every copy and no other");
}

fn check_counters(hardware: &Hardware, touches: u64) {
    let total = |event| hardware.cpus.iter().map(|cpu| cpu.counters.get(event)).sum::<u64>();
    assert_eq!(total(Event::MemAny), touches);
    assert_eq!(total(Event::L2Miss), total(Event::LlcHit) + total(Event::LlcMiss));
    let caches = [Event::LocalFwd, Event::LocalHitm, Event::RemoteFwd, Event::RemoteHitm];
    let caches = caches.map(total).iter().sum::<u64>();
    assert_eq!(total(Event::LlcMiss), caches + total(Event::DramRequests));
    let by_node = (0..16).filter_map(Event::dram_node).map(total).sum::<u64>();
    assert_eq!(total(Event::DramReads), by_node);
    let traffic = hardware.traffic();
    let lines = |kinds: &[Kind]| -> u64 {
        let pairs = (0..3).flat_map(|a| (0..3).map(move |h| (a, h)));
        pairs.map(|(a, h)| kinds.iter().map(|&k| traffic.lines(k, a, h)).sum::<u64>()).sum()
    };
    assert_eq!(lines(&Kind::DRAM_READS), by_node);
    assert_eq!(lines(&[Kind::Store]), total(Event::DramStores));
    assert_eq!(lines(&[Kind::Writeback]), total(Event::Writebacks));
    assert_eq!(lines(&[Kind::Transfer]), total(Event::RemoteFwd) + total(Event::RemoteHitm));
    assert!(total(Event::PrefetchUsed) >= total(Event::PrefetchLate));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// One owner where modified, every copy listed, filter ⊆ first ⊆ second level, sums conserved.
    #[test]
    fn the_state_is_coherent_after_any_steps(
        forwards_clean in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut run = Run::new(forwards_clean);
        let mut touches = 0;
        for step in &steps {
            touches += u64::from(matches!(step, Step::Touch { .. }));
            run.step(step);
            check_directory(&run.hardware);
        }
        check_caches(&run.hardware);
        check_counters(&run.hardware, touches);
    }

    /// The same steps give the same state, bit for bit.
    #[test]
    fn the_same_steps_give_the_same_answers(steps in prop::collection::vec(step(), 1..200)) {
        let run = || {
            let mut run = Run::new(true);
            steps.iter().for_each(|step| run.step(step));
            (run.now_ps, format!("{:?}", run.hardware.traffic()))
        };
        prop_assert_eq!(run(), run());
    }

    /// What was last stored can be seen by its storer without a miss only while it owns the line.
    #[test]
    fn a_store_by_another_shuts_the_filter(cpu in 0usize..8, other in 0usize..8, line in 0u64..3 * 16384) {
        prop_assume!(cpu != other);
        let mut run = Run::new(false);
        let touch = |cpu, store| Step::Touch { cpu, line, store, alias: false };
        run.step(&touch(cpu, true));
        prop_assert!(run.hardware.first_level_hit(cpu, line * 64, true));
        run.step(&touch(other, false));
        prop_assert!(!run.hardware.first_level_hit(cpu, line * 64, true), "shared now");
        prop_assert!(run.hardware.first_level_hit(cpu, line * 64, false));
        run.step(&touch(other, true));
        prop_assert!(!run.hardware.first_level_hit(cpu, line * 64, false), "gone");
    }
}

#[test]
fn devices_cost_nothing_and_are_never_cached() {
    let mut run = Run::new(false);
    for _ in 0..2 {
        run.step(&Step::Touch { cpu: 0, line: (3 << 20) / 64, store: true, alias: false });
    }
    assert_eq!(run.hardware.counters(0).get(Event::Outside), 2);
    assert_eq!(run.now_ps[0], 2000);
    check_counters(&run.hardware, 2);
}

#[test]
fn impossible_machines_and_maps_are_refused() {
    let message = |machine: &Machine, regions: &[Region]| {
        Hardware::new(machine, regions).expect_err("impossible").to_string()
    };
    let mut machine = tiny(true);
    machine.core.outstanding_misses = 0;
    assert_eq!(
        message(&machine, &memory()),
        "machine tiny: 0 outstanding misses, the hardware model takes 1 to 32"
    );
    let mut machine = tiny(true);
    machine.nodes[0].cpus = 40;
    assert!(message(&machine, &memory()).contains("44 vCPUs"));
    let mut machine = tiny(true);
    machine.caches.l2.bytes = 100;
    assert!(message(&machine, &memory()).contains("the second level of 100 bytes and 4 ways"));
    let mut machine = tiny(true);
    machine.nodes[2].controller = None;
    assert_eq!(
        message(&machine, &memory()),
        "memory region 2: node 2 has no memory controller in machine tiny"
    );
}
