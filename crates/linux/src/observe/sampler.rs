//! Address samples, thread names, forks and exits of a program and its descendants, through one
//! ring per CPU.
//!
//! The ring belongs to a software event that counts nothing, always opens and carries the task
//! records; sampling events send their records into it. Without a hardware event, minor page faults
//! are sampled: each has the thread, CPU, virtual and physical address.

mod levels;
mod ours;
mod pinned;
mod returning;
mod sourceless;

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use rondpoint_core::observation::{AddressSample, Samples};
use rondpoint_core::{Pid, Tid, Topology};

use super::buffer::{self, Buffer};
use super::cpu_ring::{CpuRing, FIELDS, faults, open_ring, owner, sampling, send_to, slower};
use super::subject::{Subject, on_cpus};
use super::translation::Translation;
use crate::LinuxError;
use crate::perf::attr::sample_type;
use crate::perf::event::OpenEvent;
use crate::perf::pmu::Event;
use crate::perf::record::{Mode, Record, RecordError, Records};
use crate::perf::sample::{Layout, Sample};
use crate::syscall::signal;
use crate::syscall::time::own_cpu_time_ns;
pub use levels::{LEVEL_STEP, Rate};
use ours::Ours;
use pinned::Shown;
use returning::Returning;
use sourceless::Sourceless;

/// Most samples of one interval (our choice). Further ones count as lost.
pub const MAX_SAMPLES: usize = 1 << 20;
/// Most pages kept to distinguish a first touch from a later fault (our choice).
const MAX_KNOWN_PAGES: usize = 1 << 20;

/// Kind of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Loads and stores, sampled by the hardware.
    Accesses,
    /// Minor page faults, sampled by the kernel.
    Faults,
}

/// Task records since the last call of [`Sampler::take`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskNews {
    /// New processes: `(parent, child)`.
    pub born: Vec<(Pid, Pid)>,
    /// Number of new processes and threads.
    pub births: u64,
    /// New names of threads.
    pub names: Vec<(Tid, String)>,
    /// Number of malformed records.
    pub bad_records: u64,
    /// The error of the first malformed record.
    pub first_problem: Option<RecordError>,
}

/// The open rings.
pub struct Sampler {
    /// Kind of the samples.
    pub kind: Kind,
    rings: Vec<CpuRing>,
    /// Buffers of [`Plan::buffer`] at the present level, by CPU, or empty. An off CPU has none.
    buffers: Vec<Option<Buffer>>,
    /// The event of the buffers at the full rate; `None` if the kernel refused it.
    buffered: Option<Event>,
    layout: Layout,
    /// Sampling events at the full rate, as the kernel accepted them.
    sampled: Vec<Event>,
    levels: usize,
    translation: Translation,
    stream: Vec<u8>,
    samples: Samples,
    news: TaskNews,
    known: HashSet<(u32, u64)>,
    /// The processes whose samples are kept; `None`: all samples are.
    ours: Option<Ours>,
    /// Present level of sampling; `None`: no samples.
    level: Option<usize>,
    /// Number of levels by which the rates were lowered because of too many samples.
    lowered: usize,
    /// CPU time spent on reading rings.
    reading: Duration,
    paused: bool,
    counts_first_touches: bool,
    /// As [`Plan::online`].
    online: PathBuf,
    /// The CPUs to open anew after they were off, if the events are those of all tasks.
    returning: Option<Returning>,
    shown: Shown,
    sourceless: Sourceless,
    /// Sentence about events whose samples do not come or are of no use, not yet taken.
    lost_counter: Option<String>,
    /// Number of sampled faults on pages without an earlier sample, since the sampler was opened.
    pub first_touches: u64,
}

