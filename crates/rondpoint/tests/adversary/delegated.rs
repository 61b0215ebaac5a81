//! `run` whose user may count nothing asks a daemon to manage the program. Then it panics where
//! this test says so. The program runs on, and its status is passed on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rondpoint_core::CpuSet;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::{Value, json};

use crate::harness::Test;
use crate::ledgers;
use crate::panics::{OWN_STATUS, SWITCH, TOLD, has_switch};

pub(crate) const TESTS: &[Test] = &[(
    "delegated::a_program_that_a_daemon_manages_outlives_a_panic_of_run",
    a_program_outlives_a_panic,
)];

/// Number of perf_event_open(2).
const PERF_EVENT_OPEN: i64 = nix::libc::SYS_perf_event_open;
const EACCES: u32 = 13;

/// Becomes another program, which is refused perf_event_open(2).
pub(crate) fn without_counters(command: &[&str]) {
    let arch = std::env::consts::ARCH.try_into().expect("an architecture of seccomp");
    let calls = [(PERF_EVENT_OPEN, Vec::new())].into_iter().collect();
    let (usual, refused) = (SeccompAction::Allow, SeccompAction::Errno(EACCES));
    let filter = SeccompFilter::new(calls, usual, refused, arch).expect("a filter");
    seccompiler::apply_filter(&BpfProgram::try_from(filter).expect("small")).expect("allowed");
    let error = Command::new(command[0]).args(&command[1..]).exec();
    panic!("{}: {error}", command[0]);
}

fn a_program_outlives_a_panic(_: &CpuSet) {
    if !has_switch() {
        return;
    }
    for place in ["", "delegated", "delegated-end"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let listener = UnixListener::bind(path("control")).expect("a socket");
        let daemon = std::thread::spawn(move || serve(&listener));
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("without-counters").arg(env!("CARGO_BIN_EXE_rondpoint"));
        command.arg("run").arg("--socket").arg(path("control"));
        command.args(["--", "sh", "-c", "sleep 0.5; echo > \"$0\"; exit 7"]).arg(path("done"));
        command.env(SWITCH, place).stdin(Stdio::null());
        let output = command.output().expect("it starts");
        let told = format!("{place}: {}", String::from_utf8_lossy(&output.stderr));
        // Where `run` never asks, this connection ends the daemon.
        let _ = UnixStream::connect(path("control"));
        assert!(daemon.join().expect("it does not panic"), "no daemon was asked: {told}");
        let panics = usize::from(!place.is_empty());
        let found = (output.status.code(), told.matches(TOLD).count());
        assert_eq!(found, (Some(OWN_STATUS), panics), "{told}");
        assert!(path("done").exists(), "{told}");
        assert_eq!(ledgers().len(), 0, "{told}");
    }
}

/// A daemon that manages whatever it is asked to. Whether one client asked for that.
fn serve(listener: &UnixListener) -> bool {
    let (stream, _) = listener.accept().expect("a client");
    let mut answers = stream.try_clone().expect("a descriptor");
    let mut has_managed = false;
    for call in BufReader::new(stream).split(0) {
        let Ok(call) = call else { break };
        let call: Value = serde_json::from_slice(&call).expect("JSON");
        let method = call["method"].as_str().unwrap_or_default().to_owned();
        has_managed |= method.ends_with(".Manage");
        let reply = match method.rsplit('.').next() {
            Some("GetStatus") => json!({ "parameters": { "status": status() } }),
            Some("Manage") => json!({ "parameters": { "notes": [] } }),
            _ => json!({ "error": "org.rondpoint.Daemon.NotManaged", "parameters": {} }),
        };
        if answers.write_all(format!("{reply}\0").as_bytes()).is_err() {
            break;
        }
    }
    has_managed
}

/// The least that a daemon says of itself.
fn status() -> Value {
    let sensor = json!({ "rung": "samples", "confidence": 1.0, "generation": "", "notes": [] });
    let verdicts = json!({ "better": 0, "worse": 0, "unclear": 0, "other": 0 });
    let totals = json!({
        "looks": 0, "plans": 0, "page_steps": 0, "thread_steps": 0, "bulk_steps": 0,
        "failed_steps": 0, "held": 0, "moved_bytes": 0, "verdicts": verdicts,
    });
    let own = json!({
        "cpu_s": 0.0, "cpu_share": 0.0, "resident_bytes": 0, "processes_seen": 0,
        "processes_followed": 0, "threads_followed": 0,
    });
    json!({
        "protocol": 1, "version": "", "pid": std::process::id(), "mode": "act", "paused": false,
        "acts": true, "config": "", "policies": [], "at_s": 0.0, "running_s": 0.0,
        "window_s": 0.0, "sensor": sensor, "nodes": [], "distances": [], "links": [],
        "factor": {}, "processes": [], "totals": totals, "others": [], "own": own,
        "problems": [],
    })
}
