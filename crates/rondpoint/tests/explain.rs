//! `rondpoint explain` from outside: on a recording that is checked in, on changed, cut and damaged
//! ones.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");

fn recording() -> String {
    std::fs::read_to_string(RECORDING).unwrap()
}

/// Status, stdout and stderr of `explain` on this text.
fn explain(text: &str, more: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.trace"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.current_dir(folder.path()).args(["explain", "run.trace"]).args(more);
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), out, err)
}

fn shown(text: &str, more: &[&str]) -> String {
    let (status, out, err) = explain(text, more);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    out
}

fn json(text: &str, more: &[&str]) -> Value {
    serde_json::from_str(&shown(text, &[more, &["--json"]].concat())).unwrap()
}

/// The line of the timeline that has all of these words.
#[track_caller]
fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    text.lines().find(has).unwrap_or_else(|| panic!("{words:?} in:\n{text}"))
}

#[test]
fn each_action_veto_and_verdict_is_a_sentence() {
    let text = shown(&recording(), &[]);
    let action = line(&text, &["3.000 s", "24 pages (96.0 KiB) spread over nodes"]);
    assert!(action.contains("controller imbalance 173.2 %"), "{action}");
    assert!(action.contains("96.0 KiB moved in"), "{action}");
    let known = line(&text, &["3.000 s", "known: loses 16 % of its time to memory"]);
    assert!(known.contains("node 0 serves 100 % of all"), "{known}");
    let veto = line(&text, &["1.000 s", "not done: 24 pages"]);
    assert!(
        veto.contains("not watched for long enough yet; predicted to be 87 % faster "),
        "{veto}"
    );
    assert!(veto.ends_with("(2 times until 2.000 s)"), "{veto}");
    assert!(known.contains("by the cost model: queue at a memory controller"), "{known}");
    line(
        &text,
        &[
            "7.000 s",
            "plan 3 of carrefour: better; measured instructions of all threads +71 % ± 1.4 %",
        ],
    );
    let times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.trim_start().split_once(" s  ")?.0.parse().ok())
        .collect();
    assert!(times.len() > 8 && times.is_sorted(), "{times:?}");
}

#[test]
fn a_moment_has_what_was_known_wanted_done_and_what_came_of_it() {
    let text = shown(&recording(), &["--at", "3.9"]);
    line(&text, &["look 4 at 3.000 s"]);
    line(&text, &["of all", "100%", "0%"]);
    line(&text, &["process 100: 400 % of a CPU, 4 threads by node 1 1 1 1"]);
    line(&text, &["process 100, judged at 7.000 s: plan 3 of carrefour: better"]);
    let first = shown(&recording(), &["--at", "0"]);
    line(&first, &["nothing: a window begins here"]);
}

/// JSON holds what the sentences say.
#[test]
fn json_has_the_figures_of_the_sentences() {
    let all = json(&recording(), &[]);
    let moments = all["moments"].as_array().unwrap();
    let third = moments.iter().find(|moment| moment["at_s"] == 3.0).unwrap();
    let wanted = &third["wanted"][0];
    assert_eq!(wanted["pages"], 24);
    assert_eq!(wanted["came_of_it"]["pages"]["moved"], 24);
    assert_eq!(wanted["verdict"]["verdict"], "better");
    assert_eq!(wanted["judged_at_s"], 7.0);
    let text = shown(&recording(), &[]);
    assert!(text.contains(wanted["sentence"].as_str().unwrap()), "{wanted}");
    let one = json(&recording(), &["--at", "3"]);
    assert_eq!(one["moments"].as_array().unwrap().len(), 1);
    assert_eq!(one["moments"][0], *third);
}

#[test]
fn the_recorded_decision_is_told_where_this_version_decides_otherwise() {
    let text = recording().replace("controller imbalance 173.2", "an old rule with 9");
    let told = shown(&text, &[]);
    assert!(told.contains("an old rule with 9 %"), "{told}");
    let text = recording().replace("\"mechanism\":\"interleaving\"", "\"mechanism\":\"following\"");
    let told = shown(&text, &[]);
    line(&told, &["decided otherwise by this version"]);
    line(&told, &["3.000 s", "24 pages (96.0 KiB) after their threads"]);
}

#[test]
fn a_recording_of_a_policy_that_is_gone_is_told_without_prices() {
    let text = recording().replacen("\"name\":\"carrefour\"", "\"name\":\"forgotten\"", 1);
    let told = shown(&text, &[]);
    line(&told, &["no price is known", "forgotten", "no such policy"]);
    line(&told, &["3.000 s", "known: loses 16 % of its time"]);
    line(&told, &["7.000 s", "better; measured instructions of all threads +71 %"]);
}

#[test]
fn a_recording_that_is_cut_off_is_told_up_to_there() {
    let whole = recording();
    let told = shown(&whole[..whole.len() * 2 / 3], &[]);
    line(&told, &["is cut off: what came later was not recorded"]);
    line(&told, &["3.000 s", "24 pages"]);
}

#[test]
fn what_is_asked_wrongly_is_refused_with_what_there_is() {
    for (more, expected) in [
        (&["--at", "11.5"][..], "--at 11.5: expected 0 to 11.000 s, the length of the recording"),
        (&["--at", "soon"], "expected seconds, such as 2.5"),
        (&["--at=-1"], "expected seconds, such as 2.5"),
        (&["--pid", "7"], "--pid 7: not in the recording, which has 100"),
    ] {
        let (status, out, err) = explain(&recording(), more);
        assert_eq!((status, out.as_str()), (2, ""), "{more:?}");
        assert!(err.contains(expected), "{more:?}: {err}");
    }
    let (status, out, err) = explain("no trace\n", &[]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("run.trace:1"), "{err}");
    assert!(!Path::new("run.trace").exists());
}

/// A number asks the daemon, unless a file has that name.
#[test]
fn a_number_is_a_process_of_the_daemon_unless_a_file_has_that_name() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.current_dir(folder.path()).args(["explain", "4711", "--socket", "none"]).args(more);
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), err)
    };
    let (status, err) = ask(&[]);
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("no daemon answers at none"), "{err}");
    let (status, err) = ask(&["--at", "1"]);
    assert_eq!(status, 2, "{err}");
    std::fs::write(folder.path().join("4711"), recording()).unwrap();
    assert_eq!(ask(&["--at", "1"]), (0, String::new()));
}

/// The command line and the reasons of a recording are text from outside.
#[test]
fn nothing_of_a_recording_acts_on_a_terminal() {
    let text = recording()
        .replacen("\"command\":[\"./stage\"", "\"command\":[\"\\u001b[2J./stage\"", 1)
        .replace("controller imbalance", "\\u001b]0;owned\\u0007imbalance");
    assert!(text.contains("owned") && text.contains("[2J"), "the recording has both");
    for more in [&[][..], &["--at", "3"], &["--json"]] {
        let told = shown(&text, more);
        assert!(told.contains("owned"), "{told}");
        assert!(!told.contains(['\u{1b}', '\u{7}']), "{more:?}: {told}");
    }
}
