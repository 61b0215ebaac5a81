//! Every kind of damage has one message that names file, line and what was expected.

use expect_test::{Expect, expect};
use rondpoint_core::Nanos;
use rondpoint_core::Observation;
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::topology::synthetic;
use rondpoint_trace::{Reader, TraceError, Truncated};

use crate::round_trip::{plain_header, written};

pub(crate) const EVERY_FIELD: &str =
    include_str!("../../../../fixtures/traces/every-field.v1.trace");

/// Header and two empty steps: lines 1 to 5.
fn good() -> String {
    let topology = synthetic::parse("node:2 core:2").expect("a machine");
    let step = |second| {
        let observation = Observation { at: Nanos::from_secs(second), ..Observation::default() };
        (Input { observation, outcomes: Vec::new() }, Step::default())
    };
    let file = written(&plain_header(topology), &[step(1), step(2)]);
    String::from_utf8(file).expect("JSON is UTF-8")
}

/// Steps that could be read, what ended that, and the truncated line.
pub(crate) fn read(file: &[u8]) -> (usize, Option<TraceError>, Option<Truncated>) {
    let mut reader = match Reader::new(file, "run.trace") {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error), None),
    };
    let mut steps = 0;
    for record in reader.by_ref() {
        match record {
            Ok(_) => steps += 1,
            Err(error) => return (steps, Some(error), reader.truncated()),
        }
    }
    (steps, None, reader.truncated())
}

#[track_caller]
fn check_bytes(file: &[u8], expected: &Expect) {
    let (steps, error, truncated) = read(file);
    let error = error.map_or("no error".to_string(), |error| error.to_string());
    let end = truncated.map_or(String::new(), |end| format!("; {end:?}"));
    expected.assert_eq(&wrapped(&format!("{steps} steps, then {error}{end}")));
}

/// Lines that fit this file.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + word.len() < 80 => *line += &format!(" {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}

/// Reads `text` with the first `from` replaced.
#[track_caller]
fn check(text: &str, from: &str, to: &str, expected: &Expect) {
    assert!(text.contains(from), "the file holds {from}");
    check_bytes(text.replacen(from, to, 1).as_bytes(), expected);
}

#[test]
fn a_good_file_has_no_error() {
    check_bytes(good().as_bytes(), &expect!["2 steps, then no error"]);
    check_bytes(EVERY_FIELD.as_bytes(), &expect!["2 steps, then no error"]);
}

