//! Compares `auto` with single policies, with Linux's placements and with numad, over all machines
//! and workloads and over cases of the swarm. It computes the speed of each relative to first
//! touch, and lists the scenes in which `auto` is behind the best.

use std::fmt::Write as _;
use std::ops::Range;

use anyhow::Result;
use serde::Serialize;

use crate::catalogue;
use crate::contender::Contender;
use crate::parallel;
use crate::run::run;
use crate::swarm::{self, Case, Ranges};
use crate::workload::BUILT_IN;
use crate::world::Scene;

/// The policy that is judged.
const JUDGED: &str = "auto";
/// All that are compared with first touch: rivals, then single policies, then the judged one.
const CONTENDERS: [&str; 12] = [
    "interleave",
    "autonuma",
    "numad",
    "carrefour",
    "carrefour:steady",
    "nmass",
    "sam",
    "asymsched",
    "sharing",
    "gather",
    "home",
    JUDGED,
];
/// Places of the rivals in [`CONTENDERS`].
const RIVALS: Range<usize> = 0..3;
/// Places of the single policies.
const SINGLE: Range<usize> = 3..CONTENDERS.len() - 1;
/// Part of the best speed that the judged policy is to reach everywhere.
const GOAL: f64 = 0.95;
/// A difference of speed below this is none (our choice; the hidden constants of a seed are the
/// same for all).
const ALIKE: f64 = 0.02;
/// Largest number of losses against rivals that the text names.
const NAMED: usize = 15;

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
    /// Whether it is no policy of Rondpoint.
    pub(crate) rival: bool,
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
    /// Scenes in which the judged policy is below 0.95 of the best single policy, the worst first.
    pub(crate) losses: Vec<Loss>,
    /// The same of the best rival, first touch among them.
    pub(crate) behind_rivals: Vec<Loss>,
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
                let name = format!("{workload} on {machine}, seed {seed}");
                Line::of(name, &scene)
            }
            Self::Case(seed) => {
                let mut case = Case::draw(*seed, &Ranges::frozen());
                case.faults = None;
                let speeds = swarm::speeds(&case, &CONTENDERS);
                Ok(Line { scene: name_of(&case), speeds })
            }
        }
    }
}

impl Line {
    /// Runs a scene under first touch and each contender.
    fn of(name: String, scene: &Scene) -> Result<Self> {
        let base = run(scene, &Contender::FirstTouch)?;
        let mut speeds = Vec::with_capacity(CONTENDERS.len());
        for name in CONTENDERS {
            let contender = name.parse().map_err(anyhow::Error::msg)?;
            speeds.push(run(scene, &contender)?.speed_against(&base));
        }
        Ok(Self { scene: name, speeds })
    }

