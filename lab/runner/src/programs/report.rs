//! The report of the suite: speeds relative to first touch, the best rival, and Rondpoint's
//! actions.

use anyhow::{Result, bail};
use rondpoint_lab_init::Ending;
use rondpoint_machine::Machine;
use serde::{Deserialize, Serialize};

use super::definition::{Definition, Half};
use crate::comparison::{ConfigurationReport, Speed, median};
use crate::configuration::Configuration;
use crate::fetched::Package;
use crate::result::RunResult;

/// Version of the report's format.
const FORMAT: u32 = 1;
/// Rondpoint's row, and the row that all speeds are relative to.
pub(super) const RONDPOINT: &str = "rondpoint";
const FIRST_TOUCH: &str = "first-touch";
/// The row of `--replicate`.
pub(super) const COPIES: &str = "rondpoint-replicate";

/// The rows of what is only watched.
pub(super) const OBSERVE: &str = "rondpoint-observe";
pub(super) const DRY_RUN: &str = "rondpoint-dry-run";
const WATCHED: [&str; 2] = [OBSERVE, DRY_RUN];

/// All programs. Every figure is emulated.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    format: u32,
    /// Where the figures come from: always `emulated`.
    origin: String,
    pub(super) machine: String,
    pub(super) slow_motion: f64,
    pub(super) seeds: u64,
    pub(super) programs: Vec<ProgramReport>,
    /// Programs that could not run, failed, or had a wrong result.
    pub(super) failures: Vec<String>,
}

/// One program under all placements.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProgramReport {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) kind: String,
    pub(super) half: Half,
    pub(super) threads: u32,
    /// Name and version of the packages that its file names.
    pub(super) packages: Vec<String>,
    /// The fastest of the others that acted, where Rondpoint ran too.
    pub(super) best_rival: Option<Rival>,
    /// Seconds from the program's start to Rondpoint's first action, median; none where it did not
    /// act.
    pub(super) first_action_s: Option<f64>,
    /// What Rondpoint says of the first seed's run. Not told of the check half.
    pub(super) said: Option<String>,
    pub(super) configurations: Vec<ConfigurationReport>,
    failures: Vec<String>,
}

/// A placement that is not Rondpoint's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Rival {
    pub(super) name: String,
    /// The whole run's, relative to first touch.
    pub(super) speed: f64,
}

impl Report {
    pub(super) fn new(machine: &Machine, seeds: u64) -> Self {
        Self {
            format: FORMAT,
            origin: "emulated".to_owned(),
            machine: machine.name.clone(),
            slow_motion: machine.lab.slow_motion,
            seeds,
            programs: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, mut program: ProgramReport) {
        self.failures.append(&mut program.failures);
        self.programs.push(program);
    }

    /// One report of several calls, sorted by the programs' names.
    ///
    /// # Errors
    /// They are of different machines or seeds, one program is there twice, or one failed.
    pub(super) fn joined(reports: Vec<Self>) -> Result<Self> {
        let mut reports = reports.into_iter();
        let Some(mut whole) = reports.next() else { bail!("no report") };
        for report in reports {
            if (&report.machine, report.seeds) != (&whole.machine, whole.seeds) {
                bail!("reports of different machines or numbers of seeds do not make one result");
            }
            whole.programs.extend(report.programs);
            whole.failures.extend(report.failures);
        }
        whole.programs.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(pair) = whole.programs.windows(2).find(|pair| pair[0].name == pair[1].name) {
            bail!("{}: in two of the reports", pair[0].name);
        }
        if let Some(failure) = whole.failures.first() {
            bail!("{failure}: a result of runs that failed is none");
        }
        Ok(whole)
    }

    /// The geometric mean of a placement's speeds over the programs of a half, or of both. Where it
    /// did not run on one of them there is none.
    pub(super) fn mean(&self, configuration: &str, half: Option<Half>) -> Option<f64> {
        let programs =
            self.programs.iter().filter(|program| half.is_none_or(|h| h == program.half));
        let speed = |program: &ProgramReport| Some(program.speed(configuration)?.median.ln());
        let logarithms: Vec<f64> = programs.map(speed).collect::<Option<_>>()?;
        let count = logarithms.len() as f64;
        (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / count).exp())
    }

    /// Whether programs ran with copies of files on each node.
    pub(super) fn has_copies(&self) -> bool {
        self.configurations().contains(&COPIES)
    }

