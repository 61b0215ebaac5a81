//! Rings of all tasks on a CPU that was off for a while.
//!
//! The kernel removes a CPU's own events for good when the CPU goes off
//! (`__perf_event_exit_context`, kernel/events/core.c, Linux 6.12). When it is on again, no sample
//! and no task record comes from there, so its ring is opened anew. Events of tasks stay.

use std::path::{Path, PathBuf};

use rondpoint_core::Topology;

use super::Sampler;
use crate::observe::buffer::Buffer;
use crate::observe::cpu_ring::{open_ring, owner, send_to, slower};
use crate::observe::subject::Subject;
use crate::parse::cpulist;
use crate::{LinuxError, root};

/// The CPUs with rings, and which of them are off.
pub(super) struct Returning {
    subject: Subject,
    /// Path of the kernel's list of CPUs that are on.
    online: PathBuf,
    /// The list at the last look.
    list: Vec<u8>,
    /// The kernel's number of each CPU, and whether it needs another ring once it is on.
    cpus: Vec<(u32, bool)>,
}

impl Returning {
    /// The CPUs of the topology if the subject is all tasks.
    pub(super) fn of(subject: &Subject, topology: &Topology, online: &Path) -> Option<Self> {
        subject.is_all_tasks().then(|| Self::new(subject, topology, online))
    }

    fn new(subject: &Subject, topology: &Topology, online: &Path) -> Self {
        let cpus = (0..topology.cpu_count()).map(|cpu| (topology.kernel_cpu(cpu), false));
        Self {
            subject: subject.clone(),
            online: online.to_path_buf(),
            list: Vec::new(),
            cpus: cpus.collect(),
        }
    }
}

impl Sampler {
    /// As [`Sampler::reopen`], and may be tried again after an error.
    ///
    /// # Errors
    /// As [`Sampler::reopen`].
    pub fn reopen_again(
        &mut self,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let level = self.level;
        self.reopen(subject, topology).inspect_err(|_| self.level = level)
    }

    /// Opens the rings of CPUs that were off and are on. A list that cannot be read tells nothing.
    pub(super) fn reopen_returned(&mut self) {
        let Some(mut returning) = self.returning.take() else { return };
        let list = root::read_optional(&returning.online).ok().flatten().unwrap_or_default();
        let is_news = list != returning.list || returning.cpus.iter().any(|(_, is_off)| *is_off);
        // Some CPU is always on.
        let online = cpulist::parse(&list).ok().filter(|online| is_news && !online.is_empty());
        if let Some(online) = online {
            for (index, (cpu, is_off)) in returning.cpus.iter_mut().enumerate() {
                let is_on = online.binary_search(cpu).is_ok();
                if *is_off && is_on {
                    *is_off = self.reopen_on(index, *cpu, &returning.subject).is_err();
                } else {
                    *is_off |= !is_on;
                }
            }
        }
        returning.list = list;
        self.returning = Some(returning);
    }

    /// Opens the rings of these CPUs, indices of the topology, at the next look. The list did not
    /// show that they were off, because they were on again before a look.
    pub fn rings_are_lost(&mut self, lost: &[usize]) {
        let Some(returning) = &mut self.returning else { return };
        for &cpu in lost {
            returning.cpus.get_mut(cpu).into_iter().for_each(|(_, is_off)| *is_off = true);
        }
    }

    fn reopen_on(&mut self, index: usize, cpu: u32, subject: &Subject) -> Result<(), LinuxError> {
        let mut ring = open_ring(&owner(self.layout.sample_type), subject, cpu)?;
        if let Some(level) = self.level.filter(|_| !self.paused) {
            for event in &self.sampled {
                let event = slower(event.clone(), level);
                let events = subject.open(&event, cpu)?;
                send_to(&events, &ring.owners[0], &event)?;
                ring.events.extend(events);
            }
            if let Some(event) = &self.buffered
                && let Some(buffer) = Buffer::open(&slower(event.clone(), level), subject, cpu)?
            {
                let cpus = self.rings.len();
                self.buffers.resize_with(cpus, || None);
                self.buffers[index] = Some(buffer);
            }
        }
        self.rings[index] = ring;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Plan;
    use super::*;
    use crate::Root;
    use crate::observe::kernel::physical_map;
    use crate::observe::subject::Start;
    use crate::observe::translation::Translation;
    use crate::perf::data_source::Vendor;
    use crate::sleeper::own_thread;
    use crate::syscall::memory::{Anonymous, page_bytes};

    const PAGES: usize = 32;

    /// Number of samples of faults on new memory.
    fn faulted(sampler: &mut Sampler) -> usize {
        Anonymous::new(PAGES * page_bytes()).unwrap().touch_every(page_bytes());
        sampler.drain();
        sampler.take().0.list.len()
    }

    /// A sampler of this thread that takes it for all tasks, and the file with the list of CPUs.
    fn sampler(folder: &Path) -> (Sampler, PathBuf, String) {
        let machine = crate::topology::discover(&Root::live()).unwrap().topology;
        let online = folder.join("online");
        let all: Vec<u32> = (0..machine.cpu_count()).map(|cpu| machine.kernel_cpu(cpu)).collect();
        let all = cpulist::format(&all);
        fs::write(&online, &all).unwrap();
        let plan = Plan {
            events: Vec::new(),
            buffer: None,
            stores: false,
            period: 1,
            levels: 1,
            counts_first_touches: false,
            online: online.clone(),
        };
        let physical = physical_map(&Root::live()).unwrap();
        let translation = Translation::new(&machine, physical, Vendor::Intel);
        let subject = Subject::tasks(&[own_thread().0], Start::Now);
        let (mut sampler, _) = Sampler::open(&subject, &machine, translation, &plan).unwrap();
        assert!(sampler.returning.is_none(), "a task's events stay");
        sampler.returning = Some(Returning::new(&subject, &machine, &online));
        (sampler, online, all)
    }

    #[test]
    fn a_cpu_that_is_on_again_is_sampled_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut sampler, online, all) = sampler(folder.path());
        assert!(faulted(&mut sampler) >= PAGES);
        // What the kernel does when the CPUs go off.
        sampler.rings.iter_mut().for_each(|ring| ring.events.clear());
        fs::write(&online, "60000\n").unwrap();
        // Faults between the last look and that are still in the ring.
        assert!(faulted(&mut sampler) < PAGES);
        fs::remove_file(&online).unwrap();
        assert_eq!((faulted(&mut sampler), faulted(&mut sampler)), (0, 0), "no list, no news");
        fs::write(&online, &all).unwrap();
        assert_eq!(faulted(&mut sampler), 0, "the look that finds it");
        assert!(faulted(&mut sampler) >= PAGES);
    }

    #[test]
    fn a_cpu_that_was_off_between_two_looks_is_sampled_again_if_its_counts_tell() {
        let folder = tempfile::tempdir().unwrap();
        let (mut sampler, ..) = sampler(folder.path());
        assert!(faulted(&mut sampler) >= PAGES);
        sampler.rings.iter_mut().for_each(|ring| ring.events.clear());
        assert!(faulted(&mut sampler) < PAGES);
        assert_eq!(faulted(&mut sampler), 0, "the list has not changed");
        let cpus = sampler.rings.len();
        sampler.rings_are_lost(&(0..=cpus).collect::<Vec<_>>());
        assert_eq!(faulted(&mut sampler), 0, "the look that opens it");
        assert!(faulted(&mut sampler) >= PAGES);
    }
}
