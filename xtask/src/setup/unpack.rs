//! Unpacks a group of packages into its own tree in the cache: all or nothing.
//!
//! Nothing is installed: `dpkg-deb -x` only writes files beneath the folder that it is given, and no maintainer
//! script runs. A tree is unpacked beside its final name and renamed when it is whole.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::plan::Group;

/// Unpacks `group` from `archives` into `cache`, unless it is there already. Returns the tree's folder.
pub(crate) fn unpack(group: &Group, archives: &Path, cache: &Path) -> Result<PathBuf> {
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
    println!("unpacking {}: {} packages", group.name, group.downloads.len());
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
    }
    drop_privileged_bits(&partial)?;
    if group.name == "kernel" {
        free_headers_from_the_root(&partial)?;
    }
    fs::rename(&partial, &tree).with_context(|| format!("{}: cannot rename", partial.display()))?;
    Ok(tree)
}

/// Clears set-user and set-group bits: nothing in the cache may run as anybody else.
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

/// Debian's headers include each other by absolute paths under `/usr/src`. Rewrites these to go from the file
/// that includes, so that the tree works wherever it lies.
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
