//! Containers: PID namespaces that share a folder of ledgers and cannot see each other, with limits
//! of memory that nobody in them can raise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

#[path = "harness/patience.rs"]
mod patience;

const PATIENCE: Duration = Duration::from_secs(60);
/// Waits until a manager has made its ledger.
const UNTIL_LEDGER: &str = "until ls /run/rondpoint/*.ledger >/dev/null 2>&1; do :; done";

/// Runs a script in a container: new PID and user namespaces whose `/run` is `folder`. The script
/// is the first process.
fn container(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--mount-proc", "--fork", "--kill-child"]);
    let run = folder.display();
    command.args(["sh", "-c", &format!("mount --bind '{run}' /run && {script}")]);
    command.env_remove("RUNTIME_DIRECTORY").stdin(Stdio::null());
    command
}

fn can_make_containers() -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let made = container(folder.path(), "true").stderr(Stdio::null()).status();
    let made = made.is_ok_and(|status| status.success());
    if !made {
        println!("not tried: this user may not make namespaces");
    }
    made
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("rondpoint")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn with_extension(folder: &Path, extension: &str) -> usize {
    let all = files(folder);
    all.iter().filter(|path| path.extension().is_some_and(|found| found == extension)).count()
}

/// A container that runs a script until it is ended.
struct Running(Child);

impl Running {
    /// Starts it. The script makes a file `begun` in its `/run`.
    fn start(folder: &Path, script: &str) -> Self {
        let mut inside = container(folder, script);
        let inside = inside.stderr(Stdio::null()).spawn().expect("util-linux has unshare");
        let is_begun = || folder.join("begun").exists();
        assert!(patience::comes(PATIENCE, is_begun), "{:?}", files(folder));
        Self(inside)
    }

    /// Kills the first process. When it has ended, all have.
    fn end(mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let first = fs::read_to_string(children).expect("it has a child");
        let killed = Command::new("kill").args(["-9", first.trim()]).status();
        assert!(killed.expect("kill runs").success());
        self.0.wait().expect("ours");
    }
}

fn restore(folder: &Path) -> (Output, String) {
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    said(container(folder, &format!("exec {rondpoint} restore")))
}

/// What came of a command, and what it said on stderr.
fn said(mut command: Command) -> (Output, String) {
    let output = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, told)
}

#[test]
fn a_container_that_ended_with_its_manager_leaves_nothing_to_undo() {
    if !can_make_containers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let begun = format!("({UNTIL_LEDGER}; touch /run/begun) &");
    let script = format!("{{ {begun} exec {rondpoint} run --quiet -- sleep 60; }}");
    Running::start(folder.path(), &script).end();
    let (output, told) = restore(folder.path());
    assert!(output.status.success(), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("all processes of its PID namespace have ended"), "{told}");
    assert_eq!(with_extension(folder.path(), "ledger"), 0);
    assert_eq!(with_extension(folder.path(), "ended"), 1);
    let (output, told) = restore(folder.path());
    assert!(output.status.success() && told.is_empty(), "{told}");
}

/// `rondpoint restore` outside of all containers; what it says.
fn restore_outside(folder: &Path) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.arg("restore").env("RUNTIME_DIRECTORY", folder.join("rondpoint"));
    said(command)
}

#[test]
fn a_container_whose_manager_was_not_its_first_process_may_live_and_keeps_its_ledger() {
    if !can_make_containers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let killed = format!("{rondpoint} run --quiet -- sleep 60 & {UNTIL_LEDGER}; kill -9 $!");
    let script = format!("{{ {killed}; wait $!; touch /run/begun; exec sleep 60; }}");
    let living = Running::start(folder.path(), &script);
    let (output, told) = restore(folder.path());
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("in other namespaces"), "{told}");
    let (output, told) = restore_outside(folder.path());
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("in other namespaces"), "{told}");
    assert_eq!(with_extension(folder.path(), "ledger"), 1);
    living.end();
    // Outside, all processes can be seen.
    let own = fs::read_link("/proc/self/ns/pid").expect("/proc");
    if own != Path::new("pid:[4026531836]") {
        println!("not tried further: not all processes of the machine can be seen here");
        return;
    }
    // A container of another test may have the number of the namespace meanwhile.
    let mut told = String::new();
    let is_told = patience::comes(PATIENCE, || {
        told = restore_outside(folder.path()).1;
        told.contains("its PID namespace have ended")
    });
    assert!(is_told, "{told}");
    assert_eq!(with_extension(folder.path(), "ended"), 1);
}

/// Runs a script, in which `$R` is the command, with limits of memory that cannot be raised.
fn limited(folder: &Path, limit: &str, script: &str) -> (Option<i32>, String, String) {
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let script = format!("R={rondpoint}; ulimit {limit}; {script}");
    let output = { container(folder, &script) }.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Who has left a mask narrowed must be able to put it back with the means that are left.
#[test]
fn restore_and_the_daemons_clients_work_with_any_stack() {
    if !can_make_containers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // A child that has not begun its program has the ledger's lock yet.
    let program = "sh -c 'touch /run/begun; exec sleep 60'";
    let run = format!("(ulimit -S -s 8192; exec $R run --quiet -- {program}) &");
    let killed = format!("{run} until [ -e /run/begun ]; do :; done; kill -9 $!; wait $!");
    // With less, the loader ends programs before their first instruction.
    let script = format!("{killed}; ulimit -s 16; exec $R restore");
    let (code, said, errors) = limited(folder.path(), "-S -s 64", &script);
    assert_eq!((code, &said[..11]), (Some(0), "1 ledger un"), "{said}{errors}");
    assert_eq!(with_extension(folder.path(), "ledger"), 0);
    for command in ["status", "pause", "resume", "leave 1", "manage 1", "reload", "explain 1"] {
        let (code, _, errors) = limited(folder.path(), "-s 64", &format!("exec $R {command}"));
        assert_eq!(code, Some(1), "{command}: {errors}");
        assert!(errors.lines().count() == 1, "{command}: {errors}");
        assert!(errors.contains("no daemon answers"), "{command}: {errors}");
    }
}

#[test]
fn with_too_little_memory_a_manager_says_so_in_one_line_and_begins_nothing() {
    if !can_make_containers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let configuration = folder.path().join("rondpoint.toml");
    fs::write(&configuration, "mode = \"observe\"\n").expect("room for a file");
    let daemon = format!("daemon --config {}", configuration.display());
    let calibrate = format!("calibrate --output {}/machine.toml", folder.path().display());
    let expected = ("-d 50000", "the limit of private memory is 50000 KiB (ulimit -d)");
    let little = ("-v 300000", " bytes of memory: Cannot allocate memory");
    for (command, (limit, told)) in [
        (daemon.as_str(), expected),
        ("move --pid 1 --from 0 --to 0", expected),
        ("run -- true", expected),
        ("attach $!", expected),
        (calibrate.as_str(), little),
    ] {
        let (code, said, errors) =
            limited(folder.path(), limit, &format!("sleep 60 & exec $R {command}"));
        assert!(code.is_some_and(|code| code > 0), "{command}: {said}{errors}");
        let lines = errors.lines().filter(|line| !line.contains("warning: "));
        assert_eq!(lines.count(), 1, "{command}: {errors}");
        assert!(errors.contains(told), "{command}: {errors}");
    }
}
