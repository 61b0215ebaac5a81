//! `rondpoint topology`: prints this machine or a captured one, as text, JSON or a machine file.

mod capture;
mod json;
mod machine_file;
mod measured;
mod picture;
mod text;
mod write;
mod xml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rondpoint_linux::Root;
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::topology::{self, Discovered};

use self::write::Written;
use crate::calibrate::{self, Calibration, SYSTEM_FILE, memory};
use crate::output::Output;
use crate::terminal;

const BAD_INPUT: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint topology
  rondpoint topology --write-machine here.toml   # for --machine of run, observe and decide
  rondpoint topology --capture here.tar          # to attach to a bug report
  rondpoint topology --xml here.xml              # then: lstopo -i here.xml
  rondpoint topology --measure --svg here.svg    # idle machine: latency and bandwidth by node
  tar xf here.tar -C there && rondpoint topology --root there")]
pub(crate) struct Arguments {
    /// One JSON object
    #[arg(long, conflicts_with_all = ["write_machine", "machine_file", "capture"])]
    json: bool,

    /// Write a machine file, to stdout where FILE is `-`; what sysfs does not tell is assumed and
    /// marked so
    #[arg(long, value_name = "FILE", conflicts_with = "capture")]
    write_machine: Option<PathBuf>,

    /// Write the machine as XML that hwloc reads, to stdout where FILE is `-`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "write_machine", "machine_file", "capture"])]
    xml: Option<PathBuf>,

    /// An older spelling of `--write-machine -`
    #[arg(long, hide = true, conflicts_with_all = ["write_machine", "capture"])]
    machine_file: bool,

    /// Read DIR/proc and DIR/sys instead of /proc and /sys
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Write the files that describe the machine into a tar archive, to stdout where FILE is `-`
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// Measure idle latency and bandwidth from each node to each, and latency under load;
    /// calibration files stay as they are
    #[arg(long, conflicts_with_all = ["write_machine", "xml", "machine_file", "root", "capture"])]
    measure: bool,

    /// Draw what was measured, to stdout where FILE is `-`
    #[arg(long, value_name = "FILE", requires = "measure")]
    svg: Option<PathBuf>,

    /// Milliseconds of each measurement
    #[arg(long, value_name = "MS", requires = "measure", default_value_t = 200, value_parser = clap::value_parser!(u64).range(5..=60_000))]
    time: u64,

    /// Size of a last-level cache, where sysfs is wrong about it; K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", requires = "measure", value_parser = crate::move_memory::bytes)]
    cache: Option<u64>,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail("topology", &error);
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.measure {
        return measure(arguments);
    }
    let is_file = |path: &&Path| !Output::is_stdout(path);
    let text = arguments.write_machine.as_deref().or(arguments.xml.as_deref()).filter(is_file);
    let named = arguments.capture.as_deref().or(text);
    let written = Written::open(named)?;
    let written_to = named.filter(is_file);
    let needs = match &arguments.root {
        Some(folder) => Needs::to_read_beneath(folder, written_to),
        None => Needs::to_read(written_to),
    };
    let _ = privileges::keep_only(&needs);
    let root = match &arguments.root {
        Some(directory) => {
            // Else the reader would complain of some file in it.
            let listed = std::fs::read_dir(directory);
            listed.with_context(|| format!("{}", directory.display()))?;
            Root::captured(directory)
        }
        None => Root::live(),
    };
    if arguments.capture.is_some() {
        return capture::write(&root, written);
    }
    let found = topology::discover(&root)?;
    if arguments.json {
        return terminal::print_json_text(&(json::object(&found)? + "\n"));
    }
    if arguments.xml.is_some() {
        let calibration = calibration(arguments, &found);
        return written.put(&xml::document(&found, calibration.as_ref()));
    }
    match arguments.machine_file || arguments.write_machine.is_some() {
        true => written.put(&machine_file::text(&found)?),
        false => terminal::print(&text::text(&found)),
    }
}

/// Measures this machine and shows it. The picture's file is opened first: minutes are not spent in
/// vain.
fn measure(arguments: &Arguments) -> Result<()> {
    let file = arguments.svg.as_deref().filter(|file| !Output::is_stdout(file));
    let to_stdout = file.is_none() && arguments.svg.is_some();
    if to_stdout && arguments.json {
        bail!("--json and --svg -: stdout takes one of them; name a file for the picture");
    }
    let picture = arguments.svg.as_ref().map(|_| Written::open(file)).transpose()?;
    let _ = privileges::keep_only(&Needs::to_manage());
    let machine = topology::discover(&Root::live())?;
    calibrate::warn_if_busy("topology", &machine)?;
    let time = Duration::from_millis(arguments.time);
    let found = memory::measure(&machine, arguments.cache, time)?;
    if let Some(picture) = picture {
        picture.put(&picture::svg(&found))?;
    }
    match (arguments.json, to_stdout) {
        (true, _) => terminal::print_json_text(&measured::json(&found)?),
        (false, true) => Ok(()),
        (false, false) => terminal::print(&measured::text(&found)),
    }
}

/// What was measured on this machine, where that is of use for it.
fn calibration(arguments: &Arguments, found: &Discovered) -> Option<Calibration> {
    if arguments.root.is_some() {
        return None;
    }
    let calibration = Calibration::load(Path::new(SYSTEM_FILE)).ok()?;
    calibration.check(&found.topology).ok().map(|()| calibration)
}
