//! Stages in which another project's program or list reads the same as the product.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Tally;
use crate::tidy::root;
use crate::{cargo, lab, setup};

/// Checks every line of the product's event tables. The program prints differences and counts.
pub(super) fn event_tables() -> Result<Tally> {
    let lists = setup::kernel_sources()?.lists();
    let mut command = cargo::command();
    command.args(["run", "--quiet", "--package", "rondpoint-linux", "--example", "witness", "--"]);
    let status = command.arg(&lists).status().context("cargo: cannot run")?;
    Ok(Tally::one(status.success()))
}

/// Number of packets that both decoders read in a stage.
const SPE_PACKETS: &str = "1000000";

/// Reads generated packets with both decoders. The program prints differences and counts.
pub(super) fn spe_packets() -> Result<Tally> {
    let sources = setup::kernel_sources()?;
    let folder = lab::target_folder().join("witness");
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let program = folder.join("spe_decoder");
    let driver = root().join("crates/linux/examples/spe_witness/driver.c");
    let compiled = sources.compile_decoder(&driver, &program).status().context("cc: cannot run")?;
    if !compiled.success() {
        bail!("{}: cannot compile", driver.display());
    }
    let mut command = cargo::command();
    let what = ["run", "--quiet", "--package", "rondpoint-linux", "--example", "spe_witness", "--"];
    let status = command.args(what).arg(&program).arg(SPE_PACKETS).status();
    Ok(Tally::one(status.context("cargo: cannot run")?.success()))
}

/// hwloc's program, as the test of the captured machines calls it.
const LSTOPO: &str = "lstopo-no-graphics";

/// Lets hwloc read the XML of every captured machine. The package comes from Debian and is not
/// installed.
pub(super) fn hwloc() -> Result<Tally> {
    let folders = setup::programs::folders(&root().join("lab/hwloc.toml"))?;
    let bin = lab::target_folder().join("witness/bin");
    fs::create_dir_all(&bin).with_context(|| format!("{}: cannot create", bin.display()))?;
    let program = bin.join(LSTOPO);
    fs::write(&program, script(&folders)?)
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("{}: cannot write", program.display()))?;
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin].into_iter().chain(env::split_paths(&others)))?;
    let mut command = cargo::command();
    let what = ["test", "--quiet", "--package", "rondpoint", "--test", "machines", "--"];
    command.args(what).arg("hwloc").env("PATH", path);
    Ok(Tally::one(command.status().context("cargo: cannot run")?.success()))
}

/// A script that runs hwloc's program with the libraries of these packages, except the C library:
/// a program of the host has the host's.
fn script(folders: &[PathBuf]) -> Result<String> {
    let below = |name: &str| -> Vec<PathBuf> {
        folders.iter().map(|folder| folder.join(name)).filter(|path| path.exists()).collect()
    };
    let programs = below("usr/bin").into_iter().map(|folder| folder.join(LSTOPO));
    let program = programs.into_iter().find(|path| path.exists());
    let program = program.with_context(|| format!("no {LSTOPO} in the packages of hwloc-nox"))?;
    let is_c_library = |folder: &Path| folder.join("libc.so.6").exists();
    let libraries: Vec<PathBuf> = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]
        .into_iter()
        .flat_map(below)
        .filter(|folder| !is_c_library(folder))
        .collect();
    let libraries = env::join_paths(libraries)?;
    let (libraries, program) = (libraries.to_string_lossy(), program.display());
    Ok(format!("#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{program}' \"$@\"\n"))
}
