//! Whether a thread would be nearer to its data elsewhere: SAM asks for many remote accesses alone.

use super::veto::Veto;
use crate::model::{Model, SampledHome, Thread};
use crate::policy::sam::Flagged;
use crate::topology::Topology;

/// Requests to the home of a thread's data, per request to its own node, above which the thread is
/// sent there (ours). SAM asks for many remote accesses alone. Of two nodes that each hold half of
/// the memory, neither is nearer.
const NEARER_ABOVE: f64 = 1.5;

/// Memory of a process that lies on several nodes, as AsymSched places it, is remote to a thread on
/// any of them. What a node asks for on behalf of one thread is that thread's; of several, the
/// samples of each say more.
pub(super) fn no_nearer(model: &Model, topology: &Topology, flagged: &Flagged) -> Option<Veto> {
    let app = model.app(flagged.pid?)?;
    let home = flagged.home?;
    let threads = model.threads_of(app);
    let is_here = |thread: &&Thread| topology.node_of_cpu(thread.cpu) == flagged.node;
    let company = threads.iter().filter(is_here).filter(|thread| thread.tid != flagged.tid);
    let sampled = || {
        let thread = threads.iter().find(|thread| thread.tid == flagged.tid)?;
        let is_known = thread.sampled_home() != SampledHome::Unknown;
        let accesses = thread.accesses_by_node.as_ref().filter(|_| is_known)?;
        Some(f64::from(accesses[home]) / f64::from(accesses[flagged.node]))
    };
    let requested = || {
        let requests = &app.traffic.as_ref()?.requests_per_us;
        Some(requests[(flagged.node, home)] / requests[(flagged.node, flagged.node)])
    };
    let is_alone = company.count() == 0;
    let ratio = if is_alone { requested() } else { sampled().or_else(requested) }?;
    let above = NEARER_ABOVE;
    (ratio.is_finite() && ratio <= above).then_some(Veto::NoNearer { ratio, above })
}
