//! `rondpoint-lab demo`: programs under several placements, in minutes, and which placement is
//! fastest.
//!
//! The machine is `carrefour-a` cut to one CPU a node, because the emulator's time goes into vCPUs.
//! Bandwidths shrink with the CPUs, so demand and capacity keep their ratio.

mod closing;
mod programs;
mod render;
mod results;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_lab_init::Ending;
use rondpoint_machine::Machine;
use serde::Serialize;

use crate::batch::{Batch, Series, Task};
use crate::built::WORKLOADS;
use crate::comparison::{ConfigurationReport, SeedSpeed, Speed};
use crate::configuration::{self, Configuration};
use crate::initramfs::Initramfs;
use crate::lab::{Lab, cut_machine};
use crate::program;
use crate::progress::rough;
use crate::result::RunResult;
use closing::Closing;
use programs::{FULL, Program, QUICK, Selection};

/// The machine, before it is cut.
const MACHINE: &str = "carrefour-a";
const CPUS_PER_NODE: u32 = 1;
/// Host time after which a run is given up; on a free core it takes half a minute at most.
const LIMIT: Duration = Duration::from_secs(600);
/// Core seconds of the host for one run, for the forecast. 20 runs took 179 s, two at a time, on
/// two cores of an AMD EPYC (family 25, model 17).
const CORE_SECONDS: f64 = 18.0;
/// QEMU's own memory beside the guest's: translated code, the model.
const QEMU_BYTES: u64 = 700 << 20;

/// What `demo` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// One program under three placements: one minute instead of four
    #[arg(long)]
    quick: bool,
    /// Add how long each run took to FILE, one JSON object a line
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Also write the JSON of docs/results; `./x results` makes the page
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    results: Option<PathBuf>,
    #[command(flatten)]
    series: Series,
}

/// The whole demonstration. Every figure is emulated.
#[derive(Debug, Serialize)]
struct Report {
    /// Version of this report's format.
    format: u32,
    /// Where the figures come from: always `emulated`.
    origin: &'static str,
    machine: String,
    nodes: usize,
    cpus: usize,
    slow_motion: f64,
    seeds: u64,
    programs: Vec<ProgramReport>,
    means: Vec<Mean>,
    /// Programs that failed or found their own result wrong.
    failures: Vec<String>,
    closing: Closing,
}

/// One program under all placements.
#[derive(Debug, Serialize)]
struct ProgramReport {
    title: &'static str,
    about: &'static str,
    command: Vec<String>,
    configurations: Vec<ConfigurationReport>,
}

/// Geometric means over the programs on which the placement acted, of each seed; over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Mean {
    configuration: String,
    speed: Option<Speed>,
    last_third: Option<Speed>,
    /// Programs in the mean.
    programs: usize,
}

/// Runs everything and prints it; exit status 1 where a program failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let selection = if arguments.quick { QUICK } else { FULL };
    let machine = cut_machine(MACHINE, CPUS_PER_NODE)?;
    let lab = Lab::open()?;
    announce(&selection, &arguments.series, &machine);
    let started = Instant::now();
    let mut guest = configuration::base(&lab.installed, &lab.built)?;
    let program = program::bring(&lab.built.workloads, &mut guest)?;
    let commands: Vec<Vec<String>> = selection
        .programs
        .iter()
        .map(|of| {
            let arguments = of.arguments.split(' ').map(str::to_owned);
            std::iter::once(program.clone()).chain(arguments).collect()
        })
        .collect();
    let batch = Batch {
        lab: &lab,
        machine: &machine,
        limit: LIMIT,
        cache: arguments.series.cache(&lab)?,
        keep: None,
        times: arguments.times.as_deref(),
        alone: true,
    };
    let tasks = tasks(&selection, &guest, &commands, arguments.series.seeds);
    let results = batch.all(&tasks, arguments.series.jobs)?;
    let report = report(&selection, &machine, arguments.series.seeds, &tasks, results);
    if let Some(file) = &arguments.results {
        results::write(&report, file)?;
    }
    if arguments.series.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", render::report(&report, started.elapsed()));
    }
    Ok(ExitCode::from(u8::from(!report.failures.is_empty())))
}

