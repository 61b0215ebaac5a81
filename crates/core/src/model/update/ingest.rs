//! Turns samples into page records, homes of threads and touches, at 10⁷ samples a second.
//!
//! With many pages, recording each sample directly would miss the CPU's caches two or three times.
//! So a hash of the page first sorts samples into parts whose records fit in a cache. The parts are
//! then recorded one after the other. Few samples are recorded directly. So are samples for a table
//! that could overflow, because there the first pages must be kept.

use super::far::{self, Far};
use super::samples::SampleSums;
use crate::model::{Model, Touch};
use crate::observation::{AddressSample, Samples, Source, UNKNOWN_NODE};
use crate::topology::Topology;
use crate::units::{PAGE_SHIFT, Pid, Tid};
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Least number of samples that are sorted. The records of fewer samples fit in a cache anyway.
const MIN_DEALT: usize = 1 << 16;
/// Number of parts. With 2²¹ samples each part has some 16,000 pages, 0.7 MB of records.
const PARTS: usize = 128;

/// A sample after its process, thread and node were found. It is small, because each is written and
/// read once more.
#[derive(Clone, Copy)]
struct Seen {
    address: u64,
    thread: u32,
    node: u16,
    home: u16,
}

const _: () = assert!(size_of::<Seen>() == 16);

/// Four flags and the size in the address bits below a base page.
impl Seen {
    const STORE: u64 = 1;
    const REMOTE: u64 = 2;
    /// A load that memory served.
    const MEMORY_READ: u64 = 4;
    /// An access beyond the private caches.
    const BEYOND: u64 = 8;
    const SHIFT: u32 = 4;

    fn page(&self) -> u64 {
        self.address >> PAGE_SHIFT << PAGE_SHIFT
    }

    fn shift(&self) -> u8 {
        (self.address >> Self::SHIFT & 63) as u8
    }

    fn is(&self, flag: u64) -> bool {
        self.address & flag != 0
    }
}

/// Where a thread is in the model.
struct Place {
    pid: Pid,
    tid: Tid,
    app: u32,
    thread: u32,
}

/// Finds threads by process and number.
struct Finder {
    places: Vec<Place>,
    index: HashTable<u32>,
}

impl Finder {
    fn new(model: &Model) -> Self {
        let mut finder =
            Self { places: Vec::new(), index: HashTable::with_capacity(model.threads.len()) };
        for (thread, of) in model.threads.iter().enumerate() {
            let place = Place {
                pid: model.apps[of.app].pid,
                tid: of.tid,
                app: of.app as u32,
                thread: thread as u32,
            };
            let places = &finder.places;
            let rehash = |&i: &u32| hash(u64::from(places[i as usize].tid.0));
            finder.index.insert_unique(hash(u64::from(of.tid.0)), thread as u32, rehash);
            finder.places.push(place);
        }
        finder
    }

    fn find(&self, sample: &AddressSample) -> Option<&Place> {
        let same = |&i: &u32| {
            let place = &self.places[i as usize];
            place.tid == sample.tid && place.pid == sample.pid
        };
        let place = *self.index.find(hash(u64::from(sample.tid.0)), same)?;
        Some(&self.places[place as usize])
    }
}

/// A hash that spreads consecutive numbers. No order depends on it.
fn hash(number: u64) -> u64 {
    let product =
        u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xa076_1d64_78bd_642f_u64);
    (product as u64) ^ (product >> 64) as u64
}

/// Collects the samples of one interval.
pub(super) struct Ingest<'a> {
    topology: &'a Topology,
    finder: Finder,
    /// Accesses by thread and holding node, flat.
    accesses: Vec<u32>,
    /// Samples by thread and the node that it ran on, flat.
    ran_on: Vec<u32>,
    /// Samples of data from other nodes, by thread.
    far: Vec<Far>,
    parts: Vec<Vec<Seen>>,
    touches: bool,
}

impl<'a> Ingest<'a> {
    /// Ready for about this number of samples.
    pub(super) fn new(
        model: &mut Model,
        topology: &'a Topology,
        samples: usize,
        touches: bool,
    ) -> Self {
        let dealt = samples >= MIN_DEALT && samples <= model.pages.capacity();
        // An estimate: useful sampling has two or more samples for each page.
        model.pages.expect(samples / 2);
        model.touches.reserve(if touches { samples.min(model.pages.capacity()) } else { 0 });
        let part = || Vec::with_capacity(samples / PARTS + samples / PARTS / 8);
        let cells = if samples > 0 { model.threads.len() * topology.node_count() } else { 0 };
        Self {
            topology,
            finder: Finder::new(model),
            accesses: vec![0; cells],
            ran_on: vec![0; cells],
            far: vec![Far::default(); if samples > 0 { model.threads.len() } else { 0 }],
            touches,
            parts: if dealt { (0..PARTS).map(|_| part()).collect() } else { Vec::new() },
        }
    }

