//! Ledgers of containers: PID namespaces that share a folder and cannot see each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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

/// Starts a manager in a container, and ends the container as soon as there is a ledger.
fn killed(folder: &Path, script: &str) {
    let mut inside = container(folder, script);
    let mut inside: Child = inside.stderr(Stdio::null()).spawn().expect("util-linux has unshare");
    let deadline = Instant::now() + Duration::from_secs(60);
    while with_extension(folder, "ledger") == 0 {
        assert!(Instant::now() < deadline, "no ledger in {:?}", files(folder));
        std::thread::yield_now();
    }
    // When the first process has ended, all have.
    let children = format!("/proc/{0}/task/{0}/children", inside.id());
    let first = fs::read_to_string(children).expect("it has a child");
    let killed = Command::new("kill").args(["-9", first.trim()]).status().expect("kill runs");
    assert!(killed.success());
    inside.wait().expect("ours");
}

fn restore(folder: &Path) -> (Output, String) {
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let output = container(folder, &format!("exec {rondpoint} restore"));
    let output = { output }.output().expect("it starts");
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
    killed(folder.path(), &format!("exec {rondpoint} run --quiet -- sleep 60"));
    let (output, told) = restore(folder.path());
    assert!(output.status.success(), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("all processes of its PID namespace have ended"), "{told}");
    assert_eq!(with_extension(folder.path(), "ledger"), 0);
    assert_eq!(with_extension(folder.path(), "ended"), 1);
    let (output, told) = restore(folder.path());
    assert!(output.status.success() && told.is_empty(), "{told}");
}

#[test]
fn a_container_whose_manager_was_not_its_first_process_may_live_and_keeps_its_ledger() {
    if !can_make_containers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    killed(folder.path(), &format!("{{ {rondpoint} run --quiet -- sleep 60 & wait; }}"));
    let (output, told) = restore(folder.path());
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("in other namespaces"), "{told}");
    assert_eq!(with_extension(folder.path(), "ledger"), 1);
    // Outside, where all processes can be seen.
    let own = fs::read_link("/proc/self/ns/pid").expect("/proc");
    let is_root = rondpoint_linux::syscall::process::effective_user() == 0;
    if !is_root || own != Path::new("pid:[4026531836]") {
        println!("not tried further: only root of the machine sees all its processes");
        return;
    }
    let mut command = Command::new(rondpoint);
    command.arg("restore").env("RUNTIME_DIRECTORY", folder.path().join("rondpoint"));
    let output = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("have ended"), "{told}");
    assert_eq!(with_extension(folder.path(), "ended"), 1);
}