/// Says what will be run and how long that takes, before it is.
fn announce(selection: &Selection, series: &Series, machine: &Machine) {
    let runs = selection.runs() * series.seeds;
    // The last runs may leave some of the machines idle.
    let rounds = runs.div_ceil(series.jobs as u64);
    let memory: u64 = machine.nodes.iter().map(|node| node.memory_bytes).sum();
    eprintln!(
        "{runs} runs on an emulated machine of {} nodes ({MACHINE}, cut to {} CPUs), {} at a time:\n\
         about {} and {:.1} GB of memory. Runs that are in the cache are not made again.",
        machine.nodes.len(),
        machine.cpu_count(),
        series.jobs,
        rough(rounds as f64 * CORE_SECONDS),
        series.jobs as f64 * (memory + QEMU_BYTES) as f64 / 1e9,
    );
}

/// Every program under every placement, seed by seed.
fn tasks<'a>(
    selection: &Selection,
    guest: &'a Initramfs,
    commands: &'a [Vec<String>],
    seeds: u64,
) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for seed in 1..=seeds {
        for (program, command) in selection.programs.iter().zip(commands) {
            tasks.extend(selection.configurations.iter().map(|configuration| Task {
                title: Some(program.title),
                guest,
                command,
                replicated: &[],
                configuration: *configuration,
                seed,
            }));
        }
    }
    tasks
}

/// `results` are in the order of `tasks`.
fn report(
    selection: &Selection,
    machine: &Machine,
    seeds: u64,
    tasks: &[Task<'_>],
    results: Vec<RunResult>,
) -> Report {
    let mut runs: BTreeMap<(&str, Configuration), Vec<RunResult>> = BTreeMap::new();
    for (task, result) in tasks.iter().zip(results) {
        let title = task.title.expect("every task has a title here");
        runs.entry((title, task.configuration)).or_default().push(result);
    }
    let compare = |title, configuration| {
        let of = |configuration| runs.get(&(title, configuration)).cloned().unwrap_or_default();
        let first_touch: Vec<RunResult> = of(Configuration::FirstTouch);
        ConfigurationReport::new(configuration, of(configuration), &first_touch)
    };
    let program = |program: &Program| {
        let arguments = program.arguments.split(' ').map(str::to_owned);
        let reports = selection.configurations.iter().map(|one| compare(program.title, *one));
        ProgramReport {
            title: program.title,
            about: program.about,
            command: std::iter::once(WORKLOADS.to_owned()).chain(arguments).collect(),
            configurations: reports.collect(),
        }
    };
    let programs: Vec<ProgramReport> = selection.programs.iter().map(program).collect();
    let names = selection.configurations.iter().enumerate();
    let means: Vec<Mean> = names.map(|(index, one)| mean(&programs, index, one.name())).collect();
    let failures = failures(&programs);
    Report {
        format: 3,
        origin: "emulated",
        machine: machine.name.clone(),
        nodes: machine.nodes.len(),
        cpus: machine.cpu_count(),
        slow_motion: machine.lab.slow_motion,
        seeds,
        closing: Closing::of(&programs, &means, failures.len()),
        means,
        failures,
        programs,
    }
}

/// The mean of the configuration at `index` over the programs. A rival that did not act on one is
/// left out there: it would stand for first touch.
fn mean(programs: &[ProgramReport], index: usize, configuration: String) -> Mean {
    let acted: Vec<&ConfigurationReport> = programs
        .iter()
        .map(|program| &program.configurations[index])
        .filter(|one| one.idle.is_none())
        .collect();
    let seeds = acted.first().map_or(0, |one| one.by_seed.len());
    let of = |speed: fn(&SeedSpeed) -> Option<f64>| {
        let mean = |seed: usize| {
            let speeds: Option<Vec<f64>> =
                acted.iter().map(|one| speed(one.by_seed.get(seed)?)).collect();
            geometric_mean(&speeds?)
        };
        let means: Option<Vec<f64>> = (0..seeds).map(mean).collect();
        Speed::of(means?.into_iter())
    };
    Mean {
        configuration,
        speed: of(|one| Some(one.speed)),
        last_third: of(|one| one.last_third),
        programs: acted.len(),
    }
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logarithms / values.len() as f64).exp())
}

