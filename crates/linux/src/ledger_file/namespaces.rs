//! The namespaces that give the numbers and times of a ledger their meaning, and what a ledger of
//! other namespaces means here.
//!
//! A PID namespace that has ended never lives again: the kernel kills all its processes when its
//! first process ends (`zap_pid_ns_processes`, kernel/pid_namespace.c, Linux 6.12).

use std::fs;

use rondpoint_core::Pid;

use crate::root::{self, Root, is_absent};

/// Link of the machine's first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST: &str = "pid:[4026531836]";
/// Unit of start times in `/proc/PID/stat`, ns (`USER_HZ`).
const TICK_NS: i128 = 10_000_000;
const SECOND_NS: i128 = 1_000_000_000;

/// The PID namespace, and the time namespace's offset of the boot clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Namespaces {
    /// Link of the PID namespace: `pid:[NUMBER]`.
    pid: String,
    /// What the time namespace adds to the time since boot, ns.
    offset_ns: i128,
}

/// What the entries of a ledger mean here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// They name processes of this namespace, with times that are this much smaller, ns.
    Here(i128),
    /// All processes that they name have ended.
    Ended,
    /// They name processes that may live and are not known here by these numbers.
    Elsewhere {
        /// Namespaces of the ledger.
        theirs: String,
        /// Namespaces of this process.
        own: String,
    },
}

impl Namespaces {
    /// Namespaces of this process. `None` where `/proc` does not name them.
    pub(super) fn own(root: &Root) -> Option<Self> {
        let pid = link(root, "self").ok()?;
        // Kernels before Linux 5.6 have one time for all.
        let offsets = fs::read_to_string(root.in_proc("self/timens_offsets")).unwrap_or_default();
        let boot = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
        Some(Self { pid, offset_ns: offset(boot.unwrap_or("0 0"))? })
    }

    /// As [`Namespaces::text`] writes them.
    fn read(text: &str) -> Option<Self> {
        let (pid, boot) = text.split_once(" boottime ")?;
        Some(Self { pid: pid.to_string(), offset_ns: offset(boot)? })
    }

    /// The text for a ledger.
    pub(super) fn text(&self) -> String {
        let (seconds, rest) =
            (self.offset_ns.div_euclid(SECOND_NS), self.offset_ns.rem_euclid(SECOND_NS));
        format!("{} boottime {seconds} {rest}", self.pid)
    }
}

/// Seconds and nanoseconds, as one number.
fn offset(words: &str) -> Option<i128> {
    let mut words = words.split_whitespace().map(|word| word.parse::<i64>().ok());
    Some(i128::from(words.next()??) * SECOND_NS + i128::from(words.next()??))
}

fn link(root: &Root, process: &str) -> std::io::Result<String> {
    let target = fs::read_link(root.in_proc(process).join("ns/pid"))?;
    Ok(target.display().to_string())
}

/// The meaning of a ledger whose dead manager had the number `manager` in the namespaces `theirs`.
/// Ledgers of older versions name no namespaces and belong to these.
pub(super) fn meaning(root: &Root, theirs: Option<&str>, manager: Pid) -> Meaning {
    let (Some(text), Some(own)) = (theirs, Namespaces::own(root)) else { return Meaning::Here(0) };
    let elsewhere = || Meaning::Elsewhere { theirs: text.to_string(), own: own.text() };
    let Some(theirs) = Namespaces::read(text) else { return elsewhere() };
    let earlier_ns = theirs.offset_ns - own.offset_ns;
    match theirs.pid == own.pid {
        // The kernel rounds start times after it has added the offset.
        true if earlier_ns % TICK_NS == 0 => Meaning::Here(earlier_ns),
        true => elsewhere(),
        // The first process of a namespace ends it.
        false if manager == Pid(1) || has_ended(root, &own, &theirs.pid) => Meaning::Ended,
        false => elsewhere(),
    }
}

/// Whether it is certain that no process lives in a PID namespace. Only a process that sees all
/// processes of the machine can be certain.
fn has_ended(root: &Root, own: &Namespaces, namespace: &str) -> bool {
    if own.pid != FIRST || hides_processes(root) {
        return false;
    }
    let Ok(names) = root::list(&root.proc) else { return false };
    // The namespace's first process lives as long as it does, so a listing contains it.
    names.iter().filter(|name| name.parse::<u32>().is_ok()).all(|name| match link(root, name) {
        Ok(found) => found != namespace,
        Err(error) => is_absent(&error) || is_in_no_other(root, name),
    })
}

