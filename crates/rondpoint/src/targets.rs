//! Finds running programs by number, name, systemd unit or cgroup.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Result, bail};
use rondpoint_core::Pid;
use rondpoint_linux::parse::stat::{self, TaskStat};
use rondpoint_linux::{Root, root};

use crate::daemon::rules;
use crate::session;

/// Processes that a message lists.
const LISTED: usize = 8;
/// Bytes of a process's name that the kernel keeps (`TASK_COMM_LEN`, include/linux/sched.h, less
/// the byte that ends it).
pub(crate) const NAME_BYTES: usize = 15;
/// Words of a command line that may name its program: an interpreter, its option, its script.
const NAMING_WORDS: usize = 3;

/// A program, or all of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Process(u32),
    /// One process with this name.
    Name(String),
    /// All of a unit of systemd.
    Unit(String),
    /// All of a cgroup and of those below it.
    Cgroup(String),
}

/// What the help says of a target.
pub(crate) const EXPLAINED: &str = "A number, a name (name:postgres, or postgres alone), a unit \
                                    (unit:nginx.service) or a cgroup (cgroup:/machine.slice)";

impl Target {
    /// Reads what was typed.
    ///
    /// # Errors
    /// What was expected, for the user.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_sound = |name: &str| !name.is_empty() && !name.chars().any(char::is_control);
        let named = |name: &str, make: fn(String) -> Self| match is_sound(name) {
            true => Ok(make(name.to_owned())),
            false if name.is_empty() && text.contains(':') => {
                Err(format!("expected something behind the colon; {EXPLAINED}"))
            }
            false => Err(format!("expected a name without control characters; {EXPLAINED}")),
        };
        match text.split_once(':') {
            Some(("name", name)) => named(name, Self::Name),
            // The kernel tells a group outside the cgroup namespace as `/../other`.
            Some(("unit", name)) if name.contains('/') || name == ".." => {
                Err("expected a unit's name".to_owned())
            }
            // As for systemctl.
            Some(("unit", name)) if !name.is_empty() && !name.contains('.') => {
                named(&format!("{name}.service"), Self::Unit)
            }
            Some(("unit", name)) => named(name, Self::Unit),
            Some(("cgroup", path)) if path.starts_with('/') => named(path, Self::Cgroup),
            Some(("cgroup", _)) => Err("expected a path such as cgroup:/machine.slice".to_owned()),
            _ if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') => {
                let number = session::process_number(text).map(Self::Process);
                number.map_err(|expected| {
                    format!("{expected}, or name:{text} for a program of that name")
                })
            }
            _ => named(text, Self::Name),
        }
    }

    /// Whether it stands for all processes of a set, be they one or many.
    pub(crate) fn is_set(&self) -> bool {
        matches!(self, Self::Unit(_) | Self::Cgroup(_))
    }

    /// The processes that it stands for, without descendants of others among them: each is
    /// managed with what it has started. Never this process itself.
    ///
    /// # Errors
    /// There is none; several processes have the name, or several cgroups are of the unit.
    pub(crate) fn find(&self, from: &Root) -> Result<Vec<u32>> {
        if let Self::Process(pid) = self {
            session::process_of(from, Pid(*pid))?;
            return Ok(vec![*pid]);
        }
        let all = processes(from)?;
        let chosen: Vec<u32> = match self {
            Self::Process(_) => Vec::new(),
            Self::Name(name) => {
                let has_name = |(pid, stat): &(&u32, &TaskStat)| is_named(from, **pid, stat, name);
                all.iter().filter(has_name).map(|(pid, _)| *pid).collect()
            }
            Self::Unit(unit) => self.of_unit(from, &all, unit)?,
            Self::Cgroup(path) => {
                let path = path.trim_end_matches('/');
                let inside = |found: &str| {
                    found
                        .strip_prefix(path)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                let is_in = |pid: &u32| cgroup(from, *pid).is_some_and(|found| inside(&found));
                all.keys().copied().filter(is_in).collect()
            }
        };
        let tops: Vec<u32> =
            chosen.iter().copied().filter(|pid| !has_ancestor(&all, *pid, &chosen)).collect();
        match (&tops[..], self) {
            ([], _) => bail!("{self}: no such process, or not visible to this user"),
            ([_, _, ..], Self::Name(name)) => {
                let list: Vec<String> = tops.iter().take(LISTED).map(ToString::to_string).collect();
                let more = if tops.len() > LISTED { ", …" } else { "" };
                bail!(
                    "{self}: {} processes have the name {name}: {}{more}; expected one, or its \
                     number, unit or cgroup",
                    tops.len(),
                    list.join(", ")
                )
            }
            _ => Ok(tops),
        }
    }

    /// Processes of a unit, which may be in one cgroup only: each user's manager may have such a
    /// unit.
    fn of_unit(&self, from: &Root, all: &BTreeMap<u32, TaskStat>, unit: &str) -> Result<Vec<u32>> {
        let mut found = BTreeMap::<String, Vec<u32>>::new();
        for pid in all.keys() {
            let Some(path) = cgroup(from, *pid) else { continue };
            let mut whole = String::new();
            for part in path.split('/').skip(1) {
                whole = whole + "/" + part;
                if part == unit {
                    found.entry(whole.clone()).or_default().push(*pid);
                }
            }
        }
        if found.len() > 1 {
            let list: Vec<String> =
                found.keys().take(LISTED).map(|path| format!("cgroup:{path}")).collect();
            bail!("{self}: there are {}: {}; expected one", found.len(), list.join(", "));
        }
        Ok(found.into_values().next().unwrap_or_default())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Name(name) => write!(f, "name:{name}"),
            Self::Unit(unit) => write!(f, "unit:{unit}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
        }
    }
}

