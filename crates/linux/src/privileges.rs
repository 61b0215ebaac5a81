//! Drops privileges of a command: it keeps a few capabilities, a list of system calls and files to
//! read. Each command does this before it reads files of other users.
//!
//! A dropped privilege does not come back, and later child processes have lost it too. So a program
//! that `run` starts is forked before. `docs/safety.md` has the table.
//!
//! Only commands that read files, and clients of the daemon, use Landlock. A process under Landlock
//! may not read the state of one that is not (`hook_ptrace_access_check`, security/landlock/task.c,
//! Linux 6.12), and a manager has to.

mod calls;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability};
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr,
};

use calls::Calls;

/// The privileges that a command needs after its start-up.
#[derive(Debug, Clone)]
pub struct Needs {
    /// Capabilities to keep, if the caller has them.
    capabilities: Vec<Capability>,
    calls: Calls,
    files: Files,
}

#[derive(Debug, Clone)]
enum Files {
    /// All files that the user may use.
    All,
    /// Reading files beneath a folder, and writing only files of another.
    Read { beneath: PathBuf, written: Option<PathBuf> },
}

/// Capabilities to read other users' processes and send them signals.
const LOOK: [Capability; 3] =
    [Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH, Capability::CAP_KILL];
/// Capabilities to count and sample, with rings above the limit of locked memory.
const COUNT: [Capability; 2] = [Capability::CAP_PERFMON, Capability::CAP_IPC_LOCK];
/// Capability to move other users' pages and threads.
const MOVE: [Capability; 1] = [Capability::CAP_SYS_NICE];
/// Capability to write into another user's cgroup, to freeze it.
const FREEZE: [Capability; 1] = [Capability::CAP_DAC_OVERRIDE];

/// Capabilities to replace a file in another user's folder, and to give it to that user.
const REPLACE: [Capability; 2] = [Capability::CAP_DAC_OVERRIDE, Capability::CAP_CHOWN];

impl Needs {
    fn manager(capabilities: &[&[Capability]]) -> Self {
        let mut kept = capabilities.concat();
        // Before Linux 5.8 counting needs CAP_SYS_ADMIN.
        if kept.contains(&Capability::CAP_PERFMON) && !knows(Capability::CAP_PERFMON) {
            kept.push(Capability::CAP_SYS_ADMIN);
        }
        Self { capabilities: kept, calls: Calls::Manage, files: Files::All }
    }

    /// For `observe`, and for managing without changes: reads processes and counts.
    #[must_use]
    pub fn to_watch() -> Self {
        Self::manager(&[&LOOK, &COUNT])
    }

    /// For `run` and `attach`: reads processes, counts, moves pages and threads.
    #[must_use]
    pub fn to_manage() -> Self {
        Self::manager(&[&LOOK, &COUNT, &MOVE])
    }

    /// For `calibrate`: the same as to manage, and replaces a file in a folder of the caller.
    #[must_use]
    pub fn to_calibrate() -> Self {
        let all = Self::manager(&[&LOOK, &COUNT, &MOVE, &REPLACE]);
        Self { calls: Calls::Replace, ..all }
    }

    /// For `daemon`: reads other users' processes and counts. If it `acts`, it moves; if it
    /// `freezes`, it stops and resumes. It needs no capability for locked memory, whose limit its
    /// unit sets.
    #[must_use]
    pub fn to_serve(acts: bool, freezes: bool) -> Self {
        let mut kept = vec![Capability::CAP_SYS_PTRACE, Capability::CAP_PERFMON];
        kept.extend(if acts { &MOVE[..] } else { &[] });
        if freezes {
            kept.push(Capability::CAP_KILL);
            kept.extend(FREEZE);
        }
        Self { calls: Calls::Serve, ..Self::manager(&[&kept]) }
    }

    /// For `move` and `restore`: reads processes, moves, stops and resumes.
    #[must_use]
    pub fn to_move() -> Self {
        Self::manager(&[&LOOK, &MOVE, &FREEZE])
    }

