//! The result of a swarm: broken rules, and the work done relative to first touch.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Ranges, Result};

/// Cases that are named as the worst.
const WORST: usize = 10;

/// A report over many cases.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) kind: &'static str,
    /// Digest of the generator's ranges.
    pub(crate) ranges: String,
    pub(crate) first_seed: u64,
    pub(crate) cases: usize,
    /// Of those, cases that a file of results held already.
    pub(crate) kept: usize,
    pub(crate) steps: u64,
    /// Cases that broke a rule.
    pub(crate) broken: Vec<Result>,
    /// Of the cases without faults.
    pub(crate) speeds: Option<Speeds>,
    /// By policy, in order of its name.
    pub(crate) policies: Vec<PolicyRow>,
    /// The ten worst.
    pub(crate) worst: Vec<Result>,
}

/// Share of first touch's work: the worst, the 0.1th and first percentile, the median, the best.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Speeds {
    pub(crate) cases: usize,
    pub(crate) worst: f64,
    pub(crate) worst_of_1000: f64,
    pub(crate) worst_of_100: f64,
    pub(crate) median: f64,
    pub(crate) best: f64,
}

/// The cases of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PolicyRow {
    pub(crate) policy: String,
    pub(crate) cases: usize,
    /// Cases that broke a rule, by rule.
    pub(crate) broken: BTreeMap<String, usize>,
    /// Of the cases without faults.
    pub(crate) speeds: Option<Speeds>,
}

impl Speeds {
    /// `None` without a case that has a speed.
    fn of<'a>(results: impl Iterator<Item = &'a Result>) -> Option<Self> {
        let mut speeds: Vec<f64> = results.filter_map(|one| one.speed).collect();
        speeds.sort_by(f64::total_cmp);
        let last = speeds.len().checked_sub(1)?;
        let at = |share: f64| speeds[((speeds.len() as f64 * share) as usize).min(last)];
        Some(Self {
            cases: speeds.len(),
            worst: at(0.0),
            worst_of_1000: at(0.001),
            worst_of_100: at(0.01),
            median: at(0.5),
            best: at(1.0),
        })
    }
}

impl PolicyRow {
    fn of(policy: &str, results: &[Result]) -> Self {
        let own = || results.iter().filter(|one| one.policy == policy);
        let mut broken = BTreeMap::new();
        for one in own().filter_map(|one| one.broken.as_ref()) {
            *broken.entry(one.rule.clone()).or_default() += 1;
        }
        let (policy, cases) = (policy.to_string(), own().count());
        Self { policy, cases, broken, speeds: Speeds::of(own()) }
    }
}

impl Report {
    pub(crate) fn of(first_seed: u64, results: &[Result]) -> Self {
        let mut worst: Vec<&Result> = results.iter().filter(|one| one.speed.is_some()).collect();
        worst.sort_by(|a, b| a.speed.unwrap_or(0.0).total_cmp(&b.speed.unwrap_or(0.0)));
        let mut policies: Vec<&str> = results.iter().map(|one| one.policy.as_str()).collect();
        policies.sort_unstable();
        policies.dedup();
        Self {
            kind: "simulated",
            ranges: Ranges::digest(),
            first_seed,
            cases: results.len(),
            kept: 0,
            steps: results.iter().map(|one| one.steps).sum(),
            broken: results.iter().filter(|one| one.broken.is_some()).cloned().collect(),
            speeds: Speeds::of(results.iter()),
            policies: policies.into_iter().map(|policy| PolicyRow::of(policy, results)).collect(),
            worst: worst.into_iter().take(WORST).cloned().collect(),
        }
    }

    /// The report for people; the first failing seed is its first line.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for one in &self.broken {
            let Some(broken) = &one.broken else { continue };
            text +=
                &format!("seed {} ({}): {}: {}\n", one.seed, one.policy, broken.rule, broken.what);
        }
        if !self.broken.is_empty() {
            text += "rondpoint simulate --case SEED repeats a case and shrinks it\n\n";
        }
        text += &format!(
            "{} cases from seed {}, {} steps; ranges {}; {} broke a rule (simulated)\n",
            self.cases,
            self.first_seed,
            self.steps,
            self.ranges,
            self.broken.len()
        );
        if let Some(speeds) = &self.speeds {
            text += &format!(
                "work against first touch in {} cases without faults: worst {:.3}, worst of 1,000 \
                 {:.3}, of 100 {:.3}, median {:.3}, best {:.2}\n",
                speeds.cases,
                speeds.worst,
                speeds.worst_of_1000,
                speeds.worst_of_100,
                speeds.median,
                speeds.best
            );
            for one in &self.worst {
                let speed = one.speed.unwrap_or(0.0);
                text += &format!("  seed {:<6} {:<18} {speed:.3}\n", one.seed, one.policy);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::Broken;
    use super::*;

    fn result(seed: u64, policy: &str, speed: Option<f64>, rule: Option<&str>) -> Result {
        Result {
            seed,
            ranges: Ranges::digest(),
            policy: policy.to_string(),
            faults: speed.is_none(),
            speed,
            broken: rule.map(|rule| Broken::new(rule, "seen".to_string())),
            steps: 10,
            digest: String::new(),
        }
    }

    #[test]
    fn a_report_has_every_case_once_and_its_worst_first() {
        let mut results: Vec<Result> = (0..2000)
            .map(|seed| result(seed, "auto", Some(0.9 + seed as f64 / 4000.0), None))
            .collect();
        results.push(result(2000, "sam", None, Some("budget")));
        results.push(result(2001, "sam", Some(0.5), Some("no harm")));
        let report = Report::of(0, &results);
        assert_eq!((report.cases, report.steps, report.broken.len()), (2002, 20_020, 2));
        assert_eq!((report.worst[0].seed, report.worst[1].seed), (2001, 0));
        let speeds = report.speeds.expect("cases without faults");
        assert_eq!((speeds.cases, speeds.worst), (2001, 0.5));
        assert!((speeds.worst_of_1000 - 0.90025).abs() < 1e-9, "{speeds:?}");
        let of = |policy| report.policies.iter().find(|row| row.policy == policy).expect(policy);
        assert_eq!((of("auto").cases, of("sam").cases), (2000, 2));
        assert_eq!(of("sam").broken.keys().collect::<Vec<_>>(), ["budget", "no harm"]);
        assert!(of("auto").broken.is_empty());
        let text = report.text();
        assert!(text.starts_with("seed 2000 (sam): budget: seen\n"), "{text}");
    }
}