/// All processes but this one and the kernel's threads.
fn processes(from: &Root) -> Result<BTreeMap<u32, TaskStat>> {
    let mut found = BTreeMap::new();
    for name in root::list(&from.proc)? {
        let Ok(pid) = name.parse::<u32>() else { continue };
        // A process that has gone meanwhile, or that this user may not see, is left out.
        let bytes = root::read_optional(&from.in_proc(format!("{name}/stat"))).ok().flatten();
        let Some(stat) = bytes.and_then(|bytes| stat::parse(&bytes).ok()) else { continue };
        if !stat.is_kernel_thread && stat.is_alive() && pid != std::process::id() {
            found.insert(pid, stat);
        }
    }
    Ok(found)
}

/// Whether a process has this name. The kernel cuts a long name, so the command line or the file
/// of the program has to confirm it.
fn is_named(from: &Root, pid: u32, stat: &TaskStat, name: &str) -> bool {
    if name.len() <= NAME_BYTES {
        return stat.name == name;
    }
    if stat.name != String::from_utf8_lossy(&name.as_bytes()[..NAME_BYTES]) {
        return false;
    }
    let is_it = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(name.as_bytes());
    let line = root::read_optional(&from.in_proc(format!("{pid}/cmdline"))).ok().flatten();
    let line = line.unwrap_or_default();
    let file = || {
        let path = std::fs::read_link(from.in_proc(format!("{pid}/exe"))).ok()?;
        let path = path.as_os_str().as_bytes();
        Some(is_it(path.strip_suffix(b" (deleted)").unwrap_or(path)))
    };
    line.split(|byte| *byte == 0).take(NAMING_WORDS).any(is_it) || file().unwrap_or(false)
}

fn cgroup(from: &Root, pid: u32) -> Option<String> {
    let bytes = root::read_optional(&from.in_proc(format!("{pid}/cgroup"))).ok()??;
    rules::cgroup(&String::from_utf8_lossy(&bytes)).map(str::to_owned)
}

