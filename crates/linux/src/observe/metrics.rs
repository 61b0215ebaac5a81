//! Which events are counted of the whole tree, and how many counters are left for them.

use super::sensors::{Rung, Settings};
use crate::perf::generation::{Available, Metric};
use crate::perf::group::parts;
use crate::perf::pmu::Event;

/// Default metrics beside the traffic matrix: causes of its cost, and writes. Counters are few, and
/// each further event shortens the time for which all others are counted.
const DEFAULT_METRICS: [Metric; 5] = [
    Metric::DramLatencyCycles,
    Metric::DramRequests,
    Metric::Writebacks,
    Metric::Refills,
    Metric::RefillsModified,
];

/// The available events of the default set or of the requested one.
pub(super) fn chosen(available: &Available, settings: &Settings) -> Vec<(Metric, Event)> {
    let is_chosen = |metric: Metric| match &settings.metrics {
        _ if !settings.counts() => false,
        Some(metrics) => metrics.iter().any(|wanted| wanted.same_kind(metric)),
        None => is_default(metric, available),
    };
    available.core.iter().filter(|(metric, _)| is_chosen(*metric)).cloned().collect()
}

fn is_default(metric: Metric, available: &Available) -> bool {
    let by_target = available.core.iter().any(|(other, _)| matches!(other, Metric::DramNode(_)));
    match metric {
        Metric::DramNode(_) => true,
        Metric::LocalDram | Metric::RemoteDram => !by_target,
        other => DEFAULT_METRICS.contains(&other),
    }
}

/// Number of counters that sampling uses: 0 if it has a unit of its own, as on AMD and Arm.
fn counters_of_sampling(available: &Available, settings: &Settings) -> usize {
    if !settings.samples() || settings.rung == Some(Rung::Faults) {
        return 0;
    }
    available.sample.iter().filter(|event| available.is_of_core(event)).count()
}

/// Number of counters of a core that are free for counting, at least 1. Sampling takes some, and
/// the kernel's `watchdog` one. A group that needs more is never on the unit: the kernel checks a
/// group against an empty unit (`validate_group`, arch/x86/events/core.c, Linux 6.12).
pub(super) fn room(available: &Available, settings: &Settings, watchdog: bool) -> usize {
    let taken = counters_of_sampling(available, settings) + usize::from(watchdog);
    available.counters.saturating_sub(taken).max(1)
}

/// Note about the kernel's watchdog if the events of the tree or of each thread would take fewer
/// turns with its counter.
pub(super) fn note_of_watchdog(
    available: &Available,
    settings: &Settings,
    room: usize,
) -> Option<String> {
    let of_threads = available.core.iter().filter(|(metric, _)| {
        settings.counts() && settings.threads.iter().any(|wanted| wanted.same_kind(*metric))
    });
    let of_threads: Vec<(Metric, Event)> = of_threads.cloned().collect();
    let spares_turns =
        |events: &[(Metric, Event)]| parts(events, room + 1).len() < parts(events, room).len();
    let helps = spares_turns(&chosen(available, settings)) || spares_turns(&of_threads);
    helps.then(|| {
        "the kernel's NMI watchdog holds a counter of each core; \
         `sudo sysctl kernel.nmi_watchdog=0` gives one more, so that events take fewer turns"
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::{Attr, TYPE_RAW};

    fn event() -> Event {
        Event { name: "x".into(), attr: Attr::counting(TYPE_RAW, 0), cpus: None }
    }

    /// A core of `counters` counters, which samples loads and stores with them.
    fn available(counters: usize, metrics: &[Metric]) -> Available {
        let core = metrics.iter().map(|metric| (*metric, event())).collect();
        Available { counters, core, sample: vec![event(), event()], ..Available::default() }
    }

    #[test]
    fn sampling_and_the_watchdog_take_counters_but_not_the_last_one() {
        let all = Settings::default();
        let counting = Settings { rung: Some(Rung::Counters), ..Settings::default() };
        let room = |counters, settings, watchdog| {
            room(&available(counters, &[Metric::LocalDram]), settings, watchdog)
        };
        assert_eq!([room(4, &all, false), room(4, &all, true)], [2, 1]);
        assert_eq!([room(4, &counting, false), room(4, &counting, true)], [4, 3]);
        assert_eq!([room(2, &all, true), room(1, &counting, true)], [1, 1]);
    }

    #[test]
    fn the_watchdog_is_noted_where_its_counter_spares_turns() {
        let settings = Settings::default();
        let two = available(4, &[Metric::LocalDram, Metric::RemoteDram]);
        assert!(note_of_watchdog(&two, &settings, 1).unwrap().contains("nmi_watchdog=0"));
        assert_eq!(note_of_watchdog(&two, &settings, 2), None, "both fit");
        let faults = Settings { rung: Some(Rung::Faults), ..Settings::default() };
        assert_eq!(note_of_watchdog(&two, &faults, 1), None, "nothing is counted");
        let threads = Settings { threads: vec![Metric::LlcMisses, Metric::LlcHits], ..settings };
        let four = available(8, &[Metric::LlcMisses, Metric::LlcHits]);
        assert!(note_of_watchdog(&four, &threads, 1).is_some(), "each thread has two events");
    }
}
