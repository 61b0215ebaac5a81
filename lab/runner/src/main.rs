//! `rondpoint-lab`: boots emulated NUMA machines and runs programs in them.
//!
//! This file only reads the command line. Exit codes: 0 done, 1 a run or a check failed, 2 bad
//! usage or input.

mod batch;
mod bench;
#[expect(dead_code, reason = "only xtask asks for the runner's own name")]
mod built;
mod cache;
mod calibration;
mod comparison;
mod configuration;
mod demo;
mod experiments;
mod fetched;
mod initramfs;
mod installed;
mod kernels;
mod lab;
mod last_third;
mod leash;
mod lifecycle;
mod live;
mod machine_arguments;
mod movers;
mod physics;
mod predictions;
mod product;
mod program;
mod programs;
#[cfg_attr(not(test), expect(dead_code, reason = "only xtask counts bytes"))]
mod progress;
mod relief;
mod render;
mod result;
mod results;
mod run;
mod scratch;
mod screens;
mod shell;
mod side_by_side;
mod stage_times;
mod vm;
mod watching;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run programs on emulated NUMA machines; every figure is emulated, from a modelled hardware.
#[derive(Parser)]
#[command(
    name = "rondpoint-lab",
    bin_name = "rondpoint lab",
    version,
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program under several memory placements and compare them
    Run(run::Arguments),
    /// Four programs under five placements, Rondpoint's among them, in about four minutes
    Demo(demo::Arguments),
    /// What the policies bring on their papers' programs, against every fixed placement, and on
    /// others
    Experiments(experiments::Arguments),
    /// Real programs of Debian's packages under five placements
    Programs(programs::Arguments),
    /// Compare what the cost model predicted with what the trials of such runs measured
    Predictions(predictions::Arguments),
    /// Check that the emulated machines behave as their files say
    Physics(physics::Arguments),
    /// Check that Rondpoint does in the guest what it promises
    Live(live::Arguments),
    /// How fast the host emulates: with the full model, and without
    Bench(bench::Arguments),
    /// Does rondpoint calibrate find in the guest what the machine file says?
    Calibration(calibration::Arguments),
    /// How fast rondpoint move, migratepages and move_pages are, in one run
    Movers(movers::Arguments),
    /// Try Rondpoint's first minute on other kernels, without the hardware model
    Kernels(kernels::Arguments),
    /// Make the screens of docs/guide.md by its commands in the guest, or compare them
    Screens(screens::Arguments),
    /// Try a package in a guest with Debian's systemd: installed, run, upgraded, removed
    Lifecycle(lifecycle::Arguments),
    /// An interactive guest with perf, numactl and the lab's workloads, modelled as in a run
    Shell(shell::Arguments),
    /// A program that ends when the lab does
    #[command(hide = true)]
    Leashed(leash::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Experiments(arguments) => experiments::run(&arguments),
        Command::Programs(arguments) => programs::run(&arguments),
        Command::Predictions(arguments) => predictions::run(&arguments),
        Command::Physics(arguments) => physics::run(&arguments),
        Command::Live(arguments) => live::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Calibration(arguments) => calibration::run(&arguments),
        Command::Movers(arguments) => movers::run(&arguments),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Screens(arguments) => screens::run(&arguments),
        Command::Lifecycle(arguments) => lifecycle::run(&arguments),
        Command::Shell(arguments) => shell::run(&arguments),
        Command::Leashed(arguments) => leash::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("rondpoint-lab: {error:#}");
        ExitCode::from(2)
    })
}