    /// For `top`: reads files that every user may read, asks a daemon and uses the terminal, which
    /// its library opens again for writing. A file that its user `named` may be another user's.
    #[must_use]
    pub fn to_show(named: bool) -> Self {
        let wanted: &[Capability] = if named { &[Capability::CAP_DAC_READ_SEARCH] } else { &[] };
        Self { capabilities: wanted.to_vec(), calls: Calls::Show, files: Files::All }
    }

    /// For `status` and the like: asks a daemon to which it is already connected.
    #[must_use]
    pub fn to_ask() -> Self {
        let files = Files::Read { beneath: "/".into(), written: None };
        Self { capabilities: Vec::new(), calls: Calls::Ask, files }
    }

    /// For `weights --apply` and `--reset`: reads files, and writes those that its user may write.
    #[must_use]
    pub fn to_set() -> Self {
        let capabilities = vec![Capability::CAP_DAC_READ_SEARCH];
        Self { capabilities, calls: Calls::Read, files: Files::All }
    }

    /// For `decide`, `replay`, `topology` and `weights`: reads files, and writes to open files or
    /// to `written`.
    #[must_use]
    pub fn to_read(written: Option<&Path>) -> Self {
        let folder = |file: &Path| match file.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let files = Files::Read { beneath: "/".into(), written: written.map(folder) };
        let capabilities = vec![Capability::CAP_DAC_READ_SEARCH];
        Self { capabilities, calls: Calls::Read, files }
    }

    /// As [`Needs::to_read`], and reads nothing outside `folder`, whatever its links say.
    #[must_use]
    pub fn to_read_beneath(folder: &Path, written: Option<&Path>) -> Self {
        let mut needs = Self::to_read(written);
        if let Files::Read { beneath, .. } = &mut needs.files {
            *beneath = folder.to_path_buf();
        }
        needs
    }
}

/// Whether the running kernel has a capability.
fn knows(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Bounding, capability).is_ok()
}

/// Drops all other privileges, for this process and those that it starts later. Returns one
/// sentence for each step that this kernel or container refuses. The manager goes on in that case,
/// because its program already runs.
#[must_use]
pub fn keep_only(needs: &Needs) -> Vec<String> {
    let mut kept = Vec::new();
    let mut note = |what: &str, result: Result<(), String>| {
        kept.extend(result.err().map(|error| format!("{what}: {error}")));
    };
    note("capabilities are not dropped", drop_capabilities(&needs.capabilities));
    if let Files::Read { beneath, written } = &needs.files {
        note("files are not restricted", restrict_files(beneath, written.as_deref()));
    }
    note("system calls are not restricted", calls::restrict(needs.calls));
    kept
}

/// Drops all capabilities except `wanted`. The bounding set comes first, because that needs a
/// capability itself. If it stays, `no_new_privs` keeps programs from gaining its capabilities.
fn drop_capabilities(wanted: &[Capability]) -> Result<(), String> {
    let said = |error: caps::errors::CapsError| error.to_string();
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap_or(false) {
        let bounding = caps::read(None, CapSet::Bounding).map_err(said)?;
        for capability in bounding.into_iter().filter(|one| !wanted.contains(one)) {
            caps::drop(None, CapSet::Bounding, capability).map_err(said)?;
        }
    }
    let permitted = caps::read(None, CapSet::Permitted).map_err(said)?;
    let kept: HashSet<Capability> =
        permitted.into_iter().filter(|one| wanted.contains(one)).collect();
    caps::clear(None, CapSet::Ambient).map_err(said)?;
    caps::clear(None, CapSet::Inheritable).map_err(said)?;
    caps::set(None, CapSet::Effective, &kept).map_err(said)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(said)
}

/// Restricts this process by Landlock to reading files `beneath` and writing `written`. A kernel
/// without Landlock is no error, because file permissions and the filter of system calls remain.
fn restrict_files(beneath: &Path, written: Option<&Path>) -> Result<(), String> {
    let all = AccessFs::from_all(ABI::V5);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let restrict = || -> Result<(), Box<dyn std::error::Error>> {
        let rules = Ruleset::default().handle_access(all)?.create()?;
        let mut rules = allow(rules, beneath, read)?;
        if let Some(folder) = written {
            let write = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile;
            rules = allow(rules, folder, write | AccessFs::Truncate | AccessFs::Refer)?;
        }
        rules.restrict_self()?;
        Ok(())
    };
    restrict().map_err(|error| error.to_string())
}

