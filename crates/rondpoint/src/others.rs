//! Other programs and settings that place memory or threads on this machine. Another Rondpoint is
//! recognised by the claims on its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::{fs, io};

use rondpoint_core::Pid;
use rondpoint_linux::observe::kernel::numa_balancing;
use rondpoint_linux::observe::offers::{Feature, Offer, offer};
use rondpoint_linux::probe;
use rondpoint_linux::syscall::process::effective_user;
use rondpoint_linux::{Root, root};

use crate::control::protocol::Other;

/// Programs that place the memory or the threads of whole processes.
const MANAGERS: [&str; 3] = ["numad", "oeaware", "memtierd"];
/// What the kernel calls DAMON's threads, before their number.
const DAMON_THREAD: &str = "kdamond.";
const DAMON: &str = "kernel/mm/damon/admin/kdamonds";
/// DAMON's actions that move memory to another node
/// (Documentation/admin-guide/mm/damon/usage.rst, from Linux 6.11 on).
const MOVING: [&str; 2] = ["migrate_hot", "migrate_cold"];

/// All other managers that are found among processes, by command and number, and in `/sys`.
/// Nothing here needs privilege, but program files of others need it.
pub(crate) fn find<'a>(from: &Root, processes: impl Iterator<Item = (&'a str, Pid)>) -> Vec<Other> {
    let mut others = Vec::new();
    let mut damon_threads = 0;
    for (command, pid) in processes {
        if MANAGERS.contains(&command) {
            others.extend(manager(from, command, pid));
        } else if command.starts_with(DAMON_THREAD) {
            damon_threads += u32::from(probe::is_kernel_thread(from, pid));
        }
    }
    others.extend(sched_ext(from));
    others.extend(damon(from, damon_threads));
    others.extend(cache_aware(from));
    others.extend(balancing(from));
    others
}

/// Whether one of them places whole processes, as the daemon would.
pub(crate) fn is_rival(other: &Other) -> bool {
    MANAGERS.contains(&other.kind.as_str())
}

/// A process by the name of a manager, if it is one by all that no user can choose.
///
/// A user chooses the name, as by a link `numad` to a set-user-ID program, and so its effective
/// user. The real user, the program file and the PID namespace are the kernel's word.
fn manager(from: &Root, name: &str, pid: Pid) -> Option<Other> {
    let user = user_of_this_machine(from, pid)?;
    let how = match fs::read_link(from.in_proc(format!("{pid}/exe"))) {
        Ok(file) if program(&file) == Some(name.as_bytes()) => "by its program file",
        Ok(_) => return None,
        // It has ended, or is a thread of the kernel.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        // In doubt nothing is changed. A daemon that may not read this link may not look into
        // processes of other users at all, so it has little to change.
        Err(_) => "by its name: its program file cannot be read",
    };
    let what = format!(
        "{name} places whole processes here: the daemon changes nothing while it runs (process \
         {pid} of user {user}, recognised {how})"
    );
    Some(Other { kind: name.to_string(), pid: Some(pid.0), what })
}

/// The user of a process: root or this one. `None` if its real, effective, saved and file system
/// users differ, as in a set-user-ID program. `None` also in another PID namespace than that of
/// `/proc`, as in a container.
fn user_of_this_machine(from: &Root, pid: Pid) -> Option<u32> {
    let status = root::read_optional(&from.in_proc(format!("{pid}/status"))).ok()??;
    let status = String::from_utf8_lossy(&status);
    let numbers = |word: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(word))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    let users = numbers("Uid:")?;
    let user = *users.first()?;
    let is_trusted = [0, effective_user()].contains(&user) && users.iter().all(|one| *one == user);
    // A process has a number in each namespace from that of `/proc` to its own (Linux 4.1).
    let is_here = numbers("NSpid:").is_none_or(|numbers| numbers.len() == 1);
    (is_trusted && is_here).then_some(user)
}

/// Name of a program's file, which an upgrade may have removed since the program began.
fn program(file: &Path) -> Option<&[u8]> {
    let name = file.file_name()?.as_bytes();
    Some(name.strip_suffix(b" (deleted)").unwrap_or(name))
}

fn text(from: &Root, path: &str) -> Option<String> {
    let bytes = root::read_optional(&from.in_sys(path)).ok()??;
    Some(String::from_utf8_lossy(&bytes).trim().to_string())
}

/// `/sys/kernel/sched_ext` (Linux 6.12).
fn sched_ext(from: &Root) -> Option<Other> {
    if text(from, "kernel/sched_ext/state")? != "enabled" {
        return None;
    }
    let name = text(from, "kernel/sched_ext/root/ops").unwrap_or_else(|| "unknown".to_string());
    let what = format!(
        "the sched_ext scheduler {name} places threads: it keeps to their masks, and so the daemon's moves of threads bind it"
    );
    Some(Other { kind: "sched_ext".to_string(), pid: None, what })
}

/// A scheme of DAMON that runs (Documentation/admin-guide/mm/damon/usage.rst).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scheme {
    action: String,
    /// Whose memory it watches; empty where it watches physical memory.
    pids: BTreeSet<Pid>,
}

