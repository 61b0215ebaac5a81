//! The cpuset of a process and its CPUs.
//!
//! `/proc/PID/cpuset` names it in either version of cgroups: the nearest group above the process
//! for which the controller is switched on.

use std::collections::BTreeMap;
use std::path::Path;

use rondpoint_core::{CpuSet, Pid};

use crate::LinuxError;
use crate::kept::Kept;
use crate::parse::cpulist;
use crate::root::{self, Root};

/// Most processes whose files are kept open (our choice).
const MAX_KEPT: usize = 512;

/// Cpusets of processes that are read repeatedly, with files kept open.
#[derive(Debug, Default)]
pub struct Cpusets {
    files: BTreeMap<Pid, Kept>,
}

impl Cpusets {
    /// As [`path_of`].
    ///
    /// # Errors
    /// As [`path_of`].
    pub fn path_of(&mut self, root: &Root, pid: Pid) -> Result<Option<String>, LinuxError> {
        let keep = self.files.len() < MAX_KEPT;
        let new = || Kept::new(root.in_proc(format!("{pid}/cpuset")), keep);
        self.files.entry(pid).or_insert_with(new).read(|bytes| Ok(path(bytes))).map(Option::flatten)
    }

    /// Closes the files of processes that do not exist any more.
    pub fn retain(&mut self, is_there: impl Fn(Pid) -> bool) {
        self.files.retain(|pid, _| is_there(*pid));
    }
}

/// The cpuset's path in the file's text; `None` if it has none.
fn path(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    text.starts_with('/').then_some(text)
}

/// Path of a process's cpuset; `None` if the process has ended or the kernel has no cpusets.
///
/// # Errors
/// Any error of the kernel except absence.
pub fn path_of(root: &Root, pid: Pid) -> Result<Option<String>, LinuxError> {
    let bytes = root::read_optional(&root.in_proc(format!("{pid}/cpuset")))?;
    Ok(bytes.as_deref().and_then(path))
}

/// The effective CPUs of a cpuset, the kernel's numbers. `None` if they cannot be read, as for a
/// group outside the cgroup namespace of this process. The kernel tells such a group as `/../other`
/// (cgroup_namespaces(7)), which would lead out of the mounted hierarchy.
#[must_use]
pub fn cpus(root: &Root, path: &str) -> Option<CpuSet> {
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let inside = Path::new(path.trim_start_matches('/'));
    let read = |base: &str, file: &str| {
        let file = root.in_sys("fs/cgroup").join(base).join(inside).join(file);
        let list = cpulist::parse(&root::read_optional(&file).ok()??).ok()?;
        let cpus: CpuSet = list.iter().map(|&cpu| cpu as usize).collect();
        (!cpus.is_empty()).then_some(cpus)
    };
    // Cgroup version 2, version 1, and version 1 before Linux 3.17.
    read("", "cpuset.cpus.effective")
        .or_else(|| read("cpuset", "cpuset.effective_cpus"))
        .or_else(|| read("cpuset", "cpuset.cpus"))
}

/// The effective CPUs of a process's cpuset.
#[must_use]
pub fn cpus_of(root: &Root, pid: Pid) -> Option<CpuSet> {
    cpus(root, &path_of(root, pid).ok()??)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_cpuset_of_a_process_is_named_and_has_cpus_in_either_version() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        fs::create_dir_all(root.in_proc("7")).unwrap();
        fs::write(root.in_proc("7/cpuset"), "/jobs/a\n").unwrap();
        assert_eq!(path_of(&root, Pid(7)).unwrap().as_deref(), Some("/jobs/a"));
        assert_eq!(path_of(&root, Pid(8)).unwrap(), None);
        let mut kept = Cpusets::default();
        let mut again = |pid| kept.path_of(&root, Pid(pid)).unwrap();
        assert_eq!((again(7).as_deref(), again(8)), (Some("/jobs/a"), None));
        fs::write(root.in_proc("7/cpuset"), "/jobs/b\n").unwrap();
        assert_eq!(again(7).as_deref(), Some("/jobs/b"));
        fs::write(root.in_proc("7/cpuset"), "/jobs/a\n").unwrap();
        assert_eq!(cpus_of(&root, Pid(7)), None);
        for (folder, file, list) in [
            ("fs/cgroup/cpuset/jobs/a", "cpuset.effective_cpus", "1,3"),
            ("fs/cgroup/jobs/a", "cpuset.cpus.effective", "2-3,200"),
        ] {
            fs::create_dir_all(root.in_sys(folder)).unwrap();
            fs::write(root.in_sys(folder).join(file), format!("{list}\n")).unwrap();
            assert_eq!(cpus_of(&root, Pid(7)).unwrap().to_string(), list);
        }
    }

    #[test]
    fn a_cpuset_outside_the_namespace_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        for folder in ["fs/cgroup", "fs/other", "fs/cgroup/other"] {
            fs::create_dir_all(root.in_sys(folder)).unwrap();
            fs::write(root.in_sys(folder).join("cpuset.cpus.effective"), "0\n").unwrap();
        }
        assert_eq!(cpus(&root, "/../other"), None);
        assert_eq!(cpus(&root, "/.."), None);
        assert!(cpus(&root, "/").is_some() && cpus(&root, "/other").is_some());
    }

    #[test]
    fn this_process_has_at_least_the_cpus_that_it_runs_on() {
        let own = crate::syscall::affinity::get(0).unwrap();
        // A kernel without cpusets says nothing.
        if let Some(cpus) = cpus_of(&Root::live(), Pid(std::process::id())) {
            assert!(own.is_subset(&cpus), "{own} of {cpus}");
        }
    }
}
