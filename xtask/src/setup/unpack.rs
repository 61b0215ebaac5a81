//! Unpacks a group of packages into its own tree in the cache: all or nothing.
//!
//! Nothing is installed: `dpkg-deb -x` only writes files beneath the folder that it is given, and
//! no maintainer script runs. A tree is unpacked beside its final name and renamed when it is
//! whole.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::plan::Group;

/// Unpacks `group` from `archives` into `cache`, unless it is there already. Calls `unpacked` with
/// the size of each unpacked package file. Returns the tree's folder.
pub(crate) fn unpack(
    group: &Group,
    archives: &Path,
    cache: &Path,
    unpacked: &mut impl FnMut(u64),
) -> Result<PathBuf> {
    let tree = cache.join(group.folder());
    if tree.exists() {
        return Ok(tree);
    }
    let partial = cache.join(format!("{}.partial", group.folder()));
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("{}: cannot remove", partial.display()))?;
    }
    fs::create_dir_all(&partial)
        .with_context(|| format!("{}: cannot create", partial.display()))?;
    check_digests(group, archives)?;
    for download in &group.downloads {
        let archive = archives.join(&download.file);
        let output = Command::new("dpkg-deb")
            .arg("-x")
            .arg(&archive)
            .arg(&partial)
            .output()
            .context("dpkg-deb: cannot run")?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            bail!("{}: cannot unpack: {}", archive.display(), reason.trim());
        }
        unpacked(download.bytes);
    }
    drop_privileged_bits(&partial)?;
    if group.name == "kernel" {
        free_headers_from_the_root(&partial)?;
    }
    fs::rename(&partial, &tree).with_context(|| format!("{}: cannot rename", partial.display()))?;
    Ok(tree)
}

/// Checks the digests of a group's files. apt checked them when it fetched them; this finds later
/// damage by an interruption or a full disk.
pub(crate) fn check_digests(group: &Group, archives: &Path) -> Result<()> {
    let lines =
        group.downloads.iter().map(|download| format!("{}  {}\n", download.sha256, download.file));
    let mut check = Command::new("sha256sum")
        .args(["--check", "--quiet", "-"])
        .current_dir(archives)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("sha256sum: cannot run")?;
    let mut input = check.stdin.take().expect("was piped");
    input
        .write_all(lines.collect::<String>().as_bytes())
        .context("sha256sum: cannot write to it")?;
    drop(input);
    let output = check.wait_with_output().context("sha256sum: cannot wait for it")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let damaged: Vec<_> =
        text.lines().filter_map(|line| line.split_once(": FAILED")).map(|line| line.0).collect();
    for file in &damaged {
        fs::remove_file(archives.join(file)).with_context(|| format!("{file}: cannot remove"))?;
    }
    if !damaged.is_empty() || !output.status.success() {
        bail!(
            "damaged package files were removed ({}); run ./x setup again to fetch them anew",
            damaged.join(", ")
        );
    }
    Ok(())
}

/// Clears set-user and set-group bits: programs in the cache run as their caller.
fn drop_privileged_bits(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let mode = fs::symlink_metadata(&path)?.permissions().mode();
        if mode & 0o6000 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o1777))
                .with_context(|| format!("{}: cannot change its mode", path.display()))?;
        }
    }
    Ok(())
}

/// Every file and folder beneath `folder` that is not a symbolic link.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("{}: cannot list", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            }
            if kind.is_dir() || kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Rewrites the absolute paths under `/usr/src` by which Debian's headers include each other. They
/// become relative to the including file, so that the tree works in any folder.
fn free_headers_from_the_root(tree: &Path) -> Result<()> {
    let sources = tree.join("usr/src");
    for entry in
        fs::read_dir(&sources).with_context(|| format!("{}: cannot list", sources.display()))?
    {
        let makefile = entry?.path().join("Makefile");
        let Ok(text) = fs::read_to_string(&makefile) else { continue };
        if let Some(common) = text.trim().strip_prefix("include /usr/src/") {
            let here = "$(dir $(abspath $(lastword $(MAKEFILE_LIST))))";
            fs::write(&makefile, format!("include {here}../{common}\n"))
                .with_context(|| format!("{}: cannot write", makefile.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::apt::Download;

    #[test]
    fn a_damaged_package_file_is_removed_and_named() {
        let archives =
            std::env::temp_dir().join(format!("rondpoint-archives-{}", std::process::id()));
        fs::create_dir_all(&archives).unwrap();
        // The digest of the empty file.
        let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
        let download = |name: &str| Download {
            name: name.to_owned(),
            version: "1".to_owned(),
            file: format!("{name}_1_all.deb"),
            bytes: 0,
            sha256: sha256.clone(),
        };
        fs::write(archives.join("whole_1_all.deb"), "").unwrap();
        fs::write(archives.join("damaged_1_all.deb"), "x").unwrap();
        let group = Group { name: "host", downloads: vec![download("damaged"), download("whole")] };
        let message = check_digests(&group, &archives).unwrap_err().to_string();
        let left: Vec<_> =
            fs::read_dir(&archives).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        fs::remove_dir_all(&archives).unwrap();
        assert!(message.contains("(damaged_1_all.deb)"), "{message}");
        assert_eq!(left, ["whole_1_all.deb"]);
    }
}
