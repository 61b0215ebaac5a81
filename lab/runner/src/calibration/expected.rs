//! Expected times of the calibration's loops on a machine, computed from its file alone.

use rondpoint_machine::{LINE_BYTES, Machine};

/// One load of a line, then computing, over and over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Loop {
    /// Each load waits for the one before.
    pub(super) chain: bool,
    /// Instructions from load to load.
    pub(super) instructions: f64,
}

/// Nanoseconds from load to load on a CPU of one node in the memory of another, with no other load
/// there.
///
/// The core goes on past a load until its window is full, and waits there for the oldest. Within a
/// window's reach independent loads overlap, up to the misses that can be outstanding. Loads of a
/// chain do not, but what is computed between them costs nothing. No loop is faster than its
/// computing, or than the path carries lines.
pub(super) fn load_ns(machine: &Machine, accessing: usize, holding: usize, of: Loop) -> f64 {
    let core = &machine.core;
    let window = f64::from(core.reorder_window);
    let instruction_ns = core.cycles_per_instruction * machine.cycle_ns();
    let computing_ns = of.instructions * instruction_ns;
    let beyond_ns = (of.instructions - window).max(0.0) * instruction_ns;
    let overlapping = match of.chain {
        true => 1.0,
        false => (window / of.instructions).clamp(1.0, f64::from(core.outstanding_misses)),
    };
    let waiting_ns = 1e9 / ClosedLoop::new(machine, accessing, holding, overlapping).per_s(0.0);
    (waiting_ns + beyond_ns).max(computing_ns)
}

/// Loads in a second of `cpus` CPUs of a node in its memory, each with all its misses under way.
pub(super) fn crowd_per_s(machine: &Machine, node: usize, cpus: u32) -> f64 {
    crowd(machine, node, cpus).per_s(0.0)
}

/// How much longer such a loop on one CPU takes, as a part, with samples. One load in `period` is a
/// sample that stops the CPU for `cost_ns`. Less than the samples' time: meanwhile its own queue at
/// the controller gets shorter.
pub(super) fn sampled_slowdown(machine: &Machine, node: usize, period: f64, cost_ns: f64) -> f64 {
    let alone = crowd(machine, node, 1);
    alone.per_s(0.0) / alone.per_s(cost_ns / period) - 1.0
}

fn crowd(machine: &Machine, node: usize, cpus: u32) -> ClosedLoop {
    let under_way = f64::from(cpus * machine.core.outstanding_misses);
    ClosedLoop::new(machine, node, node, under_way)
}

/// `under_way` loads at any time. The latency is that of an idle machine plus the controller's
/// burst at its use by the other loads (one load alone meets none). It is more where the path is
/// full.
struct ClosedLoop {
    under_way: f64,
    latency_ns: f64,
    /// What each load in a second adds.
    burst_ns_s: f64,
    most_per_s: f64,
}

impl ClosedLoop {
    /// From the CPUs of one node to the memory of another, which has a controller.
    fn new(machine: &Machine, accessing: usize, holding: usize, under_way: f64) -> Self {
        let controller = machine.nodes[holding].controller.as_ref();
        let controller = controller.expect("asked only of nodes with memory");
        let lines_per_s = |mb_s: f64| mb_s * 1e6 / LINE_BYTES as f64;
        let others = 1.0 - 1.0 / under_way;
        Self {
            under_way,
            latency_ns: machine.latency_ns[accessing][holding],
            burst_ns_s: controller.burst_latency_ns * others
                / lines_per_s(controller.bandwidth_mb_s),
            most_per_s: lines_per_s(machine.bandwidth_mb_s(accessing, holding)),
        }
    }

    /// Loads in a second, where each keeps the CPU from loading for `lost_ns`.
    fn per_s(&self, lost_ns: f64) -> f64 {
        // What comes at a rate falls as the rate grows, so there is one at which both are the same.
        let (mut low, mut high) = (0.0, self.most_per_s);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            let left = 1.0 - middle * lost_ns / 1e9;
            match left * self.under_way * 1e9 / (self.latency_ns + self.burst_ns_s * middle)
                > middle
            {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }
}

/// Loads of a socket in a second at which each of its CPUs gets a tenth less than one alone,
/// between the numbers of CPUs. Where they never get so little, it is what all of them draw.
pub(super) fn contended_per_s(machine: &Machine, node: usize) -> f64 {
    const LEFT: f64 = 0.9;
    let each = |cpus: u32| crowd_per_s(machine, node, cpus) / f64::from(cpus);
    let wanted = LEFT * each(1);
    let all = machine.nodes[node].cpus;
    let Some(slowed) = (2..=all).find(|&cpus| each(cpus) < wanted) else {
        return crowd_per_s(machine, node, all);
    };
    let (before, after) =
        (crowd_per_s(machine, node, slowed - 1), crowd_per_s(machine, node, slowed));
    let part = (each(slowed - 1) - wanted) / (each(slowed - 1) - each(slowed));
    before + part * (after - before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::cut_machine;

    #[test]
    fn far_loads_wait_for_a_latency_and_near_ones_overlap() {
        let machine = cut_machine("nmass-2", 2).expect("it fits");
        let ns = |chain, instructions| load_ns(&machine, 0, 0, Loop { chain, instructions });
        // 500 ns local, 128 instructions of 2.2056 ns in a window, ten misses, 600 ns of burst at
        // 20 lines a µs.
        assert!((ns(true, 20.0) - 500.0).abs() < 0.01, "{}", ns(true, 20.0));
        assert!((ns(true, 228.0) - 720.56).abs() < 0.1, "{}", ns(true, 228.0));
        assert!((ns(false, 228.0) - ns(true, 228.0)).abs() < 0.01);
        // Two at a time: at 3.61 a µs each waits 500 + 600 * 0.18 / 2 ns.
        assert!((ns(false, 64.0) - 277.07).abs() < 0.01, "{}", ns(false, 64.0));
        assert!((ns(false, 1.0) * crowd_per_s(&machine, 0, 1) / 1e9 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_crowd_gets_no_more_than_the_controller_has_and_one_alone_waits_for_its_own_burst() {
        let machine = cut_machine("nmass-2", 2).expect("it fits");
        let controller = machine.nodes[0].controller.as_ref().expect("there");
        let most = controller.bandwidth_mb_s * 1e6 / 64.0;
        let (one, two) = (crowd_per_s(&machine, 0, 1), crowd_per_s(&machine, 0, 2));
        assert!(one < 10.0 / 500e-9 && one < two && two <= most, "{one} {two} {most}");
        // At equilibrium ten misses take 500 ns and nine tenths of 600 ns times the use.
        assert!((10.0 / (500e-9 + 540e-9 * one / most) / one - 1.0).abs() < 1e-6);
        let contended = contended_per_s(&machine, 0);
        assert!(one < contended && contended < two, "{one} {contended} {two}");
    }

    #[test]
    fn samples_cost_less_than_their_time_where_a_loop_waits_in_its_own_queue() {
        // Three misses in 870 ns and 2610 ns of burst at 5.04 lines a µs make 1.946 loads a µs. Of
        // these 1.844 remain where each 249th takes 10 µs more.
        let machine = cut_machine("carrefour-a", 2).expect("it fits");
        let slowdown = sampled_slowdown(&machine, 0, 249.0, 10_000.0);
        assert!((slowdown - 0.0555).abs() < 0.001, "{slowdown}");
        assert!(sampled_slowdown(&machine, 0, 1e9, 10_000.0) < 1e-5);
    }
}
