//! Every workload, small, as its user starts it: exit code, last line, messages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint-workloads"));
    command.args(line.split_whitespace());
    command
}

fn run(line: &str) -> Output {
    command(line).output().expect("the program starts")
}

/// The pairs of the last line; the run must have succeeded.
fn pairs(line: &str) -> BTreeMap<String, String> {
    let output = run(line);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {text}{errors}");
    let last = text.lines().last().unwrap_or_default();
    let pair = |word: &str| {
        let (key, value) = word.split_once('=').expect("words are key=value");
        (key.to_owned(), value.to_owned())
    };
    let pairs: BTreeMap<_, _> = last.split(' ').map(pair).collect();
    assert_eq!(pairs["result"], "ok", "{last}");
    assert_eq!(Some(pairs["workload"].as_str()), line.split_whitespace().next());
    assert!(pairs["seconds"].parse::<f64>().expect("a number") >= 0.0);
    pairs
}

/// Fails with code 2 and a message that says what was expected.
fn refused(line: &str, expected: &str) {
    let output = run(line);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
    assert!(errors.contains(expected), "{line}: {errors}");
}

#[test]
fn kmeans_finds_the_same_centres_with_any_number_of_threads() {
    let one = pairs("kmeans --threads 1 --size 256K --iterations 3");
    let three = pairs("kmeans --threads 3 --size 256K --iterations 3 --pin");
    let rotated = pairs("kmeans --threads 3 --size 256K --iterations 3 --rotate --no-huge-pages");
    assert_eq!(one["points"], "1024");
    assert_eq!(one["checksum"], three["checksum"]);
    assert_eq!(one["checksum"], rotated["checksum"]);
    let other = pairs("kmeans --threads 1 --size 256K --iterations 3 --seed 2");
    assert_ne!(one["checksum"], other["checksum"]);
    pairs("kmeans --threads 2 --size 4096 --iterations 2 --centres 256");
}

#[test]
fn traversals_and_solutions_are_right_with_any_number_of_threads() {
    for threads in [1, 2, 5] {
        let graph = pairs(&format!("graph --threads {threads} --size 256K --iterations 3"));
        assert_eq!(graph["vertices"], "4096");
        let solver = pairs(&format!("solver --threads {threads} --size 192K --iterations 3"));
        assert_eq!(solver["rows"], "2048");
    }
    refused("solver --size 4096 --threads 1 --iterations 1 --seed x", "invalid value");
}

#[test]
fn copies_are_made_and_none_is_left_or_the_kernel_makes_none() {
    let found = pairs("copies --size 64K --iterations 2");
    assert_eq!(found["pages"], "16");
    assert!(["yes", "no"].contains(&found["copies"].as_str()), "{found:?}");
    assert_eq!(found.contains_key("replicate"), found["copies"] == "yes");
}

#[test]
fn stencil_agrees_with_the_analytic_plate() {
    for seed in 0..4 {
        pairs(&format!("stencil --threads 3 --size 300K --iterations 25 --seed {seed}"));
    }
    assert_eq!(pairs("stencil --threads 40 --size 4096 --iterations 7")["side"], "16");
}

#[test]
fn programs_that_work_by_themselves_are_right_in_every_round() {
    for line in [
        "fleeting --threads 2 --size 64K --seconds 0.05",
        "lookup --threads 3 --size 64K --seconds 0.05",
        "lookup --threads 3 --size 64K --keep 1M --change-every 0 --seconds 0.05",
        "pipeline --threads 4 --size 256K --seconds 0.05",
        "serve --threads 2 --size 256K --seconds 0.05",
        "store --threads 2 --size 256K --seconds 0.05",
        "parts --threads 3 --size 256K --seconds 0.05 --swap 0.01",
        "parts --threads 5 --size 256K --seconds 0.05 --burst 0.005 --sleep 0.01",
    ] {
        assert!(pairs(line)["iterations"].parse::<u64>().expect("a number") > 0, "{line}");
    }
    refused("pipeline --threads 3", "expected an even number");
    refused("parts --burst 1", "--sleep");
}

#[test]
fn wellplaced_and_bucketsort_are_right() {
    pairs("wellplaced --threads 3 --size 300K --iterations 5");
    let sorted = pairs("bucketsort --threads 3 --size 300K --iterations 4");
    assert_eq!((sorted["keys"].as_str(), sorted["iterations"].as_str()), ("19200", "4"));
    pairs("bucketsort --threads 1 --size 4096 --iterations 1");
}

/// The same results where every thread's memory is on its node from the start, unless a container
/// forbids binding; then the message says so.
#[test]
fn an_oracle_changes_no_result() {
    for line in [
        "kmeans --threads 3 --size 256K --iterations 3",
        "kmeans --threads 3 --size 256K --iterations 3 --rotate",
        "stencil --threads 3 --size 300K --iterations 25",
        "wellplaced --threads 3 --size 300K --iterations 5",
        "bucketsort --threads 3 --size 300K --iterations 4",
    ] {
        let output = run(&format!("{line} --place oracle"));
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {
                let placed = pairs(&format!("{line} --place oracle"));
                assert_eq!(placed.get("checksum"), pairs(line).get("checksum"), "{line}");
            }
            Some(2) => assert!(errors.contains("memory"), "{errors}"),
            other => panic!("{line}: {other:?} {errors}"),
        }
    }
    refused("stencil --place there", "[possible values: oracle]");
    refused("chase --place oracle", "unexpected argument '--place'");
}

