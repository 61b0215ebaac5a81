//! `rondpoint topology`: the machine as Rondpoint sees it, as text, JSON or a machine file; of this
//! machine or of a captured tree.

mod capture;
mod json;
mod machine_file;
mod text;
mod write;
mod xml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use rondpoint_linux::Root;
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::topology::{self, Discovered};

use self::write::Written;
use crate::calibrate::{Calibration, SYSTEM_FILE};
use crate::terminal;

const BAD_INPUT: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint topology
  rondpoint topology --write-machine here.toml   # for run, observe and decide --machine, and the lab
  rondpoint topology --capture here.tar          # to attach to a bug report
  rondpoint topology --xml here.xml              # then: lstopo -i here.xml
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

    /// Write the files that describe the machine into a tar archive
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
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
    let to_stdout = Some(Path::new("-"));
    let named = arguments.write_machine.as_deref().or(arguments.xml.as_deref());
    let file = arguments.capture.as_deref().or(named.filter(|_| named != to_stdout));
    let written = Written::open(file)?;
    let _ = privileges::keep_only(&Needs::to_read(file));
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
        let calibration = measured(arguments, &found);
        return written.put(&xml::document(&found, calibration.as_ref()));
    }
    match arguments.machine_file || arguments.write_machine.is_some() {
        true => written.put(&machine_file::text(&found)?),
        false => terminal::print(&text::text(&found)),
    }
}

/// What was measured on this machine, where that is of use for it.
fn measured(arguments: &Arguments, found: &Discovered) -> Option<Calibration> {
    if arguments.root.is_some() {
        return None;
    }
    let calibration = Calibration::load(Path::new(SYSTEM_FILE)).ok()?;
    calibration.check(&found.topology).ok().map(|()| calibration)
}