    /// Whether only the price of watching was measured.
    pub(super) fn is_watched(&self) -> bool {
        let names = self.configurations();
        let is_alone = |name: &&str| *name == FIRST_TOUCH || WATCHED.contains(name);
        names.iter().any(|name| WATCHED.contains(name)) && names.iter().all(is_alone)
    }

    /// Whether watching was measured beside placements that act. No page has both.
    pub(super) fn is_mixed(&self) -> bool {
        !self.is_watched() && self.configurations().iter().any(|name| WATCHED.contains(name))
    }

    /// The placements of all programs, in order.
    pub(super) fn configurations(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for one in self.programs.iter().flat_map(|program| &program.configurations) {
            if !names.contains(&one.name.as_str()) {
                names.push(&one.name);
            }
        }
        names
    }
}

impl ProgramReport {
    /// `packages` are the program's with all that they depend on; `runs` are in any order.
    pub(super) fn new(
        definition: &Definition,
        packages: &[Package],
        configurations: &[Configuration],
        runs: Vec<(Configuration, RunResult)>,
    ) -> Self {
        let of = |wanted: Configuration| -> Vec<RunResult> {
            let wanted = runs.iter().filter(|run| run.0 == wanted);
            wanted.map(|run| run.1.clone()).collect()
        };
        let base = of(Configuration::FirstTouch);
        let mut reports: Vec<ConfigurationReport> = configurations
            .iter()
            .map(|one| ConfigurationReport::new(*one, of(*one), &base))
            .collect();
        let failures = reports.iter().flat_map(|one| failures(&definition.name, one)).collect();
        let asked = definition.asked();
        let named = packages.iter().filter(|package| asked.packages.contains(&package.name));
        let managed = reports.iter().find(|one| one.name == RONDPOINT);
        let said = managed.and_then(|one| one.runs.first()?.rondpoint.as_ref()?.summary.clone());
        let first_action_s = managed.and_then(first_action_s);
        if definition.half == Half::Check {
            reports.iter_mut().for_each(keep_figures);
        }
        Self {
            name: definition.name.clone(),
            title: definition.title.clone(),
            kind: definition.kind.clone(),
            half: definition.half,
            threads: definition.threads,
            packages: named.map(|one| format!("{} {}", one.name, one.version)).collect(),
            best_rival: best_rival(&reports),
            first_action_s,
            said: said.filter(|_| definition.half == Half::Open),
            configurations: reports,
            failures,
        }
    }

    pub(super) fn of(&self, configuration: &str) -> Option<&ConfigurationReport> {
        self.configurations.iter().find(|one| one.name == configuration)
    }

    /// A placement's speed over the whole run.
    pub(super) fn speed(&self, configuration: &str) -> Option<Speed> {
        self.of(configuration)?.speed
    }
}

/// Takes away what a program and Rondpoint said. The figures stay.
fn keep_figures(configuration: &mut ConfigurationReport) {
    for run in &mut configuration.runs {
        run.rondpoint = None;
        run.stdout.clear();
        run.stderr.clear();
    }
}

/// The fastest of the placements that acted; first touch counts as 1.
fn best_rival(reports: &[ConfigurationReport]) -> Option<Rival> {
    let rivals = reports.iter().filter(|one| !one.name.starts_with(RONDPOINT));
    let acted = rivals.filter(|one| one.idle.is_none());
    let speed = |one: &ConfigurationReport| {
        Some(Rival { name: one.name.clone(), speed: one.speed?.median })
    };
    let best =
        acted.filter_map(speed).reduce(|best, one| if one.speed > best.speed { one } else { best });
    best.filter(|best| best.speed > 1.0 || best.name == FIRST_TOUCH)
}

fn first_action_s(managed: &ConfigurationReport) -> Option<f64> {
    let of = |run: &RunResult| run.rondpoint.as_ref()?.first_action_s;
    let mut times: Vec<f64> = managed.runs.iter().filter_map(of).collect();
    times.sort_by(f64::total_cmp);
    median(&times)
}

