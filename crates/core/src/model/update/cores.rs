//! Time for which the hardware threads of a core ran side by side.

use crate::model::Thread;
use crate::topology::Topology;
use alloc::collections::BTreeMap;
use alloc::vec;

/// Notes for each thread how long another hardware thread of its core ran.
pub(super) fn share(threads: &mut [Thread], topology: &Topology) {
    let mut busy = vec![0.0; topology.cpu_count()];
    threads.iter().for_each(|thread| busy[thread.cpu] += thread.cpu_share);
    let mut cores: BTreeMap<usize, f64> = BTreeMap::new();
    let core = |cpu: usize| topology.cpu(cpu).core;
    for (cpu, share) in busy.iter_mut().enumerate().filter(|(_, share)| **share > 0.0) {
        *share = f64::min(*share, 1.0);
        *cores.entry(core(cpu)).or_default() += *share;
    }
    for thread in threads {
        let all = cores.get(&core(thread.cpu)).copied().unwrap_or(0.0);
        thread.core_shared = (all - busy[thread.cpu]).clamp(0.0, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic;
    use crate::units::Tid;
    use alloc::vec::Vec;

    #[test]
    fn a_core_is_shared_while_another_of_its_hardware_threads_runs() {
        let topology = synthetic::parse("node:2 core:2 pu:2").expect("a machine");
        let shared = |running: &[(usize, f64)]| -> Vec<f64> {
            let thread = |(number, (cpu, share)): (usize, &(usize, f64))| Thread {
                cpu_share: *share,
                ..Thread::new(Tid(number as u32), 0, *cpu, topology.all_cpus())
            };
            let mut threads: Vec<Thread> = running.iter().enumerate().map(thread).collect();
            share(&mut threads, &topology);
            threads.iter().map(|thread| thread.core_shared).collect()
        };
        assert_eq!(shared(&[(0, 1.0), (1, 0.5)]), [0.5, 1.0]);
        assert_eq!(shared(&[(0, 1.0), (2, 1.0), (4, 1.0)]), [0.0; 3], "three cores");
        assert_eq!(shared(&[(0, 0.5), (0, 0.5)]), [0.0; 2], "they take turns on one CPU");
    }
}
