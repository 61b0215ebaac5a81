//! Mounts that refuse to map a file for execution. A process then takes no copy of a program or a
//! library, because the copy cannot do what the original can.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use anyhow::{Result, bail};

use super::{MEMORY, Original};

/// Whether processes will take copies that lie beside `copy`, by the rule of the preloaded library.
///
/// # Errors
/// They will not take that of one of the originals; or an original cannot be asked.
pub(super) fn may_replace(originals: &[Original], copy: &File) -> Result<()> {
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
    let read = |name: String| -> io::Result<String> { fs::read_to_string(name) };
    let facts = read(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    noexec(&facts, &read("/proc/self/mountinfo".to_string()).ok()?)
}

/// The option of the mount that `fdinfo` names, in `mountinfo`: proc_pid_fdinfo(5),
/// proc_pid_mountinfo(5). A mount's number is field 1 and its options are field 6.
fn noexec(fdinfo: &str, mountinfo: &str) -> Option<bool> {
    let number = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mut mounts = mountinfo.lines().map(|line| line.split(' '));
    let mut fields = mounts.find(|fields| fields.clone().next() == Some(number))?;
    Some(fields.nth(5)?.split(',').any(|option| option == "noexec"))
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
    fn an_own_file_has_a_mount() {
        assert!(is_noexec(&tempfile::tempfile().unwrap()).is_some());
    }
}
