//! The command line: machines, workloads and placements to compare, progress, and output.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use serde::Serialize;

use crate::catalogue;
use crate::contender::Contender;
use crate::fleet;
use crate::judgement;
use crate::parallel;
use crate::predictions;
use crate::report::{Comparison, Row};
use crate::reproduce;
use crate::results::MOST_RESULTS;
use crate::run::{record, run};
use crate::sensors::{PMUS, Pmu};
use crate::swarm::{self, Case, Mode, Ranges, Report};
use crate::world::Scene;

/// Seeds of one comparison at most.
const MOST_RUNS: u64 = 10_000;
/// Cases of the swarm at most. Each result stays in memory until the report.
const MOST_CASES: u64 = 10_000_000;

/// What is compared with first touch where `--policy` is not given.
const DEFAULT_CONTENDERS: [&str; 2] = ["interleave", "auto"];

const EXAMPLES: &str = "\
Examples:
  rondpoint simulate --machine carrefour-a --workload partitioned
  rondpoint simulate --machine carrefour-a --workload partitioned --policy autonuma,auto --runs 5
  rondpoint simulate --case 17                 # one random case, under the rules of the swarm

  rondpoint simulate --machine altra-2 --workload locked:threads=16,lock.share=0.2
  rondpoint simulate --machine chiplet-cxl --workload carrefour/FaceRec --policy auto

--list prints the names. They are those of the files in machines/ and workloads/, and of papers'
programs.
Exit status: 0 good; 1 a rule of the swarm is broken, or --judge has a scene that auto did not
finish; 2 bad usage or input.";

