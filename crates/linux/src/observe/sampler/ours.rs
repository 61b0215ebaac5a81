//! Keeps the samples of followed processes out of those of all tasks.
//!
//! A daemon samples all tasks of the machine. On a busy host nearly all samples are of processes
//! that it does not follow. The model has no use for them, and they would take up to 32 bytes each
//! until the next look.
//!
//! A record of a fork comes on the parent's CPU, and may be read after samples of the child. So a
//! sample is judged only after the next reading of the rings, which has the record.

use std::collections::HashSet;

use rondpoint_core::Pid;
use rondpoint_core::observation::AddressSample;

use super::Sampler;

/// The followed processes, and how far samples and forks since the last look are judged.
#[derive(Debug, Default)]
pub(super) struct Ours {
    processes: HashSet<u32>,
    /// Samples that are kept.
    kept: usize,
    /// Samples of the readings before the last one.
    read: usize,
    /// Forks of the readings before the last one, and before that.
    forks: [usize; 2],
    /// Samples since the last look that were dropped.
    dropped: u64,
    /// The last one of them.
    stranger: Option<AddressSample>,
    /// `(parent, child)` of processes as last told.
    told: Vec<(Pid, Pid)>,
}

impl Ours {
    /// Sets the followed processes.
    pub(super) fn set(&mut self, processes: impl Iterator<Item = Pid>) {
        self.processes = processes.map(|pid| pid.0).collect();
    }

    /// Notes `(parent, child)` of processes, for the descendants of those that are added.
    pub(super) fn tell(&mut self, parents: &[(Pid, Pid)]) {
        self.told = parents.to_vec();
    }

    /// Adds processes that are followed from the next look on, with their descendants by what was
    /// told. No fork is recorded of a descendant that was there before.
    pub(super) fn add(&mut self, processes: impl Iterator<Item = Pid>) {
        let before = self.processes.len();
        self.processes.extend(processes.map(|pid| pid.0));
        let told = std::mem::take(&mut self.told);
        if self.processes.len() > before {
            self.adopt(&told);
        }
        self.told = told;
    }

    /// Adds the descendants of the followed processes. The pairs have no order.
    fn adopt(&mut self, pairs: &[(Pid, Pid)]) {
        loop {
            let before = self.processes.len();
            for (parent, child) in pairs {
                if self.processes.contains(&parent.0) {
                    self.processes.insert(child.0);
                }
            }
            if self.processes.len() == before {
                break;
            }
        }
    }

    /// After a reading of the rings: takes in its forks, `(parent, child)`, and drops samples of
    /// the readings before it.
    pub(super) fn sift(&mut self, born: &[(Pid, Pid)], samples: &mut Vec<AddressSample>) {
        self.adopt(&born[self.forks[1].min(born.len())..]);
        self.forks = [born.len(), self.forks[0]];
        let (begin, end) = (self.kept, self.read.min(samples.len()));
        for at in begin..end {
            if self.processes.contains(&samples[at].pid.0) {
                samples[self.kept] = samples[at];
                self.kept += 1;
            } else {
                self.stranger = Some(samples[at]);
            }
        }
        samples.drain(self.kept..end);
        self.dropped += (end - self.kept) as u64;
        self.read = samples.len();
    }

    /// One of the dropped samples.
    pub(super) fn take_stranger(&mut self) -> Option<AddressSample> {
        self.stranger.take()
    }

    /// The number of samples that were dropped since the last call. A new list begins.
    pub(super) fn take(&mut self) -> u64 {
        (self.kept, self.read, self.forks) = (0, 0, [0, 0]);
        std::mem::take(&mut self.dropped)
    }
}

impl Sampler {
    /// Keeps only samples of these processes and of what they start, until the next call.
    pub fn follow(&mut self, processes: impl Iterator<Item = Pid>) {
        self.ours.get_or_insert_default().set(processes);
    }

