//! Conjugate gradients on a sparse matrix that the main thread builds.
//!
//! Each thread owns a block of rows and reads the whole vector at scattered places. An iteration
//! has three short phases with a barrier after each. Row i has −1 at columns i ± s for a few random
//! distances s. Its diagonal exceeds the number of these entries: the matrix is positive definite.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::flags::{Memory, Placement, Together};
use crate::pages::Pages;
use crate::random::Random;
use crate::report::{Failure, Report};
use crate::team::{Member, Team, part};

/// Distances; each gives a row two entries.
const DISTANCES: usize = 6;
/// Entries of a row beside the diagonal.
const ENTRIES: usize = 2 * DISTANCES;
/// The diagonal. All eigenvalues are between 1 and 25.
const DIAGONAL: f64 = ENTRIES as f64 + 1.0;
/// Iterations of a round. The error shrinks to less than 2 · ((√25 − 1) / (√25 + 1))²⁰ of the
/// first, below a thousandth (Saad, Iterative Methods for Sparse Linear Systems, 6.11.3).
const ITERATIONS: usize = 20;
/// Largest residual that counts as solved, as a share of the right side.
const TOLERANCE: f64 = 0.01;

/// Doubles that other threads read, in atomic words.
struct Vector(Pages<AtomicU64>);

/// A system of equations with the vectors of the method.
struct System {
    /// Column of each entry; [`ENTRIES`] for each row.
    columns: Pages<u64>,
    solution: Vector,
    residual: Vector,
    direction: Vector,
    product: Vector,
    /// Each thread's part of the last two scalar products.
    sums: [Vec<AtomicU64>; 2],
}

pub(crate) fn run(flags: &Together) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, Placement::default(), &flags.pace)?;
    let system = System::build(&flags.memory, flags.seed.seed, team.size())?;
    let work = |member: &mut Member<'_>, ()| system.work(member, team.size());
    team.run(vec![(); team.size()], work)?;
    let error = system.error(team.rounds());
    Ok(Report::new("solver")
        .pair("threads", team.size())
        .pair("rows", system.rows())
        .rounds_of(&team)
        .pair("error", format!("{error:.3e}"))
        .check("solved", error < TOLERANCE))
}

impl Vector {
    fn map(length: usize, memory: &Memory) -> Result<Self, Failure> {
        let pages = Pages::<AtomicU64>::map(length * 8, memory.no_huge_pages)?;
        pages.iter().for_each(|word| word.store(0_f64.to_bits(), Relaxed));
        Ok(Self(pages))
    }

    fn get(&self, at: usize) -> f64 {
        f64::from_bits(self.0[at].load(Relaxed))
    }

    fn set(&self, at: usize, value: f64) {
        self.0[at].store(value.to_bits(), Relaxed);
    }

    fn dot(&self, other: &Self, rows: Range<usize>) -> f64 {
        rows.map(|row| self.get(row) * other.get(row)).sum()
    }
}

impl System {
    /// Builds it in this thread, which touches all of it first.
    fn build(memory: &Memory, seed: u64, threads: usize) -> Result<Self, Failure> {
        let rows = memory.size / (8 * ENTRIES);
        let mut random = Random::new(seed, 0);
        let distances: Vec<usize> =
            (0..DISTANCES).map(|_| 1 + random.below(rows as u64 - 1) as usize).collect();
        let mut columns = Pages::<u64>::map(rows * 8 * ENTRIES, memory.no_huge_pages)?;
        for (row, of_row) in columns.chunks_exact_mut(ENTRIES).enumerate() {
            for (pair, distance) in of_row.chunks_exact_mut(2).zip(&distances) {
                pair[0] = ((row + distance) % rows) as u64;
                pair[1] = ((row + rows - distance) % rows) as u64;
            }
        }
        let vector = || Vector::map(rows, memory);
        let sums = || (0..threads).map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            columns,
            solution: vector()?,
            residual: vector()?,
            direction: vector()?,
            product: vector()?,
            sums: [sums(), sums()],
        })
    }

    fn rows(&self) -> usize {
        self.solution.0.len()
    }

    /// Right side of the equation of a row; another one each round.
    fn right_side(row: usize, round: u64) -> f64 {
        1.0 + ((row as u64 + round) % 7) as f64
    }

    /// A row of the matrix times a vector.
    fn times(&self, row: usize, vector: &Vector) -> f64 {
        let columns = &self.columns[row * ENTRIES..][..ENTRIES];
        let others: f64 = columns.iter().map(|column| vector.get(*column as usize)).sum();
        DIAGONAL * vector.get(row) - others
    }

    /// One thread's rounds.
    fn work(&self, member: &mut Member<'_>, threads: usize) {
        let rows = part(self.rows(), member.index, threads);
        let mut round = 0;
        member.start();
        loop {
            self.solve(member, rows.clone(), round);
            round += 1;
            if !member.next_round() {
                break;
            }
        }
    }

    /// One thread's share of a solution, from zero.
    fn solve(&self, member: &Member<'_>, rows: Range<usize>, round: u64) {
        for row in rows.clone() {
            let right = Self::right_side(row, round);
            self.solution.set(row, 0.0);
            self.residual.set(row, right);
            self.direction.set(row, right);
        }
        let mut left = self.add(member, 0, self.residual.dot(&self.residual, rows.clone()));
        for _ in 0..ITERATIONS {
            for row in rows.clone() {
                self.product.set(row, self.times(row, &self.direction));
            }
            let along = self.add(member, 1, self.direction.dot(&self.product, rows.clone()));
            let step = left / along;
            for row in rows.clone() {
                self.solution.set(row, self.solution.get(row) + step * self.direction.get(row));
                self.residual.set(row, self.residual.get(row) - step * self.product.get(row));
            }
            let now = self.add(member, 0, self.residual.dot(&self.residual, rows.clone()));
            let turn = now / left;
            for row in rows.clone() {
                self.direction.set(row, self.residual.get(row) + turn * self.direction.get(row));
            }
            left = now;
            member.wait();
        }
    }

    /// The sum of all threads' parts of a scalar product. Threads add in the same order, so all of
    /// them get the same sum.
    fn add(&self, member: &Member<'_>, which: usize, own: f64) -> f64 {
        self.sums[which][member.index].store(own.to_bits(), Relaxed);
        member.wait();
        self.sums[which].iter().map(|sum| f64::from_bits(sum.load(Relaxed))).sum()
    }

    /// Length of what the last solution leaves, as a share of the right side's.
    fn error(&self, rounds: u64) -> f64 {
        let (mut left, mut right) = (0.0, 0.0);
        for row in 0..self.rows() {
            let wanted = Self::right_side(row, rounds - 1);
            left += (wanted - self.times(row, &self.solution)).powi(2);
            right += wanted.powi(2);
        }
        (left / right).sqrt()
    }
}
