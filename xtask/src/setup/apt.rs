//! A private apt root: its own lists, archives and an empty package status, inside the cache
//! folder.
//!
//! The status is empty so that the same packages are chosen on every machine, whatever it has
//! installed. The user's apt configuration is read (it may hold a proxy), but its hooks are cleared
//! and every folder that apt writes to is ours. Only `apt-get update`, `--print-uris`, `download`
//! and `apt-cache` are ever run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::progress::{Progress, Unit};
use crate::watched::watched;

/// The folder that apt works in.
pub(crate) struct PrivateRoot {
    folder: PathBuf,
}

/// One package file that apt would fetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Download {
    /// Debian's package name.
    pub(crate) name: String,
    /// Debian's version, with its epoch.
    pub(crate) version: String,
    /// The file's name in the archives folder.
    pub(crate) file: String,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Digest from the signed package list; apt checks it.
    pub(crate) sha256: String,
}

impl PrivateRoot {
    /// Lays out the folders and writes the configuration.
    pub(crate) fn create(folder: &Path, sources: &str) -> Result<Self> {
        let root = Self { folder: folder.to_owned() };
        for name in
            ["etc/sources", "state/lists/partial", "cache", "log", "archives", "none/partial"]
        {
            let path = folder.join(name);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("{}: cannot create", path.display()))?;
        }
        write(&folder.join("etc/sources/debian.sources"), sources)?;
        write(&folder.join("state/status"), "")?;
        write(&folder.join("etc/apt.conf"), &configuration(folder))?;
        Ok(root)
    }

    /// Folder of the package files until they are unpacked.
    pub(crate) fn archives(&self) -> PathBuf {
        self.folder.join("archives")
    }

    /// Fetches the package lists. Returns the speed in bytes per second, if apt prints one.
    pub(crate) fn update(&self) -> Result<Option<f64>> {
        let mut command = self.command("apt-get");
        command.args(["-q", "update"]);
        let mut progress = Progress::new("fetching Debian's package lists", Unit::Bytes, 0);
        let lists = self.folder.join("state/lists");
        let output = watched(&mut command, || progress.at(size(&lists), 0))?;
        progress.finish();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        // Without a network apt exits with 0, keeps old lists and prints a warning.
        let unreachable =
            errors.lines().find(|line| line.contains("Failed to fetch") || line.starts_with("E:"));
        if !output.status.success() || unreachable.is_some() {
            let reason = unreachable.or(errors.lines().last()).unwrap_or("no reason given").trim();
            bail!(
                "cannot fetch Debian's package lists from the mirror in your apt sources; is the network up? apt says: {reason}"
            );
        }
        Ok(text.lines().find_map(speed))
    }

    /// The packages with all their dependencies, as for a machine without any package. `release`:
    /// release to prefer (`-t`).
    pub(crate) fn closure(
        &self,
        release: Option<&str>,
        packages: &[String],
    ) -> Result<Vec<Download>> {
        let release = release.map(|name| format!("--target-release={name}"));
        let mut command = self.command("apt-get");
        command
            .args(["install", "--print-uris", "--yes", "-q", "-oAcquire::ForceHash=SHA256"])
            .args(release)
            .args(packages);
        command.arg(format!("-oDir::Cache::archives={}", self.folder.join("none").display()));
        parse_downloads(&captured(command)?)
    }

    /// The packages without their dependencies.
    pub(crate) fn alone(&self, packages: &[String]) -> Result<Vec<Download>> {
        let mut command = self.command("apt-get");
        command
            .args(["download", "--print-uris", "-q"])
            .args(packages)
            .current_dir(self.folder.join("none"));
        parse_downloads(&captured(command)?)
    }

    /// The description of a package's preferred version, as in the package lists.
    pub(crate) fn description(&self, package: &str) -> Result<String> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions", package]);
        captured(command)
    }

    /// Fetches `downloads` into the archives folder.
    pub(crate) fn fetch(&self, downloads: &[&Download]) -> Result<()> {
        let mut command = self.command("apt-get");
        command.args(["download", "--quiet"]).current_dir(self.archives());
        command.args(
            downloads.iter().map(|download| format!("{}={}", download.name, download.version)),
        );
        let total = downloads.iter().map(|download| download.bytes).sum();
        let here = size(&self.archives());
        let mut progress = Progress::new("fetching packages", Unit::Bytes, total);
        let fetched = || size(&self.archives()).saturating_sub(here);
        let output = watched(&mut command, || progress.at(fetched(), total))?;
        if !output.status.success() {
            progress.clear();
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!(
                "apt-get could not fetch every package; what has arrived is kept, run ./x setup again to go on. apt says: {}",
                errors.trim()
            );
        }
        progress.at(fetched(), total);
        progress.finish();
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(self.folder.join("etc/apt.conf"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{}: cannot write", path.display()))
}

/// Settings of apt. `#clear` removes the user's hooks, which could act on the real system.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n\
         #clear DPkg::Pre-Install-Pkgs;\n#clear DPkg::Pre-Invoke;\n#clear DPkg::Post-Invoke;\n#clear APT::Default-Release;\n\
         Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{folder}/etc/sources\";\n\
         Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::State \"{folder}/state\";\nDir::State::status \"{folder}/state/status\";\n\
         Dir::Cache \"{folder}/cache\";\nDir::Cache::archives \"{folder}/archives\";\nDir::Log \"{folder}/log\";\n\
         APT::Architecture \"amd64\";\n#clear APT::Architectures;\nAPT::Architectures {{ \"amd64\"; }};\n\
         APT::Install-Recommends \"false\";\nAPT::Install-Suggests \"false\";\n\
         // The cache may lie where the user _apt cannot write; apt checks signatures and digests
         // either way.\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled \"false\";\n"
    )
}