/// Simulate programs on a NUMA machine under several placements
#[derive(Debug, Parser)]
#[command(name = "rondpoint simulate", bin_name = "rondpoint simulate", after_help = EXAMPLES)]
struct Arguments {
    /// Machine: a name, a file, or a line like "nodes=4 cpus=8 memory=16G"
    #[arg(long, value_name = "M", required_unless_present_any = ["swarm", "case", "case_file", "reproduce", "fit", "fleet", "predictions", "judge", "list"])]
    machine: Option<String>,
    /// Programs: a name or a file, with settings as NAME:key=value,key=value; several joined by +
    /// run side by side
    #[arg(long, value_name = "W[+W2…]", required_unless_present_any = ["swarm", "case", "case_file", "reproduce", "fit", "fleet", "predictions", "judge", "list"])]
    workload: Option<String>,
    /// List the names of machines, families of workloads, and programs of papers
    #[arg(long, conflicts_with_all = ["machine", "workload", "policy", "swarm", "case", "case_file", "reproduce", "fit", "fleet", "predictions", "judge"])]
    list: bool,
    /// Placements to compare with first-touch: interleave, interleave-late, autonuma, numad,
    /// oracle, or a policy NAME[:PRESET]; policies joined by + act together [default:
    /// interleave,auto]
    #[arg(long, value_name = "P[,P2…]", value_delimiter = ',')]
    policy: Option<Vec<String>>,
    /// Seed of every random choice and of the machine's hidden constants
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each placement, with seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST_RUNS))]
    runs: u64,
    /// Sensors of the processor: ibs, zen1, pebs, spe, samples, counters, none [default: the
    /// machine's]
    #[arg(long, value_name = "PMU")]
    pmu: Option<String>,
    /// The kernel can copy pages to several nodes, as Carrefour's could
    #[arg(long)]
    replication: bool,
    /// Record observations and decisions of one managed run or case, for `rondpoint replay`
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    record: Option<PathBuf>,
    /// Run N cases of the swarm, with seeds from --seed on: random machines, programs and faults,
    /// and rules that must hold
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_CASES), conflicts_with_all = ["machine", "workload", "policy", "runs", "case"])]
    swarm: Option<u64>,
    /// Run one case of the swarm, and shrink it if it breaks a rule; with --policy under that
    /// policy and without faults, as --judge does
    #[arg(long, value_name = "SEED", conflicts_with_all = ["machine", "workload", "runs"])]
    case: Option<u64>,
    /// Run the case of a file: the JSON of a case, or of a report of --case that has a shrunk one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "workload", "policy", "runs", "swarm", "case", "reproduce", "fit", "fleet", "predictions", "judge"])]
    case_file: Option<PathBuf>,
    /// All cases of --swarm or --case under auto and without faults
    #[arg(long, conflicts_with_all = ["policy", "case_file"])]
    calm: bool,
    /// All cases of --swarm or --case with rare faults too
    ///
    /// CPUs and memory are unplugged. The ledger cannot be written. The clock jumps back. Masks are
    /// refused for a while. Processes end while they are frozen.
    #[arg(long, conflicts_with_all = ["policy", "case_file", "calm"])]
    harsh: bool,
    /// Share of one CPU that the manager takes on its node, 0 to 1, charged to managed runs
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, conflicts_with_all = ["swarm", "case", "reproduce", "fit", "fleet", "predictions", "judge"])]
    manager_cpu: f64,
    /// Print a paper's numbers beside simulated ones: carrefour, nmass, asymsched, sam
    #[arg(long, value_name = "PAPER", conflicts_with_all = ["machine", "workload", "policy", "runs", "swarm", "case"])]
    reproduce: Option<String>,
    /// Random draws of the values that the paper does not state, for --reproduce
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    draws: u64,
    /// Fit parameters on a paper's baselines and print them as TOML: carrefour, nmass, asymsched
    #[arg(long, value_name = "PAPER", conflicts_with_all = ["machine", "workload", "policy", "runs", "swarm", "case", "reproduce"])]
    fit: Option<String>,
    /// Simulate a fleet: machines and workloads drawn from a distribution, and what share of the
    /// hosts would gain how much
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "workload", "policy", "runs", "swarm", "case", "reproduce", "fit"])]
    fleet: Option<PathBuf>,
    /// Compare what the cost model predicted of each trial with what the trial measured, over all
    /// machines and workloads and N cases of the swarm
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_CASES), conflicts_with_all = ["machine", "workload", "policy", "swarm", "case", "reproduce", "fit", "fleet"])]
    predictions: Option<u64>,
    /// Compare auto with the single policies, interleaving, NUMA balancing and numad, over all
    /// machines and workloads and N cases of the swarm without faults
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_CASES), conflicts_with_all = ["machine", "workload", "policy", "swarm", "case", "reproduce", "fit", "fleet", "predictions"])]
    judge: Option<u64>,
    /// File that gets the result of each host of --fleet or case of --swarm at once; an interrupted
    /// run continues from it
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn mode(&self) -> Mode {
        match (self.calm, self.harsh) {
            (true, _) => Mode::Calm,
            (_, true) => Mode::Harsh,
            _ => Mode::Drawn,
        }
    }
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match answer(&arguments) {
        Ok((text, holds)) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) if holds => ExitCode::SUCCESS,
            Ok(()) => ExitCode::FAILURE,
            // The reader has seen enough.
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

/// Refuses options that would be ignored beside the others.
fn check_company(arguments: &Arguments) -> Result<()> {
    let of_swarm = arguments.swarm.is_some() || arguments.case.is_some();
    let is_one =
        arguments.machine.is_some() || arguments.case.is_some() || arguments.case_file.is_some();
    if arguments.results.is_some() && arguments.swarm.is_none() && arguments.fleet.is_none() {
        bail!("--results: expected --swarm or --fleet beside it");
    }
    if let Some(cases) = arguments.swarm.filter(|cases| *cases > MOST_RESULTS)
        && arguments.results.is_some()
    {
        bail!("--results: expected at most {MOST_RESULTS} cases of --swarm, got {cases}");
    }
    for (name, is_asked) in [("--calm", arguments.calm), ("--harsh", arguments.harsh)] {
        if is_asked && !of_swarm {
            bail!("{name}: expected --swarm or --case beside it");
        }
    }
    if arguments.record.is_some() && !is_one {
        bail!("--record: expected --machine, --case or --case-file beside it");
    }
    Ok(())
}

