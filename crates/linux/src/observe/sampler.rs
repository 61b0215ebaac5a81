//! Address samples, thread names, forks and exits of a program and its descendants, through one
//! ring per CPU.
//!
//! The ring belongs to a software event that counts nothing, always opens and carries the task
//! records; sampling events send their records into it. Without a hardware event, minor page faults
//! are sampled: each has the thread, CPU, virtual and physical address.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rondpoint_core::observation::{AddressSample, Samples};
use rondpoint_core::{Pid, Tid, Topology};

use super::buffer::{self, Buffer};
use super::cpu_ring::{CpuRing, FIELDS, faults, open_ring, owner, sampling, send_to, slower};
use super::subject::Subject;
use super::translation::Translation;
use crate::LinuxError;
use crate::perf::attr::sample_type;
use crate::perf::event::OpenEvent;
use crate::perf::pmu::Event;
use crate::perf::record::{Mode, Record, RecordError, Records};
use crate::perf::sample::{Layout, Sample};
use crate::syscall::signal;
use crate::syscall::time::own_cpu_time_ns;

/// Samples kept of one interval; further ones are counted as lost.
pub const MAX_SAMPLES: usize = 1 << 20;
/// Pages remembered to tell a first touch from a later fault.
const MAX_KNOWN_PAGES: usize = 1 << 20;

/// What samples are taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Loads and stores, by the hardware.
    Accesses,
    /// Minor page faults, by the kernel.
    Faults,
}

/// What one drain of all rings brought beside samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskNews {
    /// Processes that were born: parent, child.
    pub born: Vec<(Pid, Pid)>,
    /// Processes and threads that were born.
    pub births: u64,
    /// New names of threads.
    pub names: Vec<(Tid, String)>,
    /// Records that could not be understood.
    pub bad_records: u64,
    /// The first of their reasons.
    pub first_problem: Option<RecordError>,
}

/// How often addresses are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rate {
    /// Not at all.
    Off,
    /// A sixteenth of the full rate.
    Idle,
    /// A fourth of the full rate.
    Cheap,
    /// As often as the period says.
    Full,
}

/// Each level samples a fourth as often as the one before (Carrefour's two rates are 65,000 and
/// 260,000 cycles apart). The last is for programs that would give too many samples.
pub const LEVEL_STEP: u64 = 4;

/// The open rings.
pub struct Sampler {
    /// What is sampled.
    pub kind: Kind,
    rings: Vec<CpuRing>,
    /// Of [`Plan::buffer`], at the present level: one for each CPU, or none.
    buffers: Vec<Buffer>,
    /// The event of the buffers at the full rate, where it could be opened.
    buffered: Option<Event>,
    layout: Layout,
    /// What is sampled, at the full rate, as the kernel accepted it.
    sampled: Vec<Event>,
    levels: usize,
    translation: Translation,
    stream: Vec<u8>,
    samples: Samples,
    news: TaskNews,
    known: HashSet<(u32, u64)>,
    /// `None` = nothing is sampled.
    level: Option<usize>,
    /// Levels that the rates were lowered by, because there were too many samples.
    lowered: usize,
    /// CPU time in which rings were read.
    reading: Duration,
    paused: bool,
    /// Faults on pages not seen before, since the sampler was opened.
    pub first_touches: u64,
}

/// What to sample and how often.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The events with addresses in their samples; without such events, minor faults are sampled.
    pub events: Vec<Event>,
    /// An event that writes its samples into a buffer; loads and stores.
    pub buffer: Option<Event>,
    /// Whether the events sample stores beside loads.
    pub stores: bool,
    /// Events per sample.
    pub period: u64,
    /// How many levels of sampling there are, the first at `period`; at least one.
    pub levels: usize,
}