#[test]
fn what_is_no_trace_is_told_from_a_damaged_one() {
    check_bytes(
        b"",
        &expect![[r#"
            0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace""#]],
    );
    check_bytes(
        b"\x7fELF\x02\x01\x01\0",
        &expect![[r#"
            0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace""#]],
    );
    check_bytes(
        b"\x1f\x8b\x08\0",
        &expect![[r#"
            0 steps, then run.trace:1: compressed with gzip: unpack it first, expected a
            first line that begins {"format":"rondpoint-trace""#]],
    );
    check_bytes(
        b"{\"format\":\"perf\"}\n",
        &expect![[r#"
            0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace""#]],
    );
    check_bytes(
        b"[1]\n",
        &expect![[r#"
            0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace""#]],
    );
    check_bytes(
        &good().as_bytes()[..100],
        &expect!["0 steps, then run.trace:1: the header is cut off after 100 bytes"],
    );
}

#[test]
fn a_file_that_is_not_there_is_said() {
    let error = Reader::open("/no/such.trace").err().map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("cannot read trace /no/such.trace: No such file or directory (os error 2)")
    );
}

#[test]
fn a_newer_version_is_refused() {
    check(
        &good(),
        "\"version\":1",
        "\"version\":2",
        &expect![[r#"
        0 steps, then run.trace:1: version: 2, this program reads 1; a newer rondpoint
        wrote it"#]],
    );
    check(
        &good(),
        "\"version\":1",
        "\"version\":0",
        &expect!["0 steps, then run.trace:1: version: expected 1"],
    );
    check(
        &good(),
        "\"version\":1",
        "\"version\":\"1\"",
        &expect!["0 steps, then run.trace:1: version: expected 1"],
    );
    check(
        &good(),
        "\"version\":1,",
        "",
        &expect!["0 steps, then run.trace:1: version: expected 1"],
    );
}

#[test]
fn a_header_that_cannot_be_is_refused() {
    check(
        &good(),
        "\"seed\":1,",
        "",
        &expect!["0 steps, then run.trace:1: missing field `seed` (column 958)"],
    );
    check(
        &good(),
        "\"seed\":1",
        "\"seed\":-1",
        &expect![[r#"
        0 steps, then run.trace:1: seed: invalid value: integer `-1`, expected u64
        (column 98)"#]],
    );
    check(
        &good(),
        "\"seed\":1",
        "\"sead\":1",
        &expect![[r#"
        0 steps, then run.trace:1: sead: unknown field `sead`, expected one of `format`,
        `version`, `written_by`, `unix_s`, `host`, `command`, `policies`, `seed`,
        `guard`, `machine`, `notes` (column 95)"#]],
    );
    check(
        &good(),
        "\"opted_out\":\"\"",
        "\"opted_out\":\"5-1\"",
        &expect![[r#"
            0 steps, then run.trace:1: guard.opted_out: `5-1`, expected a list of numbers as
            "0-3,8" (column 437)"#]],
    );
    check(
        &good(),
        "\"opted_out\":\"\"",
        "\"opted_out\":\"0-99999999999\"",
        &expect![[r#"
            0 steps, then run.trace:1: guard.opted_out: `0-99999999999`, expected a list of
            numbers as "0-3,8" (column 447)"#]],
    );
    check(
        &good(),
        "\"min_confidence\":0.5",
        "\"min_confidence\":\"half\"",
        &expect![[r#"
            0 steps, then run.trace:1: guard.min_confidence: invalid value: string "half",
            expected a number, "NaN", "Infinity" or "-Infinity" (column 142)"#]],
    );
    check(
        &good(),
        "[[10,",
        "[[11,",
        &expect![[r#"
            0 steps, then run.trace:1: machine.distances[0][0]: expected 10 on the diagonal
            and at least 10 beside it"#]],
    );
    check(
        &good(),
        "\"node\":1",
        "\"node\":2",
        &expect!["0 steps, then run.trace:1: machine.cpus[2].node: 2, expected below 2"],
    );
    check(
        &good(),
        "[[10,",
        "[[10,20,",
        &expect![[r#"
        0 steps, then run.trace:1: machine.distances: row 0 has 3 entries, expected 2 as
        there are rows (column 946)"#]],
    );
}

#[test]
fn lines_that_are_missing_doubled_or_swapped_are_found() {
    let lines: Vec<String> = good().lines().map(|line| format!("{line}\n")).collect();
    let file = |order: &[usize]| -> Vec<u8> {
        order.iter().flat_map(|place| lines[*place].bytes()).collect()
    };
    check_bytes(&file(&[0]), &expect!["0 steps, then no error"]);
    check_bytes(&file(&[0, 1]), &expect!["1 steps, then no error"]);
    check_bytes(
        &file(&[0, 2]),
        &expect!["0 steps, then run.trace:2: a decision, expected the next step's input"],
    );
    check_bytes(
        &file(&[0, 1, 3, 4]),
        &expect!["0 steps, then run.trace:3: an input, expected the decision of step 1"],
    );
    check_bytes(&file(&[0, 1, 4]), &expect!["0 steps, then run.trace:3: step 2, expected 1"]);
    check_bytes(&file(&[0, 1, 2, 1, 2]), &expect!["1 steps, then run.trace:4: step 1, expected 2"]);
    check_bytes(&file(&[0, 3, 4]), &expect!["0 steps, then run.trace:2: step 2, expected 1"]);
    check_bytes(
        &file(&[0, 1, 2, 0]),
        &expect![[r#"
        1 steps, then run.trace:4: unknown variant `format`, expected `input` or
        `decision` (column 9)"#]],
    );
    check(
        &good(),
        "{\"decision\"",
        "\n{\"decision\"",
        &expect!["0 steps, then run.trace:3: EOF while parsing a value (column 0)"],
    );
}

#[test]
fn a_last_line_that_is_cut_off_is_tolerated_and_told() {
    let good = good();
    check_bytes(
        &good.as_bytes()[..good.len() - 10],
        &expect!["2 steps, then no error; Truncated { line: 5, bytes: 84 }"],
    );
    check_bytes(&good.as_bytes()[..good.len() - 1], &expect!["2 steps, then no error"]);
    let second = good.rfind("{\"input\"").expect("two steps") + 5;
    check_bytes(
        &good.as_bytes()[..second],
        &expect!["1 steps, then no error; Truncated { line: 4, bytes: 5 }"],
    );
    // With a newline it is no end of a write but damage.
    check_bytes(
        format!("{}\n", &good[..second]).as_bytes(),
        &expect!["1 steps, then run.trace:4: EOF while parsing a string (column 5)"],
    );
    // What is not the begin of a line is damage too.
    check_bytes(
        format!("{}\":!", &good[..second + 1]).as_bytes(),
        &expect![[r#"
        1 steps, then run.trace:4: unknown variant `inpu`, expected `input` or
        `decision` (column 7)"#]],
    );
}

#[test]
fn wrong_fields_are_named_with_their_path() {
    let check = |from, to, expected| check(EVERY_FIELD, from, to, &expected);
    check(
        "\"at_ns\":2000000001",
        "\"at_ns\":2.5",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.at_ns: invalid type: floating point
        `2.5`, expected u64 (column 500)"#]],
    );
    check(
        "\"llc-hits\":7",
        "\"llc-hit\":7",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].threads[0].counters:
        unknown variant `llc-hit`, expected one of `instructions`, `cycles`,
        `reference-cycles`, `reference-cycles-round-2`, `llc-references`, `llc-hits`,
        `llc-misses`, `llc-prefetch-misses`, `llc-load-misses`, `private-misses`,
        `remote-forward`, `remote-hitm`, `snoop-local`, `local-dram`, `remote-dram`,
        `stall-cycles`, `refills`, `refills-modified`, `dram-reads`,
        `dram-reads-and-writes`, `dram-latency-cycles`, `dram-requests` (column 1208)"#]],
    );
    check(
        "\"llc-hits\":7",
        "\"llc-hits\":[7,8]",
        expect![[r#"
        1 steps, then run.trace:4:
        input.observation.processes[0].threads[0].counters.llc-hits: invalid length 2,
        expected a count, or [count, enabled ns, running ns] (column 918)"#]],
    );
    check(
        "\"llc-hits\":7",
        "\"llc-hits\":[7,8,9,10]",
        expect![[r#"
        1 steps, then run.trace:4:
        input.observation.processes[0].threads[0].counters.llc-hits: invalid length 4,
        expected a count, or [count, enabled ns, running ns] (column 923)"#]],
    );
    check(
        "\"llc-hits\":7",
        "\"llc-hits\":true",
        expect![[r#"
        1 steps, then run.trace:4:
        input.observation.processes[0].threads[0].counters.llc-hits: invalid type:
        boolean `true`, expected a count, or [count, enabled ns, running ns] (column
        917)"#]],
    );
    check(
        "\"exempt\":\"given-up\"",
        "\"exempt\":\"tired\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].exempt: unknown
        variant `tired`, expected one of `kernel-thread`, `real-time`, `own-affinity`,
        `own-memory-policy`, `other-manager`, `opted-out`, `given-up` (column 2369)"#]],
    );
    check(
        "\"done\"",
        "\"undone\"",
        expect![[r#"
        1 steps, then run.trace:4: input.outcomes[0].result: unknown variant `undone`,
        expected one of `done`, `pages`, `gone`, `unsupported`, `refused` (column 67)"#]],
    );
    check(
        "\"do\":\"replicate\"",
        "\"do\":\"duplicate\"",
        expect![[r#"
        1 steps, then run.trace:5: decision.plan.steps[3].action.do: unknown variant
        `duplicate`, expected one of `move-pages`, `replicate`, `unreplicate`,
        `set-affinity`, `move-process-memory`, `set-sampling` (column 699)"#]],
    );
    check(
        "\"verdict\":\"better\"",
        "\"verdict\":\"best\"",
        expect![[r#"
        1 steps, then run.trace:5: decision.judged[0].verdict: unknown variant `best`,
        expected one of `better`, `worse`, `unclear`, `phase-change` (column 3503)"#]],
    );
    check(
        "\"lost\":3,",
        "",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples: missing field `lost`
        (column 2845)"#]],
    );
    check(
        "\"tid\":[100,",
        "\"tid\":[",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples: tid has 8 entries,
        expected 9 as there are addresses (column 2850)"#]],
    );
    check(
        "\"1plnrmdf?\"",
        "\"1plnrmdfx\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples: source `x`, expected one
        of 1plnrmdf? (column 2854)"#]],
    );
    check(
        "\"1plnrmdf?\"",
        "\"1plnrmdf\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples: source has 8 entries,
        expected 9 as there are addresses (column 2853)"#]],
    );
    check(
        "\"sllsllsll\"",
        "\"sllsllslé\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples: access `é`, expected l
        (load) or s (store) (column 2855)"#]],
    );
    check(
        "\"node\":[-1,",
        "\"node\":[65535,",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples: node 65535, expected -1 to
        65534 (column 2857)"#]],
    );
    check(
        "\"page_shift\":[12,",
        "\"page_shift\":[300,",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples.page_shift: expected a
        number, or a list with one for each address (column 2771)"#]],
    );
}

#[test]
fn what_does_not_fit_the_machine_is_named_with_its_path() {
    let check = |from, to, expected| check(EVERY_FIELD, from, to, &expected);
    check(
        "\"link_bytes\":[0,1,2,3]",
        "\"link_bytes\":[0,1,2]",
        expect!["1 steps, then run.trace:4: input.observation.link_bytes: 3 entries, expected 4"],
    );
    check(
        "\"free_memory_bytes\":[8589934592,",
        "\"free_memory_bytes\":[",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.free_memory_bytes: 2 entries,
        expected 3"#]],
    );
    check(
        "[[0,[1,2,1],[2,4,2]],",
        "[",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.node_traffic: row 0 has 3 entries,
        expected 2 as there are rows (column 594)"#]],
    );
    check(
        "\"node_traffic\":[[0,[1,2,1],[2,4,2]],[[10,20,10],[11,22,11],[12,24,12]],[[20,40,20],\
           [21,42,21],[22,44,22]]]",
        "\"node_traffic\":[[0]]",
        expect!["1 steps, then run.trace:4: input.observation.node_traffic: 1 entries, expected 3"],
    );
    check(
        "\"cpu\":1,\"cpu_time_ns\"",
        "\"cpu\":2,\"cpu_time_ns\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].threads[1].cpu: 2,
        expected below 2"#]],
    );
    check(
        "\"allowed\":\"0-1\"",
        "\"allowed\":\"0-2\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].threads[1].allowed: 2,
        expected below 2"#]],
    );
    check(
        "\"tid\":103",
        "\"tid\":102",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].threads: 102 after
        102, expected ascending"#]],
    );
    check(
        "\"memory_bytes\":[1048576,",
        "\"memory_bytes\":[",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].memory_bytes: 2
        entries, expected 3"#]],
    );
    check(
        "\"allowed_nodes\":\"0,2\"",
        "\"allowed_nodes\":\"0,3\"",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].allowed_nodes: 3,
        expected below 3"#]],
    );
    check(
        "[139637976727552,139637978824704,",
        "[139637976727552,139637978824705,",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.processes[0].mappings: expected
        ascending ranges that do not overlap"#]],
    );
    check(
        "\"lost\":3,",
        "\"lost\":18446744073709551615,",
        expect![[r#"
        1 steps, then run.trace:4: input.observation.samples.lost: 18446744073709551615,
        expected at most 281474976710656"#]],
    );
}
