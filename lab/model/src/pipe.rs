//! A resource with limited bandwidth: a controller, a directed link, or what a route reaches.
//!
//! Requests are not queued one by one: vCPUs run one after the other inside a quantum, so a queue
//! by arrival would measure the quantum. Instead bytes are counted over a *window*, and the delay
//! that the next window's requests see follows from them:
//! - `burst × utilisation by others`: requests come in bursts, so they wait long before the pipe
//!   is full. A request waits for others only: with N under way, for (N − 1) / N of the use (the
//!   arrival theorem of closed queueing networks). A lone pointer chase sees no queue;
//! - `backlog`: what did not fit, as the time the pipe needs to work it off.
//!
//! **Why it settles.** The requesters are a closed loop: with W bytes outstanding and latency L
//! they ask for W/L. So the backlog rises until W/L is the bandwidth C (Little's law). One step of
//! integration changes the backlog by `(ρ − 1) · step`. Near equilibrium that multiplies its error
//! by `1 − step / L`, which oscillates when the window is much longer than the latency. Hence a
//! step of a quarter of the mean latency (under-relaxation), and utilisation is averaged over two
//! windows. A window that is longer than usual (the machine was idle) counts for as many.

use crate::LINE_BYTES;

/// How much of the mean latency one integration step may cover.
const RELAXATION: f64 = 0.25;
/// The longest backlog, in lines: 28 vCPUs with 32 misses and 16 streams 32 lines ahead each have
/// fewer under way. Only a pipe with requesters that do not wait for it could get here.
const BACKLOG_LINES: f64 = 16_384.0;

#[derive(Debug, Clone)]
pub(crate) struct Pipe {
    /// Capacity in bytes per picosecond.
    bytes_per_ps: f64,
    /// Extra latency at full utilisation, ps.
    burst_ps: f64,
    utilisation: f64,
    /// Requests under way at once, smoothed like the utilisation.
    under_way: f64,
    backlog_ps: f64,
    /// Mean latency in the last window that had requests, ps.
    latency_ps: f64,
    total_bytes: u64,
    /// Σ over requests of the queueing delay they saw, ps.
    queue_ps: f64,
    requests: u64,
}

/// What went through a pipe in one window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    pub(crate) elapsed_ps: u64,
    /// The usual length.
    pub(crate) usual_ps: u64,
    pub(crate) bytes: u64,
    /// Requests that waited for their data.
    pub(crate) requests: u64,
    /// The sum of their whole latencies, ps.
    pub(crate) latency_ps: f64,
}

impl Pipe {
    /// `bandwidth_mb_s` in 10⁶ bytes per second, `burst_ns` at full utilisation.
    pub(crate) fn new(bandwidth_mb_s: f64, burst_ns: f64) -> Pipe {
        Pipe {
            bytes_per_ps: bandwidth_mb_s * 1e-6,
            burst_ps: burst_ns * 1e3,
            utilisation: 0.0,
            under_way: 0.0,
            backlog_ps: 0.0,
            latency_ps: 0.0,
            total_bytes: 0,
            queue_ps: 0.0,
            requests: 0,
        }
    }

    /// What requests of the next window wait here, ps.
    pub(crate) fn delay_ps(&self) -> f64 {
        let others = 1.0 - 1.0 / self.under_way.max(1.0);
        self.burst_ps * self.utilisation * others + self.backlog_ps
    }

