//! On the machine that runs the tests.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rondpoint_core::observation::Counter;

use super::uncore::Uncore;
use super::*;
use crate::perf::attr::{Attr, TYPE_SOFTWARE};
use crate::perf::generation::{Available, UncoreCount, UncoreMetric};
use crate::perf::pmu::Event;
use crate::syscall::memory::{Anonymous, page_bytes};
use crate::syscall::signal;
use crate::topology;

fn own_process() -> Pid {
    Pid(std::process::id())
}

/// On the machine that runs the tests, whatever it is: with a PMU or without, of one node or
/// more. Only what every kernel gives is asserted.
#[test]
fn this_process_is_observed_with_whatever_there_is() {
    let root = Root::live();
    let machine = topology::discover(&root).unwrap();
    let settings = Settings::default();
    let mut observer = Observer::open(root, machine, own_process(), Start::Now, &settings).unwrap();
    let first = observer.observe().unwrap();
    Anonymous::new(64 * page_bytes()).unwrap().touch_every(page_bytes());
    let second = observer.observe().unwrap();
    let process = second.observation.processes.iter().find(|p| p.pid == own_process());
    let process = process.expect("this process is there");
    assert!(!process.threads.is_empty());
    assert!(process.faults > first.observation.processes[0].faults);
    assert!(second.observation.at > first.observation.at);
    if observer.sampled() == Some(Kind::Faults) {
        assert!(observer.first_touches() >= 64, "{}", observer.first_touches());
        let faults = second.observation.hint_faults.unwrap();
        assert!(faults.list.len() >= 64 && faults.lost == 0);
    }
    assert_eq!(second.bad_records, 0);
}

#[test]
fn a_rung_that_is_asked_for_is_the_only_one() {
    let look = |rung| {
        let root = Root::live();
        let machine = topology::discover(&root).unwrap();
        let settings = Settings { rung: Some(rung), ..Settings::default() };
        let mut observer =
            Observer::open(root, machine, own_process(), Start::Now, &settings).unwrap();
        let look = observer.observe().unwrap();
        (observer.sampled(), observer.metrics().len(), look.readings.len())
    };
    assert_eq!(look(Rung::Statistics), (None, 0, 0));
    assert_eq!(look(Rung::Faults), (Some(Kind::Faults), 0, 0));
    let (sampled, _, cpus) = look(Rung::Counters);
    assert!(sampled.is_none() && cpus > 0);
}

/// Far more than the other tests of this process run between two calls.
const BUSY_NS: u64 = 500_000_000;

fn cpu_time_of_this_thread() -> u64 {
    let stat = std::fs::read("/proc/thread-self/schedstat").unwrap();
    crate::parse::schedstat::parse(&stat).unwrap().running_ns
}

/// Software clocks are counted on every machine.
#[test]
fn nothing_is_counted_during_a_pause_and_it_goes_on_from_there() {
    let machine = topology::discover(&Root::live()).unwrap();
    let settings = Settings { rung: Some(Rung::Counters), ..Settings::default() };
    let mut observer =
        Observer::open(Root::live(), machine, own_process(), Start::Now, &settings).unwrap();
    assert!(observer.can_pause());
    let clock = |look: &Look| look.readings.iter().map(|cpu| cpu.cpu_time.0).sum::<u64>();
    let before = clock(&observer.observe().unwrap());
    assert!(before > 0);
    observer.pause().unwrap();
    let ran = cpu_time_of_this_thread();
    while cpu_time_of_this_thread() < ran + BUSY_NS {}
    let paused = observer.observe().unwrap();
    assert!(!paused.observation.after_pause && !paused.observation.processes.is_empty());
    observer.resume().unwrap();
    let first = observer.observe().unwrap();
    assert!(first.observation.after_pause);
    assert!(clock(&first) < before + BUSY_NS, "{before} {}", clock(&first));
    let begin = std::time::Instant::now();
    while begin.elapsed().as_millis() < 5 {}
    let second = observer.observe().unwrap();
    assert!(!second.observation.after_pause);
    assert!(clock(&second) > clock(&first), "{} {}", clock(&first), clock(&second));
}

/// A controller's count in which a line is a nanosecond of a CPU's clock, on each node's first CPU.
fn clocked_controllers() -> Available {
    const SW_CPU_CLOCK: u64 = 0;
    let attr = Attr::counting(TYPE_SOFTWARE, SW_CPU_CLOCK);
    let event = Event { name: "clock".to_string(), attr, cpus: None };
    let (metric, unit) = (UncoreMetric::ControllerReads, "imc_0".to_string());
    let count = UncoreCount { metric, unit, event, bytes: Some((64, 1)) };
    Available { uncore: vec![count], ..Available::default() }
}

