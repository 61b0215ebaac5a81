//! Makes the copies: every node's by threads on that node's CPUs, all nodes at the same time.

use std::io;
use std::thread;

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::memory::page_bytes;
use rondpoint_linux::syscall::{affinity, pages};

use crate::mapping::{Blank, HUGE_BYTES, Mapping};
use crate::{NodeMap, Options, Place, Refusal, Source};

/// Most pages of a new copy whose node is checked (our choice).
const SAMPLED_PAGES: usize = 1024;
/// One of this many sampled pages may be on another node (our choice).
const MISPLACED: u64 = 16;

/// One copy of the data.
#[derive(Debug)]
pub struct Copy {
    /// The kernel's number of the node that it was made for.
    pub node: u32,
    /// The way in which its memory was placed.
    pub placement: Placement,
    /// Whether the kernel accepted the advice to use huge pages.
    pub huge_pages: bool,
    /// `(sampled pages, those on the node)`; `None` if the kernel does not report nodes of pages.
    pub sampled: Option<(u64, u64)>,
    mapping: Mapping,
}

/// The way in which the memory of a copy was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// By a memory policy of its own (mbind(2)).
    Policy,
    /// By first touch of filling threads on the node's CPUs, because the kernel refused the policy
    /// with this error number. Usual in containers.
    FirstTouch(i32),
}

impl Copy {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }
}

/// Makes one copy for each place at the same time; all or none.
pub(crate) fn make(
    source: &Source<'_>,
    map: &NodeMap,
    options: &Options,
) -> Result<Vec<Copy>, Refusal> {
    thread::scope(|scope| {
        let places = map.places().iter().map(|place| {
            let make_one = move || make_one(source, place, options);
            let thread = thread::Builder::new().spawn_scoped(scope, make_one);
            thread.map_err(|source| copying(place, "start a thread", source))
        });
        // Starts all threads before it waits for the first.
        let threads: Vec<_> = places.collect();
        let copies = threads
            .into_iter()
            .map(|thread| thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        copies.collect()
    })
}

fn copying(place: &Place, attempted: &'static str, source: io::Error) -> Refusal {
    Refusal::Copying { node: place.node, attempted, source }
}

fn make_one(source: &Source<'_>, place: &Place, options: &Options) -> Result<Copy, Refusal> {
    let length = source.bytes().len();
    let mut blank = Blank::new(length).map_err(|source| copying(place, "map memory", source))?;
    let huge_pages =
        options.huge_pages && length >= HUGE_BYTES && blank.advise_huge_pages().is_ok();
    let cpus: CpuSet = place.cpus.iter().map(|&cpu| cpu as usize).collect();
    // Pins this thread to the node. Threads that it starts inherit the mask.
    let held = affinity::set(0, &cpus);
    let placement = match (blank.prefer(place.node), held) {
        (Ok(()), _) => Placement::Policy,
        (Err(refused), Ok(())) => Placement::FirstTouch(refused.raw_os_error().unwrap_or(0)),
        (Err(mbind), Err(affinity)) => {
            return Err(Refusal::NoPermission { node: place.node, mbind, affinity });
        }
    };
    fill(source, place, blank.bytes_mut(), options)?;
    let mapping = blank.seal().map_err(|source| copying(place, "protect memory", source))?;
    let sampled = sample(&mapping, place.node);
    if let Some((sampled, there)) = sampled
        && (sampled - there) * MISPLACED > sampled
    {
        return Err(Refusal::Misplaced { node: place.node, misplaced: sampled - there, sampled });
    }
    Ok(Copy { node: place.node, placement, huge_pages, sampled, mapping })
}

/// Fills a copy by several threads, each with one part of the source.
fn fill(
    source: &Source<'_>,
    place: &Place,
    target: &mut [u8],
    options: &Options,
) -> Result<(), Refusal> {
    let threads = options.threads_per_node.clamp(1, place.cpus.len());
    // Whole huge pages, so that no two threads fault on one.
    let part = target.len().div_ceil(threads).next_multiple_of(HUGE_BYTES);
    thread::scope(|scope| {
        let parts = target.chunks_mut(part).enumerate().map(|(number, part_of_target)| {
            let read = move || source.read(number * part, part_of_target);
            let thread = thread::Builder::new().spawn_scoped(scope, read);
            thread.map_err(|error| copying(place, "start a thread", error))
        });
        let threads: Vec<_> = parts.collect();
        threads.into_iter().try_for_each(|thread| {
            let read = thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.map_err(|error| copying(place, "read the data", error))
        })
    })
}

/// `(sampled pages, those on the node)` for pages evenly spread over a copy.
fn sample(mapping: &Mapping, node: u32) -> Option<(u64, u64)> {
    let pages = mapping.bytes().len().div_ceil(page_bytes());
    let stride = pages.div_ceil(SAMPLED_PAGES);
    let addresses: Vec<u64> = (0..pages)
        .step_by(stride)
        .map(|page| (mapping.address() + page * page_bytes()) as u64)
        .collect();
    let nodes = pages::locate(0, &addresses).ok()?;
    let there = nodes.iter().filter(|&&status| status == Ok(node)).count();
    Some((nodes.len() as u64, there as u64))
}
