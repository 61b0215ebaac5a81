//! The kernel's weights of weighted interleaving, `/sys/kernel/mm/mempolicy/weighted_interleave`
//! (Linux 6.9): how many pages in turn a program takes from each node.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::LinuxError;
use crate::parse::fields;
use crate::root::{self, Root};

/// Names of the file that shows whether the kernel derives the weights from firmware's bandwidth
/// (Linux 6.16). In Linux 6.18 a macro replaced the name.
const AUTOMATIC: [&str; 2] = ["auto", "__auto_type"];

/// All weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Whether the kernel chooses them; `None` if it cannot.
    pub automatic: Option<bool>,
    /// Weights from 1 to 255, by the kernel's number of the node.
    pub nodes: BTreeMap<u32, u8>,
}

/// Folder of the weights.
#[must_use]
pub fn folder(root: &Root) -> PathBuf {
    root.in_sys("kernel/mm/mempolicy/weighted_interleave")
}

/// Reads the weights; `None` if the kernel has no weighted interleaving.
///
/// # Errors
/// A file is malformed or cannot be read.
pub fn read(root: &Root) -> Result<Option<Weights>, LinuxError> {
    let folder = folder(root);
    let mut nodes = BTreeMap::new();
    for name in root::list(&folder)? {
        let number = name.strip_prefix("node").and_then(|digits| digits.parse().ok());
        let Some(node) = number else { continue };
        let path = folder.join(&name);
        let bytes = root::read_required(&path)?;
        let weight = fields::single_number(&bytes)
            .map_err(|source| LinuxError::Format { path: path.clone(), source })?;
        // The kernel's weights are bytes.
        let weight = u8::try_from(weight).map_err(|_| LinuxError::Input {
            what: path.display().to_string(),
            problem: format!("{weight}: expected a weight up to 255"),
        })?;
        nodes.insert(node, weight);
    }
    if nodes.is_empty() {
        return Ok(None);
    }
    let switch =
        AUTOMATIC.iter().find_map(|name| root::read_optional(&folder.join(name)).transpose());
    let automatic = switch.transpose()?.map(|bytes| fields::trim(&bytes) == b"true");
    Ok(Some(Weights { automatic, nodes }))
}

/// Writes the weights of nodes. The kernel then stops choosing them. New pages of programs with
/// weighted interleaving follow them; older pages stay.
///
/// # Errors
/// The first error of the kernel. The nodes before it have their new weights.
pub fn write(root: &Root, nodes: &BTreeMap<u32, u8>) -> Result<(), LinuxError> {
    for (node, weight) in nodes {
        put(folder(root).join(format!("node{node}")), &weight.to_string())?;
    }
    Ok(())
}

/// Restores the weights of `before`, and the kernel's choice if there was one. A kernel without
/// bandwidths of the firmware (ENODEV) keeps the weights.
///
/// # Errors
/// The first error of the kernel.
pub fn put_back(root: &Root, before: &Weights) -> Result<(), LinuxError> {
    write(root, &before.nodes)?;
    if before.automatic != Some(true) {
        return Ok(());
    }
    let folder = folder(root);
    let Some(name) = AUTOMATIC.iter().find(|name| folder.join(name).exists()) else {
        return Ok(());
    };
    match put(folder.join(name), "true") {
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(()),
        other => other,
    }
}

/// Writes an existing file of sysfs.
fn put(path: PathBuf, text: &str) -> Result<(), LinuxError> {
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| LinuxError::io(&path, "write", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        fs::create_dir_all(folder(&root)).unwrap();
        for (name, text) in files {
            fs::write(folder(&root).join(name), text).unwrap();
        }
        (directory, root)
    }

    #[test]
    fn weights_are_read_written_and_put_back_as_they_were() {
        for name in AUTOMATIC {
            let (_directory, root) =
                machine(&[("node0", "3\n"), ("node2", "1\n"), (name, "true\n")]);
            let before = read(&root).unwrap().unwrap();
            let nodes = [(0, 3), (2, 1)].into();
            assert_eq!(before, Weights { automatic: Some(true), nodes });
            write(&root, &[(2, 255)].into()).unwrap();
            fs::write(folder(&root).join(name), "false\n").unwrap();
            let changed = read(&root).unwrap().unwrap();
            assert_eq!(
                changed,
                Weights { automatic: Some(false), nodes: [(0, 3), (2, 255)].into() }
            );
            put_back(&root, &before).unwrap();
            assert_eq!(read(&root).unwrap().unwrap(), before);
        }
    }

    #[test]
    fn a_kernel_without_them_has_none_and_odd_ones_are_told() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(&Root::captured(directory.path())).unwrap(), None);
        let (_directory, root) = machine(&[("node0", "256\n")]);
        let error = read(&root).unwrap_err().to_string();
        assert!(error.ends_with("node0: 256: expected a weight up to 255"), "{error}");
        let (_directory, root) = machine(&[("node0", "x\n")]);
        assert!(read(&root).unwrap_err().to_string().contains("expected one decimal number"));
        let error = write(&root, &[(7, 1)].into()).unwrap_err().to_string();
        assert!(error.contains("node7: cannot write"), "no file is made: {error}");
    }
}
