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

/// A table of traffic in it.
const TRAFFIC: &str = "[[0,[1,2,1],[2,4,2]],[[10,20,10],[11,22,11],[12,24,12]],\
                       [[20,40,20],[21,42,21],[22,44,22]]]";

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

fn outcome(file: &[u8]) -> String {
    let (steps, error, truncated) = read(file);
    let error = error.map_or("no error".to_string(), |error| error.to_string());
    let end = truncated.map_or(String::new(), |end| format!("; {end:?}"));
    wrapped(&format!("{steps} steps, then {error}{end}")) + "\n"
}

/// Lines that fit this file.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + word.len() < 80 => *line += &format!(" {word}"),
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.join("\n")
}

/// Reads each file.
#[track_caller]
fn check_files(files: &[&[u8]], expected: &Expect) {
    expected.assert_eq(&files.iter().map(|file| outcome(file)).collect::<String>());
}

/// Reads `text` again and again, each time with the first of a pair replaced by the second.
#[track_caller]
fn check(text: &str, changes: &[(&str, &str)], expected: &Expect) {
    let message = |(from, to): &(&str, &str)| {
        assert!(text.contains(from), "the file holds {from}");
        outcome(text.replacen(from, to, 1).as_bytes())
    };
    expected.assert_eq(&changes.iter().map(message).collect::<String>());
}

