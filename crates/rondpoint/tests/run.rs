//! `rondpoint run`, `attach`, `record` and `restore`, as their user starts them, on the
//! machine that runs the tests.

#[path = "harness/executable.rs"]
mod executable;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use executable::install;
use rondpoint_linux::ledger_file;

/// A user and a group that own nothing.
const NOBODY: u32 = 65_534;

fn rondpoint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    rondpoint(arguments).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The ledgers of a manager with this process number.
fn ledgers_of(manager: u32) -> Vec<PathBuf> {
    let own = format!("{manager}-");
    let folder = ledger_file::own_folder().expect("a place");
    let Ok(names) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = names.map(|name| name.expect("may be listed").path());
    let is_own = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own))
    };
    paths.filter(is_own).collect()
}

/// Where this machine has samples the program runs, and its ledger is closed at the end.
#[test]
fn a_start_that_fails_leaves_no_ledger_of_a_killed_manager() {
    let mut manager = rondpoint(&["run", "--quiet", "--sensor", "samples", "--", "true"]);
    let mut manager = manager.stderr(Stdio::null()).spawn().expect("the program starts");
    let number = manager.id();
    manager.wait().expect("it ends");
    assert_eq!(ledgers_of(number), Vec::<PathBuf>::new());
}

#[test]
fn the_program_keeps_its_output_and_status_and_the_report_says_what_was_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let path = report.to_str().expect("text");
    let found = output(&["run", "--report", path, "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(found.status.code(), Some(7), "{}", errors(&found));
    assert_eq!(found.stdout, b"out\n");
    assert!(errors(&found).contains("ended with status 7"), "{}", errors(&found));
    let report = std::fs::read(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!((&report["schema"], &report["exit_status"]), (&1.into(), &7.into()));
    assert_eq!(report["pages_moved"], 0);
    let killed = output(&["run", "--quiet", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!((killed.status.code(), errors(&killed)), (Some(137), String::new()));
}

/// Field 41 of `/proc/PID/stat` is the scheduling policy: 0 the default, 3 `SCHED_BATCH`.
/// Services of systemd ignore SIGPIPE, and some callers ignore SIGCHLD.
#[test]
fn signals_that_the_caller_ignores_stay_ignored_and_the_status_is_passed_on() {
    const PIPE: u32 = 13;
    let program = env!("CARGO_BIN_EXE_rondpoint");
    let under = |ignored: &str, script: &str| {
        let line = format!("{ignored} exec {program} run --quiet -- sh -c '{script}'");
        Command::new("sh").args(["-c", &line]).output().expect("the program starts")
    };
    let script = "sed -n s/^SigIgn:.//p /proc/self/status; exit 3";
    for (ignored, expected) in [("trap \"\" PIPE CHLD;", true), ("", false)] {
        let found = under(ignored, script);
        assert_eq!(found.status.code(), Some(3), "{ignored} {}", errors(&found));
        let text = String::from_utf8_lossy(&found.stdout);
        let mask = u64::from_str_radix(text.trim(), 16).expect("a mask");
        assert_eq!(mask & (1 << (PIPE - 1)) != 0, expected, "{ignored} {text}");
    }
}

#[test]
fn the_manager_preempts_nobody_and_the_program_is_scheduled_as_ever() {
    let script = "cut -d' ' -f41 /proc/$$/stat /proc/$PPID/stat";
    let found = output(&["run", "--quiet", "--", "sh", "-c", script]);
    assert_eq!(found.stdout, b"0\n3\n", "{}", errors(&found));
}

#[test]
fn what_cannot_be_done_is_refused_before_the_program_runs() {
    let refuse = |arguments: &[&str], status: i32, expected: &str| {
        let found = output(arguments);
        assert_eq!(found.status.code(), Some(status), "{arguments:?}: {}", errors(&found));
        assert!(errors(&found).contains(expected), "{arguments:?}: {}", errors(&found));
        assert_eq!(found.stdout, b"", "the program did not run");
    };
    let echo = ["--", "echo", "ran"];
    let run = |flags: &[&str]| [&["run"], flags, &echo].concat().join(" ");
    for (flags, expected) in [
        (&["--policy", "nope"][..], "nope: no such policy"),
        (&["--policy", "carrefour:nope"], "carrefour:nope: no such preset"),
        (&["--report", "/nonexistent/x"], "writing /nonexistent/x"),
        (&["--record", "/nonexistent/x"], "writing /nonexistent/x"),
        (&["--machine", "/nonexistent.toml"], "/nonexistent.toml"),
        (&["--sensor", "eyes"], "possible values"),
    ] {
        let line = run(flags);
        refuse(&line.split(' ').collect::<Vec<_>>(), 125, expected);
    }
    refuse(&["run", "--", "/nonexistent"], 127, "cannot run `/nonexistent`");
    refuse(&["run", "--", ""], 127, "cannot run ``: No such file");
    refuse(&["attach", "0x"], 125, "expected a process number");
    refuse(&["attach", "no-such-name"], 125, "name:no-such-name: no such process");
    refuse(&["attach", "1073741823"], 125, "process 1073741823: no such process");
    let own = std::process::id().to_string();
    refuse(&["attach", "--started", "1", &own], 125, "it has ended");
}

/// A refusal leaves nothing behind and takes nothing away, whether the program was never started or
/// cannot be.
#[test]
fn what_is_refused_leaves_files_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (older, new) = (path("older"), path("new"));
    std::fs::write(&older, "from last time").expect("written");
    for (record, report) in [(&older, &new), (&new, &older)] {
        let files = ["run", "--quiet", "--record", record, "--report", report];
        for (rest, status) in [
            (&["--", "/nonexistent"][..], 127),
            (&["--policy", "nope", "--", "true"], 125),
            (&["--machine", "/nonexistent.toml", "--", "true"], 125),
        ] {
            let found = output(&[&files[..], rest].concat());
            assert_eq!(found.status.code(), Some(status), "{}", errors(&found));
            assert_eq!(std::fs::read(&older).expect("there"), b"from last time");
            assert!(!Path::new(&new).exists(), "{rest:?}");
        }
    }
    let found = output(&["run", "--record", &new, "--report", &new, "--", "echo", "ran"]);
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(125), &b""[..]));
    assert!(errors(&found).contains("are the same file"), "{}", errors(&found));
    let mut record = rondpoint(&["record", "--output", &new, "--", "/nonexistent"]);
    let record = record.stderr(Stdio::piped()).spawn().expect("the program starts");
    let manager = record.id();
    let found = record.wait_with_output().expect("it ends");
    assert!(errors(&found).starts_with("rondpoint record: cannot run `/nonexistent`"));
    assert_eq!(ledgers_of(manager), [] as [PathBuf; 0]);
}

/// A ledger that cannot be made is found out before the program runs. Root's is always in `/run`,
/// so another user runs it here.
#[test]
fn without_a_ledger_the_program_is_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("rondpoint");
    install(env!("CARGO_BIN_EXE_rondpoint"), &program);
    let ledgers = folder.path().join("runtime/rondpoint");
    std::fs::create_dir_all(&ledgers).expect("made");
    for (path, mode) in [(folder.path(), 0o755), (ledgers.as_path(), 0o777)] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("ours");
    }
    let mut command = Command::new(&program);
    command.args(["run", "--quiet", "--", "echo", "ran"]).current_dir("/");
    command.env("XDG_RUNTIME_DIR", folder.path().join("runtime"));
    if rondpoint_linux::syscall::process::effective_user() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let found = command.output().expect("the program starts");
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(125), &b""[..]));
    assert!(errors(&found).contains("only this user may write"), "{}", errors(&found));
}

