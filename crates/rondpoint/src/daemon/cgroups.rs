//! Paths of cgroups from the top of the tree at `/sys/fs/cgroup`. Patterns of the configuration
//! name these, in a container as outside of it.
//!
//! `/proc/PID/cgroup` gives paths from the reader's cgroup namespace. Seen from a container, the
//! path of another one is `/../../other.slice/…`. It has no name of what lies above both
//! (`kernfs_path_from_node`, fs/kernfs/dir.c, Linux 6.12). If the tree of the machine is mounted,
//! this process is found in it, and so are the missing names.

use std::fs;
use std::path::{Path, PathBuf};

use rondpoint_linux::{Root, root};

/// Where the tree is, of version 2. A tree of version 1 or of both has many mounts below it.
const TREE: &str = "/sys/fs/cgroup";
const UP: &str = "..";
/// Levels between the top and the namespace. Containers in Kubernetes have four.
const MOST_LEVELS: usize = 32;
/// Cgroups that are looked through, once. A node of Kubernetes has some hundreds.
const MOST_CGROUPS: usize = 1 << 16;

/// What lies between the top of the tree and the cgroup namespace of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Namespace {
    /// Names from the top down to the namespace's root. `None` if they cannot be found.
    above: Option<Vec<String>>,
}

impl Namespace {
    /// The namespace of this process. It lists the tree only if the tree begins above the
    /// namespace.
    pub(super) fn own(from: &Root) -> Self {
        let above = match levels(from) {
            Some(0) => Some(Vec::new()),
            Some(levels) => names_above(from, levels),
            None => None,
        };
        Self { above }
    }

