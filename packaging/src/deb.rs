//! Debian packages, deb(5): an `ar` archive of a version, a control archive and a data archive.

use std::fmt::Write as _;

use anyhow::Result;
use md5::{Digest as _, Md5};

use crate::Package;
use crate::payload::{Entry, gzip};

/// The bytes of the package.
///
/// # Errors
/// An archive cannot be written: a path that is too long.
pub(crate) fn build(package: &Package<'_>) -> Result<Vec<u8>> {
    let control = gzip(&control_archive(package)?)?;
    let data = gzip(&package.payload.tar("./", package.time_s)?)?;
    let mut archive = ar::Builder::new(Vec::new());
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar.gz", &control), ("data.tar.gz", &data)];
    for (name, bytes) in members {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(package.time_s);
        archive.append(&header, bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Debian's name of an architecture.
pub(crate) fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn control_archive(package: &Package<'_>) -> Result<Vec<u8>> {
    let mut files = crate::payload::Payload::default();
    files.add("control", control(package));
    files.add("md5sums", sums(package));
    let list: String = package.payload.configuration().map(|path| format!("/{path}\n")).collect();
    if !list.is_empty() {
        files.add("conffiles", list);
    }
    for (name, script) in &package.scripts {
        files.add_program(name, script.clone());
    }
    files.tar("./", package.time_s)
}

/// deb-control(5).
fn control(package: &Package<'_>) -> String {
    let kib = package.payload.bytes().div_ceil(1024);
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kib}\n",
        package.name,
        package.version,
        architecture(package.machine),
        package.maintainer
    );
    if let Some((major, minor)) = package.glibc {
        let relation = if package.needs_glibc { "Depends" } else { "Recommends" };
        let _ = writeln!(text, "{relation}: libc6 (>= {major}.{minor})");
    }
    let _ = writeln!(text, "Section: admin\nPriority: optional");
    let _ = writeln!(text, "Description: {}", package.summary);
    for line in package.description.lines() {
        let _ = writeln!(text, " {}", if line.is_empty() { "." } else { line });
    }
    text
}

fn sums(package: &Package<'_>) -> String {
    let mut text = String::new();
    for (path, entry) in &package.payload.entries {
        if let Entry::File { bytes, is_configuration: false, .. } = entry {
            let sum = Md5::digest(bytes);
            let _ = writeln!(text, "{}  {path}", crate::hex(&sum));
        }
    }
    text
}
