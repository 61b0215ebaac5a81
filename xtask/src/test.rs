//! `./x test`: everything that continuous integration runs, stage by stage, with one closing line.
//!
//! A stage that fails does not keep the later ones from running; one that cannot run counts as
//! failed. What a test does not try is listed at the end, so nothing is skipped silently.

mod lanes;
mod output;
mod witnesses;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use self::output::Output;
use crate::times::Times;
use crate::trusted::Trusted;
use crate::{cargo, dist, fresh_clone, kernel, lab, replay, setup};

/// Arguments of `./x test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out the lab: no setup, no emulated machine (the closing line says so)
    #[arg(long)]
    no_lab: bool,
    /// Run only the stages with TEXT in their names (the closing line says so)
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write how long each stage takes to FILE, one JSON object a line
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Run this stage alone and tell its counts for another ./x test
    #[arg(long, value_name = "NAME", hide = true)]
    stage: Option<String>,
    /// What the other ./x test has built
    #[arg(long, value_name = "WHAT", requires = "stage", hide = true)]
    trusted: Vec<Trusted>,
}

impl Arguments {
    /// The command line, without the file of times.
    fn words(&self) -> String {
        let no_lab = if self.no_lab { " --no-lab" } else { "" };
        let only = self.only.as_ref().map(|text| format!(" --only {text}"));
        format!("./x test{no_lab}{}", only.unwrap_or_default())
    }
}

/// Counts of checks. A test is one check; a stage without tests is one check too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    /// Checks that tests that passed did not make, because this machine lacks something.
    not_tried: Vec<String>,
}

impl Tally {
    pub(crate) fn one(passed: bool) -> Self {
        Self { passed: u64::from(passed), failed: u64::from(!passed), not_tried: Vec::new() }
    }

    /// Whether no check failed.
    pub(crate) fn is_whole(&self) -> bool {
        self.failed == 0
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.not_tried.extend(other.not_tried);
    }
}

/// A stage: its name and its checks.
type Stage = (&'static str, fn() -> Result<Tally>);

/// Features of code that only `./x dist` builds, to lint and test it too.
const FEATURES: [&str; 2] = ["--features", "rondpoint/manual"];

/// The first stages. They need nothing but this repository and cargo, as do [`TEST_STAGES`].
const STAGES: [Stage; 3] = [
    ("formatting", || cargo(&["fmt", "--all", "--", "--check"])),
    ("lints", || {
        let what = ["clippy", "--workspace", "--all-targets"];
        cargo(&[&what[..], &FEATURES, &["--", "-Dwarnings"]].concat())
    }),
    ("build of every test", build_tests),
];

/// The stages that follow, side by side. Tests wait much; the build of the static file takes what
/// they leave of the processors.
const TEST_STAGES: [Stage; 2] = [
    ("tests of every crate", workspace_tests),
    ("rondpoint as one static file", || {
        be_nice();
        dist::test()
    }),
];

/// The stages that fetch packages, or emulate machines on all cores.
const LAB_STAGES: [Stage; 10] = [
    ("event tables against the kernel's own lists", witnesses::event_tables),
    ("SPE packets against the kernel's own decoder", witnesses::spe_packets),
    ("captured machines as XML, read by hwloc", witnesses::hwloc),
    ("the dashboard, answered by Debian's Prometheus", witnesses::prometheus),
    ("a report, opened by Debian's Chromium", witnesses::chromium),
    ("the README's first command, in a fresh clone", fresh_clone::test),
    ("setup of the lab's parts", || {
        setup::run(&setup::Arguments::default()).map(|()| Tally::one(true))
    }),
    ("the kernel's patches: do they apply, and what does checkpatch say", kernel::check),
    ("build of the lab's parts", || {
        lab::build()?;
        Trusted::Parts.trust();
        Ok(Tally::one(true))
    }),
    ("rondpoint in the guest, as promised", lab::live),
];

/// The stages that emulate one machine at a time, the longest first. They run side by side.
const LANE_STAGES: [Stage; 7] = [
    ("the lab, end to end", lab::test),
    ("rondpoint in the guest, recorded and replayed", replay::test),
    ("the Debian package under systemd, from installation to purge", lab::lifecycle),
    ("the guide's screens, in the guest", lab::screens),
    ("the PMU, from inside the guest", lab::check_pmu),
    ("rondpoint calibrate in the guest", lab::calibration),
    ("a real program in the guest", lab::real_program),
];

/// Runs the stages and prints the closing line.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(name) = &arguments.stage {
        return run_alone(name, &arguments.trusted);
    }
    let asked = |stages: &[Stage], is_lab: bool| -> Vec<Stage> {
        let only = arguments.only.as_deref().unwrap_or_default();
        let is_asked = |(name, _): &&Stage| name.contains(only) && !(is_lab && arguments.no_lab);
        stages.iter().filter(is_asked).copied().collect()
    };
    let groups = [
        (asked(&STAGES, false), asked(&TEST_STAGES, false)),
        (asked(&LAB_STAGES, true), asked(&LANE_STAGES, true)),
    ];
    let count = groups.iter().map(|(stages, lanes)| stages.len() + lanes.len()).sum();
    if count == 0 {
        let text = arguments.only.as_deref().unwrap_or_default();
        bail!("--only {text}: no stage has that in its name");
    }
    let times = Times::begin(arguments.times.as_deref(), &arguments.words())?;
    let mut total = Tally::default();
    let mut numbers = (1..=count).map(|number: usize| format!("[{number}/{count}]"));
    let mut numbered = |stages: Vec<Stage>| -> Vec<(String, Stage)> {
        numbers.by_ref().take(stages.len()).zip(stages).collect()
    };
    for (stages, lanes) in groups {
        for (number, (name, stage)) in numbered(stages) {
            println!("{number} {name}");
            let started = Instant::now();
            let tally = times.stage(name, || Ok(guarded(stage)))?;
            println!("{}", ended(&tally, started));
            total.add(tally);
        }
        let lanes = numbered(lanes).into_iter().map(|(number, (name, _))| (number, name));
        total.add(lanes::run(lanes.collect(), &times)?);
    }
    close(arguments, &total);
    times.end(total.is_whole())?;
    if !total.is_whole() {
        bail!("not all tests passed");
    }
    Ok(())
}

