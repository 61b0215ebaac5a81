//! Loaded latency: the latency of a dependent load while other CPUs read an increasing amount from
//! the same memory.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::chase;
use super::loads::{Loads, Order, Window};
use super::stream::{pin, together};

/// Rounds of computing between two loads of the drawing threads, from a light load to the heaviest.
/// A round is about ten instructions. Our choice: each step is felt on a core with ten loads under
/// way.
const ROUNDS: [u32; 8] = [256, 64, 16, 8, 4, 2, 1, 0];
const LINE_BYTES: f64 = 64.0;
/// Windows that are tried for a point (our choice).
const TRIES: usize = 5;

/// One load of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct LoadedPoint {
    /// Rounds of computing between two loads of a CPU that draws; `None` where none draws.
    pub(crate) rounds: Option<u32>,
    /// What all CPUs drew together, in MB/s.
    pub(crate) mb_s: f64,
    /// What a dependent load waited for, in ns.
    pub(crate) ns: f64,
}

/// The latency of `cpus[0]` while the others draw from the same words: idle first, then under the
/// heavier load each time. Of one CPU, the idle point only.
pub(super) fn sweep(
    cpus: &[usize],
    words: &[AtomicU64],
    time: Duration,
) -> Result<Vec<LoadedPoint>> {
    let (own, drawn) = words.split_at(words.len() / 2);
    chase::lay(own, 1);
    let idle = std::iter::once(None);
    let loads = ROUNDS.into_iter().map(Some).filter(|_| cpus.len() > 1);
    idle.chain(loads).map(|rounds| again(|| point(cpus, (own, drawn), rounds, time))).collect()
}

/// Where other programs have the CPU throughout a window, nothing is counted in it: another try.
fn again(point: impl Fn() -> Result<LoadedPoint>) -> Result<LoadedPoint> {
    for _ in 0..TRIES {
        let found = point()?;
        if found.ns.is_finite() {
            return Ok(found);
        }
    }
    bail!(
        "loaded latency: other programs had the CPU in {TRIES} windows; measure on an idle machine"
    )
}

fn point(
    cpus: &[usize],
    (own, drawn): (&[AtomicU64], &[AtomicU64]),
    rounds: Option<u32>,
    time: Duration,
) -> Result<LoadedPoint> {
    let chain = Loads { order: Order::Chain, rounds: 0 };
    let loads = Loads { order: Order::Independent, rounds: rounds.unwrap_or(0) };
    let window = OnceLock::new();
    let soon = || *window.get_or_init(|| Window::soon(time));
    let drawing = if rounds.is_some() { &cpus[1..] } else { &[] };
    let (chased, drawn) = std::thread::scope(|scope| {
        let chaser = scope.spawn(|| pin(cpus[0]).map(|()| chain.per_s(own, soon())));
        let drawn = together(drawing, drawn, |part| loads.per_s(part, soon()));
        (chaser.join().expect("no thread panics"), drawn)
    });
    let (chased, drawn) = (chased?, drawn?.into_iter().sum::<f64>());
    let mb_s = (chased + drawn) * LINE_BYTES / 1e6;
    Ok(LoadedPoint { rounds, mb_s, ns: 1e9 / chased })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_loads_is_tried_again_and_never_shown() {
        let windows = std::cell::Cell::new(0);
        let point = |late: usize| {
            windows.set(windows.get() + 1);
            let ns = if windows.get() <= late { f64::INFINITY } else { 90.0 };
            Ok(LoadedPoint { rounds: None, mb_s: 0.0, ns })
        };
        assert_eq!(again(|| point(2)).expect("the third").ns, 90.0);
        windows.set(0);
        let error = again(|| point(TRIES)).expect_err("never ran").to_string();
        assert!(error.contains("measure on an idle machine"), "{error}");
    }

    #[test]
    fn one_cpu_has_an_idle_latency_and_more_have_a_curve_that_draws_more() {
        let cpu = rondpoint_linux::syscall::affinity::get(0).expect("allowed").iter().next();
        let cpu = cpu.expect("a CPU");
        let words: Vec<AtomicU64> = (0..65_536).map(AtomicU64::new).collect();
        let time = Duration::from_millis(100);
        let alone = sweep(&[cpu], &words, time).expect("measured");
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert_eq!(alone[0].rounds, None);
        let curve = sweep(&[cpu, cpu], &words, time).expect("measured");
        assert_eq!(curve.len(), 1 + ROUNDS.len(), "{curve:?}");
        // Without other load the chain draws its own: a line for each latency.
        let own_mb_s = LINE_BYTES * 1e3 / curve[0].ns;
        assert!((curve[0].mb_s - own_mb_s).abs() < 1e-6 * own_mb_s, "{curve:?}");
        let drawn = |point: &LoadedPoint| point.mb_s - LINE_BYTES * 1e3 / point.ns;
        assert!(curve[1..].iter().any(|point| drawn(point) > 0.0), "{curve:?}");
    }
}
