//! `rondpoint calibrate`: measures this machine's memory with benchmarks and writes a file that
//! every later command reads. It changes nothing else.
//!
//! Published thresholds hold for the authors' machines. Calibration measures the quantities to
//! which the thresholds are relative. If a paper describes how it found a threshold, calibration
//! repeats that experiment:
//! - N-MASS's link saturation and penalty line;
//! - AsymSched's matrix;
//! - the capacity behind Carrefour's MAPTU, and its sampling interval;
//! - SAM's three thresholds.
//!
//! A program of the user may replace the programs of the papers.

mod bench;
pub(crate) mod chase;
mod contention;
mod costs;
mod counts;
mod file;
mod handoff;
mod loaded;
mod loads;
mod meaning;
pub(crate) mod memory;
mod penalty;
mod program;
mod report;
mod sampling;
pub(crate) mod stream;
mod target;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::topology::{self, Discovered};
use rondpoint_linux::{Root, root};

use self::bench::{Bench, Points};
use self::counts::Events;
#[cfg(test)]
pub(crate) use self::file::Sampling;
pub(crate) use self::file::{Calibration, OtherFormat, SYSTEM_FILE};
use self::target::Target;
use crate::output::Output;
use crate::{session, terminal};

const FAILURE: u8 = 1;

const EXAMPLES: &str = "\
Examples:
  sudo rondpoint calibrate                         # writes /etc/rondpoint/calibration.toml
  sudo rondpoint calibrate -- ./app ARGS           # adds a program of yours
  rondpoint calibrate --output mine.toml --json";

const DETAILS: &str = "

Measures every CPU and node that this process may use, so run it on the whole machine, and on an
idle one. It takes about half a second for each pair of nodes, and some seconds more. The file
explains each of its keys.

A program is run five times, unmodified: once to warm up, then with CPUs and memory of one node
(local), with the same CPUs and another node's memory (remote), on the whole machine with first
touch, and interleaved. It should do the same work each time, for a second or more, and read
nothing from its standard input. Its output passes through, and this command writes to stderr.
Under sudo the program runs as the user who called sudo. Calibrate the machine without a program
first. If a program fails, the file does not change.

Exit status: 0 good, 1 something could not be measured or written, or the program failed, 2 bad
usage.";

/// Measure this machine's memory, so that decisions fit it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
pub(crate) struct Arguments {
    /// File for the measurements; - is stdout
    #[arg(long, short, value_name = "FILE", default_value = SYSTEM_FILE)]
    output: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Milliseconds of each measurement
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(5..=60_000))]
    time: u64,

    /// Size of a last-level cache, where sysfs is wrong about it (as on emulated machines); K, M
    /// and G are powers of 1024
    #[arg(long, value_name = "BYTES", value_parser = crate::move_memory::cache_bytes)]
    cache: Option<u64>,

    /// A program of yours and its arguments, as a benchmark
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let shown = |text: String| {
        // A program or the measurements may have stdout.
        let is_free = arguments.command.is_empty() && !Output::is_stdout(&arguments.output);
        match (is_free, arguments.json) {
            (true, true) => terminal::print_json_text(&text)?,
            (true, false) => terminal::print(&text)?,
            (false, _) => terminal::say(&text),
        }
        Ok(())
    };
    match run(arguments).and_then(shown) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail("calibrate", &error);
            ExitCode::from(FAILURE)
        }
    }
}

fn run(arguments: &Arguments) -> Result<String> {
    check_stdout(arguments)?;
    let machine = topology::discover(&Root::live())?;
    let earlier = match arguments.command.is_empty() {
        true => None,
        false => Some(earlier(&arguments.output, &machine)?),
    };
    let target = Target::find(&arguments.output, session::caller()?.as_ref())?;
    if earlier.is_none() {
        // The measurements replace a file, perhaps in a folder of the caller.
        let _ = privileges::keep_only(&Needs::to_calibrate());
    }
    // With the rights that are left: the file is written with these.
    target.check()?;
    warn_if_busy("calibrate", &machine)?;
    let (calibration, points) = match earlier {
        Some(calibration) => (with_program(calibration, arguments, &machine)?, Points::default()),
        None => {
            let time = Duration::from_millis(arguments.time);
            Bench::new(&machine, arguments.cache, time)?.measure()?
        }
    };
    target.write(&calibration.to_toml()?)?;
    let thresholds = report::thresholds(&calibration, &machine.topology)?;
    Ok(match arguments.json {
        true => report::json(&calibration, &thresholds, &points)?,
        false => report::text(&calibration, &thresholds, &points, &arguments.output),
    })
}

/// # Errors
/// Stdout is to take the measurements, and has no room for them.
fn check_stdout(arguments: &Arguments) -> Result<()> {
    match Output::is_stdout(&arguments.output) {
        true if arguments.json => bail!(
            "--json and --output -: stdout takes one of them; expected a file for the measurements"
        ),
        true if !arguments.command.is_empty() => {
            bail!("--output -: a program is added to an earlier file; expected that file")
        }
        _ => Ok(()),
    }
}

/// Says on stderr that other programs would be measured too, where they would.
pub(crate) fn warn_if_busy(command: &str, machine: &Discovered) -> Result<()> {
    let load = root::read_optional(&Root::live().in_proc("loadavg"))?.unwrap_or_default();
    if let Some(warning) = busy(&String::from_utf8_lossy(&load), machine.topology.cpu_count()) {
        terminal::say(&format!("rondpoint {command}: {warning}\n"));
    }
    Ok(())
}

/// Share of the CPUs in use above which measurements are of other programs too (our choice).
const IDLE_SHARE: f64 = 0.1;

/// A warning where other programs ran in the last minute, by the first number of `/proc/loadavg`.
fn busy(loadavg: &str, cpus: usize) -> Option<String> {
    let load: f64 = loadavg.split_whitespace().next()?.parse().ok()?;
    let most = (IDLE_SHARE * cpus as f64).max(0.5);
    (load > most).then(|| {
        format!(
            "warning: this machine is busy (load {load:.1} on {cpus} CPUs): other programs are \
             measured too; measure again when it is idle"
        )
    })
}

/// What a program is added to.
fn earlier(path: &Path, machine: &Discovered) -> Result<Calibration> {
    let first =
        "a program is added to what the machine itself showed: run `rondpoint calibrate` first";
    let found = Calibration::load(path).context(first)?;
    found.check(&machine.topology).with_context(|| path.display().to_string())?;
    Ok(found)
}

/// The same with what a program of the user's shows.
fn with_program(
    mut found: Calibration,
    arguments: &Arguments,
    machine: &Discovered,
) -> Result<Calibration> {
    let events = Events::of(machine)?;
    let caller = session::caller()?;
    let (command, topology) = (&arguments.command, &machine.topology);
    let program = program::measure(command, caller.as_ref(), &found, topology, &events)?;
    found.add([program]);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told_and_an_idle_one_is_not() {
        assert_eq!(busy("0.42 0.30 0.20 1/345 4711\n", 2), None);
        assert_eq!(busy("6.10 0.30 0.20 1/345 4711\n", 64), None);
        let warning = busy("3.20 0.30 0.20 4/345 4711\n", 2).expect("busy");
        assert!(warning.contains("load 3.2 on 2 CPUs"), "{warning}");
        assert_eq!(busy("", 2), None, "not known");
    }
}
