//! `./x bench`: benchmarks, which are never tests.

use std::env;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::lab;
use crate::tidy::root;

/// What `./x bench` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `lab` for the speed of the emulated machine; else filters for the benchmarks' names; none runs them all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Hands over to `rondpoint-lab bench` or to `cargo bench`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let [first, rest @ ..] = &arguments.arguments[..]
        && first == "lab"
    {
        return lab::become_runner(["bench"].into_iter().chain(rest.iter().map(String::as_str)));
    }
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(root())
        .args(["bench", "--workspace", "--bench", "*", "--"])
        .args(&arguments.arguments);
    let status = command.status().context("cargo: cannot run")?;
    if !status.success() {
        bail!("a benchmark failed");
    }
    Ok(())
}