impl Sampler {
    /// Opens a ring on every CPU and the events of `plan`; says which of them could not be opened.
    ///
    /// # Errors
    /// Not even the software event that owns the rings can be opened or mapped.
    pub fn open(
        subject: &Subject,
        topology: &Topology,
        translation: Translation,
        plan: &Plan,
    ) -> Result<(Self, Vec<LinuxError>), LinuxError> {
        let mut problems = Vec::new();
        let mut sampler = Self {
            kind: Kind::Accesses,
            rings: Vec::new(),
            buffers: Vec::new(),
            buffered: None,
            layout: Layout::default(),
            sampled: Vec::new(),
            levels: plan.levels.max(1),
            translation,
            stream: Vec::new(),
            samples: Samples::default(),
            news: TaskNews::default(),
            known: HashSet::new(),
            level: Some(0),
            lowered: 0,
            reading: Duration::ZERO,
            paused: false,
            first_touches: 0,
        };
        let fields = if plan.events.is_empty() {
            FIELDS
        } else {
            FIELDS | sample_type::WEIGHT_STRUCT | sample_type::DATA_SRC
        };
        let owner = owner(fields);
        for cpu in 0..topology.cpu_count() {
            sampler.rings.push(open_ring(&owner, subject, topology.kernel_cpu(cpu))?);
        }
        let Some(first) = sampler.rings.first().and_then(|ring| ring.owners.first()) else {
            return Ok((sampler, problems));
        };
        let accepted = first.attr.clone();
        sampler.layout = Layout::of(&accepted);
        for event in &plan.events {
            let event = sampling(event, &accepted, plan.period);
            match sampler.add(&event, subject, topology) {
                Ok(()) => sampler.sampled.push(event),
                Err(problem) => problems.push(problem),
            }
        }
        if let Some(event) = &plan.buffer {
            let event = buffer::sampling(event, plan.period);
            match sampler.add_buffers(&event, subject, topology) {
                Ok(()) => sampler.buffered = Some(event),
                Err(problem) => problems.push(problem),
            }
        }
        if sampler.buffers.is_empty() && sampler.rings.iter().all(|ring| ring.events.is_empty()) {
            let event = sampling(&faults(), &accepted, 1);
            sampler.kind = Kind::Faults;
            sampler.add(&event, subject, topology)?;
            sampler.sampled.push(event);
        }
        let samples_accesses = sampler.kind == Kind::Accesses;
        sampler.samples.period = samples_accesses.then_some(plan.period);
        let stores = plan.stores || sampler.buffered.is_some();
        sampler.samples.stores = samples_accesses && stores && problems.is_empty();
        Ok((sampler, problems))
    }

    /// All CPUs or none.
    fn add(
        &mut self,
        event: &Event,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let open = |cpu| subject.open(event, topology.kernel_cpu(cpu));
        let opened: Vec<_> = (0..self.rings.len()).map(open).collect::<Result<_, _>>()?;
        for (ring, events) in self.rings.iter_mut().zip(opened) {
            let Some(owner) = ring.owners.first() else { continue };
            send_to(&events, owner, event)?;
            ring.events.extend(events);
        }
        Ok(())
    }

    /// A buffer on all CPUs or on none. If all tasks are watched there is none, because no packet
    /// names the task.
    fn add_buffers(
        &mut self,
        event: &Event,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let open = |cpu| Buffer::open(event, subject, topology.kernel_cpu(cpu));
        let opened: Vec<_> = match subject.is_everybody() {
            true => Vec::new(),
            false => (0..self.rings.len()).map(open).collect::<Result<_, _>>()?,
        };
        self.buffers = opened.into_iter().flatten().collect();
        Ok(())
    }

    /// Whether samples can be told apart only where events are opened on tasks.
    #[must_use]
    pub fn needs_tasks(&self) -> bool {
        self.buffered.is_some()
    }

    /// Samples `subject` at this rate from now on. What is refused leaves nothing sampled.
    ///
    /// # Errors
    /// What the kernel says about the first event that it refuses.
    pub fn set_rate(
        &mut self,
        rate: Rate,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        self.level = self.level_of(rate);
        match self.paused {
            true => Ok(()),
            false => self.reopen(subject, topology),
        }
    }