#[test]
fn a_record_is_private_and_can_be_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("a.trace");
    let path = trace.to_str().expect("text");
    let found = output(&["record", "--output", path, "--", "sleep", "1.2"]);
    assert_eq!(found.status.code(), Some(0), "{}", errors(&found));
    let mode = std::fs::metadata(&trace).expect("a record").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds addresses and a command line");
    let replayed = output(&["replay", path]);
    assert_eq!(replayed.status.code(), Some(0), "{}", errors(&replayed));
}

/// The ledger is there before anything could have been changed, and outlives a manager that is
/// killed.
#[test]
fn what_a_killed_manager_left_is_worked_off() {
    let mut manager = rondpoint(&["run", "--quiet", "--", "sleep", "30"]);
    let mut manager = manager.spawn().expect("the program starts");
    wait_for_ledger(manager.id());
    manager.kill().expect("it runs");
    manager.wait().expect("it has ended");
    let restored = output(&["restore"]);
    assert_eq!(restored.status.code(), Some(0), "{}", errors(&restored));
    let text = String::from_utf8_lossy(&restored.stdout);
    assert_eq!(ledgers_of(manager.id()), [] as [PathBuf; 0], "{text}");
}

fn wait_for_ledger(manager: u32) {
    let begin = Instant::now();
    let finished = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "ledger");
    while !ledgers_of(manager).iter().any(finished) {
        assert!(begin.elapsed() < Duration::from_secs(20), "no ledger of process {manager}");
        std::thread::yield_now();
    }
}

