//! Computes the results of an experiment from the output of its programs. Speeds are relative to
//! the same program with the same seed under the kernel alone.

use rondpoint_lab_init::Ending;
use serde::{Deserialize, Serialize};

use crate::comparison::{Speed, median};
use crate::product::ProductReport;
use crate::result::{ManagerPrice, RunResult};
use crate::watching::Price;

/// Everything that was run. Every figure is emulated.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Version of this report's format.
    pub(crate) format: u32,
    /// Where the figures come from: always `emulated`.
    pub(crate) origin: String,
    pub(crate) seeds: u64,
    pub(crate) experiments: Vec<ExperimentReport>,
    pub(crate) failures: Vec<String>,
}

/// One experiment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExperimentReport {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) machine: String,
    pub(crate) slow_motion: f64,
    /// Guest seconds of every run; speeds are those of its last third.
    pub(crate) seconds: u32,
    pub(crate) programs: Vec<String>,
    /// Whether the kernel replicates, so that reports tell of copies.
    #[serde(default)]
    pub(crate) copies: bool,
    /// Whether only the price of watching was measured.
    #[serde(default)]
    pub(crate) watched: bool,
    /// The fixed placement that was fastest with the first seed; `None` where none was tried.
    pub(crate) best_fixed: Option<String>,
    pub(crate) cases: Vec<CaseReport>,
}

/// One placement or manager.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CaseReport {
    pub(crate) name: String,
    /// What ran in the guest: `./x lab run --machine … --config … -- COMMAND`.
    pub(crate) configuration: String,
    pub(crate) command: Vec<String>,
    pub(crate) runs: Vec<Run>,
    /// Of all programs together (geometric mean), in the last third, relative to the kernel alone.
    pub(crate) speed: Option<Speed>,
    /// The same of the whole run.
    pub(crate) whole: Option<Speed>,
    /// The slowest program's.
    pub(crate) least: Option<Speed>,
    /// Standard deviation of the programs' speeds relative to those under the best fixed placement:
    /// how unevenly they are served.
    pub(crate) spread: Option<Speed>,
}

/// One run of a case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    /// Each program's rounds per second in the last third of the time, in the order of the
    /// programs.
    pub(crate) last_third: Vec<f64>,
    /// The same of the whole run.
    pub(crate) whole: Vec<f64>,
    /// Local accesses in the last third of the time, percent.
    #[serde(default)]
    pub(crate) local_percent: Option<f64>,
    /// What the manager took; zeros where none ran.
    #[serde(default)]
    pub(crate) manager: ManagerPrice,
    pub(crate) rondpoint: Option<ProductReport>,
}

/// What is wrong with a run, if anything.
pub(super) fn failure(run: &RunResult) -> Option<String> {
    let last = run.stdout.lines().last().unwrap_or_default();
    let said = run.stderr.lines().last().unwrap_or_default();
    (run.ending != Ending::Exit(0)).then(|| format!("{:?} {last} {said}", run.ending))
}

impl Run {
    /// Reads the lines of `mix`. `None` where a program did not say when its rounds ended, or ended
    /// less than two rounds in the last third.
    pub(super) fn of(result: &RunResult, programs: usize, seconds: u32) -> Option<Self> {
        let seconds = f64::from(seconds);
        let mut run = Self {
            seed: result.seed,
            last_third: Vec::new(),
            whole: Vec::new(),
            local_percent: result.late_local_percent,
            manager: result.manager,
            rondpoint: result.rondpoint.clone(),
        };
        for number in 0..programs {
            let head = format!("program={number} ");
            let line = result.stdout.lines().find_map(|line| line.strip_prefix(&head))?;
            let value = |key: &str| line.split(' ').find_map(|pair| pair.strip_prefix(key));
            let ends: Vec<f64> =
                value("ends_s=")?.split(',').map(|end| end.parse().ok()).collect::<Option<_>>()?;
            let rounds: f64 = value("iterations=")?.parse().ok()?;
            // A long list is thinned evenly.
            let each = rounds / ends.len() as f64;
            // From one end of a round to another, so that long rounds are not counted by halves.
            let late: Vec<f64> =
                ends.iter().copied().filter(|end| *end > seconds * 2.0 / 3.0).collect();
            let (first, last) = (late.first()?, late.last().filter(|_| late.len() > 1)?);
            run.last_third.push(each * (late.len() - 1) as f64 / (last - first));
            run.whole.push(rounds / ends.last()?);
        }
        Some(run)
    }
}

impl CaseReport {
    /// Compares with the kernel's runs of the same seeds, and for the spread with those of the best
    /// fixed placement.
    pub(super) fn compare(&mut self, base: &[Run], best: &[Run]) {
        let late = self.speeds(base, |run| &run.last_third);
        let summed = |speeds: &[Vec<f64>], sum: fn(&[f64]) -> f64| {
            Speed::of(speeds.iter().map(|speeds| sum(speeds)))
        };
        self.speed = summed(&late, geometric_mean);
        self.whole = summed(&self.speeds(base, |run| &run.whole), geometric_mean);
        self.least = summed(&late, |speeds| speeds.iter().copied().fold(f64::INFINITY, f64::min));
        self.spread = summed(&self.speeds(best, |run| &run.last_third), deviation);
    }

    /// For each run, the programs' speeds relative to the run of the same seed among others, if
    /// there is one.
    fn speeds(&self, others: &[Run], of: fn(&Run) -> &Vec<f64>) -> Vec<Vec<f64>> {
        let relative = |run: &Run| -> Option<Vec<f64>> {
            let other = others.iter().find(|other| other.seed == run.seed)?;
            Some(of(run).iter().zip(of(other)).map(|(own, other)| own / other).collect())
        };
        self.runs.iter().filter_map(relative).collect()
    }
}

