//! Lines that vCPUs hand to each other.

mod driver;

use std::cell::Cell;
use std::rc::Rc;

use driver::{Driver, LINE, SPAN, Step, lab_machine, touch, within};
use rondpoint_lab_model::{Event, Source};

/// Two vCPUs take turns: each waits for its number in a shared word and writes the other's. Returns
/// ns per turn.
fn ping_pong_ns(name: &str, cpus: [usize; 2]) -> f64 {
    let turns = 2000;
    let mut driver = Driver::new(name);
    let word = Rc::new(Cell::new(0u64));
    for (me, cpu) in cpus.into_iter().enumerate() {
        let word = Rc::clone(&word);
        let mut mine = false;
        driver.start(cpu, move || {
            if mine {
                mine = false;
                word.set(word.get() + 1);
                return Some(Step::store(1, 4096));
            }
            if word.get() >= turns {
                return None;
            }
            mine = word.get() % 2 == me as u64;
            Some(Step::load(1, 4096))
        });
    }
    driver.run_finely();
    driver.time_ns() / turns as f64
}

#[test]
fn ping_pong_shows_the_transfer_latency() {
    let sam = lab_machine("sam-2");
    let near = ping_pong_ns("sam-2", [0, 1]);
    within("same domain", near, sam.transfer_ns.same_domain_ns, 10.0);
    let far = ping_pong_ns("sam-2", [0, sam.first_cpu(1)]);
    within("other node", far, sam.transfer_ns.remote_ns[0][1], 10.0);
    let chiplet = lab_machine("chiplet-cxl");
    let other = ping_pong_ns("chiplet-cxl", [0, 2]);
    assert_ne!(chiplet.domain_of_cpu(0), chiplet.domain_of_cpu(2));
    within("other domain", other, chiplet.transfer_ns.same_node_ns, 10.0);
    let carrefour = lab_machine("carrefour-a");
    let diagonal = ping_pong_ns("carrefour-a", [0, carrefour.first_cpu(2)]);
    within("two hops", diagonal, carrefour.transfer_ns.remote_ns[0][2], 10.0);
}

#[test]
fn false_sharing_costs_what_true_sharing_costs_and_padding_frees_of_it() {
    let run = |distance: u64| {
        let mut driver = Driver::new("sam-2");
        for (place, cpu) in [0, driver.cpu_of(1)].into_iter().enumerate() {
            let mut left = 2000;
            driver.start(cpu, move || {
                left -= 1;
                (left > 0).then(|| Step::store(20, 8192 + place as u64 * distance))
            });
        }
        driver.run_finely();
        (driver.time_ns(), driver.total(Event::RemoteHitm), driver.total(Event::Invalidations))
    };
    let (shared, hitm, invalidations) = run(8);
    let (padded, none, _) = run(64);
    assert!(shared > 5.0 * padded, "{shared:.0} ns against {padded:.0} ns");
    assert!(hitm > 1000 && invalidations > 1000, "{hitm} transfers, {invalidations} invalidations");
    assert_eq!(none, 0);
}

#[test]
fn a_modified_line_tells_which_vcpu_it_was_taken_from() {
    let mut driver = Driver::new("sam-2");
    let far = driver.cpu_of(1);
    let hardware = &mut driver.hardware;
    touch(hardware, 0, 0, true);
    let served = touch(hardware, far, 0, false).expect("a miss");
    assert_eq!(served.source, Source::CacheRemote { dirty: true, node: 0 });
    assert_eq!(served.transfer_from, Some(0));
    // It went home on the way, so a third reader finds it clean, here and there.
    let served = touch(hardware, far + 1, 0, false).expect("a miss");
    assert_eq!(served.source, Source::CacheSameNode { dirty: false, other_domain: false });
    assert_eq!(served.transfer_from, None);
    assert_eq!(hardware.counters(far).get(Event::Writebacks), 1);
    // The first holder's store takes both copies away, as far as the farthest one.
    let served = touch(hardware, 0, 0, true).expect("not writable any more");
    assert_eq!(served.latency_ps, (driver.machine.transfer_ns.remote_ns[0][1] * 1e3) as u64);
    let hardware = &mut driver.hardware;
    assert_eq!(hardware.counters(0).get(Event::Upgrades), 1);
    assert!(touch(hardware, far, 0, false).is_some());
}

