//! The result of a swarm: broken rules, and the work done relative to first touch.

use std::collections::BTreeMap;

use serde::Serialize;

use super::case::JUDGED;
use super::{Case, Mode, Ranges, Result};

/// Cases that are named as the worst.
const WORST: usize = 10;
/// Field of a report with the shrunk case.
pub(super) const SHRUNK: &str = "shrunk";

/// A report over many cases.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) kind: &'static str,
    pub(crate) mode: Mode,
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
    /// Cases without faults that have no speed: a broken rule stopped them.
    pub(crate) unmeasured: usize,
    /// By policy, in order of its name.
    pub(crate) policies: Vec<PolicyRow>,
    /// The ten worst.
    pub(crate) worst: Vec<Result>,
    /// The ten worst under the policy of the goals.
    pub(crate) worst_judged: Vec<Result>,
    /// The smallest case found that breaks the first broken rule, for a report on one case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shrunk: Option<Case>,
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
    /// Cases that broke a rule.
    pub(crate) failed: usize,
    /// The same by rule. A case counts for each rule that it broke.
    pub(crate) broken: BTreeMap<String, usize>,
    /// Of the cases without faults.
    pub(crate) speeds: Option<Speeds>,
    /// As in the report.
    pub(crate) unmeasured: usize,
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
        for one in own().flat_map(|one| &one.broken) {
            *broken.entry(one.rule.clone()).or_default() += 1;
        }
        Self {
            policy: policy.to_string(),
            cases: own().count(),
            failed: own().filter(|one| !one.broken.is_empty()).count(),
            broken,
            speeds: Speeds::of(own()),
            unmeasured: own().filter(|one| is_unmeasured(one)).count(),
        }
    }
}

fn is_unmeasured(result: &Result) -> bool {
    !result.faults && result.speed.is_none()
}

impl Report {
    pub(crate) fn of(mode: Mode, first_seed: u64, results: &[Result]) -> Self {
        let mut worst: Vec<&Result> = results.iter().filter(|one| one.speed.is_some()).collect();
        worst.sort_by(|a, b| a.speed.unwrap_or(0.0).total_cmp(&b.speed.unwrap_or(0.0)));
        let worst_judged = worst.iter().filter(|one| one.policy == JUDGED);
        let mut policies: Vec<&str> = results.iter().map(|one| one.policy.as_str()).collect();
        policies.sort_unstable();
        policies.dedup();
        Self {
            kind: "simulated",
            mode,
            ranges: Ranges::digest(),
            first_seed,
            cases: results.len(),
            kept: 0,
            steps: results.iter().map(|one| one.steps).sum(),
            broken: results.iter().filter(|one| !one.broken.is_empty()).cloned().collect(),
            speeds: Speeds::of(results.iter()),
            unmeasured: results.iter().filter(|one| is_unmeasured(one)).count(),
            policies: policies.into_iter().map(|policy| PolicyRow::of(policy, results)).collect(),
            worst: worst.iter().take(WORST).copied().cloned().collect(),
            worst_judged: worst_judged.take(WORST).copied().cloned().collect(),
            shrunk: None,
        }
    }

    /// The report for people; the first failing seed is its first line.
    pub(crate) fn text(&self) -> String {
        let mut text = self.broken_text();
        text += &format!(
            "{} cases from seed {}, {}{} steps; ranges {}; {} broke a rule (simulated)\n",
            self.cases,
            self.first_seed,
            match self.mode {
                Mode::Drawn => "",
                Mode::Calm => "all under auto without faults, ",
                Mode::Harsh => "all with rare faults, ",
            },
            self.steps,
            self.ranges,
            self.broken.len()
        );
        if self.unmeasured > 0 {
            text += &format!(
                "{} cases without faults have no speed: a broken rule stopped them\n",
                self.unmeasured
            );
        }
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
        if let Some(json) =
            self.shrunk.as_ref().and_then(|one| serde_json::to_string_pretty(one).ok())
        {
            text += &format!(
                "\nshrunk: {json}\n\nrondpoint simulate --case-file FILE repeats this case from a \
                 file\n"
            );
        }
        text
    }