    /// Adds samples of one source.
    pub(super) fn add(&mut self, model: &mut Model, samples: &Samples, sums: &mut SampleSums) {
        for sample in &samples.list {
            let Some(seen) = self.see(sample, sums) else { continue };
            if self.parts.is_empty() {
                self.record(model, &seen);
            } else {
                let (app, page) = self.page(model, &seen);
                let part = model.pages.part(app, page, PARTS);
                self.parts[part].push(seen);
            }
        }
    }

    /// Finds the thread, node and page of an access; `None` for threads and CPUs that are not in
    /// the model.
    fn see(&mut self, sample: &AddressSample, sums: &mut SampleSums) -> Option<Seen> {
        let place = self.finder.find(sample)?;
        let cpu = usize::from(sample.cpu);
        if cpu >= self.topology.cpu_count() {
            return None;
        }
        let (app, thread) = (place.app, place.thread);
        let node = self.topology.node_of_cpu(cpu);
        self.ran_on[thread as usize * self.topology.node_count() + node] += 1;
        let holder = usize::from(sample.node);
        let known = sample.node != UNKNOWN_NODE && holder < self.topology.node_count();
        // Loads of a prefetched stream seldom wait for the whole access: nearly all find their line
        // on its way.
        let from_memory =
            known && matches!(sample.source, Source::Dram | Source::InFlight | Source::HintFault);
        if from_memory {
            sums.add_access(app as usize, sample.source, node, holder);
            self.accesses[thread as usize * self.topology.node_count() + holder] += 1;
        }
        sums.add_latency(app as usize, sample);
        let from_cache = matches!(sample.source, Source::CacheRemote | Source::CacheRemoteModified);
        let remote = from_cache || (from_memory && holder != node);
        if remote && sample.source != Source::HintFault {
            self.far[thread as usize].add(from_cache);
        }
        let shift = sample.page_shift.clamp(PAGE_SHIFT, 63);
        let read = !sample.store && matches!(sample.source, Source::Dram | Source::InFlight);
        let private =
            matches!(sample.source, Source::FirstLevel | Source::Private | Source::HintFault);
        let flags = u64::from(sample.store) * Seen::STORE
            + u64::from(remote) * Seen::REMOTE
            + u64::from(read) * Seen::MEMORY_READ
            + u64::from(!private) * Seen::BEYOND;
        Some(Seen {
            address: sample.page_address() | u64::from(shift) << Seen::SHIFT | flags,
            thread,
            node: node as u16,
            home: if known { sample.node } else { UNKNOWN_NODE },
        })
    }

    /// The process that owns the accessed page (its index), and where the page begins there.
    fn page(&self, model: &Model, seen: &Seen) -> (u32, u64) {
        let app = self.finder.places[seen.thread as usize].app;
        let (owner, address) = model.shared.owner(app as usize, seen.page());
        // A huge page that two processes have mapped lies on such a boundary in both.
        (owner as u32, address >> seen.shift() << seen.shift())
    }

    fn record(&self, model: &mut Model, seen: &Seen) {
        let store = seen.is(Seen::STORE);
        let (app, page) = self.page(model, seen);
        let page = model.pages.record(app, page, seen.shift(), seen.home, seen.node, store);
        let Some(page) = page else { return };
        model.pages.note_answer(page, seen.is(Seen::MEMORY_READ), seen.is(Seen::BEYOND));
        if self.touches {
            model.touches.push(Touch { page, thread: seen.thread, remote: seen.is(Seen::REMOTE) });
        }
    }

    /// Records the sorted samples and gives each thread its accesses.
    pub(super) fn finish(self, model: &mut Model) {
        for seen in self.parts.iter().flatten() {
            self.record(model, seen);
        }
        let nodes = self.topology.node_count();
        let some = |counts: &[u32]| counts.iter().any(|count| *count > 0).then(|| counts.to_vec());
        let counts = self.accesses.chunks_exact(nodes).zip(self.ran_on.chunks_exact(nodes));
        for (thread, (accesses, ran_on)) in model.threads.iter_mut().zip(counts) {
            (thread.accesses_by_node, thread.ran_on) = (some(accesses), some(ran_on));
        }
        far::split(model, &self.far);
        model.pages.shrink();
    }
}
