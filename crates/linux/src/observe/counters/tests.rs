//! Tests of the counts by CPU, their sums and their node traffic.

use rondpoint_core::topology::synthetic;

use super::super::subject::Start;
use super::*;
use crate::sleeper::{Sleeper, own_thread};

fn counter(value: u64, enabled: u64, running: u64) -> Counter {
    Counter { value, enabled: Nanos(enabled), running: Nanos(running) }
}

fn reading(cpu: usize, counts: &[(Metric, Counter)]) -> CpuReading {
    CpuReading { cpu, cpu_time: Nanos(0), counts: counts.to_vec() }
}

#[test]
fn targets_counted_one_by_one_make_the_matrix() {
    let machine = synthetic::parse("node:2 core:2").unwrap();
    let readings = [
        reading(
            0,
            &[(Metric::DramNode(0), counter(5, 10, 5)), (Metric::DramNode(1), counter(7, 10, 5))],
        ),
        reading(
            1,
            &[(Metric::DramNode(0), counter(1, 10, 10)), (Metric::DramNode(1), counter(0, 10, 10))],
        ),
        reading(
            3,
            &[(Metric::DramNode(0), counter(9, 4, 4)), (Metric::DramNode(1), counter(2, 4, 4))],
        ),
    ];
    let matrix = node_traffic(&readings, &machine).unwrap();
    assert_eq!(matrix[(0, 0)], counter(6, 20, 15));
    assert_eq!(matrix[(0, 1)], counter(7, 20, 15));
    assert_eq!(matrix[(1, 0)], counter(9, 4, 4));
    assert_eq!(total(&readings, Metric::DramNode(1)), Some(counter(9, 24, 19)));
}

#[test]
fn reads_and_writes_stand_for_the_same_time() {
    let readings = [reading(
        0,
        &[
            (Metric::Writebacks, counter(10, 100, 50)),
            (Metric::DramNode(0), counter(30, 100, 25)),
            (Metric::DramNode(1), counter(60, 100, 100)),
        ],
    )];
    let counters = of_process(&readings);
    assert_eq!(counters.get(Event::DramReads), Some(counter(180, 100, 100)));
    assert_eq!(counters.get(Event::DramReadsAndWrites), Some(counter(200, 100, 100)));
    assert_eq!(counters.get(Event::Instructions), None);
}

#[test]
fn local_and_remote_make_the_matrix_of_two_nodes_and_of_no_more() {
    let counts = [(Metric::LocalDram, counter(5, 1, 1)), (Metric::RemoteDram, counter(3, 1, 1))];
    let two = synthetic::parse("node:2 core:1").unwrap();
    let matrix = node_traffic(&[reading(1, &counts)], &two).unwrap();
    assert_eq!((matrix[(1, 1)].value, matrix[(1, 0)].value), (5, 3));
    let four = synthetic::parse("node:4 core:1").unwrap();
    assert_eq!(node_traffic(&[reading(1, &counts)], &four), None);
    assert_eq!(node_traffic(&[reading(1, &[])], &two), None);
}

/// A node of memory alone is behind a link of a socket, and no remote request goes there.
#[test]
fn remote_requests_are_not_those_to_memory_without_cpus() {
    let counts = [(Metric::LocalDram, counter(5, 1, 1)), (Metric::RemoteDram, counter(3, 1, 1))];
    let mut description = synthetic::describe("node:2 core:2").unwrap();
    description.cpus.retain(|cpu| cpu.node == 0);
    let machine = Topology::new(description).unwrap();
    assert_eq!((machine.node_count(), machine.cpu_count()), (2, 2));
    assert_eq!(node_traffic(&[reading(1, &counts)], &machine), None);
}

#[test]
fn the_task_clock_of_this_thread_is_split_by_cpu() {
    let machine = synthetic::parse("node:1 core:1").unwrap();
    let subject = Subject::tasks(&[0], Start::Now);
    let (mut counters, problems) = TreeCounters::open(&subject, &machine, &[], 4).unwrap();
    assert!(problems.is_empty());
    let readings = counters.read().unwrap();
    assert_eq!(readings.len(), 1);
    assert!(counters.metrics().next().is_none());
}

#[test]
fn what_did_not_run_is_told_again_and_what_ran_is_read() {
    let machine = synthetic::parse("node:1 core:1").unwrap();
    // Another event stands for the unit's, so that this runs where there is no unit.
    let events = [(Metric::Instructions, clock())];
    let stopped = Sleeper::start();
    let number = stopped.identity().pid.0;
    crate::syscall::process::kill(number as i32, libc::SIGSTOP).unwrap();
    while !stopped.is_stopped() {}
    let check = |task: u32, runs: bool| {
        let subject = Subject::tasks(&[task], Start::Now);
        let (mut counters, _) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
        let first = counters.read().unwrap();
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 2 {}
        let second = counters.read().unwrap();
        assert_eq!(second != first, runs, "{first:?} {second:?}");
        assert_eq!(Some(&counters.cpus[0].last), second.first());
    };
    check(number, false);
    // Of this one CPU only: the test may run on another.
    let own = crate::syscall::affinity::get(0).unwrap();
    let counted = [machine.kernel_cpu(0) as usize].into_iter().collect();
    crate::syscall::affinity::set(0, &counted).unwrap();
    check(0, true);
    crate::syscall::affinity::set(0, &own).unwrap();
}