    /// Tells of `(parent, child)` of processes, before the next call of [`Sampler::follow_too`].
    pub fn tell_parents(&mut self, pairs: &[(Pid, Pid)]) {
        self.ours.get_or_insert_default().tell(pairs);
    }

    /// Keeps samples of these processes and of their told descendants too, until the next call of
    /// [`Sampler::follow`].
    pub fn follow_too(&mut self, processes: impl Iterator<Item = Pid>) {
        self.ours.get_or_insert_default().add(processes);
    }

    /// One of the dropped samples of other processes since the last call.
    pub fn take_stranger(&mut self) -> Option<AddressSample> {
        self.ours.as_mut().and_then(Ours::take_stranger)
    }

    /// Number of samples of other processes that were dropped since the last call. To be called
    /// with [`Sampler::take`].
    pub fn take_dropped(&mut self) -> u64 {
        self.ours.as_mut().map_or(0, Ours::take)
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Tid;
    use rondpoint_core::observation::Source;

    use super::*;

    fn sample(pid: u32) -> AddressSample {
        AddressSample {
            pid: Pid(pid),
            tid: Tid(pid),
            cpu: 0,
            node: 0,
            address: 0x1000,
            latency_cycles: 0,
            page_shift: 12,
            source: Source::HintFault,
            store: false,
        }
    }

    /// Processes of the samples, and forks as parent and child.
    type Reading<'a> = (&'a [u32], &'a [(u32, u32)]);

    /// A list that grows by readings. Returns what is left after each.
    fn left(readings: &[Reading<'_>]) -> (Vec<Vec<u32>>, u64) {
        let mut ours = Ours::default();
        ours.set([Pid(7)].into_iter());
        let (mut samples, mut born) = (Vec::new(), Vec::new());
        let mut shown = Vec::new();
        for (of, forks) in readings {
            samples.extend(of.iter().copied().map(sample));
            born.extend(forks.iter().map(|(parent, child)| (Pid(*parent), Pid(*child))));
            ours.sift(&born, &mut samples);
            shown.push(samples.iter().map(|one| one.pid.0).collect());
        }
        (shown, ours.take())
    }

    #[test]
    fn samples_of_strangers_are_dropped_at_the_next_reading_and_counted() {
        let (shown, dropped) = left(&[(&[7, 1, 2, 7], &[]), (&[3, 3], &[]), (&[7], &[])]);
        assert_eq!(shown, [vec![7, 1, 2, 7], vec![7, 7, 3, 3], vec![7, 7, 7]]);
        assert_eq!(dropped, 4);
    }

    #[test]
    fn a_child_whose_fork_is_read_after_its_samples_keeps_them() {
        let (shown, _) = left(&[(&[9, 5], &[(8, 9)]), (&[9], &[(7, 8), (4, 5)]), (&[], &[])]);
        assert_eq!(shown.last().unwrap(), &[9, 9], "grandchild of a followed process");
    }

    #[test]
    fn descendants_of_a_new_tree_keep_their_samples_before_the_next_look() {
        let mut ours = Ours::default();
        let pairs = [(8, 9), (7, 8), (1, 5), (1, 7)];
        ours.tell(&pairs.map(|(parent, child)| (Pid(parent), Pid(child))));
        ours.add([Pid(7)].into_iter());
        let mut samples = vec![sample(9), sample(5), sample(8), sample(7)];
        ours.sift(&[], &mut samples);
        ours.sift(&[], &mut samples);
        let kept: Vec<u32> = samples.iter().map(|one| one.pid.0).collect();
        assert_eq!(kept, [9, 8, 7]);
    }

    #[test]
    fn a_new_list_is_judged_from_its_beginning() {
        let mut ours = Ours::default();
        let mut samples = vec![sample(1), sample(7)];
        ours.sift(&[], &mut samples);
        ours.take();
        ours.set([Pid(7)].into_iter());
        let mut samples = vec![sample(1), sample(7), sample(1)];
        ours.sift(&[], &mut samples);
        ours.sift(&[], &mut samples);
        assert_eq!((samples.len(), ours.take()), (1, 2));
    }
}
