//! `./x bench`: benchmarks, which are never tests.

use anyhow::{Context as _, Result, bail};

use crate::{cargo, lab};

/// Arguments of `./x bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `lab` for the speed of the emulated machine, `move` for that of moving a process's memory in
    /// it. Else filters for the benchmarks' names; none runs them all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The runner's command for a benchmark in the guest.
fn in_the_lab(name: &str) -> Option<&'static str> {
    match name {
        "lab" => Some("bench"),
        "move" => Some("movers"),
        _ => None,
    }
}

/// Hands over to `rondpoint-lab` or to `cargo bench`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let [first, rest @ ..] = &arguments.arguments[..]
        && let Some(command) = in_the_lab(first)
    {
        let rest = rest.iter().map(String::as_str);
        return lab::become_runner(&[command].into_iter().chain(rest).collect::<Vec<_>>());
    }
    let mut command = cargo::command();
    command.args(["bench", "--workspace", "--bench", "*", "--"]).args(&arguments.arguments);
    let status = command.status().context("cargo: cannot run")?;
    if !status.success() {
        bail!("a benchmark failed");
    }
    Ok(())
}
