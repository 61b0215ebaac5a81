//! The cores of a node that are free for the threads of a process.

use crate::index_set::CpuSet;
use crate::model::{App, Model, Thread};
use crate::topology::Topology;
use crate::units::Tid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Free cores of a node, by cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Room {
    /// For each cache of the node: its cores, each by its CPUs.
    caches: BTreeMap<usize, Vec<Vec<usize>>>,
}

impl Room {
    /// The cores of `node` on which no thread of another process runs. Other threads take a core
    /// each, of the cache behind which they run.
    pub(super) fn of(model: &Model, topology: &Topology, app: &App, node: usize) -> Self {
        let mut cores: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for cpu in topology.usable(topology.cpus_of_node(node)).iter() {
            let place = (topology.domain_of_cpu(cpu), topology.cpu(cpu).core);
            cores.entry(place).or_default().push(cpu);
        }
        let mut caches: BTreeMap<usize, Vec<Vec<usize>>> = BTreeMap::new();
        for ((domain, _), cpus) in cores {
            caches.entry(domain).or_default().push(cpus);
        }
        let mut room = Self { caches };
        let threads = model.threads.iter().enumerate();
        let others =
            threads.filter(|(place, one)| !app.threads.contains(place) && one.is_running());
        for (_, other) in others.filter(|(_, one)| topology.node_of_cpu(one.cpu) == node) {
            room.take(topology.domain_of_cpu(other.cpu), Some(other.cpu));
        }
        room
    }

    /// Takes the core of this CPU, or any core of the cache. Returns its CPUs.
    fn take(&mut self, domain: usize, cpu: Option<usize>) -> Option<Vec<usize>> {
        let cores = self.caches.get_mut(&domain).filter(|cores| !cores.is_empty())?;
        let own = |cpus: &Vec<usize>| cpu.is_some_and(|cpu| cpus.contains(&cpu));
        let at = cores.iter().position(own).unwrap_or(0);
        Some(cores.remove(at))
    }

    /// A CPU of its own for each thread that comes to the node. Threads that ran behind one cache
    /// go behind one cache, as far as it has room, because they may exchange data.
    pub(super) fn places<'a>(
        mut self,
        topology: &Topology,
        threads: impl Iterator<Item = (&'a Thread, CpuSet)>,
    ) -> BTreeMap<Tid, usize> {
        let mut coming: BTreeMap<usize, Vec<(&Thread, CpuSet)>> = BTreeMap::new();
        for (thread, cpus) in threads {
            let domain = topology.domain_of_cpu(thread.cpu);
            match self.caches.contains_key(&domain) {
                true => drop(self.take(domain, Some(thread.cpu))),
                false => coming.entry(domain).or_default().push((thread, cpus)),
            }
        }
        let mut places = BTreeMap::new();
        for group in coming.into_values() {
            let mut left: BTreeSet<usize> = self.caches.keys().copied().collect();
            let mut of_group = group.into_iter().peekable();
            while of_group.peek().is_some() {
                let room = |domain: &usize| (self.caches[domain].len(), usize::MAX - *domain);
                let Some(domain) = left.iter().copied().max_by_key(room) else { break };
                left.remove(&domain);
                while let Some((thread, cpus)) = of_group.peek() {
                    let Some(core) = self.take(domain, None) else { break };
                    if let Some(cpu) = core.into_iter().find(|cpu| cpus.contains(*cpu)) {
                        places.insert(thread.tid, cpu);
                    }
                    of_group.next();
                }
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic;
    use crate::units::Pid;
    use alloc::vec;

    /// Two nodes with two caches of two cores each; threads of a process and of another run on
    /// these CPUs. Returns the CPUs of those that come to node 1, in the order of their numbers.
    fn places(own: &[usize], others: &[usize]) -> Vec<usize> {
        let topology = synthetic::parse("node:2 llc:2 core:2").expect("a machine");
        let mut model = Model::empty(2);
        for (place, cpu) in own.iter().chain(others).enumerate() {
            let app = usize::from(place >= own.len());
            model.threads.push(Thread::new(Tid(place as u32), app, *cpu, topology.all_cpus()));
        }
        let app = App::new(Pid(1), 0..own.len());
        let room = Room::of(&model, &topology, &app, 1);
        let threads = model.threads[..own.len()].iter();
        let places = room.places(&topology, threads.map(|one| (one, topology.all_cpus())));
        places.into_values().collect()
    }

    #[test]
    fn threads_behind_one_cache_go_behind_one_cache() {
        assert_eq!(places(&[0, 1, 2, 3], &[]), vec![4, 5, 6, 7]);
        assert_eq!(places(&[0, 2, 1, 3], &[]), vec![4, 6, 5, 7]);
    }

    #[test]
    fn cores_of_others_and_of_threads_that_are_there_are_taken() {
        assert_eq!(places(&[0, 1], &[4]), vec![6, 7]);
        assert_eq!(places(&[0, 6], &[]), vec![4], "the second stays where it is");
        assert_eq!(places(&[0], &[4, 5, 6, 7]), vec![]);
    }
}