#[test]
fn clean_lines_are_forwarded_between_nodes_where_the_machine_file_says_so() {
    let forwarded = Source::CacheRemote { dirty: false, node: 0 };
    for name in ["sam-2", "carrefour-a"] {
        for (forwards_clean, expected) in [(true, forwarded), (false, Source::Dram { node: 0 })] {
            let mut machine = lab_machine(name);
            machine.transfer_ns.forwards_clean = forwards_clean;
            let mut driver = Driver::with(machine);
            let far = driver.cpu_of(1);
            touch(&mut driver.hardware, 0, SPAN / 2, false);
            let served = touch(&mut driver.hardware, far, SPAN / 2, false).expect("a miss");
            assert_eq!(served.source, expected, "{name}");
            assert_eq!(served.transfer_from, None, "{name}: no cache had it modified");
        }
    }
}

#[test]
fn a_line_modified_inside_a_domain_stays_modified_in_its_last_level() {
    let mut driver = Driver::new("sam-2");
    let hardware = &mut driver.hardware;
    touch(hardware, 0, 0, true);
    let served = touch(hardware, 1, 0, false).expect("a miss");
    assert_eq!(served.source, Source::CacheSameNode { dirty: true, other_domain: false });
    assert_eq!(hardware.counters(1).get(Event::Writebacks), 0);
    // Another node's read sends it home; then all caches have it clean.
    let far = driver.machine.first_cpu(1);
    let served = touch(hardware, far, 0, false).expect("a miss");
    assert_eq!(served.source, Source::CacheRemote { dirty: true, node: 0 });
    assert_eq!(served.transfer_from, None, "a last-level cache is no vCPU");
    assert_eq!(hardware.counters(far).get(Event::Writebacks), 1);
}

#[test]
fn transfers_use_the_link_from_their_owner() {
    let mut driver = Driver::new("sam-2");
    let far = driver.cpu_of(1);
    for place in 0..100 {
        // Too far apart for a stream to be seen in them.
        touch(&mut driver.hardware, 0, place * 5 * LINE, true);
        touch(&mut driver.hardware, far, place * 5 * LINE, false);
    }
    driver.hardware.end_quantum(driver.machine.lab.quantum_ns * 1000);
    // Home is node 0 too, so the writebacks on the way cross no link.
    let ends = driver.machine.links.iter().map(|link| (link.from, link.to));
    let carried: Vec<_> = ends.zip(driver.hardware.links().map(|usage| usage.bytes)).collect();
    let hitm = driver.total(Event::RemoteHitm);
    assert!(hitm > 90, "{hitm}");
    let expected = |ends| if ends == (0, 1) { hitm * LINE } else { 0 };
    for (ends, bytes) in carried {
        assert_eq!(bytes, expected(ends), "{ends:?}");
    }
}

#[test]
fn a_migrated_page_is_seen_after_its_flush() {
    let mut driver = Driver::new("carrefour-a");
    let hardware = &mut driver.hardware;
    touch(hardware, 0, 0x5000, true);
    assert!(hardware.first_level_hit(0, 0x5008, true));
    hardware.flush_page(0, 0x5fff);
    assert!(!hardware.first_level_hit(0, 0x5008, false));
    touch(hardware, 0, 0x5000, true);
    touch(hardware, 0, 0x9000, true);
    hardware.flush_first_level(0);
    assert!(!hardware.first_level_hit(0, 0x5000, false));
    assert!(!hardware.first_level_hit(0, 0x9000, false));
}