/// The schemes of all contexts that are on.
fn schemes(from: &Root) -> Vec<Scheme> {
    let below = |folder: &str| -> Vec<String> {
        let names = root::list(&from.in_sys(folder)).unwrap_or_default();
        let numbers = names.into_iter().filter(|name| name.parse::<u32>().is_ok());
        numbers.map(|name| format!("{folder}/{name}")).collect()
    };
    let is_on =
        |thread: &String| text(from, &format!("{thread}/state")).is_some_and(|state| state == "on");
    let threads = below(DAMON).into_iter().filter(is_on);
    let contexts = threads.flat_map(|thread| below(&format!("{thread}/contexts")));
    let mut found = Vec::new();
    for context in contexts {
        let watched = below(&format!("{context}/targets"));
        let pids: BTreeSet<Pid> = watched
            .iter()
            .filter_map(|target| text(from, &format!("{target}/pid_target"))?.parse().ok())
            .filter(|pid| *pid > 0)
            .map(Pid)
            .collect();
        for scheme in below(&format!("{context}/schemes")) {
            if let Some(action) = text(from, &format!("{scheme}/action")) {
                found.push(Scheme { action, pids: pids.clone() });
            }
        }
    }
    found
}

/// Processes whose memory a scheme of DAMON moves: they are DAMON's, by the scheme's action.
pub(crate) fn moved_by_damon(from: &Root) -> BTreeMap<Pid, String> {
    let moving = schemes(from).into_iter().filter(|one| MOVING.contains(&one.action.as_str()));
    moving
        .flat_map(|one| {
            let Scheme { action, pids } = one;
            pids.into_iter().map(move |pid| (pid, action.clone()))
        })
        .collect()
}

/// Schemes that only watch are no manager. The files are root's; the threads are seen by everybody.
fn damon(from: &Root, threads: u32) -> Option<Other> {
    let found = schemes(from);
    let moving: BTreeSet<&str> = found
        .iter()
        .map(|scheme| scheme.action.as_str())
        .filter(|action| MOVING.contains(action))
        .collect();
    let is_readable = !found.is_empty() || text(from, &format!("{DAMON}/nr_kdamonds")).is_some();
    let what = match (moving.is_empty(), is_readable) {
        (false, _) => format!(
            "DAMON moves memory ({}): its moves do not count as Rondpoint's",
            moving.into_iter().collect::<Vec<_>>().join(", ")
        ),
        (true, false) if threads > 0 => {
            "DAMON runs; only root sees whether it moves memory, which counts as moved by others"
                .to_string()
        }
        (true, _) => return None,
    };
    Some(Other { kind: "damon".to_string(), pid: None, what })
}

/// The scheduler's balancing by last-level cache. Only root sees its switch.
fn cache_aware(from: &Root) -> Option<Other> {
    let what = "the kernel's scheduler gathers threads that share memory at one cache: masks prevail over it";
    (offer(from, Feature::CacheAware) == Offer::On).then(|| Other {
        kind: "cache_aware".to_string(),
        pid: None,
        what: what.to_string(),
    })
}

