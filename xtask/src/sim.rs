//! `./x sim`: the simulator's swarm, from one seed on.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::cargo;
use crate::simulated::swarm::{self, Mode};

/// Arguments of `./x sim`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Cases, each drawn from a seed of its own
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    from: u64,
    /// Repeat the case of one seed, and shrink it if it breaks a rule
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    case: Option<u64>,
    /// All cases under auto and without faults
    #[arg(long)]
    calm: bool,
    /// All cases with rare faults too, such as an unplugged CPU
    #[arg(long, conflicts_with = "calm")]
    harsh: bool,
    /// Keep each case's result in a file; a run that was interrupted goes on from there
    #[arg(long, value_name = "FILE", conflicts_with = "case")]
    results: Option<PathBuf>,
    /// Write the page of docs/results
    #[arg(long, conflicts_with = "case")]
    publish: bool,
    /// What was seen of cases that were looked at one by one, for the page
    #[arg(long, value_name = "TEXT", requires = "publish")]
    note: Vec<String>,
}

/// Builds the simulator and runs the swarm.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.publish {
        let Arguments { seeds, from, results, note, .. } = arguments;
        let mode = Mode::of(arguments.calm, arguments.harsh);
        let broken = swarm::publish(mode, *seeds, *from, results.as_deref(), note)?;
        let page = mode.page();
        println!("{broken} of {seeds} cases broke a rule; docs/results/{page}.md has them");
        return Ok(());
    }
    let mut command = cargo::command();
    command.args(["run", "--quiet", "--release", "--package", "rondpoint-sim", "--"]);
    match arguments.case {
        Some(seed) => command.args(["--case", &seed.to_string()]),
        None => command.args([
            "--swarm",
            &arguments.seeds.to_string(),
            "--seed",
            &arguments.from.to_string(),
        ]),
    };
    let modes = [("--calm", arguments.calm), ("--harsh", arguments.harsh)];
    command.args(modes.iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| name));
    if let Some(path) = &arguments.results {
        swarm::same_build(path)?;
        command.arg("--results").arg(path);
    }
    match command.status().context("cargo: cannot run")?.code() {
        Some(0) => Ok(()),
        Some(1) => bail!("a case broke a rule"),
        _ => bail!("the simulator failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn each_mode_of_the_swarm_can_be_published_alone() {
        let parsed = |words: &[&str]| {
            let words = ["sim", "--publish"].iter().chain(words);
            let command = Command::try_parse_from(words).ok()?;
            Some(Mode::of(command.arguments.calm, command.arguments.harsh))
        };
        assert_eq!(parsed(&[]), Some(Mode::Drawn));
        assert_eq!(parsed(&["--calm"]), Some(Mode::Calm));
        assert_eq!(parsed(&["--harsh"]), Some(Mode::Harsh));
        assert_eq!(parsed(&["--harsh", "--calm"]), None);
    }
}
