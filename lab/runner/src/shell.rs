//! `rondpoint-lab shell`: an interactive guest with the hardware model on, so its PMU counts and
//! its clock knows what memory costs. While nothing is typed and nothing runs, the guest's clock
//! jumps from timer to timer without waiting in host time.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use rondpoint_lab_init::{JOB_PATH, Job};

use crate::configuration;
use crate::initramfs::Initramfs;
use crate::lab::{self, KernelName, Lab};
use crate::program;
use crate::vm::Boot;

/// What `shell` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine to emulate: a file, or the name of one that the lab brings
    #[arg(long, value_name = "FILE", default_value = "carrefour-a")]
    machine: String,
    /// The guest's kernel
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    kernel: KernelName,
    /// Programs to bring along, with their libraries
    #[arg(long = "program", value_name = "PROGRAM")]
    programs: Vec<String>,
}

/// Boots the guest on this terminal. Leave it with `exit`; Ctrl-A x ends the emulator.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What the user brings is looked at before the setup is.
    let machine = lab::lab_machine(&arguments.machine)?;
    let mut brought = Initramfs::new();
    for program in &arguments.programs {
        program::bring(&program::find(program, &lab::parts_folder()?)?, &mut brought)?;
    }
    let lab = Lab::open_with(arguments.kernel)?;
    let mut guest = configuration::base(&lab.installed, &lab.built)?;
    guest.add_file(&lab.built.workloads, "/bin/rondpoint-workloads")?;
    configuration::add_product(&mut guest, &lab.built, &machine)?;
    for tool in ["perf", "numactl", "numastat", "migratepages", "numad"] {
        let command = program::bring_tool(configuration::tool(&lab.installed, tool)?, &mut guest)?;
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", command.join(" "));
        guest.add_script(script, &format!("/bin/{tool}"));
    }
    guest.add_all(brought);
    let job = Job { numa_balancing: true, modelled: true, ..Job::default() };
    guest.add_bytes(serde_json::to_vec(&job)?, JOB_PATH);
    let archive = guest.archive()?;
    eprintln!("booting {}; leave with exit, or Ctrl-A x", machine.name);
    let boot = Boot {
        installed: &lab.installed,
        built: &lab.built,
        machine: &machine,
        initramfs: &archive,
        seed: 1,
        limit: Duration::MAX,
    };
    boot.interactive()?;
    Ok(ExitCode::SUCCESS)
}
