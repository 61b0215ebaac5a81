//! `./x demo`: builds the lab's parts where something changed, then becomes `rondpoint-lab demo`.

use anyhow::Result;

use crate::lab;

/// What `./x demo` takes.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of rondpoint-lab demo (--quick, --json, --seeds N); --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Sets up and builds what is missing, then becomes `rondpoint-lab demo`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let own = arguments.arguments.iter().map(String::as_str);
    lab::become_runner(&["demo"].into_iter().chain(own).collect::<Vec<_>>())
}
