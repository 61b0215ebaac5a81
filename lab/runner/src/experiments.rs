//! `rondpoint-lab experiments`: measures the gain of the policies. They run on the programs and
//! machines of their papers, against every fixed placement. `auto` also runs on programs outside of
//! the papers.

mod case;
mod catalogue;
mod measure;
mod render;
mod results;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;

use self::case::Case;
use self::catalogue::{EXPERIMENTS, Experiment};
use self::measure::{CaseReport, ExperimentReport, Report, Run, best_fixed, failure};
use crate::batch::{Batch, Series, Task};
use crate::built::WORKLOADS;
use crate::configuration;
use crate::initramfs::Initramfs;
use crate::lab::{KernelName, Lab, lab_machine};
use crate::program;
use crate::result::RunResult;

/// Where results are kept, from the repository's root.
const RESULTS: &str = "docs/results";
/// Version of the report's format.
const FORMAT: u32 = 1;
/// Host time after which a run is given up.
const LIMIT: Duration = Duration::from_secs(1800);
/// Host seconds of a run on one core, boot included: an estimate for the announcement only.
const CORE_SECONDS: u64 = 40;

/// What `experiments` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these; default: all. The search for the best fixed placement takes one seed
    #[arg(value_name = "NAME", value_parser = EXPERIMENTS.map(|experiment| experiment.name))]
    names: Vec<String>,
    #[command(flatten)]
    series: Series,
    /// Measure only what watching costs each program: alone, under --policy observe, and under
    /// --dry-run, with NUMA balancing off
    #[arg(long)]
    watched: bool,
    /// Run nothing: write the JSON of docs/results from such JSON objects; may be given several
    /// times. `./x results` makes the pages
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "json"])]
    results_of: Vec<PathBuf>,
}

/// Runs what the arguments ask for and prints it; exit status 1 where a program failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !arguments.results_of.is_empty() {
        let reports: Vec<Report> =
            arguments.results_of.iter().map(|path| reported(path)).collect::<Result<_>>()?;
        results::write(&reports, Path::new(RESULTS))?;
        return Ok(ExitCode::SUCCESS);
    }
    let laboratories = laboratories(&arguments.names, arguments.watched)?;
    let mut report = Report {
        format: FORMAT,
        origin: "emulated".to_owned(),
        seeds: arguments.series.seeds,
        experiments: Vec::new(),
        failures: Vec::new(),
    };
    for (experiment, lab) in laboratories {
        let machine = lab_machine(experiment.machine)?;
        let done =
            Laboratory::new(&lab, &machine, experiment, arguments)?.carry_out(&mut report)?;
        report.experiments.push(done);
    }
    if arguments.series.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", render::text(&report));
    }
    Ok(ExitCode::from(u8::from(!report.failures.is_empty())))
}

/// What an earlier call wrote.
fn reported(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: no report of experiments", path.display()))
}

/// The named experiments, else all. Copies are for acting: what is only watched does without them.
fn chosen(names: &[String], watched: bool) -> Vec<&'static Experiment> {
    let is_wanted = |one: &&Experiment| match names {
        [] => !watched || one.kernel == KernelName::Stock,
        named => named.iter().any(|name| name == one.name),
    };
    EXPERIMENTS.iter().filter(is_wanted).collect()
}

