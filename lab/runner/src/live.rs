//! `rondpoint-lab live`: tests Rondpoint's promises on a real kernel.
//!
//! Each check boots a guest with the unmodified product, and compares the kernel's files, the
//! model's counts and Rondpoint's own report. The checks are in `live/`, one file for each promise.
//! Machines are cut to few CPUs, because the emulator's time goes into vCPUs; bandwidths shrink
//! with them.

mod arm;
mod attached;
mod births;
mod copies;
mod cost;
mod crowd;
mod daemon;
mod encodings;
mod killed;
mod lies;
mod moving;
mod outcomes;
mod pairs;
mod phases;
mod processor;
mod rests;
mod samples;
mod session;
mod shared;
mod threads;
mod twelve;
mod without_pmu;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rondpoint_machine::Machine;

use crate::batch::{Batch, Task, default_jobs};
use crate::cache::Cache;
use crate::comparison::ConfigurationReport;
use crate::configuration::{self, Configuration};
use crate::lab::{Lab, Start};
use crate::physics::{Finding, document};
use crate::program;
use crate::progress::{Progress, Unit};
use crate::side_by_side::side_by_side;
use crate::whole::whole;

/// Host time after which a run is given up; on a free core it takes half a minute at most.
const LIMIT: Duration = Duration::from_secs(600);

/// A promise and what is run for it.
struct Check {
    name: &'static str,
    run: fn(&Lab) -> Result<Vec<Finding>>,
}

impl Check {
    /// What was found. A check that cannot be made does not hold, and keeps none of the others from
    /// being made.
    fn found(&self, lab: &Lab) -> Vec<Finding> {
        (self.run)(lab).unwrap_or_else(|error| {
            vec![Finding::fact("none", self.name, "it can be made", format!("{error:#}"), false)]
        })
    }
}

/// The longest first, so that a short one ends the day.
const CHECKS: [Check; 30] = [
    Check { name: "births", run: births::check },
    Check { name: "processor", run: processor::check },
    Check { name: "samples", run: samples::check },
    Check { name: "cost", run: cost::check },
    Check { name: "encodings", run: encodings::check },
    Check { name: "shared", run: shared::check },
    Check { name: "pairs", run: pairs::check },
    Check { name: "auto", run: threads::check_auto },
    Check { name: "daemon-twelve", run: twelve::check },
    Check { name: "phases", run: phases::check },
    Check { name: "nmass", run: threads::check_nmass },
    Check { name: "two-programs", run: attached::check_two },
    Check { name: "without-pmu", run: without_pmu::check },
    Check { name: "daemon", run: daemon::check },
    Check { name: "refusals", run: outcomes::check_refusals },
    Check { name: "sam", run: threads::check_sam },
    Check { name: "moving", run: moving::check },
    Check { name: "killed", run: killed::check },
    Check { name: "rests", run: rests::check },
    Check { name: "arm", run: arm::check },
    Check { name: "evasions", run: outcomes::check_evasions },
    Check { name: "attach", run: attached::check_attach },
    Check { name: "lies", run: lies::check },
    Check { name: "more-lies", run: lies::check_more },
    Check { name: "missing-units", run: lies::check_missing },
    Check { name: "more-policies", run: threads::check_more },
    Check { name: "more-processors", run: processor::check_more },
    Check { name: "crowd", run: crowd::check },
    Check { name: "arm-daemon", run: arm::check_daemon },
    Check { name: "copies", run: copies::check },
];

/// Not among all, whose time is long enough, and `copies` needs a kernel of its own: asked for by
/// name. `arm-daemon` does not hold in every run.
const BY_HAND: [&str; 7] = [
    "daemon-twelve",
    "more-lies",
    "missing-units",
    "more-policies",
    "more-processors",
    "arm-daemon",
    "copies",
];

/// Tells on standard error of each check that ends, for the table comes at the end of all.
struct Told {
    progress: Progress,
    ended: usize,
    total: usize,
}

impl Told {
    fn new(total: usize) -> Self {
        let progress = Progress::new("checking", Unit::Pieces("checks"), total as u64);
        Self { progress: progress.without_bar(), ended: 0, total }
    }

