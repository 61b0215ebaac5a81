//! Exact counts of a run. Sensors add noise to them, and reports show them.

use rondpoint_core::Matrix;

use super::need::Running;
use super::replies::Replies;
use super::solve::Rate;
use super::{EPOCH, Plant};
use crate::workload::Waits;

/// Counts of one thread since it started.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadCounts {
    pub(crate) cpu_ns: f64,
    /// Time for which it could run and another thread had its CPU.
    pub(crate) queued_ns: f64,
    pub(crate) slices: f64,
    /// Retired, those of waiting in a loop included.
    pub(crate) instructions: f64,
    pub(crate) cycles: f64,
    pub(crate) accesses: f64,
    pub(crate) misses: f64,
    pub(crate) writes: f64,
    pub(crate) local: f64,
    pub(crate) remote: f64,
    pub(crate) near: f64,
    pub(crate) far: f64,
    pub(crate) stalls: f64,
}

/// Counts of one process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessCounts {
    /// DRAM requests by `[accessing][holding]`.
    pub(crate) traffic: Matrix<f64>,
    /// Lines from other caches by `[accessing][owning]`.
    pub(crate) caches: Matrix<f64>,
    pub(crate) latency_cycles: f64,
    /// Requests sent or answered.
    pub(crate) requests: f64,
    /// Time for which its threads waited for messages.
    pub(crate) waited_ns: f64,
    /// Times to the replies that it got.
    pub(super) replies: Replies,
}

impl ProcessCounts {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            traffic: Matrix::filled(nodes, 0.0),
            caches: Matrix::filled(nodes, 0.0),
            latency_cycles: 0.0,
            requests: 0.0,
            waited_ns: 0.0,
            replies: Replies::default(),
        }
    }
}

/// Sums over the whole run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// Useful instructions.
    pub(crate) instructions: f64,
    pub(crate) cycles: f64,
    pub(crate) misses: f64,
    pub(crate) latency_ns: f64,
    /// Pages that a manager, the kernel or a rival moved or copied.
    pub(crate) pages_moved: u64,
    /// Threads that a manager or a rival gave a mask.
    pub(crate) threads_moved: u64,
}

impl Plant {
    /// Adds one epoch to all counts.
    pub(super) fn count(&mut self, running: &[Running], rates: &[Rate]) {
        let latencies = self.latencies();
        let cycle_ns = self.machine.cycle_ns();
        for (of, rate) in running.iter().zip(rates) {
            let spins = of.idles == Waits::Spin;
            let worked_ns = of.busy_ns * rate.working();
            let per_request = self.processes[of.process].per_request();
            let sleeps = of.idles == Waits::Sleep || per_request.is_some();
            let cpu_ns = if sleeps { worked_ns } else { of.busy_ns };
            let useful = rate.useful * of.busy_ns;
            // A waiting loop retires about an instruction a cycle.
            let idle = if spins { (of.busy_ns - worked_ns) / cycle_ns } else { 0.0 };
            let misses = useful * of.misses;
            let row = latencies.row(of.node);
            let miss_ns: f64 = of.shares.iter().map(|(node, share)| row[*node] * share).sum();
            let far: f64 = of.far.iter().map(|(_, lines)| lines).sum();
            let counts = &mut self.threads[of.thread].counts;
            counts.cpu_ns += cpu_ns;
            // Threads on one CPU take turns, so each waits while the others do as much as it does.
            counts.queued_ns += cpu_ns * (of.awake_ns / of.busy_ns.max(1.0) - 1.0).max(0.0);
            counts.slices += match per_request {
                Some(instructions) => useful / instructions,
                None if of.idles == Waits::Sleep => 100.0,
                None => 5.0,
            };
            counts.instructions += useful + idle;
            counts.cycles += cpu_ns / cycle_ns;
            counts.accesses += useful * of.accesses;
            counts.misses += misses;
            counts.writes += misses * of.written;
            counts.near += useful * of.near;
            counts.far += useful * far;
            counts.stalls += misses * miss_ns / of.outstanding / cycle_ns;
            let process = &mut self.processes[of.process].counts;
            if let Some(instructions) = per_request {
                process.requests += useful / instructions;
                process.waited_ns += EPOCH.0 as f64 * (1.0 - rate.working());
            }
            process.latency_cycles += misses * miss_ns / cycle_ns;
            let written = 1.0 + of.written * self.truth.write_back;
            for &(holding, share) in &of.shares {
                let requests = misses * share;
                match holding == of.node {
                    true => counts.local += requests,
                    false => counts.remote += requests,
                }
                process.traffic[(of.node, holding)] += requests;
                self.traffic[(of.node, holding)] += requests;
                self.controller_lines[holding] += requests * written;
            }
            for &(owner, lines) in &of.far {
                process.caches[(of.node, owner)] += useful * lines;
            }
            self.totals.instructions += useful;
            self.totals.cycles += cpu_ns / cycle_ns;
            self.totals.misses += misses;
            self.totals.latency_ns += misses * miss_ns;
        }
        self.count_links(running, rates);
    }

    /// Adds the bytes of all misses and far transfers to the links that carry them.
    fn count_links(&mut self, running: &[Running], rates: &[Rate]) {
        let flow = self.flow(running, rates);
        for (a, h, from_memory) in flow.memory.cells() {
            let bytes = (from_memory + flow.caches[(a, h)]) * EPOCH.0 as f64;
            for &link in &self.machine.routes[a][h].links {
                self.link_bytes[link] += bytes;
            }
        }
    }
}
