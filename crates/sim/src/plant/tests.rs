//! Laws of the plant alone, without a manager.

use super::*;
use crate::catalogue;
use crate::rivals::Rival;
use crate::sensors::Pmu;
use crate::workload::Workload;
use crate::world::{Scene, World};
use rondpoint_core::units::PAGE_BYTES;

fn world(machine: &str, workload: &str, first_place: FirstPlace) -> World {
    let workload = match workload.contains("[[programs]]") {
        true => Workload::parse(workload, "test").expect("a workload"),
        false => catalogue::workload(workload).expect("a workload"),
    };
    let scene = Scene {
        pmu: Pmu::Ibs,
        replication: true,
        truth: Some(Truth::middle()),
        ..Scene::new(catalogue::machine(machine).expect("a machine"), workload, 7)
    };
    World::new(&scene, first_place, Rival::Nothing)
}

fn finish(world: &mut World) {
    while !world.plant.is_over() {
        world.pass();
        assert!(world.plant.now() < Nanos::from_secs(1000), "it does not end");
    }
}

/// One thread that misses the caches 10 times in 1,000 instructions.
const ALONE: &str = r#"
    name = "alone"
    title = "one thread on local memory"
    [[programs]]
    name = "alone"
    threads = 1
    seconds = 4
    cycles_per_instruction = 1
    accesses_per_kilo = 10
    outstanding = 2
    [[programs.regions]]
    mib = 64
    touched = "own"
    used = "own"
    share = 1
"#;

#[test]
fn a_thread_alone_on_local_memory_takes_the_time_that_its_file_says() {
    let mut world = world("nodes=2 cpus=2 memory=1G", ALONE, FirstPlace::Touch);
    world.plant.truth.wander_per_s = 0.0;
    finish(&mut world);
    let (_, time) = world.plant.times().next().expect("a process");
    // Beside the unloaded latency there is only the burst of its own few requests.
    assert!((3.9..4.4).contains(&time.expect("it ended")), "{time:?}");
}

#[test]
fn no_controller_or_link_carries_more_than_it_can() {
    for (name, workload) in
        [("carrefour-a", "partitioned"), ("asymsched-8", "read-shared"), ("sam-2", "write-shared")]
    {
        let mut world = world(name, workload, FirstPlace::Touch);
        (0..40).for_each(|_| world.pass());
        let before = (world.plant.traffic.clone(), world.plant.link_bytes.clone());
        (0..20).for_each(|_| world.pass());
        for (index, node) in world.plant.machine.nodes.iter().enumerate() {
            let lines: f64 = world.plant.traffic.column(index).sum::<f64>()
                - before.0.column(index).sum::<f64>();
            let bandwidth = node.controller.as_ref().map_or(0.0, |c| c.bandwidth_mb_s);
            let used = lines * 64.0 / 1e6 / bandwidth;
            assert!(used < 1.02, "{name}: node {index} gives {used} of its bandwidth");
        }
        for (index, link) in world.plant.machine.links.iter().enumerate() {
            let bytes = world.plant.link_bytes[index] - before.1[index];
            let used = bytes / 1e6 / link.bandwidth_mb_s;
            assert!(used < 1.02, "{name}: link {index} carries {used} of its bandwidth");
        }
    }
}

/// The world of a thread on node 0 with its memory on a node, after some epochs.
fn far_from_full(home: usize, epochs: usize) -> World {
    let machine = "nodes=2 cpus=2 memory=1G bandwidth=1000 link=900";
    let mut world = world(machine, ALONE, FirstPlace::Touch);
    world.plant.truth.wander_per_s = 0.0;
    world.plant.arrange(0, &[0], &[home], true);
    (0..epochs).for_each(|_| world.pass());
    world
}

#[test]
fn controllers_and_links_far_from_full_have_the_use_of_their_load_after_one_epoch() {
    for home in [0, 1] {
        let plant = far_from_full(home, 1).plant;
        let per_ns = plant.controller_lines[home] * 64.0 / EPOCH.0 as f64;
        let is_near = |used: f64, mb_s: f64| {
            let load = per_ns / (mb_s / 1000.0);
            assert!((0.4..0.7).contains(&load), "load {load}");
            assert!((used / load - 1.0).abs() < 0.01, "home {home}: use {used}, load {load}");
        };
        is_near(plant.queues.utilisation[home], 1000.0);
        for &link in &plant.machine.routes[0][home].links {
            is_near(plant.queues.link_use[link], 900.0);
        }
    }
}