fn failures(programs: &[ProgramReport]) -> Vec<String> {
    let mut failures = Vec::new();
    for program in programs {
        for configuration in &program.configurations {
            for run in configuration.runs.iter().filter(|run| run.ending != Ending::Exit(0)) {
                let last = run.stdout.lines().last().unwrap_or_default();
                let said = run.stderr.lines().last().unwrap_or_default();
                failures.push(format!(
                    "{}, {}, seed {}: {:?} {last} {said}",
                    program.title, configuration.name, run.seed, run.ending
                ));
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_third::{LastThird, WorkUnit};
    use crate::result::sample_run;

    /// First touch takes 2 s; the others in their order 1, 2, 2 and 0.5 s. numad moves nothing but
    /// in the first program.
    pub(super) fn sample(seeds: u64) -> Report {
        let machine = Machine::synthetic("nodes=4 cpus=1 memory=384M").expect("a machine");
        let guest = Initramfs::new();
        let commands = vec![Vec::new(); FULL.programs.len()];
        let tasks = tasks(&FULL, &guest, &commands, seeds);
        let result = |(index, task): (usize, &Task<'_>)| {
            // With the second seed Rondpoint is half as fast.
            let seconds = [2.0, 1.0, 2.0, 2.0, 0.5][index % 5];
            let slower = task.seed == 2 && task.configuration == Configuration::Rondpoint;
            let seconds = if slower { 2.0 * seconds } else { seconds };
            let unit = WorkUnit::Rounds;
            let moves = index % 20 < 5 || task.configuration != Configuration::Numad;
            RunResult {
                seed: task.seed,
                seconds,
                pages_moved: if moves { 5 } else { 0 },
                pages_watched: 5,
                last_third: Some(LastThird { unit, per_s: 3.0 / seconds }),
                ..sample_run()
            }
        };
        let results = tasks.iter().enumerate().map(result).collect();
        report(&FULL, &machine, seeds, &tasks, results)
    }

    #[test]
    fn means_leave_out_idle_placements() {
        let report = sample(1);
        let mean = |index: usize| {
            (report.means[index].speed.map(|speed| speed.median), report.means[index].programs)
        };
        assert_eq!(mean(0), (Some(1.0), 4));
        assert_eq!(mean(1), (Some(2.0), 4));
        assert_eq!(mean(3), (Some(1.0), 1));
        assert_eq!(mean(4), (Some(4.0), 4));
        let same = |value| Some(Speed { median: value, least: value, most: value });
        assert_eq!(report.means[4].last_third, same(4.0));
        assert_eq!(report.programs[1].configurations[3].idle.as_deref().map(|_| ()), Some(()));
        assert!(report.failures.is_empty());
    }

    #[test]
    fn over_seeds_there_is_a_median_and_a_range() {
        let report = sample(2);
        let speed = Some(Speed { median: 3.0, least: 2.0, most: 4.0 });
        assert_eq!(report.programs[0].configurations[4].speed, speed);
        assert_eq!((report.means[4].speed, report.means[4].last_third), (speed, speed));
        let json = serde_json::to_value(&report).expect("string keys");
        assert_eq!(json["means"][4]["speed"]["most"], 4.0);
        assert_eq!(json["programs"][0]["configurations"][4]["by_seed"][1]["speed"], 2.0);
    }

    #[test]
    fn a_wrong_result_is_a_failure() {
        let mut programs = sample(1).programs;
        programs[2].configurations[4].runs[0].ending = Ending::Exit(1);
        programs[2].configurations[4].runs[0].stdout = "workload=x result=wrong\n".to_owned();
        let failures = failures(&programs);
        assert_eq!(failures.len(), 1);
        assert!(failures[0].starts_with("well placed, rondpoint, seed 1:"), "{failures:?}");
        assert!(failures[0].contains("result=wrong"), "{failures:?}");
    }

    #[test]
    fn a_geometric_mean_takes_factors() {
        assert_eq!(geometric_mean(&[]), None);
        let mean = geometric_mean(&[1.0, 4.0]).expect("two values");
        assert!((mean - 2.0).abs() < 1e-12);
    }
}
