//! `rondpoint observe` from outside: what it runs behaves as if run alone, and its end is told.
//!
//! These tests run on any machine, with a PMU or without: only what every machine shows is
//! asserted.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "harness/executable.rs"]
mod executable;

use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use executable::install;
use serde_json::Value;

fn observe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.arg("observe").args(arguments).stdin(Stdio::null());
    command
}

fn shell(script: &str) -> Output {
    observe(&["--quiet", "--", "sh", "-c", script]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The report of a script as JSON lines. It goes to a file so that the program's stderr stays
/// apart; the script finds its name in REPORT.
fn report(options: &[&str], script: &str) -> (Output, Vec<Value>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report");
    let mut command = observe(options);
    command.arg("--json").arg("--output").arg(&file).args(["--", "sh", "-c", script]);
    command.env("REPORT", &file);
    let output = command.output().unwrap();
    let lines = fs::read_to_string(&file).unwrap();
    (output, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn input_output_and_status_pass_through() {
    let mut command = observe(&["--quiet", "--output", "/dev/null", "--"]);
    command.args(["sh", "-c", "read word; echo \"out $word\"; echo err >&2; exit 7"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out in\n".into(), "err\n".into()));
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_program_killed_by_a_signal_gives_128_and_its_number() {
    let output = shell("kill -KILL $$");
    assert_eq!(output.status.code(), Some(128 + 9));
    assert!(text(&output.stderr).contains("killed by signal 9"), "{}", text(&output.stderr));
    assert_eq!(shell("kill -SEGV $$").status.code(), Some(128 + 11));
}

#[test]
fn what_cannot_be_found_or_run_gives_127_and_126() {
    let output = observe(&["--", "no-such-program-anywhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("cannot run `no-such-program-anywhere`: No such file"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plain");
    fs::write(&file, "exit 5\n").unwrap();
    let plain = file.to_str().unwrap();
    assert_eq!(observe(&["--", plain]).output().unwrap().status.code(), Some(126));
    assert_eq!(observe(&["--", "/"]).output().unwrap().status.code(), Some(126));
    // A text file that may be executed is a script, as execvp(3) has it.
    let script = directory.path().join("script");
    install(&file, &script);
    let script = script.to_str().unwrap();
    assert_eq!(observe(&["--", script]).output().unwrap().status.code(), Some(5));
}

#[test]
fn a_failure_of_ours_gives_125_and_help_gives_0() {
    let refuse = |arguments: &[&str], expected: &str| {
        let output = observe(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    };
    refuse(&["--quiet"], "required arguments were not provided");
    refuse(&["--interval", "0", "--", "true"], "expected seconds from 0.01");
    refuse(&["--interval", "nan", "--", "true"], "expected seconds from 0.01");
    refuse(&["--sample-period", "0", "--", "true"], "--sample-period");
    refuse(&["--events", "colour", "--", "true"], "no such event; known: cycles, dram_latency");
    refuse(&["--sensor", "nose", "--", "true"], "[possible values: samples, counters, faults");
    refuse(&["--pid", "0"], "--pid");
    refuse(&["--pid", "1073741823"], "process 1073741823: No such process");
    refuse(&["--pid", "1", "--", "true"], "cannot be used with");
    refuse(&["--output", "/no/such/place", "--", "true"], "writing /no/such/place: No such file");
    refuse(&["--machine", "/no/such/file", "--", "true"], "/no/such/file");
    let output = observe(&["--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("MC-IMB"));
}

#[test]
fn another_commands_bad_usage_gives_2() {
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_rondpoint")).args(arguments).output().unwrap()
    };
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

#[test]
fn a_storm_of_forks_is_survived_and_all_of_them_end() {
    let script = "for i in $(seq 300); do true & (exit 3) & done; wait; echo done";
    let (output, lines) = report(&["--interval", "0.02"], script);
    assert_eq!((text(&output.stdout), output.status.code()), ("done\n".into(), Some(0)));
    assert_eq!(lines.last().unwrap()["kind"], "summary");
}

#[test]
fn a_program_that_ends_at_once_is_summed_up() {
    let (output, lines) = report(&[], "exit 0");
    assert_eq!(output.status.code(), Some(0));
    let kinds: Vec<&str> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["start", "summary"]);
    assert_eq!(lines[1]["exit_status"], 0);
}

#[test]
fn children_that_are_killed_and_children_that_outlive_are_no_problem() {
    let (output, lines) = report(
        &["--interval", "0.05"],
        "sleep 30 & kill -9 $!; wait $!; (exec sleep 0.2) & exec sleep 0.1",
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(lines.last().unwrap()["kind"], "summary");
}

#[test]
fn each_line_is_an_object_with_the_same_fields() {
    let script = "until grep -q '\"interval\"' $REPORT; do sleep 0.02; done";
    let (_, lines) = report(&["--interval", "0.05"], script);
    assert_eq!(lines[0]["schema"], 2);
    assert!(!lines[0]["nodes"].as_array().unwrap().is_empty());
    let interval = lines.iter().find(|line| line["kind"] == "interval").expect("an interval");
    let summary = lines.last().unwrap();
    for (name, _) in interval.as_object().unwrap() {
        assert!(summary.get(name).is_some(), "the summary has no {name}");
    }
    let elapsed = summary["elapsed_s"].as_f64().unwrap();
    assert!((0.05..600.0).contains(&elapsed), "{elapsed}");
}

#[test]
fn a_signal_for_us_reaches_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    // The loop of short sleeps lets the shell run its trap soon.
    let script = format!(
        "trap 'echo caught; exit 9' TERM; : > {}; while :; do sleep 0.05; done",
        ready.display()
    );
    let mut command = observe(&["--quiet", "--output", "/dev/null", "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    while !ready.exists() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("caught\n".into(), Some(9)));
}

/// Without a free descriptor no look succeeds, the last one included.
#[test]
fn a_look_that_fails_ends_watching_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let [go, done] = ["go", "done"].map(|name| folder.path().join(name));
    // Its stderr would hold the pipe open. Without an order it ends after 30 s.
    let script = "exec 2> /dev/null; i=0; \
                  until [ -e \"$0\" ] || [ $i -gt 600 ]; do i=$((i + 1)); sleep 0.05; done; \
                  echo > \"$1\"; exit 7";
    let mut command = observe(&["--json", "--interval", "0.05", "--", "sh", "-c", script]);
    let mut watch = command.arg(&go).arg(&done).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\"interval\"")), "it looks");
    let mut limit = Command::new("prlimit");
    limit.args(["--pid", &watch.id().to_string(), "--nofile=3:3"]);
    assert!(limit.status().unwrap().success());
    let told = lines.find(|line| line.contains("watching has ended early"));
    fs::write(&go, "").unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(watch.wait().unwrap().code(), Some(7), "{told:?} {rest:?}");
    assert!(told.is_some() && done.exists(), "{told:?} {rest:?}");
    let is_told_again = rest.iter().any(|line| line.contains("ended early"));
    assert!(!is_told_again && rest.len() <= 1, "{rest:?}");
}

#[test]
fn a_running_process_is_joined_until_it_ends_and_left_alone() {
    let mut sleeper = Command::new("sleep").arg("0.5").spawn().unwrap();
    let output = observe(&["--quiet", "--pid", &sleeper.id().to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("whole run: observed"), "{}", text(&output.stdout));
    assert!(sleeper.wait().unwrap().signal().is_none());
}

#[test]
fn an_interrupt_ends_the_watch_and_not_the_process() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report");
    let mut command = observe(&["--json", "--interval", "0.01", "--output"]);
    command.arg(&file).args(["--pid", &sleeper.id().to_string()]);
    let mut watch = command.spawn().unwrap();
    while !fs::read_to_string(&file).unwrap_or_default().contains("\"interval\"") {
        std::thread::yield_now();
    }
    Command::new("kill").args(["-INT", &watch.id().to_string()]).status().unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    assert!(fs::read_to_string(&file).unwrap().contains("\"summary\""));
    assert!(sleeper.try_wait().unwrap().is_none(), "it sleeps on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_report_that_nobody_reads_does_not_disturb_the_program() {
    let mut command = observe(&["--interval", "0.01", "--", "sh", "-c", "sleep 0.2; echo fine"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("fine\n".into(), Some(0)));
}

/// A pipe that takes no byte more.
fn full_pipe() -> (PipeReader, PipeWriter) {
    const O_NONBLOCK: i32 = 0o4000;
    let (reader, writer) = std::io::pipe().unwrap();
    let again = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut filler =
        fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(again).unwrap();
    while filler.write(&[b'x'; 4096]).is_ok() {}
    (reader, writer)
}

#[test]
fn a_signal_ends_the_watch_whose_report_nobody_reads() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let of_program = ["--interval", "0.01", "--", "sleep", "60"];
    for (arguments, status) in [
        (&["--json", "--interval", "0.01"][..], 0),
        (&["--json", "--interval", "0.01", "--pid", &pid][..], 0),
        (&of_program[..], 128 + 15),
    ] {
        let (reader, writer) = full_pipe();
        let mut command = observe(arguments);
        command.stderr(writer.try_clone().unwrap()).stdout(writer);
        let mut watch = command.spawn().unwrap();
        drop(command);
        let blocks_signals = || {
            let status = fs::read_to_string(format!("/proc/{}/status", watch.id())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 14) != 0
        };
        while !blocks_signals() {
            std::thread::yield_now();
        }
        // Twenty intervals: by then it waits for its reader.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        Command::new("kill").args(["-TERM", &watch.id().to_string()]).status().unwrap();
        let ended = loop {
            match watch.try_wait().unwrap() {
                Some(ended) => break ended,
                None if Instant::now() > deadline => {
                    watch.kill().unwrap();
                    break watch.wait().unwrap();
                }
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(ended.code(), Some(status), "{arguments:?}");
        drop(reader);
    }
    assert!(sleeper.try_wait().unwrap().is_none(), "it sleeps on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

fn to_full(mut command: Command) -> Command {
    command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    command
}

#[test]
fn a_full_disk_is_told_once_and_ends_what_only_watches() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let soon = |more: &[&str]| observe(&[&["--interval", "0.01"], more].concat());
    for mut command in [
        to_full(soon(&[])),
        to_full(soon(&["--json"])),
        to_full(soon(&["--pid", &pid])),
        to_full(soon(&["--output", "-"])),
        soon(&["--output", "/dev/full"]),
        soon(&["--output", "/dev/full", "--pid", &pid]),
    ] {
        let found = command.output().unwrap();
        let said = text(&found.stderr);
        assert_eq!(found.status.code(), Some(125), "{command:?}: {said}");
        assert!(said.starts_with("rondpoint observe: writing "), "{command:?}: {said}");
        assert_eq!((said.lines().count(), said.matches("No space").count()), (1, 1), "{said}");
    }
    assert!(sleeper.try_wait().unwrap().is_none(), "it sleeps on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_full_disk_is_told_once_and_the_program_keeps_its_status() {
    let words = ["--interval", "0.01", "--output", "/dev/full", "--", "sh", "-c"];
    let found = observe(&words).arg("sleep 0.2; echo fine; exit 7").output().unwrap();
    let said = text(&found.stderr);
    assert_eq!((text(&found.stdout), found.status.code()), ("fine\n".into(), Some(7)), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("rondpoint observe: writing /dev/full: No space left"), "{said}");
}

#[test]
fn a_dash_is_stdout_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = observe(&["--json", "--quiet", "--output", "-", "--", "echo", "ran"]);
    let found = command.current_dir(folder.path()).output().unwrap();
    let (said, errors) = (text(&found.stdout), text(&found.stderr));
    assert_eq!((found.status.code(), errors.as_str()), (Some(0), ""));
    assert!(said.contains("ran\n") && said.contains("\"summary\""), "{said}");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "no file");
}

#[test]
fn the_report_on_a_running_process_is_on_stdout_and_names_its_threads() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let mut watch = observe(&["--json", "--interval", "0.05", "--pid", &sleeper.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let interval = lines.find_map(|line| {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        (line["kind"] == "interval").then_some(line)
    });
    let interval = interval.expect("an interval");
    assert_eq!(interval["threads"][0]["name"], "sleep", "{interval}");
    // A reader that has gone ends the watch, and not the process.
    drop(lines);
    let output = watch.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert!(sleeper.try_wait().unwrap().is_none(), "it sleeps on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn without_a_program_the_machine_is_shown_until_an_interrupt() {
    let mut watch =
        observe(&["--json", "--interval", "0.05"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&first["kind"], &first["schema"]), (&"machine".into(), &2.into()));
    let nodes = first["nodes"].as_array().unwrap();
    let memory: u64 = nodes.iter().map(|node| node["memory_bytes"].as_u64().unwrap()).sum();
    assert!(memory > 0, "{first}");
    let processes = first["processes"].as_array().unwrap();
    let is_told = |process: &Value| process["threads_by_node"].as_array().unwrap().len();
    assert!(!processes.is_empty() && processes.iter().all(|one| is_told(one) == nodes.len()));
    Command::new("kill").args(["-INT", &watch.id().to_string()]).status().unwrap();
    // A full pipe would keep it from seeing the signal.
    lines.for_each(drop);
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}

#[test]
fn what_the_machine_lacks_is_said_in_one_sentence_each() {
    let (_, lines) = report(&[], "true");
    let nodes = lines[0]["nodes"].as_array().unwrap().len();
    let notes: Vec<&str> =
        lines[0]["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    assert_eq!(nodes == 1, notes.iter().any(|note| note.contains("one memory node")), "{notes:?}");
    if lines[0]["counted"].as_array().unwrap().is_empty() {
        assert!(notes.len() > usize::from(nodes == 1), "no counters and no word about it");
    }
}

#[test]
fn the_sensor_that_is_asked_for_is_used() {
    let sensed = |sensor| report(&["--sensor", sensor], "true").1.pop().unwrap();
    let statistics = sensed("statistics");
    assert_eq!(statistics["sensing"]["rung"], "statistics");
    assert!(statistics["samples"].is_null() && statistics["cpu_s"].is_null());
    let faults = sensed("faults");
    assert_eq!(faults["samples"]["of"], "faults");
    assert!(faults["program"]["accesses_per_us"].is_null(), "faults are not accesses: {faults}");
    // Without the right to physical addresses a fault does not tell its node, and a note says so.
    let without_node = faults["notes"].to_string().contains("do not tell the node of their data");
    assert_eq!(faults["program"]["hint_faults_per_s"].is_null(), without_node, "{faults}");
    assert_eq!(faults["samples"]["by_source"]["fault"], faults["samples"]["taken"]);
    assert!(faults["first_touches"].as_u64().unwrap() > 0, "{faults}");
}

/// This machine has counters or has none: either they are used, or nothing is run.
#[test]
fn a_sensor_that_is_not_here_is_an_error_and_nothing_is_run() {
    let counted = !report(&[], "true").1[0]["counted"].as_array().unwrap().is_empty();
    let refusal = "--sensor counters: no counters here";
    for (words, refusal) in [
        (["observe", "--sensor", "counters"], refusal),
        (["run", "--sensor", "counters"], refusal),
        (["observe", "--events", "cycles"], "--events: none of these is counted here"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_rondpoint"))
            .args(words)
            .args(["--", "echo", "ran"])
            .output()
            .unwrap();
        let expected = if counted { (Some(0), "ran\n") } else { (Some(125), "") };
        assert_eq!((output.status.code(), &*text(&output.stdout)), expected, "{words:?}");
        let refused = text(&output.stderr).contains(refusal);
        assert_eq!(refused, !counted, "{}", text(&output.stderr));
    }
}

#[test]
fn the_lab_and_the_simulator_are_looked_for_beside_us() {
    for (command, program) in [("lab", "rondpoint-lab"), ("simulate", "rondpoint-sim")] {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("rondpoint");
        install(env!("CARGO_BIN_EXE_rondpoint"), &own);
        let run = || {
            Command::new(&own).args([command, "--help", "-x"]).env("PATH", "/bin").output().unwrap()
        };
        let output = run();
        assert_eq!(output.status.code(), Some(127));
        let expected = format!("{program}, which is neither beside rondpoint nor along PATH");
        assert!(text(&output.stderr).contains(&expected));
        let other = directory.path().join(program);
        let script = directory.path().join("script");
        fs::write(&script, "#!/bin/sh\necho \"$@\"; exit 4\n").unwrap();
        install(&script, &other);
        let output = run();
        assert_eq!((text(&output.stdout), output.status.code()), ("--help -x\n".into(), Some(4)));
        let shown = |path: &std::path::Path| {
            let help = Command::new(path).args(["help"]).env("PATH", "/bin").output().unwrap();
            assert_eq!(help.status.code(), Some(0));
            text(&help.stdout).lines().any(|line| line.trim_start().starts_with(command))
        };
        assert!(shown(&own), "{command} is offered where {program} is");
        fs::remove_file(&other).unwrap();
        assert!(!shown(&own), "{command} is offered where there is no {program}");
    }
}