    /// The path from the top, of a path as `/proc/PID/cgroup` has it. `None` if the cgroup is
    /// outside the tree, or the names above this namespace are not known.
    pub(super) fn path_from_top(&self, seen: &str) -> Option<String> {
        let above = self.above.as_ref()?;
        let up = parts(seen).take_while(|part| *part == UP).count();
        let shared = &above[..above.len().checked_sub(up)?];
        let names = shared.iter().map(String::as_str).chain(parts(seen).skip(up));
        let path: String = names.flat_map(|name| ["/", name]).collect();
        Some(if path.is_empty() { "/".to_owned() } else { path })
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// Levels from the namespace's root up to the root of what is mounted as the tree. Paths of other
/// mounts and of version 1 are from the namespace's root. `None` if the mount has neither.
fn levels(from: &Root) -> Option<usize> {
    let bytes = root::read_optional(&from.in_proc("self/mountinfo")).ok()?;
    let mounts = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    // proc_pid_mountinfo(5): field 4 is the mount's root, field 5 its place. The last is on top.
    let place = |line: &&str| line.split(' ').nth(4) == Some(TREE);
    let Some(line) = mounts.lines().rfind(place) else { return Some(0) };
    let is_unified = line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup2 "));
    let root = line.split(' ').nth(3).unwrap_or_default();
    let up = parts(root).take_while(|part| *part == UP).count();
    match is_unified && up > 0 {
        false => Some(0),
        true => (up <= MOST_LEVELS && parts(root).count() == up).then_some(up),
    }
}

/// The names of the cgroups from the top of the tree down to the namespace's root.
fn names_above(from: &Root, levels: usize) -> Option<Vec<String>> {
    let bytes = root::read_optional(&from.in_proc("self/cgroup")).ok()??;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let below: Vec<&str> = parts(own).collect();
    if below.first() == Some(&UP) {
        return None;
    }
    let top = from.in_sys("fs/cgroup");
    let mut names = search(&top, levels + below.len())?;
    let inside = names.split_off(levels);
    (inside == below).then_some(names)
}

/// The names from `top` down to the cgroup of this process, which is so many levels below it.
fn search(top: &Path, depth: usize) -> Option<Vec<String>> {
    let mut open: Vec<(PathBuf, Vec<String>)> = vec![(top.to_path_buf(), Vec::new())];
    for _ in 0..MOST_CGROUPS {
        let (folder, names) = open.pop()?;
        if names.len() == depth {
            if has_this_process(&folder) {
                return Some(names);
            }
            continue;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            // A path of `/proc/PID/cgroup` is text, too.
            let Ok(name) = entry.file_name().into_string() else { continue };
            open.push((entry.path(), [&names[..], &[name]].concat()));
        }
    }
    None
}

fn has_this_process(cgroup: &Path) -> bool {
    let bytes = root::read_optional(&cgroup.join("cgroup.procs")).ok().flatten();
    let own = std::process::id().to_string();
    bytes.is_some_and(|bytes| String::from_utf8_lossy(&bytes).lines().any(|line| line == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "kubepods.slice/kubepods-burstable.slice/pod1.slice/cri-1.scope";

    /// A machine as a container sees it. `mount`: the root of its mount at `/sys/fs/cgroup`.
    /// `own`: its own path. `holds`: the cgroup in the tree that holds this process.
    fn machine(mount: &str, own: &str, holds: &str) -> (tempfile::TempDir, Namespace) {
        let folder = tempfile::tempdir().unwrap();
        let from = Root::captured(folder.path());
        let put = |path: PathBuf, text: String| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let kinds = "ro,nosuid - cgroup2 cgroup rw";
        let mounts = format!(
            "23 1 0:5 / /sys ro - sysfs sysfs rw\n\
             31 23 0:28 / {TREE} {kinds}\n\
             32 23 0:28 {mount} {TREE} {kinds}\n"
        );
        put(from.in_proc("self/mountinfo"), mounts);
        put(from.in_proc("self/cgroup"), format!("0::{own}\n"));
        for other in ["system.slice/nginx.service", "kubepods.slice/a/b/c", "kubepods.slice/a/b/d"]
        {
            put(from.in_sys(format!("fs/cgroup/{other}/cgroup.procs")), "1\n".into());
        }
        let text = format!("1\n{}\n", std::process::id());
        put(from.in_sys(format!("fs/cgroup/{holds}/cgroup.procs")), text);
        let found = Namespace::own(&from);
        (folder, found)
    }

    fn path(found: &Namespace, seen: &str) -> Option<String> {
        found.path_from_top(seen)
    }

    #[test]
    fn in_a_container_with_the_machines_tree_paths_are_those_of_the_machine() {
        let (_folder, found) = machine("/../../../..", "/", POD);
        for (seen, expected) in [
            ("/", format!("/{POD}")),
            ("/below", format!("/{POD}/below")),
            ("/../cri-2.scope", format!("/{}", POD.replace("cri-1", "cri-2"))),
            (
                "/../../../kubepods-besteffort.slice/pod2.slice",
                "/kubepods.slice/kubepods-besteffort.slice/pod2.slice".to_owned(),
            ),
            ("/../../../../system.slice/nginx.service", "/system.slice/nginx.service".to_owned()),
            ("/../../../..", "/".to_owned()),
        ] {
            assert_eq!(path(&found, seen), Some(expected), "{seen}");
        }
        assert_eq!(path(&found, "/../../../../.."), None, "above the tree");
    }

    #[test]
    fn a_process_below_the_root_of_its_namespace_finds_the_same_names() {
        let (_folder, found) = machine("/../../../..", "/inner", &format!("{POD}/inner"));
        assert_eq!(path(&found, "/inner"), Some(format!("/{POD}/inner")));
        assert_eq!(path(&found, "/../../../../init.scope").as_deref(), Some("/init.scope"));
    }

    #[test]
    fn without_a_namespace_paths_are_as_they_are_read() {
        let (_folder, found) = machine("/", "/system.slice/rondpoint.service", "any");
        for seen in ["/", "/system.slice/nginx.service"] {
            assert_eq!(path(&found, seen).as_deref(), Some(seen));
        }
        // Version 1, and a folder of a tree that another namespace has mounted.
        let (_folder, found) = machine("/docker/1", "/docker/1", "any");
        assert_eq!(path(&found, "/docker/2").as_deref(), Some("/docker/2"));
        let nothing = Namespace::own(&Root::captured(Path::new("/nonexistent")));
        assert_eq!(path(&nothing, "/a").as_deref(), Some("/a"));
    }

    #[test]
    fn a_path_that_cannot_be_told_is_none_and_never_another_one() {
        // The container's own tree only.
        let (_folder, found) = machine("/", "/", "any");
        assert_eq!(path(&found, "/../cri-2.scope"), None);
        // This process is not where it should be, is in another place, or was moved out.
        for (mount, own, holds) in [
            ("/../../../..", "/", "any"),
            ("/../../../..", "/", "system.slice"),
            ("/../../../..", "/inner", &format!("{POD}/outer")),
            ("/../../../..", "/../cri-2.scope", POD),
            ("/../../other", "/", POD),
        ] {
            let (_folder, found) = machine(mount, own, holds);
            for seen in ["/", "/../cri-2.scope", "/system.slice"] {
                assert_eq!(path(&found, seen), None, "{mount} {own} {holds} {seen}");
            }
        }
    }
}
