//! `rondpoint-lab bench`: how fast the host emulates the guest, with the full model and without.
//!
//! One guest program, the same file system and the same kernel under each emulation. The
//! repetitions go round all emulations in turn, so that other load on the host hits all of them
//! alike. Times are those of the host (see `stopwatch`). The number of instructions is that of the
//! emulated machine, counted once by the plugin. The benchmark only measures; it has no pass or
//! fail.
//!
//! Without the plugin the guest runs in the host's time and executes a few more instructions in
//! kernel ticks. The one count is used for all emulations.

mod stopwatch;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rondpoint_lab_init::{Ending, Event, JOB_PATH, Job};
use rondpoint_machine::Machine;
use serde::Serialize;

use crate::comparison::median;
use crate::initramfs::Initramfs;
use crate::lab::{self, Lab};
use crate::vm::{Boot, Emulation, Record};
use crate::whole::whole;
use stopwatch::{HostTime, Stopwatch};

/// QEMU's cache plugin boots slowly; nothing takes longer than this in host time.
const LIMIT: Duration = Duration::from_secs(3600);
/// Options for QEMU's cache plugin: with its second level, as our model has one too.
const CACHE_PLUGIN_OPTIONS: &str = ",l2=on";

/// What `bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine to emulate: a file, or the name of one that the lab brings
    #[arg(long, value_name = "FILE", default_value = "carrefour-a")]
    machine: String,
    /// QEMU's own cache plugin to compare with: libcache.so, built from QEMU's contrib/plugins
    #[arg(long, value_name = "FILE")]
    cache_plugin: Option<PathBuf>,
    /// Repetitions of each emulation
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>("repetitions", 1..=100))]
    runs: u32,
    /// Rounds of the guest program, k-means over 64 MiB
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u32>("rounds", 1..=10_000))]
    rounds: u32,
    /// One JSON object on standard output instead of a table
    #[arg(long)]
    json: bool,
}

/// Speed of one guest program under several emulations.
#[derive(Debug, Serialize)]
struct Report {
    format: u32,
    /// Where counts come from.
    counts: &'static str,
    /// Where times come from.
    times: &'static str,
    machine: String,
    vcpus: usize,
    /// CPUs of the host that this process may use.
    host_cpus: usize,
    command: Vec<String>,
    /// Of all vCPUs while the program ran, kernel included.
    instructions: u64,
    emulations: Vec<Speed>,
}

/// One emulation's speed. Slowdowns are against `no plugin`, medians.
#[derive(Debug, Serialize)]
struct Speed {
    name: &'static str,
    runs: usize,
    wall_s: Spread,
    cpu_s: Spread,
    instructions_per_wall_s: f64,
    instructions_per_cpu_s: f64,
    slowdown_wall: f64,
    slowdown_cpu: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let median = median(&sorted).expect("every emulation runs at least once");
        Self { min: sorted[0], median, max: sorted[sorted.len() - 1] }
    }
}

/// Runs everything and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let machine = lab::lab_machine(&arguments.machine)?;
    if let Some(plugin) = &arguments.cache_plugin
        && !plugin.is_file()
    {
        bail!("{}: no such file; expected QEMU's libcache.so", plugin.display());
    }
    let lab = Lab::open()?;
    let mut emulations = vec![
        ("no plugin", Emulation::Plain),
        ("no plugin, thread=multi", Emulation::PlainThreads),
        ("full model", Emulation::Modelled),
    ];
    if let Some(plugin) = &arguments.cache_plugin {
        emulations.push(("QEMU's cache plugin", Emulation::Plugin(plugin, CACHE_PLUGIN_OPTIONS)));
    }
    let command = ["/bin/rondpoint-workloads", "kmeans", "--size", "64M", "--iterations"];
    let mut command = command.map(str::to_owned).to_vec();
    command.push(arguments.rounds.to_string());

    let archive = guest(&lab, &command)?.archive()?;
    let boot = Boot {
        installed: &lab.installed,
        built: &lab.built,
        machine: &machine,
        initramfs: &archive,
        seed: 1,
        limit: LIMIT,
    };
    let mut times = vec![Vec::new(); emulations.len()];
    let mut instructions = 0;
    for round in 1..=arguments.runs {
        for (index, (name, emulation)) in emulations.iter().enumerate() {
            let (time, counted) =
                once(&boot, *emulation).with_context(|| format!("{name}, run {round}"))?;
            let HostTime { wall_s, cpu_s } = time;
            let runs = arguments.runs;
            eprintln!("[{round}/{runs}] {name}: {wall_s:.1} s, {cpu_s:.1} s of CPU time");
            times[index].push(time);
            instructions = counted.unwrap_or(instructions);
        }
    }
    let names = emulations.iter().map(|(name, _)| *name);
    let report = report(&machine, command, instructions, names.zip(times).collect());
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(ExitCode::SUCCESS)
}

/// PID 1, the program and its job. No PMU driver: without our plugin there is nothing behind it.
fn guest(lab: &Lab, command: &[String]) -> Result<Initramfs> {
    let mut guest = Initramfs::new();
    guest.add_file(&lab.built.init, "/init")?;
    guest.add_file(&lab.built.workloads, &command[0])?;
    let job = Job { command: command.to_vec(), modelled: true, ..Job::default() };
    guest.add_bytes(serde_json::to_vec(&job)?, JOB_PATH);
    Ok(guest)
}

