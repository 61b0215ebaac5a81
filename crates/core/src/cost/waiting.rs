//! Estimates the share of its time for which an application waits for memory, on processors without
//! stall counters, such as AMD's.
//!
//! By Little's law, the number of misses under way is the rate of misses times their latency. A
//! core has a bounded number of misses under way. So the measured misses keep at least so many
//! whole cores waiting. This is a lower bound: a core with fewer misses under way waits for a
//! longer time.

use super::CLOCK_HZ;
use crate::model::{App, TrafficSource};
use crate::topology::Topology;

/// Most misses that one core has under way, if calibration did not measure it. Intel's Golden Cove
/// keeps this many for its second-level cache (64-IA-32 Optimization Reference Manual). Older cores
/// and AMD's keep fewer.
const MOST_UNDER_WAY: f64 = 48.0;
/// Usual number of misses under way of a waiting thread: first-level caches since 2008 have 8 to 16
/// buffers.
const USUALLY_UNDER_WAY: f64 = 10.0;

/// The expected share and its lower bound; `None` if no rate of requests is known.
pub(super) fn waiting(topology: &Topology, app: &App, latency_cycles: f64) -> Option<(f64, f64)> {
    // Hint faults give no rate of requests.
    let counted = app.traffic_source != TrafficSource::HintFaults;
    let per_us = app.traffic.as_ref().filter(|_| counted)?.total_per_us();
    let cpus = app.cpu_percent / 100.0;
    if cpus <= 0.0 {
        return None;
    }
    let cycles_per_us = topology.clock_hz().unwrap_or(CLOCK_HZ) / 1e6;
    let under_way = per_us * latency_cycles / cycles_per_us / cpus;
    let share = |most: f64| (under_way / most).min(1.0);
    let most = topology.costs().outstanding_misses.map_or(MOST_UNDER_WAY, |most| most.max(1.0));
    Some((share(most.min(USUALLY_UNDER_WAY)), share(most)))
}
