//! Memory that several processes have mapped, and the process that owns each of its pages.
//!
//! A page of shared memory has an address in each process that maps it. With a record for each
//! process, it would look like several private pages, and each process would get it moved to its
//! own node. So the model has one record for it, which belongs to one process, the owner, and has
//! the accesses of all.

use super::App;
use crate::observation::{ProcessObservation, SharedMapping, SharedObject};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Least CPU use of an owner in percent of one CPU, if any of the processes has it (our choice).
/// Policies leave alone a process that hardly runs, and the process that started the others often
/// hardly runs.
const OWNER_CPU_PERCENT: f64 = 10.0;

/// The ranges of shared memory of each process of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SharedMemory {
    /// By process (its index), ascending by address; empty without shared memory.
    parts: Vec<Vec<Part>>,
    /// The same ranges in the order of the owner's addresses.
    by_owner: Vec<Vec<Part>>,
    /// The processes that share an object, for each object.
    sharers: Vec<Vec<usize>>,
}

/// A range of one process's addresses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    start: u64,
    end: u64,
    owner: usize,
    /// The address in the owner at which it begins.
    in_owner: u64,
    /// Index of [`SharedMemory::sharers`].
    sharers: usize,
}

impl SharedMemory {
    /// Finds the shared memory of these processes. Both lists are in the same order.
    #[must_use]
    pub fn of(apps: &[App], processes: &[ProcessObservation]) -> Self {
        let mut objects: BTreeMap<SharedObject, Vec<(usize, &SharedMapping)>> = BTreeMap::new();
        for (app, process) in processes.iter().enumerate() {
            for mapping in &process.shared {
                objects.entry(mapping.object).or_default().push((app, mapping));
            }
        }
        let mut memory = Self::default();
        for mapped in objects.into_values() {
            memory.add(apps, &mapped);
        }
        for parts in &mut memory.parts {
            parts.sort_by_key(|part| part.start);
            // If a process has mapped an object twice, the lower address counts.
            let mut end = 0;
            parts.retain(|part| {
                let is_next = part.start >= end;
                end = end.max(part.end);
                is_next
            });
        }
        memory.by_owner.clone_from(&memory.parts);
        for parts in &mut memory.by_owner {
            parts.sort_by_key(|part| (part.owner, part.in_owner));
        }
        memory
    }

    /// Adds an object, with the processes that map it in ascending order.
    fn add(&mut self, apps: &[App], mapped: &[(usize, &SharedMapping)]) {
        let mut sharers: Vec<usize> = mapped.iter().map(|(app, _)| *app).collect();
        sharers.dedup();
        if sharers.len() < 2 {
            return;
        }
        let runs = |app: &&usize| apps[**app].cpu_percent >= OWNER_CPU_PERCENT;
        let owner = sharers.iter().find(runs).copied().unwrap_or(sharers[0]);
        self.parts.resize(apps.len(), vec![]);
        for (app, mapping) in mapped {
            for (_, owned) in mapped.iter().filter(|(app, _)| *app == owner) {
                let first = mapping.offset.max(owned.offset);
                let last = range_end(mapping).min(range_end(owned));
                if first < last {
                    self.parts[*app].push(Part {
                        start: mapping.start + (first - mapping.offset),
                        end: mapping.start + (last - mapping.offset),
                        owner,
                        in_owner: owned.start + (first - owned.offset),
                        sharers: self.sharers.len(),
                    });
                }
            }
        }
        self.sharers.push(sharers);
    }

    fn part(&self, app: usize, address: u64) -> Option<&Part> {
        let parts = self.parts.get(app)?;
        let behind = parts.partition_point(|part| part.start <= address);
        parts[..behind].last().filter(|part| address < part.end)
    }

    /// The owner (its index) of this page, and the page's address in the owner.
    #[must_use]
    pub fn owner(&self, app: usize, address: u64) -> (usize, u64) {
        match self.part(app, address) {
            Some(part) => (part.owner, part.in_owner + (address - part.start)),
            None => (app, address),
        }
    }