/// Runs a stage of those side by side for another `./x test`.
fn run_alone(name: &str, trusted: &[Trusted]) -> Result<()> {
    let stage = TEST_STAGES.iter().chain(&LANE_STAGES).find(|(found, _)| *found == name);
    let (_, stage) = stage.with_context(|| format!("--stage {name}: no such stage"))?;
    trusted.iter().for_each(|what| what.trust());
    lanes::be(*stage)
}

/// Gives this process and its children the lowest priority. Without `renice` they keep theirs.
fn be_nice() {
    let mut renice = Command::new("renice");
    renice.args(["-n", "19", "-p", &std::process::id().to_string()]);
    let _ = renice.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// What a stage counts. One that cannot run is one failure.
fn guarded(stage: fn() -> Result<Tally>) -> Tally {
    stage().unwrap_or_else(|error| {
        println!("error: {error:#}");
        Tally::one(false)
    })
}

/// The last line of a stage.
fn ended(tally: &Tally, started: Instant) -> String {
    let verdict = if tally.is_whole() { "ok" } else { "FAILED" };
    let (passed, failed) = (tally.passed, tally.failed);
    let seconds = started.elapsed().as_secs_f64();
    format!("      {verdict}, {passed} passed, {failed} failed, {seconds:.0} s")
}

/// Prints what was left out, what was not tried, and the closing line.
fn close(arguments: &Arguments, total: &Tally) {
    if arguments.no_lab {
        println!("without the lab, as asked");
    }
    if let Some(text) = &arguments.only {
        println!("only the stages with \"{text}\" in their names, as asked");
    }
    if !total.not_tried.is_empty() {
        println!("{} checks not tried here:", total.not_tried.len());
        total.not_tried.iter().for_each(|line| println!("  {line}"));
    }
    println!("{} passed, {} failed", total.passed, total.failed);
}

/// One cargo command as one check, under a bar.
fn cargo(arguments: &[&str]) -> Result<Tally> {
    let title = format!("cargo {}", arguments[0]);
    Ok(Tally::one(cargo::build(&title, cargo::command().args(arguments))?))
}

/// Arguments of cargo for every test.
fn arguments_of_tests() -> Vec<&'static str> {
    [&["test", "--workspace", "--no-fail-fast"][..], &FEATURES].concat()
}

/// Builds every test, with the programs that tests start.
fn build_tests() -> Result<Tally> {
    let mut command = cargo::command();
    let succeeded =
        cargo::build("building the tests", command.args(arguments_of_tests()).arg("--no-run"))?;
    if succeeded {
        Trusted::Tests.trust();
    }
    Ok(Tally::one(succeeded))
}

/// Runs the unit, integration and documentation tests of all crates. Shows failures, counts all.
fn workspace_tests() -> Result<Tally> {
    if !Trusted::Tests.is_trusted() {
        // Shows the progress of the build. The command below counts its errors.
        build_tests()?;
    }
    let mut command = cargo::command();
    let child = command
        .args(arguments_of_tests())
        .args(["--", "--show-output"])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.context("cargo: cannot run")?;
    let lines = BufReader::new(child.stdout.take().expect("was piped")).lines();
    let mut output = Output::default();
    for line in lines {
        let line = line.context("cargo test: cannot read its output")?;
        if output.take(&line) {
            println!("{line}");
        }
    }
    let mut tally = output.end();
    let status = child.wait().context("cargo test: cannot wait for it")?;
    if !status.success() && tally.failed == 0 {
        // The code did not compile, or a test program was killed before it printed counts.
        tally.failed = 1;
    }
    Ok(tally)
}
