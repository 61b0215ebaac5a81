//! `rondpoint topology`: the machine as Rondpoint sees it, as text, JSON or a machine file; of this
//! machine or of a captured tree.

mod capture;
mod json;
mod machine_file;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rondpoint_linux::{Root, topology};

const BAD_INPUT: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint topology
  rondpoint topology --machine-file > here.toml     as input of simulate, lab and observe
  rondpoint topology --capture here.tar             to attach to a report
  tar xf here.tar -C there && rondpoint topology --root there")]
pub(crate) struct Arguments {
    /// One JSON object
    #[arg(long, conflicts_with_all = ["machine_file", "capture"])]
    json: bool,

    /// A machine file; what sysfs does not tell is assumed, and says so
    #[arg(long, conflicts_with = "capture")]
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
            eprintln!("rondpoint topology: {error:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
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
    let shown = if arguments.json {
        json::object(&found)? + "\n"
    } else if arguments.machine_file {
        machine_file::text(&found)?
    } else {
        text::text(&found)
    };
    match io::stdout().write_all(shown.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to stdout"),
    }
}
