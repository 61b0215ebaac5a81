//! The manager panics where a test says so. The program runs on, its status is passed on, its
//! threads have their masks again, and no ledger is left.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;
use rondpoint_core::CpuSet;
use rondpoint_linux::probe;
use rondpoint_linux::syscall::process::kill;

use crate::attached;
use crate::harness::Test;
use crate::ledgers;
use crate::patience::comes;
use crate::worker::Worker;

pub(crate) const TESTS: &[Test] = &[
    ("panics::a_program_outlives_a_panic_of_its_manager", of_run),
    ("panics::a_program_outlives_a_panic_of_its_observer", of_observe),
    ("panics::a_panic_of_attach_leaves_nothing_behind", of_attach),
];

/// Names the place of the panic (`session::panic_if_told`).
pub(crate) const SWITCH: &str = "RONDPOINT_PANIC";

/// What the manager says then.
pub(crate) const TOLD: &str = "a fault of rondpoint";

/// Status of the managed program.
pub(crate) const OWN_STATUS: i32 = 7;
/// Status of a failure of ours.
const OWN_FAILURE: i32 = 125;

/// Long enough for a machine that does ten other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends when it is told to, and leaves a worker behind.
const PROGRAM: &str =
    "\"$1\" as-worker \"$2\" & while [ ! -e \"$3\" ]; do sleep 0.05; done; exit 7";

/// Whether the manager has the switch; says so if it has not.
pub(crate) fn has_switch() -> bool {
    let has_switch = cfg!(debug_assertions);
    if !has_switch {
        println!("not tried: a release build panics nowhere on demand");
    }
    has_switch
}

fn of_run(own: &CpuSet) {
    for place in ["watch", "begin", "step", "end", "report"] {
        // Without that right, watching begins before the program does.
        if place == "watch" && probe::whole_cpu().is_err() {
            println!("not tried: {place}: this user may not count the whole machine");
        } else if has_switch() {
            run(place, own);
        }
    }
}

fn run(place: &str, own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let worker = Worker::named_in(path("ready"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["run", "--policy", "shuffle", "--quiet", "--", "sh", "-c", PROGRAM, "sh"]);
    command.arg(std::env::current_exe().expect("this program"));
    command.arg(path("ready")).arg(path("stop")).env(SWITCH, place).stdin(Stdio::null());
    // A file: the worker lives on and would hold a pipe open.
    command.stderr(File::create(path("errors")).expect("a file"));
    let mut manager = command.spawn().expect("it starts");
    let said = || std::fs::read_to_string(path("errors")).expect("text");
    let has_acted = || said().contains(TOLD) || worker.narrow_threads(own) > 1;
    let has_begun = comes(PATIENCE, || worker.is_ready() && has_acted());
    assert!(has_begun && worker.goes_on(), "{place}: {}", said());
    std::fs::write(path("stop"), "").expect("written");
    let status = manager.wait().expect("ours");
    let told = format!("{place}: {}", said());
    assert_eq!((status.code(), told.matches(TOLD).count()), (Some(OWN_STATUS), 1), "{told}");
    assert!(!told.contains("an earlier manager was killed"), "{told}");
    assert_eq!(
        worker.narrow_threads(own),
        1,
        "only the bound thread has a mask of its own: {told}"
    );
    assert_eq!(ledgers().len(), 0, "{told}");
}

fn of_observe(_: &CpuSet) {
    for place in ["look", "summary"] {
        if !has_switch() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let done = folder.path().join("done");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(["observe", "--interval", "0.05", "--", "sh", "-c"]);
        command.args(["sleep 0.5; echo > \"$0\"; exit 7"]).arg(&done).env(SWITCH, place);
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let told = format!("{place}: {}", String::from_utf8_lossy(&output.stderr));
        let status = output.status.code();
        assert_eq!((status, told.matches(TOLD).count()), (Some(OWN_STATUS), 1), "{told}");
        assert!(done.exists(), "{told}");
    }
}

fn of_attach(own: &CpuSet) {
    if !has_switch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, worker) = attached::program(folder.path());
    for place in ["begin", "end", "report"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(["attach", "--policy", "shuffle", "--quiet", &worker.pid().to_string()]);
        command.env(SWITCH, place).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut manager = command.spawn().expect("it starts");
        let mut has_ended = false;
        let has_acted = comes(PATIENCE, || {
            has_ended = manager.try_wait().expect("ours").is_some();
            has_ended || worker.narrow_threads(own) > 1
        });
        assert!(has_acted, "{place}: it does nothing");
        if !has_ended {
            kill(manager.id() as i32, libc::SIGTERM).expect("ours");
        }
        let output = manager.wait_with_output().expect("ours");
        let told = format!("{place}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(OWN_FAILURE), "{told}");
        assert!(told.contains(TOLD), "{told}");
        assert!(!told.contains("an earlier manager was killed"), "{told}");
        assert!(worker.narrow_threads(own) == 1 && worker.goes_on(), "{told}");
        assert_eq!(ledgers().len(), 0, "{told}");
    }
    drop(worker);
    child.wait().expect("ours");
}
