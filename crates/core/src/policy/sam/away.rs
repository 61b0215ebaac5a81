//! Threads that are away from their data, remembered across intervals.
//!
//! The published rule marks a thread the first time it is seen with many remote accesses, with the
//! socket of that moment, and never forgets. With two sockets its home is then the other one. Ours
//! takes the home from the page distribution where there is one; otherwise it excludes one socket
//! after the other. It forgets after a time without remote accesses (inferred).

use super::PERIOD;
use super::view::DataHome;
use crate::{IndexSet, Nanos, Tid};
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

/// Intervals of [`PERIOD`] at or below the threshold of remote accesses after which a mark is
/// cleared [inferred: the length of SAM-MPH's history].
const QUIET_INTERVALS: u8 = 16;

/// The rule by which marks are set and cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marking {
    /// A mark names the first socket on which the thread was seen remote and is never cleared
    /// [author code].
    Sticky,
    /// A mark names the home from the page distribution, or the sockets excluded so far. It is
    /// cleared after 16 quiet intervals (inferred).
    Forgetting,
}

/// The mark of one thread that was seen away from its data.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Away {
    /// Sockets on which the thread had many remote accesses.
    seen_remote_on: IndexSet,
    /// The socket of its pages, where the page distribution names one.
    home: Option<usize>,
    /// Intervals in a row without many remote accesses.
    quiet_intervals: u8,
}

impl Away {
    fn seen_on(socket: usize) -> Self {
        Self { seen_remote_on: [socket].into_iter().collect(), ..Self::default() }
    }

    /// Whether the thread's data is remote from this socket, as far as is known.
    #[must_use]
    pub fn is_remote_on(&self, socket: usize) -> bool {
        match self.home {
            Some(home) => home != socket,
            None => self.seen_remote_on.contains(socket),
        }
    }

    /// Whether the thread had many remote accesses on this socket.
    pub(super) fn was_seen_remote_on(&self, socket: usize) -> bool {
        self.seen_remote_on.contains(socket)
    }

    /// The socket of the thread's pages; `None` where the page distribution names none.
    #[must_use]
    pub fn home(&self) -> Option<usize> {
        self.home
    }
}

/// The marks of all threads.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    marks: BTreeMap<Tid, Away>,
}

impl Marks {
    /// The mark of a thread.
    #[must_use]
    pub fn get(&self, tid: Tid) -> Option<&Away> {
        self.marks.get(&tid)
    }