    /// Closes a window: counts it, and decides on the delay of the next.
    pub(crate) fn close(&mut self, window: &Window) {
        self.total_bytes += window.bytes;
        self.requests += window.requests;
        self.queue_ps += window.requests as f64 * self.delay_ps();
        let elapsed = window.elapsed_ps as f64;
        let load = window.bytes as f64 / (self.bytes_per_ps * elapsed);
        let usual = window.usual_ps as f64;
        let newest = elapsed / (elapsed + usual);
        self.utilisation += newest * (load.min(1.0) - self.utilisation);
        self.under_way += newest * (window.latency_ps / elapsed - self.under_way);
        // Without requests the backlog does not grow: write-backs do not wait, so it does not hold
        // them up. It drains at the usual pace. Requesters that wait for long leave windows empty.
        // If these drained more than others fill, the pipe would carry more than its bandwidth.
        let limit = if window.requests == 0 {
            self.backlog_ps
        } else {
            self.latency_ps = window.latency_ps / window.requests as f64;
            BACKLOG_LINES * LINE_BYTES as f64 / self.bytes_per_ps
        };
        let windows = (elapsed / usual).max(1.0);
        let step = elapsed.min(RELAXATION * self.latency_ps * windows);
        self.backlog_ps = (self.backlog_ps + (load - 1.0) * step).clamp(0.0, limit);
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    pub(crate) fn queue_ps(&self) -> u64 {
        self.queue_ps as u64
    }

    /// Smoothed utilisation, 0 to 1.
    pub(crate) fn utilisation(&self) -> f64 {
        self.utilisation
    }

    /// Capacity in bytes per second.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_ps * 1e12
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: f64 = 64.0;

    /// A fluid closed loop: `outstanding` lines at a time, `unloaded_ps` without queue. Returns
    /// (bytes per ps, latency) averaged over the last 200 windows.
    fn settle(pipe: &mut Pipe, outstanding: f64, unloaded_ps: f64, window_ps: u64) -> (f64, f64) {
        let (mut bytes_sum, mut latency_sum) = (0.0, 0.0);
        for index in 0..2000 {
            let latency = unloaded_ps + pipe.delay_ps();
            let requests = (outstanding * window_ps as f64 / latency).round();
            pipe.close(&Window {
                elapsed_ps: window_ps,
                usual_ps: window_ps,
                bytes: (requests * LINE) as u64,
                requests: requests as u64,
                latency_ps: requests * latency,
            });
            if index >= 1800 {
                bytes_sum += requests * LINE;
                latency_sum += latency;
            }
        }
        (bytes_sum / (200.0 * window_ps as f64), latency_sum / 200.0)
    }

    #[test]
    fn a_saturated_pipe_carries_its_bandwidth_with_latency_by_littles_law() {
        // Carrefour's machine A: 48 lines outstanding, 87 ns unloaded, 6450 MB/s, burst 261 ns.
        let mut pipe = Pipe::new(6450.0, 261.0);
        let (rate, latency) = settle(&mut pipe, 48.0, 87_000.0, 20_000_000);
        assert!((rate * 1e6 / 6450.0 - 1.0).abs() < 0.01, "{rate}");
        assert!((latency / (48.0 * LINE / 6450.0e-6) - 1.0).abs() < 0.01, "{latency}");
    }

    #[test]
    fn an_idle_pipe_drains() {
        let mut pipe = Pipe::new(1000.0, 100.0);
        settle(&mut pipe, 100.0, 50_000.0, 20_000_000);
        assert!(pipe.delay_ps() > 1_000_000.0);
        let mut slowly = pipe.clone();
        let idle = Window { elapsed_ps: 20_000_000, usual_ps: 20_000_000, ..Window::default() };
        (0..50).for_each(|_| slowly.close(&idle));
        assert!(slowly.delay_ps() < 1.0, "{}", slowly.delay_ps());
        // The same time in one window, with one request left over.
        pipe.close(&Window {
            elapsed_ps: 1_000_000_000,
            bytes: 64,
            requests: 1,
            latency_ps: 1e6,
            ..idle
        });
        assert!(pipe.delay_ps() < 2000.0, "{}", pipe.delay_ps());
    }

    #[test]
    fn a_light_load_pays_in_proportion_to_what_others_use() {
        // 10 lines under way at 1 µs are 640 MB/s: a tenth of 6400, and nine of ten are others'.
        let mut pipe = Pipe::new(6400.0, 1000.0);
        let (_, latency) = settle(&mut pipe, 10.0, 1_000_000.0, 20_000_000);
        assert!((1_080_000.0..1_095_000.0).contains(&latency), "{latency}");
    }

    #[test]
    fn a_lone_request_waits_for_nobody() {
        let mut pipe = Pipe::new(640.0, 1000.0);
        let (_, latency) = settle(&mut pipe, 1.0, 1_000_000.0, 20_000_000);
        assert!((latency - 1_000_000.0).abs() < 1.0, "{latency}");
    }

    proptest! {
        /// Whatever the window, the demand and the burst term: min(demand, bandwidth) within 5 %.
        #[test]
        fn a_closed_loop_settles(
            outstanding in 4u32..400,
            unloaded_ns in 50.0f64..3000.0,
            bandwidth in 100.0f64..20_000.0,
            burst in 0.0f64..4.0,
            window_us in 5u64..100,
        ) {
            let mut pipe = Pipe::new(bandwidth, burst * unloaded_ns);
            let outstanding = f64::from(outstanding);
            let unloaded_ps = unloaded_ns * 1e3;
            // A window needs enough lines for the fluid picture to mean anything.
            prop_assume!(bandwidth * window_us as f64 / LINE > 40.0);
            prop_assume!(outstanding * window_us as f64 * 1e3 / (unloaded_ns * (1.0 + burst)) > 40.0);
            let (rate, _) = settle(&mut pipe, outstanding, unloaded_ps, window_us * 1_000_000);
            let carried = rate * 1e6;
            prop_assert!(carried <= bandwidth * 1.05, "{carried} of {bandwidth}");
            let saturating = outstanding * LINE / (unloaded_ps * (1.0 + burst)) * 1e6;
            if saturating >= bandwidth {
                prop_assert!(carried >= bandwidth * 0.95, "{carried} of {bandwidth}");
            }
        }
    }
}
