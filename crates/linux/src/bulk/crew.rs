//! The workers: each takes a portion of the pages, asks the kernel for their nodes, and moves the
//! pages of one target together. Portions come from one queue, so no worker waits for the slowest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rondpoint_core::{Bytes, Nanos, Pid};

use super::present::{Present, Unit};
use super::tally::{self, End, Tally};
use crate::act::pages::{self, Pages};

/// Most bytes of one call (our choice). They are worth the call's fixed cost: the kernel drains the
/// page lists of every CPU. They are few enough for a quick stop.
const CALL_BYTES: u64 = 16 << 20;
/// Bytes that a worker takes from the queue and locates with one call (our choice).
const PORTION_BYTES: u64 = 16 << 20;
/// Least number of calls per second under a limit: no call moves more than this part of a second's
/// bytes.
const CALLS_PER_S: u64 = 20;
/// Time between two calls of the watcher.
const WATCH: Duration = Duration::from_millis(50);

/// Control of the work by another thread: progress and stop.
#[derive(Debug, Default)]
pub struct Control {
    stopped: AtomicBool,
    seen_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    changed: Condvar,
    lock: Mutex<()>,
}

impl Control {
    /// Ends the work after the running calls.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _held = hold(&self.lock);
        self.changed.notify_all();
    }

    /// Whether [`Self::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Bytes located so far.
    #[must_use]
    pub fn seen(&self) -> Bytes {
        Bytes(self.seen_bytes.load(Ordering::Relaxed))
    }

    /// Bytes moved so far.
    #[must_use]
    pub fn moved(&self) -> Bytes {
        Bytes(self.moved_bytes.load(Ordering::Relaxed))
    }

    /// Waits until `deadline` or the stop.
    fn wait_until(&self, deadline: Instant) {
        let mut held = hold(&self.lock);
        while !self.is_stopped() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(held, left);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Locks a mutex, even after a worker panicked: none leaves partial updates behind these locks.
fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task of the workers.
pub(super) struct Task<'a, K> {
    pub(super) kernel: &'a K,
    pub(super) pid: Pid,
    /// Target node by source node. If it is empty, pages are located and not moved.
    pub(super) ways: &'a BTreeMap<u32, u32>,
    /// Most bytes per second.
    pub(super) limit: Option<Bytes>,
}

/// The workers with their number and task.
pub(super) struct Crew<'a, K> {
    pub(super) task: Task<'a, K>,
    pub(super) control: &'a Control,
}

/// State that the workers share.
struct Shared<'a, K> {
    task: &'a Task<'a, K>,
    control: &'a Control,
    present: Mutex<Present>,
    total: Mutex<Tally>,
    /// Whether a worker had to give up, so that the others stop too.
    over: AtomicBool,
    /// Targets without free memory. Further attempts would only wake their reclaim.
    full: Mutex<BTreeSet<u32>>,
    begin: Instant,
    moved_before: Bytes,
}

impl<K: Pages + Sync> Crew<'_, K> {
    /// Visits all pages once.
    pub(super) fn work(
        &self,
        present: Present,
        workers: NonZeroUsize,
        watch: &mut dyn FnMut(),
    ) -> Tally {
        let shared = Shared {
            task: &self.task,
            control: self.control,
            present: Mutex::new(present),
            total: Mutex::new(Tally::default()),
            over: AtomicBool::new(false),
            full: Mutex::default(),
            begin: Instant::now(),
            moved_before: self.control.moved(),
        };
        let (running, finished) = (Mutex::new(workers.get()), Condvar::new());
        thread::scope(|scope| {
            let worker = || {
                let _at_the_end = Finish { running: &running, finished: &finished };
                shared.work();
            };
            // The limit of processes may refuse a thread; the others then do its part. This one
            // watches and can do none.
            let begun = (0..workers.get())
                .filter(|_| thread::Builder::new().spawn_scoped(scope, worker).is_ok())
                .count();
            *hold(&running) -= workers.get() - begun;
            if begun == 0 {
                hold(&shared.total).end = End::Refused { errno: libc::EAGAIN };
            }
            let mut held = hold(&running);
            while *held > 0 {
                let waited = finished.wait_timeout(held, WATCH);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                watch();
                held = hold(&running);
            }
        });
        shared.total.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports on drop that a worker has finished, even by a panic.
struct Finish<'a> {
    running: &'a Mutex<usize>,
    finished: &'a Condvar,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        *hold(self.running) -= 1;
        self.finished.notify_all();
    }
}