#[test]
fn the_bytes_of_links_are_those_of_the_misses_that_they_carry() {
    for epochs in [1, 5] {
        let plant = far_from_full(1, epochs).plant;
        let route = &plant.machine.routes[0][1].links;
        assert!(!route.is_empty());
        let expected = plant.controller_lines[1] * 64.0;
        for (link, bytes) in plant.link_bytes.iter().enumerate() {
            let expected = if route.contains(&link) { expected } else { 0.0 };
            assert!(
                (bytes - expected).abs() <= 1e-9 * expected,
                "link {link}: {bytes}, {expected}"
            );
        }
    }
}

#[test]
fn pages_are_neither_lost_nor_doubled_by_moves_copies_and_writes() {
    let mut world = world("carrefour-a", "write-shared", FirstPlace::Touch);
    world.pass();
    let plant = &mut world.plant;
    let memory: u64 = plant.machine.nodes.iter().map(|node| node.memory_bytes / PAGE_BYTES).sum();
    let taken = |plant: &Plant| {
        let copies: u64 = plant.groups.iter().map(|group| group.copied).sum();
        let nodes = plant.topology.controllers().len() as u64;
        memory - plant.free_pages.iter().sum::<u64>() - copies * (nodes - 1)
    };
    let before = taken(plant);
    for page in 0..500 {
        let _ = plant.move_page(0, page, page % 4);
        let _ = plant.copy_page(0, page * 3);
    }
    assert!(plant.groups[0].copied > 400, "{}", plant.groups[0].copied);
    assert_eq!(taken(plant), before);
    (0..40).for_each(|_| world.pass());
    assert!(world.plant.processes[0].faults > 400, "writes take copies back");
    assert_eq!(taken(&world.plant), before);
    finish(&mut world);
    assert_eq!(world.plant.free_pages.iter().sum::<u64>(), memory);
}

#[test]
fn threads_that_wait_go_at_the_pace_of_the_slowest() {
    let mut world = world("carrefour-a", "partitioned", FirstPlace::Touch);
    (0..10).for_each(|_| world.pass());
    let far = world.plant.threads[5].done;
    world.plant.threads[5].debt_ns += 40e6;
    world.pass();
    let done: Vec<f64> = world.plant.threads.iter().map(|thread| thread.done).collect();
    assert!(done.iter().all(|one| *one == done[0]), "{done:?}");
    let step = (done[0] - far) / (far / 10.0);
    // It stood still for 80 % of the epoch. The others wait, so its misses come back sooner.
    assert!((0.2..0.8).contains(&step), "{step}");
}

#[test]
fn a_cache_that_two_processes_share_holds_less_of_each() {
    let mut one = world("nmass-2", "private", FirstPlace::Touch);
    one.pass();
    let uses = |count: usize| -> Vec<(usize, usize, f64)> {
        (0..count).map(|group| (0, group, 1.0)).collect()
    };
    let alone = one.plant.resident(&uses(1))[0][&0];
    let shared = one.plant.resident(&uses(2))[0][&0];
    assert!(alone > 0.0 && (shared - alone / 2.0).abs() < 1e-9, "{alone} {shared}");
}

#[test]
fn a_buffer_is_elsewhere_after_its_time_and_near_the_thread_that_touches_it() {
    let mut world = world("carrefour-a", "short-lived", FirstPlace::Touch);
    world.plant.truth.wander_per_s = 0.0;
    world.pass();
    let plant = &mut world.plant;
    let memory: u64 = plant.machine.nodes.iter().map(|node| node.memory_bytes / PAGE_BYTES).sum();
    let taken = memory - plant.free_pages.iter().sum::<u64>();
    let pid = plant.processes[0].pid;
    let (buffer, stays) = (plant.processes[0].groups[0][0], plant.processes[0].groups[1][0]);
    let addresses = [buffer, stays].map(|group| plant.groups[group].address(0));
    let near = plant.near(0, 0);
    let pages = plant.groups[buffer].homes.len();
    for page in 0..pages {
        assert_eq!(plant.move_page(buffer, page, (near + 1) % 4), Moved::Done);
    }
    // A buffer lives for half a second, ten epochs.
    (0..10).for_each(|_| world.pass());
    let plant = &world.plant;
    assert_eq!(plant.locate(pid, addresses[0]), None, "its pages are gone");
    assert_eq!(plant.locate(pid, addresses[1]), Some((stays, 0)));
    assert_eq!(plant.locate(pid, plant.groups[buffer].address(1)), Some((buffer, 1)));
    assert_eq!(plant.groups[buffer].counts[near], pages as u64);
    assert_eq!(memory - plant.free_pages.iter().sum::<u64>(), taken);
}