/// They are no counters of the program, so a pause leaves them on. Where other programs may not be
/// watched there are none.
#[test]
fn controllers_are_counted_at_a_glance_and_in_a_pause() {
    let machine = topology::discover(&Root::live()).unwrap();
    let (uncore, _) = Uncore::open(&clocked_controllers(), &machine.topology, 4);
    let settings = Settings { rung: Some(Rung::Counters), managing: true, ..Settings::default() };
    let mut observer =
        Observer::open(Root::live(), machine, own_process(), Start::Now, &settings).unwrap();
    observer.sensors.uncore = uncore;
    let glance = |observer: &Observer| observer.glance(&[], true).unwrap().requests;
    let Some(first) = glance(&observer) else {
        assert!(crate::probe::whole_cpu().is_err());
        assert_eq!(observer.observe().unwrap().observation.controller_lines, None);
        println!("not tried further: this user may count no CPU as a whole");
        return;
    };
    assert_eq!(observer.glance(&[], false).unwrap().requests, None, "not wanted");
    let lines = |look: &Look| -> u64 {
        let lines: &Vec<Counter> = look.observation.controller_lines.as_ref().unwrap();
        lines.iter().map(|counter| counter.value).sum()
    };
    let look = observer.observe().unwrap();
    assert!(look.observation.node_traffic.is_none() && lines(&look) > first.value);
    assert_eq!(look.glance.requests.map(|requests| requests.value), Some(lines(&look)));
    observer.pause().unwrap();
    let paused = observer.observe().unwrap();
    let clock = |look: &Look| look.readings.iter().map(|cpu| cpu.cpu_time.0).sum::<u64>();
    assert!(clock(&paused) == clock(&look) && lines(&paused) > lines(&look), "{paused:?}");
    let glanced = glance(&observer).unwrap().value;
    observer.resume().unwrap();
    let resumed = observer.observe().unwrap();
    assert!(glanced > lines(&paused) && lines(&resumed) > glanced, "not from nothing");
    observer.let_go();
    assert_eq!(glance(&observer), None);
}

/// Number of samples of processes that do not belong to the tree.
fn strangers(observer: &Observer, look: &Look) -> usize {
    let Observation { samples, hint_faults, .. } = &look.observation;
    let samples = samples.iter().chain(hint_faults).flat_map(|samples| &samples.list);
    samples.filter(|sample| !observer.origins().contains_key(&sample.pid)).count()
}

