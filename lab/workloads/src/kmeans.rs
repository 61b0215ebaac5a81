//! k-means over one large array that the main thread touches first.
//!
//! A point is four cache lines and each round reads every point once. The distance to the first
//! centre asks for all four within a few instructions, so their misses overlap. The other centres
//! find them in the first level. With one line a point, the work on it filled the reorder window. A
//! core had one miss under way, not the three of Carrefour's Table 1 (Streamcluster).
//!
//! The default of 3 centres takes 100 instructions a line, and each further centre 22 more (counted
//! by valgrind). At 0.7 cycles each that is near the 77 cycles a line which Table 1 implies.
//! Coordinates are small whole numbers, so sums are exact in any order and the check can be exact.

use std::sync::{Mutex, RwLock};

use clap::Args;

use crate::flags::{Memory, Obstacles, Pace, Placement, Seed, Threads};
use crate::pages::Pages;
use crate::random::Random;
use crate::report::{Failure, Report};
use crate::system;
use crate::team::{Member, Team, part};

const DIMENSIONS: usize = 32;
type Point = [f64; DIMENSIONS];

/// Whole coordinates are below this: 2⁴⁰ points of them still sum exactly in a double.
const COORDINATES: u64 = 1 << 12;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    obstacles: Obstacles,
    #[command(flatten)]
    seed: Seed,
    /// Centres; more of them mean more work per point
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=256))]
    centres: u16,
    /// Give each thread another partition in every round, so that all threads share all points
    #[arg(long)]
    rotate: bool,
}

/// What the points of one or more partitions add up to, centre by centre.
#[derive(Debug, Clone, PartialEq)]
struct Sums {
    counts: Vec<u64>,
    totals: Vec<Point>,
}

impl Sums {
    fn empty(centres: usize) -> Self {
        Self { counts: vec![0; centres], totals: vec![[0.0; DIMENSIONS]; centres] }
    }

    fn add(&mut self, other: &Self) {
        for centre in 0..self.counts.len() {
            self.counts[centre] += other.counts[centre];
            add(&mut self.totals[centre], &other.totals[centre]);
        }
    }

    /// The mean of each centre's points; a centre without points stays where it was.
    fn means(&self, before: &[Point]) -> Vec<Point> {
        let mean = |centre: usize| match self.counts[centre] {
            0 => before[centre],
            count => self.totals[centre].map(|total| total / count as f64),
        };
        (0..before.len()).map(mean).collect()
    }

    fn all(&self) -> (u64, Point) {
        let mut total = [0.0; DIMENSIONS];
        self.totals.iter().for_each(|point| add(&mut total, point));
        (self.counts.iter().sum(), total)
    }
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, flags.placement, &flags.pace)?;
    let mut points = Pages::<Point>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    if flags.rotate {
        team.spread(&points)?;
    } else {
        team.place(&points, |index| part(points.len(), index, team.size()))?;
    }
    let total = fill(&mut points, flags.seed.seed);
    let _held = flags.obstacles.hold_pages.then(|| points.hold()).transpose()?;
    if flags.obstacles.undumpable {
        system::refuse_dumps()?;
    }
    let centres = usize::from(flags.centres);
    let first: Vec<Point> =
        points.iter().cycle().step_by(points.len() / centres + 1).take(centres).copied().collect();

    let shared = Shared { centres: RwLock::new(first), sums: Mutex::new(Vec::new()) };
    let work = |member: &mut Member<'_>, ()| {
        let start = member.index * STEP_BYTES / size_of::<Point>();
        cluster(member, &points, &shared, team.size(), (flags.rotate, start))
    };
    let ends = team.run(vec![(); team.size()], work)?;

    let merge = |sums: Vec<&Sums>| {
        let mut merged = Sums::empty(centres);
        sums.into_iter().for_each(|sums| merged.add(sums));
        merged
    };
    let last = merge(ends.iter().map(|end| &end.0).collect());
    let again = merge(ends.iter().map(|end| &end.1).collect());
    let checksum: f64 = shared.centres().iter().flatten().sum();
    Ok(Report::new("kmeans")
        .pair("threads", team.size())
        .pair("points", points.len())
        .rounds_of(&team)
        .pair("checksum", format!("{checksum:.6}"))
        .check("recomputed", last == again)
        .check("conserved", last.all() == (points.len() as u64, total)))
}

/// What the threads exchange between rounds.
struct Shared {
    centres: RwLock<Vec<Point>>,
    sums: Mutex<Vec<Sums>>,
}

impl Shared {
    fn centres(&self) -> Vec<Point> {
        self.centres.read().expect(NO_PANIC).clone()
    }

    fn offer(&self, sums: Sums) {
        self.sums.lock().expect(NO_PANIC).push(sums);
    }