    /// A line for each rule that a case broke.
    fn broken_text(&self) -> String {
        let mut text = String::new();
        for one in &self.broken {
            for broken in &one.broken {
                let (seed, policy) = (one.seed, &one.policy);
                text += &format!("seed {seed} ({policy}): {}: {}\n", broken.rule, broken.what);
            }
        }
        if !self.broken.is_empty() && self.shrunk.is_none() {
            let calm = match self.mode {
                Mode::Drawn => "",
                Mode::Calm => " --calm",
                Mode::Harsh => " --harsh",
            };
            text +=
                &format!("rondpoint simulate --case SEED{calm} repeats a case and shrinks it\n");
        }
        if !self.broken.is_empty() {
            text += "\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::Broken;
    use super::*;

    fn result(seed: u64, policy: &str, speed: Option<f64>, rules: &[&str]) -> Result {
        Result {
            seed,
            policy: policy.to_string(),
            faults: speed.is_none(),
            speed,
            broken: rules.iter().map(|rule| Broken::new(rule, "seen".to_string())).collect(),
            steps: 10,
            digest: String::new(),
        }
    }

    #[test]
    fn a_report_has_every_case_once_and_its_worst_first() {
        let mut results: Vec<Result> = (0..2000)
            .map(|seed| result(seed, "auto", Some(0.9 + seed as f64 / 4000.0), &[]))
            .collect();
        results.push(result(2000, "sam", None, &["budget"]));
        results.push(result(2001, "sam", Some(0.5), &["budget", "no harm"]));
        let report = Report::of(Mode::Drawn, 0, &results);
        assert_eq!((report.cases, report.steps, report.broken.len()), (2002, 20_020, 2));
        assert_eq!((report.worst[0].seed, report.worst[1].seed), (2001, 0));
        let judged: Vec<u64> = report.worst_judged.iter().map(|one| one.seed).collect();
        assert_eq!(judged, (0..10).collect::<Vec<u64>>());
        let speeds = report.speeds.expect("cases without faults");
        assert_eq!((speeds.cases, speeds.worst), (2001, 0.5));
        assert!((speeds.worst_of_1000 - 0.90025).abs() < 1e-9, "{speeds:?}");
        let of = |policy| report.policies.iter().find(|row| row.policy == policy).expect(policy);
        assert_eq!((of("auto").cases, of("sam").cases), (2000, 2));
        let rules: Vec<(&str, usize)> =
            of("sam").broken.iter().map(|(rule, cases)| (rule.as_str(), *cases)).collect();
        assert_eq!(
            (rules.as_slice(), of("sam").failed),
            ([("budget", 2), ("no harm", 1)].as_slice(), 2)
        );
        assert!(of("auto").broken.is_empty());
        let text = report.text();
        let expected = "seed 2000 (sam): budget: seen\nseed 2001 (sam): budget: seen\n\
                        seed 2001 (sam): no harm: seen\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("--case SEED repeats"), "{text}");
    }

    #[test]
    fn a_case_without_faults_that_was_stopped_is_told_and_has_no_speed() {
        let stopped = Result { faults: false, ..result(1, "auto", None, &["conservation"]) };
        let results = [result(0, "auto", Some(1.0), &[]), stopped, result(2, "auto", None, &[])];
        let report = Report::of(Mode::Drawn, 0, &results);
        assert_eq!((report.unmeasured, report.policies[0].unmeasured), (1, 1));
        assert!(report.text().contains("1 cases without faults have no speed"));
    }

    #[test]
    fn a_calm_report_says_so_and_how_its_cases_are_repeated() {
        let report = Report::of(Mode::Calm, 0, &[result(0, "auto", Some(0.9), &["no harm"])]);
        let text = report.text();
        assert!(text.contains("all under auto without faults"), "{text}");
        assert!(text.contains("--case SEED --calm repeats"), "{text}");
        assert_eq!(serde_json::to_value(&report).unwrap()["mode"], "calm");
    }
}
