//! `./x lab kernel`: builds the kernel with NUMA replication from `kernel/`, for
//! `./x lab … --kernel replication`.
//!
//! Sources and tools are Debian's, unpacked into the cache; nothing is installed. What is built is
//! kept by the content of the series and the configuration. After a change only the files that
//! depend on it are compiled again.

mod build;
pub(crate) mod series;

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;

use self::series::Series;
use crate::lab::{self, built};
use crate::setup;
use crate::setup::installed::{Installed, Kernel, cache_folder};
use crate::test::Tally;

/// Name of the kernel on the command line.
pub(crate) const NAME: &str = "replication";

/// The machine that the selftest runs on: four nodes.
const SELFTEST_MACHINE: &str = "carrefour-a";

/// The selftest in the patched sources.
const SELFTEST: &str = "tools/testing/selftests/mm/numa_replication.c";

/// Build the kernel with NUMA replication, for ./x lab … --kernel replication
#[derive(clap::Parser)]
#[command(name = "kernel", bin_name = "./x lab kernel")]
struct Arguments {
    /// Configure and build although nothing has changed
    #[arg(long)]
    force: bool,
    /// Then run the series' own selftest in a guest; further words are names of its tests
    #[arg(long, value_name = "TEST", num_args = 0..)]
    selftest: Option<Vec<String>>,
}

/// `./x lab kernel` with these words behind it.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let arguments = Arguments::parse_from(["kernel"].iter().chain(words));
    let cache = cache_folder(|name| env::var(name).ok())?;
    let installed = setup::provide(&cache)?;
    let kernel = build::provide(&cache, &installed, arguments.force)?;
    eprintln!("kernel {}: {}", kernel.release, kernel.image.display());
    match arguments.selftest {
        Some(tests) => selftest(&installed, &kernel, &tests),
        None => Ok(()),
    }
}

/// Compiles the selftest and runs it in a guest.
fn selftest(installed: &Installed, kernel: &Kernel, tests: &[String]) -> Result<()> {
    let parts = lab::build()?;
    let program = parts.join("numa_replication");
    let source = build::source_of(kernel).join(SELFTEST);
    let text = |name| env::var(name).unwrap_or_default();
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-static", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .envs(installed.environment(&text("PATH"), &text("LD_LIBRARY_PATH")))
        .status()
        .context("cc: cannot run")?;
    if !compiled.success() {
        bail!("{}: cannot compile", source.display());
    }
    let mut command = Command::new(parts.join(built::RUNNER));
    command.args(["run", "--kernel", NAME, "--machine", SELFTEST_MACHINE]);
    command.args(["--config", "first-touch", "--output", "--"]).arg(&program).args(tests);
    if !command.status().context("cannot run the lab")?.success() {
        bail!("the selftest failed");
    }
    Ok(())
}

/// Stage of `./x test`: each patch of the series applies to the present sources, and Linux's
/// checkpatch has no complaint. A build would take too long here.
pub(crate) fn check() -> Result<Tally> {
    let cache = cache_folder(|name| env::var(name).ok())?;
    let installed = setup::provide(&cache)?;
    let sources = setup::kernel_sources()?;
    let tools = setup::linux::tools(&cache, &installed.host.libraries)?;
    let own = own_environment(&installed);
    let equip = |program: &str| {
        let mut command = Command::new(program);
        tools.equip(&mut command, &own);
        command
    };
    let series = Series::load()?;
    let folder = tempfile::tempdir().context("no folder for the patched files")?;
    let mut tally = Tally::default();
    let pristine = |file: &str| sources.tree().join(file);
    series.apply(pristine, folder.path(), || equip("patch"))?;
    tally.add(Tally::one(true));
    println!("{} patches apply", series.len());
    for finding in series.complaints(sources.tree(), || equip("perl"))? {
        tally.add(Tally::one(finding.is_none()));
        if let Some(text) = finding {
            println!("{text}");
        }
    }
    Ok(tally)
}

/// `PATH` and `LD_LIBRARY_PATH` of the lab's setup, in front of this process's own.
fn own_environment(installed: &Installed) -> [(&'static str, String); 2] {
    let text = |name| env::var(name).unwrap_or_default();
    installed.environment(&text("PATH"), &text("LD_LIBRARY_PATH"))
}

/// The folder of the repository that holds the series and the configuration.
fn folder() -> PathBuf {
    crate::tidy::root().join("kernel")
}