/// What is printed, and whether all rules hold.
fn answer(arguments: &Arguments) -> Result<(String, bool)> {
    check_company(arguments)?;
    if arguments.list {
        return Ok((
            shown(arguments.json, &catalogue::Names::all()?, catalogue::Names::text)?,
            true,
        ));
    }
    if let Some(cases) = arguments.swarm {
        return swarm(arguments, cases);
    }
    if let Some(path) = &arguments.fleet {
        let progress = Progress::new(2);
        let show = |done, hosts| progress.show_of(done, hosts);
        let report = fleet::simulate(path, arguments.results.as_deref(), arguments.seed, show)?;
        progress.clear();
        return Ok((shown(arguments.json, &report, fleet::Report::text)?, true));
    }
    if let Some(cases) = arguments.predictions {
        let progress = Progress::new(2);
        let show = |done, jobs| progress.show_of(done, jobs);
        let report = predictions::collect(arguments.seed, arguments.runs, cases, show)?;
        progress.clear();
        return Ok((shown(arguments.json, &report, predictions::Report::text)?, true));
    }
    if let Some(cases) = arguments.judge {
        let progress = Progress::new(2);
        let show = |done, jobs| progress.show_of(done, jobs);
        let report = judgement::judge(arguments.seed, arguments.runs, cases, show)?;
        progress.clear();
        let finished = report.unfinished.is_empty();
        return Ok((shown(arguments.json, &report, judgement::Report::text)?, finished));
    }
    if let Some(paper) = &arguments.reproduce {
        let report = reproduce::reproduce(paper, arguments.draws)?;
        return Ok((shown(arguments.json, &report, reproduce::Report::text)?, true));
    }
    if let Some(paper) = &arguments.fit {
        return Ok((reproduce::fit(paper)?, true));
    }
    if let Some(seed) = arguments.case {
        return one_case(&drawn(seed, arguments)?, arguments);
    }
    if let Some(path) = &arguments.case_file {
        return one_case(&Case::load(path)?, arguments);
    }
    let comparison = compare(arguments)?;
    Ok((shown(arguments.json, &comparison, Comparison::text)?, true))
}

fn shown<T: Serialize>(json: bool, value: &T, text: fn(&T) -> String) -> Result<String> {
    Ok(if json { serde_json::to_string_pretty(value)? + "\n" } else { text(value) })
}

fn swarm(arguments: &Arguments, cases: u64) -> Result<(String, bool)> {
    let progress = Progress::new(cases as usize);
    let file = arguments.results.as_deref();
    let (mode, seed) = (arguments.mode(), arguments.seed);
    let report = swarm::run_all(mode, seed, cases, file, |done| progress.show(done))?;
    progress.clear();
    Ok((shown(arguments.json, &report, Report::text)?, report.broken.is_empty()))
}

/// The case of a seed, under the policy that is asked for.
fn drawn(seed: u64, arguments: &Arguments) -> Result<Case> {
    let mut case = arguments.mode().case(seed, &Ranges::frozen());
    if let Some(words) = &arguments.policy {
        let [word] = words.as_slice() else {
            bail!("--policy {}: expected one policy for --case", words.join(","));
        };
        if !matches!(contender(word)?, Contender::Managed(choices) if choices.len() == 1) {
            bail!("--policy {word}: expected one policy of Rondpoint for --case");
        }
        (case.policy, case.faults) = (word.clone(), None);
    }
    Ok(case)
}

fn one_case(case: &Case, arguments: &Arguments) -> Result<(String, bool)> {
    if let Some(path) = arguments.record.as_deref() {
        swarm::record(case, path)?;
    }
    eprintln!("seed {}: {} on {}", case.seed, case.policy, case.machine);
    let result = swarm::run(case);
    let report = report_of(case, arguments.mode(), result, swarm::shrink);
    Ok((shown(arguments.json, &report, Report::text)?, report.broken.is_empty()))
}