fn allow(
    rules: RulesetCreated,
    folder: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    Ok(rules.add_rule(PathBeneath::new(PathFd::new(folder)?, access))?)
}

#[cfg(test)]
mod tests {
    use landlock::{CompatLevel, Compatible as _};

    use super::*;
    use crate::Root;

    fn status(word: &str) -> String {
        let path = Root::live().in_proc("thread-self/status");
        let text = String::from_utf8(crate::root::read_required(&path).unwrap()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        line.trim_start_matches(':').trim().to_string()
    }

    /// Capabilities are a thread's, so a thread of its own loses them.
    #[test]
    fn only_the_wanted_capabilities_are_left() {
        std::thread::spawn(|| {
            let before = caps::read(None, CapSet::Permitted).unwrap();
            let wanted = [Capability::CAP_SYS_NICE, Capability::CAP_KILL];
            let may_inherit = before.contains(&Capability::CAP_CHOWN);
            if may_inherit {
                caps::raise(None, CapSet::Inheritable, Capability::CAP_CHOWN).unwrap();
            }
            let may_bound = before.contains(&Capability::CAP_SETPCAP);
            drop_capabilities(&wanted).unwrap();
            if may_bound {
                let bounding = caps::read(None, CapSet::Bounding).unwrap();
                assert!(bounding.iter().all(|one| wanted.contains(one)), "{bounding:?}");
            }
            let kept = before.into_iter().filter(|one| wanted.contains(one)).collect();
            for set in [CapSet::Effective, CapSet::Permitted] {
                assert_eq!(caps::read(None, set).unwrap(), kept, "{set:?}");
            }
            assert_eq!((status("CapInh"), status("CapAmb")), (zero(), zero()));
            drop_capabilities(&[]).unwrap();
            assert_eq!((status("CapEff"), status("CapPrm")), (zero(), zero()));
            assert!(kept.is_empty() || status("CapBnd") != zero(), "SETPCAP went with the first");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_daemon_keeps_more_only_if_it_acts_or_freezes() {
        let kept = |acts, freezes| {
            Needs::to_serve(acts, freezes).capabilities.into_iter().collect::<HashSet<_>>()
        };
        let watches = kept(false, false);
        assert!(watches.iter().all(|one| !MOVE.contains(one) && !FREEZE.contains(one)));
        assert!(!watches.contains(&Capability::CAP_KILL));
        assert_eq!(kept(true, false), watches.iter().copied().chain(MOVE).collect());
        let all = kept(true, false).into_iter().chain(FREEZE).chain([Capability::CAP_KILL]);
        assert_eq!(kept(true, true), all.collect());
    }

    fn zero() -> String {
        "0".repeat(16)
    }

    fn has_landlock() -> bool {
        let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        strict.handle_access(AccessFs::WriteFile).is_ok()
    }

    #[test]
    fn a_reader_beneath_a_folder_follows_no_link_out_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, secret) = (folder.path().join("tree"), folder.path().join("secret"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(&secret, "of another user").unwrap();
        std::fs::write(tree.join("own"), "of the tree").unwrap();
        std::os::unix::fs::symlink(&secret, tree.join("link")).unwrap();
        let results = std::thread::spawn(move || {
            restrict_files(&tree, None).unwrap();
            (std::fs::read(tree.join("own")).is_ok(), std::fs::read(tree.join("link")).is_err())
        });
        assert_eq!(results.join().unwrap(), (true, has_landlock()));
    }

    /// Landlock restricts the calling thread. `tests/landlock.rs` has the commands that write.
    #[test]
    fn a_reader_without_an_output_writes_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "before").unwrap();
        let results = std::thread::spawn(move || {
            restrict_files(Path::new("/"), None).unwrap();
            (std::fs::read(&file).is_ok(), std::fs::write(&file, "x").is_err())
        });
        assert_eq!(results.join().unwrap(), (true, has_landlock()));
    }
}