/// One boot: host time of the program, and its instructions where our plugin counted them.
fn once(boot: &Boot<'_>, emulation: Emulation<'_>) -> Result<(HostTime, Option<u64>)> {
    let mut stopwatch = Stopwatch::default();
    let record = boot.watched(emulation, |pid, report| stopwatch.look(pid, report))?;
    let ended_well =
        |event: &Event| matches!(event, Event::Finished { ending: Ending::Exit(0), .. });
    if !record.events.iter().any(ended_well) {
        bail!("the program failed: {:?}", record.events);
    }
    let time = stopwatch
        .elapsed()
        .context("the program ended before its start was seen; raise --rounds")?;
    Ok((time, instructions(&record)))
}

fn instructions(record: &Record) -> Option<u64> {
    let vcpus = &record.measurement.as_ref()?.vcpus;
    Some(vcpus.iter().filter_map(|vcpu| vcpu.events.get("instructions")).sum())
}

/// `times` begins with the emulation that the others are compared with.
fn report(
    machine: &Machine,
    command: Vec<String>,
    instructions: u64,
    times: Vec<(&'static str, Vec<HostTime>)>,
) -> Report {
    let wall = |times: &[HostTime]| Spread::of(times.iter().map(|time| time.wall_s));
    let cpu = |times: &[HostTime]| Spread::of(times.iter().map(|time| time.cpu_s));
    let (base_wall, base_cpu) = (wall(&times[0].1), cpu(&times[0].1));
    let speed = |(name, times): &(&'static str, Vec<HostTime>)| {
        let (wall_s, cpu_s) = (wall(times), cpu(times));
        Speed {
            name,
            runs: times.len(),
            wall_s,
            cpu_s,
            instructions_per_wall_s: instructions as f64 / wall_s.median,
            instructions_per_cpu_s: instructions as f64 / cpu_s.median,
            slowdown_wall: wall_s.median / base_wall.median,
            slowdown_cpu: cpu_s.median / base_cpu.median,
        }
    };
    Report {
        format: 1,
        counts: "emulated",
        times: "host",
        machine: machine.name.clone(),
        vcpus: machine.cpu_count(),
        host_cpus: std::thread::available_parallelism().map_or(1, usize::from),
        command,
        instructions,
        emulations: times.iter().map(speed).collect(),
    }
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{} on {} ({} vCPUs): {:.0} M instructions (emulated), times of the host ({} CPUs)\n\n",
        report.command.join(" "),
        report.machine,
        report.vcpus,
        report.instructions as f64 / 1e6,
        report.host_cpus,
    );
    let spread =
        |spread: Spread| format!("{:.2}/{:.2}/{:.2}", spread.min, spread.median, spread.max);
    let _ = writeln!(
        text,
        "{:<24} {:>4} {:>22} {:>22} {:>10} {:>10} {:>13}",
        "emulation",
        "runs",
        "wall s min/med/max",
        "CPU s min/med/max",
        "M/wall s",
        "M/CPU s",
        "slowdown"
    );
    for speed in &report.emulations {
        let slowdown = format!("{:.1} ({:.1})", speed.slowdown_wall, speed.slowdown_cpu);
        let _ = writeln!(
            text,
            "{:<24} {:>4} {:>22} {:>22} {:>10.0} {:>10.0} {:>13}",
            speed.name,
            speed.runs,
            spread(speed.wall_s),
            spread(speed.cpu_s),
            speed.instructions_per_wall_s / 1e6,
            speed.instructions_per_cpu_s / 1e6,
            slowdown,
        );
    }
    text.push_str(
        "\nM/wall s, M/CPU s: million guest instructions per second of wall time, and of QEMU's CPU time. slowdown: median\n\
         wall time against no plugin (in brackets CPU time, which other load on the host disturbs less).\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_ratios_of_medians() {
        let machine = Machine::synthetic("nodes=2 cpus=2 memory=256M").expect("a machine");
        let times = |walls: &[f64]| {
            walls.iter().map(|wall_s| HostTime { wall_s: *wall_s, cpu_s: 2.0 }).collect()
        };
        let times = vec![("no plugin", times(&[2.0, 1.0, 9.0])), ("full model", times(&[20.0]))];
        let report = report(&machine, vec!["p".to_owned()], 4_000_000, times);
        assert_eq!(report.emulations[0].wall_s, Spread { min: 1.0, median: 2.0, max: 9.0 });
        assert_eq!(report.emulations[1].slowdown_wall, 10.0);
        assert_eq!(report.emulations[1].slowdown_cpu, 1.0);
        assert_eq!(report.emulations[0].instructions_per_wall_s, 2e6);
        let table = table(&report);
        assert!(
            table.starts_with("p on synthetic (4 vCPUs): 4 M instructions (emulated)"),
            "{table}"
        );
        assert!(table.contains("1.00/2.00/9.00"), "{table}");
    }
}
