//! `./x setup --witness`: the kernel's own event lists, which the product's event tables are
//! compared with, and its decoder of SPE packets.
//!
//! They come with Debian's package of the kernel's sources, 150 MB, of which 27 MB stay in the
//! cache. Nothing but `./x test` needs them, so the lab's setup does not fetch them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::apt::{Download, PrivateRoot};
use super::plan::{Group, KERNEL_SERIES};
use super::{LISTS_BYTES, check_space, lock, megabytes, private_root, system, unpack};

/// The lists in the sources, and in the tree that is kept.
const LISTS: &str = "tools/perf/pmu-events/arch";

/// The decoder of SPE packets.
const DECODER: &str = "tools/perf/util/arm-spe-decoder";

/// The headers that the decoder includes.
const HEADERS: [&str; 2] = ["tools/include", "tools/arch/x86/include"];

/// Unpacked size of it all, rounded up.
const UNPACKED_BYTES: u64 = 30_000_000;

/// The group's name, and how its tree's name begins.
const NAME: &str = "witness";

/// What is kept of the kernel's sources.
pub(crate) struct Sources {
    tree: PathBuf,
}

impl Sources {
    /// The folder with the event lists.
    pub(crate) fn lists(&self) -> PathBuf {
        self.tree.join(LISTS)
    }

    /// The command that compiles `driver` with the decoder of SPE packets into `program`.
    pub(crate) fn compile_decoder(&self, driver: &Path, program: &Path) -> Command {
        let mut command = Command::new("cc");
        command.args(["-O2", "-o"]).arg(program).arg(driver);
        command.arg(self.tree.join(DECODER).join("arm-spe-pkt-decoder.c"));
        for folder in [DECODER, HEADERS[0], "tools/include/uapi", HEADERS[1]] {
            command.arg("-I").arg(self.tree.join(folder));
        }
        command
    }
}

/// What is kept of the sources, fetched where it is not there yet.
pub(crate) fn provide(cache: &Path) -> Result<Sources> {
    system::check_cache(cache)?;
    let _lock = lock(cache)?;
    if let Some(tree) = found(cache)? {
        return Ok(Sources { tree });
    }
    system::check()?;
    check_space(LISTS_BYTES, cache)?;
    let apt = private_root(cache)?;
    apt.update()?;
    let package = format!("linux-source-{KERNEL_SERIES}");
    let downloads = apt.alone(std::slice::from_ref(&package)).with_context(|| {
        format!("your apt sources carry no {package}; it comes with bookworm-security")
    })?;
    let group = Group { name: NAME, downloads };
    let [download] = &group.downloads[..] else {
        bail!("{package}: expected one package, apt named {}", group.downloads.len());
    };
    check_space(download.bytes + UNPACKED_BYTES, cache)?;
    let archive = apt.archives().join(&download.file);
    if !fs::metadata(&archive).is_ok_and(|file| file.len() == download.bytes) {
        eprintln!(
            "fetching {package}, {:.0} MB, for the kernel's event lists",
            megabytes(download.bytes)
        );
        apt.fetch(&[download])?;
    }
    unpack::check_digests(&group, &apt.archives())?;
    let xz = match system::find_program("xz") {
        Some(xz) => xz,
        None => fetched_xz(&apt, cache)?,
    };
    let tree = keep(download, &archive, &xz, &cache.join(group.folder()))?;
    fs::remove_file(&archive).with_context(|| format!("{}: cannot remove", archive.display()))?;
    Ok(Sources { tree })
}

/// The tree of an earlier call.
fn found(cache: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(cache).with_context(|| format!("{}: cannot list", cache.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_tree = name.starts_with("witness-") && !name.ends_with(".partial");
        if is_tree && path.join(LISTS).is_dir() && path.join(DECODER).is_dir() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The program xz out of Debian's package, for machines without it. Its library is there: dpkg
/// needs it.
fn fetched_xz(apt: &PrivateRoot, cache: &Path) -> Result<PathBuf> {
    let downloads = apt.alone(&["xz-utils".to_owned()])?;
    let group = Group { name: "xz", downloads };
    let [download] = &group.downloads[..] else {
        bail!("xz-utils: expected one package, apt named {}", group.downloads.len());
    };
    apt.fetch(&[download])?;
    unpack::check_digests(&group, &apt.archives())?;
    let folder = cache.join(group.folder());
    let archive = apt.archives().join(&download.file);
    let status = Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&folder).status();
    if !status.context("dpkg-deb: cannot run")?.success() {
        bail!("xz-utils: dpkg-deb cannot unpack it");
    }
    Ok(folder.join("usr/bin/xz"))
}

/// Unpacks what is kept out of the archive of sources in the package into `tree`: all or nothing.
fn keep(download: &Download, package: &Path, xz: &Path, tree: &Path) -> Result<PathBuf> {
    let partial = tree.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("{}: cannot remove", partial.display()))?;
    }
    fs::create_dir_all(&partial)
        .with_context(|| format!("{}: cannot create", partial.display()))?;
    eprintln!("unpacking what is kept of it (a quarter of a minute)");
    let sources = format!("./usr/src/{}.tar.xz", download.name);
    let mut files =
        piped("dpkg-deb", Stdio::null(), |command| command.arg("--fsys-tarfile").arg(package))?;
    let output = files.stdout.take().context("dpkg-deb: has no output")?;
    let mut archive = piped("tar", output.into(), |command| {
        command.args(["--extract", "--to-stdout", &sources])
    })?;
    let output = archive.stdout.take().context("tar: has no output")?;
    let status = Command::new("tar")
        .args(["--extract", "--strip-components=1", "--wildcards", "--use-compress-program"])
        .arg(xz)
        .args([LISTS, DECODER, HEADERS[0], HEADERS[1]].map(|folder| format!("*/{folder}/*")))
        .current_dir(&partial)
        .stdin(output)
        .status()
        .context("tar: cannot run")?;
    files.wait().context("dpkg-deb: cannot wait for it")?;
    archive.wait().context("tar: cannot wait for it")?;
    if !status.success() || !partial.join(LISTS).is_dir() {
        bail!("{}: found no {LISTS} in {sources}", package.display());
    }
    // An earlier version kept less.
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("{}: cannot remove", tree.display()))?;
    }
    fs::rename(&partial, tree).with_context(|| format!("{}: cannot rename", partial.display()))?;
    Ok(tree.to_owned())
}

fn piped(
    program: &str,
    input: Stdio,
    arguments: impl Fn(&mut Command) -> &mut Command,
) -> Result<std::process::Child> {
    let mut command = Command::new(program);
    arguments(&mut command).stdin(input).stdout(Stdio::piped());
    command.spawn().with_context(|| format!("{program}: cannot run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_tree_is_taken() {
        let cache = tempfile::tempdir().expect("a folder");
        let make = |name: &str, folder: &str| {
            fs::create_dir_all(cache.path().join(name).join(folder)).expect("made");
        };
        make("witness-1.partial", LISTS);
        make("witness-1.partial", DECODER);
        make("witness-2", LISTS);
        assert_eq!(found(cache.path()).expect("listed"), None);
        make("witness-2", DECODER);
        let whole = cache.path().join("witness-2");
        assert_eq!(found(cache.path()).expect("listed"), Some(whole));
    }
}