/// The chosen experiments with the lab of each. Where all are asked for, those whose kernel has not
/// been built are left out, and said so.
fn laboratories(names: &[String], watched: bool) -> Result<Vec<(&'static Experiment, Lab)>> {
    let mut found = Vec::new();
    for experiment in chosen(names, watched) {
        match Lab::open_with(experiment.kernel) {
            Ok(lab) => found.push((experiment, lab)),
            Err(error) if names.is_empty() && experiment.kernel != KernelName::Stock => {
                eprintln!("{}: not run: {error:#}", experiment.name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// One experiment with everything that it is run with.
struct Laboratory<'a> {
    experiment: &'static Experiment,
    machine: &'a Machine,
    batch: Batch<'a>,
    guest: Initramfs,
    /// The workloads in the guest.
    program: String,
    seeds: u64,
    jobs: usize,
    /// Whether only the price of watching is measured.
    watched: bool,
}

impl<'a> Laboratory<'a> {
    fn new(
        lab: &'a Lab,
        machine: &'a Machine,
        experiment: &'static Experiment,
        arguments: &Arguments,
    ) -> Result<Self> {
        let mut guest = configuration::base(&lab.installed, &lab.built)?;
        let program = program::bring(&lab.built.workloads, &mut guest)?;
        let cache = arguments.series.cache(lab)?;
        let batch =
            Batch { lab, machine, limit: LIMIT, cache, keep: None, times: None, alone: true };
        let (seeds, jobs, watched) =
            (arguments.series.seeds, arguments.series.jobs, arguments.watched);
        Ok(Self { experiment, machine, batch, guest, program, seeds, jobs, watched })
    }

    fn carry_out(&self, whole: &mut Report) -> Result<ExperimentReport> {
        let (free, fixed) = match self.watched {
            true => (case::watched_cases(), Vec::new()),
            false => (self.experiment.free_cases(), self.experiment.fixed_cases(self.machine)),
        };
        let rows = |cases: &[Case]| cases.iter().filter(|case| !case.is_search()).count() as u64;
        let again = rows(&free) + u64::from(!fixed.is_empty());
        let count = (free.len() + fixed.len()) as u64 + again * (self.seeds - 1);
        eprintln!(
            "{}: {count} runs on {}, {} at a time, about {} minutes; runs that are in the cache are not \
             made again",
            self.experiment.name,
            self.machine.name,
            self.jobs,
            (count * CORE_SECONDS / self.jobs as u64).div_ceil(60),
        );
        let mut cases: Vec<Case> = free;
        let mut wanted: Vec<(usize, u64)> = (1..=self.seeds)
            .flat_map(|seed| (0..cases.len()).map(move |case| (case, seed)))
            .filter(|&(case, seed)| seed == 1 || !cases[case].is_search())
            .collect();
        wanted.extend((cases.len()..cases.len() + fixed.len()).map(|case| (case, 1)));
        cases.extend(fixed);
        let mut reports = cases.iter().map(|case| self.empty(case)).collect::<Vec<_>>();
        self.make(&cases, &wanted, &mut reports, whole)?;
        let base = reports[0].runs.clone();
        let best = best_fixed(&reports, &base);
        let place = reports.iter().position(|case| Some(&case.name) == best.as_ref());
        let more: Vec<(usize, u64)> = place
            .iter()
            .flat_map(|&place| (2..=self.seeds).map(move |seed| (place, seed)))
            .collect();
        self.make(&cases, &more, &mut reports, whole)?;
        let best_runs = place.map(|place| reports[place].runs.clone()).unwrap_or_default();
        reports.iter_mut().for_each(|case| case.compare(&base, &best_runs));
        let about = self.experiment.about.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(ExperimentReport {
            name: self.experiment.name.to_owned(),
            about,
            machine: self.machine.name.clone(),
            slow_motion: self.machine.lab.slow_motion,
            seconds: self.experiment.seconds,
            programs: self.experiment.titles().into_iter().map(str::to_owned).collect(),
            copies: self.experiment.kernel == KernelName::Replication,
            watched: self.watched,
            best_fixed: best,
            cases: reports,
        })
    }

    fn empty(&self, case: &Case) -> CaseReport {
        let arguments = self.experiment.arguments(case, self.machine);
        CaseReport {
            name: case.name.clone(),
            configuration: case.configuration.name(),
            command: [WORKLOADS.to_owned()].into_iter().chain(arguments).collect(),
            runs: Vec::new(),
            speed: None,
            whole: None,
            least: None,
            spread: None,
        }
    }

    /// Makes the runs of (case, seed) and adds them to their cases.
    fn make(
        &self,
        cases: &[Case],
        wanted: &[(usize, u64)],
        reports: &mut [CaseReport],
        whole: &mut Report,
    ) -> Result<()> {
        let commands: Vec<Vec<String>> = cases
            .iter()
            .map(|case| {
                let arguments = self.experiment.arguments(case, self.machine);
                [self.program.clone()].into_iter().chain(arguments).collect()
            })
            .collect();
        let titles: Vec<String> =
            cases.iter().map(|case| format!("{}: {}", self.experiment.name, case.name)).collect();
        let task = |&(case, seed): &(usize, u64)| Task {
            title: Some(&titles[case]),
            guest: &self.guest,
            command: &commands[case],
            replicated: &[],
            configuration: cases[case].configuration,
            seed,
        };
        let tasks: Vec<Task<'_>> = wanted.iter().map(task).collect();
        let results: Vec<RunResult> = self.batch.all(&tasks, self.jobs)?;
        for ((case, seed), result) in wanted.iter().zip(results) {
            let seconds = self.experiment.seconds_of(&cases[*case]);
            let run = Run::of(&result, self.experiment.titles().len(), seconds);
            let problem = failure(&result).or(run
                .is_none()
                .then(|| "a program did not say when its rounds ended".to_owned()));
            whole.failures.extend(problem.map(|text| {
                format!("{}, {}, seed {seed}: {text}", self.experiment.name, cases[*case].name)
            }));
            reports[*case].runs.extend(run);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn experiments_are_chosen_by_name_and_unknown_ones_refused() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            arguments: Arguments,
        }
        let names = |line: &[&str]| -> Result<Vec<&str>, String> {
            let command = Command::try_parse_from([&["experiments"], line].concat());
            let arguments = command.map_err(|error| error.to_string())?.arguments;
            let chosen = chosen(&arguments.names, arguments.watched);
            Ok(chosen.iter().map(|experiment| experiment.name).collect())
        };
        assert_eq!(names(&[]).expect("all").len(), EXPERIMENTS.len());
        assert_eq!(names(&["sam"]).expect("one"), ["sam"]);
        let watched = names(&["--watched"]).expect("all on the usual kernel");
        assert!(watched.contains(&"fleeting") && !watched.contains(&"copies"), "{watched:?}");
        assert_eq!(names(&["--watched", "copies"]).expect("as named"), ["copies"]);
        let error = names(&["x"]).expect_err("unknown");
        assert!(error.contains("'x'"), "{error}");
        for experiment in &EXPERIMENTS {
            assert!(error.contains(experiment.name), "{} is offered: {error}", experiment.name);
        }
    }
}