/// With so few descriptors watching does not begin, fails at once, or goes on.
#[test]
fn a_program_outlives_what_goes_wrong_with_watching_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let program = "i=0; while [ $i -lt 40 ]; do sleep 0.8 & i=$((i + 1)); done; sleep 1; \
                   echo yes > \"$1\"; exit 7";
    let start = |descriptors: u32| {
        let script = format!(
            "ulimit -n {descriptors} && exec {rondpoint} run -- sh -c '{program}' sh \"$1\""
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(folder.path().join(descriptors.to_string()));
        command.stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    for descriptors in [9, 10, 11, 12, 14, 16, 24] {
        let child = start(descriptors);
        let manager = child.id();
        let found = child.wait_with_output().expect("it ends");
        let told = format!("{descriptors} descriptors: {}", errors(&found));
        assert_eq!(found.status.code(), Some(7), "{told}");
        assert!(folder.path().join(descriptors.to_string()).exists(), "{told}");
        assert_eq!(ledgers_of(manager), [] as [PathBuf; 0], "{told}");
    }
}

/// More processes than descriptors: their files would take all of them.
#[test]
fn a_manager_leaves_descriptors_free_for_its_looks() {
    const ALLOWED: usize = 64;
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let program = "i=0; while [ $i -lt 80 ]; do sleep 4 & i=$((i + 1)); done; wait";
    let script =
        format!("ulimit -n {ALLOWED} && exec {rondpoint} run --quiet -- sh -c '{program}'");
    let mut manager = Command::new("sh").args(["-c", &script]).spawn().expect("it starts");
    let folder = format!("/proc/{}/fd", manager.id());
    let mut counts = Vec::new();
    while manager.try_wait().expect("ours").is_none() {
        counts.push(std::fs::read_dir(&folder).map_or(0, Iterator::count));
        std::thread::yield_now();
    }
    assert!(manager.wait().expect("ours").success());
    // A look opens more files for a moment. A few files of the session come after the rest.
    counts.sort_unstable();
    let usual = counts[counts.len() / 2];
    assert!((ALLOWED / 2..ALLOWED * 7 / 8).contains(&usual), "{usual} of {ALLOWED}");
}

/// The program gets its caller's limits, also those that are too small for its manager.
#[test]
fn limits_of_memory_are_those_of_the_program_and_never_end_its_manager() {
    let run = |wrapper: &[&str], limit: &str, asked: &str| {
        let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
        let script =
            format!("ulimit {limit}; exec {rondpoint} run -- sh -c 'ulimit {asked}; exit 3'");
        let words = [wrapper, &["sh", "-c", &script]].concat();
        Command::new(words[0]).args(&words[1..]).output().expect("it starts")
    };
    for (limit, asked, given) in [
        ("-S -s 64", "-s", "64\n"),
        ("-S -v 300000", "-v", "300000\n"),
        ("-S -d 50000", "-d", "50000\n"),
    ] {
        let found = run(&["env"], limit, asked);
        let told = format!("{limit}: {}", errors(&found));
        assert_eq!((found.status.code(), found.stdout), (Some(3), given.into()), "{told}");
    }
    // In a user namespace nobody raises a hard limit.
    let wrapper = ["unshare", "--user", "--map-root-user"];
    if !Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").status().is_ok_and(|s| s.success())
    {
        println!("not tried further: this user may not make namespaces");
        return;
    }
    for (limit, told) in [
        ("-s 64", "the limit of stack is 64 KiB (ulimit -s); expected at least 1024 KiB"),
        (
            "-d 50000",
            "the limit of private memory is 50000 KiB (ulimit -d); expected at least 65536",
        ),
    ] {
        let found = run(&wrapper, limit, "-s");
        assert_eq!((found.status.code(), found.stdout.len()), (Some(125), 0), "{limit}");
        let said = errors(&found);
        assert!(said.lines().count() == 1 && said.contains(told), "{limit}: {said}");
    }
}

/// The kernel's SIGXFSZ about our record looks as if a process had sent it for the program.
#[test]
fn a_record_that_may_not_grow_ends_no_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("x.trace");
    // What is there already keeps its content until the program runs.
    std::fs::write(&record, "older").expect("written");
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let run = format!("{rondpoint} run --record \"$0\" -- sh -c 'sleep 1; exit 3'");
    let script = format!("ulimit -f 1; exec {run}");
    let mut command = Command::new("sh");
    let found = command.args(["-c", &script]).arg(&record).output().expect("it starts");
    let told = errors(&found);
    assert_eq!(found.status.code(), Some(3), "{told}");
    assert!(told.contains("the record is incomplete"), "{told}");
}