#[test]
fn the_line_before_the_last_says_when_rounds_ended() {
    let output = run("stencil --threads 2 --size 64K --iterations 5");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().nth(1).expect("a line before the last");
    let ends = line.strip_prefix("round_ends_s=").expect("round ends").split(',');
    let ends: Vec<f64> = ends.map(|end| end.parse().expect("a number")).collect();
    assert_eq!(ends.len(), 5);
    assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]), "{line}");
}

#[test]
fn a_time_instead_of_rounds_and_a_progress_file() {
    let path = std::env::temp_dir().join(format!("rondpoint-progress-{}", std::process::id()));
    let line = "wellplaced --threads 2 --size 64K --seconds 0.05 --progress";
    let pairs = pairs(&format!("{line} {}", path.display()));
    assert!(pairs["seconds"].parse::<f64>().expect("a number") >= 0.05);
    let text = std::fs::read_to_string(&path).expect("the file was written");
    assert_eq!(text.trim(), pairs["iterations"]);
    assert_eq!(text.len(), 21);
    std::fs::remove_file(path).expect("the file can go");
}

#[test]
fn rounds_of_threads_and_of_children_are_counted_until_the_time_is_over() {
    for line in ["fleeting --seconds 0.05", "fleeting --seconds 0.05 --children"] {
        let pairs = pairs(&format!("{line} --threads 2 --size 64K"));
        let number = |key: &str| pairs[key].parse::<f64>().expect("a number");
        assert!(number("iterations") >= 2.0 && number("seconds") >= 0.05, "{pairs:?}");
    }
    refused("fleeting --seconds 0", "expected a number of seconds above 0");
}

#[test]
fn the_measuring_programs_measure_something() {
    let pingpong = pairs("pingpong --handoffs 200 --iterations 2");
    assert_eq!(pingpong["handoffs"], "400");
    assert!(pingpong["ns_per_handoff"].parse::<f64>().expect("a number") > 0.0);
    pairs("pingpong --handoffs 100 --pause --cpus 0,0");

    let chase = pairs("chase --size 256K --rounds 3");
    assert_eq!((chase["lines"].as_str(), chase["accesses"].as_str()), ("4096", "12288"));
    assert!(chase["ns_per_access"].parse::<f64>().expect("a number") > 0.0);

    for kernel in ["read", "gather", "triad"] {
        let stream =
            pairs(&format!("stream --threads 2 --size 384K --iterations 3 --kernel {kernel}"));
        assert_eq!(stream["bytes"], "393216");
        assert!(stream["mb_per_s"].parse::<f64>().expect("a number") > 0.0);
    }
    assert_eq!(pairs("scan --size 130K")["lines"], "2048");
    pairs("scan --size 128K --order sequential");

    let clock = pairs("clock --threads 3 --size 128K --iterations 5");
    assert_eq!(clock["readings"], "10240");
    assert!(clock["longest_ns"].parse::<u64>().expect("a number") > 0);
}

#[test]
fn a_scan_waits_to_be_counted() {
    let mut child = command("scan --size 64K --wait")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    let last = lines.next().expect("a line").expect("text");
    assert!(last.ends_with("result=ok"), "{last}");
    assert!(child.wait().expect("it ends").success());
}

/// A node that there is can be bound to, unless a container forbids it; then the message says so.
#[test]
fn memory_of_a_chosen_node() {
    for line in
        ["scan --size 64K --node 0", "chase --size 64K --node 0", "stream --size 64K --mem-node 0"]
    {
        let output = run(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(2) => assert!(errors.contains("cannot bind memory to node 0"), "{errors}"),
            other => panic!("{line}: {other:?} {errors}"),
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    refused("kmeans --size 12Q", "expected 4096 bytes to 1024G, like 64M");
    refused("kmeans --threads 0", "0 is not in 1..=1024");
    refused("kmeans --seconds 1 --iterations 2", "cannot be used with");
    refused("kmeans --seconds never", "expected a number of seconds above 0");
    refused("sort", "unrecognized subcommand 'sort'");
    refused("scan --node 1000", "cannot bind memory to node 1000");
    refused(
        "stream --cpu-node 999",
        "node 999: cannot read /sys/devices/system/node/node999/cpulist",
    );
    refused("pingpong --cpus 0", "expected two for each pair, got 1");
    refused("pingpong --cpus 0,8000", "may not use CPU 8000");
    refused("wellplaced --size 4K --progress /nowhere/file", "/nowhere/file: No such file");
    refused("chase --cpu 8191", "cannot run on CPUs [8191]");
}

#[test]
fn churn_stops_forks_becomes_itself_anew_and_still_counts_right() {
    let last = pairs("churn --threads 2 --size 64K --iterations 9");
    assert_eq!(last["iterations"], "5", "the other four were before");
    pairs("churn --threads 1 --size 4096 --iterations 1 --no-huge-pages");
    refused("churn --iterations 0", "iterations");
}

/// No manager moves anything here, so it says so in the end. With one page gone elsewhere it would
/// act.
#[test]
fn evade_says_that_nobody_moved_it() {
    for how in ["exit", "exec", "fork", "unmap", "stop", "rest", "spin"] {
        let line = format!("evade --how {how} --threads 2 --size 64K --patience 1");
        let output = run(&line);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{line}: {text}");
        assert!(text.ends_with("result=wrong check=moved\n"), "{text}");
    }
    pairs("evade --how exec --again");
    refused("evade --how vanish", "[possible values: exit, exec, fork, unmap, stop, rest, spin]");
}

/// The program computes the same whatever it holds on to.
#[test]
fn obstacles_change_no_result() {
    let line = "kmeans --threads 2 --size 3M --iterations 2 --no-huge-pages";
    let free = pairs(line);
    let held = pairs(&format!("{line} --hold-pages --undumpable"));
    assert_eq!(free["checksum"], held["checksum"]);
}
