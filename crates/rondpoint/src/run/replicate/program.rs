//! Checks whether the dynamic linker will preload a library into a program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Bytes of a program's beginning: its headers and the name of its interpreter are there.
const HEAD: u64 = 64 << 10;
/// Interpreters of scripts that are scripts.
const DEPTH: usize = 4;

/// The interpreter of a script may be one that loads no library, such as a static shell. The
/// programs that it starts inherit the environment and load it.
///
/// # Errors
/// The program is linked statically, or with another C library, or has privileges of its own.
pub(super) fn may_preload(command: &[OsString]) -> Result<()> {
    let [program, ..] = command else { bail!("no program") };
    let mut path = find(program)?;
    for depth in 0..DEPTH {
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let facts = file.metadata()?;
        if facts.mode() & 0o6000 != 0 {
            bail!("{} is setuid or setgid: the dynamic linker preloads nothing", path.display());
        }
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head)?;
        match kind(&head) {
            Kind::Script(interpreter) => path = find(&interpreter)?,
            Kind::Dynamic(linker) if is_glibc(&linker) => return Ok(()),
            Kind::Dynamic(_) | Kind::Static | Kind::Narrow if depth > 0 => return Ok(()),
            Kind::Dynamic(linker) => bail!(
                "{}: its dynamic linker is {}; the preloaded library needs glibc's",
                path.display(),
                linker.to_string_lossy()
            ),
            Kind::Static => bail!(
                "{} is linked statically: no library can be preloaded. Link it dynamically, or use \
                 the library rondpoint-replica",
                path.display()
            ),
            Kind::Narrow => bail!(
                "{} is a 32-bit program; the preloaded library is for 64-bit programs",
                path.display()
            ),
            Kind::Unknown => bail!("{}: neither a 64-bit ELF file nor a script", path.display()),
        }
    }
    bail!("{}: too many interpreters of interpreters", path.display())
}

/// As a shell finds it.
fn find(program: &OsStr) -> Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut places = env::split_paths(&folders).map(|folder| folder.join(program));
    let found = places.find(|path| path.metadata().is_ok_and(|facts| facts.mode() & 0o111 != 0));
    found.with_context(|| format!("{}: not found", Path::new(program).display()))
}

/// glibc's linkers: `ld-linux-x86-64.so.2`, `ld-linux-aarch64.so.1` and the like.
fn is_glibc(linker: &OsStr) -> bool {
    let name = Path::new(linker).file_name().unwrap_or_default();
    name.as_bytes().starts_with(b"ld-linux") || name.as_bytes().starts_with(b"ld64.so")
}

/// What a file that can be run is.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// With the program that interprets it.
    Script(OsString),
    /// With its dynamic linker.
    Dynamic(OsString),
    Static,
    /// For 32 bits.
    Narrow,
    Unknown,
}

/// Of elf(5), for 64-bit files.
const PT_INTERP: u32 = 3;

fn kind(head: &[u8]) -> Kind {
    if let Some(rest) = head.strip_prefix(b"#!") {
        return script(rest);
    }
    // ELFCLASS32.
    if head.starts_with(b"\x7fELF\x01") {
        return Kind::Narrow;
    }
    // ELFCLASS64, ELFDATA2LSB: what this program runs on.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Kind::Unknown;
    }
    let number = |offset: usize, bytes: usize| {
        let field = head.get(offset..offset.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0usize, |number, &byte| number << 8 | usize::from(byte)))
    };
    let segments = || {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        Some((0..count).map(move |index| table.saturating_add(index * size)))
    };
    let Some(segments) = segments() else { return Kind::Unknown };
    for segment in segments {
        let Some(kind) = number(segment, 4) else { return Kind::Unknown };
        if kind == PT_INTERP as usize {
            let range = || {
                let (offset, size) =
                    (number(segment.checked_add(8)?, 8)?, number(segment.checked_add(32)?, 8)?);
                head.get(offset..offset.checked_add(size)?)
            };
            let Some(name) = range() else { return Kind::Unknown };
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            return Kind::Dynamic(OsStr::from_bytes(name).to_owned());
        }
    }
    Kind::Static
}

/// The first word after `#!`, or the second where the first is `env`.
fn script(rest: &[u8]) -> Kind {
    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty() && !word.starts_with(b"-"));
    let first = words.next().unwrap_or_default();
    let word = if first.ends_with(b"/env") { words.next().unwrap_or(first) } else { first };
    if word.is_empty() { Kind::Unknown } else { Kind::Script(OsStr::from_bytes(word).to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit file with one segment of this type, which holds a name.
    fn elf(segment: u32, name: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes.extend(segment.to_le_bytes());
        bytes.resize(72, 0);
        bytes.extend(120u64.to_le_bytes());
        bytes.resize(96, 0);
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.resize(120, 0);
        bytes.extend(name);
        bytes
    }

    fn dynamic(name: &str) -> Kind {
        Kind::Dynamic(name.into())
    }

    #[test]
    fn a_dynamic_linker_is_found_and_a_static_program_has_none() {
        assert_eq!(kind(&elf(PT_INTERP, b"/lib/ld-linux.so\0")), dynamic("/lib/ld-linux.so"));
        assert_eq!(kind(&elf(1, b"")), Kind::Static);
    }

    #[test]
    fn broken_files_are_unknown() {
        let whole = elf(PT_INTERP, b"/lib/ld\0");
        for length in 0..whole.len() {
            assert_eq!(kind(&whole[..length]), Kind::Unknown, "{length} bytes");
        }
        let mut far = whole;
        far[32..40].fill(0xff);
        assert_eq!(kind(&far), Kind::Unknown);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let script = |text: &str| kind(text.as_bytes());
        assert_eq!(script("#!/bin/sh -e\nx"), Kind::Script("/bin/sh".into()));
        assert_eq!(script("#! /usr/bin/env -S python3\n"), Kind::Script("python3".into()));
        assert_eq!(script("#!\n"), Kind::Unknown);
    }

    #[test]
    fn programs_of_this_machine_are_judged() {
        let judged =
            |command: &str| may_preload(&[command.into()]).map_err(|error| error.to_string());
        assert_eq!(judged("sh"), Ok(()));
        assert!(judged("no-such-program").unwrap_err().contains("not found"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("static");
        std::fs::write(&path, elf(1, b"")).unwrap();
        let error = judged(path.to_str().unwrap()).unwrap_err();
        assert!(error.contains("linked statically"), "{error}");
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{}\n", path.display())).unwrap();
        assert_eq!(judged(script.to_str().unwrap()), Ok(()), "it may start others");
        let mut narrow = elf(1, b"");
        narrow[4] = 1;
        std::fs::write(&path, narrow).unwrap();
        let error = judged(path.to_str().unwrap()).unwrap_err();
        assert!(error.contains("a 32-bit program"), "{error}");
        std::fs::write(&path, elf(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")).unwrap();
        let error = judged(path.to_str().unwrap()).unwrap_err();
        assert!(error.contains("ld-musl"), "{error}");
    }
}
