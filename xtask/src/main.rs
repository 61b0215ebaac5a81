//! Developer commands: `./x setup`, `./x test`, … Never shipped.
//!
//! Each command is a module; this file only reads the command line. Exit codes: 0 done, 1 a check
//! failed, 2 bad usage.

mod adversary;
mod bench;
mod cargo;
mod commit;
mod demo;
mod dist;
mod fresh_clone;
mod kernel;
mod lab;
mod mutants;
#[path = "../../lab/runner/src/progress.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "only the runner appends a forecast to a line"))]
mod progress;
mod replay;
mod results;
mod setup;
mod sim;
mod simulated;
mod test;
mod tidy;
mod times;
mod trusted;
mod watched;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Rondpoint's developer commands.
#[derive(Parser)]
#[command(name = "x", bin_name = "./x", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch what the lab needs (QEMU, a guest kernel, perf, numad …) into a cache folder; nothing
    /// else is altered
    Setup(setup::Arguments),
    /// Run every test: formatting, lints, unit tests, boundaries, and the lab end to end
    Test(test::Arguments),
    /// Build the lab's parts and run the lab's command: ./x lab --help shows what it can do
    Lab(lab::Arguments),
    /// Four programs under five placements on an emulated machine, in about four minutes after the
    /// build; with --quick one program under three, in one minute
    Demo(demo::Arguments),
    /// Build rondpoint as one static file for each architecture, and packages (deb, rpm, tar, OCI
    /// image), into target/dist
    Dist(dist::Arguments),
    /// Run the benchmarks of every crate, or with `lab` the speed of the emulated machine
    Bench(bench::Arguments),
    /// Run the simulator's swarm: random machines, programs and faults, and rules that must hold
    Sim(sim::Arguments),
    /// Run the simulator's comparisons and write their pages in docs/results
    Simulated(simulated::Arguments),
    /// Break clauses of the safety contract one at a time, in a copy of the tree, and name the
    /// changes that no test notices; hours
    Mutants(mutants::Arguments),
    /// Write the pages and charts of docs/results from their JSON
    Results,
    /// Write pages of docs/results from what --times of ./x demo and ./x test wrote
    Times(times::Arguments),
    /// Check what the boundaries forbid (a part of ./x test)
    Tidy,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Dist(arguments) => dist::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Simulated(arguments) => simulated::run(&arguments),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::Results => results::run(),
        Command::Times(arguments) => times::run(&arguments),
        Command::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
