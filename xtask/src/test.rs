//! `./x test`: everything that continuous integration runs, stage by stage, with one closing line.
//!
//! A stage that fails does not keep the later ones from running; one that cannot run counts as
//! failed. What a test does not try is listed at the end, so nothing is skipped silently.

mod output;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::output::Output;
use crate::tidy::root;
use crate::times::Times;
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// The stages that need nothing but this repository and cargo.
const STAGES: [Stage; 4] = [
    ("formatting", || cargo(&["fmt", "--all", "--", "--check"])),
    ("lints", || {
        let what = ["clippy", "--workspace", "--all-targets"];
        cargo(&[&what[..], &FEATURES, &["--", "-Dwarnings"]].concat())
    }),
    ("tests of every crate", workspace_tests),
    ("rondpoint as one static file", dist::test),
];

/// The stages that fetch packages or emulate machines.
const LAB_STAGES: [Stage; 14] = [
    ("event tables against the kernel's own lists", event_tables),
    ("SPE packets against the kernel's own decoder", spe_packets),
    ("the README's first command, in a fresh clone", fresh_clone::test),
    ("setup of the lab's parts", || {
        setup::run(&setup::Arguments::default()).map(|()| Tally::one(true))
    }),
    ("the kernel's patches: do they apply, and what does checkpatch say", kernel::check),
    ("build of the lab's parts", || lab::build().map(|_| Tally::one(true))),
    ("the PMU, from inside the guest", lab::check_pmu),
    ("rondpoint in the guest, recorded and replayed", replay::test),
    ("rondpoint in the guest, as promised", lab::live),
    ("rondpoint calibrate in the guest", lab::calibration),
    ("a real program in the guest", lab::real_program),
    ("the guide's screens, in the guest", lab::screens),
    ("the Debian package under systemd, from installation to purge", lab::lifecycle),
    ("the lab, end to end", lab::test),
];

/// Runs the stages and prints the closing line.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut stages = STAGES.to_vec();
    if !arguments.no_lab {
        stages.extend(LAB_STAGES);
    }
    if let Some(text) = &arguments.only {
        stages.retain(|(name, _)| name.contains(text));
        if stages.is_empty() {
            bail!("--only {text}: no stage has that in its name");
        }
    }
    let times = Times::begin(arguments.times.as_deref(), &arguments.words())?;
    let mut total = Tally::default();
    for (index, (name, stage)) in stages.iter().enumerate() {
        println!("[{}/{}] {name}", index + 1, stages.len());
        let start = Instant::now();
        let tally = times.stage(name, || {
            Ok(stage().unwrap_or_else(|error| {
                println!("error: {error:#}");
                Tally::one(false)
            }))
        })?;
        let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "      {verdict}, {} passed, {} failed, {:.0} s",
            tally.passed,
            tally.failed,
            start.elapsed().as_secs_f64()
        );
        total.add(tally);
    }
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
    times.end(total.failed == 0)?;
    if total.failed > 0 {
        bail!("not all tests passed");
    }
    Ok(())
}

/// One cargo command as one check, under a bar.
fn cargo(arguments: &[&str]) -> Result<Tally> {
    let title = format!("cargo {}", arguments[0]);
    Ok(Tally::one(cargo::build(&title, cargo::command().args(arguments))?))
}

/// Checks every line of the product's event tables. The program prints differences and counts.
fn event_tables() -> Result<Tally> {
    let lists = setup::kernel_sources()?.lists();
    let mut command = cargo::command();
    command.args(["run", "--quiet", "--package", "rondpoint-linux", "--example", "witness", "--"]);
    let status = command.arg(&lists).status().context("cargo: cannot run")?;
    Ok(Tally::one(status.success()))
}

/// Number of packets that both decoders read in a stage.
const SPE_PACKETS: &str = "1000000";

/// Reads generated packets with both decoders. The program prints differences and counts.
fn spe_packets() -> Result<Tally> {
    let sources = setup::kernel_sources()?;
    let folder = lab::target_folder().join("witness");
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let program = folder.join("spe_decoder");
    let driver = root().join("crates/linux/examples/spe_witness/driver.c");
    let compiled = sources.compile_decoder(&driver, &program).status().context("cc: cannot run")?;
    if !compiled.success() {
        bail!("{}: cannot compile", driver.display());
    }
    let mut command = cargo::command();
    let what = ["run", "--quiet", "--package", "rondpoint-linux", "--example", "spe_witness", "--"];
    let status = command.args(what).arg(&program).arg(SPE_PACKETS).status();
    Ok(Tally::one(status.context("cargo: cannot run")?.success()))
}

/// Runs the unit, integration and documentation tests of all crates. Shows failures, counts all.
fn workspace_tests() -> Result<Tally> {
    let arguments = [&["test", "--workspace", "--no-fail-fast"][..], &FEATURES].concat();
    // Shows the progress of the build. The command below counts its errors.
    cargo::build("building the tests", cargo::command().args(&arguments).arg("--no-run"))?;
    let mut command = cargo::command();
    let child =
        command.args(&arguments).args(["--", "--show-output"]).stdout(Stdio::piped()).spawn();
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