/// The kernel would kill the manager. Only root takes the limit away.
#[test]
fn a_limit_of_cpu_time_ends_managing_and_not_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).expect("made");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("changed");
    let rondpoint = folder.path().join("rondpoint");
    install(env!("CARGO_BIN_EXE_rondpoint"), &rondpoint);
    let mut words = ["timeout", "60", "sh"].map(str::to_string).to_vec();
    if rondpoint_linux::syscall::process::effective_user() == 0 {
        std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("given");
        let user =
            format!("timeout 60 setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups sh");
        words = user.split(' ').map(str::to_string).collect();
    }
    let program = "read line; test $(ulimit -t) = 1 && exit 3";
    let script = format!("ulimit -t 1; exec {} run -- sh -c '{program}'", rondpoint.display());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["-c", &script]).env("HOME", &home);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("XDG_STATE_HOME");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut manager = command.spawn().expect("it starts");
    let said = BufReader::new(manager.stderr.take().expect("piped"));
    let mut said = said.lines().map_while(Result::ok);
    let told = said.find(|line| line.contains("managing has ended early"));
    // The program goes on until it is told to end.
    writeln!(manager.stdin.take().expect("piped")).expect("it reads");
    let rest: Vec<String> = said.collect();
    let status = manager.wait().expect("ours").code();
    assert!(told.is_some_and(|line| line.contains("CPU time")), "{rest:?}");
    assert_eq!(status, Some(3), "{rest:?}");
}

/// A program is placed by a thread of its own, which the limit of processes may refuse.
#[test]
fn without_room_for_a_thread_nothing_is_started_and_it_is_told() {
    if rondpoint_linux::syscall::process::effective_user() != 0 {
        println!("not tried: it needs a user without other processes");
        return;
    }
    const LONELY: u32 = 3_999_999_997;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("changed");
    let rondpoint = folder.path().join("rondpoint");
    install(env!("CARGO_BIN_EXE_rondpoint"), &rondpoint);
    let mut command = Command::new("prlimit");
    command.args(["--nproc=1", "setpriv", "--clear-groups"]);
    command.args([format!("--reuid={LONELY}"), format!("--regid={LONELY}")]);
    command.arg(&rondpoint).args(["run", "--localalloc", "--", "true"]);
    let found = command.output().expect("it starts");
    let said = errors(&found);
    assert_eq!(found.status.code(), Some(125), "{said}");
    assert!(said.lines().count() == 1 && said.contains("a thread with its placement"), "{said}");
}

#[test]
fn a_signal_that_would_end_the_manager_leaves_no_ledger() {
    // SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGALRM, SIGSTKFLT, SIGXCPU, SIGXFSZ,
    // SIGVTALRM, SIGPROF, SIGIO, SIGPWR and SIGSYS. Then the first and the last real-time signal of
    // the GNU C library.
    for signal in [4, 5, 6, 7, 8, 11, 14, 16, 24, 25, 26, 27, 29, 30, 31, 34, 64] {
        let mut manager = rondpoint(&["run", "--quiet", "--", "sleep", "30"]);
        let mut manager = manager.spawn().expect("the program starts");
        wait_for_ledger(manager.id());
        let number = manager.id().to_string();
        let sent = Command::new("kill").args([format!("-{signal}"), number]).status();
        assert!(sent.expect("kill runs").success());
        let status = manager.wait().expect("it has ended");
        assert_eq!(status.code(), Some(128 + signal), "it is passed on to the program");
        assert_eq!(ledgers_of(manager.id()), [] as [PathBuf; 0], "signal {signal}");
    }
}