    /// Whether samples come at this rate, or will when a pause is over.
    #[must_use]
    pub fn is_at(&self, rate: Rate) -> bool {
        self.level == self.level_of(rate)
    }

    fn level_of(&self, rate: Rate) -> Option<usize> {
        let level = match rate {
            Rate::Off => return None,
            Rate::Full => 0,
            Rate::Cheap => 1,
            Rate::Idle => 2,
        };
        Some((self.lowered + level).min(self.levels - 1))
    }

    /// Closes the events that sample. The rings stay, and the task records that go there.
    pub fn close(&mut self) {
        self.paused = true;
        self.rings.iter_mut().for_each(|ring| ring.events.clear());
        self.drain_buffers();
        self.buffers.clear();
    }

    /// Takes the task records of `subject` from now on. Nothing is sampled until
    /// [`Sampler::reopen`].
    ///
    /// # Errors
    /// Not even the software event that owns the rings can be opened or mapped: the old ones stay.
    pub fn move_rings(&mut self, subject: &Subject, topology: &Topology) -> Result<(), LinuxError> {
        let owner = owner(self.layout.sample_type);
        let open = |cpu| open_ring(&owner, subject, topology.kernel_cpu(cpu));
        let rings = (0..topology.cpu_count()).map(open).collect::<Result<_, _>>()?;
        self.drain();
        self.close();
        self.rings = rings;
        Ok(())
    }

    /// Samples `subject` alone, at the rate of now. What is refused leaves nothing
    /// sampled.
    ///
    /// # Errors
    /// What the kernel says about the first event that it refuses.
    pub fn reopen(&mut self, subject: &Subject, topology: &Topology) -> Result<(), LinuxError> {
        self.close();
        self.paused = false;
        let Some(level) = self.level else { return Ok(()) };
        let events = self.sampled.clone();
        let opened = events
            .into_iter()
            .try_for_each(|event| self.add(&slower(event, level), subject, topology));
        let buffered = self.buffered.clone().map(|event| slower(event, level));
        let opened = opened.and_then(|()| match buffered {
            Some(event) => self.add_buffers(&event, subject, topology),
            None => Ok(()),
        });
        if opened.is_err() {
            self.close();
            (self.paused, self.level) = (false, None);
        }
        opened
    }

    /// Lowers all rates by a level from the next [`Sampler::set_rate`] on. Returns whether there
    /// was one left.
    pub fn lower(&mut self) -> bool {
        let may = self.lowered + 1 < self.levels;
        self.lowered += usize::from(may);
        may
    }

    /// Raises all rates by a level from the next [`Sampler::set_rate`] on. Returns whether they had
    /// been lowered.
    pub fn raise(&mut self) -> bool {
        let may = self.lowered > 0;
        self.lowered -= usize::from(may);
        may
    }

    /// Whether samples tell where their data lies.
    #[must_use]
    pub fn has_physical_addresses(&self) -> bool {
        // The unit was told to write them, or it would not have been opened.
        self.buffered.is_some() || self.layout.sample_type & sample_type::PHYS_ADDR != 0
    }

