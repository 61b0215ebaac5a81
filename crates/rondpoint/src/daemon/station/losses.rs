//! What placement costs each process, by cause, in the names of the protocol and of the metrics.

use std::collections::BTreeMap;

use rondpoint_core::{Model, Pid, Topology};

use crate::story::lost_by_cause;
use crate::story::words::name_of;

/// Shares of the CPU time that the threads of a process ask for, by the name of a cause.
pub(super) type Shares = BTreeMap<String, f64>;

/// Of each process of a window of which stalls or latency are known.
pub(super) fn losses(window: &Model, topology: &Topology) -> BTreeMap<Pid, Shares> {
    let lost = lost_by_cause(window, topology).into_iter();
    lost.map(|(pid, losses)| {
        let shares = losses.iter().map(|loss| (name_of(loss.cause), loss.percent / 100.0));
        (pid, shares.filter(|(_, share)| share.is_finite()).collect())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use rondpoint_core::cost::CAUSES;
    use rondpoint_core::model::{App, Thread};
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{CpuSet, Tid};

    use super::*;

    /// A window with a process that waits for memory half of its time, and one of which nothing is
    /// counted.
    fn window() -> Model {
        let mut window = Model::empty(2);
        for (app, stalled) in [(0, Some(0.5)), (1, None)] {
            let mut thread = Thread::new(Tid(app as u32 + 1), app, 0, CpuSet::first(4));
            (thread.cpu_share, thread.rates.stall_share) = (1.0, stalled);
            window.threads.push(thread);
            window.apps.push(App::new(Pid(app as u32 + 1), app..app + 1));
        }
        window
    }

    #[test]
    fn each_cause_has_a_share_where_stalls_are_counted_and_none_elsewhere() {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let losses = losses(&window(), &topology);
        assert_eq!(losses.keys().collect::<Vec<_>>(), [&Pid(1)]);
        let shares = &losses[&Pid(1)];
        assert_eq!(shares.len(), CAUSES.len());
        assert!(shares.values().all(|share| share.abs() <= 1.0), "{shares:?}");
        // As docs/daemon.md has them.
        let names =
            "coherence controller-queue crowded-cache link-queue remote-dram waiting-for-cpu";
        assert_eq!(shares.keys().map(String::as_str).collect::<Vec<_>>().join(" "), names);
    }
}
