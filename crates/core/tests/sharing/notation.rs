//! Text in, text out: nodes with threads and pairs that share, as a few lines; the threads that
//! move, as a few lines.
//!
//! The first line is the cores of each node, `cores 4 4`. Then follows one thread a line, `0 on 1
//! data=0,9 load=0.5 mem=0.2 only=1 fixed`, where the number must be its place. Last comes `share
//! 0-1:9 1-2:5`.

use rondpoint_core::policy::sharing::{Pair, Placed, Preset, Role, Sharer, Shift, clusters, place};
use std::fmt::Write;

pub(crate) struct Case {
    pub(crate) cores: Vec<usize>,
    pub(crate) threads: Vec<Sharer>,
    pub(crate) pairs: Vec<Pair>,
}

fn list<T: std::str::FromStr>(text: &str) -> Vec<T> {
    let number =
        |word: &str| word.parse().unwrap_or_else(|_| panic!("expected a number, found {word}"));
    text.split([',', ' ']).filter(|word| !word.is_empty()).map(number).collect()
}

fn one<T: std::str::FromStr + Copy>(text: &str) -> T {
    list(text)[0]
}

impl Case {
    pub(crate) fn parse(text: &str) -> Self {
        let mut case = Self { cores: Vec::new(), threads: Vec::new(), pairs: Vec::new() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(cores) = line.strip_prefix("cores ") {
                case.cores = list(cores);
            } else if let Some(pairs) = line.strip_prefix("share ") {
                case.pairs = pairs.split_whitespace().map(parse_pair).collect();
                case.pairs
                    .sort_by_key(|pair| (std::cmp::Reverse(pair.samples), pair.lower, pair.upper));
            } else {
                let thread = parse_thread(line, case.cores.len());
                case.threads.push(thread);
            }
        }
        case
    }

    pub(crate) fn shifts(&self, preset: &Preset) -> Vec<Shift> {
        self.placed(preset).shifts
    }

    pub(crate) fn placed(&self, preset: &Preset) -> Placed {
        place(&self.threads, &self.cores, clusters(&self.pairs, self.threads.len()), preset)
    }
}

fn parse_pair(word: &str) -> Pair {
    let numbers: Vec<u32> = list(&word.replace(['-', ':'], ","));
    Pair { lower: numbers[0], upper: numbers[1], samples: numbers[2] }
}

fn parse_thread(line: &str, nodes: usize) -> Sharer {
    let mut words = line.split_whitespace().skip(2);
    let node = one(words.next().expect("a node"));
    let mut sharer = Sharer { node, demand: 1.0, ..Sharer::default() };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "data" => sharer.accesses = list(value),
            "load" => sharer.demand = one(value),
            "mem" => sharer.pressure = one(value),
            "only" => sharer.may_use = (0..nodes).map(|node| list(value).contains(&node)).collect(),
            "fixed" => sharer.is_fixed = true,
            _ => panic!("unknown word {word} in: {line}"),
        }
    }
    sharer
}

pub(crate) fn decide(preset: &Preset, text: &str) -> String {
    let mut out = String::new();
    for shift in Case::parse(text).shifts(preset) {
        let role = match shift.role {
            Role::Member { group, weakest } => {
                format!("joins a group of {group} (weakest {weakest})")
            }
            Role::Displaced => "makes room".to_string(),
        };
        writeln!(out, "{} {}→{} {role}", shift.thread, shift.from, shift.to).expect("text");
    }
    if out.is_empty() { "nothing\n".to_string() } else { out }
}
