//! Stages in which another project's program or list reads the same as the product.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use super::output::Output;
use super::{FEATURES, Tally};
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

/// Number of packets that both decoders read in a stage: 20 to 30 s, unoptimised.
const SPE_PACKETS: &str = "10000000";

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

/// Lets hwloc read the XML of every captured machine.
pub(super) fn hwloc() -> Result<Tally> {
    let packages = Packages::of("hwloc")?;
    let script = packages.script(&packages.file(&format!("usr/bin/{LSTOPO}"))?, "")?;
    run_test("machines", "hwloc", &[(LSTOPO, script)])
}

/// Lets Prometheus read the metrics of a daemon and answer what the dashboard asks.
pub(super) fn prometheus() -> Result<Tally> {
    let packages = Packages::of("prometheus")?;
    let script = |name: &'static str| -> Result<(&'static str, String)> {
        Ok((name, packages.script(&packages.file(&format!("usr/bin/{name}"))?, "")?))
    };
    run_test("daemon", "prometheus", &[script("prometheus")?, script("promtool")?])
}

/// The browser's program, and the name by which the test of the report calls it.
const CHROMIUM: &str = "chromium";

/// Lets Chromium open a report.
pub(super) fn chromium() -> Result<Tally> {
    let packages = Packages::of("chromium")?;
    let home = packages.browser()?;
    let fonts = home.join("fonts.conf");
    let folder = packages.file("usr/share/fonts")?;
    let (folder, cache) = (folder.display(), home.join("fonts").display().to_string());
    let text = format!(
        "<?xml version=\"1.0\"?>\n<!DOCTYPE fontconfig SYSTEM \"fonts.dtd\">\n\
         <fontconfig><dir>{folder}</dir><cachedir>{cache}</cachedir></fontconfig>\n"
    );
    fs::write(&fonts, text).with_context(|| format!("{}: cannot write", fonts.display()))?;
    let settings = format!("FONTCONFIG_FILE='{}' ", fonts.display());
    let script = packages.script(&home.join(CHROMIUM), &settings)?;
    run_test("report", "browser", &[(CHROMIUM, script)])
}

/// Folders with libraries in a package. PulseAudio's library finds a part of itself in the last one
/// only where it is installed.
const LIBRARIES: [&str; 3] =
    ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio"];

/// Packages of Debian with all that they depend on, in a folder each. They are not installed.
struct Packages {
    name: &'static str,
    folders: Vec<PathBuf>,
}

impl Packages {
    /// Those of `lab/NAME.toml`. Missing ones are fetched.
    fn of(name: &'static str) -> Result<Self> {
        let folders = setup::programs::folders(&root().join(format!("lab/{name}.toml")))?;
        Ok(Self { name, folders })
    }

    /// This file or folder in each package that has it.
    fn all(&self, path: &str) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join(path)).filter(|one| one.exists()).collect()
    }

    fn file(&self, path: &str) -> Result<PathBuf> {
        let first = self.all(path).into_iter().next();
        first.with_context(|| format!("no {path} in the packages of lab/{}.toml", self.name))
    }

    /// A script that runs a program with the libraries of these packages, except the C library: a
    /// program of the host has the host's.
    fn script(&self, program: &Path, settings: &str) -> Result<String> {
        let is_c_library = |folder: &PathBuf| folder.join("libc.so.6").exists();
        let mut libraries: Vec<PathBuf> =
            LIBRARIES.into_iter().flat_map(|path| self.all(path)).collect();
        libraries.retain(|folder| !is_c_library(folder));
        let libraries = env::join_paths(libraries)?;
        let (libraries, program) = (libraries.to_string_lossy(), program.display());
        Ok(format!("#!/bin/sh\n{settings}LD_LIBRARY_PATH='{libraries}' exec '{program}' \"$@\"\n"))
    }

    /// A folder with Chromium's program and its data, which it looks for beside itself. Debian has
    /// them in two packages.
    fn browser(&self) -> Result<PathBuf> {
        let home = lab::target_folder().join("witness/chromium");
        if home.exists() {
            fs::remove_dir_all(&home)
                .with_context(|| format!("{}: cannot remove", home.display()))?;
        }
        fs::create_dir_all(&home).with_context(|| format!("{}: cannot create", home.display()))?;
        for folder in self.all("usr/lib/chromium") {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("{}: cannot list", folder.display()))?;
            for entry in entries {
                let (from, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
                let to = home.join(&name);
                // The first package of those that have an entry.
                if to.symlink_metadata().is_ok() {
                    continue;
                }
                // The program's own path is without symbolic links.
                let done = match name == CHROMIUM {
                    true => fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)),
                    false => symlink(&from, &to),
                };
                done.with_context(|| format!("{}: cannot write", to.display()))?;
            }
        }
        Ok(home)
    }
}

