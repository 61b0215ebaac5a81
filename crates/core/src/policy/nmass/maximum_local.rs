//! Maximum-local: a core at home for the processes that would suffer most from remote memory
//! [N-MASS algorithm 2].

use super::{Cause, Place, Process, Processor};
use alloc::vec::Vec;

/// Gives every process a core, highest NUMA penalty first, at home while a core is free there.
///
/// Of equal penalties the higher home comes first, as printed; within one home, the order of the
/// input.
#[must_use]
pub fn maximum_local(processes: &[Process], processors: &[Processor]) -> Vec<Place> {
    let mut cores = Cores::new(processors);
    merge_by_penalty(processes)
        .into_iter()
        .filter_map(|index| cores.place(index, &processes[index]))
        .collect()
}

/// Indices of the processes, penalty descending.
///
/// The paper merges one sorted list per home. With the tie rule this equals one sort by penalty,
/// then home, both descending.
fn merge_by_penalty(processes: &[Process]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&processes[a], &processes[b]);
        b.penalty.total_cmp(&a.penalty).then(b.home.cmp(&a.home))
    });
    order
}

/// The free cores and the pressure of each processor during the merge.
struct Cores<'a> {
    processors: &'a [Processor],
    /// CPUs of free cores, by processor.
    free: Vec<Vec<usize>>,
    /// Pressures by processor, MPKI.
    pressures: Vec<f64>,
}

impl<'a> Cores<'a> {
    fn new(processors: &'a [Processor]) -> Self {
        let free = processors.iter().map(|processor| processor.cpus.clone()).collect();
        Self { processors, free, pressures: alloc::vec![0.0; processors.len()] }
    }

    fn place(&mut self, index: usize, process: &Process) -> Option<Place> {
        let at_home = |processor: &Processor| processor.node == process.home;
        let home = self.least_loaded(process, at_home);
        let cause = if home.is_some() { Cause::Home } else { Cause::HomeFull };
        let processor = home.or_else(|| self.least_loaded(process, |other| !at_home(other)))?;
        let cpu = take_core(&mut self.free[processor], process)?;
        self.pressures[processor] += process.charge(self.processors[processor].node);
        Some(Place { process: index, processor, cpu, cause })
    }

    /// The processor with the least pressure among those that are wanted and have a core for the
    /// process. Among equals, the current one.
    fn least_loaded(
        &self,
        process: &Process,
        wanted: impl Fn(&Processor) -> bool,
    ) -> Option<usize> {
        let is_current =
            |p: usize| process.cpu.is_some_and(|cpu| self.processors[p].cpus.contains(&cpu));
        (0..self.processors.len())
            .filter(|&p| {
                wanted(&self.processors[p]) && self.free[p].iter().any(|&cpu| process.may_use(cpu))
            })
            .min_by(|&a, &b| {
                self.pressures[a]
                    .total_cmp(&self.pressures[b])
                    .then(is_current(b).cmp(&is_current(a)))
            })
    }
}

/// Takes the process's present core if it is among the free ones, else the first that it may use.
pub(super) fn take_core(free: &mut Vec<usize>, process: &Process) -> Option<usize> {
    let current = free.iter().position(|&cpu| Some(cpu) == process.cpu && process.may_use(cpu));
    let place = current.or_else(|| free.iter().position(|&cpu| process.may_use(cpu)))?;
    Some(free.remove(place))
}