#[test]
fn buffers_that_come_later_and_their_copies_are_shown_in_order_of_address() {
    let mut world = world("carrefour-a", "short-lived", FirstPlace::Touch);
    (0..20).for_each(|_| world.pass());
    for group in 0..world.plant.groups.len() {
        assert_eq!(world.plant.copy_page(group, 0), Moved::Done);
    }
    let observation = world.sensors.observe(&world.plant, false);
    let replicas = observation.processes[0].replicas.as_deref().expect("known");
    assert_eq!(replicas.len(), world.plant.groups.len());
    assert!(replicas.is_sorted_by(|one, next| one.address < next.address), "{replicas:?}");
    let mappings = observation.processes[0].mappings.as_deref().expect("known");
    assert!(mappings.is_sorted_by(|one, next| one.end <= next.start), "{mappings:?}");
}

/// Two programs that touch 600 MiB each. The second starts a second later.
const LARGE: &str = r#"
    name = "large"
    title = "more than the machine has"
    [[programs]]
    name = "first"
    threads = 1
    seconds = 4
    cycles_per_instruction = 1
    accesses_per_kilo = 10
    outstanding = 2
    [[programs.regions]]
    mib = 640
    touched = "own"
    used = "own"
    share = 1
    [[programs]]
    name = "second"
    threads = 1
    start_s = 1
    seconds = 4
    cycles_per_instruction = 1
    accesses_per_kilo = 10
    outstanding = 2
    [[programs.regions]]
    mib = 600
    touched = "own"
    used = "own"
    share = 1
"#;

fn killed(world: &World) -> Vec<&str> {
    let killed = world.plant.processes.iter().filter(|process| process.killed);
    killed.map(|process| process.program.name.as_str()).collect()
}

#[test]
fn the_largest_program_is_killed_where_memory_is_short() {
    let mut fits = world("nodes=2 cpus=2 memory=1G", LARGE, FirstPlace::Touch);
    finish(&mut fits);
    assert_eq!(killed(&fits), Vec::<&str>::new());
    let mut short = world("nodes=2 cpus=2 memory=512M", LARGE, FirstPlace::Touch);
    let memory: u64 = short.plant.free_pages.iter().sum();
    (0..10).for_each(|_| short.pass());
    assert_eq!(killed(&short), Vec::<&str>::new());
    assert_eq!(memory - short.plant.free_pages.iter().sum::<u64>(), 640 * 256);
    finish(&mut short);
    assert_eq!(killed(&short), ["first"]);
    let times: Vec<Option<f64>> = short.plant.times().map(|(_, time)| time).collect();
    assert!(times[0].is_none() && times[1].is_some(), "{times:?}");
    assert_eq!(short.plant.free_pages.iter().sum::<u64>(), memory);
}

#[test]
fn a_program_larger_than_the_machine_is_killed_and_leaves_no_page() {
    let mut none = world("nodes=2 cpus=2 memory=128M", LARGE, FirstPlace::Interleave);
    let memory: u64 = none.plant.free_pages.iter().sum();
    (0..25).for_each(|_| none.pass());
    assert_eq!(killed(&none), ["first", "second"]);
    assert!(none.plant.is_over());
    assert_eq!(none.plant.free_pages.iter().sum::<u64>(), memory);
}

#[test]
fn a_page_stays_within_the_cpuset_though_another_node_is_free() {
    let mut world = world("nodes=2 cpus=2 memory=1G", LARGE, FirstPlace::Touch);
    let node: rondpoint_core::NodeSet = [1].into_iter().collect();
    (0..2).for_each(|process| world.plant.confine(process, &node));
    (0..25).for_each(|_| world.pass());
    assert_eq!(killed(&world), ["first"]);
    assert_eq!(world.plant.free_pages[0], 256 * 1024);
}

