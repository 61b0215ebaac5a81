//! Share of its time that an application waits for memory, where no counter tells stalls, as on
//! AMD's processors.
//!
//! By Little's law the misses under way are those asked for in a second times what each takes. A
//! core has a bounded number of misses under way at once. So the misses that are seen need at least
//! so many whole cores. It is a lower bound: a core that has fewer under way waits for longer.

use super::CLOCK_HZ;
use crate::model::{App, TrafficSource};
use crate::topology::Topology;

/// Misses that one core has under way at most, where calibration did not measure it. Intel's Golden
/// Cove keeps this many for its second-level cache (64-IA-32 Optimization Reference Manual). Older
/// cores and AMD's keep fewer.
const MOST_UNDER_WAY: f64 = 48.0;
/// The same where a thread waits for them: buffers of a first-level cache from 2008 on, 8 to 16.
const USUALLY_UNDER_WAY: f64 = 10.0;

/// The likely share and the least; `None` where no rate of requests is known.
pub(super) fn waiting(topology: &Topology, app: &App, latency_cycles: f64) -> Option<(f64, f64)> {
    // What faults count is no rate of requests.
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
