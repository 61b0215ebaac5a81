//! Drops privileges of a command: it keeps a few capabilities, a list of system calls and files to
//! read. Each command does this before it reads files of other users.
//!
//! A dropped privilege does not come back, and later child processes have lost it too. So a program
//! that `run` starts is forked before. `docs/safety.md` has the table.
//!
//! Only commands that read files use Landlock. A process under Landlock may not read the state of
//! one that is not (`hook_ptrace_access_check`, security/landlock/task.c, Linux 6.12), and a
//! manager has to.

mod calls;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability};
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr,
};

use calls::Calls;

/// What a command needs from the moment that it is ready.
#[derive(Debug, Clone)]
pub struct Needs {
    /// Capabilities, as far as its caller has them.
    capabilities: Kept,
    calls: Calls,
    files: Files,
}

#[derive(Debug, Clone)]
enum Kept {
    All,
    Only(Vec<Capability>),
}

#[derive(Debug, Clone)]
enum Files {
    /// As the user may.
    All,
    /// Reads any, and writes only files of this folder.
    Read { written: Option<PathBuf> },
}

/// Looking into processes of others, and telling them signals.
const LOOK: [Capability; 3] =
    [Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH, Capability::CAP_KILL];
/// Counting and sampling, with rings above the limit of locked memory.
const COUNT: [Capability; 2] = [Capability::CAP_PERFMON, Capability::CAP_IPC_LOCK];
/// Moving pages and threads of others.
const MOVE: [Capability; 1] = [Capability::CAP_SYS_NICE];
/// Writing into the cgroup of another user, to freeze it.
const FREEZE: [Capability; 1] = [Capability::CAP_DAC_OVERRIDE];

impl Needs {
    fn manager(capabilities: &[&[Capability]]) -> Self {
        let mut kept = capabilities.concat();
        // Before Linux 5.8 one capability stood for counting and much else.
        if kept.contains(&Capability::CAP_PERFMON) && !knows(Capability::CAP_PERFMON) {
            kept.push(Capability::CAP_SYS_ADMIN);
        }
        Self { capabilities: Kept::Only(kept), calls: Calls::Manage, files: Files::All }
    }

    /// `observe`, and managing without changing anything: looks and counts.
    #[must_use]
    pub fn to_watch() -> Self {
        Self::manager(&[&LOOK, &COUNT])
    }

    /// `run` and `attach`: looks, counts, moves.
    #[must_use]
    pub fn to_manage() -> Self {
        Self::manager(&[&LOOK, &COUNT, &MOVE])
    }

    /// `daemon`: looks into processes of others and counts; where it acts, moves; where it may
    /// freeze, stops and lets go on. Nothing else: locked memory is its unit's limit, and what it
    /// reads of others needs no more than to be allowed to look.
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

    /// `move` and `restore`: looks, moves, freezes and lets go on.
    #[must_use]
    pub fn to_move() -> Self {
        Self::manager(&[&LOOK, &MOVE, &FREEZE])
    }

    /// `doctor`: tells what its caller may do, and so keeps every capability.
    #[must_use]
    pub fn to_diagnose() -> Self {
        Self { capabilities: Kept::All, calls: Calls::Manage, files: Files::All }
    }

    /// `top`: reads files, asks a daemon and has the terminal. What sets that up opens it anew and
    /// makes many calls, so only capabilities are dropped.
    #[must_use]
    pub fn to_show() -> Self {
        let capabilities = Kept::Only(vec![Capability::CAP_DAC_READ_SEARCH]);
        Self { capabilities, calls: Calls::All, files: Files::All }
    }

    /// `decide`, `replay` and `topology`: read files, and write to what is open already or to this
    /// file.
    #[must_use]
    pub fn to_read(written: Option<&Path>) -> Self {
        let folder = |file: &Path| match file.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let files = Files::Read { written: written.map(folder) };
        let capabilities = Kept::Only(vec![Capability::CAP_DAC_READ_SEARCH]);
        Self { capabilities, calls: Calls::Read, files }
    }
}

/// Whether the running kernel has a capability.
fn knows(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Bounding, capability).is_ok()
}

/// Gives up everything else, for this process and all that it starts from now on. Returns one
/// sentence for each thing that this kernel or container does not let it give up. The manager goes
/// on in that case, because its program runs already.
#[must_use]
pub fn keep_only(needs: &Needs) -> Vec<String> {
    let mut kept = Vec::new();
    let mut note = |what: &str, result: Result<(), String>| {
        kept.extend(result.err().map(|error| format!("{what}: {error}")));
    };
    if let Kept::Only(capabilities) = &needs.capabilities {
        note("capabilities are not dropped", drop_capabilities(capabilities));
    }
    if let Files::Read { written } = &needs.files {
        note("files are not restricted", restrict_files(written.as_deref()));
    }
    if needs.calls != Calls::All {
        note("system calls are not restricted", calls::restrict(needs.calls));
    }
    kept
}

/// The bounding set first: that needs a capability itself. Without it the set stays, and
/// `no_new_privs` keeps a program from gaining anything of it.
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

/// Files may be read, and nothing of them changed or executed. A kernel without Landlock is no
/// failure: file permissions and the list of system calls are left.
fn restrict_files(written: Option<&Path>) -> Result<(), String> {
    let all = AccessFs::from_all(ABI::V5);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let restrict = || -> Result<(), Box<dyn std::error::Error>> {
        let rules = Ruleset::default().handle_access(all)?.create()?;
        let mut rules = allow(rules, Path::new("/"), read)?;
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
            drop_capabilities(&wanted).unwrap();
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

    fn zero() -> String {
        "0".repeat(16)
    }

    #[test]
    fn a_reader_of_files_writes_only_into_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let written = folder.path().join("written");
        std::fs::create_dir(&written).unwrap();
        let (inside, outside) = (written.join("a"), folder.path().join("b"));
        std::fs::write(&outside, "before").unwrap();
        let results = std::thread::spawn(move || {
            restrict_files(Some(&written)).unwrap();
            let read = std::fs::read(&outside).is_ok();
            (read, std::fs::write(inside, "x").is_ok(), std::fs::write(outside, "x").is_err())
        });
        let (read, inside, refused) = results.join().unwrap();
        assert!(read && inside);
        let has_landlock = std::path::Path::new("/sys/kernel/security/landlock").exists();
        assert!(refused || !has_landlock);
    }
}