/// Events to sample and their periods.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The events with addresses in their samples; without such events, minor faults are sampled.
    pub events: Vec<Event>,
    /// An event for loads and stores that writes its samples into a buffer (Arm's SPE).
    pub buffer: Option<Event>,
    /// Whether the events sample stores beside loads.
    pub stores: bool,
    /// Events per sample.
    pub period: u64,
    /// Number of levels of sampling, at least 1. The first has `period`.
    pub levels: usize,
    /// Whether to count the sampled faults on pages without an earlier sample. Every such page is
    /// then remembered.
    pub counts_first_touches: bool,
    /// The kernel's list of CPUs that are on.
    pub online: PathBuf,
}

impl Sampler {
    /// Opens a ring on every CPU and the events of `plan`. Returns sentences about refused events
    /// too.
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
            ours: None,
            level: Some(0),
            lowered: 0,
            reading: Duration::ZERO,
            paused: false,
            counts_first_touches: plan.counts_first_touches,
            online: plan.online.clone(),
            returning: Returning::of(subject, topology, &plan.online),
            shown: Shown::default(),
            sourceless: Sourceless::default(),
            lost_counter: None,
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
        let is_buffered = sampler.buffers.iter().any(Option::is_some);
        if !is_buffered && sampler.rings.iter().all(|ring| ring.events.is_empty()) {
            let event = sampling(&faults(), &accepted, 1);
            sampler.kind = Kind::Faults;
            sampler.add(&event, subject, topology)?;
            sampler.sampled.push(event);
        }
        let samples_accesses = sampler.kind == Kind::Accesses;
        sampler.samples.period = samples_accesses.then_some(plan.period);
        let stores = plan.stores || sampler.buffered.is_some();
        sampler.samples.stores = samples_accesses && stores && problems.is_empty();
        // The kernel schedules an event of a running task, or of all tasks, at once.
        sampler.check_pinned();
        Ok((sampler, problems))
    }

    /// Opens an event on all CPUs or on none.
    fn add(
        &mut self,
        event: &Event,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let open = |cpu| subject.open(event, topology.kernel_cpu(cpu));
        let opened = on_cpus(self.rings.len(), open)?;
        for (ring, events) in self.rings.iter_mut().zip(opened) {
            let Some(owner) = ring.owners.first() else { continue };
            send_to(&events, owner, event)?;
            ring.events.extend(events);
        }
        Ok(())
    }

    /// Opens a buffer on all CPUs or on none.
    fn add_buffers(
        &mut self,
        event: &Event,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        let open = |cpu| Buffer::open(event, subject, topology.kernel_cpu(cpu));
        self.buffers = on_cpus(self.rings.len(), open)?;
        Ok(())
    }

    /// Whether events are better opened on tasks, because samples name a task by its time alone.
    #[must_use]
    pub fn needs_tasks(&self) -> bool {
        self.buffered.is_some()
    }

    /// Closes the sampling events. The rings with their task records stay.
    pub fn close(&mut self) {
        self.paused = true;
        self.rings.iter_mut().for_each(|ring| ring.events.clear());
        self.drain_buffers();
        self.buffers.clear();
    }

    /// Opens new rings for the task records of `subject`. Nothing is sampled until
    /// [`Sampler::reopen`].
    ///
    /// # Errors
    /// Not even the software event that owns the rings can be opened or mapped. The old rings stay.
    pub fn move_rings(&mut self, subject: &Subject, topology: &Topology) -> Result<(), LinuxError> {
        let owner = owner(self.layout.sample_type);
        let open = |cpu| open_ring(&owner, subject, topology.kernel_cpu(cpu));
        let rings = (0..topology.cpu_count()).map(open).collect::<Result<_, _>>()?;
        self.drain();
        self.close();
        self.rings = rings;
        self.returning = Returning::of(subject, topology, &self.online);
        Ok(())
    }

    /// Opens the sampling events on `subject`, at the present rate.
    ///
    /// # Errors
    /// The kernel's error about the first refused event. Nothing is sampled then.
    pub fn reopen(&mut self, subject: &Subject, topology: &Topology) -> Result<(), LinuxError> {
        self.close();
        self.paused = false;
        self.shown = self.shown.anew();
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

    /// Whether samples have physical addresses, which give the node of their data.
    #[must_use]
    pub fn has_physical_addresses(&self) -> bool {
        // The buffer's event is only opened with physical addresses.
        self.buffered.is_some() || self.layout.sample_type & sample_type::PHYS_ADDR != 0
    }

    /// Descriptors that become readable when a ring is half full, and once when the task of its
    /// owner ends. [`Sampler::drain`] then switches to another owner.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = self.rings.iter().flat_map(|ring| ring.owners.get(ring.waker)).map(AsFd::as_fd);
        rings.chain(self.buffers.iter().flatten().filter_map(Buffer::descriptor))
    }

    /// Sets each ring's waker to the first owner with a living task.
    fn find_wakers(&mut self) {
        loop {
            let rings = self.rings.iter_mut().map(|ring| (&ring.owners, &mut ring.waker));
            let buffers = self.buffers.iter_mut().flatten();
            let buffers = buffers.map(|buffer| (&buffer.events, &mut buffer.waker));
            let mut wakers: Vec<(&Vec<OpenEvent>, &mut usize)> =
                rings.chain(buffers).filter(|(owners, waker)| **waker < owners.len()).collect();
            let fds: Vec<_> =
                wakers.iter().map(|(owners, waker)| owners[**waker].as_fd()).collect();
            // If poll(2) fails here, the caller's wait fails too, and reports it.
            let Ok(ended) = signal::hung_up(&fds) else { return };
            if !ended.contains(&true) {
                return;
            }
            for ((_, waker), ended) in wakers.iter_mut().zip(ended) {
                **waker += usize::from(ended);
            }
        }
    }

    /// Reads all rings and buffers until they are empty.
    pub fn drain(&mut self) {
        let began = own_cpu_time_ns();
        // It comes before the rings are read, because its poll(2) clears their readiness.
        self.find_wakers();
        let mut stream = std::mem::take(&mut self.stream);
        for index in 0..self.rings.len() {
            stream.clear();
            self.rings[index].ring.drain(&mut stream);
            self.digest(&stream);
        }
        self.stream = stream;
        self.drain_buffers();
        if let Some(ours) = &mut self.ours {
            ours.sift(&self.news.born, &mut self.samples.list);
        }
        self.reading += Duration::from_nanos(own_cpu_time_ns().saturating_sub(began));
    }

    fn drain_buffers(&mut self) {
        for buffer in self.buffers.iter_mut().flatten() {
            let trouble = buffer.drain(&self.translation, &mut self.samples);
            self.news.bad_records += trouble.bad_records;
            self.news.first_problem = self.news.first_problem.or(trouble.first);
        }
    }

    /// CPU time spent on reading rings since the last call.
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
        self.note_source(sample);
        // Accesses of the kernel are not the program's, but its faults on user memory are.
        if self.kind == Kind::Accesses && mode == Mode::Kernel {
            return;
        }
        let Some(sample) = self.translation.sample(sample, self.kind) else { return };
        let counts = self.counts_first_touches && self.kind == Kind::Faults;
        if counts && self.is_first_touch(&sample) {
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

    /// Takes the samples and task records since the last call.
    pub fn take(&mut self) -> (Samples, TaskNews) {
        self.reopen_returned();
        if self.kind == Kind::Accesses && !self.paused {
            self.check_pinned();
            if self.samples.list.is_empty() {
                self.revive();
            }
        }
        let Samples { period, stores, .. } = self.samples;
        let next = Samples { period, stores, ..Samples::default() };
        (std::mem::replace(&mut self.samples, next), std::mem::take(&mut self.news))
    }

    /// Enables all sampling events again. The kernel disables a pinned event that once finds no
    /// counter because of other pinned events. For a running event the call has no effect.
    fn revive(&self) {
        for event in self.rings.iter().flat_map(|ring| &ring.events) {
            let _ = event.enable();
        }
    }
}
