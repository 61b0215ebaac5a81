//! Moves the memory of a whole process between nodes. Several workers move disjoint parts in few
//! large calls, huge pages as a whole. Every page has an outcome.
//!
//! Each pair of a source and a target node is a way. A page moves once, by the way of its present
//! node: `0→1` and `1→0` exchange two nodes. Memory policies do not change. So a process that is
//! bound to its old nodes goes on to allocate there.
//!
//! This module does not stop the process ([`crate::freeze`] does), and decides only the size of a
//! call.

mod action;
mod crew;
mod present;
mod tally;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Instant;

use rondpoint_core::Bytes;

pub use self::action::{move_back, step, workers};
pub use self::crew::Control;
use self::crew::{Crew, Task};
use self::present::Present;
pub use self::tally::{End, Moved, Tally};
use crate::LinuxError;
use crate::act::Identity;
use crate::act::pages::{Live, Pages};
use crate::lines::Lines;
use crate::parse::maps::{self, Mapping};
use crate::root::Root;
use crate::syscall::pages::Reach;

/// Most passes over a running process, which maps more memory while its memory moves (our choice).
pub const MAX_PASSES: u32 = 4;

/// Most mappings of a process, which take 100 MB here. It is four times the largest
/// `vm.max_map_count` of a distribution, 1,048,576.
const MAX_MAPPINGS: usize = 4 << 20;

/// An order to move a process's memory between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The process.
    pub process: Identity,
    /// Target node by source node, the kernel's numbers.
    pub ways: BTreeMap<u32, u32>,
    /// Whether to move pages that other processes have mapped too.
    pub reach: Reach,
    /// Number of threads that move pages.
    pub workers: NonZeroUsize,
    /// Most bytes to move in a second; `None`: no limit.
    pub limit: Option<Bytes>,
    /// Most passes over the process: 1 for a stopped process, else up to [`MAX_PASSES`]. Passes end
    /// when no page is left to move.
    pub passes: u32,
}

impl Order {
    /// Whether no node is both source and target. Pages that were moved are then on other nodes
    /// than pages still to move.
    #[must_use]
    pub fn leads_away(&self) -> bool {
        self.ways.values().all(|target| !self.ways.contains_key(target))
    }
}

/// Memory of a process by node, by locating every present page. A process that has ended has none.
///
/// # Errors
/// The process's maps cannot be read, for example those of another user's process.
pub fn survey(
    root: &Root,
    process: Identity,
    workers: NonZeroUsize,
    control: &Control,
    watch: &mut dyn FnMut(),
) -> Result<BTreeMap<u32, Bytes>, LinuxError> {
    let Some(mappings) = mappings(root, process)? else { return Ok(BTreeMap::new()) };
    let Some(present) = Present::open(root, process, mappings)? else {
        return Ok(BTreeMap::new());
    };
    let kernel = Live(Reach::Own);
    let task = Task { kernel: &kernel, pid: process.pid, ways: &BTreeMap::new(), limit: None };
    let tally = Crew { task, control }.work(present, workers, watch);
    match tally.end {
        End::Refused { errno } if process.is_there(root) => Err(LinuxError::Call {
            call: "move_pages",
            attempted: format!("locating pages of process {}", process.pid),
            source: std::io::Error::from_raw_os_error(errno),
        }),
        _ => Ok(tally.seen),
    }
}

/// Moves the memory of an order. The calling thread calls `watch` about twenty times a second,
/// which may stop the work through `control`.
///
/// # Errors
/// The process's maps cannot be read. Later failures are part of the result.
pub fn relocate(
    root: &Root,
    order: &Order,
    control: &Control,
    watch: &mut dyn FnMut(),
) -> Result<Moved, LinuxError> {
    relocate_with(&Live(order.reach), root, order, control, watch)
}

fn relocate_with(
    kernel: &(impl Pages + Sync),
    root: &Root,
    order: &Order,
    control: &Control,
    watch: &mut dyn FnMut(),
) -> Result<Moved, LinuxError> {
    let begin = Instant::now();
    let limit = order.limit;
    let task = Task { kernel, pid: order.process.pid, ways: &order.ways, limit };
    let crew = Crew { task, control };
    let mut moved = Moved::default();
    let mut done: Vec<Mapping> = Vec::new();
    while moved.passes < order.passes {
        let Some(mut mappings) = mappings(root, order.process)? else {
            moved.end = End::Gone;
            break;
        };
        if !order.leads_away() {
            // Pages on a source may have come from another source, so this pass visits only new
            // mappings.
            let all = mappings.clone();
            mappings = without(mappings, &done);
            done = all;
        }
        let present = match Present::open(root, order.process, mappings)? {
            Some(present) => present,
            None => {
                moved.end = End::Gone;
                break;
            }
        };
        let tally = crew.work(present, order.workers, watch);
        moved.passes += 1;
        let more = tally.counts.moved > 0;
        moved.take_in(tally);
        if moved.end != End::Complete || !more {
            break;
        }
    }
    if matches!(moved.end, End::Refused { .. }) && !order.process.is_there(root) {
        moved.end = End::Gone;
    }
    moved.elapsed = tally::nanos(begin.elapsed());
    Ok(moved)
}

/// The mappings of the process, adjacent ones merged; `None` if it has ended.
fn mappings(root: &Root, process: Identity) -> Result<Option<Vec<Mapping>>, LinuxError> {
    if !process.is_there(root) {
        return Ok(None);
    }
    let path = root.in_proc(format!("{}/maps", process.pid));
    let Some(mut lines) = Lines::open(&path)? else { return Ok(None) };
    let mut found: Vec<Mapping> = Vec::new();
    while let Some((number, line)) = lines.next_line()? {
        let parsed = maps::mapping_of(number, line).map_err(|source| lines.format(source))?;
        let Some(mapping) = parsed else { continue };
        let is_full = found.len() == MAX_MAPPINGS;
        match found.last_mut() {
            Some(last)
                if last.end == mapping.start && last.is_accessible == mapping.is_accessible =>
            {
                last.end = mapping.end;
            }
            _ if is_full => {
                let problem = format!("more than {MAX_MAPPINGS} separate mappings");
                return Err(LinuxError::Input { what: path.display().to_string(), problem });
            }
            _ => found.push(mapping),
        }
    }
    Ok(Some(found))
}

/// The parts of sorted `mappings` that are in none of the sorted `known`.
fn without(mappings: Vec<Mapping>, known: &[Mapping]) -> Vec<Mapping> {
    let mut left = Vec::new();
    let mut first = 0;
    for mapping in mappings {
        first += known[first..].iter().take_while(|known| known.end <= mapping.start).count();
        let mut start = mapping.start;
        for known in known[first..].iter().take_while(|known| known.start < mapping.end) {
            if start < known.start {
                left.push(Mapping { start, end: known.start, ..mapping });
            }
            start = start.max(known.end);
        }
        if start < mapping.end {
            left.push(Mapping { start, ..mapping });
        }
    }
    left
}

#[cfg(test)]
mod tests;
