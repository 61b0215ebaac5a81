//! Situations and decisions as text.
//!
//! ```text
//! rates 0 3 1 1 / 3 0 1 1 / 1 1 0 7 / 1 1 7 0          GB/s by row; `rates paper` is the paper's machine
//! app 0,1 0>1:3e9 1>0:3e9 memory 1,1 ran 100           threads on nodes, requests/s, GB by node, seconds [migrated SECONDS]
//! ```

use crate::case::PAPER_MB_S;
use rondpoint_core::policy::asymsched::decision::AppView;
use rondpoint_core::policy::asymsched::search_cache::SearchCache;
use rondpoint_core::policy::asymsched::{Decision, Preset, Situation, decide};
use rondpoint_core::{Bytes, Matrix, Nanos, Pid};
use std::fmt::Write;

pub(crate) fn situation(text: &str) -> Situation {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let rates = lines.next().and_then(|line| line.strip_prefix("rates ")).expect("rates first");
    let bandwidth = if rates == "paper" { paper() } else { matrix(rates) };
    let count = bandwidth.size();
    let app = |(index, line): (usize, &str)| app(index, line, count);
    Situation {
        bandwidth,
        kinds: vec![(1 << count) - 1; count],
        apps: lines.enumerate().map(app).collect(),
    }
}

/// ALGORITHMS 6.3 in bytes per second.
pub(crate) fn paper() -> Matrix<f64> {
    Matrix::from_fn(8, |i, j| f64::from(PAPER_MB_S[i][j]) * 1e6)
}

fn matrix(rows: &str) -> Matrix<f64> {
    let number = |word: &str| word.parse::<f64>().expect("GB/s") * 1e9;
    let rows: Vec<Vec<f64>> =
        rows.split('/').map(|row| row.split_whitespace().map(number).collect()).collect();
    Matrix::from_rows(&rows).expect("a square of rates")
}

fn app(index: usize, line: &str, count: usize) -> AppView {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after =
        |name: &str| words.iter().position(|word| *word == name).map(|place| words[place + 1]);
    let seconds =
        |name: &str| after(name).map_or(0.0, |word| word.parse::<f64>().expect("seconds"));
    let mut traffic = Matrix::filled(count, 0.0);
    for word in words.iter().filter(|word| word.contains('>')) {
        let (pair, rate) = word.split_once(':').expect("pair:rate");
        let (from, to) = pair.split_once('>').expect("from>to");
        traffic[(from.parse().expect("node"), to.parse().expect("node"))] =
            rate.parse().expect("requests/s");
    }
    let gigabytes = after("memory")
        .map_or(vec![], |list| list.split(',').map(|gb| gb.parse::<f64>().expect("GB")).collect());
    AppView {
        pid: Pid(index as u32 + 1),
        nodes: words[1].split(',').map(|node| 1_u64 << node.parse::<usize>().expect("node")).sum(),
        traffic_per_s: Some(traffic),
        memory: (0..count)
            .map(|node| Bytes((gigabytes.get(node).unwrap_or(&0.0) * 1e9) as u64))
            .collect(),
        run_time: Nanos((seconds("ran") * 1e9) as u64),
        migration_time: Nanos((seconds("migrated") * 1e9) as u64),
    }
}

pub(crate) fn decide_text(text: &str, preset: &Preset) -> String {
    describe(&decide(&situation(text), preset, preset.seconds_per_gb, &mut SearchCache::new()))
}

/// The decision, one fact a line; values in units of 10⁹ × weight.
pub(crate) fn describe(decision: &Decision) -> String {
    let mut out = format!("{:?}", decision.verdict);
    decision.moves().for_each(|(from, to)| write!(out, " {from}→{to}").expect("text"));
    if let Some(found) = &decision.found {
        let [staying, chosen, best] =
            [decision.staying, decision.chosen, decision.best.unwrap_or_default()]
                .map(|value| value / 1e9);
        write!(out, "\nstaying {staying:.3} chosen {chosen:.3} best {best:.3}").expect("text");
        write!(out, "{}", if found.is_exact() { " exact" } else { "" }).expect("text");
    }
    for cost in &decision.costs {
        let gigabytes = cost.memory.gigabytes();
        write!(
            out,
            "\napp {} {gigabytes:.1} GB {:.2} of {:.2} s",
            cost.app, cost.seconds, cost.allowed_seconds
        )
        .expect("text");
    }
    out + "\n"
}