    /// Moves the centres to the means of what was offered.
    fn settle(&self, before: &[Point]) {
        let mut merged = Sums::empty(before.len());
        self.sums.lock().expect(NO_PANIC).drain(..).for_each(|part| merged.add(&part));
        *self.centres.write().expect(NO_PANIC) = merged.means(before);
    }
}

/// How much further into its partition each thread begins than the one before: a small page and a
/// huge page. On interleaved memory threads that all begin alike would go from node to node in
/// step. An emulated machine has no noise that would ever break that up.
const STEP_BYTES: usize = (2 << 20) + (4 << 10);

const NO_PANIC: &str = "a thread that panics ends the process";

/// Fills the points and returns what all their coordinates add up to.
fn fill(points: &mut [Point], seed: u64) -> Point {
    let mut random = Random::new(seed, 0);
    let mut total = [0.0; DIMENSIONS];
    for point in points {
        *point = std::array::from_fn(|_| random.below(COORDINATES) as f64);
        add(&mut total, point);
    }
    total
}

/// One thread's rounds. Returns its sums of the last round, and the same for the next thread's
/// partition. Both cover all points once, so both must merge to the same.
fn cluster(
    member: &mut Member<'_>,
    points: &[Point],
    shared: &Shared,
    threads: usize,
    (rotate, start): (bool, usize),
) -> (Sums, Sums) {
    let partition = |turn: usize| &points[part(points.len(), turn % threads, threads)];
    let mut turn = member.index;
    let mut centres = shared.centres();
    member.start();
    let last = loop {
        let sums = assign_from(partition(turn), start, &centres);
        shared.offer(sums.clone());
        member.wait();
        if member.index == 0 {
            shared.settle(&centres);
        }
        if !member.next_round() {
            break sums;
        }
        centres = shared.centres();
        turn += usize::from(rotate);
    };
    (last, assign(partition(turn + 1), &centres))
}

/// The same as `assign`, from somewhere in the middle.
fn assign_from(points: &[Point], start: usize, centres: &[Point]) -> Sums {
    let (front, back) = points.split_at(start % points.len().max(1));
    let mut sums = assign(back, centres);
    sums.add(&assign(front, centres));
    sums
}

/// Adds each point to its nearest centre, the first of equally near ones. Always inlined, because
/// the compiler otherwise chooses by what is elsewhere in this crate. Where it chose not to, the
/// same program drew a third less from memory: 712 cycles of latency on first touch instead of
/// 1128.
#[inline(always)]
#[allow(clippy::inline_always)]
fn assign(points: &[Point], centres: &[Point]) -> Sums {
    let mut sums = Sums::empty(centres.len());
    for point in points {
        let mut nearest = (f64::INFINITY, 0);
        for (index, centre) in centres.iter().enumerate() {
            let distance = distance(point, centre);
            if distance < nearest.0 {
                nearest = (distance, index);
            }
        }
        sums.counts[nearest.1] += 1;
        add(&mut sums.totals[nearest.1], point);
    }
    sums
}

/// Squared distance. The squares are added in four lanes, which the compiler can keep in vector
/// registers. Added one after the other they would cost three times the instructions.
fn distance(a: &Point, b: &Point) -> f64 {
    let mut lanes = [0.0; 4];
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += (a[lane] - b[lane]) * (a[lane] - b[lane]);
        }
    }
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

fn add(total: &mut Point, point: &Point) {
    total.iter_mut().zip(point).for_each(|(total, value)| *total += value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_go_to_the_nearest_centre() {
        let (low, high) = ([1.0; DIMENSIONS], [9.0; DIMENSIONS]);
        let sums = assign(&[low, high, low, [8.0; DIMENSIONS]], &[low, high]);
        assert_eq!(sums.counts, [2, 2]);
        assert_eq!(sums.totals, [[2.0; DIMENSIONS], [17.0; DIMENSIONS]]);
        assert_eq!(sums.means(&[low, high])[1], [8.5; DIMENSIONS]);
    }

    #[test]
    fn a_centre_without_points_stays() {
        let before = [[5.0; DIMENSIONS]];
        assert_eq!(Sums::empty(1).means(&before), before);
    }

    #[test]
    fn sums_do_not_depend_on_how_points_are_cut() {
        let mut points = vec![[0.0; DIMENSIONS]; 999];
        let total = fill(&mut points, 3);
        let centres = [points[0], points[400], points[800]];
        let whole = assign(&points, &centres);
        let mut merged = Sums::empty(3);
        points.chunks(100).rev().for_each(|chunk| merged.add(&assign(chunk, &centres)));
        assert_eq!(merged, whole);
        assert_eq!(whole.all(), (999, total));
    }
}
