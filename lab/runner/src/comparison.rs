//! One configuration's runs beside those of first touch: speeds seed by seed, and whether a rival
//! acted at all.

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::last_third::WorkUnit;
use crate::result::RunResult;

/// One configuration's runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfigurationReport {
    pub(crate) name: String,
    /// The whole run's speed.
    pub(crate) speed: Option<Speed>,
    /// The speed of the last third of the work.
    pub(crate) last_third: Option<Speed>,
    /// What that third was measured in.
    pub(crate) last_third_in: Option<WorkUnit>,
    /// Both speeds seed by seed, of the seeds that first touch has run with too.
    pub(crate) by_seed: Vec<SeedSpeed>,
    /// A sentence where a manager did nothing, else `None`.
    pub(crate) idle: Option<String>,
    pub(crate) runs: Vec<RunResult>,
}

/// One seed's speeds relative to its run under first touch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeedSpeed {
    pub(crate) seed: u64,
    pub(crate) speed: f64,
    pub(crate) last_third: Option<f64>,
}

/// Speed relative to first touch, over seeds; above 1 is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speed {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Speed {
    pub(crate) fn of(ratios: impl Iterator<Item = f64>) -> Option<Self> {
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let median = median(&ratios)?;
        Some(Self { median, least: ratios[0], most: ratios[ratios.len() - 1] })
    }
}

impl ConfigurationReport {
    /// Compares `runs` with the first-touch runs of the same seeds, where there are any.
    pub(crate) fn new(
        configuration: Configuration,
        runs: Vec<RunResult>,
        first_touch: &[RunResult],
    ) -> Self {
        let by_seed = |run: &RunResult| {
            let base = first_touch.iter().find(|base| base.seed == run.seed)?;
            let third = run.last_third.zip(base.last_third);
            Some(SeedSpeed {
                seed: run.seed,
                speed: base.seconds / run.seconds,
                last_third: third.and_then(|(run, base)| run.relative_to(&base)),
            })
        };
        let by_seed: Vec<SeedSpeed> = runs.iter().filter_map(by_seed).collect();
        Self {
            name: configuration.name(),
            speed: Speed::of(by_seed.iter().map(|one| one.speed)),
            last_third: Speed::of(by_seed.iter().filter_map(|one| one.last_third)),
            by_seed,
            last_third_in: runs.iter().find_map(|run| Some(run.last_third?.unit)),
            idle: idle(configuration, &runs),
            runs,
        }
    }
}

/// numad leaves processes with less resident memory alone, MiB (`MEMORY_THRESHOLD` in numad.c).
const NUMAD_LEAST_MIB: f64 = 300.0;

/// In words, where a manager of pages did nothing in some or all of the runs.
fn idle(configuration: Configuration, runs: &[RunResult]) -> Option<String> {
    let acted = |run: &&RunResult| match configuration {
        // Unmapping pages to catch the next access costs time, also where no page moves.
        Configuration::AutoNuma => run.pages_watched > 0,
        Configuration::Numad => run.pages_moved > 0,
        Configuration::InterleaveLate(_) => run.spread.is_some(),
        _ => true,
    };
    let what = match configuration {
        Configuration::AutoNuma => "looked at no page",
        Configuration::Numad => "moved nothing",
        _ => "had not begun when the program ended",
    };
    let small = |run: &RunResult| run.max_rss_mib < NUMAD_LEAST_MIB;
    let why = if configuration == Configuration::Numad && runs.iter().all(small) {
        " (it leaves programs under 300 MB alone)"
    } else {
        ""
    };
    match runs.len() - runs.iter().filter(acted).count() {
        0 => None,
        all if all == runs.len() => Some(format!("{configuration} {what}: it did not act{why}")),
        some => Some(format!("{configuration} {what} in {some} of {} runs{why}", runs.len())),
    }
}

/// The middle of sorted values, the mean of the two middle ones where their number is even.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_third::LastThird;
    use crate::result::sample_run;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 9.0]), Some(2.5));
    }

    fn run(seed: u64, seconds: f64, per_s: f64) -> RunResult {
        let last_third = Some(LastThird { unit: WorkUnit::Rounds, per_s });
        RunResult { seed, seconds, last_third, ..sample_run() }
    }

    #[test]
    fn speeds_are_ratios_seed_by_seed() {
        let base = [run(1, 2.0, 10.0), run(2, 4.0, 5.0)];
        let runs = vec![run(2, 2.0, 15.0), run(1, 2.0, 11.0), run(3, 9.0, 1.0)];
        let report = ConfigurationReport::new(Configuration::AutoNuma, runs, &base);
        assert_eq!(report.speed, Some(Speed { median: 1.5, least: 1.0, most: 2.0 }));
        assert_eq!(report.last_third, Some(Speed { median: 2.05, least: 1.1, most: 3.0 }));
        assert_eq!(report.by_seed.iter().map(|one| one.seed).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(ConfigurationReport::new(Configuration::Numad, vec![], &base).speed, None);
    }

    #[test]
    fn a_rival_that_did_not_act_is_named() {
        let still = || RunResult { max_rss_mib: 301.0, ..run(1, 1.0, 1.0) };
        let moved = || RunResult { pages_moved: 7, pages_watched: 9, ..run(2, 1.0, 1.0) };
        let said = |configuration, runs| ConfigurationReport::new(configuration, runs, &[]).idle;
        let (numad, autonuma) = (Configuration::Numad, Configuration::AutoNuma);
        assert_eq!(
            said(numad, vec![still()]).as_deref(),
            Some("numad moved nothing: it did not act")
        );
        assert_eq!(
            said(numad, vec![run(1, 1.0, 1.0)]).as_deref(),
            Some("numad moved nothing: it did not act (it leaves programs under 300 MB alone)")
        );
        assert_eq!(
            said(numad, vec![still(), moved()]).as_deref(),
            Some("numad moved nothing in 1 of 2 runs")
        );
        assert_eq!(
            said(autonuma, vec![still()]).as_deref(),
            Some("autonuma looked at no page: it did not act")
        );
        assert_eq!(said(autonuma, vec![moved()]), None);
        assert_eq!(said(Configuration::FirstTouch, vec![still()]), None);
        let late = Configuration::InterleaveLate(1500);
        assert_eq!(
            said(late, vec![still()]).as_deref(),
            Some("interleave-late=1.5 had not begun when the program ended: it did not act")
        );
    }
}
