//! `rondpoint-lab programs`: real programs of Debian's packages under first touch, its rivals and
//! Rondpoint. One TOML file describes each (`lab/programs/README.md`).
//!
//! Half of the programs are the check half. Reports show only their figures, so that decisions are
//! not tuned to them.

mod definition;
pub(crate) mod guest;
mod input;
mod render;
mod report;
mod results;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;

use self::definition::{Definition, Half};
use self::report::{ProgramReport, Report};
use crate::batch::{Batch, Series, Task};
use crate::configuration::Configuration;
use crate::fetched::Fetched;
use crate::lab::{Lab, full_machine, lab_machine};
use crate::whole::whole;

/// What `programs` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Programs of the suite, or files such as theirs; default: all of the suite
    #[arg(value_name = "NAME|FILE.toml")]
    names: Vec<String>,
    /// The folder of the suite's files
    #[arg(long, value_name = "FOLDER", default_value = "lab/programs", hide = true)]
    folder: PathBuf,
    /// The machine to emulate: a file, or the name of one that the lab brings
    #[arg(long, value_name = "FILE", default_value = "carrefour-a")]
    machine: String,
    /// Placements to compare, separated by commas, as `run` takes them
    #[arg(
        long = "config",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "first-touch,interleave,autonuma,numad,rondpoint"
    )]
    configurations: Vec<Configuration>,
    #[command(flatten)]
    series: Series,
    /// Give a run up after this much host time
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = whole::<u64>("seconds", 1..=604_800))]
    timeout: u64,
    /// Let Rondpoint record what it sees and decides, for rondpoint replay, and put records and
    /// reports into FOLDER/NAME; programs of the check half refuse
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Run nothing: write the JSON of docs/results from such JSON objects; may be given several
    /// times. `./x results` makes the page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "json"])]
    results_of: Vec<PathBuf>,
}

/// Runs what the arguments ask for and prints it; exit status 1 where a program failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !arguments.results_of.is_empty() {
        let read = |path: &PathBuf| reported(path);
        let reports: Vec<Report> = arguments.results_of.iter().map(read).collect::<Result<_>>()?;
        let report = Report::joined(reports)?;
        results::write(&report, &results::path_of(&report))?;
        return Ok(ExitCode::SUCCESS);
    }
    let definitions = chosen(&arguments.names, &arguments.folder)?;
    if let Some(definition) = definitions.iter().find(|one| one.half == Half::Check)
        && arguments.keep.is_some()
    {
        bail!("--keep: {} is of the check half, which stays closed", definition.name);
    }
    let machine = lab_machine(&arguments.machine)?;
    let lab = Lab::open()?;
    let fetched = Fetched::load(&lab.cache);
    let mut report = Report::new(&machine, arguments.series.seeds);
    for definition in &definitions {
        eprintln!("{}: {}", definition.name, definition.kind);
        match one(&lab, &fetched, definition, arguments) {
            Ok(done) => report.add(done),
            Err(error) => {
                eprintln!("{}: {error:#}", definition.name);
                report.failures.push(format!("{}: {error:#}", definition.name));
            }
        }
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
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: no report of the suite", path.display()))
}

/// The programs of these names or files; all of the suite where none is named.
fn chosen(names: &[String], folder: &Path) -> Result<Vec<Definition>> {
    let of = |name: &String| match name.ends_with(".toml") {
        true => PathBuf::from(name),
        false => folder.join(format!("{name}.toml")),
    };
    let mut paths: Vec<PathBuf> = names.iter().map(of).collect();
    if paths.is_empty() {
        let entries =
            fs::read_dir(folder).with_context(|| format!("{}: cannot list", folder.display()))?;
        paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        paths.sort();
    }
    paths.iter().map(|path| Definition::load(path)).collect()
}

/// The machine with the memory that the program needs.
fn machine_for(definition: &Definition, name: &str) -> Result<Machine> {
    let mut machine = full_machine(name)?;
    machine.lab.memory_mib = definition.memory_mib.unwrap_or(machine.lab.memory_mib);
    Ok(machine.for_lab()?)
}

/// One program under every placement.
fn one(
    lab: &Lab,
    fetched: &Fetched,
    definition: &Definition,
    arguments: &Arguments,
) -> Result<ProgramReport> {
    let replicating = arguments.configurations.iter().find(|one| one.replicates());
    if let Some(configuration) = replicating
        && definition.replicate.is_empty()
    {
        bail!("--config {configuration}: its file names no files (replicate = [...])");
    }
    let machine = machine_for(definition, &arguments.machine)?;
    let (guest, command) = guest::build(lab, fetched, definition)?;
    let keep = arguments.keep.as_ref().map(|folder| folder.join(&definition.name));
    if let Some(folder) = &keep {
        fs::create_dir_all(folder)
            .with_context(|| format!("--keep {}: cannot create", folder.display()))?;
    }
    let batch = Batch {
        lab,
        machine: &machine,
        limit: Duration::from_secs(arguments.timeout),
        cache: arguments.series.cache(lab)?,
        keep: keep.as_deref(),
        times: None,
        alone: true,
    };
    let mut tasks = Vec::new();
    for seed in 1..=arguments.series.seeds {
        tasks.extend(arguments.configurations.iter().map(|configuration| Task {
            title: Some(&definition.name),
            guest: &guest,
            command: &command,
            replicated: &definition.replicate,
            configuration: *configuration,
            seed,
        }));
    }
    let results = batch.all(&tasks, arguments.series.jobs)?;
    let runs: Vec<_> = tasks.iter().map(|task| task.configuration).zip(results).collect();
    let packages = fetched.programs.get(&definition.name);
    let packages = packages.map(|closure| closure.packages.as_slice()).unwrap_or_default();
    Ok(ProgramReport::new(definition, packages, &arguments.configurations, runs))
}
