//! `rondpoint-lab run`: a program of the user's under several placements, each from a clean boot.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rondpoint_lab_init::Ending;
use rondpoint_machine::Machine;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Series, Task};
use crate::comparison::ConfigurationReport;
use crate::configuration::{self, Configuration};
use crate::initramfs::Initramfs;
use crate::lab::{self, KernelName, Lab};
use crate::program;
use crate::render;
use crate::result::RunResult;
use crate::whole::whole;

/// Version of the report's format.
const FORMAT: u32 = 2;

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine to emulate: a file, or the name of one that the lab brings
    #[arg(long, value_name = "FILE", default_value = "carrefour-a")]
    machine: String,
    /// The guest's kernel
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    kernel: KernelName,
    /// Placements to compare, separated by commas: first-touch, interleave,
    /// interleave-late[=SECONDS], autonuma, numad, rondpoint[=POLICY[:PRESET]], rondpoint-faults,
    /// rondpoint-observe and rondpoint-dry-run (nothing is changed), oracle
    #[arg(
        long = "config",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "first-touch,interleave,autonuma,numad,rondpoint"
    )]
    configurations: Vec<Configuration>,
    #[command(flatten)]
    series: Series,
    /// A file for the guest, SOURCE or SOURCE:PLACE; a relative PLACE is under the program's folder
    #[arg(long = "file", value_name = "SOURCE[:PLACE]")]
    files: Vec<String>,
    /// Give a run up after this much host time
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = whole::<u64>("seconds", 1..=604_800))]
    timeout: u64,
    /// Let Rondpoint record what it sees and decides, for rondpoint replay. Records and reports go
    /// into this folder; such runs are never taken from the cache
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Show the program's own output
    #[arg(long)]
    output: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<String>,
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

/// Runs everything that the arguments ask for and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What the user brings is looked at before the setup is.
    let machine = lab::lab_machine(&arguments.machine)?;
    let mut brought = Initramfs::new();
    let found = program::find(&arguments.command[0], &lab::parts_folder()?)?;
    let mut command = arguments.command.clone();
    command[0] = program::bring(&found, &mut brought)?;
    for (index, configuration) in arguments.configurations.iter().enumerate() {
        if arguments.configurations[..index].contains(configuration) {
            bail!("--config: {configuration} is there twice");
        }
        configuration.check(&arguments.command[0], &command)?;
    }
    for file in &arguments.files {
        add_file(&mut brought, file)?;
    }
    check_size(&brought, &machine)?;
    let lab = Lab::open_with(arguments.kernel)?;
    if let Some(folder) = &arguments.keep {
        fs::create_dir_all(folder)
            .with_context(|| format!("--keep {}: cannot create", folder.display()))?;
    }
    let mut guest = configuration::base(&lab.installed, &lab.built)?;
    guest.add_all(brought);
    let batch = Batch {
        lab: &lab,
        machine: &machine,
        limit: Duration::from_secs(arguments.timeout),
        cache: arguments.series.cache(&lab)?,
        keep: arguments.keep.as_deref(),
        times: None,
        alone: true,
    };
    let task = |configuration: Configuration, seed| Task {
        title: None,
        guest: &guest,
        command: &command,
        replicated: &[],
        configuration,
        seed,
    };
    let tasks = arguments.configurations.iter().flat_map(|configuration| {
        (1..=arguments.series.seeds).map(|seed| task(*configuration, seed))
    });
    let tasks: Vec<Task<'_>> = tasks.collect();
    let results = batch.all(&tasks, arguments.series.jobs)?;
    let failed = results.iter().any(|run| run.ending != Ending::Exit(0));
    let report = report(arguments, &machine, &tasks, results);
    if arguments.series.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", render::report(&report, arguments.output));
    }
    Ok(ExitCode::from(u8::from(failed)))
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

/// Each seed's first-touch run is what its other runs are compared with.
fn report(
    arguments: &Arguments,
    machine: &Machine,
    tasks: &[Task<'_>],
    results: Vec<RunResult>,
) -> Report {
    let mut runs: BTreeMap<Configuration, Vec<RunResult>> = BTreeMap::new();
    for (task, result) in tasks.iter().zip(results) {
        runs.entry(task.configuration).or_default().push(result);
    }
    let base = runs.get(&Configuration::FirstTouch).cloned().unwrap_or_default();
    let one = |configuration: &Configuration| {
        let runs = runs.remove(configuration).unwrap_or_default();
        ConfigurationReport::new(*configuration, runs, &base)
    };
    Report {
        format: FORMAT,
        origin: "emulated".to_owned(),
        machine: machine.name.clone(),
        slow_motion: machine.lab.slow_motion,
        command: arguments.command.clone(),
        configurations: arguments.configurations.iter().map(one).collect(),
    }
}
