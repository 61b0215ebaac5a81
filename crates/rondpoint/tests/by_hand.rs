//! `rondpoint run` with numactl's words: what the program itself has then, as the kernel tells it.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], command: &[&str]) -> Output {
    let mut rondpoint = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    rondpoint.arg("run").args(arguments).arg("--").args(command).stdin(Stdio::null());
    rondpoint.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The memory policy of the program's stack in `/proc/self/numa_maps`; `None` where this kernel has
/// no such file.
fn policy(arguments: &[&str]) -> Option<String> {
    if !std::path::Path::new("/proc/self/numa_maps").exists() {
        println!("not tried: this kernel has no memory policies");
        return None;
    }
    let found = run(arguments, &["cat", "/proc/self/numa_maps"]);
    assert!(found.status.success(), "{arguments:?}: {}", text(&found.stderr));
    let maps = text(&found.stdout);
    let stack = maps.lines().find(|line| line.contains(" stack ")).expect("a stack");
    Some(stack.split_whitespace().nth(1).expect("a policy").to_owned())
}

#[test]
fn the_program_has_the_memory_policy_that_was_named() {
    for (arguments, expected) in [
        (&["--quiet", "--interleave=+0"][..], "interleave:"),
        (&["--quiet", "--membind=all"], "bind:"),
        (&["--quiet", "-p", "+0"], "prefer:"),
        (&["--quiet", "-l"], "local"),
        (&["--quiet", "-N", "all"], "default"),
    ] {
        let Some(found) = policy(arguments) else { return };
        assert!(found.starts_with(expected), "{arguments:?}: {found}");
    }
}

#[test]
fn the_program_has_the_cpus_that_were_named_and_nobody_else_has() {
    let allowed = |output: &Output| {
        let text = text(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("a list").trim().to_owned()
    };
    let status = ["grep", "Cpus_allowed_list", "/proc/self/status"];
    let first = run(&["--quiet", "-C", "+0"], &status);
    let all = run(&["--quiet", "--physcpubind=all"], &status);
    let plain = run(&["--quiet"], &status);
    assert_eq!(allowed(&all), allowed(&plain));
    let one = allowed(&first);
    assert!(one.parse::<u32>().is_ok(), "one CPU: {one}");
    let parents = "grep Cpus_allowed_list /proc/$PPID/status";
    let parent = run(&["--quiet", "-C", "+0"], &["sh", "-c", parents]);
    assert_eq!(allowed(&parent), allowed(&plain), "rondpoint's own");
}

#[test]
fn words_and_a_policy_are_one_message_and_nothing_runs() {
    let refuse = |arguments: &[&str], expected: &str| {
        let found = run(arguments, &["echo", "ran"]);
        let errors = text(&found.stderr);
        assert_eq!(found.status.code(), Some(125), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert_eq!(text(&found.stdout), "", "the program did not run");
        assert!(errors.matches("rondpoint run").count() <= 2, "{errors}");
    };
    refuse(
        &["--policy", "carrefour", "--membind", "+0"],
        "--membind places the program for good, and --policy carrefour would place it otherwise",
    );
    refuse(&["--membind", "4000"], "--membind: node 4000: no such node with memory");
    refuse(&["--membind", "99999999999"], "--membind: `99999999999`: expected nodes such as");
    refuse(&["--physcpubind", "all,0"], "--physcpubind: `all,0`: expected CPUs such as");
    refuse(&["--interleave", "\u{1b}[2J"], "--interleave: `\\u{1b}[2J`: expected nodes");
    refuse(&["--near", "nic:none-such"], "nic:none-such: not found");
    refuse(&["--near", "gpu"], "expected a device such as gpu:0");
    let watched = run(&["--policy", "observe", "-l", "--quiet"], &["echo", "ran"]);
    assert_eq!(text(&watched.stdout), "ran\n", "{}", text(&watched.stderr));
}

#[test]
fn a_dry_run_takes_no_placement_by_hand_and_nothing_runs() {
    for placement in [
        &["--interleave", "+0"][..],
        &["--weighted-interleave", "+0"],
        &["--membind", "+0"],
        &["--preferred", "+0"],
        &["--preferred-many", "+0"],
        &["--localalloc"],
        &["--cpunodebind", "+0"],
        &["-C", "+0"],
        &["--near", "nic:eth0"],
    ] {
        for dry in ["-n", "--dry-run"] {
            let found = run(&[placement, &[dry]].concat(), &["echo", "ran"]);
            let errors = text(&found.stderr);
            assert_eq!(found.status.code(), Some(125), "{placement:?}: {errors}");
            let told = errors.lines().next().unwrap_or_default();
            let is_short = told.contains("--dry-run") && told.contains("cannot be used with '");
            assert!(is_short, "{placement:?}: {errors}");
            assert_eq!(text(&found.stdout), "", "the program did not run");
        }
    }
}
