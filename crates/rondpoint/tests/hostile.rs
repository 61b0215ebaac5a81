//! Small inputs that name unbounded work. Each command refuses them with one message, within the
//! memory and CPU time that the test allows it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Address space of a command, KiB: room for the largest model, and for no more.
const MEMORY_KIB: u64 = 3 << 20;
/// CPU time of a command, s: the kernel kills it then.
const CPU_S: u64 = 20;
const BAD_INPUT: i32 = 2;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn machine() -> String {
    repository("machines/carrefour-a.toml").display().to_string()
}

fn rondpoint(arguments: &[&str]) -> Output {
    let limits = format!("ulimit -v {MEMORY_KIB} -t {CPU_S}; exec \"$0\" \"$@\" </dev/null");
    let program = env!("CARGO_BIN_EXE_rondpoint");
    let mut command = Command::new("bash");
    command.args(["-c", &limits, program]).args(arguments).output().expect("bash is there")
}

/// Runs a command that must refuse its input. Returns what it said.
fn refused(arguments: &[&str], status: i32) -> String {
    let output = rondpoint(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown: String = said.chars().take(2_000).collect();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {shown}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    assert!(said.starts_with("rondpoint "), "{shown}");
    said
}

fn model(folder: &TempDir, app: &str) -> String {
    let path = folder.path().join("model.json");
    let text = format!(
        r#"{{"version": 1, "apps": [{{"pid": 1, "threads": [{{"tid": 1, "cpu": 0}}], {app}}}]}}"#
    );
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn decide(model: &str) -> String {
    let machine = machine();
    let arguments = ["decide", "--machine", &machine, "--policy", "auto", "--model", model];
    refused(&arguments, BAD_INPUT)
}

#[test]
fn a_model_of_few_bytes_cannot_ask_for_unbounded_work() {
    let folder = tempfile::tempdir().unwrap();
    let said = decide(&model(&folder, r#""allowed_nodes": [9223372036854775808]"#));
    assert!(said.contains("allowed_nodes: node 9223372036854775808, the machine has"), "{said}");
    let pages = |count: u64, accesses: u64| {
        format!(
            r#""pages": [{{"address": 4096, "count": {count}, "accesses": {{"0": {accesses}}}}}]"#
        )
    };
    let said = decide(&model(&folder, &pages(1 << 21, 60_000)));
    assert!(said.contains("pages[0]: 2097152 pages of 60000 accesses, 0 threads"), "{said}");
    assert!(said.contains("more than 33554432 items in all"), "{said}");
    let said = decide(&model(&folder, &pages(1 << 63, 1)));
    assert!(said.contains("count: 9223372036854775808, expected 1 to"), "{said}");
    let set = "0-7,".repeat(9_000_000) + "0";
    let threads = format!(r#""threads": [{{"tid": 1, "cpu": 0, "allowed": "{set}"}}]"#);
    let path = folder.path().join("set.json");
    let text = format!(r#"{{"version": 1, "apps": [{{"pid": 1, {threads}}}]}}"#);
    fs::write(&path, text).unwrap();
    // Long, but no more than its text: accepted with the set that it names.
    let machine = machine();
    let path = path.display().to_string();
    let output =
        rondpoint(&["decide", "--machine", &machine, "--policy", "auto", "--model", &path]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn several_models_share_one_budget() {
    let folder = tempfile::tempdir().unwrap();
    let pages = r#""pages": [{"address": 4096, "count": 2000000, "accesses": {"0": 1}}]"#;
    let path = model(&folder, pages);
    let machine = machine();
    let mut arguments = vec!["decide", "--machine", &machine, "--policy", "observe"];
    for _ in 0..3 {
        arguments.extend(["--model", &path]);
    }
    let said = refused(&arguments, BAD_INPUT);
    assert!(said.contains("more than 33554432 items in all"), "{said}");
}

/// Files that have no end, or on which a reader would wait for ever.
fn no_files(folder: &TempDir) -> Vec<(String, &'static str)> {
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let sparse = folder.path().join("sparse");
    File::create(&sparse).and_then(|file| file.set_len(1 << 40)).expect("made");
    vec![
        ("/dev/zero".to_string(), "it is a device, expected a regular file"),
        (pipe.display().to_string(), "it is a pipe, expected a regular file"),
        (folder.path().display().to_string(), "it is a directory, expected a regular file"),
        (sparse.display().to_string(), ""),
    ]
}

#[test]
fn what_is_no_bounded_file_is_refused_by_every_command_that_reads_one() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine();
    for (path, expected) in no_files(&folder) {
        let bounded = |said: &str| {
            let is_bounded = match expected {
                "" => said.contains("bytes"),
                expected => said.contains(expected),
            };
            assert!(is_bounded && said.contains(&path), "{path}: {said}");
        };
        bounded(&refused(&["replay", &path], BAD_INPUT));
        let model = &repository("fixtures/models/well-placed.json").display().to_string();
        let of_machine = ["decide", "--policy", "auto", "--model", model, "--machine", &path];
        bounded(&refused(&of_machine, BAD_INPUT));
        let of_model = ["decide", "--policy", "auto", "--machine", &machine, "--model", &path];
        bounded(&refused(&of_model, BAD_INPUT));
        bounded(&refused(&["run", "--machine", &path, "--", "true"], 125));
        bounded(&refused(&["observe", "--machine", &path, "--", "true"], 125));
    }
}

#[test]
fn a_trace_of_few_bytes_cannot_ask_for_unbounded_work() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read_to_string(repository("fixtures/traces/carrefour.trace")).unwrap();
    let path = folder.path().join("set.trace").display().to_string();
    // Below the reader's bound of one set; many of them are not below that of a line.
    let set = vec!["0-4194304"; 50].join(",");
    let hostile = good.replacen(r#""opted_out":""#, &format!(r#""opted_out":"{set}"#), 1);
    assert_ne!(hostile, good);
    fs::write(&path, hostile).unwrap();
    let output = rondpoint(&["replay", &path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < BAD_INPUT), "{said}");
    let (start, rest) = good.split_once(r#""threads":["#).unwrap();
    let thread = r#"{"tid":TID,"cpu":0,"cpu_time_ns":1,"allowed":"4194304"},"#;
    let threads: String =
        (10_000_000..10_000_400).map(|tid: u32| thread.replace("TID", &tid.to_string())).collect();
    fs::write(&path, format!("{start}\"threads\":[{threads}{rest}")).unwrap();
    let said = refused(&["replay", &path], BAD_INPUT);
    assert!(said.contains("expand to more than 12800000 items in all"), "{said}");
    let policies = r#"{"name":"auto"},"#.repeat(100);
    let hostile = good.replacen(r#""policies":["#, &format!(r#""policies":[{policies}"#), 1);
    fs::write(&path, hostile).unwrap();
    let said = refused(&["replay", &path], BAD_INPUT);
    assert!(said.contains("policies, expected at most 64"), "{said}");
}

#[test]
fn lists_and_counts_on_the_command_line_are_bounded() {
    let own = std::process::id().to_string();
    let list = "0-65535,".repeat(8_000) + "0";
    let said = refused(&["move", "--pid", &own, "--from", &list, "--to", "0", "-n"], BAD_INPUT);
    assert!(said.contains("--from: "), "{said}");
    let many = vec!["auto"; 20_000].join(",");
    let model = repository("fixtures/models/well-placed.json").display().to_string();
    let machine = machine();
    let arguments = ["decide", "--machine", &machine, "--model", &model, "--policy", &many];
    let said = refused(&arguments, BAD_INPUT);
    assert!(said.contains("20000 policies, expected at most 64"), "{said}");
    let said = refused(&["run", "--policy", &many, "--", "true"], 125);
    assert!(said.contains("20000 policies, expected at most 64"), "{said}");
    let workers = ["move", "--pid", &own, "--from", "0", "--to", "0", "-n", "--workers"];
    let output = rondpoint(&[&workers[..], &["1000000000"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{said}");
    assert!(said.contains("expected 1 to 256"), "{said}");
}

#[test]
fn a_captured_tree_cannot_ask_for_unbounded_work() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = folder.path().join("sys/devices/system/node");
    fs::create_dir_all(&nodes).unwrap();
    let root = folder.path().display().to_string();
    let list = "0-65535,".repeat(100_000);
    fs::write(nodes.join("online"), list).unwrap();
    let said = refused(&["topology", "--root", &root], BAD_INPUT);
    assert!(said.contains("online"), "{said}");
    fs::remove_file(nodes.join("online")).unwrap();
    assert!(Command::new("mkfifo").arg(nodes.join("online")).status().unwrap().success());
    // A pipe without a writer is an empty file, and does not block.
    let output = rondpoint(&["topology", "--root", &root]);
    assert!(output.status.code().is_some_and(|code| code <= BAD_INPUT));
}
