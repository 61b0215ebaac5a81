//! Single clauses of the contract, seen from the system calls of the real manager.

use std::path::PathBuf;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use rondpoint_core::CpuSet;
use rondpoint_linux::probe;

use crate::harness::Test;
use crate::ledgers;
use crate::restore::restore;
use crate::tracer::{Fate, trace};
use crate::worker::Worker;

pub(crate) const TESTS: &[Test] = &[
    ("clauses::a_program_waits_for_no_counter", a_program_waits_for_no_counter),
    ("clauses::a_dry_run_changes_nothing", dry_run_changes_nothing),
    (
        "clauses::the_ledger_knows_each_mask_before_it_is_set",
        the_ledger_knows_each_mask_before_it_is_set,
    ),
    (
        "clauses::without_room_for_the_ledger_nothing_is_changed",
        without_room_for_the_ledger_nothing_is_changed,
    ),
    (
        "clauses::the_next_manager_puts_back_what_a_killed_one_left",
        the_next_manager_puts_back_what_a_killed_one_left,
    ),
    (
        "clauses::the_ordinary_end_puts_back_what_outlives_the_program",
        the_ordinary_end_puts_back_what_outlives_the_program,
    ),
];

/// Names of the file by which a worker says that it is ready. The main thread of the second worker
/// has ended then, and its other threads live on.
pub(crate) const READY: [&str; 2] = ["ready", "ready.headless"];

/// Masks that a manager sets before a test has seen enough.
pub(crate) const ENOUGH: usize = 6;

/// Calls of a dry run that a test watches: some seconds of managing.
const DRY_CALLS: usize = 3_000;

/// A managed worker, and where it says that it is ready.
pub(crate) fn managed(folder: &std::path::Path, options: &[&str]) -> (Command, Worker) {
    let ready = folder.join("ready");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["run", "--policy", "shuffle", "--quiet"]).args(options).arg("--");
    command.arg(std::env::current_exe().expect("this program")).arg("as-worker").arg(&ready);
    (command, Worker::named_in(ready))
}

/// Whether a call changes a thread, a page or a process.
fn acts(call: i64) -> bool {
    [libc::SYS_sched_setaffinity, libc::SYS_move_pages, libc::SYS_migrate_pages].contains(&call)
}

/// Where Rondpoint may count whatever runs, the program begins first; elsewhere it may need the
/// daemon.
fn a_program_waits_for_no_counter(_: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (command, _worker) = managed(folder.path(), &[]);
    let own = std::fs::canonicalize(command.get_program()).expect("a program");
    let mut has_begun = None;
    trace(&command, |call| {
        let task = call.second as i32;
        if call.number == libc::SYS_perf_event_open && task > 0 {
            let runs = std::fs::read_link(format!("/proc/{task}/exe")).expect("it waits or runs");
            has_begun = Some(runs != own);
            return Fate::Kill;
        }
        Fate::Pass
    });
    restore();
    assert_eq!(has_begun, Some(probe::whole_cpu().is_ok()));
}

fn dry_run_changes_nothing(_: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (command, worker) = managed(folder.path(), &["--dry-run"]);
    let (mut seen, mut acted) = (0, 0);
    trace(&command, |call| {
        seen += usize::from(worker.is_ready());
        acted += usize::from(worker.is_ready() && acts(call.number));
        if seen > DRY_CALLS { Fate::Kill } else { Fate::Pass }
    });
    restore();
    assert_eq!((seen > DRY_CALLS, acted), (true, 0));
}

/// The text of all ledgers that there are.
pub(crate) fn ledger_text() -> String {
    let paths: Vec<PathBuf> = ledgers();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
}

fn the_ledger_knows_each_mask_before_it_is_set(_: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (command, worker) = managed(folder.path(), &[]);
    let (mut set, mut unknown) = (0, 0);
    trace(&command, |call| {
        if worker.is_ready() && call.number == libc::SYS_sched_setaffinity {
            set += 1;
            let tid = format!("\"tid\":{},", call.first);
            let is_entry = |line: &str| line.contains("\"entry\":\"mask\"") && line.contains(&tid);
            unknown += usize::from(!ledger_text().lines().any(is_entry));
        }
        if set == ENOUGH { Fate::Kill } else { Fate::Pass }
    });
    restore();
    assert_eq!((set, unknown), (ENOUGH, 0));
}

fn without_room_for_the_ledger_nothing_is_changed(_: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (command, worker) = managed(folder.path(), &[]);
    let (mut refused, mut acted, mut seen) = (0, 0, 0);
    trace(&command, |call| {
        let begun = worker.is_ready();
        seen += usize::from(begun);
        acted += usize::from(begun && acts(call.number));
        if seen > DRY_CALLS {
            return Fate::Kill;
        }
        let is_write = [libc::SYS_write, libc::SYS_writev].contains(&call.number);
        refused += usize::from(begun && is_write);
        if begun && is_write { Fate::Fail(Errno::ENOSPC) } else { Fate::Pass }
    });
    restore();
    assert!(refused > 0 && acted == 0, "{refused} writes refused, {acted} changes");
}

fn the_next_manager_puts_back_what_a_killed_one_left(own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (command, worker) = managed(folder.path(), &[]);
    let mut set = 0;
    trace(&command, |call| {
        set += usize::from(worker.is_ready() && call.number == libc::SYS_sched_setaffinity);
        if set == ENOUGH { Fate::Kill } else { Fate::Pass }
    });
    assert!(worker.narrow_threads(own) > 1, "the killed manager had narrowed a mask");
    let mut next = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    let output = next.args(["run", "--quiet", "--", "true"]).output().expect("it starts");
    assert!(output.status.success());
    assert_eq!(worker.narrow_threads(own), 1, "only the bound thread has a mask of its own");
    assert_eq!(restore()["ledgers"], 0);
}

fn the_ordinary_end_puts_back_what_outlives_the_program(own: &CpuSet) {
    READY.iter().for_each(|name| ordinary_end(name, own));
}

fn ordinary_end(name: &str, own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join(name);
    let worker = Worker::named_in(ready.clone());
    let stop = folder.path().join("stop");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["run", "--policy", "shuffle", "--quiet", "--", "sh", "-c"]);
    command.arg("\"$1\" as-worker \"$2\" & while [ ! -e \"$3\" ]; do sleep 0.05; done; exit 3");
    command.arg("sh").arg(std::env::current_exe().expect("this program")).arg(&ready).arg(&stop);
    let mut set = 0;
    let (ended, errors) = trace(&command, |call| {
        set += usize::from(worker.is_ready() && call.number == libc::SYS_sched_setaffinity);
        if set == ENOUGH && !stop.exists() {
            std::fs::write(&stop, "").expect("written");
        }
        Fate::Pass
    });
    assert!(set >= ENOUGH, "{ended:?} {errors}");
    assert_eq!(
        worker.narrow_threads(own),
        1,
        "only the bound thread has a mask of its own: {name} {ended:?} {errors}"
    );
    assert_eq!(restore()["ledgers"], 0, "{name} {ended:?} {errors}");
}
