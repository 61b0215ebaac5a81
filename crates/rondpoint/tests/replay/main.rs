//! `rondpoint replay` from outside: on a recording that is checked in, on changed and on damaged
//! ones.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod stage;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::{Expect, expect, expect_file};
use serde_json::Value;

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");

/// What another mechanism's moves are called.
const FOLLOWS: &str = "\"mechanism\":\"following\"";

fn replay(file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    // A name without folders, so that what is printed is the same everywhere.
    command.current_dir(file.parent().unwrap()).arg("replay").arg(file.file_name().unwrap());
    command.args(more).output().unwrap()
}

fn recording() -> String {
    std::fs::read_to_string(RECORDING).unwrap()
}

/// What a replay of `text` prints, with its status before.
fn printed(text: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("run.trace");
    std::fs::write(&file, text).unwrap();
    let output = replay(&file, more);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("status {}\n{out}{err}", output.status.code().unwrap())
}

/// Lines that fit this file.
fn wrapped(text: &str) -> String {
    text.lines().map(|line| wrapped_line(line) + "\n").collect()
}

fn wrapped_line(line: &str) -> String {
    let mut lines = vec![String::new()];
    for (place, word) in line.split(' ').enumerate() {
        match lines.last_mut() {
            Some(line) if place == 0 => line.push_str(word),
            Some(line) if line.len() + word.len() < 80 => *line += &format!(" {word}"),
            _ => lines.push(format!("      {word}")),
        }
    }
    lines.join("\n")
}

#[track_caller]
fn check(text: &str, more: &[&str], expected: &Expect) {
    expected.assert_eq(&wrapped(&printed(text, more)));
}

/// The recording with the first `from` after `after` replaced.
fn changed(after: &str, from: &str, to: &str) -> String {
    let text = recording();
    let (before, rest) = text.split_at(text.find(after).unwrap());
    assert!(rest.contains(from), "{from} comes after {after}");
    before.to_string() + &rest.replacen(from, to, 1)
}

/// `UPDATE_EXPECT=1` records anew, where a policy is meant to decide otherwise than it did.
#[test]
fn the_stage_under_carrefour_is_what_was_recorded() {
    expect_file![RECORDING].assert_eq(&String::from_utf8(stage::recording()).unwrap());
}

#[test]
fn what_was_decided_around_rests_is_decided_again() {
    let text = String::from_utf8(stage::recording_with_rests()).unwrap();
    assert!(text.contains("\"after_rest\":true"), "counting pauses");
    let printed = printed(&text, &[]);
    assert!(printed.starts_with("status 0\n"), "{printed}");
    assert!(printed.contains("every decision as recorded"), "{printed}");
}

