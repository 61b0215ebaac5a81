//! The cost model: the share of its CPU time that a program loses to placement. Proposals of all
//! kinds are compared by this one figure.
//!
//! [`Facts`] hold the model fitted to a window. A [`Placement`] is a present or possible place of
//! threads and memory. [`CostModel::lost`] computes the loss of each process under a placement, by
//! [`Cause`].
//!
//! A thread waits for several misses at once, as many as its core can have under way. The model
//! does not need this number, because counters give the whole waiting time. Placement causes a part
//! of that time: the part by which an access takes longer than a local access on an idle machine.
//! The causes are distance, queues at controllers and queues on links. So a program with little
//! traffic and long waits may lose as much as one with much traffic.
//!
//! A price is an interval. An action is worth its price if the lower bound of its gain is above its
//! cost.

mod charges;
mod crowd;
mod effect;
mod exchanged;
mod facts;
mod fit;
mod flows;
mod from_start;
mod group;
mod joining;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod laws_of_pins;
mod lines;
mod lost;
mod ownership;
mod partners;
mod placement;
mod predict;
mod quote;
mod seen;
mod solve;
mod waiting;

pub use self::effect::Effect;
pub use self::facts::{Evidence, Facts};
pub use self::from_start::{CopiesFromStart, SpreadFromStart};
pub use self::lost::{CAUSES, Cause, CostModel, Lost, ProcessLoss};
pub use self::partners::{Pair, Partners};
pub use self::placement::Placement;
pub use self::predict::{changes, predicted};
pub(crate) use self::quote::PAGE_NS;
pub use self::quote::{Bill, Change, Interval, MoveCosts, Quote};
pub use self::seen::{Sampled, Seen};
use crate::model::{App, Model, Thread};
use crate::topology::Topology;

/// Latency of a local access on an idle machine in nanoseconds, if it was not measured. It is 87 on
/// Carrefour's machine A (200 cycles at 2.3 GHz) and 60 to 100 on later ones [ALGORITHMS 6]. The
/// upper end is used, so that an idle machine does not look jammed.
pub const IDLE_LOCAL_NS: f64 = 100.0;
/// Extra latency of another node's memory, as a share of a local access, if it was not measured. It
/// is at most 0.3 on Carrefour's machine A, 0.8 on N-MASS's [ALGORITHMS 6].
pub const REMOTE_EXTRA: f64 = 0.3;
/// Least share of its CPU time that a program must surely lose before its pages are moved (our
/// choice). A trial cannot tell one percent from noise, and sampling the pages costs another
/// percent.
pub const WORTH_MOVING: f64 = 0.02;
/// Clock rate, if it is not known.
const CLOCK_HZ: f64 = 2e9;
/// Standard errors from the mean to the end of an interval: 95 % of a normal distribution.
const STANDARD_ERRORS: f64 = 2.0;

/// A share of CPU time: the expected value and its lower bound.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Price {
    /// Expected.
    pub likely: f64,
    /// Lower end of the interval.
    pub least: f64,
}

/// Cycles of a local access on an idle machine: the mean over its nodes.
#[must_use]
pub fn idle_local_cycles(topology: &Topology) -> f64 {
    let costs = topology.costs().latency_ns.as_ref();
    let told = |node: usize| costs.map(|matrix| matrix[(node, node)]).filter(|ns| *ns > 0.0);
    let controllers = topology.controllers();
    let known = controllers.iter().filter_map(told);
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), ns| (sum + ns, count + 1.0));
    let ns = if count > 0.0 { sum / count } else { IDLE_LOCAL_NS };
    ns * topology.clock_hz().unwrap_or(CLOCK_HZ) / 1e9
}

/// Share of its CPU time that an application loses because its accesses take longer than local
/// accesses on an idle machine. `None` if latency is unknown, or if both stalls and requests are
/// unknown.
#[must_use]
pub fn lost_to_latency(model: &Model, topology: &Topology, app: &App) -> Option<Price> {
    let latency = app.latency_cycles?;
    let threads = model.threads_of(app);
    let counted = stalled_share(threads).map(|share| (share, share));
    let waiting = || waiting::waiting(topology, app, threads, latency);
    let (likely, least) = counted.or_else(waiting)?;
    let idle = idle_local_cycles(topology);
    let extra = |latency: f64| (1.0 - idle / latency).clamp(0.0, 1.0);
    // The standard deviation of latencies is about as large as their mean.
    let error = STANDARD_ERRORS / libm::sqrt(app.latency_accesses.max(1.0));
    let shortest = latency * (1.0 - error).max(0.0);
    Some(Price { likely: likely * extra(latency), least: least * extra(shortest) })
}