    /// The fastest of some contenders, and its speed.
    fn fastest(&self, places: Range<usize>) -> Option<(&'static str, f64)> {
        let known = CONTENDERS.into_iter().zip(&self.speeds).take(places.end).skip(places.start);
        let known = known.filter_map(|(name, speed)| Some((name, (*speed)?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A loss if the speed is clearly below the best one.
    fn loss(&self, speed: f64, best: (&'static str, f64)) -> Option<Loss> {
        let (best, best_speed) = best;
        (speed / best_speed < GOAL).then(|| Loss {
            scene: self.scene.clone(),
            speed,
            best,
            best_speed,
        })
    }
}

/// A case by its seed. Rivals act on exempt processes too, and no policy may.
fn name_of(case: &Case) -> String {
    let exempt = case.limits.iter().filter(|(_, exempt)| *exempt).count();
    match exempt {
        0 => format!("case {}", case.seed),
        _ => format!("case {}, {exempt} of {} processes exempt", case.seed, case.limits.len()),
    }
}

fn worst_first(losses: &mut [Loss]) {
    losses.sort_by(|a, b| (a.speed / a.best_speed).total_cmp(&(b.speed / b.best_speed)));
}

impl Report {
    fn of(lines: Vec<Line>, scenes: usize) -> Self {
        let (mut losses, mut behind_rivals, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
        let mut wins = 0;
        for line in &lines {
            let Some((_, speed)) = line.fastest(SINGLE.end..CONTENDERS.len()) else {
                unfinished.push(line.scene.clone());
                continue;
            };
            let single = line.fastest(SINGLE);
            let first_touch = ("first-touch", 1.0);
            let rival = line.fastest(RIVALS).filter(|rival| rival.1 > 1.0).unwrap_or(first_touch);
            let best = single.map_or(rival.1, |single| single.1.max(rival.1));
            wins += usize::from(speed / best > 1.0 + ALIKE);
            losses.extend(single.and_then(|single| line.loss(speed, single)));
            behind_rivals.extend(line.loss(speed, rival));
        }
        worst_first(&mut losses);
        worst_first(&mut behind_rivals);
        Self {
            kind: "simulated",
            contenders: CONTENDERS.into(),
            scenes: rows(&lines[..scenes]),
            cases: rows(&lines[scenes..]),
            losses,
            behind_rivals,
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
             the best single policy in {}, of the best rival in {}\n",
            self.wins,
            self.lines.len(),
            self.losses.len(),
            self.behind_rivals.len()
        );
        for scene in &self.unfinished {
            let _ =
                writeln!(text, "  {scene:<44} no speed: {JUDGED} or first touch did not finish");
        }
        let told = self.losses.iter().chain(self.behind_rivals.iter().take(NAMED));
        for Loss { scene, speed, best, best_speed } in told {
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
            rival: RIVALS.contains(&place),
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
    use rondpoint_core::policy::POLICIES;

    /// Eight CPUs that jam one controller.
    const SMALL: &str = "nodes=4 cpus=2 memory=4G bandwidth=3000 hop=30";
    /// Families in which a single policy is clearly faster on that machine, each with the reason.
    const EXCEPTIONS: [(&str, &str); 1] = [(
        "look-ups",
        "carrefour:steady spreads the pages of the serial start, which auto prices as a loss, and \
         the threads that come then gain by it",
    )];

    /// A scene in which these have other speeds than first touch.
    fn line(scene: &str, others: &[(&str, f64)]) -> Line {
        let speed = |name: &str| others.iter().find(|(other, _)| *other == name).map(|it| it.1);
        let speeds = CONTENDERS.map(|name| Some(speed(name).unwrap_or(1.0)));
        Line { scene: scene.to_string(), speeds: speeds.into() }
    }

    #[test]
    fn every_policy_that_acts_is_judged() {
        let idle = ["observe", "shuffle"];
        for name in POLICIES.iter().map(|policy| policy.name).filter(|name| !idle.contains(name)) {
            assert!(CONTENDERS[SINGLE.start..].contains(&name), "{name}");
        }
        assert_eq!((CONTENDERS[RIVALS.end], CONTENDERS[SINGLE.end]), ("carrefour", JUDGED));
    }

    #[test]
    fn a_loss_is_where_the_best_is_clearly_faster() {
        let lines = vec![
            line("a", &[("gather", 1.5), (JUDGED, 1.2)]),
            line("b", &[("sam", 0.9), (JUDGED, 0.99)]),
            line("c", &[(JUDGED, 1.1)]),
            line("d", &[("numad", 1.4), (JUDGED, 1.1)]),
            line("e", &[(JUDGED, 0.9)]),
        ];
        let report = Report::of(lines, 2);
        let named = |losses: &[Loss]| -> Vec<(String, &'static str)> {
            losses.iter().map(|loss| (loss.scene.clone(), loss.best)).collect()
        };
        assert_eq!(report.losses[0].speed, 1.2);
        assert_eq!(named(&report.losses)[0], ("a".to_string(), "gather"));
        let behind = [("d".to_string(), "numad"), ("e".to_string(), "first-touch")];
        assert_eq!(named(&report.behind_rivals), behind);
        assert_eq!((report.losses.len(), report.wins), (2, 1));
    }

    #[test]
    fn a_scene_that_the_judged_policy_does_not_finish_is_told() {
        let ended = line("a", &[(JUDGED, 1.2)]);
        let mut killed = line("b", &[]);
        killed.speeds[CONTENDERS.len() - 1] = None;
        let report = Report::of(vec![ended, killed], 2);
        assert_eq!((report.unfinished.as_slice(), report.wins), (["b".to_string()].as_slice(), 1));
        let judged = report.scenes.last().expect("judged");
        assert_eq!((judged.unfinished, judged.slower), (1, 0.5));
        let text = report.text();
        assert!(text.contains("did not finish"), "{text}");
    }

    #[test]
    fn a_case_with_processes_that_no_policy_may_touch_says_so() {
        let limits = vec![(0, true), (0, false), (0, true)];
        let case = Case { limits, ..Case::draw(7, &Ranges::frozen()) };
        assert_eq!(name_of(&case), "case 7, 2 of 3 processes exempt");
        assert_eq!(name_of(&Case { limits: vec![(1, false)], ..case }), "case 7");
    }

    #[test]
    fn means_are_geometric_and_losses_are_told() {
        let line = |judged| line("a scene", &[("interleave", 1.5), (JUDGED, judged)]);
        let report = Report::of(vec![line(1.2), line(1.01)], 2);
        let judged = report.scenes.last().expect("judged");
        assert!((judged.mean - (1.2f64 * 1.01).sqrt()).abs() < 1e-12, "{judged:?}");
        assert!(report.scenes[0].rival && !judged.rival);
        assert!(report.text().contains("where interleave has 1.500"), "{}", report.text());
    }

    #[test]
    fn a_scene_and_a_case_are_run_under_each() {
        let job = Job::Scene { machine: "nmass-2", workload: "producer-consumer", seed: 1 };
        let short = |seed| {
            let drawn = Case::draw(seed, &Ranges::frozen());
            Case { seconds: 4.0, faults: None, ..drawn }
        };
        // Not every drawn program begins within four seconds.
        let works = |case: &Case| swarm::speeds(case, &["interleave"])[0].is_some();
        let case = (1..20).map(short).find(works).expect("a case that works at once");
        for speeds in [job.run().unwrap().speeds, swarm::speeds(&case, &CONTENDERS)] {
            assert_eq!(speeds.len(), CONTENDERS.len());
            let known = speeds.iter().all(|speed| speed.is_some_and(|speed| speed > 0.1));
            assert!(known, "{speeds:?}");
        }
    }

    /// The law of the judge in short runs: no single policy beats all of them together by more than
    /// the judge allows.
    #[test]
    fn auto_is_not_behind_its_best_member_in_any_family() {
        let more = ["bursts", "locked", "oversubscribed"];
        let families: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).chain(more).collect();
        let judged = |family: &&str| {
            let mut scene = catalogue::scene(SMALL, family, 1).unwrap();
            scene.workload.programs.iter_mut().for_each(|program| program.seconds = 6.0);
            Line::of((*family).to_string(), &scene).unwrap()
        };
        let report = Report::of(parallel::map(&families, judged, |_| {}), families.len());
        let is_new = |loss: &&Loss| !EXCEPTIONS.iter().any(|(family, _)| *family == loss.scene);
        let behind: Vec<&Loss> = report.losses.iter().filter(is_new).collect();
        assert!(behind.is_empty(), "{behind:#?}");
        assert!(report.unfinished.is_empty(), "{:?}", report.unfinished);
    }
}
