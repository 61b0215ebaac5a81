//! The command line: what is compared on what, progress, and where the answer goes.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

use crate::catalogue;
use crate::contender::Contender;
use crate::parallel;
use crate::report::{Comparison, Row};
use crate::run::run;
use crate::sensors::{PMUS, Pmu};
use crate::world::Scene;

/// Seeds of one comparison at most.
const MOST_RUNS: u64 = 10_000;

/// Simulate programs on a NUMA machine under several placements
#[derive(Debug, Parser)]
#[command(name = "rondpoint simulate", bin_name = "rondpoint simulate")]
struct Arguments {
    /// Machine: a name, a file, or a line like "nodes=4 cpus=8 memory=16G"
    #[arg(long, value_name = "M")]
    machine: String,
    /// Programs: a name or a file; several joined by + run side by side
    #[arg(long, value_name = "W[+W2…]")]
    workload: String,
    /// What places them: first-touch, interleave, interleave-late, autonuma, numad, oracle, or a
    /// policy NAME[:PRESET], several at once joined by +
    #[arg(long, value_name = "P[,P2…]", value_delimiter = ',', default_value = "interleave,auto")]
    policy: Vec<String>,
    /// Seed of every chance and of the machine's hidden constants
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// So many runs of each, with seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST_RUNS))]
    runs: u64,
    /// What the processor can tell: ibs, pebs, spe, counters, none; default: the machine's
    #[arg(long, value_name = "PMU")]
    pmu: Option<String>,
    /// The kernel can copy pages to several nodes, as Carrefour's could
    #[arg(long)]
    replication: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match answer(&arguments) {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => fail(&error.into()),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("rondpoint simulate: {error:#}");
    ExitCode::from(2)
}

fn answer(arguments: &Arguments) -> Result<String> {
    let comparison = compare(arguments)?;
    Ok(match arguments.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => comparison.text(),
    })
}

fn pmu(word: Option<&str>, scene_default: Pmu) -> Result<Pmu> {
    let Some(word) = word else { return Ok(scene_default) };
    let found = PMUS.iter().find(|(name, _)| *name == word);
    let Some((_, pmu)) = found else {
        let names: Vec<&str> = PMUS.iter().map(|(name, _)| *name).collect();
        bail!("--pmu {word}: expected one of {}", names.join(", "));
    };
    Ok(*pmu)
}

fn compare(arguments: &Arguments) -> Result<Comparison> {
    let machine = catalogue::machine(&arguments.machine)?;
    let workload = catalogue::workload(&arguments.workload)?;
    let pmu = pmu(arguments.pmu.as_deref(), Pmu::of(&machine))?;
    let mut contenders = vec![Contender::FirstTouch];
    for word in &arguments.policy {
        let contender =
            word.parse().map_err(|error| anyhow::anyhow!("--policy {word}: {error}"))?;
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    let seeds: Vec<u64> = (0..arguments.runs).map(|run| arguments.seed.wrapping_add(run)).collect();
    let scene =
        Scene { machine, workload, pmu, replication: arguments.replication, truth: None, seed: 0 };
    let jobs: Vec<(&Contender, u64)> = contenders
        .iter()
        .flat_map(|contender| seeds.iter().map(move |seed| (contender, *seed)))
        .collect();
    let progress = Progress::new(jobs.len());
    let outcomes = parallel::map(
        &jobs,
        |(contender, seed)| run(&Scene { seed: *seed, ..scene.clone() }, contender),
        |done| progress.show(done),
    );
    progress.clear();
    let outcomes: Vec<_> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let mut rows: Vec<Row> = Vec::new();
    for (contender, runs) in contenders.iter().zip(outcomes.chunks(seeds.len())) {
        let base = rows.first().map_or(runs, |row| &row.runs);
        let speeds = runs.iter().zip(base).map(|(run, base)| run.speed_against(base)).collect();
        rows.push(Row {
            policy: contender.to_string(),
            speed_against_first_touch: speeds,
            runs: runs.to_vec(),
        });
    }
    let name = PMUS.iter().find(|(_, one)| *one == pmu).map_or("", |(name, _)| *name);
    Ok(Comparison {
        kind: "simulated",
        machine: scene.machine.name,
        workload: scene.workload.name,
        pmu: name.to_string(),
        seeds,
        rows,
    })
}

/// A line on the terminal that says how far it is.
pub(crate) struct Progress {
    jobs: usize,
    shows: bool,
}

impl Progress {
    pub(crate) fn new(jobs: usize) -> Self {
        Self { jobs, shows: std::io::stderr().is_terminal() && jobs > 1 }
    }

    pub(crate) fn show(&self, done: usize) {
        if self.shows {
            eprint!("\r{done} of {} runs", self.jobs);
        }
    }

    pub(crate) fn clear(&self) {
        if self.shows {
            eprint!("\r\x1b[K");
        }
    }
}
