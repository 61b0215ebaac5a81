//! The freezer of version 2 cgroups: `cgroup.freeze` and `cgroup.events`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rondpoint_core::Pid;

use crate::root::{self, Root};

/// File that freezes with `1` and thaws with `0`.
const SWITCH: &str = "cgroup.freeze";

/// The freezer of a cgroup (version 2).
#[derive(Debug)]
pub(super) struct Freezer {
    events: PathBuf,
    switch: File,
}

impl Freezer {
    /// The freezer of the process's cgroup, if the process is alone in it. `None` without a version
    /// 2 hierarchy, in its root, with other processes in or beneath the cgroup, or without the
    /// right to write.
    pub(super) fn of(root: &Root, pid: Pid) -> Option<Self> {
        let folder = folder(root, pid).ok()??;
        let own = pid.to_string();
        let alone = fs::read_to_string(folder.join("cgroup.procs")).ok()?.trim() == own;
        if !alone || has_children(&folder) {
            return None;
        }
        Self::open(&folder).ok()
    }

    /// The freezer of the process's cgroup, even with other processes in it; `None` if there is no
    /// freezer.
    pub(super) fn around(root: &Root, pid: Pid) -> io::Result<Option<Self>> {
        folder(root, pid)?.map(|folder| Self::open(&folder)).transpose()
    }

    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let switch = File::options().write(true).open(folder.join(SWITCH))?;
        Ok(Self { events: folder.join("cgroup.events"), switch })
    }

    /// The file that freezes with `1` and thaws with `0`.
    pub(super) fn switch(&self) -> BorrowedFd<'_> {
        self.switch.as_fd()
    }

    pub(super) fn set(&self, frozen: bool) -> io::Result<()> {
        self.switch.write_all_at(if frozen { b"1" } else { b"0" }, 0)
    }

    /// Whether the switch is on. A process that waits in the kernel freezes later.
    pub(super) fn is_on(&self) -> io::Result<bool> {
        let switch = fs::read_to_string(self.events.with_file_name(SWITCH))?;
        Ok(switch.trim() == "1")
    }

    /// Whether all processes of the cgroup are frozen.
    pub(super) fn is_frozen(&self) -> io::Result<bool> {
        let events = fs::read_to_string(&self.events)?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }
}

/// Folder of the process's cgroup (version 2); `None` for the root, which has no freezer.
fn folder(root: &Root, pid: Pid) -> io::Result<Option<PathBuf>> {
    let read = |path: String| {
        let bytes = root::read_optional(&root.in_proc(path)).map_err(io::Error::other)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
    };
    let mounts = read("self/mountinfo".to_string())?;
    let membership = read(format!("{pid}/cgroup"))?;
    let mount = mount(&mounts);
    Ok(path(&membership).and_then(|path| Some(mount?.join(path))))
}

fn has_children(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.flatten().any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// The relative path in the version 2 hierarchy by `/proc/PID/cgroup`; `None` for the root.
fn path(membership: &str) -> Option<&str> {
    let line = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // The cgroup is outside the part of the hierarchy that this process sees, or removed.
    let hidden = line.starts_with("../") || line.ends_with(" (deleted)");
    (!line.is_empty() && !hidden).then_some(line)
}

/// Mount point of the hierarchy's root, by `/proc/self/mountinfo`.
fn mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        (kind.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_found_beneath_its_mount() {
        let membership = "4:memory:/a\n0::/system.slice/a b.service\n";
        assert_eq!(path(membership), Some("system.slice/a b.service"));
        assert_eq!(path("0::/\n"), None, "the root");
        assert_eq!(path("0::/../other\n"), None);
        assert_eq!(path("3:cpu:/a\n"), None, "version 1 only");
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu rw shared:5 - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount(""), None);
        assert_eq!(path("0::/own (deleted)\n"), None);
        let part = "41 31 0:38 /jobs /mnt rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(part), None, "a part of the hierarchy");
    }

    /// The freezer of process 7, with these processes in its cgroup.
    fn freezer(processes: &str, has_child: bool) -> (tempfile::TempDir, Option<Freezer>) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        let mounted = directory.path().join("cgroups");
        let own = mounted.join("own");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(root.in_proc("self")).unwrap();
        fs::create_dir_all(root.in_proc("7")).unwrap();
        let mount = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", mounted.display());
        fs::write(root.in_proc("self/mountinfo"), mount).unwrap();
        fs::write(root.in_proc("7/cgroup"), "0::/own\n").unwrap();
        fs::write(own.join("cgroup.procs"), processes).unwrap();
        fs::write(own.join("cgroup.freeze"), "0").unwrap();
        if has_child {
            fs::create_dir(own.join("child")).unwrap();
        }
        let found = Freezer::of(&root, Pid(7));
        (directory, found)
    }

    #[test]
    fn a_cgroup_freezes_only_for_a_process_that_is_alone_in_it() {
        assert!(freezer("7\n", false).1.is_some());
        assert!(freezer("7\n8\n", false).1.is_none(), "another process would stand still");
        assert!(freezer("8\n", false).1.is_none(), "it has just left");
        assert!(freezer("7\n", true).1.is_none(), "so would those beneath");
    }
}
