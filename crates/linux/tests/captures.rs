//! Records that other people's machines wrote, from the test files of another tool.
//!
//! Each file of `fixtures/perf` has the bytes of some records, and what that tool's own parser says
//! of each. The form is in the README there.

// The files are of little-endian machines, and records have the machine's byte order.
#![cfg(target_endian = "little")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use rondpoint_linux::perf::data_source::{ServedBy, Vendor};
use rondpoint_linux::perf::record::{Mode, Record, Records};
use rondpoint_linux::perf::sample::{Layout, Sample};

/// The files, each with the number of its records.
const FILES: [(&str, usize); 8] = [
    ("auxiliary", 8),
    ("branches", 4),
    ("branches-with-index", 3),
    ("hybrid", 6),
    ("loads-with-sources", 24),
    ("lost-samples", 6),
    ("raw-data", 10),
    ("throttled", 18),
];

/// A file's layout, and its records with what they are.
fn capture(name: &str) -> (Layout, Vec<(Vec<u8>, String)>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf");
    let text = fs::read_to_string(folder.join(format!("{name}.txt"))).expect("a fixture");
    let mut layout = Layout::default();
    let (mut records, mut bytes) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (kind, content) = line.split_once(" = ").unwrap_or_else(|| panic!("{name}: {line}"));
        match kind {
            "layout" => layout = layout_of(content),
            "record" => bytes = from_hex(content),
            "is" => records.push((std::mem::take(&mut bytes), content.to_owned())),
            _ => panic!("{name}: {line}"),
        }
    }
    (layout, records)
}

fn layout_of(text: &str) -> Layout {
    let mut layout = Layout::default();
    for field in text.split(' ') {
        let (name, value) = field.split_once('=').expect("NAME=HEXADECIMAL");
        let value = u64::from_str_radix(value, 16).expect("a hexadecimal number");
        match name {
            "sample_type" => layout.sample_type = value,
            "read_format" => layout.read_format = value,
            "branch_index" => layout.branch_index = value != 0,
            _ => panic!("no field {name}"),
        }
    }
    layout
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A record in the words of the files.
fn told(record: &Record) -> String {
    match record {
        Record::Sample(sample, mode) => of_sample(sample, *mode),
        Record::LostSamples { samples } => format!("lost-samples {samples:x}"),
        Record::Throttle => "throttle".to_owned(),
        Record::Unthrottle => "unthrottle".to_owned(),
        Record::Name { process, thread, name } => {
            format!("name process={process:x} thread={thread:x} {name}")
        }
        Record::Fork(of) | Record::Exit(of) => {
            let kind = if matches!(record, Record::Fork(_)) { "fork" } else { "exit" };
            let (process, parent, thread) = (of.process, of.parent_process, of.thread);
            format!("{kind} process={process:x} parent={parent:x} thread={thread:x}")
        }
        Record::Aux { from, bytes, incomplete, origin } => format!(
            "aux from={from:x} bytes={bytes:x} incomplete={} process={:x} thread={:x} cpu={:x}",
            u8::from(*incomplete),
            origin.process,
            origin.thread,
            origin.cpu
        ),
        Record::Switch { out, time_ns, task } => format!(
            "switch out={} time={time_ns:x} process={:x} thread={:x} cpu={:x}",
            u8::from(*out),
            task.process,
            task.thread,
            task.cpu
        ),
        other => format!("{other:?}"),
    }
}

fn of_sample(sample: &Sample, mode: Mode) -> String {
    let mode = match mode {
        Mode::Kernel => "kernel",
        Mode::User => "user",
        Mode::Other => "other",
    };
    let fields = [
        ("ip", sample.ip),
        ("process", sample.process.into()),
        ("thread", sample.thread.into()),
        ("time", sample.time_ns),
        ("address", sample.address),
        ("id", sample.id),
        ("cpu", sample.cpu.into()),
        ("period", sample.period),
        ("weight", sample.weight),
        ("source", sample.source.0),
        ("physical", sample.physical),
    ];
    let mut text = format!("sample mode={mode}");
    for (name, value) in fields {
        let _ = write!(text, " {name}={value:x}");
    }
    text
}

#[test]
fn records_of_other_machines_are_what_another_parser_says() {
    for (name, count) in FILES {
        let (layout, records) = capture(name);
        assert_eq!(records.len(), count, "{name}");
        let stream: Vec<u8> = records.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let read: Vec<String> = Records::new(&stream, &layout)
            .map(|record| told(&record.unwrap_or_else(|error| panic!("{name}: {error}"))))
            .collect();
        let expected: Vec<String> = records.into_iter().map(|(_, is)| is).collect();
        assert_eq!(read, expected, "{name}");
    }
}

#[test]
fn a_cut_sample_of_another_machine_is_an_error() {
    for (name, _) in FILES {
        let (layout, records) = capture(name);
        for (bytes, is) in records.iter().filter(|(_, is)| is.starts_with("sample")) {
            // The header's promise is kept, so that the body is what is too short.
            let mut cut = bytes[..bytes.len() - 8].to_vec();
            let size = u16::try_from(cut.len()).expect("fits a record");
            cut[6..8].copy_from_slice(&size.to_ne_bytes());
            let read: Vec<_> = Records::new(&cut, &layout).collect();
            assert!(matches!(read[..], [Err(_)]), "{name}: {is}: {read:?}");
        }
    }
}

#[test]
fn loads_of_a_real_processor_are_served_by_the_level_that_the_kernel_names() {
    let (layout, records) = capture("loads-with-sources");
    let stream: Vec<u8> = records.into_iter().flat_map(|(bytes, _)| bytes).collect();
    let served = |record| match record {
        Ok(Record::Sample(sample, _)) => sample.source.served_by(Vendor::Intel),
        _ => None,
    };
    let mut levels: Vec<ServedBy> = Records::new(&stream, &layout).filter_map(served).collect();
    levels.sort_unstable();
    // Level numbers 1, 2, 0xc and 3 of `mem_lvl_num`, all with "HIT" and without a snoop.
    let expected = [
        (ServedBy::FirstLevel, 2),
        (ServedBy::Private, 1),
        (ServedBy::InFlight, 3),
        (ServedBy::LastLevel, 2),
    ];
    let expected: Vec<ServedBy> =
        expected.into_iter().flat_map(|(level, count)| vec![level; count]).collect();
    assert_eq!(levels, expected);
}
