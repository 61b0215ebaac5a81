//! Measures N-MASS's NUMA penalty with benchmarks: cycles per instruction with remote memory over
//! the same with local memory. The loops access memory at different rates (ALGORITHMS 2.2).

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use rondpoint_core::Topology;
use rondpoint_linux::observe::subject::{Start, Subject};

use super::counts::{self, Events, Work};
use super::file::{Origin, Program};
use super::loads::{Loads, Order, Window};

/// Rounds of computing before a load: from about thirty misses per 1000 instructions down to about
/// one and a half. The paper leaves out programs below one.
const ROUNDS: [u32; 4] = [2, 6, 18, 54];

/// Both sorts of loops with each need for memory.
pub(super) fn loops() -> impl Iterator<Item = Loads> {
    let orders = [Order::Chain, Order::Independent].into_iter();
    orders.flat_map(|order| ROUNDS.map(|rounds| Loads { order, rounds }))
}

/// Counts a loop on the calling thread.
pub(super) fn count(
    loads: Loads,
    words: &[AtomicU64],
    time: Duration,
    events: &Events,
    topology: &Topology,
) -> Result<Work> {
    const SELF: u32 = 0;
    let subject = Subject::tasks(&[SELF], Start::Now);
    let mut counters = events.open_work(&subject, topology)?;
    loads.per_s(words, Window::now(time));
    counts::work(&mut counters)
}

/// A loop as a point of the line.
pub(super) fn point(loads: Loads, local: &Work, remote: &Work) -> Program {
    let order = match loads.order {
        Order::Chain => "each waiting for the one before",
        Order::Independent => "independent of each other",
    };
    Program {
        name: format!("loads {order}, {} rounds apart", loads.rounds),
        origin: Origin::Benchmark,
        mpki: local.mpki(),
        penalty: remote.cycles_per_instruction() / local.cycles_per_instruction(),
        traffic: None,
    }
}
