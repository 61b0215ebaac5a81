//! `rondpoint-lab run`: a program of the user's under several placements, each from a clean boot.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_lab_init::Ending;
use rondpoint_machine::Machine;
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::configuration::{self, Configuration};
use crate::initramfs::Initramfs;
use crate::lab::{self, Lab};
use crate::program;
use crate::render;
use crate::result::{RunResult, summarise};
use crate::vm::Boot;

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine to emulate: a file, or the name of one that the lab brings
    #[arg(long, value_name = "FILE", default_value = "carrefour-a")]
    machine: String,
    /// Placements to compare, separated by commas
    #[arg(
        long = "config",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "first-touch,interleave,autonuma,numad"
    )]
    configurations: Vec<Configuration>,
    /// Runs of each placement; each seed is another address layout and another start
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// A file for the guest, SOURCE or SOURCE:PLACE; a relative PLACE is under the program's folder
    #[arg(long = "file", value_name = "SOURCE[:PLACE]")]
    files: Vec<String>,
    /// Give a run up after this much host time
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
    /// Machines to emulate side by side
    #[arg(long, value_name = "N", default_value_t = default_jobs())]
    jobs: usize,
    /// Emulate even where the same run is in the cache
    #[arg(long)]
    no_cache: bool,
    /// Show the program's own output
    #[arg(long)]
    output: bool,
    /// One JSON object on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<String>,
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
}

/// All runs of one program on one machine. Every figure is emulated.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Version of this report's format.
    pub(crate) format: u32,
    /// Where the figures come from: always `emulated`.
    pub(crate) origin: String,
    pub(crate) machine: String,
    pub(crate) slow_motion: f64,
    pub(crate) command: Vec<String>,
    /// By configuration name, in the order asked for.
    pub(crate) configurations: Vec<ConfigurationReport>,
}

/// One configuration's runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConfigurationReport {
    pub(crate) name: String,
    /// Median speed relative to first touch, seed by seed; above 1 is faster. `None` where first
    /// touch was not run.
    pub(crate) speed: Option<f64>,
    /// Smallest and largest of those ratios.
    pub(crate) speed_range: Option<(f64, f64)>,
    pub(crate) runs: Vec<RunResult>,
}

/// Runs everything that the arguments ask for and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What the user brings is looked at before the setup is.
    let machine = lab::lab_machine(&arguments.machine)?;
    let mut brought = Initramfs::new();
    let found = program::find(&arguments.command[0], &lab::parts_folder()?)?;
    let mut command = arguments.command.clone();
    command[0] = program::bring(&found, &mut brought)?;
    for file in &arguments.files {
        add_file(&mut brought, file)?;
    }
    check_size(&brought, &machine)?;
    let lab = Lab::open()?;
    let mut guest = configuration::base(&lab.installed, &lab.built)?;
    guest.add_all(brought);
    let runs = Runs {
        lab: &lab,
        machine: &machine,
        guest: &guest,
        command: &command,
        limit: Duration::from_secs(arguments.timeout),
        cache: (!arguments.no_cache).then(|| Cache::open(&lab)).transpose()?,
    };
    let pairs = arguments
        .configurations
        .iter()
        .flat_map(|configuration| (1..=arguments.seeds).map(|seed| (*configuration, seed)));
    let results = runs.all(pairs.collect(), arguments.jobs)?;
    let report = report(arguments, &machine, results);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", render::report(&report, arguments.output));
    }
    let failed = report.configurations.iter().flat_map(|configuration| &configuration.runs);
    let failed = failed.filter(|run| run.ending != Ending::Exit(0)).count();
    Ok(ExitCode::from(u8::from(failed > 0)))
}

fn add_file(guest: &mut Initramfs, text: &str) -> Result<()> {
    let (source, place) = text.split_once(':').unwrap_or((text, ""));
    let source = PathBuf::from(source);
    let name = source.file_name().and_then(|name| name.to_str());
    let place =
        if place.is_empty() { name.context("--file: a path without a name")? } else { place };
    let target = if place.starts_with('/') { place.to_owned() } else { format!("/root/{place}") };
    guest.add_file(&source, &target)
}

