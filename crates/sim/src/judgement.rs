//! Compares `auto` with single policies and interleaving, over all machines and workloads and over
//! cases of the swarm. It computes the speed of each relative to first touch, and lists the cases
//! in which `auto` is behind the best.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use crate::catalogue;
use crate::contender::Contender;
use crate::parallel;
use crate::run::run;
use crate::swarm::{self, Case, Ranges};
use crate::workload::BUILT_IN;

/// The policy that is judged.
const JUDGED: &str = "auto";
/// All that are compared, behind first touch.
const CONTENDERS: [&str; 7] =
    ["interleave", "carrefour", "nmass", "sam", "asymsched", "home", JUDGED];
/// Part of the best speed that the judged policy is to reach everywhere.
const GOAL: f64 = 0.95;
/// A difference of speed below this is none (our choice; the hidden constants of a seed are the
/// same for all).
const ALIKE: f64 = 0.02;

/// One scene under all contenders.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Line {
    /// Workload and machine, or the seed of a case.
    pub(crate) scene: String,
    /// Against first touch, in the order of the contenders; absent where it was given up.
    pub(crate) speeds: Vec<Option<f64>>,
}

/// One contender over all scenes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) policy: String,
    /// Geometric mean.
    pub(crate) mean: f64,
    pub(crate) worst: f64,
    pub(crate) best: f64,
    /// Share of the scenes in which it is slower than first touch by more than two percent, or has
    /// no speed.
    pub(crate) slower: f64,
    /// Scenes without a speed. The mean, the worst and the best are of the others.
    pub(crate) unfinished: usize,
}

/// A scene in which another contender is clearly faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Loss {
    pub(crate) scene: String,
    /// Of the judged policy, against first touch.
    pub(crate) speed: f64,
    /// The fastest, and its speed.
    pub(crate) best: &'static str,
    pub(crate) best_speed: f64,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) kind: &'static str,
    pub(crate) contenders: Vec<&'static str>,
    /// Machines and workloads, then cases of the swarm.
    pub(crate) scenes: Vec<Row>,
    pub(crate) cases: Vec<Row>,
    /// Scenes in which the judged policy is below 0.95 of the best, the worst first.
    pub(crate) losses: Vec<Loss>,
    /// Scenes in which it has no speed: it did not finish, or there is no first touch to compare
    /// with.
    pub(crate) unfinished: Vec<String>,
    /// Scenes in which it is faster than all others by more than two percent.
    pub(crate) wins: usize,
    pub(crate) lines: Vec<Line>,
}

/// Runs everything.
///
/// # Errors
/// A machine or workload that comes along is refused.
pub(crate) fn judge(
    seed: u64,
    runs: u64,
    cases: u64,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Report> {
    let mut jobs = Vec::new();
    for machine in catalogue::machine_names() {
        for (workload, _) in BUILT_IN {
            let seeds = (0..runs).map(|run| seed.wrapping_add(run));
            jobs.extend(seeds.map(|seed| Job::Scene { machine, workload, seed }));
        }
    }
    let scenes = jobs.len();
    jobs.extend((0..cases).map(|case| Job::Case(seed.wrapping_add(case))));
    let all = jobs.len();
    let lines = parallel::map(&jobs, Job::run, |done| progress(done, all));
    let lines: Vec<Line> = lines.into_iter().collect::<Result<_>>()?;
    Ok(Report::of(lines, scenes))
}

enum Job {
    Scene { machine: &'static str, workload: &'static str, seed: u64 },
    Case(u64),
}

impl Job {
    fn run(&self) -> Result<Line> {
        match self {
            Self::Scene { machine, workload, seed } => {
                let scene = catalogue::scene(machine, workload, *seed)?;
                let base = run(&scene, &Contender::FirstTouch)?;
                let mut speeds = Vec::with_capacity(CONTENDERS.len());
                for name in CONTENDERS {
                    let contender = name.parse().map_err(anyhow::Error::msg)?;
                    speeds.push(run(&scene, &contender)?.speed_against(&base));
                }
                Ok(Line { scene: format!("{workload} on {machine}, seed {seed}"), speeds })
            }
            Self::Case(seed) => {
                let mut case = Case::draw(*seed, &Ranges::frozen());
                case.faults = None;
                let speeds = CONTENDERS.map(|name| match name {
                    "interleave" => swarm::interleaved(&case),
                    name => {
                        case.policy = name.to_string();
                        swarm::speed(&case)
                    }
                });
                Ok(Line { scene: format!("case {seed}"), speeds: speeds.into() })
            }
        }
    }
}

impl Report {
    fn of(lines: Vec<Line>, scenes: usize) -> Self {
        let (mut losses, mut unfinished, mut wins) = (Vec::new(), Vec::new(), 0);
        for line in &lines {
            let known = CONTENDERS.into_iter().zip(&line.speeds);
            let mut known: Vec<(&str, f64)> =
                known.filter_map(|(name, speed)| Some((name, (*speed)?))).collect();
            let Some((_, speed)) = known.pop_if(|(name, _)| *name == JUDGED) else {
                unfinished.push(line.scene.clone());
                continue;
            };
            known.push(("first-touch", 1.0));
            let fastest = known.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let (best, best_speed) = fastest.unwrap_or(("first-touch", 1.0));
            wins += usize::from(speed / best_speed > 1.0 + ALIKE);
            if speed / best_speed < GOAL {
                losses.push(Loss { scene: line.scene.clone(), speed, best, best_speed });
            }
        }
        losses.sort_by(|a, b| (a.speed / a.best_speed).total_cmp(&(b.speed / b.best_speed)));
        Self {
            kind: "simulated",
            contenders: CONTENDERS.into(),
            scenes: rows(&lines[..scenes]),
            cases: rows(&lines[scenes..]),
            losses,
            unfinished,
            wins,
            lines,
        }
    }

    /// The tables for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("Speed against first touch (simulated)\n");
        for (title, rows) in [("machines and workloads", &self.scenes), ("swarm", &self.cases)] {
            let _ = write!(
                text,
                "\n{title:<24} {:>8} {:>8} {:>8} {:>16} {:>12}\n",
                "mean", "worst", "best", "slower by > 2 %", "not finished"
            );
            for row in rows {
                let _ = writeln!(
                    text,
                    "{:<24} {:>8.3} {:>8.3} {:>8.2} {:>14.1} % {:>12}",
                    row.policy,
                    row.mean,
                    row.worst,
                    row.best,
                    100.0 * row.slower,
                    row.unfinished
                );
            }
        }
        let _ = write!(
            text,
            "\n{JUDGED}: faster than all others by more than 2 % in {} of {} scenes, below {GOAL} of \
             the best in {}\n",
            self.wins,
            self.lines.len(),
            self.losses.len()
        );
        for scene in &self.unfinished {
            let _ =
                writeln!(text, "  {scene:<44} no speed: {JUDGED} or first touch did not finish");
        }
        for Loss { scene, speed, best, best_speed } in self.losses.iter().take(15) {
            let _ = writeln!(text, "  {scene:<44} {speed:.3} where {best} has {best_speed:.3}");
        }
        text
    }
}

