//! Tests of what is chosen, and of the opening on trees that grow.

use super::*;
use crate::perf::attr::{Attr, TYPE_RAW};

fn available(metrics: &[Metric]) -> Available {
    let event = Event { name: "x".into(), attr: Attr::counting(TYPE_RAW, 0), cpus: None };
    let core = metrics.iter().map(|metric| (*metric, event.clone())).collect();
    Available { core, ..Available::default() }
}

fn check(metrics: &[Metric], settings: &Settings, expected: &[Metric]) {
    let events = chosen(&available(metrics), settings);
    let found: Vec<Metric> = events.iter().map(|(metric, _)| *metric).collect();
    assert_eq!(found, expected);
}

#[test]
fn local_and_remote_are_counted_only_where_targets_are_not() {
    use Metric::{DramNode, DramRequests, Loads, LocalDram};
    let settings = Settings::default();
    check(&[LocalDram, DramRequests, Loads], &settings, &[LocalDram, DramRequests]);
    check(
        &[LocalDram, DramRequests, DramNode(0), DramNode(1)],
        &settings,
        &[DramRequests, DramNode(0), DramNode(1)],
    );
}

#[test]
fn what_was_asked_for_is_counted_and_a_rung_below_counters_counts_nothing() {
    use Metric::{DramNode, LlcMisses, Loads};
    let all = [LlcMisses, Loads, DramNode(0), DramNode(1)];
    let asked =
        |rung| Settings { metrics: Some(vec![DramNode(0), Loads]), rung, ..Settings::default() };
    check(&all, &asked(None), &[Loads, DramNode(0), DramNode(1)]);
    check(&all, &asked(Some(Rung::Counters)), &[Loads, DramNode(0), DramNode(1)]);
    check(&all, &asked(Some(Rung::Faults)), &[]);
}

/// The sensors of a machine without a PMU, opened while the tree is listed as `lists` says.
fn settled(start: Start, lists: &[&[u32]]) -> (Subject, usize) {
    let machine = crate::topology::discover(&Root::live()).unwrap();
    let settings = Settings { rung: Some(Rung::Statistics), ..Settings::default() };
    let opening = Opening {
        root: &Root::live(),
        machine: &machine,
        settings: &settings,
        available: Available::default(),
        events: Vec::new(),
        room: 0,
    };
    let mut asked = 0;
    let list = || {
        asked += 1;
        Ok(lists[(asked - 1).min(lists.len() - 1)].to_vec())
    };
    (opening.settle(start, 1, list).unwrap().subject, asked)
}

#[test]
fn a_thread_born_while_sensors_are_opened_has_them_too() {
    let now = Start::Now;
    let (subject, asked) = settled(now, &[&[1], &[1, 2], &[1, 2]]);
    assert_eq!((subject, asked), (Subject::tasks(&[1, 2], now), 3));
    let (subject, _) = settled(now, &[&[1, 2], &[1]]);
    assert_eq!(subject, Subject::tasks(&[1, 2], now), "one that has ended changes nothing");
}

#[test]
fn a_storm_of_births_is_not_chased_for_ever() {
    let births: Vec<Vec<u32>> = (1..100).map(|last| (1..=last).collect()).collect();
    let lists: Vec<&[u32]> = births.iter().map(Vec::as_slice).collect();
    assert_eq!(settled(Start::Now, &lists).1, MOST_OPENINGS as usize);
    assert_eq!(settled(Start::OnExec, &lists).1, 1);
}

#[test]
fn whole_cpus_are_sampled_only_where_a_task_is_refused_for_no_want_of_rights() {
    let refused = |errno| {
        let source = std::io::Error::from_raw_os_error(errno);
        let (event, target) = ("ibs_op".to_string(), "this thread".to_string());
        Err(LinuxError::PerfOpen { event, target, source })
    };
    assert!(only_of_cpus(refused(libc::EINVAL), || Ok(())));
    assert!(!only_of_cpus(refused(libc::EINVAL), || refused(libc::EACCES)));
    assert!(!only_of_cpus(refused(libc::EACCES), || Ok(())));
    assert!(!only_of_cpus(Ok(()), || panic!("a task is sampled by itself")));
}