#[test]
fn a_second_manager_of_one_process_is_refused() {
    let mut manager = rondpoint(&["run", "--quiet", "--", "sleep", "30"]);
    let mut manager = manager.spawn().expect("the program starts");
    wait_for_ledger(manager.id());
    let children = format!("/proc/{0}/task/{0}/children", manager.id());
    let target = std::fs::read_to_string(children).expect("it has a child");
    let found = output(&["attach", target.trim()]);
    assert_eq!(found.status.code(), Some(125));
    let expected = format!("rondpoint manages it already (process {})", manager.id());
    assert!(errors(&found).contains(&expected), "{}", errors(&found));
    let ended = Command::new("kill").arg(manager.id().to_string()).status().expect("kill runs");
    assert!(ended.success());
    manager.wait().expect("it has ended");
}

#[test]
fn under_sudo_a_program_never_runs_as_root_by_mistake() {
    if rondpoint_linux::syscall::process::effective_user() != 0 {
        println!("not tried: only root is in danger of it");
        return;
    }
    let run = |set: &[(&str, &str)]| {
        let mut command = rondpoint(&["run", "--quiet", "--", "id", "-u"]);
        command.envs(set.iter().copied()).output().expect("the program starts")
    };
    let found = run(&[("SUDO_UID", "1234567"), ("SUDO_USER", "nobody knows")]);
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(125), &b""[..]));
    assert!(errors(&found).contains("SUDO_GID is not set"), "{}", errors(&found));
    let found = run(&[("SUDO_UID", "1234567"), ("SUDO_GID", "1234567")]);
    assert_eq!(String::from_utf8_lossy(&found.stdout), "1234567\n", "{}", errors(&found));
}

#[test]
fn under_sudo_a_program_has_the_name_and_the_home_of_the_caller() {
    if rondpoint_linux::syscall::process::effective_user() != 0 {
        println!("not tried: only root runs a program as another user");
        return;
    }
    let mut command = rondpoint(&["run", "--quiet", "--", "sh", "-c", "echo $USER $LOGNAME $HOME"]);
    command.envs([("USER", "root"), ("LOGNAME", "root"), ("HOME", "/root")]);
    command.envs([("SUDO_UID", "1234567"), ("SUDO_GID", "1234567")]);
    command.envs([("SUDO_USER", "ada"), ("SUDO_HOME", "/homes/ada")]);
    let found = command.output().expect("the program starts");
    assert_eq!(
        String::from_utf8_lossy(&found.stdout),
        "ada ada /homes/ada\n",
        "{}",
        errors(&found)
    );
}

#[test]
fn a_file_that_cannot_be_replicated_is_named_and_the_program_does_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let found = output(&["run", "--replicate", &path, "--", "sh", "-c", "echo out"]);
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(125), &b""[..]));
    let text = errors(&found);
    assert!(text.contains("--replicate") && text.contains(&path), "{text}");
}

/// On one node there is nothing to gain; this test's own copy of the program has no library.
#[test]
fn without_copies_the_program_runs_and_the_report_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    std::fs::write(&path, "data\n").expect("room for a file");
    let path = path.to_str().expect("text");
    let found = output(&["run", "--replicate", path, "--", "cat", path]);
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(0), &b"data\n"[..]));
    let text = errors(&found);
    let (_, why) = text.split_once("replicate: no copies: ").unwrap_or_default();
    let reasons =
        ["the program can use one memory node", "librondpoint_interpose.so is neither in"];
    // With several nodes and the library beside the program there are copies.
    let is_copied = text.contains(" copies of 1 MiB; opened on node ");
    assert!(is_copied || reasons.iter().any(|reason| why.starts_with(reason)), "{text}");
}

/// A shell's `exec rondpoint attach $$`.
#[test]
fn a_manager_does_not_manage_itself() {
    let script = format!("exec {} attach $$", env!("CARGO_BIN_EXE_rondpoint"));
    let refused = Command::new("sh").args(["-c", &script]).output().expect("sh starts");
    assert_eq!(refused.status.code(), Some(125), "{}", errors(&refused));
    assert!(errors(&refused).contains("expected another process"), "{}", errors(&refused));
}