fn rows(lines: &[Line]) -> Vec<Row> {
    let row = |(place, name): (usize, &&str)| {
        let speeds: Vec<f64> = lines.iter().filter_map(|line| line.speeds[place]).collect();
        let count = speeds.len() as f64;
        let unfinished = lines.len() - speeds.len();
        let slower = speeds.iter().filter(|speed| **speed < 1.0 - ALIKE).count() + unfinished;
        let logs: f64 = speeds.iter().map(|speed| speed.ln()).sum();
        (count > 0.0).then(|| Row {
            policy: (*name).to_string(),
            mean: (logs / count).exp(),
            worst: speeds.iter().copied().fold(f64::INFINITY, f64::min),
            best: speeds.iter().copied().fold(0.0, f64::max),
            slower: slower as f64 / lines.len() as f64,
            unfinished,
        })
    };
    CONTENDERS.iter().enumerate().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_where_the_best_is_clearly_faster() {
        let line = |scene: &str, sam: f64, judged: f64| Line {
            scene: scene.to_string(),
            speeds: [1.0, 1.0, 1.0, sam, 1.0, 1.0, judged].map(Some).into(),
        };
        let lines = vec![line("a", 1.5, 1.2), line("b", 0.9, 0.99), line("c", 1.0, 1.1)];
        let report = Report::of(lines, 2);
        let loss = Loss { scene: "a".to_string(), speed: 1.2, best: "sam", best_speed: 1.5 };
        assert_eq!((report.losses, report.wins), (vec![loss], 1));
    }

    #[test]
    fn a_scene_that_the_judged_policy_does_not_finish_is_told() {
        let ended = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.2].map(Some);
        let mut killed = ended;
        killed[CONTENDERS.len() - 1] = None;
        let line = |scene: &str, speeds: [Option<f64>; 7]| Line {
            scene: scene.to_string(),
            speeds: speeds.into(),
        };
        let report = Report::of(vec![line("a", ended), line("b", killed)], 2);
        assert_eq!((report.unfinished.as_slice(), report.wins), (["b".to_string()].as_slice(), 1));
        let judged = report.scenes.last().expect("judged");
        assert_eq!((judged.unfinished, judged.slower), (1, 0.5));
        let text = report.text();
        assert!(text.contains("did not finish"), "{text}");
    }

    #[test]
    fn means_are_geometric_and_losses_are_told() {
        let line = |judged: f64| Line {
            scene: "a scene".to_string(),
            speeds: [1.5, 1.0, 1.0, 1.0, 1.0, 1.0, judged].map(Some).into(),
        };
        let report = Report::of(vec![line(1.2), line(1.01)], 2);
        let judged = report.scenes.last().expect("judged");
        assert!((judged.mean - (1.2f64 * 1.01).sqrt()).abs() < 1e-12, "{judged:?}");
        assert!(report.text().contains("where interleave has 1.500"), "{}", report.text());
    }

    #[test]
    fn a_scene_is_run_under_each() {
        let job = Job::Scene { machine: "nmass-2", workload: "producer-consumer", seed: 1 };
        let line = job.run().unwrap();
        assert_eq!(line.speeds.len(), CONTENDERS.len());
        assert!(line.speeds.iter().all(|speed| speed.is_some_and(|speed| speed > 0.1)), "{line:?}");
    }
}