/// The report on one case, shrunk for the first rule that it broke.
fn report_of(
    case: &Case,
    mode: Mode,
    result: swarm::Result,
    shrink: impl Fn(&Case, &str) -> Case,
) -> Report {
    let shrunk = result.broken.first().map(|broken| shrink(case, &broken.rule));
    Report { shrunk, ..Report::of(mode, case.seed, &[result]) }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("expected a number from 0 to 1".to_string())
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

fn contender(word: &str) -> Result<Contender> {
    word.parse().map_err(|error| anyhow::anyhow!("--policy {word}: {error}"))
}

fn compare(arguments: &Arguments) -> Result<Comparison> {
    let word = |argument: &Option<String>| argument.clone().unwrap_or_default();
    let scene = catalogue::scene(&word(&arguments.machine), &word(&arguments.workload), 0)?;
    let pmu = pmu(arguments.pmu.as_deref(), scene.pmu)?;
    let mut contenders = vec![Contender::FirstTouch];
    let default = || DEFAULT_CONTENDERS.map(String::from).to_vec();
    for word in arguments.policy.clone().unwrap_or_else(default) {
        let contender = contender(&word)?;
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    let seeds: Vec<u64> = (0..arguments.runs).map(|run| arguments.seed.wrapping_add(run)).collect();
    let (replication, manager_share) = (arguments.replication, arguments.manager_cpu);
    let scene = Scene { pmu, replication, manager_share, ..scene };
    if let Some(path) = &arguments.record {
        let ours = |one: &&Contender| matches!(one, Contender::Managed(_));
        let Some(Contender::Managed(choices)) = contenders.iter().find(ours) else {
            bail!("--record: expected a policy of ours in --policy");
        };
        record(&Scene { seed: arguments.seed, ..scene.clone() }, choices, path)?;
    }
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
        self.show_of(done, self.jobs);
    }

    fn show_of(&self, done: usize, all: usize) {
        if self.shows {
            eprint!("\r{done} of {all} runs");
        }
    }

    pub(crate) fn clear(&self) {
        if self.shows {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_agree_with_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_report_in_json_has_the_shrunk_case_which_replays_from_the_file() {
        let whole = Case { seconds: 4.0, ..Mode::Calm.case(3, &Ranges::frozen()) };
        let mut result = swarm::run(&whole);
        result.broken = vec![swarm::Broken::new("budget", "a test".to_string())];
        let smaller = |case: &Case, rule: &str| {
            assert_eq!(rule, "budget");
            Case { seconds: 2.0, ..case.clone() }
        };
        let report = report_of(&whole, Mode::Calm, result, smaller);
        let text = shown(true, &report, Report::text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::fs::write(&path, &text).unwrap();
        let again = Case::load(&path).unwrap();
        assert_eq!(Some(&again), report.shrunk.as_ref());
        assert_eq!(swarm::run(&again), swarm::run(&smaller(&whole, "budget")));
    }

    #[test]
    fn options_that_would_be_ignored_are_refused() {
        for (words, expected) in [
            ("--fleet x --calm", "--calm: expected --swarm or --case beside it"),
            ("--fleet x --harsh", "--harsh: expected --swarm or --case beside it"),
            ("--case 1 --results x", "--results: expected --swarm or --fleet beside it"),
            (
                "--swarm 1 --record x",
                "--record: expected --machine, --case or --case-file beside it",
            ),
        ] {
            let words = ["simulate"].into_iter().chain(words.split(' '));
            let told = answer(&Arguments::parse_from(words)).unwrap_err().to_string();
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn more_cases_than_fit_into_memory_are_refused() {
        for option in ["--swarm", "--judge", "--predictions"] {
            let words =
                |cases: u64| ["simulate".to_string(), option.to_string(), cases.to_string()];
            assert!(Arguments::try_parse_from(words(MOST_CASES)).is_ok(), "{option}");
            assert!(Arguments::try_parse_from(words(u64::MAX)).is_err(), "{option}");
        }
    }

    #[test]
    fn more_cases_than_a_file_of_results_holds_are_refused() {
        let told = |cases: u64, more: &[&str]| {
            let cases = cases.to_string();
            let words = [&["simulate", "--swarm", &cases][..], more].concat();
            check_company(&Arguments::parse_from(words)).map_err(|error| error.to_string())
        };
        assert_eq!(told(MOST_RESULTS, &["--results", "x"]), Ok(()));
        let expected = "--results: expected at most 1000000 cases of --swarm, got 1000001";
        assert_eq!(told(MOST_RESULTS + 1, &["--results", "x"]), Err(expected.to_string()));
        assert_eq!(told(MOST_RESULTS + 1, &[]), Ok(()), "without a file they fit into memory");
    }
}
