//! `./x lab kernel`: builds the kernel with NUMA replication from `kernel/`, for
//! `./x lab … --kernel replication`.
//!
//! Sources and tools are Debian's, unpacked into the cache; nothing is installed. What is built is
//! kept by the content of the series and the configuration. After a change only the files that
//! depend on it are compiled again.

mod build;
pub(crate) mod series;

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;

use self::series::Series;
use crate::lab;
use crate::setup;
use crate::setup::installed::{Installed, Kernel, cache_folder};
use crate::test::Tally;

/// Name of the kernel on the command line.
pub(crate) const NAME: &str = "replication";

/// Name of the kernel with its own checks on the command line.
pub(crate) const DEBUG_NAME: &str = "replication-debug";

/// One build of the kernel.
struct Variant {
    /// Its name on the command line, and in the kernel's release.
    name: &'static str,
    /// Its folder, beside the sources.
    build: &'static str,
    /// The files of `kernel/config` whose options it has. A later file wins.
    config: &'static [&'static str],
}

const PLAIN: Variant = Variant { name: NAME, build: "build", config: &["lab.config"] };

const DEBUG: Variant =
    Variant { name: DEBUG_NAME, build: "build-debug", config: &["lab.config", "debug.config"] };

impl Variant {
    /// The options that it asks Kconfig for.
    fn options(&self) -> Result<String> {
        let read = |file: &&str| {
            let path = folder().join("config").join(file);
            fs::read_to_string(&path).with_context(|| format!("{}: cannot read", path.display()))
        };
        self.config.iter().map(read).collect()
    }
}

/// The machine that the selftest runs on: four nodes.
const SELFTEST_MACHINE: &str = "carrefour-a";

/// Host time after which a selftest is given up, in seconds. Four hours are ample for a long stress
/// test with all checks; nothing was measured.
const SELFTEST_TIMEOUT: &str = "14400";

/// The selftest in the patched sources.
const SELFTEST: &str = "tools/testing/selftests/mm/numa_replication.c";

/// Build the kernel with NUMA replication, for ./x lab … --kernel replication
#[derive(clap::Parser)]
#[command(name = "kernel", bin_name = "./x lab kernel")]
struct Arguments {
    /// Configure and build although nothing has changed
    #[arg(long)]
    force: bool,
    /// Build with the kernel's own checks (lockdep and others) and page table isolation, in a
    /// folder of its own; for ./x lab … --kernel replication-debug
    #[arg(long)]
    debug: bool,
    /// Then run the series' own selftest in a guest; further words are names of its tests, and the
    /// seconds of its stress test
    #[arg(long, value_name = "TEST", num_args = 0..)]
    selftest: Option<Vec<String>>,
}

/// `./x lab kernel` with these words behind it.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let arguments = Arguments::parse_from(["kernel"].iter().chain(words));
    let cache = cache_folder(|name| env::var(name).ok())?;
    let installed = setup::provide(&cache)?;
    let variant = if arguments.debug { &DEBUG } else { &PLAIN };
    let kernel = build::provide(&cache, &installed, variant, arguments.force)?;
    eprintln!("kernel {}: {}", kernel.release, kernel.image.display());
    match arguments.selftest {
        Some(tests) => selftest(&installed, variant, &kernel, &tests),
        None => Ok(()),
    }
}

/// Compiles the selftest and runs it in a guest.
fn selftest(
    installed: &Installed,
    variant: &Variant,
    kernel: &Kernel,
    tests: &[String],
) -> Result<()> {
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
    // `./x lab run` builds the guest's driver for this kernel; the runner itself cannot.
    let own = env::current_exe().context("where this program lies")?;
    let mut command = Command::new(own);
    command.args(["lab", "run", "--kernel", variant.name, "--machine", SELFTEST_MACHINE]);
    // A result of an earlier run would not be a test.
    command.args(["--config", "first-touch", "--no-cache", "--timeout", SELFTEST_TIMEOUT]);
    command.args(["--output", "--"]).arg(&program).args(tests);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_kernel_has_the_labs_options_and_its_own() {
        let (plain, debug) = (PLAIN.options().expect("read"), DEBUG.options().expect("read"));
        let own = debug.strip_prefix(&plain).expect("begins with the lab's options");
        assert!(own.contains("CONFIG_PROVE_LOCKING=y\n"));
        assert_ne!(PLAIN.build, DEBUG.build);
    }

    #[test]
    fn the_debug_kernel_has_the_labs_command_line_but_for_isolation() {
        let runner = include_str!("../../lab/runner/src/vm.rs");
        let (_, rest) = runner.split_once("KERNEL_LINE: &str = \"").expect("the lab's line");
        let lab = rest.split('"').next().expect("its text").replace('\\', "");
        let options = DEBUG.options().expect("read");
        let line = options.lines().find_map(|line| line.strip_prefix("CONFIG_CMDLINE="));
        let line = line.expect("a command line").trim_matches('"').replace("pti=on ", "");
        let lab: Vec<&str> =
            lab.split_whitespace().filter(|word| *word != "mitigations=off").collect();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), lab);
    }

    #[test]
    fn words_behind_selftest_go_to_it() {
        let arguments = Arguments::parse_from(["kernel", "--selftest", "stress", "90", "--debug"]);
        assert!(arguments.debug);
        assert_eq!(arguments.selftest.expect("given"), ["stress", "90"]);
    }
}