    /// Descriptors that become readable when a ring is half full, and once when the task that owns
    /// it ends. [`Sampler::drain`] turns to another owner then.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = self.rings.iter().flat_map(|ring| ring.owners.get(ring.waker)).map(AsFd::as_fd);
        rings.chain(self.buffers.iter().filter_map(Buffer::descriptor))
    }

    /// Passes over owners whose tasks have ended.
    fn find_wakers(&mut self) {
        loop {
            let rings = self.rings.iter_mut().map(|ring| (&ring.owners, &mut ring.waker));
            let buffers = self.buffers.iter_mut().map(|buffer| (&buffer.events, &mut buffer.waker));
            let mut wakers: Vec<(&Vec<OpenEvent>, &mut usize)> =
                rings.chain(buffers).filter(|(owners, waker)| **waker < owners.len()).collect();
            let fds: Vec<_> =
                wakers.iter().map(|(owners, waker)| owners[**waker].as_fd()).collect();
            // Where poll(2) is refused, the wait is refused too, and says so.
            let Ok(ended) = signal::hung_up(&fds) else { return };
            if !ended.contains(&true) {
                return;
            }
            for ((_, waker), ended) in wakers.iter_mut().zip(ended) {
                **waker += usize::from(ended);
            }
        }
    }

    /// Takes everything out of the rings.
    pub fn drain(&mut self) {
        let began = own_cpu_time_ns();
        // Before the rings are read: this poll(2) takes the word that a ring is half full.
        self.find_wakers();
        let mut stream = std::mem::take(&mut self.stream);
        for index in 0..self.rings.len() {
            stream.clear();
            self.rings[index].ring.drain(&mut stream);
            self.digest(&stream);
        }
        self.stream = stream;
        self.drain_buffers();
        self.reading += Duration::from_nanos(own_cpu_time_ns().saturating_sub(began));
    }

    fn drain_buffers(&mut self) {
        for buffer in &mut self.buffers {
            let trouble = buffer.drain(&self.translation, &mut self.samples);
            self.news.bad_records += trouble.bad_records;
            self.news.first_problem = self.news.first_problem.or(trouble.first);
        }
    }

    /// CPU time in which rings were read after the last call.
    pub fn take_reading(&mut self) -> Duration {
        std::mem::take(&mut self.reading)
    }

    fn digest(&mut self, stream: &[u8]) {
        let layout = self.layout;
        for record in Records::new(stream, &layout) {
            match record {
                Ok(Record::Sample(sample, mode)) => self.keep(&sample, mode),
                Ok(Record::Lost { records }) => self.samples.lost += records,
                Ok(Record::LostSamples { samples }) => self.samples.lost += samples,
                Ok(Record::Throttle) => self.samples.throttled = true,
                Ok(Record::Fork(relation)) => {
                    self.news.births += 1;
                    if relation.process != relation.parent_process {
                        self.news.born.push((Pid(relation.parent_process), Pid(relation.process)));
                    }
                }
                Ok(Record::Name { thread, name, .. }) => self.news.names.push((Tid(thread), name)),
                Ok(_) => {}
                Err(problem) => {
                    self.news.bad_records += 1;
                    self.news.first_problem.get_or_insert(problem);
                }
            }
        }
    }

    fn keep(&mut self, sample: &Sample, mode: Mode) {
        // The kernel's own accesses are not the program's; its faults on user memory are.
        if self.kind == Kind::Accesses && mode == Mode::Kernel {
            return;
        }
        let Some(sample) = self.translation.sample(sample, self.kind) else { return };
        if self.kind == Kind::Faults && self.is_first_touch(&sample) {
            self.first_touches += 1;
        }
        if self.samples.list.len() < MAX_SAMPLES {
            self.samples.list.push(sample);
        } else {
            self.samples.lost += 1;
        }
    }

    fn is_first_touch(&mut self, sample: &AddressSample) -> bool {
        let page = (sample.pid.0, sample.page_address());
        if self.known.len() >= MAX_KNOWN_PAGES {
            return !self.known.contains(&page);
        }
        self.known.insert(page)
    }

    /// The samples and task records since the last call.
    pub fn take(&mut self) -> (Samples, TaskNews) {
        if self.kind == Kind::Accesses && self.samples.list.is_empty() && !self.paused {
            self.revive();
        }
        let Samples { period, stores, .. } = self.samples;
        let next = Samples { period, stores, ..Samples::default() };
        (std::mem::replace(&mut self.samples, next), std::mem::take(&mut self.news))
    }

    /// The kernel gives up a pinned event that found no counter once, because other pinned events
    /// came before. It counts again when it is enabled anew. For a running event that changes
    /// nothing.
    fn revive(&self) {
        for event in self.rings.iter().flat_map(|ring| &ring.events) {
            let _ = event.enable();
        }
    }
}