/// Whether a process with an unreadable link is in the PID namespace of `/proc` only, or has ended.
/// The kernel refuses links of ended processes, too (`proc_ns_readlink`, fs/proc/namespaces.c).
fn is_in_no_other(root: &Root, process: &str) -> bool {
    let status = match root::read_optional(&root.in_proc(process).join("status")) {
        Ok(Some(status)) => status,
        Ok(None) => return true,
        Err(_) => return false,
    };
    // A process has a number in each of its namespaces.
    let status = String::from_utf8_lossy(&status);
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// Whether a mount of `/proc` may hide processes of others (`hidepid`), or that is not known.
fn hides_processes(root: &Root) -> bool {
    let Ok(mounts) = fs::read_to_string(root.in_proc("self/mounts")) else { return true };
    let of_proc = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("proc"));
    of_proc.into_iter().any(|line| line.contains("hidepid="))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    const NESTED: &str = "pid:[7]";
    const OTHER: &str = "pid:[8] boottime 0 0";

    /// A `/proc` with these processes in these namespaces.
    fn machine(folder: &Path, processes: &[(&str, &str)]) -> Root {
        let root = Root::captured(folder);
        for (name, namespace) in processes {
            fs::create_dir_all(root.in_proc(name).join("ns")).unwrap();
            symlink(namespace, root.in_proc(name).join("ns/pid")).unwrap();
        }
        fs::write(root.in_proc("self/mounts"), "proc /proc proc rw,nosuid 0 0\n").unwrap();
        root
    }

    fn is_elsewhere(found: &Meaning) -> bool {
        matches!(found, Meaning::Elsewhere { .. })
    }

    #[test]
    fn a_namespace_has_ended_if_no_process_of_the_whole_machine_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let processes = [("self", FIRST), ("1", FIRST), ("12", NESTED)];
        let root = machine(folder.path(), &processes);
        let of = |theirs| meaning(&root, Some(theirs), Pid(30));
        assert_eq!(of(OTHER), Meaning::Ended);
        assert!(is_elsewhere(&of("pid:[7] boottime 0 0")), "process 12 lives there");
        fs::write(root.in_proc("self/mounts"), "proc /proc proc rw,hidepid=2 0 0\n").unwrap();
        assert!(is_elsewhere(&of(OTHER)), "a process of it may be hidden");
        fs::remove_file(root.in_proc("self/mounts")).unwrap();
        assert!(is_elsewhere(&of(OTHER)), "it is not known what is hidden");
    }

    #[test]
    fn a_process_that_cannot_be_read_may_be_in_any_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let root = machine(folder.path(), &[("self", FIRST), ("1", FIRST)]);
        fs::create_dir_all(root.in_proc("9/ns/pid")).unwrap();
        let of = || meaning(&root, Some(OTHER), Pid(30));
        let status = |text: &str| fs::write(root.in_proc("9/status"), text).unwrap();
        status("Name:\tx\n");
        assert!(is_elsewhere(&of()));
        status("Name:\tx\nNSpid:\t9\t1\n");
        assert!(is_elsewhere(&of()), "it has a number in another namespace");
        status("Name:\tx\nNSpid:\t9\n");
        assert_eq!(of(), Meaning::Ended);
        fs::remove_file(root.in_proc("9/status")).unwrap();
        assert_eq!(of(), Meaning::Ended, "it has ended meanwhile");
    }

    /// There, processes of other namespaces cannot be seen.
    #[test]
    fn in_a_nested_namespace_only_the_end_of_a_first_process_proves_that_all_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let root = machine(folder.path(), &[("self", NESTED), ("1", NESTED)]);
        assert!(is_elsewhere(&meaning(&root, Some(OTHER), Pid(30))));
        assert_eq!(meaning(&root, Some(OTHER), Pid(1)), Meaning::Ended);
        let own = format!("{NESTED} boottime 0 0");
        assert_eq!(meaning(&root, Some(&own), Pid(1)), Meaning::Here(0), "a program lives on");
    }

    #[test]
    fn times_of_another_time_namespace_are_converted_if_that_is_exact() {
        let folder = tempfile::tempdir().unwrap();
        let root = machine(folder.path(), &[("self", NESTED)]);
        let offsets = "monotonic           0         0\nboottime          100         0\n";
        fs::write(root.in_proc("self/timens_offsets"), offsets).unwrap();
        assert_eq!(Namespaces::own(&root).unwrap().text(), "pid:[7] boottime 100 0");
        let of = |text: &str| meaning(&root, Some(&format!("{NESTED} boottime {text}")), Pid(30));
        assert_eq!(of("100 0"), Meaning::Here(0));
        assert_eq!(of("0 0"), Meaning::Here(-100 * SECOND_NS));
        assert_eq!(of("101 20000000"), Meaning::Here(SECOND_NS + 2 * TICK_NS));
        assert_eq!(of("-5 0"), Meaning::Here(-105 * SECOND_NS));
        assert!(is_elsewhere(&of("100 5")), "the kernel may have rounded up");
        assert!(is_elsewhere(&of("soon")));
    }
}
