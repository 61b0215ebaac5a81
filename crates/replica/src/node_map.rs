//! Which copy is nearest to each CPU.

use std::fs;

use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::{LinuxError, Root, topology};

/// A node that gets a copy, and the CPUs that read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kernel's number of the node.
    pub node: u32,
    /// The kernel's numbers of the CPUs that are nearest to it.
    pub cpus: Vec<u32>,
}

/// The places of a machine's copies, and the nearest place of each CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMap {
    places: Vec<Place>,
    /// The place of each CPU, by the kernel's number.
    nearest: Box<[u16]>,
}

/// Why a map is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeMapError {
    /// The map has no place.
    #[error("node map: no place; expected at least one")]
    Empty,
    /// A place has no CPU, so no thread would read from it.
    #[error("node map: place {place} (node {node}) has no CPU")]
    NoCpu {
        /// Index of the place.
        place: usize,
        /// Node of the place.
        node: u32,
    },
    /// Two places claim the same CPU.
    #[error("node map: CPU {cpu} is in two places")]
    TwoPlaces {
        /// The kernel's number of the CPU.
        cpu: u32,
    },
    /// A number is larger than any kernel's.
    #[error("node map: {what} {number}; expected at most {most}")]
    TooLarge {
        /// Kind of the number: `CPU`, `node` or `places`.
        what: &'static str,
        /// The number given.
        number: u32,
        /// The largest accepted number.
        most: u32,
    },
}

/// Upper limit of CPU numbers. A kernel's `NR_CPUS` is smaller (8192 on x86).
const MOST_CPUS: u32 = 1 << 16;
/// Upper limit of node numbers: a kernel's `NODES_SHIFT` is at most 10.
const MOST_NODES: u32 = 1 << 10;

impl NodeMap {
    /// This machine's map: one place for each node with memory that is nearest to some CPU that a
    /// thread of this process may use.
    ///
    /// # Errors
    /// sysfs cannot be read or contradicts itself.
    pub fn discover() -> Result<Self, LinuxError> {
        let machine = topology::discover(&Root::live())?;
        Ok(Self::of_machine(&machine.topology, &allowed_cpus()))
    }

    /// A map given by the caller, for tests and for programs that group their threads in another
    /// way. CPUs that it does not name belong to the first place.
    ///
    /// # Errors
    /// See [`NodeMapError`].
    pub fn by_hand(places: Vec<Place>) -> Result<Self, NodeMapError> {
        if places.is_empty() {
            return Err(NodeMapError::Empty);
        }
        let within = |what, number, most| match number > most {
            true => Err(NodeMapError::TooLarge { what, number, most }),
            false => Ok(()),
        };
        within("places", u32::try_from(places.len()).unwrap_or(u32::MAX), MOST_NODES)?;
        let mut named = CpuSet::new();
        for (place, Place { node, cpus }) in places.iter().enumerate() {
            within("node", *node, MOST_NODES)?;
            if cpus.is_empty() {
                return Err(NodeMapError::NoCpu { place, node: *node });
            }
            for &cpu in cpus {
                within("CPU", cpu, MOST_CPUS)?;
                if named.contains(cpu as usize) {
                    return Err(NodeMapError::TwoPlaces { cpu });
                }
                named.insert(cpu as usize);
            }
        }
        let length = named.iter().last().map_or(0, |cpu| cpu + 1);
        let mut nearest = vec![0u16; length];
        for (place, number) in places.iter().zip(0..) {
            place.cpus.iter().for_each(|&cpu| nearest[cpu as usize] = number);
        }
        Ok(Self { places, nearest: nearest.into() })
    }

    /// The map of a described machine for threads on these CPUs (the kernel's numbers).
    fn of_machine(machine: &Topology, allowed: &CpuSet) -> Self {
        let is_used = |node: usize| {
            let mut cpus = machine.cpus_of_node(node).iter();
            cpus.any(|cpu| allowed.contains(machine.kernel_cpu(cpu) as usize))
        };
        let compute = machine.compute_nodes();
        let homes: CpuSet = compute
            .iter()
            .filter(|&node| is_used(node))
            .map(|node| machine.nearest_memory(node))
            .collect();
        let mut places: Vec<(usize, Place)> = homes
            .iter()
            .map(|home| (home, Place { node: machine.kernel_node(home), cpus: Vec::new() }))
            .collect();
        for node in compute.iter() {
            // CPUs of a node that is not used now may be used later. They read the nearest copy.
            let home = machine.nearest_memory(node);
            let copy = places
                .iter_mut()
                .min_by_key(|(holding, _)| (*holding != home, machine.distance(node, *holding)));
            let cpus = machine.cpus_of_node(node).iter().map(|cpu| machine.kernel_cpu(cpu));
            if let Some((_, place)) = copy {
                place.cpus.extend(cpus);
            }
        }
        let places = places.into_iter().map(|(_, place)| place).collect();
        Self::by_hand(places).unwrap_or_else(|_| Self::one_place())
    }

