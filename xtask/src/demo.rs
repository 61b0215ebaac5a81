//! `./x demo`: builds the lab's parts where something changed, then becomes `rondpoint-lab demo`.

use anyhow::Result;

use crate::lab;

/// What `./x demo` takes.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of rondpoint-lab demo (--json, --seeds N); --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Says what the first build takes where there was none, builds, and hands over.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !lab::was_built() {
        eprintln!("building the lab's parts, once: about 4 minutes on two cores, 2 GB in target/");
    }
    let arguments = arguments.arguments.iter().map(String::as_str);
    lab::become_runner(["demo"].into_iter().chain(arguments))
}
