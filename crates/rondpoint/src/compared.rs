//! Text about a trial: each measure with its change.

use rondpoint_core::trial::{Change, Comparison};
use serde::Serialize;

use crate::story::words::percent;

/// One measure of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub(crate) what: &'static str,
    /// Relative change of the measure itself: a fall of latency is negative.
    pub(crate) change: f64,
    /// Half width of its 95 % interval.
    pub(crate) noise: f64,
}

/// The measures of which the verdict is made, as the core weighs them. A program's own count of
/// work stands alone. The share of local memory use stands only where nothing else is known.
pub(crate) fn of(comparison: &Comparison) -> Vec<Compared> {
    let Comparison { progress, instructions, slowest, latency, unstalled, local, .. } = *comparison;
    let one = |what, change: Option<Change>| {
        change.map(|Change { change, noise }| Compared { what, change, noise })
    };
    if let Some(progress) = one("the program's own count of work", progress) {
        return vec![progress];
    }
    // The core counts a fall of latency as a gain.
    let latency = latency.map(|latency| Change { change: -latency.change, ..latency });
    let parts = [
        one("instructions of all threads", instructions),
        // Both are known or neither, and stand together.
        one("of the slowest thread", slowest),
        one("memory latency", latency),
        one("cycles without a stall", unstalled),
    ];
    let known: Vec<Compared> = parts.into_iter().flatten().collect();
    match known.is_empty() {
        true => one("share of local memory use", local).into_iter().collect(),
        false => known,
    }
}

/// `instructions of all threads +31 % ± 1.2 %, memory latency -12 % ± 3.0 %`.
pub(crate) fn told(compared: &[Compared]) -> String {
    let told = |one: &Compared| {
        format!("{} {} ± {:.1} %", one.what, percent(one.change), 100.0 * one.noise)
    };
    compared.iter().map(told).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict weighs the slowest thread too, so the sentence has to name it.
    #[test]
    fn each_measure_is_named_with_its_own_change() {
        let change = |change, noise| Some(Change { change, noise });
        let comparison = Comparison {
            progress: None,
            instructions: change(3.87, 0.05),
            slowest: change(-0.021, 0.04),
            latency: change(0.12, 0.03),
            by_latency: None,
            unstalled: None,
            local: change(0.5, 0.1),
            combined: None,
            phase: 0.0,
            misses: 0.0,
        };
        assert_eq!(
            told(&of(&comparison)),
            "instructions of all threads +387 % ± 5.0 %, \
             of the slowest thread -2.1 % ± 4.0 %, memory latency -12 % ± 3.0 %"
        );
        let own = Comparison { progress: change(0.2, 0.01), ..comparison };
        assert_eq!(told(&of(&own)), "the program's own count of work +20 % ± 1.0 %");
        let none = Comparison { instructions: None, slowest: None, latency: None, ..comparison };
        assert_eq!(told(&of(&none)), "share of local memory use +50 % ± 10.0 %");
    }
}
