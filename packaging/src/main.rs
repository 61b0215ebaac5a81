//! Makes packages of programs that `./x dist` has built: deb, rpm, a tar archive, a container image
//! and a Kubernetes manifest. The same inputs give the same bytes.
//!
//! Exit status: 0 done, 1 something is missing or cannot be written, 2 bad usage.

mod contents;
mod deb;
mod oci;
mod payload;
mod redhat;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::contents::{Layout, Sources, newest_glibc};
use crate::payload::{Payload, gzip, read};

const MAINTAINER: &str = "Rondpoint founders <rondpoint@localhost>";
const SUMMARY: &str = "places memory and threads of programs on NUMA machines";
const DESCRIPTION: &str = "\
Rondpoint sees which threads use which memory, on which node and over which
link. It moves pages and threads where that makes programs faster, and takes
back what did not help.

The service is installed and not enabled, and its configuration observes only.";
const LIBRARY_SUMMARY: &str = "read-only data with one copy on each memory node";
const LIBRARY_DESCRIPTION: &str = "\
A library for C and Python whose threads read the copy of a table that lies on
their own memory node.";

/// Makes packages of built programs
#[derive(Debug, Parser)]
struct Arguments {
    /// The static program
    #[arg(long)]
    program: PathBuf,
    /// Its architecture as uname -m says
    #[arg(long)]
    machine: String,
    /// The folder with man and completions
    #[arg(long)]
    manual: PathBuf,
    /// The folder with the shared libraries, if they were built for this architecture
    #[arg(long)]
    libraries: Option<PathBuf>,
    /// The checkout
    #[arg(long)]
    checkout: PathBuf,
    /// Seconds since 1970 that all files bear
    #[arg(long)]
    time: u64,
    /// Where the packages go
    #[arg(long)]
    output: PathBuf,
}

/// A package in no format yet.
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// As `uname -m` says.
    pub(crate) machine: &'a str,
    pub(crate) maintainer: &'a str,
    /// One line.
    pub(crate) summary: &'a str,
    pub(crate) description: &'a str,
    /// The C library that its shared libraries want.
    pub(crate) glibc: Option<(u32, u32)>,
    /// Whether the package is useless without that.
    pub(crate) needs_glibc: bool,
    /// Scripts by dpkg's names.
    pub(crate) scripts: Vec<(&'static str, Vec<u8>)>,
    /// Seconds since 1970 that all files bear.
    pub(crate) time_s: u64,
    pub(crate) payload: Payload,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(lines) => {
            print!("{lines}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rondpoint-packaging: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes all packages; the lines name them.
fn run(arguments: &Arguments) -> Result<String> {
    let sources = Sources {
        program: arguments.program.clone(),
        manual: arguments.manual.clone(),
        libraries: arguments.libraries.clone(),
        checkout: arguments.checkout.clone(),
    };
    let (version, machine) = (env!("CARGO_PKG_VERSION"), arguments.machine.as_str());
    let mut lines = String::new();
    let mut put = |name: &str, bytes: &[u8]| -> Result<()> {
        let path = arguments.output.join(name);
        fs::write(&path, bytes).with_context(|| format!("{}: cannot write", path.display()))?;
        writeln!(lines, "{name}: {} KiB", bytes.len().div_ceil(1024))?;
        Ok(())
    };
    for layout in [Layout::Debian, Layout::Fedora] {
        for package in packages(&sources, layout, arguments)? {
            let name = package.name;
            match layout {
                Layout::Debian => {
                    let architecture = deb::architecture(machine);
                    let file = format!("{name}_{version}_{architecture}.deb");
                    put(&file, &deb::build(&package)?)?;
                }
                Layout::Fedora => {
                    let file = format!("{name}-{version}-1.{machine}.rpm");
                    put(&file, &redhat::build(&package)?)?;
                }
            }
        }
    }
    let stem = format!("rondpoint-{version}-{machine}");
    put(&format!("{stem}.tar.gz"), &gzip(&tarball(&sources, &stem, arguments.time)?)?)?;
    let program = read(&arguments.program)?;
    let image = oci::build(&program, machine, version, arguments.time)?;
    put(&format!("{stem}.oci.tar"), &image)?;
    let manifest = read(&arguments.checkout.join("packaging/kubernetes/daemonset.yaml"))?;
    let manifest = String::from_utf8(manifest).context("daemonset.yaml: no text")?;
    put("daemonset.yaml", manifest.replace("@VERSION@", version).as_bytes())?;
    Ok(lines)
}

fn packages<'a>(
    sources: &Sources,
    layout: Layout,
    arguments: &'a Arguments,
) -> Result<Vec<Package<'a>>> {
    let glibc = |name: &str| -> Result<Option<(u32, u32)>> {
        let Some(folder) = &sources.libraries else { return Ok(None) };
        Ok(newest_glibc(&read(&folder.join(name))?))
    };
    let mut scripts = Vec::new();
    for name in ["postinst", "prerm", "postrm"] {
        scripts.push((name, read(&sources.checkout.join("packaging/debian").join(name))?));
    }
    let mut all = vec![Package {
        name: "rondpoint",
        version: env!("CARGO_PKG_VERSION"),
        machine: &arguments.machine,
        maintainer: MAINTAINER,
        summary: SUMMARY,
        description: DESCRIPTION,
        glibc: glibc("librondpoint_interpose.so")?,
        // The program is static; only what it preloads into others is not.
        needs_glibc: false,
        scripts,
        time_s: arguments.time,
        payload: sources.command(layout)?,
    }];
    if let Some(payload) = sources.library(layout)? {
        all.push(Package {
            name: "rondpoint-replica",
            summary: LIBRARY_SUMMARY,
            description: LIBRARY_DESCRIPTION,
            glibc: glibc("librondpoint_replica.so")?,
            needs_glibc: true,
            scripts: Vec::new(),
            payload,
            ..*all.last().expect("the first")
        });
    }
    Ok(all)
}

/// Everything of both packages below one folder, for any prefix.
fn tarball(sources: &Sources, stem: &str, time_s: u64) -> Result<Vec<u8>> {
    let mut all = sources.command(Layout::Debian)?;
    if let Some(library) = sources.library(Layout::Debian)? {
        all.entries.extend(library.entries);
    }
    let below = |path: String| path.strip_prefix("usr/").map_or(path.clone(), str::to_owned);
    let entries = all.entries.into_iter().map(|(path, entry)| (below(path), entry)).collect();
    Payload { entries }.tar(&format!("{stem}/"), time_s)
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