/// Bytes in the files beneath `folder`. Files that vanish meanwhile count as empty.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(file) if file.is_dir() => size(&entry.path()),
        Ok(file) => file.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Standard output of a command that must succeed.
fn captured(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{program}: cannot run"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        bail!("{program} failed: {}", lines.join("; "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Bytes per second from `Fetched 14.3 MB in 2s (8223 kB/s)`.
fn speed(line: &str) -> Option<f64> {
    let inside = line.strip_prefix("Fetched ")?.split_once('(')?.1.strip_suffix("/s)")?;
    let (number, unit) = inside.split_once(' ')?;
    let factor = match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    number.replace(',', "").parse::<f64>().ok().map(|number| number * factor)
}

/// The lines that `--print-uris` gives: `'URI' FILE BYTES SHA256:DIGEST`; other lines are apt's
/// prose.
fn parse_downloads(text: &str) -> Result<Vec<Download>> {
    let mut downloads: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('\''))
        .map(parse_download)
        .collect::<Result<_>>()?;
    downloads.sort();
    Ok(downloads)
}

fn parse_download(line: &str) -> Result<Download> {
    let words: Vec<_> = line.split_whitespace().collect();
    let download = || {
        let [_, file, bytes, digest] = words[..] else { return None };
        let mut parts = file.strip_suffix(".deb")?.splitn(3, '_');
        Some(Download {
            name: parts.next()?.to_owned(),
            version: parts.next()?.replace("%3a", ":"),
            file: file.to_owned(),
            bytes: bytes.parse().ok()?,
            sha256: digest.strip_prefix("SHA256:")?.to_owned(),
        })
    };
    download().with_context(|| {
        format!("apt-get: expected 'URI' NAME_VERSION_ARCH.deb BYTES SHA256:DIGEST, got: {line}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_line_gives_name_version_and_digest() {
        let text = "Reading package lists...\n\
                    'http://m.test/pool/numactl_2.0.16-1_amd64.deb' numactl_2.0.16-1_amd64.deb 36852 SHA256:ab12\n\
                    'http://m.test/busybox.deb' busybox-static_1%3a1.35.0-4+b1_amd64.deb 928188 SHA256:cd34\n";
        let downloads = parse_downloads(text).unwrap();
        let seen: Vec<_> = downloads
            .iter()
            .map(|d| (d.name.as_str(), d.version.as_str(), d.bytes, d.sha256.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("busybox-static", "1:1.35.0-4+b1", 928_188, "cd34"),
                ("numactl", "2.0.16-1", 36852, "ab12")
            ]
        );
    }

    #[test]
    fn a_line_without_a_sha256_digest_is_refused() {
        let error = parse_downloads("'http://m.test/a' a_1_all.deb 5 MD5Sum:00").unwrap_err();
        assert!(error.to_string().contains("SHA256:DIGEST, got: 'http://m.test/a'"), "{error}");
    }

    #[test]
    fn speed_is_read_from_apts_summary() {
        assert_eq!(speed("Fetched 14.3 MB in 2s (8,223 kB/s)"), Some(8_223_000.0));
        assert_eq!(speed("Fetched 95 B in 1s (95 B/s)"), Some(95.0));
        assert_eq!(speed("Get:1 http://m.test bookworm InRelease"), None);
    }
}