/// What the guest holds lies in memory, beside the program: it must leave room.
fn check_size(guest: &Initramfs, machine: &Machine) -> Result<()> {
    let memory: u64 = machine.nodes.iter().map(|node| node.memory_bytes).sum();
    if guest.size() > memory / 4 {
        bail!(
            "program and files take {} MiB, more than a quarter of the guest's {} MiB; \
             raise memory_mib in the [lab] table of {}",
            guest.size() >> 20,
            memory >> 20,
            machine.name
        );
    }
    Ok(())
}

/// The runs of one command.
pub(crate) struct Runs<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) machine: &'a Machine,
    pub(crate) guest: &'a Initramfs,
    pub(crate) command: &'a [String],
    pub(crate) limit: Duration,
    pub(crate) cache: Option<Cache>,
}

type Key = (Configuration, u64);

impl Runs<'_> {
    /// Carries all runs out, `jobs` at a time. The first failure ends the rest.
    pub(crate) fn all(&self, pairs: Vec<Key>, jobs: usize) -> Result<BTreeMap<Key, RunResult>> {
        let total = pairs.len();
        let queue = Mutex::new(VecDeque::from(pairs));
        let done = Mutex::new(BTreeMap::new());
        let next = || queue.lock().expect("no thread panics with the queue").pop_front();
        let work = || -> Result<()> {
            while let Some(key) = next() {
                let started = Instant::now();
                let result = self.one(key);
                if result.is_err() {
                    queue.lock().expect("no thread panics with the queue").clear();
                }
                let (result, cached) = result?;
                let mut done = done.lock().expect("no thread panics with the results");
                done.insert(key, result);
                progress(key, done.len(), total, started.elapsed(), cached);
            }
            Ok(())
        };
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..jobs.clamp(1, total.max(1))).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
        });
        outcomes.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(done.into_inner().expect("no thread panics with the results"))
    }

    /// One run, from the cache where it is there. The flag says whether it was.
    fn one(&self, (configuration, seed): Key) -> Result<(RunResult, bool)> {
        let guest = configuration::with_job(
            self.guest.clone(),
            &self.lab.installed,
            configuration,
            self.command,
            seed,
        )?;
        let archive = guest.archive()?;
        let key = self.cache.as_ref().map(|cache| cache.key(self.machine, &archive, seed));
        if let (Some(cache), Some(key)) = (&self.cache, &key)
            && let Some(result) = cache.get(key)
        {
            return Ok((result, true));
        }
        let boot = Boot {
            installed: &self.lab.installed,
            built: &self.lab.built,
            machine: self.machine,
            initramfs: &archive,
            seed,
            limit: self.limit,
        };
        let context = || format!("{configuration}, seed {seed}");
        let record = boot.run().with_context(context)?;
        let result = summarise(seed, self.machine, &record)
            .map_err(anyhow::Error::msg)
            .with_context(context)?;
        if let (Some(cache), Some(key)) = (&self.cache, &key) {
            cache.put(key, &result)?;
        }
        Ok((result, false))
    }
}

fn progress((configuration, seed): Key, done: usize, total: usize, took: Duration, cached: bool) {
    let how =
        if cached { "from the cache".to_owned() } else { format!("{:.0} s", took.as_secs_f64()) };
    // Progress is for people; nobody needs to know that it could not be shown.
    let _ = writeln!(std::io::stderr(), "[{done}/{total}] {configuration} seed {seed}: {how}");
}

fn report(
    arguments: &Arguments,
    machine: &Machine,
    mut results: BTreeMap<Key, RunResult>,
) -> Report {
    let base: BTreeMap<u64, f64> = results
        .iter()
        .filter(|((configuration, _), _)| *configuration == Configuration::FirstTouch)
        .map(|((_, seed), result)| (*seed, result.seconds))
        .collect();
    let one = |configuration: &Configuration| {
        let runs: Vec<RunResult> = (1..=arguments.seeds)
            .filter_map(|seed| results.remove(&(*configuration, seed)))
            .collect();
        let ratios = runs.iter().filter_map(|run| Some(base.get(&run.seed)? / run.seconds));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        ConfigurationReport {
            name: configuration.name().to_owned(),
            speed: render::median(&ratios),
            speed_range: ratios.first().copied().zip(ratios.last().copied()),
            runs,
        }
    };
    Report {
        format: 1,
        origin: "emulated".to_owned(),
        machine: machine.name.clone(),
        slow_motion: machine.lab.slow_motion,
        command: arguments.command.clone(),
        configurations: arguments.configurations.iter().map(one).collect(),
    }
}