impl ExperimentReport {
    /// The median speed of a case.
    pub(super) fn speed(&self, name: &str) -> Option<f64> {
        Some(self.cases.iter().find(|case| case.name == name)?.speed?.median)
    }

    /// The median speed of the best fixed placement.
    pub(super) fn best_speed(&self) -> Option<f64> {
        self.speed(self.best_fixed.as_ref()?)
    }

    /// What a case that only watches cost the programs.
    pub(super) fn price(&self, name: &str) -> Price {
        let Some(case) = self.cases.iter().find(|case| case.name == name) else {
            return Price::default();
        };
        let cpu_percent = Speed::of(case.runs.iter().map(|run| run.manager.cpu_percent));
        Price { work: case.whole, cpu_percent }
    }

    /// The cases in which Rondpoint ran.
    pub(super) fn managed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.configuration.starts_with("rondpoint"))
    }

    /// Of those fixed placements with as many threads on each node as far as that goes: the mean.
    pub(super) fn balanced_mean(&self) -> Option<f64> {
        let speeds: Vec<f64> = self
            .cases
            .iter()
            .filter(|case| case.name.strip_prefix("fixed ").is_some_and(is_balanced))
            .filter_map(|case| Some(case.speed?.median))
            .collect();
        (speeds.len() > 1).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64)
    }
}

/// Two nodes with equally many threads.
fn is_balanced(nodes: &str) -> bool {
    let count = |node: &str| nodes.split(' ').filter(|found| *found == node).count();
    count("0") == count("1") && count("0") * 2 == nodes.split(' ').count()
}

fn geometric_mean(speeds: &[f64]) -> f64 {
    (speeds.iter().map(|speed| speed.ln()).sum::<f64>() / speeds.len() as f64).exp()
}

fn deviation(speeds: &[f64]) -> f64 {
    let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
    (speeds.iter().map(|speed| (speed - mean).powi(2)).sum::<f64>() / speeds.len() as f64).sqrt()
}

/// The fixed placement that was fastest with the first seed.
pub(super) fn best_fixed(cases: &[CaseReport], base: &[Run]) -> Option<String> {
    let speed = |case: &CaseReport| -> Option<f64> {
        let run = case.runs.first()?;
        let base = base.iter().find(|base| base.seed == run.seed)?;
        let ratios: Vec<f64> =
            run.last_third.iter().zip(&base.last_third).map(|(own, base)| own / base).collect();
        median(&[geometric_mean(&ratios)])
    };
    let fixed = cases.iter().filter(|case| case.name.starts_with("fixed "));
    fixed
        .filter_map(|case| Some((speed(case)?, &case.name)))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::sample_run;

    fn run(seed: u64, last_third: &[f64]) -> Run {
        let last_third = last_third.to_vec();
        Run {
            seed,
            whole: last_third.clone(),
            last_third,
            local_percent: None,
            manager: ManagerPrice::default(),
            rondpoint: None,
        }
    }

    fn case(name: &str, runs: Vec<Run>) -> CaseReport {
        CaseReport {
            name: name.to_owned(),
            configuration: String::new(),
            command: Vec::new(),
            runs,
            speed: None,
            whole: None,
            least: None,
            spread: None,
        }
    }

    #[test]
    fn the_rate_of_the_last_third_is_taken_from_each_programs_line() {
        // Six seconds: a round a second, then four in the last two; the second program's list is
        // thinned.
        let stdout = "program=0 ends_s=1,2,3,4,4.5,5,5.5,6 workload=crew iterations=8 result=ok\n\
                      program=1 ends_s=1.5,3,4.5,6 workload=crew iterations=8 result=ok\nworkload=mix\n";
        let result = RunResult { stdout: stdout.to_owned(), ..sample_run() };
        let run = Run::of(&result, 2, 6).expect("both programs");
        assert_eq!(run.last_third, [2.0, 2.0 / 1.5]);
        assert_eq!(run.whole, [8.0 / 6.0, 8.0 / 6.0]);
        assert!(Run::of(&result, 3, 6).is_none());
        assert!(Run::of(&result, 2, 12).is_none(), "over before the last third");
        assert!(Run::of(&sample_run(), 1, 6).is_none());
    }

    #[test]
    fn speeds_are_those_of_the_same_seed_and_uneven_gains_show() {
        let base = [run(1, &[1.0, 1.0]), run(2, &[2.0, 2.0])];
        let mut one = case("x", vec![run(1, &[4.0, 1.0]), run(2, &[8.0, 2.0])]);
        let best = [run(1, &[2.0, 1.0]), run(2, &[4.0, 2.0])];
        one.compare(&base, &best);
        let medians = [one.speed, one.whole, one.least, one.spread].map(|s| s.expect("two").median);
        assert_eq!(medians, [2.0, 2.0, 1.0, 0.5]);
        one.compare(&base, &[]);
        assert_eq!(one.spread, None, "nothing to be unfair against");
    }

    #[test]
    fn the_best_fixed_placement_is_found_among_the_fixed_ones() {
        let base = [run(1, &[1.0])];
        let cases = [
            case("rondpoint=sam", vec![run(1, &[9.0])]),
            case("fixed 0 1", vec![run(1, &[3.0])]),
            case("fixed 1 0", vec![run(1, &[2.0])]),
        ];
        assert_eq!(best_fixed(&cases, &base).as_deref(), Some("fixed 0 1"));
        assert_eq!(best_fixed(&cases[..1], &base), None);
        assert!(is_balanced("0 1 1 0") && !is_balanced("0 0 1 0") && !is_balanced("0 5 0 5"));
    }
}