impl<K: Pages> Shared<'_, K> {
    fn work(&self) {
        let mut worker = Worker { shared: self, tally: Tally::default(), pending: BTreeMap::new() };
        let result = worker.portions();
        let end = match result {
            Ok(()) if self.control.is_stopped() => End::Cancelled,
            Ok(()) => End::Complete,
            Err(error) => {
                self.over.store(true, Ordering::Relaxed);
                match error.raw_os_error() {
                    Some(libc::ESRCH) => End::Gone,
                    errno => End::Refused { errno: errno.unwrap_or(libc::EIO) },
                }
            }
        };
        let pending = worker.pending.values().flatten().map(base_pages);
        worker.tally.untried += pending.sum::<u64>();
        worker.tally.end = end;
        hold(&self.total).add(&worker.tally);
    }

    fn is_over(&self) -> bool {
        self.control.is_stopped() || self.over.load(Ordering::Relaxed)
    }
}

/// One worker.
struct Worker<'a, K> {
    shared: &'a Shared<'a, K>,
    tally: Tally,
    /// Pages to move, by target, until they fill a call.
    pending: BTreeMap<u32, Vec<Unit>>,
}

impl<K: Pages> Worker<'_, K> {
    fn portions(&mut self) -> io::Result<()> {
        while !self.shared.is_over() {
            let (units, blind) = {
                let mut present = hold(&self.shared.present);
                let units = present.next(PORTION_BYTES)?;
                let huge = present.huge_bytes();
                (units, (!present.knows_sizes()).then_some(huge))
            };
            if units.is_empty() {
                break;
            }
            self.take_in(units)?;
            match blind {
                Some(huge_bytes) => self.move_blindly(huge_bytes)?,
                None => self.make_calls(self.call_bytes())?,
            }
        }
        if self.shared.is_over() { Ok(()) } else { self.make_calls(1) }
    }

    /// Bytes of a call.
    fn call_bytes(&self) -> u64 {
        let limited = self.shared.task.limit.map(|limit| (limit.0 / CALLS_PER_S).max(1));
        limited.unwrap_or(CALL_BYTES).min(CALL_BYTES)
    }

    /// Locates pages and adds those on a source node to `pending`.
    fn take_in(&mut self, units: Vec<Unit>) -> io::Result<()> {
        let Task { kernel, pid, ways, .. } = self.shared.task;
        let addresses: Vec<u64> = units.iter().map(|unit| unit.address).collect();
        for (unit, status) in units.iter().zip(kernel.locate(*pid, &addresses)?) {
            match status {
                Ok(node) => {
                    self.tally.seen.entry(node).or_default().0 += unit.bytes;
                    match ways.get(&node) {
                        Some(&target) if target != node => {
                            self.pending.entry(target).or_default().push(*unit);
                        }
                        _ if ways.values().any(|&target| target == node) => {
                            self.tally.counts.in_place += base_pages(unit);
                        }
                        _ => self.tally.elsewhere += base_pages(unit),
                    }
                }
                Err(errno) => self.count_failure(errno, unit),
            }
        }
        let bytes: u64 = units.iter().map(|unit| unit.bytes).sum();
        self.shared.control.seen_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes calls for the targets with at least `enough` pending bytes.
    fn make_calls(&mut self, enough: u64) -> io::Result<()> {
        let targets: Vec<u32> = self.pending.keys().copied().collect();
        for target in targets {
            let mut units = self.pending.remove(&target).unwrap_or_default();
            let most = self.call_bytes();
            while bytes_of(&units) >= enough && !units.is_empty() && !self.shared.is_over() {
                let length = fitting(&units, most);
                let rest = units.split_off(length);
                self.call(&units, target)?;
                units = rest;
            }
            self.pending.insert(target, units);
        }
        Ok(())
    }

    /// Moves pages whose sizes are not known. First one page at each huge page's boundary, which
    /// moves a whole huge page. Then every page that was not moved by that.
    fn move_blindly(&mut self, huge_bytes: u64) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        for (target, units) in pending {
            let is_first = |unit: &&Unit| unit.address.is_multiple_of(huge_bytes);
            let heads: Vec<Unit> = units.iter().filter(is_first).copied().collect();
            let rest: Vec<Unit> = units.iter().filter(|unit| !is_first(unit)).copied().collect();
            for heads in heads.chunks((CALL_BYTES / huge_bytes).max(1) as usize) {
                if !self.shared.is_over() {
                    self.call(heads, target)?;
                }
            }
            let Task { kernel, pid, .. } = self.shared.task;
            let addresses: Vec<u64> = rest.iter().map(|unit| unit.address).collect();
            for (unit, status) in rest.iter().zip(kernel.locate(*pid, &addresses)?) {
                match status {
                    Ok(node) if node == target => self.count_moved(unit),
                    Ok(_) => self.pending.entry(target).or_default().push(*unit),
                    Err(errno) => self.count_failure(errno, unit),
                }
            }
        }
        self.make_calls(1)
    }

    fn call(&mut self, units: &[Unit], target: u32) -> io::Result<()> {
        let Task { kernel, pid, limit, .. } = self.shared.task;
        let addresses: Vec<u64> = units.iter().map(|unit| unit.address).collect();
        let all = || units.iter().map(base_pages).sum::<u64>();
        if hold(&self.shared.full).contains(&target) {
            self.tally.counts.no_memory += all();
            return Ok(());
        }
        let before = self.tally.counts;
        let begin = Instant::now();
        let statuses = pages::move_to(*kernel, *pid, &addresses, target)
            .inspect_err(|_| self.tally.untried += all())?;
        let spent: Nanos = tally::nanos(begin.elapsed());
        self.tally.calls += 1;
        self.tally.in_calls += spent;
        self.tally.longest_call = self.tally.longest_call.max(spent);
        for (unit, status) in units.iter().zip(statuses) {
            match status {
                Ok(node) if node == target => self.count_moved(unit),
                Ok(_) => self.tally.counts.failed += base_pages(unit),
                Err(errno) => self.count_failure(errno, unit),
            }
        }
        let counts = &self.tally.counts;
        if counts.no_memory > before.no_memory && counts.moved == before.moved {
            hold(&self.shared.full).insert(target);
        }
        if let Some(limit) = limit {
            let moved = (self.shared.control.moved().0 - self.shared.moved_before.0) as f64;
            let due = Duration::from_secs_f64(moved / limit.0.max(1) as f64);
            self.shared.control.wait_until(self.shared.begin + due);
        }
        Ok(())
    }

    fn count_moved(&mut self, unit: &Unit) {
        self.tally.counts.moved += base_pages(unit);
        self.tally.huge += u64::from(unit.bytes > crate::syscall::memory::page_bytes() as u64);
        self.shared.control.moved_bytes.fetch_add(unit.bytes, Ordering::Relaxed);
    }

    fn count_failure(&mut self, errno: i32, unit: &Unit) {
        pages::count_failure(&mut self.tally.counts, errno, base_pages(unit));
        self.tally.shared += if errno == libc::EACCES { base_pages(unit) } else { 0 };
    }
}

fn bytes_of(units: &[Unit]) -> u64 {
    units.iter().map(|unit| unit.bytes).sum()
}

/// Number of units from the front with at most `most` bytes together, and at least 1.
fn fitting(units: &[Unit], most: u64) -> usize {
    let mut sum = 0;
    let fits = |unit: &&Unit| {
        sum += unit.bytes;
        sum <= most
    };
    units.iter().take_while(fits).count().max(1).min(units.len())
}

fn base_pages(unit: &Unit) -> u64 {
    unit.bytes.div_ceil(4096)
}
