//! Is the file what a server needs? One static program of the right architecture, and where this
//! machine can run it, one that works in a folder with nothing else in it.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};
use object::{Architecture, Object as _, ObjectKind, ObjectSection as _};

use super::Target;

/// `(arguments, beginning of the output)` of calls that must work in a bare folder.
const TRIALS: [(&[&str], &str); 3] =
    [(&["--version"], "rondpoint "), (&["doctor", "--json"], "{"), (&["topology", "--json"], "{")];

/// Shell command that runs the program with only its own file, `/proc` and `/sys`. Debian keeps
/// `chroot` in a folder that is not on an ordinary user's PATH.
const BARE: &str = "PATH=$PATH:/usr/sbin:/sbin && mount --rbind /proc $0/proc \
    && mount --rbind /sys $0/sys && exec chroot $0 \"$@\"";

/// Checks the file. Returns one line per finding; the error names the first fault.
pub(super) fn test(file: &Path, target: &Target) -> Result<Vec<String>> {
    let bytes = fs::read(file).with_context(|| format!("{}: cannot read", file.display()))?;
    let mut found = vec![check(&bytes, target.architecture)?];
    let runner = if target.machine == env::consts::ARCH {
        None
    } else {
        let emulator =
            [format!("qemu-{}-static", target.machine), format!("qemu-{}", target.machine)]
                .into_iter()
                .find(|name| Command::new(name).arg("--version").output().is_ok());
        let Some(emulator) = emulator else {
            found.push(format!("not run: this machine has no qemu-{}", target.machine));
            return Ok(found);
        };
        Some(emulator)
    };
    for (arguments, begins) in TRIALS {
        found.push(trial(file, runner.as_deref(), target.name, (arguments, begins))?);
    }
    Ok(found)
}

/// Checks the header of the file: architecture and static linking. Returns a line about it.
fn check(bytes: &[u8], architecture: Architecture) -> Result<String> {
    let elf = object::File::parse(bytes).context("not an ELF file")?;
    if elf.architecture() != architecture {
        bail!("a program for {:?}, expected {architecture:?}", elf.architecture());
    }
    if !matches!(elf.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
        bail!("{:?}, expected a program", elf.kind());
    }
    if let Some(section) = elf.section_by_name(".interp") {
        let loader = section.data().unwrap_or_default();
        bail!("wants {}, expected no interpreter", String::from_utf8_lossy(loader));
    }
    let wants = elf.imports().unwrap_or_default();
    if let Some(import) = wants.first() {
        bail!("wants {}, expected no library", String::from_utf8_lossy(import.name()));
    }
    Ok(format!("static {architecture:?}, no interpreter, {} KiB", bytes.len() >> 10))
}

/// Runs the program once: for another architecture through an emulator, for this one in a root of
/// its own. The version must name the target.
fn trial(
    file: &Path,
    runner: Option<&str>,
    target: &str,
    (arguments, begins): (&[&str], &str),
) -> Result<String> {
    let line = arguments.join(" ");
    let (output, how) = match runner {
        Some(runner) => (output(Command::new(runner).arg(file).args(arguments))?, "emulated"),
        None => bare(file, arguments)?,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // doctor's exit status 1 is its verdict on this machine.
    let ends_well =
        output.status.success() || (arguments[0], output.status.code()) == ("doctor", Some(1));
    let names_its_target = arguments != ["--version"] || said.contains(target);
    if !ends_well || !said.starts_with(begins) || !names_its_target {
        bail!("rondpoint {line}: {}: {said}{errors}", output.status);
    }
    Ok(format!("rondpoint {line}: works, {how}"))
}

/// Runs the program in a root of its own if this user may make one, else in an empty folder.
/// Returns the output and a name of the place.
fn bare(file: &Path, arguments: &[&str]) -> Result<(Output, &'static str)> {
    let root = env::temp_dir().join(format!("rondpoint-dist-{}", std::process::id()));
    let result = in_root(&root, file, arguments);
    // If removing fails, an empty folder or two stay in the folder for temporary files.
    let _ = fs::remove_dir_all(&root);
    result
}

fn in_root(root: &Path, file: &Path, arguments: &[&str]) -> Result<(Output, &'static str)> {
    for folder in ["proc", "sys"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(file, root.join("rondpoint"))?;
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    if !output(unshare().arg("true")).is_ok_and(|output| output.status.success()) {
        let mut command = Command::new(root.join("rondpoint"));
        let output = output(command.current_dir(root).args(arguments))?;
        return Ok((output, "in an empty folder (no user namespaces here)"));
    }
    let mut command = unshare();
    command.args(["sh", "-c", BARE]).arg(root).arg("/rondpoint").args(arguments);
    Ok((output(&mut command)?, "alone in a file system"))
}

/// Runs a command without this user's environment, except `PATH`.
fn output(command: &mut Command) -> Result<Output> {
    let path = env::var_os("PATH").unwrap_or_default();
    let command = command.env_clear().env("PATH", path);
    command.output().with_context(|| format!("{command:?}: cannot run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_interpreter_or_of_another_machine_is_refused() {
        // This test itself: linked with the system's C library.
        let own = fs::read(env::current_exe().expect("this test")).expect("readable");
        let error = check(&own, Architecture::X86_64).expect_err("not static").to_string();
        assert!(error.contains("expected no interpreter"), "{error}");
        let error = check(&own, Architecture::Aarch64).expect_err("not Arm's").to_string();
        assert_eq!(error, "a program for X86_64, expected Aarch64");
        assert!(check(b"#!/bin/sh", Architecture::X86_64).is_err());
    }
}
