//! Debian's package of the kernel's sources, 150 MB: fetched, and unpacked whole or in part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::apt::{Download, PrivateRoot};
use super::plan::{Group, KERNEL_SERIES};
use super::{LISTS_BYTES, check_space, megabytes, private_root, system, unpack};

/// The package, in the cache until it is discarded.
pub(super) struct Archive {
    group: Group,
    package: PathBuf,
    xz: PathBuf,
}

impl Archive {
    /// Fetches the package. `name`: prefix of the name of its tree. `unpacked_bytes`: size of the
    /// tree. `purpose`: reason to show the user.
    pub(super) fn fetch(
        cache: &Path,
        name: &'static str,
        unpacked_bytes: u64,
        purpose: &str,
    ) -> Result<Self> {
        system::check()?;
        check_space(LISTS_BYTES, cache)?;
        let apt = private_root(cache)?;
        apt.update()?;
        let package = format!("linux-source-{KERNEL_SERIES}");
        let downloads = apt.alone(std::slice::from_ref(&package)).with_context(|| {
            format!("your apt sources carry no {package}; it comes with bookworm-security")
        })?;
        let group = Group { name, downloads };
        let [download] = &group.downloads[..] else {
            bail!("{package}: expected one package, apt named {}", group.downloads.len());
        };
        check_space(download.bytes + unpacked_bytes, cache)?;
        let file = apt.archives().join(&download.file);
        if !fs::metadata(&file).is_ok_and(|found| found.len() == download.bytes) {
            eprintln!("fetching {package}, {:.0} MB, for {purpose}", megabytes(download.bytes));
            apt.fetch(&[download])?;
        }
        unpack::check_digests(&group, &apt.archives())?;
        let xz = match system::find_program("xz") {
            Some(xz) => xz,
            None => fetched_xz(&apt, cache)?,
        };
        Ok(Self { group, package: file, xz })
    }

    /// The tree's folder in `cache`.
    pub(super) fn tree(&self, cache: &Path) -> PathBuf {
        cache.join(self.group.folder())
    }

    /// Unpacks the members that match one of `patterns` into `folder`; all members without a
    /// pattern. The archive's top folder is left out of patterns and results.
    pub(super) fn unpack(&self, folder: &Path, patterns: &[String]) -> Result<()> {
        fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot create", folder.display()))?;
        let name = self.group.downloads.first().map_or("", |download: &Download| &download.name);
        let sources = format!("./usr/src/{name}.tar.xz");
        let mut files = piped("dpkg-deb", Stdio::null(), |command| {
            command.arg("--fsys-tarfile").arg(&self.package)
        })?;
        let output = files.stdout.take().context("dpkg-deb: has no output")?;
        let mut archive = piped("tar", output.into(), |command| {
            command.args(["--extract", "--to-stdout", &sources])
        })?;
        let output = archive.stdout.take().context("tar: has no output")?;
        let status = Command::new("tar")
            .args(["--extract", "--strip-components=1", "--wildcards", "--use-compress-program"])
            .arg(&self.xz)
            .args(patterns.iter().map(|pattern| format!("{name}/{pattern}")))
            .current_dir(folder)
            .stdin(output)
            .status()
            .context("tar: cannot run")?;
        files.wait().context("dpkg-deb: cannot wait for it")?;
        archive.wait().context("tar: cannot wait for it")?;
        if !status.success() {
            bail!("{}: cannot unpack {sources}", self.package.display());
        }
        Ok(())
    }

    /// Removes the package.
    pub(super) fn discard(self) -> Result<()> {
        fs::remove_file(&self.package)
            .with_context(|| format!("{}: cannot remove", self.package.display()))
    }
}

/// The program xz from Debian's package, for machines without it. Its library is always installed,
/// because dpkg needs it.
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

fn piped(
    program: &str,
    input: Stdio,
    arguments: impl Fn(&mut Command) -> &mut Command,
) -> Result<Child> {
    let mut command = Command::new(program);
    arguments(&mut command).stdin(input).stdout(Stdio::piped());
    command.spawn().with_context(|| format!("{program}: cannot run"))
}
