//! Rates of all threads in one epoch: a closed queueing network, solved to a fixed point.

use rondpoint_core::Matrix;

use super::need::Running;
use super::queues::Flow;
use super::{EPOCH, Plant};
use crate::workload::Waits;

/// Rounds of the fixed point at most. Queues start from those of the last epoch.
const ROUNDS: usize = 40;
/// A round that changes no delay and no use by more than this is the last.
const SETTLED: f64 = 0.002;
/// Bytes of a line.
pub(super) const LINE: f64 = 64.0;

/// Speed of a running thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Instructions per ns of CPU time that it could do.
    pub(crate) able: f64,
    /// Instructions per ns of CPU time towards its work: those of the slowest thread where threads
    /// wait for each other.
    pub(crate) useful: f64,
}

impl Rate {
    /// Share of its CPU time that goes to its work; the rest is waiting for others.
    pub(crate) fn working(&self) -> f64 {
        if self.able > 0.0 { self.useful / self.able } else { 0.0 }
    }
}

impl Plant {
    /// Rates of the running threads, and the queues that go with them.
    pub(super) fn solve(&mut self, running: &[Running]) -> Vec<Rate> {
        let mut rates = self.rates(running);
        for _ in 0..ROUNDS {
            let flow = self.flow(running, &rates);
            let change = self.queues.update(&self.machine, &self.truth, &flow);
            rates = self.rates(running);
            if change < SETTLED {
                break;
            }
        }
        rates
    }

    fn rates(&self, running: &[Running]) -> Vec<Rate> {
        let memory = self.latencies();
        let caches = self.transfer_latencies();
        let mut slowest = vec![f64::INFINITY; self.processes.len()];
        let mut rates = Vec::with_capacity(running.len());
        for of in running {
            let row = memory.row(of.node);
            let miss_ns: f64 = of.shares.iter().map(|(node, share)| row[*node] * share).sum();
            let row = caches.row(of.node);
            let far_ns: f64 = of.far.iter().map(|(node, lines)| row[*node] * lines).sum();
            let able = 1.0 / (of.base_ns + of.misses * miss_ns / of.outstanding + far_ns);
            rates.push(Rate { able, useful: able });
        }
        self.hold(running, &mut rates, &memory, &caches);
        for (of, rate) in running.iter().zip(&rates) {
            if of.waits != Waits::Never {
                slowest[of.process] = slowest[of.process].min(rate.useful * of.busy_ns);
            }
        }
        for (of, rate) in running.iter().zip(&mut rates) {
            if of.waits != Waits::Never {
                rate.useful = slowest[of.process] / of.busy_ns.max(1.0);
            }
        }
        self.serve(running, &mut rates);
        rates
    }

    /// What the running threads draw at these rates.
    pub(super) fn flow(&self, running: &[Running], rates: &[Rate]) -> Flow {
        let nodes = self.machine.nodes.len();
        let mut memory = Matrix::filled(nodes, 0.0);
        let mut caches = Matrix::filled(nodes, 0.0);
        for (of, rate) in running.iter().zip(rates) {
            let lines = rate.useful * of.busy_ns / EPOCH.0 as f64 * LINE;
            let back = 1.0 + of.written * self.truth.write_back;
            for &(holding, share) in &of.shares {
                memory[(of.node, holding)] += lines * of.misses * back * share;
            }
            for &(owner, transfers) in &of.far {
                caches[(of.node, owner)] += lines * transfers;
            }
        }
        Flow { memory, caches }
    }
}
