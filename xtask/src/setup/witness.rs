//! `./x setup --witness`: the kernel's own event lists, which the product's event tables are
//! compared with.
//!
//! They come with Debian's package of the kernel's sources, 150 MB. Of these only the lists stay in
//! the cache, 25 MB. Nothing but `./x test` needs them, so the lab's setup does not fetch them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::apt::Download;
use super::plan::{Group, KERNEL_SERIES};
use super::{LISTS_BYTES, check_space, lock, megabytes, private_root, system, unpack};

/// The lists in the sources, and in the tree that is kept.
const LISTS: &str = "tools/perf/pmu-events/arch";

/// Unpacked size of the lists, rounded up.
const UNPACKED_BYTES: u64 = 30_000_000;

/// The group's name, and how its tree's name begins.
const NAME: &str = "witness";

/// The folder with the lists, fetched where it is not there yet.
pub(crate) fn provide(cache: &Path) -> Result<PathBuf> {
    system::check_cache(cache)?;
    let _lock = lock(cache)?;
    if let Some(lists) = found(cache)? {
        return Ok(lists);
    }
    system::check()?;
    if system::find_program("xz").is_none() {
        bail!("xz is not on PATH; install xz-utils");
    }
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
    let tree = keep_lists(download, &archive, &cache.join(group.folder()))?;
    fs::remove_file(&archive).with_context(|| format!("{}: cannot remove", archive.display()))?;
    Ok(tree.join(LISTS))
}

/// The lists of an earlier call.
fn found(cache: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(cache).with_context(|| format!("{}: cannot list", cache.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_tree = name.starts_with("witness-") && !name.ends_with(".partial");
        let lists = path.join(LISTS);
        if is_tree && lists.is_dir() {
            return Ok(Some(lists));
        }
    }
    Ok(None)
}

/// Unpacks the lists out of the archive of sources in the package into `tree`: all or nothing.
fn keep_lists(download: &Download, package: &Path, tree: &Path) -> Result<PathBuf> {
    let partial = tree.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("{}: cannot remove", partial.display()))?;
    }
    fs::create_dir_all(&partial)
        .with_context(|| format!("{}: cannot create", partial.display()))?;
    eprintln!("unpacking the kernel's event lists (a quarter of a minute)");
    let sources = format!("./usr/src/{}.tar.xz", download.name);
    let mut files =
        piped("dpkg-deb", Stdio::null(), |command| command.arg("--fsys-tarfile").arg(package))?;
    let output = files.stdout.take().context("dpkg-deb: has no output")?;
    let mut archive = piped("tar", output.into(), |command| {
        command.args(["--extract", "--to-stdout", &sources])
    })?;
    let output = archive.stdout.take().context("tar: has no output")?;
    let status = Command::new("tar")
        .args(["--extract", "--xz", "--strip-components=1", "--wildcards"])
        .arg(format!("*/{LISTS}/*"))
        .current_dir(&partial)
        .stdin(output)
        .status()
        .context("tar: cannot run")?;
    files.wait().context("dpkg-deb: cannot wait for it")?;
    archive.wait().context("tar: cannot wait for it")?;
    if !status.success() || !partial.join(LISTS).is_dir() {
        bail!("{}: found no {LISTS} in {sources}", package.display());
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
        let lists = |name: &str| cache.path().join(name).join(LISTS);
        fs::create_dir_all(lists("witness-1.partial")).expect("made");
        fs::create_dir_all(cache.path().join("witness-2")).expect("made");
        assert_eq!(found(cache.path()).expect("listed"), None);
        fs::create_dir_all(lists("witness-3")).expect("made");
        assert_eq!(found(cache.path()).expect("listed"), Some(lists("witness-3")));
    }
}