/// A sentence for each run that ended otherwise than well.
fn failures(name: &str, configuration: &ConfigurationReport) -> Vec<String> {
    let of = |run: &RunResult| {
        let said = |text: &str| text.lines().last().unwrap_or_default().to_owned();
        let what = match (&run.ending, &run.check) {
            (Ending::Exit(0), Some((Ending::Exit(0), _))) => return None,
            (Ending::Exit(0), Some((_, words))) => format!("wrong result: {words}"),
            (Ending::Exit(0), None) => "its result was not checked".to_owned(),
            (ending, _) => format!("{ending:?}: {} {}", said(&run.stdout), said(&run.stderr)),
        };
        Some(format!("{name}, {}, seed {}: {what}", configuration.name, run.seed))
    };
    configuration.runs.iter().filter_map(of).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::result::sample_run;

    fn definition(half: &str) -> Definition {
        let text = format!(
            "title = \"zstd, many\"\nkind = \"k\"\nhalf = \"{half}\"\npackages = [\"zstd\"]\n\
             threads = 8\nrun = \"true\"\ncheck = \"true\"\n"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("zstd.toml");
        std::fs::write(&path, text).expect("written");
        Definition::load(&path).expect("good")
    }

    /// First touch takes 2 s, interleaving 1 s, numad 2 s and does nothing, Rondpoint 1.6 s.
    pub(in crate::programs) fn sample(half: &str) -> ProgramReport {
        let configurations = [
            Configuration::FirstTouch,
            Configuration::Interleave,
            Configuration::Numad,
            Configuration::Rondpoint,
        ];
        let run = |(configuration, seconds): (&Configuration, f64)| {
            let report = br#"{"schema":1,"policy":"auto","elapsed_s":1.6,"first_action_s":0.4,
                "summary":"pages were moved"}"#;
            let report = crate::product::ProductReport::parse(report).expect("good");
            let rondpoint = configuration.is_rondpoint().then_some(report);
            let check = Some((Ending::Exit(0), String::new()));
            let stdout = "secret\n".to_owned();
            (*configuration, RunResult { seconds, rondpoint, check, stdout, ..sample_run() })
        };
        let runs = configurations.iter().zip([2.0, 1.0, 2.0, 1.6]).map(run).collect();
        ProgramReport::new(&definition(half), &[], &configurations, runs)
    }

    #[test]
    fn speeds_are_relative_to_first_touch_and_the_best_rival_is_named() {
        let program = sample("open");
        assert_eq!(program.speed(RONDPOINT).map(|speed| speed.median), Some(1.25));
        let rival = Rival { name: "interleave".to_owned(), speed: 2.0 };
        assert_eq!(program.best_rival, Some(rival));
        assert_eq!(program.first_action_s, Some(0.4));
        assert_eq!(program.said.as_deref(), Some("pages were moved"));
        assert!(program.failures.is_empty());
    }

    #[test]
    fn the_check_half_shows_figures_only() {
        let program = sample("check");
        assert_eq!((program.first_action_s, &program.said), (Some(0.4), &None));
        let json = serde_json::to_string(&program).expect("plain data");
        assert!(!json.contains("secret") && !json.contains("pages were moved"), "{json}");
        assert!(json.contains("1.25"), "{json}");
    }

    #[test]
    fn a_wrong_result_and_a_crash_are_failures() {
        let with = |ending, check| {
            let run = RunResult { ending, check, ..sample_run() };
            let runs = vec![(Configuration::FirstTouch, run)];
            let all = [Configuration::FirstTouch];
            ProgramReport::new(&definition("open"), &[], &all, runs).failures.join("\n")
        };
        let good = Some((Ending::Exit(0), String::new()));
        assert_eq!(with(Ending::Exit(0), good.clone()), "");
        let wrong = Some((Ending::Exit(1), "differ: byte 3".to_owned()));
        let said = with(Ending::Exit(0), wrong);
        assert_eq!(said, "zstd, first-touch, seed 1: wrong result: differ: byte 3");
        assert!(with(Ending::Signal(11), good).contains("Signal(11)"));
        assert!(with(Ending::Exit(0), None).contains("not checked"));
    }

    #[test]
    fn means_are_of_a_half_and_reports_of_one_series_join() {
        let machine = Machine::synthetic("nodes=4 cpus=1 memory=384M").expect("a machine");
        let report = |name: &str, half: &str, seeds| {
            let mut report = Report::new(&machine, seeds);
            report.add(ProgramReport { name: name.to_owned(), ..sample(half) });
            report
        };
        let whole = Report::joined(vec![report("b", "open", 1), report("a", "check", 1)]);
        let whole = whole.expect("one series");
        assert_eq!(whole.programs[0].name, "a");
        assert_eq!(whole.configurations(), ["first-touch", "interleave", "numad", RONDPOINT]);
        let mean = whole.mean("interleave", Some(Half::Open)).expect("ran");
        assert!((mean - 2.0).abs() < 1e-12, "{mean}");
        assert_eq!(whole.mean("oracle", None), None);
        assert!(Report::joined(vec![report("a", "open", 1), report("a", "open", 1)]).is_err());
        assert!(Report::joined(vec![report("a", "open", 1), report("b", "open", 2)]).is_err());
    }
}