#[test]
fn a_good_file_has_no_error() {
    check_files(
        &[good().as_bytes(), EVERY_FIELD.as_bytes()],
        &expect![[r#"
        2 steps, then no error
        2 steps, then no error
    "#]],
    );
}

#[test]
fn what_is_no_trace_is_told_from_a_damaged_one() {
    let good = good();
    let files: [&[u8]; 6] = [
        b"",
        b"\x7fELF\x02\x01\x01\0",
        b"\x1f\x8b\x08\0",
        b"{\"format\":\"perf\"}\n",
        b"[1]\n",
        &good.as_bytes()[..100],
    ];
    check_files(
        &files,
        &expect![[r#"
        0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace"
        0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace"
        0 steps, then run.trace:1: compressed with gzip: unpack it first, expected a
            first line that begins {"format":"rondpoint-trace"
        0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace"
        0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace"
        0 steps, then run.trace:1: the header is cut off after 100 bytes
    "#]],
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
        &[
            (r#""version":1"#, r#""version":2"#),
            (r#""version":1"#, r#""version":0"#),
            (r#""version":1"#, r#""version":"1""#),
            (r#""version":1,"#, ""),
        ],
        &expect![[r#"
            0 steps, then run.trace:1: version: 2, this program reads 1; a newer rondpoint
                wrote it
            0 steps, then run.trace:1: version: expected 1
            0 steps, then run.trace:1: version: expected 1
            0 steps, then run.trace:1: version: expected 1
        "#]],
    );
}

#[test]
fn a_header_that_cannot_be_is_refused() {
    check(
        &good(),
        &[
            (r#""seed":1,"#, ""),
            (r#""seed":1"#, r#""seed":-1"#),
            (r#""seed":1"#, r#""sead":1"#),
            (r#""opted_out":"""#, r#""opted_out":"5-1""#),
            (r#""opted_out":"""#, r#""opted_out":"0-99999999999""#),
            (r#""min_confidence":0.5"#, r#""min_confidence":"half""#),
            ("[[10,", "[[11,"),
            (r#""node":1"#, r#""node":2"#),
            (r#""memory_bytes":"#, r#""memory_bytes":9999999"#),
            ("[[10,", "[[10,20,"),
        ],
        &expect![[r#"
            0 steps, then run.trace:1: missing field `seed` (column 958)
            0 steps, then run.trace:1: seed: invalid value: integer `-1`, expected u64
                (column 98)
            0 steps, then run.trace:1: sead: unknown field `sead`, expected one of `format`,
                `version`, `written_by`, `unix_s`, `host`, `command`, `policies`, `seed`,
                `guard`, `machine`, `notes` (column 95)
            0 steps, then run.trace:1: guard.opted_out: `5-1`, expected a list of numbers as
                "0-3,8" (column 437)
            0 steps, then run.trace:1: guard.opted_out: `0-99999999999`, expected a list of
                numbers as "0-3,8" (column 447)
            0 steps, then run.trace:1: guard.min_confidence: invalid value: string "half",
                expected a number, "NaN", "Infinity" or "-Infinity" (column 142)
            0 steps, then run.trace:1: machine.distances[0][0]: expected 10 on the diagonal
                and at least 10 beside it
            0 steps, then run.trace:1: machine.cpus[2].node: 2, expected below 2
            0 steps, then run.trace:1: machine.nodes[0].memory_bytes: 999999917179869184,
                expected at most 4503599627370496
            0 steps, then run.trace:1: machine.distances: row 0 has 3 entries, expected 2 as
                there are rows (column 946)
        "#]],
    );
}

#[test]
fn lines_that_are_missing_doubled_or_swapped_are_found() {
    let lines: Vec<String> = good().lines().map(|line| format!("{line}\n")).collect();
    let orders: [&[usize]; 9] = [
        &[0],
        &[0, 1],
        &[0, 2],
        &[0, 1, 4],
        &[0, 3, 4],
        &[0, 1, 3, 4],
        &[0, 1, 2, 0],
        &[0, 1, 2, 1, 2],
        &[],
    ];
    let file = |order: &&[usize]| order.iter().map(|place| lines[*place].as_str()).collect();
    let files: Vec<String> = orders.iter().map(file).collect();
    let files: Vec<&[u8]> = files.iter().map(String::as_bytes).collect();
    check_files(
        &files,
        &expect![[r#"
        0 steps, then no error
        1 steps, then no error
        0 steps, then run.trace:2: a decision, expected the next step's input
        0 steps, then run.trace:3: step 2, expected 1
        0 steps, then run.trace:2: step 2, expected 1
        0 steps, then run.trace:3: an input, expected the decision of step 1
        1 steps, then run.trace:4: unknown variant `format`, expected `input` or
            `decision` (column 9)
        1 steps, then run.trace:4: step 1, expected 2
        0 steps, then run.trace:1: not a trace, expected a first line that begins
            {"format":"rondpoint-trace"
    "#]],
    );
    check(
        &good(),
        &[("{\"decision\"", "\n{\"decision\"")],
        &expect![[r#"
        0 steps, then run.trace:3: EOF while parsing a value (column 0)
    "#]],
    );
}

#[test]
fn a_last_line_that_is_cut_off_is_tolerated_and_told() {
    let good = good();
    let second = good.rfind("{\"input\"").expect("two steps") + 5;
    let files: [&[u8]; 3] = [
        &good.as_bytes()[..good.len() - 10],
        &good.as_bytes()[..good.len() - 1],
        &good.as_bytes()[..second],
    ];
    check_files(
        &files,
        &expect![[r#"
        2 steps, then no error; Truncated { line: 5, bytes: 84 }
        2 steps, then no error
        1 steps, then no error; Truncated { line: 4, bytes: 5 }
    "#]],
    );
    // With a newline it is no end of a write but damage, and so is what no line begins with.
    let ended = format!("{}\n", &good[..second]);
    let foreign = format!("{}\":!", &good[..second]);
    check_files(
        &[ended.as_bytes(), foreign.as_bytes()],
        &expect![[r#"
        1 steps, then run.trace:4: EOF while parsing a string (column 5)
        1 steps, then run.trace:4: unknown variant `inp`, expected `input` or `decision`
            (column 6)
    "#]],
    );
}

#[test]
fn wrong_fields_are_named_with_their_path() {
    check(
        EVERY_FIELD,
        &[
            (r#""at_ns":2000000001"#, r#""at_ns":2.5"#),
            (r#""llc-hits":7"#, r#""llc-hit":7"#),
            (r#""llc-hits":7"#, r#""llc-hits":[7,8]"#),
            (r#""llc-hits":7"#, r#""llc-hits":[7,8,9,10]"#),
            (r#""llc-hits":7"#, r#""llc-hits":true"#),
            (r#""exempt":"given-up""#, r#""exempt":"tired""#),
            (r#""done""#, r#""undone""#),
            (r#""do":"replicate""#, r#""do":"duplicate""#),
            (r#""verdict":"better""#, r#""verdict":"best""#),
            (r#""lost":3,"#, ""),
            (r#""tid":[100,"#, r#""tid":["#),
            (r#""1plnrmdf?i""#, r#""1plnrmdf?x""#),
            (r#""1plnrmdf?i""#, r#""1plnrmdf?""#),
            (r#""sllsllslls""#, r#""sllsllsllé""#),
            (r#""node":[-1,"#, r#""node":[65535,"#),
            (r#""page_shift":[12,"#, r#""page_shift":[300,"#),
        ],
        &expect![[r#"
            1 steps, then run.trace:4: input.observation.at_ns: invalid type: floating point
                `2.5`, expected u64 (column 500)
            1 steps, then run.trace:4: input.observation.processes[0].threads[0].counters:
                unknown variant `llc-hit`, expected one of `instructions`, `cycles`,
                `reference-cycles`, `reference-cycles-round-2`, `llc-references`,
                `llc-hits`, `llc-misses`, `llc-prefetch-misses`, `llc-load-misses`,
                `private-misses`, `remote-forward`, `remote-hitm`, `snoop-local`,
                `local-dram`, `remote-dram`, `stall-cycles`, `refills`, `refills-modified`,
                `dram-reads`, `dram-reads-and-writes`, `dram-latency-cycles`,
                `dram-requests` (column 1208)
            1 steps, then run.trace:4:
                input.observation.processes[0].threads[0].counters.llc-hits: invalid length
                2, expected a count, or [count, enabled ns, running ns] (column 918)
            1 steps, then run.trace:4:
                input.observation.processes[0].threads[0].counters.llc-hits: invalid length
                4, expected a count, or [count, enabled ns, running ns] (column 923)
            1 steps, then run.trace:4:
                input.observation.processes[0].threads[0].counters.llc-hits: invalid type:
                boolean `true`, expected a count, or [count, enabled ns, running ns] (column
                917)
            1 steps, then run.trace:4: input.observation.processes[0].exempt: unknown
                variant `tired`, expected one of `kernel-thread`, `real-time`,
                `own-affinity`, `own-memory-policy`, `other-manager`, `opted-out`,
                `given-up` (column 2369)
            1 steps, then run.trace:4: input.outcomes[0].result: unknown variant `undone`,
                expected one of `done`, `pages`, `gone`, `unsupported`, `refused` (column
                67)
            1 steps, then run.trace:5: decision.plan.steps[3].action.do: unknown variant
                `duplicate`, expected one of `move-pages`, `replicate`, `unreplicate`,
                `set-affinity`, `move-process-memory`, `set-sampling` (column 699)
            1 steps, then run.trace:5: decision.judged[0].verdict: unknown variant `best`,
                expected one of `better`, `worse`, `unclear`, `phase-change`, `no-way-back`,
                `traded`, `returned` (column 3503)
            1 steps, then run.trace:4: input.observation.samples: missing field `lost`
                (column 2878)
            1 steps, then run.trace:4: input.observation.samples: tid has 9 entries,
                expected 10 as there are addresses (column 2883)
            1 steps, then run.trace:4: input.observation.samples: source `x`, expected one
                of 1pilnrmdf? (column 2887)
            1 steps, then run.trace:4: input.observation.samples: source has 9 entries,
                expected 10 as there are addresses (column 2886)
            1 steps, then run.trace:4: input.observation.samples: access `é`, expected l
                (load) or s (store) (column 2888)
            1 steps, then run.trace:4: input.observation.samples: node 65535, expected -1 to
                65534 (column 2890)
            1 steps, then run.trace:4: input.observation.samples.page_shift: expected a
                number, or a list with one for each address (column 2802)
        "#]],
    );
}

#[test]
fn what_does_not_fit_the_machine_is_named_with_its_path() {
    check(
        EVERY_FIELD,
        &[
            (r#""link_bytes":[0,1,2,3]"#, r#""link_bytes":[0,1,2]"#),
            (r#""free_memory_bytes":[8589934592,"#, r#""free_memory_bytes":["#),
            ("[[0,[1,2,1],[2,4,2]],", "["),
            (TRAFFIC, "[[0]]"),
            (r#""cpu":1,"cpu_time_ns""#, r#""cpu":2,"cpu_time_ns""#),
            (r#""allowed":"0-1""#, r#""allowed":"0-2""#),
            (r#""tid":103"#, r#""tid":102"#),
            (r#""memory_bytes":[1048576,"#, r#""memory_bytes":["#),
            (r#""allowed_nodes":"0,2""#, r#""allowed_nodes":"0,3""#),
            ("[139637976727552,139637978824704,", "[139637976727552,139637978824705,"),
            (r#""lost":3,"#, r#""lost":18446744073709551615,"#),
            (r#""at_ns":"#, r#""at_ns":999999999"#),
            (r#""memory_bytes":[1048576,0"#, r#""memory_bytes":[1048576,4503599627370497"#),
            (r#""busy":4"#, r#""busy":1099511627777"#),
        ],
        &expect![[r#"
            1 steps, then run.trace:4: input.observation.link_bytes: 3 entries, expected 4
            1 steps, then run.trace:4: input.observation.free_memory_bytes: 2 entries,
                expected 3
            1 steps, then run.trace:4: input.observation.node_traffic: row 0 has 3 entries,
                expected 2 as there are rows (column 594)
            1 steps, then run.trace:4: input.observation.node_traffic: 1 entries, expected 3
            1 steps, then run.trace:4: input.observation.processes[0].threads[1].cpu: 2,
                expected below 2
            1 steps, then run.trace:4: input.observation.processes[0].threads[1].allowed: 2,
                expected below 2
            1 steps, then run.trace:4: input.observation.processes[0].threads: 102 after
                102, expected ascending
            1 steps, then run.trace:4: input.observation.processes[0].memory_bytes: 2
                entries, expected 3
            1 steps, then run.trace:4: input.observation.processes[0].allowed_nodes: 3,
                expected below 3
            1 steps, then run.trace:4: input.observation.processes[0].mappings: expected
                ascending ranges that do not overlap
            1 steps, then run.trace:4: input.observation.samples.lost: 18446744073709551615,
                expected at most 281474976710656
            0 steps, then run.trace:2: input.observation.at_ns: 9999999991000000000,
                expected at most 1152921504606846976
            1 steps, then run.trace:4: input.observation.processes[0].memory_bytes[1]:
                4503599627370497, expected at most 4503599627370496
            1 steps, then run.trace:4: input.outcomes[1].result.pages: 1099511627777,
                expected at most 1099511627776
        "#]],
    );
}
