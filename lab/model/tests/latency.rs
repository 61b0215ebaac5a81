//! Latencies and counts of a single vCPU: what a program on an idle machine sees.

mod driver;

use driver::{Driver, LINE, SPAN, chase, lab_machine, machine_names, scan, within};
use rondpoint_lab_model::{Access, Event, Kind};

#[test]
fn a_chase_shows_the_machine_files_latency_for_every_distance() {
    for name in machine_names() {
        let machine = lab_machine(&name);
        for node in 0..machine.nodes.len() {
            let mut driver = Driver::with(machine.clone());
            driver.start(0, chase(node, 1 << 20, 20_000, 7));
            let measured = driver.finish() / 20_000.0;
            within(
                &format!("{name}, node 0 from {node}"),
                measured,
                machine.latency_ns[0][node],
                5.0,
            );
        }
    }
}

#[test]
fn a_chase_within_a_cache_shows_that_caches_latency() {
    // The lab's second level is hardly larger than the first; tell the two apart.
    let mut machine = lab_machine("sam-2");
    machine.caches.l2.bytes *= 16;
    machine.caches.llc.bytes *= 16;
    let run = |bytes: u64| {
        let mut driver = Driver::with(machine.clone());
        let lines = bytes / LINE;
        driver.start(0, chase(0, lines, lines, 7));
        driver.finish();
        driver.start(0, chase(0, lines, 40_000, 7));
        driver.finish() / 40_000.0
    };
    within(
        "second level",
        run(machine.caches.l2.bytes * 3 / 4),
        machine.caches.l2.latency_ns,
        10.0,
    );
    // Ten times the second level: nearly all from the last.
    within("last level", run(machine.caches.l2.bytes * 10), machine.caches.llc.latency_ns, 10.0);
}

#[test]
fn a_scan_counts_each_line_once_at_its_node() {
    for (name, node) in [("carrefour-a", 2), ("sam-2", 1), ("chiplet-cxl", 2)] {
        let mut driver = Driver::new(name);
        let lines = 50_000;
        driver.start(0, scan(node as u64 * SPAN, 8, lines * 8, 2));
        driver.finish();
        within(name, driver.reads_at(node) as f64, lines as f64, 1.0);
        let total: u64 = (0..driver.machine.nodes.len()).map(|node| driver.reads_at(node)).sum();
        assert_eq!(total, driver.reads_at(node), "{name}: nothing anywhere else");
        assert_eq!(driver.total(Event::Loads), lines * 8, "{name}");
        let counters = driver.hardware.counters(0);
        let event = Event::dram_node(node).expect("a node");
        assert_eq!(counters.get(event), driver.reads_at(node), "{name}");
    }
}

#[test]
fn a_scan_of_every_line_twice_from_cache_counts_once() {
    let mut driver = Driver::new("sam-2");
    let bytes = driver.machine.caches.llc.bytes / 2;
    for _ in 0..2 {
        driver.start(0, scan(0, LINE, bytes / LINE, 2));
        driver.finish();
    }
    within("lines", driver.reads_at(0) as f64, (bytes / LINE) as f64, 1.0);
}

#[test]
fn prefetch_hides_latency_and_shows_only_in_its_own_counters() {
    const GAP: u64 = 200;
    let count = 40_000;
    let time = |streams| {
        let mut machine = lab_machine("sam-2");
        machine.prefetch.streams = streams;
        let mut driver = Driver::with(machine);
        driver.start(0, scan(0, LINE, count, GAP));
        (driver.finish() / count as f64, driver)
    };
    let (with, driver) = time(16);
    let (without, plain) = time(0);
    // 200 instructions of work for each line: a window hides 84 of them, a stream ahead hides all.
    let work = driver.machine.cycle_ns() * driver.machine.core.cycles_per_instruction * GAP as f64;
    let latency = driver.machine.latency_ns[0][0];
    within("ns a line", with, work, 5.0);
    within("ns a line without", without, latency + work * (GAP - 84) as f64 / GAP as f64, 5.0);
    assert!(driver.total(Event::PrefetchDram) as f64 > 0.9 * count as f64);
    assert_eq!(plain.total(Event::PrefetchDram), 0);
    within("demand and prefetch", driver.total(Event::DramReads) as f64, count as f64, 1.0);
    let used = driver.total(Event::PrefetchUsed) as f64;
    within("used", used, driver.total(Event::PrefetchDram) as f64, 1.0);
    assert_eq!(
        driver::lines(&driver.hardware, Kind::LoadPrefetch),
        driver.total(Event::PrefetchDram)
    );
    assert_eq!(
        driver.total(Event::DramRequests) + driver.total(Event::PrefetchDram),
        driver.reads_at(0)
    );
}

#[test]
fn a_chase_by_chance_starts_no_prefetch() {
    let mut driver = Driver::new("sam-2");
    driver.start(0, chase(0, 1 << 18, 20_000, 3));
    driver.finish();
    assert!(driver.total(Event::PrefetchDram) < 20, "{}", driver.total(Event::PrefetchDram));
}

#[test]
fn a_list_whose_nodes_are_read_key_first_is_still_a_chase() {
    // Each node is a line: the key is loaded first, then, from the same line, the next pointer.
    let mut driver = Driver::new("carrefour-a");
    let mut steps = chase(0, 1 << 18, 10_000, 5);
    let mut second = None;
    driver.start(0, move || {
        if let Some(step) = second.take() {
            return Some(step);
        }
        let next = steps()?;
        let mut link = next;
        link.address += 8;
        second = Some(link);
        Some(driver::Step { loaded: Some(1), ..next })
    });
    let time = driver.finish() / 10_000.0;
    within("ns a node", time, driver.machine.latency_ns[0][0], 5.0);
}

#[test]
fn a_line_in_steady_use_outlives_a_stream() {
    // Only the filter sees the uses of line 0; the levels below must not take it for idle.
    let mut driver = Driver::new("sam-2");
    let mut steps = 0u64;
    driver.start(0, move || {
        steps += 1;
        let line = if steps.is_multiple_of(2) { 0 } else { steps.div_ceil(2) };
        (steps < 40_000).then(|| driver::Step::load(100, line * LINE))
    });
    driver.finish();
    let misses = driver.total(Event::L1Miss);
    assert_eq!(misses, 20_001, "each line of the stream once, and line 0 once");
}

#[test]
fn a_stall_is_owed_once_whoever_asks_for_it() {
    let machine = lab_machine("sam-2");
    let miss = |address, now_ps, instructions| Access {
        vaddr: address,
        paddr: address,
        store: false,
        loaded: None,
        now_ps,
        instructions,
    };
    let instruction_ps = machine.cycle_ns() * machine.core.cycles_per_instruction * 1e3;
    let later = 1000u32;
    let then_ps = (f64::from(later) * instruction_ps) as u64;
    let run = |settles: bool| {
        let mut driver = Driver::with(machine.clone());
        let hardware = &mut driver.hardware;
        let first = hardware.access(0, miss(0, 0, 0)).stall_ps;
        let owed = if settles { hardware.settle(0, then_ps, u64::from(later)) } else { 0 };
        let now_ps = then_ps + first + owed;
        first + owed + hardware.access(0, miss(1 << 20, now_ps, u64::from(later))).stall_ps
    };
    assert_eq!(run(true), run(false));
    // A window of 84 instructions hides that much of the latency, no more.
    let hidden = f64::from(machine.core.reorder_window) * instruction_ps;
    within("stall", run(true) as f64, machine.latency_ns[0][0] * 1e3 - hidden, 1.0);
}
