//! `./x dist`: `rondpoint` as one static file for each server architecture, with its man pages and
//! shell completions, and packages of all that. The programs are tried out as far as this machine
//! can.
//!
//! The targets are musl's: Rust's own target files have its C library, and the linker comes with
//! the compiler. So no C toolchain is needed, for this architecture or the other.

mod smoke;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use object::Architecture;

use crate::cargo;
use crate::commit::commit;
use crate::lab::{self, target_folder};
use crate::test::Tally;
use crate::tidy::root;
use crate::trusted::Trusted;

/// A target and the required architecture of its program.
struct Target {
    /// Name in rustup and cargo.
    name: &'static str,
    /// Name in `uname -m` and in qemu's user emulation.
    machine: &'static str,
    architecture: Architecture,
}

const TARGETS: [Target; 2] = [
    Target {
        name: "x86_64-unknown-linux-musl",
        machine: "x86_64",
        architecture: Architecture::X86_64,
    },
    Target {
        name: "aarch64-unknown-linux-musl",
        machine: "aarch64",
        architecture: Architecture::Aarch64,
    },
];

/// Arguments of `./x dist`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this architecture; default: both
    #[arg(long, value_name = "MACHINE", value_parser = ["x86_64", "aarch64"])]
    machine: Option<String>,
}

/// Builds the programs and packages, tries the programs, and lists the files of `target/dist`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = target_folder().join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let asked = |target: &&Target| {
        arguments.machine.as_deref().is_none_or(|machine| machine == target.machine)
    };
    println!("{} man pages and shell completions", manual(&folder)?);
    let mut sums = String::new();
    for target in TARGETS.iter().filter(asked) {
        let name = format!("rondpoint-{}", target.machine);
        let file = folder.join(&name);
        let built = build(target)?;
        fs::copy(&built, &file).with_context(|| format!("{}: cannot write", file.display()))?;
        for line in smoke::test(&file, target)? {
            println!("{name}: {line}");
        }
        let _ = writeln!(sums, "{}  {name}", sha256(&file)?);
        for package in packages(&folder, &file, target)? {
            println!("{package}");
            let name = package.split(':').next().unwrap_or_default();
            let _ = writeln!(sums, "{}  {name}", sha256(&folder.join(name))?);
        }
    }
    let list = folder.join("SHA256SUMS");
    fs::write(&list, &sums).with_context(|| format!("{}: cannot write", list.display()))?;
    print!("{sums}");
    println!("in {}", folder.display());
    Ok(())
}

/// Stage of `./x test`: builds and tries the program for this architecture.
pub(crate) fn test() -> Result<Tally> {
    run(&Arguments { machine: Some(TARGETS[0].machine.to_owned()) }).map(|()| Tally::one(true))
}

/// The Debian package for this architecture, built without trying the program.
pub(crate) fn debian_package() -> Result<PathBuf> {
    let (folder, target) = (target_folder().join("dist"), &TARGETS[0]);
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    manual(&folder)?;
    let file = folder.join(format!("rondpoint-{}", target.machine));
    fs::copy(build(target)?, &file).with_context(|| format!("{}: cannot write", file.display()))?;
    let made = packages(&folder, &file, target)?;
    let names = made.iter().filter_map(|line| line.split_once(": ").map(|(name, _)| name));
    let mut packages = names.filter(|name| name.starts_with("rondpoint_"));
    let name = packages.next().with_context(|| format!("no Debian package among {made:?}"))?;
    Ok(folder.join(name))
}

/// Writes man pages into `man` and completions into `completions`. Returns the number of files. A
/// build with the feature `manual` has the command that writes them.
fn manual(folder: &Path) -> Result<usize> {
    for name in ["man", "completions"] {
        // Pages of removed commands must not be shipped.
        let old = folder.join(name);
        if old.exists() {
            fs::remove_dir_all(&old)
                .with_context(|| format!("{}: cannot remove", old.display()))?;
        }
    }
    let own = Command::new(target_folder().join("debug/rondpoint"));
    let mut cargo = cargo::command();
    cargo.args(["run", "--quiet", "--package", "rondpoint", "--features", "manual", "--"]);
    // A build of other features may have replaced the own one; cargo makes it again.
    let programs = Trusted::Tests.is_trusted().then_some(own).into_iter().chain([cargo]);
    let mut errors = String::new();
    for mut program in programs {
        let output = program.arg("manual").arg(folder).output();
        let output = output.with_context(|| format!("{program:?}: cannot run"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).lines().count());
        }
        errors = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    }
    bail!("cannot write the man pages: {errors}")
}

/// Makes the packages of one program. Returns a line with the size of each. Only packages for this
/// machine's architecture have the shared libraries, which are linked with its C library.
fn packages(folder: &Path, program: &Path, target: &Target) -> Result<Vec<String>> {
    let mut command = cargo::command();
    command.args(["run", "--quiet", "--package", "rondpoint-packaging", "--", "--program"]);
    command.arg(program).args(["--machine", target.machine, "--manual"]).arg(folder);
    command.arg("--checkout").arg(root()).args(["--time", &commit_time()]);
    command.arg("--output").arg(folder);
    if target.machine == std::env::consts::ARCH {
        command.arg("--libraries").arg(lab::shared_libraries()?);
    }
    let output = command.output().context("cargo: cannot run")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("cannot make the packages: {}", errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Time of the packages' files in seconds since 1970: SOURCE_DATE_EPOCH, else that of the commit,
/// else empty. The same sources give the same packages.
fn commit_time() -> String {
    let is_number = |text: &String| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(time) = std::env::var("SOURCE_DATE_EPOCH").ok().filter(is_number) {
        return time;
    }
    let show = ["show", "--no-patch", "--format=%ct"];
    let output = Command::new("git").current_dir(root()).args(show).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(is_number).unwrap_or_else(|| "0".to_owned())
}

/// Makes a release build with the compiler's own linker. Returns the program.
fn build(target: &Target) -> Result<PathBuf> {
    provide_target(target)?;
    let folder = target_folder().join("static");
    let mut command = cargo::command();
    command.args(["build", "--release", "--package", "rondpoint"]);
    command.args(["--target", target.name, "--target-dir"]).arg(&folder);
    command.env("RONDPOINT_COMMIT", commit().unwrap_or_default());
    command.env("RUSTFLAGS", "-Clinker=rust-lld -Clink-self-contained=yes -Cstrip=symbols");
    if !cargo::build(&format!("building rondpoint for {}", target.name), &mut command)? {
        bail!("cannot build rondpoint for {}", target.name);
    }
    Ok(folder.join(target.name).join("release/rondpoint"))
}

/// Checks that the compiler has the target's files. Installs missing ones by rustup.
fn provide_target(target: &Target) -> Result<()> {
    let name = target.name;
    let output = Command::new("rustc")
        .current_dir(root())
        .args(["--print", "target-libdir", "--target", name])
        .output()
        .context("rustc: cannot run")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if output.status.success() && folder.is_dir() {
        return Ok(());
    }
    eprintln!("rustup target add {name} (about 40 MB)");
    let added = Command::new("rustup").current_dir(root()).args(["target", "add", name]).status();
    if added.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    bail!(
        "Rust's files for {name} are not here and rustup could not add them; \
         with a network: rustup target add {name}"
    )
}

fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output().context("sha256sum: cannot run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sum = text.split_whitespace().next().filter(|sum| sum.len() == 64);
    sum.map(str::to_owned).with_context(|| format!("sha256sum of {}: {text}", file.display()))
}