fn balancing(from: &Root) -> Option<Other> {
    let found = numa_balancing(from)?;
    let what = match (found.ordinary, found.tiering) {
        (false, false) => return None,
        (true, false) => {
            "the kernel's NUMA balancing is on: it moves pages too, and trials tell which moves helped"
        }
        (false, true) => "the kernel's memory tiering is on: it promotes hot pages from slow nodes",
        (true, true) => "the kernel's NUMA balancing and memory tiering are on",
    };
    Some(Other { kind: "numa_balancing".to_string(), pid: None, what: what.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "0\t0\t0\t0";

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let from = Root::captured(folder.path());
        (folder, from)
    }

    /// What `/proc` says of a process: its four users, its numbers and its program file.
    fn process(from: &Root, pid: u32, users: &str, numbers: &str, file: &str) {
        let folder = from.in_proc(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let status = format!("Name:\tnumad\nUid:\t{users}\nNSpid:\t{numbers}\n");
        fs::write(folder.join("status"), status).unwrap();
        std::os::unix::fs::symlink(file, folder.join("exe")).unwrap();
    }

    /// A thread with these flags of `/proc/PID/stat`.
    fn thread(from: &Root, pid: u32, flags: u32) {
        fs::create_dir_all(from.in_proc(pid.to_string())).unwrap();
        let line = format!("{pid} (kdamond.0) S 2 0 0 0 -1 {flags}{}\n", " 0".repeat(43));
        fs::write(from.in_proc(format!("{pid}/stat")), line).unwrap();
    }

    /// `PF_KTHREAD` of include/linux/sched.h.
    const KERNELS: u32 = 0x0020_0000;

    fn kinds(from: &Root, processes: &[(&str, Pid)]) -> Vec<String> {
        find(from, processes.iter().copied()).into_iter().map(|other| other.kind).collect()
    }

    #[test]
    fn managers_schedulers_and_the_kernels_balancing_are_named() {
        let (_folder, from) = machine(&[
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "rusty\n"),
            ("sys/kernel/debug/sched/llc_balancing/enabled", "1\n"),
            ("proc/sys/kernel/numa_balancing", "2\n"),
        ]);
        process(&from, 7, ROOT, "7", "/usr/bin/numad");
        let processes = [("bash", Pid(6)), ("numad", Pid(7)), ("memtierd", Pid(8))];
        let found = find(&from, processes.into_iter());
        let kinds: Vec<&str> = found.iter().map(|other| other.kind.as_str()).collect();
        assert_eq!(kinds, ["numad", "sched_ext", "cache_aware", "numa_balancing"]);
        assert!(found[1].what.contains("rusty"), "{}", found[1].what);
        let rivals: Vec<_> = found.iter().filter(|other| is_rival(other)).collect();
        assert_eq!(rivals.iter().map(|one| one.pid).collect::<Vec<_>>(), [Some(7)]);
        let (_nothing, from) = machine(&[]);
        assert!(find(&from, [("bash", Pid(6))].into_iter()).is_empty());
    }

    #[test]
    fn damon_is_a_manager_where_it_moves_memory_and_its_targets_are_its_own() {
        let one = format!("sys/{DAMON}/1/contexts/0");
        let (state, count) = (format!("sys/{DAMON}/1/state"), format!("sys/{DAMON}/nr_kdamonds"));
        let (action, target) =
            (format!("{one}/schemes/0/action"), format!("{one}/targets/0/pid_target"));
        let with = |state_text: &str, action_text: &str| {
            let (folder, from) = machine(&[
                (&count, "2\n"),
                (&state, state_text),
                (&action, action_text),
                (&target, "41\n"),
            ]);
            self::thread(&from, 9, KERNELS);
            (folder, from)
        };
        let thread = [("kdamond.1", Pid(9))];
        let (_moves, from) = with("on\n", "migrate_hot\n");
        assert_eq!(kinds(&from, &thread), ["damon"]);
        assert_eq!(moved_by_damon(&from), BTreeMap::from([(Pid(41), "migrate_hot".to_string())]));
        let (_watches, from) = with("on\n", "stat\n");
        assert_eq!(kinds(&from, &thread), [""; 0]);
        assert!(moved_by_damon(&from).is_empty());
        let (_off, from) = with("off\n", "migrate_hot\n");
        assert_eq!(kinds(&from, &thread), [""; 0]);
        let (_unreadable, from) = machine(&[]);
        self::thread(&from, 9, KERNELS);
        assert_eq!(kinds(&from, &thread), ["damon"], "its thread is seen");
    }

    #[test]
    fn a_name_of_a_manager_counts_for_nothing_if_another_user_chose_it() {
        const STRANGERS: &str = "65534\t65534\t65534\t65534";
        for (users, numbers, file, expected) in [
            (ROOT, "7", "/usr/sbin/numad", true),
            (ROOT, "7", "/usr/bin/numad (deleted)", true),
            (STRANGERS, "7", "/srv/stranger/numad", false),
            // A link to a set-user-ID program, such as su, sudo with all users root, or a hard one.
            ("65534\t0\t0\t0", "7", "/usr/bin/su", false),
            (ROOT, "7", "/usr/bin/sudo", false),
            ("65534\t0\t0\t0", "7", "/srv/stranger/numad", false),
            // A script, and libvirt's link to this program.
            (ROOT, "7", "/usr/bin/dash", false),
            (ROOT, "7", "/usr/bin/rondpoint", false),
            // In a container it may be root, too.
            (ROOT, "7\t1", "/usr/bin/numad", false),
        ] {
            let (_folder, from) = machine(&[]);
            process(&from, 7, users, numbers, file);
            let found = kinds(&from, &[("numad", Pid(7))]);
            assert_eq!(!found.is_empty(), expected, "{users:?} {numbers:?} {file}");
        }
        let (_folder, from) = machine(&[]);
        thread(&from, 9, 0);
        assert_eq!(kinds(&from, &[("kdamond.0", Pid(9))]), [""; 0], "no thread of the kernel");
        thread(&from, 9, KERNELS);
        assert_eq!(kinds(&from, &[("kdamond.0", Pid(9))]), ["damon"]);
    }

    #[test]
    fn a_manager_is_told_with_how_it_was_recognised_and_counts_in_doubt() {
        let (_folder, from) = machine(&[]);
        process(&from, 7, ROOT, "7", "/usr/bin/numad");
        let told = || find(&from, [("numad", Pid(7))].into_iter()).pop().map(|other| other.what);
        let begin = "numad places whole processes here: the daemon changes nothing while it runs \
                     (process 7 of user 0, recognised ";
        assert_eq!(told(), Some(format!("{begin}by its program file)")));
        let link = from.in_proc("7/exe");
        fs::remove_file(&link).unwrap();
        assert_eq!(told(), None, "it has ended");
        // No link: the kernel refuses to read one that this user may not read.
        fs::write(&link, "").unwrap();
        let unread = "by its name: its program file cannot be read)";
        assert_eq!(told(), Some(format!("{begin}{unread}")));
    }
}