#[test]
fn copies_make_room_before_a_program_is_killed() {
    let mut world = world("nodes=2 cpus=2 memory=700M", LARGE, FirstPlace::Touch);
    world.pass();
    let group = world.plant.processes[0].groups[0][0];
    for page in 0..160 * 1024 {
        let _ = world.plant.copy_page(group, page);
    }
    let copied = world.plant.groups[group].copied;
    assert!(copied > 600 * 256, "{copied}");
    (0..25).for_each(|_| world.pass());
    assert_eq!(killed(&world), Vec::<&str>::new());
    assert_eq!(world.plant.groups[group].copied, 0);
}

/// Sixteen threads on eight CPUs that sleep at barriers, with a part of 16 MiB each.
const CROWD: &str = r#"
    name = "crowd"
    title = "two threads for each CPU"
    [[programs]]
    name = "crowd"
    threads = 16
    seconds = 8
    waits = "sleep"
    cycles_per_instruction = 1
    accesses_per_kilo = 10
    outstanding = 2
    [[programs.regions]]
    mib = 16
    touched = "own"
    used = "own"
    share = 1
"#;

fn local_percent(workload: &str, pin: bool) -> f64 {
    let mut world = world("nodes=4 cpus=2 memory=1G", workload, FirstPlace::Touch);
    world.plant.truth.wander_per_s = 0.0;
    world.plant.start();
    for thread in world.plant.threads.iter_mut().filter(|_| pin) {
        thread.mask = [thread.cpu].into_iter().collect();
    }
    finish(&mut world);
    world.plant.tally().local_percent
}

#[test]
fn threads_that_sleep_in_a_crowd_wake_anywhere_in_their_masks() {
    let anywhere = local_percent(CROWD, false);
    assert!((15.0..40.0).contains(&anywhere), "four nodes: {anywhere}");
    assert!(local_percent(CROWD, true) > 99.0);
    let awake = CROWD.replace("\"sleep\"", "\"never\"");
    assert!(local_percent(&awake, false) > 99.0, "a thread that never waits stays");
}

/// Least and most CPU time of a thread within ten seconds, relative to the mean. So many threads
/// that never wait run on two nodes of four CPUs. The first ones must stay on node 0.
fn shares_of_time(threads: usize, held: usize) -> (f64, f64) {
    let program = ALONE.replace("threads = 1", &format!("threads = {threads}"));
    let endless = program.replace("seconds = 4", "seconds = 1000");
    let mut world = world("nodes=2 cpus=4 memory=4G", &endless, FirstPlace::Touch);
    world.plant.start();
    for thread in 0..held {
        world.plant.threads[thread].mask = world.plant.topology.cpus_of_node(0).clone();
    }
    while world.plant.now() < Nanos::from_secs(10) {
        world.pass();
    }
    let times = world.plant.threads.iter().map(|thread| thread.counts.cpu_ns);
    let times: Vec<f64> = times.collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    (least / mean, times.iter().copied().fold(0.0, f64::max) / mean)
}

#[test]
fn endless_loops_that_share_cpus_get_about_the_same_time() {
    for (threads, held) in [(9, 0), (5, 5), (12, 3)] {
        let (least, most) = shares_of_time(threads, held);
        assert!(least > 0.75 && most < 1.3, "{threads}, {held} held: {least:.2} to {most:.2}");
    }
}

#[test]
fn a_program_that_is_stopped_counts_at_its_mean_pace() {
    let whole = world("nodes=2 cpus=2 memory=1G", ALONE, FirstPlace::Touch);
    let stopped = ALONE.replace("title", "stops_s = 1\n    title");
    let stopped = world("nodes=2 cpus=2 memory=1G", &stopped, FirstPlace::Touch);
    let [whole, stopped] = [whole, stopped].map(|mut world| {
        world.plant.truth.wander_per_s = 0.0;
        finish(&mut world);
        let time = world.plant.times().next().and_then(|(_, time)| time);
        (world.plant.now().seconds(), time.expect("it did something"))
    });
    assert!(whole.0 > 3.9 && (0.99..1.06).contains(&stopped.0), "{whole:?} {stopped:?}");
    assert!((whole.1 / stopped.1 - 1.0).abs() < 0.02, "{whole:?} {stopped:?}");
}

#[test]
fn a_circle_of_sharers_has_a_part_that_its_first_thread_touches() {
    let pairs = CROWD
        .replace("\"own\"\n    share", "\"circle\"\n    share")
        .replace("outstanding", "sharers = 2\n    outstanding");
    let mut world = world("nodes=4 cpus=2 memory=1G", &pairs, FirstPlace::Touch);
    world.plant.start();
    let process = &world.plant.processes[0];
    assert_eq!(process.groups[0].len(), 8);
    for pair in 0..8 {
        let group = process.group_of(0, 2 * pair, 0);
        assert_eq!(process.group_of(0, 2 * pair + 1, 0), group);
        let home = world.plant.near(0, 2 * pair);
        assert_eq!(world.plant.groups[group].counts[home], 16 * 256);
    }
}

