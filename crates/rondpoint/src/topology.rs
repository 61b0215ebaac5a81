//! `rondpoint topology`: the machine as Rondpoint sees it, as text, JSON or a machine file; of this
//! machine or of a captured tree.

mod capture;
mod json;
mod machine_file;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::{Root, topology};

use crate::terminal;

const BAD_INPUT: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint topology
  rondpoint topology --write-machine here.toml   # for run, observe and decide --machine, and the lab
  rondpoint topology --capture here.tar          # to attach to a bug report
  tar xf here.tar -C there && rondpoint topology --root there")]
pub(crate) struct Arguments {
    /// One JSON object
    #[arg(long, conflicts_with_all = ["write_machine", "machine_file", "capture"])]
    json: bool,

    /// Write a machine file, to stdout where FILE is `-`; what sysfs does not tell is assumed and
    /// marked so
    #[arg(long, value_name = "FILE", conflicts_with = "capture")]
    write_machine: Option<PathBuf>,

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
    let file = arguments.capture.as_deref().or(arguments.write_machine.as_deref());
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
    if let Some(path) = &arguments.capture {
        return capture::write(&root, path);
    }
    let found = topology::discover(&root)?;
    let to_stdout = arguments.write_machine.as_deref() == Some(Path::new("-"));
    if arguments.json {
        return terminal::print_json_text(&(json::object(&found)? + "\n"));
    }
    match &arguments.write_machine {
        Some(path) if !to_stdout => {
            let text = machine_file::text(&found)?;
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
        }
        None if !arguments.machine_file => terminal::print(&text::text(&found)),
        _ => terminal::print(&machine_file::text(&found)?),
    }
}