/// A tree that is watched by all tasks of the machine, while another process takes faults.
#[test]
fn of_all_tasks_a_tree_alone_keeps_its_own_samples() {
    let machine = topology::discover(&Root::live()).unwrap();
    let settings = Settings { rung: Some(Rung::Faults), managing: true, ..Settings::default() };
    let mut sleeper =
        std::process::Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let first = Pid(sleeper.id());
    let mut observer = Observer::open(Root::live(), machine, first, Start::Now, &settings).unwrap();
    if observer.watch_all_tasks().is_ok() {
        for _ in 0..3 {
            Anonymous::new(64 * page_bytes()).unwrap().touch_every(page_bytes());
            let look = observer.observe().unwrap();
            let (of_others, first) = (strangers(&observer, &look), observer.origins().get(&first));
            assert!(first.is_some() && of_others <= 1, "{of_others} of them");
        }
    } else {
        println!("not tried: this user may not watch all tasks");
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

/// From a look or from a pause. Where it is not allowed nothing changes.
#[test]
fn the_whole_machine_is_watched_instead_of_the_tasks() {
    for pauses in [false, true] {
        let machine = topology::discover(&Root::live()).unwrap();
        let settings = Settings { managing: true, ..Settings::default() };
        let mut observer =
            Observer::open(Root::live(), machine, own_process(), Start::Now, &settings).unwrap();
        let of_tasks = observer.observe().unwrap();
        assert!(!observer.inheriting_costs_much() && !of_tasks.observation.processes.is_empty());
        if pauses {
            observer.pause().unwrap();
        }
        if let Err(error) = observer.watch_all_tasks() {
            assert_eq!(error.errno(), crate::probe::whole_cpu().unwrap_err().errno());
            assert!(!observer.watches_all_tasks());
            continue;
        }
        if pauses {
            let resting = observer.observe().unwrap();
            assert!(resting.readings.is_empty() && resting.observation.births.is_none());
            observer.resume().unwrap();
        }
        let first = observer.observe().unwrap();
        assert!(observer.watches_all_tasks() && first.observation.after_pause);
        assert!(first.observation.births.is_none());
        let is_known = |look: &Look| {
            look.observation.processes.iter().any(|process| process.pid == own_process())
        };
        assert!(is_known(&first));
        let second = observer.observe().unwrap();
        assert!(is_known(&second) && !second.observation.after_pause);
        let of_others = strangers(&observer, &second);
        assert!(of_others <= 1, "samples of other users' processes are nobody's business");
        let clocks = second.readings.iter().map(|cpu| cpu.cpu_time.0).sum::<u64>();
        assert_eq!(clocks > 0, observer.sensors.counters.is_some());
    }
}

#[test]
fn where_faults_are_all_that_is_sampled_nothing_is_paused() {
    let machine = topology::discover(&Root::live()).unwrap();
    let settings = Settings { rung: Some(Rung::Faults), ..Settings::default() };
    let observer =
        Observer::open(Root::live(), machine, own_process(), Start::Now, &settings).unwrap();
    assert!(!observer.can_pause());
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let root = Root::live();
    let machine = topology::discover(&root).unwrap();
    let nobody = Pid(u32::MAX >> 1);
    let error = Observer::open(root, machine, nobody, Start::Now, &Settings::default());
    assert_eq!(
        error.err().map(|error| error.to_string()).as_deref(),
        Some("process 2147483647: there is no such process")
    );
}

/// Where the process that a wait looks at has ended and its descendants live on, a wait is a wait.
#[test]
fn a_process_that_has_ended_wakes_nobody_again() {
    use std::process::Command;
    let root = Root::live();
    let machine = topology::discover(&root).unwrap();
    let mut first =
        Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn();
    let first = first.as_mut().unwrap();
    let mut other = String::new();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut other).unwrap();
    let settings = Settings { rung: Some(Rung::Faults), ..Settings::default() };
    let mut observer =
        Observer::open(root, machine, Pid(first.id()), Start::Now, &settings).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    observer.drain();
    let descriptors: Vec<_> = observer.descriptors().collect();
    let woken = signal::wait_readable(&descriptors, 200).unwrap();
    assert!(!descriptors.is_empty() && !woken.contains(&true), "{woken:?}");
    assert!(Command::new("kill").arg(other.trim()).status().unwrap().success());
}

/// A tree of a daemon, which watches all tasks, and whose own faults are those of a stranger.
#[test]
fn of_all_tasks_only_samples_of_followed_ones_are_kept_and_none_are_taken_while_all_are_idle() {
    let machine = topology::discover(&Root::live()).unwrap();
    let settings = Settings { rung: Some(Rung::Faults), managing: true, ..Settings::default() };
    if crate::probe::whole_cpu().is_err() {
        println!("not tried: this user may not watch all tasks");
        return;
    }
    let mut observer = Observer::open_for_many(Root::live(), machine, &settings).unwrap();
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", "while read line; do echo $(date); done"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut asks, of) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let mut answers = BufReader::new(of).lines();
    let root = Pid(shell.id());
    observer.follow([(root, Nanos(0))].into(), BTreeSet::new());
    let mut look = |observer: &mut Observer| {
        Anonymous::new(64 * page_bytes()).unwrap().touch_every(page_bytes());
        std::io::Write::write_all(&mut asks, b"\n").unwrap();
        answers.next().unwrap().unwrap();
        observer.observe().unwrap()
    };
    look(&mut observer);
    let seen = look(&mut observer);
    let faults = seen.observation.hint_faults.unwrap();
    assert!(faults.list.iter().any(|fault| fault.pid == root), "{}", faults.list.len());
    let own = |faults: &Samples| faults.list.iter().any(|fault| fault.pid == own_process());
    assert!(!own(&faults) && seen.samples_of_others >= 64, "{}", seen.samples_of_others);
    observer.observe().unwrap();
    Anonymous::new(64 * page_bytes()).unwrap().touch_every(page_bytes());
    let strangers = observer.observe().unwrap().observation.hint_faults.unwrap();
    assert!(!strangers.list.is_empty(), "one tells that the sensor works where none is ours");

    observer.sensors.idle_faults.pass();
    std::thread::sleep(Duration::from_millis(60));
    // The rest begins with the first of these, and the second reads what came before it.
    observer.observe().unwrap();
    observer.observe().unwrap();
    let resting = look(&mut observer);
    let faults = resting.observation.hint_faults.unwrap();
    assert_eq!((faults.list.len(), resting.samples_of_others), (0, 0));
    observer.pause().unwrap();
    observer.resume().unwrap();
    assert!(look(&mut observer).samples_of_others >= 64, "a pause ends the rest");
    drop(asks);
    shell.wait().unwrap();
}