/// A client of a server whose thread is as fast as the client's: each works half of the time.
fn service() -> String {
    let program = |name: &str, requests: &str| {
        format!(
            r#"
            [[programs]]
            name = "{name}"
            threads = 1
            seconds = 2
            cycles_per_instruction = 1
            accesses_per_kilo = 0
            outstanding = 1
            requests = {{ {requests}kilo_instructions = 100 }}
            regions = [{{ mib = 1, touched = "own", used = "own", share = 1 }}]
            "#
        )
    };
    let head = "name = \"service\"\ntitle = \"one asks, one answers\"\n";
    head.to_string() + &program("server", "") + &program("client", "to = \"server\", ")
}

#[test]
fn a_client_and_its_server_take_turns() {
    let mut world = world("carrefour-a", &service(), FirstPlace::Touch);
    finish(&mut world);
    let times: Vec<f64> = world.plant.times().filter_map(|(_, time)| time).collect();
    let plant = &world.plant;
    let alone_us = 100_000.0 * plant.machine.cycle_ns() / 1000.0;
    let reply = plant.processes[1].replies().expect("it asks").mean_us;
    let woken = 2.0 * plant.truth.wake_ns / 1000.0;
    assert!((reply / (alone_us + woken) - 1.0).abs() < 0.02, "{reply} µs, alone {alone_us} µs");
    let expected = 2.0 * (alone_us + reply) / alone_us;
    assert!(times.iter().all(|time| (time / expected - 1.0).abs() < 0.05), "{times:?}, {expected}");
    assert!(plant.processes[0].replies().is_none(), "a server waits for requests");
}

#[test]
fn a_service_that_is_confined_to_one_node_is_slower() {
    let time = |crowd: bool| {
        let mut world = world("carrefour-a", "service", FirstPlace::Touch);
        let nodes: NodeSet = [0].into_iter().collect();
        for process in 0..2 {
            if crowd {
                world.plant.confine(process, &nodes);
            }
        }
        finish(&mut world);
        world.plant.times().find_map(|(_, time)| time).expect("it ended")
    };
    assert!(time(true) > 1.3 * time(false), "sixteen threads on the CPUs of one node");
}

#[test]
fn requests_that_nobody_answers_or_sends_are_refused() {
    let refused = |text: &str| Workload::parse(text, "test").unwrap_err().to_string();
    let nobody = refused(&service().replace("to = \"server\", ", ""));
    assert!(nobody.contains("program server") && nobody.contains("`to` it"), "{nobody}");
    let misspelt = refused(&service().replace("to = \"server\"", "to = \"sever\""));
    assert!(misspelt.contains("program client") && misspelt.contains("\"sever\""), "{misspelt}");
    let none = refused(
        &service()
            .replace("{ kilo_instructions = 100 }", "{ to = \"client\", kilo_instructions = 100 }"),
    );
    assert!(none.contains("`to` to name a program that answers"), "{none}");
    let barriers = refused(&service().replacen("threads = 1", "threads = 1\nwaits = \"spin\"", 1));
    assert!(barriers.contains("without waits, lock and phases"), "{barriers}");
}

#[test]
fn demand_is_that_of_the_share_of_time_in_bursts_however_short_they_are() {
    for every_s in [0.1, 0.12, 0.37, 3.0] {
        let word = format!("bursts:bursts.every_s={every_s},bursts.share=0.2,bursts.quiet=0.25");
        let mut world = world("nodes=2 cpus=2 memory=1G", &word, FirstPlace::Touch);
        world.plant.start();
        let process = &world.plant.processes[0];
        let of = |epoch: u64| process.in_burst(Nanos(EPOCH.0 * epoch));
        // A whole number of periods: 111 s.
        let mean = (0..2220).map(of).sum::<f64>() / 2220.0;
        assert!((mean - (0.2 + 0.8 * 0.25)).abs() < 1e-3, "{every_s}: {mean}");
        assert!((0..2220).map(of).all(|factor| (0.25..=1.0).contains(&factor)));
    }
}