    /// The address at which a sharer (its index) has mapped the page that `app` has at this
    /// address. `None` if it has not mapped the page, or has mapped it twice.
    #[must_use]
    pub fn address_in(&self, sharer: usize, app: usize, address: u64) -> Option<u64> {
        let (owner, in_owner) = self.owner(app, address);
        let parts = self.by_owner.get(sharer)?;
        let behind = parts.partition_point(|part| (part.owner, part.in_owner) <= (owner, in_owner));
        let part = parts[..behind].last().filter(|part| part.owner == owner)?;
        let found = part.start + (in_owner - part.in_owner);
        (found < part.end).then_some(found)
    }

    /// The processes (their indices) that have mapped the object of a page, though perhaps not this
    /// page. Empty if the memory is not shared.
    #[must_use]
    pub fn sharers(&self, app: usize, address: u64) -> &[usize] {
        self.part(app, address).map_or(&[], |part| &self.sharers[part.sharers])
    }
}

/// One past the last byte of the object that is mapped.
fn range_end(mapping: &SharedMapping) -> u64 {
    mapping.offset.saturating_add(mapping.end - mapping.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pid;

    /// Mappings of a process: start, end, inode, offset.
    type Mapped<'a> = &'a [(u64, u64, u64, u64)];

    /// Processes, each with its percent of a CPU and its mappings.
    fn memory(processes: &[(f64, Mapped<'_>)]) -> SharedMemory {
        let app = |(at, (cpu_percent, _)): (usize, &(f64, _))| App {
            cpu_percent: *cpu_percent,
            ..App::new(Pid(at as u32 + 1), 0..0)
        };
        let apps: Vec<App> = processes.iter().enumerate().map(app).collect();
        let mapping = |&(start, end, inode, offset): &(u64, u64, u64, u64)| {
            let object = SharedObject { device: 1, inode };
            SharedMapping { start, end, object, offset }
        };
        let process = |(_, mappings): &(f64, Mapped<'_>)| ProcessObservation {
            shared: mappings.iter().map(mapping).collect(),
            ..ProcessObservation::default()
        };
        let processes: Vec<_> = processes.iter().map(process).collect();
        SharedMemory::of(&apps, &processes)
    }

    #[test]
    fn a_page_is_the_owners_at_the_owners_address() {
        let memory = memory(&[
            (90.0, &[(0x1000, 0x5000, 7, 0)]),
            (90.0, &[(0x1000, 0x2000, 8, 0), (0x9000, 0xb000, 7, 0x2000)]),
        ]);
        assert_eq!(memory.owner(1, 0xa000), (0, 0x4000));
        assert_eq!(memory.owner(0, 0x4000), (0, 0x4000));
        assert_eq!(memory.sharers(0, 0x4000), [0, 1]);
        assert_eq!(memory.address_in(1, 0, 0x4000), Some(0xa000));
        assert_eq!(memory.address_in(0, 1, 0xa000), Some(0x4000));
        assert_eq!(memory.address_in(1, 0, 0x1000), None, "this part is not mapped there");
        // Addresses of an object that one process alone has mapped, and addresses behind its end.
        for (app, address) in [(1, 0x1000), (1, 0xb000), (0, 0x5000)] {
            assert_eq!(memory.owner(app, address), (app, address));
            assert!(memory.sharers(app, address).is_empty());
        }
    }

    #[test]
    fn a_process_that_started_the_others_and_waits_owns_nothing() {
        let all: Mapped<'_> = &[(0x1000, 0x3000, 7, 0)];
        let there: Mapped<'_> = &[(0x8000, 0xa000, 7, 0)];
        assert_eq!(memory(&[(0.0, all), (40.0, there), (50.0, all)]).owner(0, 0x2000), (1, 0x9000));
        assert_eq!(memory(&[(0.0, all), (2.0, there)]).owner(1, 0x9000), (0, 0x2000));
    }

    #[test]
    fn what_is_mapped_twice_has_one_address() {
        let twice: Mapped<'_> = &[(0x1000, 0x3000, 7, 0), (0x5000, 0x7000, 7, 0)];
        let memory = memory(&[(50.0, twice), (50.0, &[(0x8000, 0xa000, 7, 0)])]);
        assert_eq!(memory.owner(1, 0x9000), (0, 0x2000));
        assert_eq!(memory.owner(0, 0x6000), (0, 0x2000));
    }
}