/// Runs the tests of the product with this word in their names. They find these programs, given as
/// names and scripts, before others.
fn run_test(test: &str, word: &str, programs: &[(&str, String)]) -> Result<Tally> {
    let bin = lab::target_folder().join("witness/bin");
    fs::create_dir_all(&bin).with_context(|| format!("{}: cannot create", bin.display()))?;
    for (name, script) in programs {
        let program = bin.join(name);
        fs::write(&program, script)
            .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("{}: cannot write", program.display()))?;
    }
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin].into_iter().chain(env::split_paths(&others)))?;
    let mut command = cargo::command();
    // The selection of packages with which the other tests were built, so that they are used.
    command.args(["test", "--workspace"]).args(FEATURES).args(["--test", test]);
    command.args(["--", word, "--show-output"]).env("PATH", path).stderr(Stdio::inherit());
    let run = command.output().context("cargo: cannot run")?;
    Ok(tally(&String::from_utf8_lossy(&run.stdout), run.status.success()))
}

/// Counts of what a test program printed. One that ran no test, and does not say why, failed.
fn tally(text: &str, ended_well: bool) -> Tally {
    let mut output = Output::default();
    text.lines().filter(|line| output.take(line)).for_each(|line| println!("{line}"));
    let mut tally = output.end();
    let nothing = tally.passed + tally.failed == 0 && tally.not_tried.is_empty();
    if tally.failed == 0 && (nothing || !ended_well) {
        tally.failed = 1;
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package with this file.
    fn package(file: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("ours");
        fs::write(path, "").expect("ours");
        folder
    }

    #[test]
    fn a_script_has_the_libraries_of_the_packages_and_the_hosts_c_library() {
        let all = ["usr/lib/x86_64-linux-gnu/liba.so.1", "lib/x86_64-linux-gnu/libc.so.6"];
        let all = all.map(package);
        let folders = all.iter().map(|one| one.path().to_owned()).collect();
        let packages = Packages { name: "none", folders };
        let script = packages.script(Path::new("/there/program"), "A='b' ").expect("it is text");
        let library = all[0].path().join("usr/lib/x86_64-linux-gnu");
        let expected = format!("A='b' LD_LIBRARY_PATH='{}' exec ", library.display());
        assert_eq!(script, format!("#!/bin/sh\n{expected}'/there/program' \"$@\"\n"));
        let error = packages.file("usr/bin/program").expect_err("no package has it").to_string();
        assert_eq!(error, "no usr/bin/program in the packages of lab/none.toml");
    }

    #[test]
    fn a_stage_whose_test_was_not_found_or_not_tried_says_so() {
        let none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert_eq!(tally(none, true).failed, 1);
        let one_cpu = tally("not tried: 39 tests: this process may use one CPU\n", true);
        assert_eq!((one_cpu.failed, one_cpu.not_tried.len()), (0, 1));
        let well = "test result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!([tally(well, true).failed, tally(well, false).failed], [0, 1]);
    }
}
