//! Mounts whose files a copy cannot replace. Some refuse to map a file for execution, so that the
//! copy of a program or a library cannot do what the original can. Files of hugetlbfs have huge
//! pages, and a map of their copy with `MAP_HUGETLB` would fail.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use anyhow::{Result, bail};

use super::{MEMORY, Original};

/// Whether processes can take copies that lie beside `copy`, by the rule of the preloaded library.
///
/// # Errors
/// They cannot take that of one of the originals; or an original cannot be asked.
pub(super) fn may_replace(originals: &[Original], copy: &File) -> Result<()> {
    let has_huge_pages = |original: &&Original| {
        let of_mount = |(facts, mounts): (String, String)| is_hugetlbfs(&facts, &mounts);
        facts_of(&original.file).and_then(of_mount).unwrap_or(false)
    };
    if let Some(original) = originals.iter().find(has_huge_pages) {
        bail!(
            "{}: it lies on hugetlbfs; copies in {MEMORY} would have small pages. The library \
             rondpoint-replica makes copies in huge pages",
            original.path.display()
        );
    }
    may_be_on(is_noexec(copy).unwrap_or(false), originals)
}

/// The same for copies on a mount that `refuses` to map files for execution.
pub(super) fn may_be_on(refuses: bool, originals: &[Original]) -> Result<()> {
    for original in originals {
        let is_program = original.file.metadata()?.mode() & 0o111 != 0;
        if refuses && is_program && !is_noexec(&original.file).unwrap_or(false) {
            bail!(
                "{}: it may be executed, and {MEMORY} is mounted with noexec: processes would read \
                 the original. Take its execute bits away if it is data",
                original.path.display()
            );
        }
    }
    Ok(())
}

/// Whether the file's mount has the option `noexec`; `None` if it is in another mount namespace.
fn is_noexec(file: &File) -> Option<bool> {
    let (facts, mounts) = facts_of(file)?;
    noexec(&facts, &mounts)
}

/// `fdinfo` of the file, and this process's `mountinfo`.
fn facts_of(file: &File) -> Option<(String, String)> {
    let read = |name: String| -> io::Result<String> { fs::read_to_string(name) };
    let facts = read(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    Some((facts, read("/proc/self/mountinfo".to_string()).ok()?))
}

/// The line of `mountinfo` about the mount that `fdinfo` names: proc_pid_fdinfo(5),
/// proc_pid_mountinfo(5). A mount's number is field 1.
fn mount_of<'a>(fdinfo: &str, mountinfo: &'a str) -> Option<&'a str> {
    let number = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    mountinfo.lines().find(|line| line.split(' ').next() == Some(number))
}

/// Whether the mount has the option. Its options are field 6.
fn noexec(fdinfo: &str, mountinfo: &str) -> Option<bool> {
    let options = mount_of(fdinfo, mountinfo)?.split(' ').nth(5)?;
    Some(options.split(',').any(|option| option == "noexec"))
}

/// Whether the mount is of hugetlbfs. Its file system is the field behind the separating `-`.
fn is_hugetlbfs(fdinfo: &str, mountinfo: &str) -> Option<bool> {
    let (_, rest) = mount_of(fdinfo, mountinfo)?.split_once(" - ")?;
    Some(rest.split(' ').next() == Some("hugetlbfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_mount_tells_whether_its_files_may_be_executed() {
        let mounts = "27 1 0:25 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            271 27 0:30 / /dev/shm rw,nosuid,nodev,noexec shared:4 - tmpfs tmpfs rw\n";
        let of = |number: &str| noexec(&format!("pos:\t0\nflags:\t02\n{number}ino:\t9\n"), mounts);
        assert_eq!(of("mnt_id:\t27\n"), Some(false));
        assert_eq!(of("mnt_id:\t271\n"), Some(true));
        assert_eq!(of("mnt_id:\t7\n"), None, "of another namespace");
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_file_in_huge_pages_is_told_by_its_mount() {
        let mounts = "27 1 0:25 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            31 27 0:31 / /dev/hugepages rw,nosuid shared:5 - hugetlbfs hugetlbfs rw,pagesize=2M\n";
        let of = |number: &str| is_hugetlbfs(&format!("mnt_id:\t{number}\n"), mounts);
        assert_eq!((of("31"), of("27"), of("7")), (Some(true), Some(false), None));
    }

    #[test]
    fn an_own_file_has_a_mount() {
        assert!(is_noexec(&tempfile::tempfile().unwrap()).is_some());
    }
}
