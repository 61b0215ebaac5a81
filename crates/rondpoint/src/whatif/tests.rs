//! Tests of the answers for a recording that begins with all memory on one node.

use super::*;

/// A thread on each of four nodes, and memory that Carrefour spreads from the first.
const JAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");

fn asked(question: &[&str]) -> Result<Answer> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }
    let words = ["whatif", JAM].iter().chain(question);
    let line = <Line as clap::Parser>::try_parse_from(words).map_err(anyhow::Error::from)?;
    answer(&line.arguments)
}

fn speed(question: &[&str]) -> [f64; 3] {
    let json = serde_json::to_value(asked(question).expect("an answer")).expect("JSON");
    let speed = &json["processes"][0]["speed"];
    ["least", "likely", "most"].map(|end| speed[end].as_f64().expect("a number"))
}

#[test]
fn memory_of_a_jam_is_faster_spread_than_on_one_node() {
    let [least, likely, most] = speed(&["--place", "interleave"]);
    assert!(least > 1.0 && least < likely && likely < most, "{least} {likely} {most}");
    let [_, one_node, _] = speed(&["--place", "node:0"]);
    assert!(one_node < likely, "{one_node}");
}

#[test]
fn a_policy_that_only_looks_changes_nothing() {
    let [least, likely, most] = speed(&["--policy", "observe"]);
    assert!([least, likely, most].iter().all(|speed| (speed - 1.0).abs() < 1e-9), "{likely}");
}

#[test]
fn a_policy_is_asked_only_about_the_time_before_the_recorded_one_acted() {
    // The recorded Carrefour spreads pages at three of twelve seconds.
    let answer = asked(&["--policy", "carrefour"]).expect("an answer");
    let json = serde_json::to_value(&answer).expect("JSON");
    assert!((1.0..=3.0).contains(&json["seconds"].as_f64().expect("a number")), "{json}");
    assert!(answer.text().contains("looks are left out: the recorded manager had acted"));
    let whole = serde_json::to_value(asked(&["--place", "interleave"]).expect("an answer"));
    assert_eq!(whole.expect("JSON")["looks_left_out"], 0);
}

#[test]
fn a_wider_machine_wins_and_another_size_is_refused() {
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/");
    let text = std::fs::read_to_string(format!("{machines}carrefour-a.toml")).expect("a file");
    let folder = tempfile::tempdir().expect("a folder");
    let with = |bandwidth: &str| {
        let path = folder.path().join("one.toml");
        let text = text.replace("cpus = 4", "cpus = 1");
        std::fs::write(&path, text.replace("bandwidth_mb_s = 6450", bandwidth)).expect("written");
        speed(&["--machine", path.to_str().expect("a path")])[1]
    };
    let (narrow, wide) = (with("bandwidth_mb_s = 3000"), with("bandwidth_mb_s = 60000"));
    assert!(narrow < wide, "{narrow} {wide}");
    let other = format!("{machines}nmass-2.toml");
    let error = asked(&["--machine", &other]).expect_err("another size").to_string();
    assert!(error.contains("the recorded machine has 4 and 4"), "{error}");
}

#[test]
fn a_question_is_one_and_has_a_place_that_there_is() {
    assert!(asked(&[]).is_err());
    assert!(asked(&["--place", "local", "--policy", "auto"]).is_err());
    let error = asked(&["--place", "node:9"]).expect_err("four nodes").to_string();
    assert!(
        error.starts_with("--place node:9: expected one of the nodes with memory, 0-3"),
        "{error}"
    );
    let error = asked(&["--place", "moon"]).expect_err("no place").to_string();
    assert_eq!(error, "--place moon: expected local, interleave, or node:N");
}

#[test]
fn the_table_names_what_was_lost() {
    let text = asked(&["--place", "local"]).expect("an answer").text();
    assert!(text.contains("memory beside its threads (predicted, over"), "{text}");
    assert!(text.contains("% queue at a memory controller"), "{text}");
}