/// Share of the cycles in which threads wait for memory, each weighted by its CPU time.
fn stalled_share(threads: &[Thread]) -> Option<f64> {
    let known = threads.iter().filter_map(|one| Some((one.cpu_share, one.rates.stall_share?)));
    let (ran, stalled) =
        known.fold((0.0, 0.0), |(ran, sum), (share, stalled)| (ran + share, sum + share * stalled));
    (ran > 0.0).then(|| stalled / ran)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::matrix::Matrix;
    use crate::model::Traffic;
    use crate::topology::synthetic;
    use crate::units::{Pid, Tid};
    use alloc::vec;
    use alloc::vec::Vec;

    /// The loss of a thread that waits for memory for the share `stalled` of its time. `accesses`
    /// accesses had this mean latency.
    fn lost(stalled: f64, latency_cycles: f64, accesses: f64) -> Price {
        let topology = synthetic::parse("node:2 core:2 mhz:2000").expect("a machine");
        let mut model = Model::empty(2);
        let mut thread = Thread::new(Tid(1), 0, 0, CpuSet::first(4));
        (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(stalled));
        model.threads = vec![thread];
        let mut app = App::new(Pid(1), 0..1);
        (app.latency_cycles, app.latency_accesses) = (Some(latency_cycles), accesses);
        lost_to_latency(&model, &topology, &app).expect("known")
    }

    #[test]
    fn what_an_idle_machine_would_take_is_not_lost() {
        assert_eq!(lost(0.9, 200.0, 1e6).likely, 0.0);
        assert_eq!(lost(0.9, 150.0, 1e6).likely, 0.0);
        assert!((lost(0.8, 800.0, 1e6).likely - 0.6).abs() < 1e-9, "three fourths of the wait");
    }

    /// The loss of a thread without stall counts, from the requests/µs of its CPU.
    fn lost_unseen(per_us: f64, latency_cycles: f64) -> Option<Price> {
        lost_on(
            &synthetic::parse("node:2 core:2 mhz:2000").expect("a machine"),
            per_us,
            latency_cycles,
        )
    }

    fn lost_on(topology: &Topology, per_us: f64, latency_cycles: f64) -> Option<Price> {
        let mut app = App::new(Pid(1), 0..0);
        (app.latency_cycles, app.latency_accesses) = (Some(latency_cycles), 1e6);
        app.cpu_percent = 100.0;
        app.traffic = Some(Traffic::new(Matrix::from_fn(2, |_, node| per_us * node as f64 / 2.0)));
        lost_to_latency(&Model::empty(2), topology, &app)
    }

    #[test]
    fn where_calibration_tells_how_many_misses_a_core_keeps_fewer_requests_prove_as_much() {
        let mut machine = synthetic::describe("node:2 core:2 mhz:2000").expect("a machine");
        machine.costs.outstanding_misses = Some(3.0);
        let measured = Topology::new(machine).expect("a machine");
        let of = |topology: &Topology| lost_on(topology, 1.0, 3_200.0).expect("known").least;
        let unknown = synthetic::parse("node:2 core:2 mhz:2000").expect("a machine");
        // One request/µs of 1.6 µs is 1.6 under way, of 3 or of at most 48.
        assert!((0.49..0.50).contains(&of(&measured)), "{}", of(&measured));
        assert!(of(&unknown) < of(&measured) / 15.0);
    }

    #[test]
    fn where_no_stalls_are_counted_misses_under_way_tell_what_is_lost_at_least() {
        let least = |per_us, latency| lost_unseen(per_us, latency).expect("known").least;
        // 20 requests/µs of 1.6 µs each are 32 of at most 48 under way.
        assert!((0.6..0.63).contains(&least(20.0, 3_200.0)), "{}", least(20.0, 3_200.0));
        assert_eq!(least(20.0, 200.0), 0.0, "as on an idle machine");
        assert!(least(2.0, 3_200.0) < least(20.0, 3_200.0));
        assert!(least(1e3, 3_200.0) < 1.0, "more than a core can wait for");
        let both = lost_unseen(20.0, 3_200.0).expect("known");
        assert!(both.likely > both.least);
    }

    #[test]
    fn few_accesses_prove_little_and_more_of_the_same_prove_more() {
        let least: Vec<f64> =
            [1.0, 4.0, 16.0, 100.0, 1e4].map(|accesses| lost(0.8, 800.0, accesses).least).into();
        assert_eq!(least[..2], [0.0, 0.0]);
        assert!(least.windows(2).all(|pair| pair[0] <= pair[1]), "{least:?}");
        assert!(least[4] > 0.58 && least[4] < 0.6);
    }
}
