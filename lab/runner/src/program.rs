//! The user's program: found, checked, and brought into the guest with its libraries.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};

use crate::initramfs::Initramfs;

/// The lab's own programs and the guest's tools keep their libraries here, apart from the user's.
const TOOLS: &str = "/lab/tools";

/// Finds a program as a shell would, and among the lab's own workloads.
pub(crate) fn find(name: &str, parts: &Path) -> Result<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        if !path.is_file() {
            bail!("{name}: no such program");
        }
        return Ok(path);
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(parts.to_owned())
        .chain(env::split_paths(&folders))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.with_context(|| format!("{name}: no such program, neither in PATH nor in the lab"))
}

/// Puts the program into the guest. Returns its path there.
pub(crate) fn bring(program: &Path, guest: &mut Initramfs) -> Result<String> {
    let name =
        program.file_name().and_then(|name| name.to_str()).context("program without a name")?;
    let target = format!("/bin/{name}");
    let interpreter = check(program)?;
    guest.add_file(program, &target)?;
    if let Some(interpreter) = interpreter {
        for library in libraries(&interpreter, program)? {
            guest.add_file(Path::new(&library), &library)?;
        }
        guest.add_file(Path::new(&interpreter), &interpreter)?;
    }
    Ok(target)
}

/// Puts a tool of Debian into the guest, with libraries of its own. Returns the command that runs
/// it.
pub(crate) fn bring_tool(
    program: &crate::installed::Program,
    guest: &mut Initramfs,
) -> Result<Vec<String>> {
    let name_of = |path: &Path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
            .context("file without a name")
    };
    let target = format!("{TOOLS}/{}", name_of(&program.path)?);
    guest.add_file(&program.path, &target)?;
    let Some(loader) = &program.loader else { return Ok(vec![target]) };
    let loader_target = format!("{TOOLS}/lib/ld.so");
    guest.add_file(loader, &loader_target)?;
    for library in &program.libraries {
        guest.add_file(library, &format!("{TOOLS}/lib/{}", name_of(library)?))?;
    }
    Ok(vec![loader_target, "--library-path".to_owned(), format!("{TOOLS}/lib"), target])
}

/// Checks that the guest can run the program. Returns its dynamic loader, if it has one.
fn check(program: &Path) -> Result<Option<String>> {
    let shown = program.display();
    let bytes = std::fs::read(program).with_context(|| format!("{shown}: cannot read"))?;
    if bytes.starts_with(b"#!") {
        bail!(
            "{shown}: a script; name its interpreter as the program and add the script with --file"
        );
    }
    let file = object::File::parse(&*bytes).map_err(|_| {
        anyhow::anyhow!("{shown}: not a program (expected an ELF file for Linux x86-64)")
    })?;
    if file.architecture() != object::Architecture::X86_64 {
        let found = format!("{:?}", file.architecture());
        bail!("{shown}: a program for {found}, but the lab's machine is x86-64");
    }
    let interpreter = file.section_by_name(".interp").and_then(|section| section.data().ok());
    Ok(interpreter.map(|path| String::from_utf8_lossy(path).trim_end_matches('\0').to_owned()))
}

/// Asks the program's own loader which libraries it would load.
fn libraries(interpreter: &str, program: &Path) -> Result<Vec<String>> {
    let output =
        Command::new(interpreter).arg("--list").arg(program).output().with_context(|| {
            format!("{interpreter}: cannot ask it for the libraries of {}", program.display())
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    parse_libraries(&text).with_context(|| format!("{}: libraries", program.display()))
}

/// Lines such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)`.
fn parse_libraries(text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let path = match line.split_once(" => ") {
            Some((name, "not found")) => bail!("{name} is not on this machine"),
            Some((_, path)) => path,
            None => line,
        };
        let path = path.split(" (0x").next().unwrap_or(path);
        if path.starts_with('/') {
            found.push(path.to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        let found = parse_libraries(text).expect("all there");
        assert_eq!(found, ["/lib/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        let error = parse_libraries("libz.so.9 => not found").expect_err("missing");
        assert_eq!(error.to_string(), "libz.so.9 is not on this machine");
    }

    #[test]
    fn what_the_guest_cannot_run_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        let refusal = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            let message = check(&path).expect_err("refused").to_string();
            message.replace(&path.display().to_string(), "program")
        };
        assert!(refusal(b"#!/bin/sh\n").starts_with("program: a script;"));
        assert!(refusal(b"hello").starts_with("program: not a program"));
        let mut arm = std::fs::read(env::current_exe().expect("this test")).expect("readable");
        arm[18] = 183; // e_machine: EM_AARCH64
        assert!(refusal(&arm).contains("for Aarch64"), "{}", refusal(&arm));
        assert!(find("/no/such", Path::new("/")).is_err());
        assert!(find("no-such-program-anywhere", Path::new("/")).is_err());
    }
}
