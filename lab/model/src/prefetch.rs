//! The stream prefetcher of one vCPU: chooses lines to fetch ahead, and keeps the lines that are on
//! their way.
//!
//! Trained by demand accesses that miss the first level, by virtual line, in both directions. Two
//! steps of the same direction make a stream; then the next `depth` lines are fetched into the
//! second level. It never crosses a page, since the next page's physical address is not known. A
//! stream that the program carries on into the next page goes on without new training.

use crate::{LINE_SHIFT, PAGE_BYTES};

/// Steps in one direction that make a stream.
const CONFIRMED: u8 = 2;
/// A stream still follows when this many lines are skipped, because they hit the first level.
const REACH: i64 = 2;
/// Pairs of places for lines on their way. Streams of arrays that begin on pages run in step, so
/// the place must depend on more than the line's offset in its page.
const PENDING: usize = 256;
const LINES_PER_PAGE: u64 = PAGE_BYTES >> LINE_SHIFT;

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The latest demand line.
    last: u64,
    /// The furthest line asked for; meaningful on the page of `last` only.
    ahead: u64,
    /// +1, −1, or 0 while unknown.
    direction: i8,
    confirmed: u8,
    /// When it last followed, for replacement.
    used: u32,
}

/// Lines to fetch: `first`, `first + direction`, …, `count` of them, all on the demand line's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ahead {
    pub(crate) first: u64,
    pub(crate) direction: i64,
    pub(crate) count: u64,
}

#[derive(Debug)]
pub(crate) struct Prefetcher {
    streams: Box<[Stream]>,
    depth: u64,
    /// The stream that followed last: tried first.
    latest: usize,
    clock: u32,
    pending: Box<[[Pending; 2]; PENDING]>,
}

/// A line on its way, or one that has arrived and was not asked for yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    ready_ps: u64,
    line: u32,
}

const NOTHING: Pending = Pending { ready_ps: 0, line: u32::MAX };

impl Prefetcher {
    pub(crate) fn new(streams: u32, depth: u32) -> Prefetcher {
        Prefetcher {
            streams: vec![Stream::default(); streams as usize].into_boxed_slice(),
            depth: u64::from(depth),
            latest: 0,
            clock: 0,
            pending: Box::new([[NOTHING; 2]; PENDING]),
        }
    }

    /// Learns that the program asked for `line` (virtual), and says what to fetch ahead.
    #[inline]
    pub(crate) fn observe(&mut self, line: u64) -> Ahead {
        if self.streams.is_empty() {
            return Ahead::default();
        }
        self.clock = self.clock.wrapping_add(1);
        if follows(&self.streams[self.latest], line) {
            return self.follow(self.latest, line);
        }
        match self.streams.iter().position(|stream| follows(stream, line)) {
            Some(index) => self.follow(index, line),
            None => {
                self.begin(line);
                Ahead::default()
            }
        }
    }

    fn follow(&mut self, index: usize, line: u64) -> Ahead {
        self.latest = index;
        let stream = &mut self.streams[index];
        stream.used = self.clock;
        let direction: i64 = if line > stream.last { 1 } else { -1 };
        let same_page = line / LINES_PER_PAGE == stream.last / LINES_PER_PAGE;
        stream.direction = direction as i8;
        stream.confirmed = (stream.confirmed + 1).min(CONFIRMED);
        stream.last = line;
        if stream.confirmed < CONFIRMED {
            stream.ahead = line;
            return Ahead::default();
        }
        // Distance already covered ahead of the demand line, in the stream's direction.
        let lead = (stream.ahead as i64).wrapping_sub(line as i64) * direction;
        let covered = if same_page { lead.clamp(0, self.depth as i64) as u64 } else { 0 };
        let offset = line % LINES_PER_PAGE;
        let room = if direction > 0 { LINES_PER_PAGE - 1 - offset } else { offset };
        let target = self.depth.min(room);
        stream.ahead = line.wrapping_add_signed(direction * target.max(covered) as i64);
        let first = line.wrapping_add_signed(direction * (covered as i64 + 1));
        Ahead { first, direction, count: target.saturating_sub(covered) }
    }

    /// Gives the stream that rested longest to a new line.
    fn begin(&mut self, line: u64) {
        let clock = self.clock;
        let rest = |stream: &Stream| clock.wrapping_sub(stream.used);
        let ages = self.streams.iter().enumerate();
        let oldest = ages.max_by_key(|(_, stream)| rest(stream)).map_or(0, |(index, _)| index);
        self.streams[oldest] =
            Stream { last: line, ahead: line, direction: 0, confirmed: 0, used: clock };
    }