    /// The map of a machine with one node.
    pub(crate) fn one_place() -> Self {
        Self { places: vec![Place { node: 0, cpus: vec![0] }], nearest: [0].into() }
    }

    /// The places, in the order of the copies.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Index of the place nearest to a CPU.
    #[inline]
    pub(crate) fn place_of_cpu(&self, cpu: usize) -> usize {
        self.nearest.get(cpu).map_or(0, |&place| usize::from(place))
    }

    /// The place of each CPU, by the kernel's number.
    pub(crate) fn nearest(&self) -> &[u16] {
        &self.nearest
    }

    /// One more than the largest CPU that has a place.
    pub(crate) fn cpus(&self) -> usize {
        self.nearest.len()
    }
}

/// The CPUs that some thread of this process may use. A program that binds its threads to several
/// nodes needs a copy on each.
fn allowed_cpus() -> CpuSet {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let numbers = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let masks = numbers.filter_map(|thread: i32| affinity::get(thread).ok());
    let own = affinity::get(0).unwrap_or_default();
    masks.fold(own, |all, mask| all.union(&mask))
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    fn check(machine: &str, allowed: &[usize], expected: &[(u32, &[u32])]) {
        let allowed = allowed.iter().copied().collect();
        let map = NodeMap::of_machine(&synthetic::parse(machine).unwrap(), &allowed);
        let places: Vec<(u32, &[u32])> =
            map.places().iter().map(|place| (place.node, place.cpus.as_slice())).collect();
        assert_eq!(places, expected);
        for (number, place) in map.places().iter().enumerate() {
            let cpus = place.cpus.iter();
            assert!(cpus.map(|&cpu| map.place_of_cpu(cpu as usize)).all(|place| place == number));
        }
    }

    #[test]
    fn each_node_with_cpus_of_the_process_is_a_place() {
        check("node:2 core:2", &[0, 1, 2, 3], &[(0, &[0, 1]), (1, &[2, 3])]);
        check("node:2 core:2", &[1, 3], &[(0, &[0, 1]), (1, &[2, 3])]);
    }

    #[test]
    fn cpus_of_a_node_without_a_place_read_the_nearest_copy() {
        check("node:2 core:2", &[2], &[(1, &[0, 1, 2, 3])]);
        check("node:3 core:1", &[1, 2], &[(1, &[0, 1]), (2, &[2])]);
    }

    #[test]
    fn a_map_by_hand_that_contradicts_itself_is_refused() {
        let place = |node, cpus: &[u32]| Place { node, cpus: cpus.to_vec() };
        let refused = |places: &[Place]| NodeMap::by_hand(places.to_vec()).unwrap_err();
        assert_eq!(refused(&[]), NodeMapError::Empty);
        assert_eq!(refused(&[place(3, &[])]), NodeMapError::NoCpu { place: 0, node: 3 });
        let twice = [place(0, &[0, 1]), place(1, &[2, 1])];
        assert_eq!(refused(&twice), NodeMapError::TwoPlaces { cpu: 1 });
        assert!(refused(&[place(0, &[u32::MAX])]).to_string().contains("CPU 4294967295"));
        assert!(refused(&[place(5000, &[0])]).to_string().contains("node 5000"));
    }

    #[test]
    fn a_cpu_that_no_map_names_reads_the_first_copy() {
        let places = [0, 1].map(|node| Place { node, cpus: vec![node] });
        let map = NodeMap::by_hand(places.to_vec()).unwrap();
        assert_eq!([0, 1, 2, 999].map(|cpu| map.place_of_cpu(cpu)), [0, 1, 0, 0]);
    }

    #[test]
    fn this_machine_has_a_place_for_the_cpu_of_this_thread() {
        let map = NodeMap::discover().unwrap();
        let cpu = crate::cpu::current() as u32;
        let place = &map.places()[map.place_of_cpu(cpu as usize)];
        assert!(place.cpus.contains(&cpu), "{map:?}");
    }
}