    /// All marks, ascending by thread.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Away> {
        self.marks.values()
    }

    /// Whether the thread is marked and its data is remote from this socket.
    #[must_use]
    pub fn is_remote_on(&self, tid: Tid, socket: usize) -> bool {
        self.get(tid).is_some_and(|away| away.is_remote_on(socket))
    }

    /// Counts an interval of `elapsed` as that many intervals of [`PERIOD`]. Call it before
    /// [`Self::observe`] for the interval's threads.
    pub(super) fn pass(&mut self, elapsed: Nanos) {
        let more = (elapsed.0 / PERIOD.0).saturating_sub(1).min(u64::from(QUIET_INTERVALS)) as u8;
        for away in self.marks.values_mut() {
            away.quiet_intervals = away.quiet_intervals.saturating_add(more);
        }
    }

    /// Updates the mark of a thread that ran on `socket` for one interval and returns it.
    /// `is_remote`: its remote accesses were above the threshold.
    pub fn observe(
        &mut self,
        marking: Marking,
        tid: Tid,
        socket: usize,
        is_remote: bool,
        home: DataHome,
    ) -> Option<&Away> {
        match marking {
            Marking::Sticky if is_remote => {
                Some(self.marks.entry(tid).or_insert_with(|| Away::seen_on(socket)))
            }
            Marking::Sticky => self.marks.get(&tid),
            Marking::Forgetting => self.observe_forgetting(tid, socket, is_remote, home),
        }
    }

    /// Renames the sockets of a thread's mark by `image`, because its memory moves to other nodes
    /// with it.
    pub(super) fn relabel(&mut self, tid: Tid, image: impl Fn(usize) -> usize) {
        if let Some(away) = self.marks.get_mut(&tid) {
            away.home = away.home.map(&image);
            away.seen_remote_on = away.seen_remote_on.iter().map(&image).collect();
        }
    }

    /// Drops the marks of threads that ended.
    pub fn retain(&mut self, is_alive: impl Fn(Tid) -> bool) {
        self.marks.retain(|&tid, _| is_alive(tid));
    }

    fn observe_forgetting(
        &mut self,
        tid: Tid,
        socket: usize,
        is_remote: bool,
        home: DataHome,
    ) -> Option<&Away> {
        // The data is here or everywhere, so no move of the thread makes its accesses local.
        let is_helpless = home == DataHome::Scattered || home == DataHome::Socket(socket);
        if !is_remote || is_helpless {
            return self.observe_quiet(tid, home);
        }
        let away = self.marks.entry(tid).or_default();
        away.quiet_intervals = 0;
        away.home = if let DataHome::Socket(home) = home { Some(home) } else { None };
        away.seen_remote_on.insert(socket);
        Some(away)
    }

    /// Counts a quiet interval. Clears the mark after enough of them, or if the pages moved or are
    /// scattered.
    fn observe_quiet(&mut self, tid: Tid, home: DataHome) -> Option<&Away> {
        let Entry::Occupied(mut mark) = self.marks.entry(tid) else { return None };
        let away = mark.get_mut();
        away.quiet_intervals = away.quiet_intervals.saturating_add(1);
        let is_moved =
            matches!((away.home, home), (Some(old), DataHome::Socket(new)) if old != new);
        if away.quiet_intervals >= QUIET_INTERVALS || is_moved || home == DataHome::Scattered {
            mark.remove();
            return None;
        }
        Some(mark.into_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Tid = Tid(1);

    #[test]
    fn the_published_mark_is_the_first_socket_and_stays() {
        let mut marks = Marks::default();
        marks.observe(Marking::Sticky, T, 0, true, DataHome::Socket(1));
        marks.observe(Marking::Sticky, T, 1, true, DataHome::Unknown);
        for _ in 0..100 {
            marks.observe(Marking::Sticky, T, 1, false, DataHome::Unknown);
        }
        assert!(marks.is_remote_on(T, 0) && !marks.is_remote_on(T, 1));
    }

    #[test]
    fn sixteen_quiet_intervals_clear_a_mark_and_noise_starts_anew() {
        let mut marks = Marks::default();
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        for _ in 0..15 {
            marks.observe(Marking::Forgetting, T, 1, false, DataHome::Unknown);
        }
        assert!(marks.is_remote_on(T, 0));
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        for _ in 0..15 {
            marks.observe(Marking::Forgetting, T, 1, false, DataHome::Unknown);
        }
        assert!(marks.is_remote_on(T, 0));
        marks.observe(Marking::Forgetting, T, 1, false, DataHome::Unknown);
        assert_eq!(marks.get(T), None);
    }

    #[test]
    fn one_long_quiet_interval_clears_a_mark_as_sixteen_short_ones_do() {
        let mut marks = Marks::default();
        for (intervals, is_kept) in [(15, true), (16, false), (1_000_000, false)] {
            marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
            marks.pass(Nanos(intervals * PERIOD.0));
            marks.observe(Marking::Forgetting, T, 1, false, DataHome::Unknown);
            assert_eq!(marks.get(T).is_some(), is_kept, "{intervals} intervals");
        }
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        marks.pass(Nanos(1_000_000 * PERIOD.0));
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        assert!(marks.is_remote_on(T, 0), "it was remote all the time");
    }

    #[test]
    fn without_a_page_distribution_sockets_are_excluded_one_by_one() {
        let mut marks = Marks::default();
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        marks.observe(Marking::Forgetting, T, 2, true, DataHome::Unknown);
        let remote = [0, 1, 2, 3].map(|socket| marks.is_remote_on(T, socket));
        assert_eq!(remote, [true, false, true, false]);
    }

    #[test]
    fn pages_tell_the_home_and_moved_pages_clear_the_mark() {
        let mut marks = Marks::default();
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Socket(3));
        let remote = [0, 1, 2, 3].map(|socket| marks.is_remote_on(T, socket));
        assert_eq!(remote, [true, true, true, false]);
        marks.observe(Marking::Forgetting, T, 0, false, DataHome::Socket(0));
        assert_eq!(marks.get(T), None);
    }

    #[test]
    fn a_mark_goes_with_the_memory() {
        let mut marks = Marks::default();
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        marks.relabel(T, |socket| [2, 1, 0][socket]);
        assert_eq!([0, 1, 2].map(|socket| marks.is_remote_on(T, socket)), [false, false, true]);
        marks.observe(Marking::Forgetting, T, 2, true, DataHome::Socket(1));
        marks.relabel(T, |socket| [1, 2, 0][socket]);
        assert_eq!([0, 1, 2].map(|socket| marks.is_remote_on(T, socket)), [true, true, false]);
    }

    #[test]
    fn a_thread_with_scattered_data_is_never_away() {
        let mut marks = Marks::default();
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Scattered);
        assert_eq!(marks.get(T), None);
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Unknown);
        marks.observe(Marking::Forgetting, T, 0, true, DataHome::Scattered);
        assert_eq!(marks.get(T), None);
    }
}
