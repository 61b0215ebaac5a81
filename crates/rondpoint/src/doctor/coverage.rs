//! Which metrics the known loads could tell anything about.

use std::collections::BTreeSet;

use super::judge::{Reading, is_busy};

/// The metrics of some readings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Coverage {
    /// Metrics that at least one load was judged in, ascending.
    pub(super) compared: Vec<String>,
    /// Metrics in which other programs were too loud under every load, ascending.
    pub(super) drowned: Vec<String>,
}

impl Coverage {
    /// Divides the metrics by whether [`judge`](super::judge::judge) uses any of their readings.
    pub(super) fn of(readings: &[Reading]) -> Self {
        let names = |is_wanted: &dyn Fn(&Reading) -> bool| -> Vec<String> {
            let wanted = readings.iter().filter(|reading| is_wanted(reading));
            let names: BTreeSet<&String> = wanted.map(|reading| &reading.metric).collect();
            names.into_iter().cloned().collect()
        };
        let compared = names(&|reading| !is_busy(reading));
        let drowned = names(&|reading| !compared.contains(&reading.metric));
        Self { compared, drowned }
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::Place;
    use super::*;

    /// A load of 1,000 lines beside `idle` lines of other programs.
    fn reading(metric: &str, idle: f64, is_own: bool) -> Reading {
        let place = Place { name: "node 0".to_string(), count: idle + 1e3, idle, fell: false };
        Reading {
            metric: metric.to_string(),
            load: String::new(),
            holding: 0,
            remote: false,
            places: vec![place],
            expected: 0,
            amount: 1e3,
            band: (0.6, 1.7),
            running_share: 1.0,
            units: Vec::new(),
            is_own,
        }
    }

    #[test]
    fn a_metric_that_others_drown_under_every_load_was_not_compared() {
        let readings = [
            reading("links", 9e3, false),
            reading("links", 0.0, false),
            reading("traffic", 9e3, false),
            reading("traffic", 8e3, false),
            reading("llc_misses", 9e3, true),
        ];
        let Coverage { compared, drowned } = Coverage::of(&readings);
        assert_eq!(compared, ["links", "llc_misses"]);
        assert_eq!(drowned, ["traffic"]);
    }
}