#[test]
fn every_recorded_plan_and_verdict_is_made_again() {
    check(
        &recording(),
        &[],
        &expect![[r#"
        status 0
        run.trace: 4 nodes, 4 CPUs; policy carrefour; seed 7; written by rondpoint 0.1.0

        12 steps, 4 with actions: 40 pages, 0 threads; 1 trial judged; every decision as
              recorded
    "#]],
    );
}

#[test]
fn a_plan_that_is_made_otherwise_is_the_first_difference() {
    let moved = changed("\"number\":3,\"steps\"", "\"mechanism\":\"interleaving\"", FOLLOWS);
    check(
        &moved,
        &[],
        &expect![[r#"
        status 1
        run.trace: 4 nodes, 4 CPUs; policy carrefour; seed 7; written by rondpoint 0.1.0

        first difference: step 4 at 3.000 s (line 8)
          plan.steps[0].action.mechanism
          recorded: "following"
          now:      "interleaving"
          (--plans shows both plans)

        12 steps, 4 with actions: 40 pages, 0 threads; 1 trial judged; 1 step decided
              otherwise
    "#]],
    );
}

#[test]
fn a_verdict_that_is_made_otherwise_is_found_too() {
    let judged = changed("\"judged\":[{", "\"verdict\":\"", "\"verdict\":\"worse\",\"_\":\"");
    let judged = judged.replacen(",\"_\":\"better\"", "", 1).replacen(",\"_\":\"unclear\"", "", 1);
    check(
        &judged,
        &[],
        &expect![[r#"
        status 1
        run.trace: 4 nodes, 4 CPUs; policy carrefour; seed 7; written by rondpoint 0.1.0

        first difference: step 8 at 7.000 s (line 16)
          judged[0].verdict
          recorded: "worse"
          now:      "better"
          (--plans shows both plans)

        12 steps, 4 with actions: 40 pages, 0 threads; 1 trial judged; 1 step decided
              otherwise
    "#]],
    );
}

#[test]
fn plans_shows_both_where_they_differ() {
    let more = changed(
        "\"decision\":{\"step\":1,",
        "\"steps\":[]",
        "\"steps\":[{\"policy\":\"sam\",\
        \"action\":{\"do\":\"set-affinity\",\"pid\":100,\"tid\":101,\"cpus\":\"0-1\"},\
        \"reason\":{},\"because\":\"no reason\"}]",
    );
    let printed = wrapped(&printed(&more, &["--plans"]));
    let (before, _) = printed.split_once("\nstep 3").unwrap();
    expect![[r#"
        status 1
        run.trace: 4 nodes, 4 CPUs; policy carrefour; seed 7; written by rondpoint 0.1.0

        step 1 at 0.000 s (line 2)
         recorded:
          1. thread 101 of 100 to CPUs 0-1
             sam: no reason
         now:
          nothing to do

        step 2 at 1.000 s (line 4)
          1. sample 100: every 1150000 cycles, 30000 pages tracked
             carrefour: 266.2 DRAM requests/µs above 46.5
          refused: move 24 pages of 100 (interleaving): 10 × 0→1, 7 × 0→2, 7 ×
              0→3
             carrefour: controller imbalance 173.2 % above 35 %, shares 100 0 0 0 %; 24
              shared pages considered
             not watched for long enough yet
    "#]]
    .assert_eq(before);
    let end: Vec<&str> = printed.lines().rev().take(7).collect();
    expect![[r#"
          recorded:
              {"action":{"cpus":"0-1","do":"set-affinity","pid":100,"tid":101},"because":"no
              reason","policy":"sam","reason":{}}
          now:      nothing

        12 steps, 4 with actions: 40 pages, 0 threads; 1 trial judged; 1 step decided
              otherwise"#]]
    .assert_eq(&end.into_iter().rev().collect::<Vec<_>>().join("\n"));
}

#[test]
fn json_tells_the_first_difference() {
    let moved = changed("\"number\":3,\"steps\"", "\"mechanism\":\"interleaving\"", FOLLOWS);
    let printed = printed(&moved, &["--json"]);
    let (status, json) = printed.split_once('\n').unwrap();
    assert_eq!(status, "status 1");
    let json: Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["version"], 1);
    assert!(json["steps_differing"].as_u64() >= Some(1), "{json:#}");
    expect![[r#"
        {
          "at_ns": 4000000000,
          "line": 8,
          "now": "interleaving",
          "path": "plan.steps[0].action.mechanism",
          "recorded": "following",
          "step": 4
        }"#]]
    .assert_eq(&format!("{:#}", json["first_difference"]));
}

#[test]
fn another_policy_is_asked_with_the_same_input() {
    check(
        &recording(),
        &["--policy", "observe"],
        &expect![[r#"
        status 0
        run.trace: 4 nodes, 4 CPUs; policy observe; seed 7; written by rondpoint 0.1.0

        12 steps, 0 with actions: 0 pages, 0 threads; 0 trials judged
    "#]],
    );
    let printed = printed(&recording(), &["--policy", "observe,carrefour:code"]);
    assert!(printed.starts_with("status 0\n"), "{printed}");
    assert!(printed.contains("policy observe, carrefour:code;"), "{printed}");
    assert!(printed.contains("  1. move "), "{printed}");
    assert!(!printed.contains("as recorded"), "nothing is compared: {printed}");
}

#[test]
fn a_policy_that_is_not_there_is_said() {
    let said = |text: &str, more: &[&str], expected: &str| {
        let printed = printed(text, more);
        assert!(
            printed.starts_with(&format!("status 2\nrondpoint replay: {expected}")),
            "{printed}"
        );
    };
    let nowhere = "policy magic: no such policy, expected one of observe, ";
    said(&recording(), &["--policy", "magic"], nowhere);
    said(&recording(), &["--policy", "sam:magic"], "policy sam:magic: no such preset, expected");
    said(&recording(), &["--policy", "observe:magic"], "policy observe:magic: has no presets");
    let unknown = changed("", "\"name\":\"carrefour\"", "\"name\":\"magic\"");
    said(&unknown, &[], &format!("run.trace:1: {nowhere}"));
    assert!(printed(&unknown, &["--policy", "observe"]).starts_with("status 0\n"));
}

#[test]
fn a_recording_that_was_not_allowed_to_act_is_asked_what_it_would_have_done() {
    let observed = changed("\"guard\"", "\"act\":true", "\"act\":false");
    let printed = printed(&observed, &["--policy", "carrefour"]);
    assert!(printed.contains("  1. move "), "{printed}");
}

#[test]
fn a_recording_whose_manager_was_killed_is_replayed_to_its_end() {
    let text = recording();
    check(
        &text[..text.len() - 40],
        &[],
        &expect![[r#"
        status 0
        run.trace: 4 nodes, 4 CPUs; policy carrefour; seed 7; written by rondpoint 0.1.0

        line 25 is cut off after 56 bytes: what came later was not recorded

        12 steps, 4 with actions: 40 pages, 0 threads; 1 trial judged; every decision as
              recorded, the last decision was not recorded
    "#]],
    );
    let input = text.rfind("{\"input\"").unwrap();
    check(
        &text[..input + 1000],
        &[],
        &expect![[r#"
        status 0
        run.trace: 4 nodes, 4 CPUs; policy carrefour; seed 7; written by rondpoint 0.1.0

        line 24 is cut off after 1000 bytes: what came later was not recorded

        11 steps, 4 with actions: 40 pages, 0 threads; 1 trial judged; every decision as
              recorded
    "#]],
    );
}

#[test]
fn a_damaged_file_is_one_message_and_status_2() {
    check(
        &changed("\"step\":5", "\"at_ns\":", "\"at\":"),
        &[],
        &expect![[r#"
            status 2
            rondpoint replay: run.trace:10: input.observation.at: unknown field `at`,
                  expected one of `at_ns`, `after_rest`, `node_traffic`, `controller_lines`,
                  `link_bytes`, `free_memory_bytes`, `births`, `processes`, `samples`,
                  `hint_faults` (column 205)
        "#]],
    );
    check(
        &changed("\"step\":5", "\"cpu\":3", "\"cpu\":30"),
        &[],
        &expect![[r#"
        status 2
        rondpoint replay: run.trace:10: input.observation.processes[0].threads[3].cpu:
              30, expected below 4
    "#]],
    );
    check(
        &changed("", "\"version\":1", "\"version\":9"),
        &[],
        &expect![[r#"
        status 2
        rondpoint replay: run.trace:1: version: 9, this program reads 1; a newer
              rondpoint wrote it
    "#]],
    );
    check(
        "nodes = 4\n",
        &[],
        &expect![[r#"
        status 2
        rondpoint replay: run.trace:1: not a trace, expected a first line that begins
              {"format":"rondpoint-trace"
    "#]],
    );
    check(
        "",
        &["--json"],
        &expect![[r#"
        status 2
        rondpoint replay: run.trace:1: not a trace, expected a first line that begins
              {"format":"rondpoint-trace"
    "#]],
    );
}

#[test]
fn a_file_that_is_not_there_is_said() {
    let output = replay(Path::new("/no.trace"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "rondpoint replay: cannot read trace no.trace: No such file or directory (os error 2)\n"
    );
}