fn has_ancestor(all: &BTreeMap<u32, TaskStat>, pid: u32, among: &[u32]) -> bool {
    let parent = |pid: u32| all.get(&pid).map(|stat| stat.parent).filter(|parent| *parent != pid);
    let ancestors = std::iter::successors(parent(pid), |pid| parent(*pid));
    // A process number that came again could close a circle.
    ancestors.take(all.len()).any(|one| among.contains(&one))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::captured(folder.path());
        for (pid, name, parent, cgroup) in [
            (1, "init", 0, "/init.scope"),
            (10, "nginx", 1, "/system.slice/nginx.service"),
            (11, "nginx", 10, "/system.slice/nginx.service"),
            (20, "postgres", 1, "/system.slice/pg@a.service"),
            (21, "postgres", 1, "/system.slice/pg@b.service/inner"),
            (30, "agent", 1, "/user.slice/user-1.slice/agent.service"),
            (31, "agent2", 1, "/user.slice/user-2.slice/agent.service"),
            (40, "two words", 1, "/jobs/a"),
            (41, "b", 1, "/jobs/a/deep"),
            (42, "c", 41, "/jobs/ab"),
            (50, "prometheus-node", 1, "/tests/c"),
            (51, "prometheus-node", 1, "/tests/c"),
            (52, "prometheus-node", 1, "/tests/c"),
            (53, "node-maintenanc", 1, "/tests/c"),
        ] {
            let place = root.in_proc(pid.to_string());
            fs::create_dir_all(&place).expect("made");
            let numbers = "0 ".repeat(48);
            fs::write(place.join("stat"), format!("{pid} ({name}) S {parent} {numbers}\n"))
                .expect("written");
            fs::write(place.join("cgroup"), format!("0::{cgroup}\n")).expect("written");
        }
        for (pid, line) in [
            (50, "/usr/bin/prometheus-node-exporter\0--quiet\0"),
            (51, "prometheus-node-other\0--of\0prometheus-node\0prometheus-node-exporter\0"),
            (53, "/usr/bin/python3\0-u\0/opt/node-maintenance.py\0"),
        ] {
            fs::write(root.in_proc(format!("{pid}/cmdline")), line).expect("written");
        }
        let file = "/opt/prometheus-node-third (deleted)";
        std::os::unix::fs::symlink(file, root.in_proc("52/exe")).expect("a link");
        (folder, root)
    }

    fn say(text: &str) -> String {
        let (_folder, root) = machine();
        match Target::parse(text).map(|target| target.find(&root)) {
            Ok(Ok(found)) => format!("{found:?}"),
            Ok(Err(error)) => format!("{error:#}"),
            Err(error) => error,
        }
    }

    #[test]
    fn a_name_is_one_process_with_what_it_started_or_a_list() {
        assert_eq!(say("nginx"), "[10]", "its child is managed with it");
        assert_eq!(say("name:two words"), "[40]");
        let expected = "name:postgres: 2 processes have the name postgres: 20, 21; expected one, \
                        or its number, unit or cgroup";
        assert_eq!(say("postgres"), expected);
        assert_eq!(
            say("name:nothing"),
            "name:nothing: no such process, or not visible to this user"
        );
    }

    #[test]
    fn a_name_longer_than_the_kernels_is_found_and_no_namesake() {
        assert_eq!(say("prometheus-node-exporter"), "[50]");
        assert_eq!(say("prometheus-node-third"), "[52]", "by its file");
        assert_eq!(say("node-maintenance.py"), "[53]", "a script");
        assert!(
            say("prometheus-node").contains("3 processes have the name"),
            "as the kernel has it"
        );
        let nobody = say("prometheus-node-fourth");
        assert!(nobody.ends_with("no such process, or not visible to this user"), "{nobody}");
    }

    #[test]
    fn a_unit_and_a_cgroup_are_all_their_processes() {
        assert_eq!(say("unit:nginx"), "[10]");
        assert_eq!(say("unit:pg@b.service"), "[21]", "a cgroup below the unit's own");
        let expected = "unit:agent.service: there are 2: \
                        cgroup:/user.slice/user-1.slice/agent.service, \
                        cgroup:/user.slice/user-2.slice/agent.service; expected one";
        assert_eq!(say("unit:agent"), expected);
        assert_eq!(say("cgroup:/jobs/a"), "[40, 41]", "not of its namesake /jobs/ab");
        assert_eq!(say("cgroup:/jobs/"), "[40, 41]");
        assert_eq!(say("cgroup:/system.slice"), "[10, 20, 21]");
    }

    #[test]
    fn what_is_no_target_is_refused() {
        assert!(!say("").contains("colon") && !say("a\tb").contains("colon"));
        assert!(
            say("7zip").ends_with("or name:7zip for a program of that name"),
            "{}",
            say("7zip")
        );
        for bad in [
            "",
            "name:",
            "unit:",
            "cgroup:",
            "cgroup:jobs",
            "unit:a/b",
            "unit:..",
            "0",
            "-1",
            "12x",
        ] {
            let said = say(bad);
            assert!(said.contains("expected"), "{bad:?}: {said}");
        }
        assert_eq!(say("4711"), "process 4711: no such process");
    }
}