    /// `[3/22] crowd: holds, 81 s`, and what does not hold.
    fn tell(&mut self, name: &str, findings: &[Finding], started: Instant) {
        self.ended += 1;
        let failed: Vec<&Finding> = findings.iter().filter(|finding| !finding.holds).collect();
        let verdict = if failed.is_empty() { "holds" } else { "FAILS" };
        let took = started.elapsed().as_secs_f64();
        let (ended, total) = (self.ended, self.total);
        self.progress.tell(&format!("[{ended}/{total}] {name}: {verdict}, {took:.0} s"));
        for Finding { check, target, measured, .. } in failed {
            self.progress.tell(&format!("  {check}: expected {target}, found {measured}"));
        }
    }
}

/// What `live` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these checks; default: all but daemon-twelve, more-lies, missing-units,
    /// more-policies, more-processors, arm-daemon and copies
    #[arg(value_name = "CHECK", value_parser = CHECKS.map(|check| check.name))]
    checks: Vec<String>,
    /// Checks to run side by side
    #[arg(long, value_name = "N", default_value_t = default_jobs(), value_parser = whole::<usize>("checks", 1..=256))]
    jobs: usize,
    #[command(flatten)]
    start: Start,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Of daemon-twelve, or of lies more-lies missing-units: write the JSON of docs/results;
    /// `./x results` makes the page
    #[arg(long, value_name = "FILE", requires = "checks")]
    results: Option<PathBuf>,
}

/// Runs the checks and prints what was found; exit status 1 when something does not hold.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open_at(&arguments.start)?;
    let findings = match &arguments.results {
        None => found(&lab, arguments)?,
        Some(file) if arguments.checks == ["daemon-twelve"] => twelve::write(&lab, file)?,
        Some(file) if arguments.checks == lies::PAGE => lies::write(&lab, file)?,
        Some(_) => bail!("--results: expected daemon-twelve alone, or {}", lies::PAGE.join(" ")),
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        print!("{}", document::table(&findings));
    }
    Ok(ExitCode::from(u8::from(!findings.iter().all(|finding| finding.holds))))
}

/// What the checks that were asked for found.
fn found(lab: &Lab, arguments: &Arguments) -> Result<Vec<Finding>> {
    let asked = |check: &&Check| {
        let is_named = arguments.checks.iter().any(|asked| asked == check.name);
        is_named || arguments.checks.is_empty() && !BY_HAND.contains(&check.name)
    };
    let checks: Vec<&Check> = CHECKS.iter().filter(asked).collect();
    let told = Mutex::new(Told::new(checks.len()));
    let findings = side_by_side(checks.len(), arguments.jobs, |index| {
        let (started, check) = (Instant::now(), checks[index]);
        let findings = check.found(lab);
        told.lock().expect("no thread panics with it").tell(check.name, &findings, started);
        Ok(findings)
    })?;
    Ok(findings.concat())
}

/// One of our workloads under several placements, compared with the first, which is first touch.
fn compare(
    lab: &Lab,
    machine: &Machine,
    workload: &str,
    configurations: &[Configuration],
) -> Result<Vec<ConfigurationReport>> {
    let mut guest = configuration::base(&lab.installed, &lab.built)?;
    let program = program::bring(&lab.built.workloads, &mut guest)?;
    let command: Vec<String> =
        std::iter::once(program).chain(workload.split(' ').map(str::to_owned)).collect();
    let title = format!("{}: {workload}", machine.name);
    let task = |configuration: &Configuration| Task {
        title: Some(&title),
        guest: &guest,
        command: &command,
        replicated: &[],
        configuration: *configuration,
        seed: lab.seed,
    };
    let tasks: Vec<Task<'_>> = configurations.iter().map(task).collect();
    let cache = Some(Cache::open(lab)?);
    let batch = Batch { lab, machine, limit: LIMIT, cache, keep: None, times: None, alone: false };
    let runs = batch.all(&tasks, 1)?;
    let first_touch = [runs[0].clone()];
    let report = |(configuration, run): (&Configuration, _)| {
        ConfigurationReport::new(*configuration, vec![run], &first_touch)
    };
    Ok(configurations.iter().zip(runs).map(report).collect())
}

/// What stands for a machine in the table of findings.
fn name(machine: &Machine) -> String {
    format!("{}, {} CPUs", machine.name, machine.cpu_count())
}
