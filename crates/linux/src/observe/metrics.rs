//! Which events are counted of the whole tree, and how many counters sampling leaves for them.

use super::sensors::{Rung, Settings};
use crate::perf::generation::{Available, Metric};
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
pub(super) fn counters_of_sampling(available: &Available, settings: &Settings) -> usize {
    if !settings.samples() || settings.rung == Some(Rung::Faults) {
        return 0;
    }
    available.sample.iter().filter(|event| available.is_of_core(event)).count()
}
