//! The guest of a real program: the files of its packages laid over one another, its scripts, its
//! input.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use rondpoint_lab_init::{CHECK_PATH, PREPARE_PATH};

use super::definition::Definition;
use crate::configuration;
use crate::fetched::Fetched;
use crate::initramfs::Initramfs;
use crate::lab::Lab;

/// The run's script in the guest.
const RUN_PATH: &str = "/lab/program";
/// Documents, and converters between character sets: no program of the suite reads them.
const UNREAD: [&str; 10] = [
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/menu",
];
/// Where Debian's programs are. Applets of busybox that are not there are found by the shell.
const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
/// Accounts, for programs that refuse to run as root or look themselves up.
const ACCOUNTS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// The guest with everything but its job, and the command of the job.
///
/// # Errors
/// The packages are not in the cache.
pub(crate) fn build(
    lab: &Lab,
    fetched: &Fetched,
    definition: &Definition,
) -> Result<(Initramfs, Vec<String>)> {
    let name = &definition.name;
    let folders = fetched.folders(&lab.cache, name, &definition.asked());
    let folders = folders.with_context(|| {
        format!("the packages of {name} are not in the cache; run ./x setup --programs")
    })?;
    let mut guest = Initramfs::new();
    for folder in &folders {
        add_package(&mut guest, folder, &definition.leave_out)?;
    }
    guest.add_bytes(ACCOUNTS.into(), "/etc/passwd");
    guest.add_bytes(GROUPS.into(), "/etc/group");
    guest.add_bytes(b"127.0.0.1 localhost\n".to_vec(), "/etc/hosts");
    for file in &definition.files {
        // A text between ''' or """ begins on its own line.
        let text = file.text.trim_start_matches('\n');
        guest.add_bytes(text.as_bytes().to_vec(), &file.path);
    }
    for input in &definition.inputs {
        guest.add_bytes(input.bytes(), &input.path);
    }
    let prepare = definition.prepare.as_deref().unwrap_or_default();
    guest.add_script(script(&format!("ip link set lo up\n{prepare}")), PREPARE_PATH);
    guest.add_script(script(&definition.run), RUN_PATH);
    guest.add_script(script(&definition.check), CHECK_PATH);
    // The lab's own parts win over a package's.
    guest.add_all(configuration::base(&lab.installed, &lab.built)?);
    Ok((guest, vec![RUN_PATH.to_owned()]))
}

/// A script of shell lines that stops at the first failure.
fn script(lines: &str) -> String {
    let mut text = String::new();
    let _ = write!(text, "#!/bin/sh\nset -e\nexport PATH={PROGRAMS}\n{lines}\n");
    text
}

/// Adds an unpacked package, without documents and what is left out.
pub(crate) fn add_package(guest: &mut Initramfs, folder: &Path, left_out: &[String]) -> Result<()> {
    add_tree(guest, folder, folder, left_out)
}

/// Adds what is beneath `folder`, a part of the package's folder `root`.
fn add_tree(guest: &mut Initramfs, root: &Path, folder: &Path, left_out: &[String]) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("{}: cannot list", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let place = path.strip_prefix(root).expect("beneath the root").to_string_lossy();
        let mut unwanted = UNREAD.iter().copied().chain(left_out.iter().map(String::as_str));
        if unwanted.any(|one| one == place) {
            continue;
        }
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            add_tree(guest, root, &path, left_out)?;
        } else if kind.is_symlink() {
            guest.add_link(&fs::read_link(&path)?.to_string_lossy(), &place);
        } else if kind.is_file() {
            guest.add_file(&path, &place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_comes_with_its_links_and_without_what_is_left_out() {
        let root = tempfile::tempdir().expect("a folder");
        for path in ["usr/bin/tool", "usr/share/doc/tool/copyright", "usr/lib/tool/big"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, "x").expect("written");
        }
        std::os::unix::fs::symlink("tool", root.path().join("usr/bin/other")).expect("linked");
        let mut expected = Initramfs::new();
        expected.add_file(&root.path().join("usr/bin/tool"), "/usr/bin/tool").expect("there");
        expected.add_link("tool", "/usr/bin/other");
        let mut guest = Initramfs::new();
        let left_out = ["usr/lib/tool".to_owned()];
        add_tree(&mut guest, root.path(), root.path(), &left_out).expect("readable");
        assert_eq!(guest, expected);
    }
}
