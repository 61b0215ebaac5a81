//! The allowed CPUs of a thread, in the topology's numbers.
//!
//! A CPU may be missing from the topology: it was plugged in later, or a container shows CPUs under
//! other numbers. A thread without any known CPU is left out of the observation. Any other CPU in
//! its place would make local memory look remote.

use rondpoint_core::observation::Exemption;
use rondpoint_core::{CpuSet, Topology};

use crate::parse::stat::TaskStat;

/// The topology's CPUs of a list; all CPUs if the kernel gives no list. `None` if the topology has
/// none of them.
pub(super) fn allowed(topology: &Topology, listed: Option<Vec<u32>>) -> Option<CpuSet> {
    let Some(listed) = listed else { return Some(topology.all_cpus()) };
    let known: CpuSet = listed.iter().filter_map(|&cpu| topology.cpu_of_kernel_id(cpu)).collect();
    (!known.is_empty()).then_some(known)
}

/// The exemption of a task by its kind: kernel threads and real-time policies.
pub(super) fn exemption(found: &TaskStat) -> Option<Exemption> {
    const FIFO: u32 = 1;
    const ROUND_ROBIN: u32 = 2;
    const DEADLINE: u32 = 6;
    if found.is_kernel_thread {
        return Some(Exemption::KernelThread);
    }
    matches!(found.policy, FIFO | ROUND_ROBIN | DEADLINE).then_some(Exemption::RealTime)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    #[test]
    fn cpus_that_the_topology_lacks_are_never_replaced_by_others() {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let shown = |listed| allowed(&machine, listed).map(|cpus| cpus.iter().collect::<Vec<_>>());
        assert_eq!(shown(Some(vec![1, 3, 9])), Some(vec![1, 3]));
        assert_eq!(shown(Some(vec![9])), None);
        assert_eq!(shown(Some(vec![])), None);
        assert_eq!(shown(None), Some(vec![0, 1, 2, 3]));
    }
}