    /// Remembers that `line` (physical) is on its way, in place of one that arrives sooner.
    #[inline]
    pub(crate) fn sent(&mut self, line: u32, ready_ps: u64) {
        let places = &mut self.pending[place(line)];
        let sooner = usize::from(places[1].ready_ps < places[0].ready_ps);
        places[sooner] = Pending { ready_ps, line };
    }

    /// When the prefetched `line` arrives, or arrived; said to the first demand access only.
    #[inline]
    pub(crate) fn take(&mut self, line: u32) -> Option<u64> {
        let places = &mut self.pending[place(line)];
        let found = places.iter_mut().find(|pending| pending.line == line)?;
        let ready_ps = found.ready_ps;
        *found = NOTHING;
        Some(ready_ps)
    }
}

/// Multiplicative hashing (Knuth, volume 3, section 6.4): the golden ratio's bits, the top eight.
#[inline]
fn place(line: u32) -> usize {
    (line.wrapping_mul(0x9e37_79b1) >> 24) as usize
}

#[inline]
fn follows(stream: &Stream, line: u64) -> bool {
    let step = line.wrapping_sub(stream.last) as i64;
    match stream.direction {
        0 => step == 1 || step == -1,
        direction => (1..=REACH).contains(&(step.wrapping_mul(i64::from(direction)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text in, text out: demand lines, and what is fetched after each.
    fn check(depth: u32, lines: &[u64], expected: &[&str]) {
        let mut prefetcher = Prefetcher::new(2, depth);
        let said: Vec<String> = lines
            .iter()
            .map(|&line| {
                let ahead = prefetcher.observe(line);
                let each = (0..ahead.count as i64).map(|step| {
                    ahead.first.wrapping_add_signed(step * ahead.direction).to_string()
                });
                each.collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn two_steps_make_a_stream_that_stays_depth_ahead() {
        check(4, &[100, 101, 102, 103], &["", "", "103 104 105 106", "107"]);
        check(3, &[100, 99, 98, 97], &["", "", "97 96 95", "94"]);
        check(3, &[67, 66, 65, 64], &["", "", "64", ""]);
    }

    #[test]
    fn a_stream_stops_at_the_page_and_goes_on_in_the_next() {
        check(4, &[59, 60, 61, 62, 63, 64, 65], &["", "", "62 63", "", "", "65 66 67 68", "69"]);
    }

    #[test]
    fn skipped_lines_do_not_end_a_stream() {
        check(2, &[10, 11, 12, 14, 15], &["", "", "13 14", "15 16", "17"]);
    }

    #[test]
    fn two_streams_are_followed_at_once_and_chance_starts_none() {
        check(1, &[10, 1000, 11, 1001, 12, 1002], &["", "", "", "", "13", "1003"]);
        check(4, &[5, 900, 40, 7000, 300], &["", "", "", "", ""]);
    }

    #[test]
    fn the_ends_of_the_address_space_are_safe() {
        let mut prefetcher = Prefetcher::new(1, 8);
        for line in [2, 1, 0, u64::MAX >> LINE_SHIFT, 0, u64::MAX, 0, u64::MAX - 1] {
            prefetcher.observe(line);
        }
    }

    #[test]
    fn a_line_under_way_is_told_once() {
        let mut prefetcher = Prefetcher::new(1, 1);
        prefetcher.sent(70, 500);
        assert_eq!(prefetcher.take(6), None);
        assert_eq!(prefetcher.take(70), Some(500));
        assert_eq!(prefetcher.take(70), None);
    }

    #[test]
    fn streams_in_step_do_not_forget_each_others_lines() {
        // Four arrays that begin on pages, ten lines of each under way.
        let mut prefetcher = Prefetcher::new(4, 10);
        let lines =
            || (0..10).flat_map(|offset| [3, 77, 1000, 70_000].map(|page| page * 64 + offset));
        lines().for_each(|line| prefetcher.sent(line, 1000 + u64::from(line)));
        let known = lines().filter(|&line| prefetcher.take(line) == Some(1000 + u64::from(line)));
        assert!(known.count() >= 39);
    }

    #[test]
    fn no_streams_no_prefetch() {
        let mut prefetcher = Prefetcher::new(0, 8);
        for line in 0..10 {
            assert_eq!(prefetcher.observe(line), Ahead::default());
        }
    }
}