#[test]
fn what_is_stopped_stands_still_with_its_times_and_goes_on() {
    let machine = crate::topology::discover(&crate::Root::live()).unwrap().topology;
    let subject = Subject::tasks(&[own_thread().0], Start::Now);
    let events = [(Metric::LlcMisses, clock())];
    let (mut counters, _) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
    let ran = |counters: &mut TreeCounters, milliseconds| {
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < milliseconds {}
        let readings = counters.read().unwrap();
        let of = total(&readings, Metric::LlcMisses).unwrap();
        (of.value, of.enabled)
    };
    let before = ran(&mut counters, 5);
    counters.stop(true).unwrap();
    let (stopped, later) = (ran(&mut counters, 5), ran(&mut counters, 50));
    assert!(stopped == later && stopped.0 < before.0 + 50_000_000, "{before:?} {later:?}");
    counters.stop(false).unwrap();
    assert!(ran(&mut counters, 5).1 > later.1);
}

#[test]
fn a_cpu_that_was_off_is_counted_again_on_top_of_what_it_had() {
    let machine = crate::topology::discover(&crate::Root::live()).unwrap().topology;
    let subject = Subject::tasks(&[own_thread().0], Start::Now);
    let events = [(Metric::LlcMisses, clock())];
    let (mut counters, _) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
    assert!(counters.returning.is_none(), "a task's events come back by themselves");
    let mut returning = Returning::new(&subject, &machine);
    returning.parts = vec![events.to_vec()];
    counters.returning = Some(returning);
    // A CPU that this thread has not used stands still too, and would count at once.
    let own = crate::syscall::affinity::get(0).unwrap();
    let one = own.iter().take(1).collect();
    crate::syscall::affinity::set(0, &one).unwrap();
    let ran = |counters: &mut TreeCounters| {
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 5 {}
        let readings = counters.read().unwrap();
        let of = total(&readings, Metric::LlcMisses).unwrap();
        (of.value, readings.iter().map(|reading| reading.cpu_time.0).sum::<u64>())
    };
    ran(&mut counters);
    // What is left of the events when their CPUs go off.
    for group in counters.cpus.iter().flat_map(|on| on.clocks.iter().chain(&on.groups[0].tasks)) {
        group.stop(true).unwrap();
    }
    let (off, seen) = (ran(&mut counters), ran(&mut counters));
    assert_eq!(off, seen, "nothing is counted, and nothing is lost");
    // On the other CPUs nothing ever ran.
    let all: Vec<usize> = (0..machine.cpu_count()).collect();
    assert_eq!(counters.reopened(), all);
    let on = ran(&mut counters);
    assert!(on.0 > seen.0 && on.1 > seen.1, "{on:?} {seen:?}");
    assert_eq!(counters.reopened().len(), machine.cpu_count() - 1, "one is on");
    counters.stop(true).unwrap();
    let (stopped, later) = (ran(&mut counters), ran(&mut counters));
    assert_eq!(stopped, later, "what is stopped on purpose is left alone");
    crate::syscall::affinity::set(0, &own).unwrap();
}

#[test]
fn a_cpu_that_is_off_when_counting_begins_leaves_the_others_counted() {
    let machine = synthetic::parse("node:1 core:3").unwrap();
    let open = |cpu: u32| match cpu {
        1 => Err(LinuxError::PerfOpen {
            event: "clock".to_string(),
            target: "CPU 1".to_string(),
            source: io::Error::from_raw_os_error(libc::ENODEV),
        }),
        cpu => Ok(vec![cpu]),
    };
    let opened = on_each(&Subject::all_tasks(), &machine, open).unwrap();
    assert_eq!(opened, [vec![0], vec![], vec![2]]);
    let of_tasks = on_each(&Subject::tasks(&[1], Start::Now), &machine, open);
    assert!(of_tasks.is_err(), "a task's sum would miss a CPU without a sign");
}

#[test]
fn a_cpu_that_was_off_when_counting_began_is_counted_once_it_is_on() {
    let machine = crate::topology::discover(&crate::Root::live()).unwrap().topology;
    let subject = Subject::tasks(&[own_thread().0], Start::Now);
    let events = [(Metric::LlcMisses, clock())];
    let (mut counters, _) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
    let mut returning = Returning::new(&subject, &machine);
    returning.parts = vec![events.to_vec()];
    counters.returning = Some(returning);
    // What opens on CPUs that are off.
    for on in &mut counters.cpus {
        on.clocks.clear();
        on.groups.iter_mut().for_each(|group| group.tasks.clear());
    }
    let counted = |counters: &mut TreeCounters| {
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 5 {}
        total(&counters.read().unwrap(), Metric::LlcMisses).unwrap().value
    };
    assert_eq!(counted(&mut counters), 0, "the reading that opens them");
    assert_eq!(counters.reopened().len(), machine.cpu_count());
    assert!(counted(&mut counters) > 0);
}

#[test]
fn threads_that_come_and_go_while_their_groups_are_read_break_nothing() {
    let machine = synthetic::parse("node:1 core:1").unwrap();
    // As many as it can be, for it is in the making of the group that a thread has a part of
    // it.
    let events: Vec<(Metric, pmu::Event)> =
        (0..64).map(|node| (Metric::DramNode(node), clock())).collect();
    let (told, hear) = std::sync::mpsc::channel();
    let parent = std::thread::spawn(move || {
        told.send(own_thread().0).unwrap();
        for _ in 0..3000 {
            std::thread::spawn(|| {}).join().unwrap();
        }
    });
    let task = hear.recv().unwrap();
    let subject = Subject::tasks(&[task], Start::Now);
    let (mut counters, problems) = TreeCounters::open(&subject, &machine, &events, 4).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let mut before = Nanos(0);
    while !parent.is_finished() {
        let now = counters.read().unwrap()[0].cpu_time;
        assert!(now >= before);
        before = now;
    }
    parent.join().unwrap();
}
