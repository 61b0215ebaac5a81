//! Text in, text out: a machine and its processes as a few words, a mapping as a few lines.
//!
//! The first line is the machine: `processors 4 4` gives the cores of each processor. `node 1`
//! after a number puts that processor on node 1. Then comes one process a line: `name mpki penalty
//! @home`. `on CPU` may follow (where it runs), and `cpus 0 1` (what it may use).

use rondpoint_core::policy::nmass::{
    Cause, Mapping, Preset, Process, Processor, map, maximum_local,
};
use std::fmt::Write;

/// A parsed machine with processes.
pub(crate) struct Case {
    pub(crate) names: Vec<String>,
    pub(crate) processes: Vec<Process>,
    pub(crate) processors: Vec<Processor>,
}

impl Case {
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let processors = parse_machine(lines.next().expect("the first line is the machine"));
        let (names, processes) = lines.map(parse_process).unzip();
        Self { names, processes, processors }
    }
}

fn number<T: std::str::FromStr>(word: Option<&str>, line: &str) -> T {
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("expected a number in: {line}"))
}

fn parse_machine(line: &str) -> Vec<Processor> {
    let mut words = line.split_whitespace().skip(1).peekable();
    let mut processors: Vec<Processor> = Vec::new();
    let mut next = 0;
    while let Some(word) = words.next() {
        let cores: usize = number(Some(word), line);
        let node = match words.next_if_eq(&"node") {
            Some(_) => number(words.next(), line),
            None => processors.len(),
        };
        processors.push(Processor { node, cpus: (next..next + cores).collect() });
        next += cores;
    }
    processors
}

fn parse_process(line: &str) -> (String, Process) {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a name").to_string();
    let mut process = Process {
        mpki: number(words.next(), line),
        penalty: number(words.next(), line),
        home: number(words.next().and_then(|word| word.strip_prefix('@')), line),
        cpu: None,
        allowed: None,
    };
    while let Some(word) = words.next() {
        match word {
            "on" => process.cpu = Some(number(words.next(), line)),
            "cpus" => {
                process.allowed = Some(words.by_ref().map(|cpu| number(Some(cpu), line)).collect());
            }
            _ => panic!("expected `on` or `cpus`, found {word} in: {line}"),
        }
    }
    (name, process)
}

/// Runs the kernel and prints maximum-local, each shift, and the outcome.
pub(crate) fn decide(text: &str, preset: &Preset) -> String {
    let case = Case::parse(text);
    let first = maximum_local(&case.processes, &case.processors);
    let mut out = String::from("maximum-local:");
    for place in &first {
        write!(out, " {}->{}", case.names[place.process], place.processor)
            .expect("strings take text");
    }
    let mapping = map(&case.processes, &case.processors, preset);
    for &process in &mapping.shifts {
        let place = mapping.places.iter().find(|place| place.process == process).expect("placed");
        if let Cause::Shifted { source_before, source_after, target_before, target_after } =
            place.cause
        {
            let name = &case.names[process];
            write!(
                out,
                "\n{name} moves to {}: {source_before:.2} -> {source_after:.2}, {target_before:.2} -> {target_after:.2}",
                place.processor
            )
            .expect("strings take text");
        }
    }
    out + "\n" + &outcome(&case, &mapping)
}

fn outcome(case: &Case, mapping: &Mapping) -> String {
    let mut out = String::new();
    for (index, pressure) in mapping.pressures.iter().enumerate() {
        write!(out, "{index}: {pressure:.2} MPKI").expect("strings take text");
        let here = |place: &&rondpoint_core::policy::nmass::Place| place.processor == index;
        let mut names: Vec<String> = mapping
            .places
            .iter()
            .filter(here)
            .map(|place| format!("{}@{}", case.names[place.process], place.cpu))
            .collect();
        names.sort();
        writeln!(out, " [{}]", names.join(" ")).expect("strings take text");
    }
    let is_local = |place: &&rondpoint_core::policy::nmass::Place| {
        case.processors[place.processor].node == case.processes[place.process].home
    };
    let local = mapping.places.iter().filter(is_local).count();
    let total = mapping.places.len().max(1);
    write!(out, "local {:.0} %", 100.0 * local as f64 / total as f64).expect("strings take text");
    let waiting = case.processes.len() - mapping.places.len();
    if waiting > 0 {
        write!(out, ", {waiting} without a core").expect("strings take text");
    }
    out
}
