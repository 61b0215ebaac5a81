//! What finding the nearest copy costs, as a page of docs/results.
//!
//! `lookup_page COMMIT MACHINE` writes the page's JSON to standard output. Each round times getcpu
//! of the vDSO and then the lookup. The ratio within a round counts, because other work on the
//! machine changes both times alike.

#[path = "../benches/shared/mod.rs"]
mod shared;

use std::env;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use rondpoint_replica::{Options, Replica, Versions};

use self::shared::{during_updates, options};

/// Calls of one timing: a millisecond or so (our choice).
const CALLS: u32 = 100_000;
/// Pairs of timings of each row; odd, for their median (our choice).
const ROUNDS: usize = 101;
/// Longest lookup of the goal, in nanoseconds.
const GOAL_NS: f64 = 20.0;

/// One row of the page.
struct Row {
    name: &'static str,
    /// Median of the ratios to getcpu, and the largest.
    ratio: f64,
    most: f64,
    /// Medians in nanoseconds.
    ns: f64,
    getcpu_ns: f64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let is_plain = |text: &String| !text.contains(['"', '\\']) && !text.contains(char::is_control);
    match &arguments[..] {
        [commit, machine] if arguments.iter().all(is_plain) => {
            println!("{}", page(&rows(), commit, machine));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: lookup_page COMMIT MACHINE, without quotes in them");
            ExitCode::from(2)
        }
    }
}

fn rows() -> Vec<Row> {
    let replica = Replica::new(vec![1; 4096], &options());
    assert!(replica.refusal().is_none(), "copies of 4 KiB fit");
    let plain = vec![1u8; 4096];
    let refused = Options { budget_bytes: Some(0), ..options() };
    let original = Replica::new(plain.as_slice(), &refused);
    let versions = Versions::new(vec![1; 4096], options());
    vec![
        row("nearest", || replica.nearest().as_ptr()),
        row("nearest, no copies", || original.nearest().as_ptr()),
        row("pin and unpin", || versions.pin().as_ptr()),
        during_updates(&versions, || {
            row("pin and unpin during updates", || versions.pin().as_ptr())
        }),
    ]
}

fn row<T>(name: &'static str, call: impl Fn() -> T) -> Row {
    let pairs: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| (nanoseconds(rustix::thread::sched_getcpu), nanoseconds(&call)))
        .collect();
    let ratios = sorted(&pairs, |(getcpu, ns)| ns / getcpu);
    Row {
        name,
        ratio: ratios[ROUNDS / 2],
        most: ratios[ROUNDS - 1],
        ns: sorted(&pairs, |(_, ns)| ns)[ROUNDS / 2],
        getcpu_ns: sorted(&pairs, |(getcpu, _)| getcpu)[ROUNDS / 2],
    }
}

fn sorted(pairs: &[(f64, f64)], of: impl Fn((f64, f64)) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = pairs.iter().map(|&pair| of(pair)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Time of one call.
fn nanoseconds<T>(call: impl Fn() -> T) -> f64 {
    let began = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn page(rows: &[Row], commit: &str, machine: &str) -> String {
    let cells = |row: &Row| {
        let Row { name, ratio, most, ns, getcpu_ns } = row;
        format!(
            "    {{\"name\": \"{name}\", \
             \"cells\": [{ratio:.3}, {most:.3}, {ns:.2}, {getcpu_ns:.2}]}}"
        )
    };
    let lines: Vec<String> = rows.iter().map(cells).collect();
    let verdict = if rows[0].ns < GOAL_NS { "met" } else { "missed" };
    let [nearest, _, pin, updated] = rows else { return String::new() };
    format!(
        r#"{{
  "format": 1,
  "title": "What finding the nearest copy costs",
  "about": "Lookups of the library rondpoint-replica beside getcpu of the vDSO, in {ROUNDS} rounds of {CALLS} calls. Both copies lie on one node. Medians; other work ran on the machine.",
  "kind": "host",
  "machine": "{machine}",
  "seeds": 1,
  "commit": "{commit}",
  "commands": ["cargo run --release -p rondpoint-replica --example lookup_page -- {commit} '{machine}' > docs/results/nearest-copy.json"],
  "reference": 1.0,
  "columns": ["times getcpu", "most in a round, times getcpu", "ns", "getcpu in the same rounds, ns"],
  "rows": [
{rows}
  ],
  "findings": [
    "Goal {verdict}: a lookup in less than {GOAL_NS:.0} ns. It takes {ns:.1} ns, {ratio:.2} times getcpu.",
    "While a thread publishes versions without a pause, pin and unpin take {updates:.2} times as long in the median."
  ]
}}"#,
        rows = lines.join(",\n"),
        ns = nearest.ns,
        ratio = nearest.ratio,
        updates = updated.ratio / pin.ratio,
    )
}
