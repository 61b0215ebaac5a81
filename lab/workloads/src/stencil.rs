//! Heat on a square plate (Jacobi, five points). The main thread initialises the partitions that
//! other threads then use, so first touch puts all of them on one node.
//!
//! The plate starts as an eigenvector of the stencil, so after k rounds every cell is its first
//! value times λᵏ. The check compares every cell with the analytic result.

use std::f64::consts::PI;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clap::Args;

use crate::flags::{Memory, Pace, Placement, Seed, Threads};
use crate::pages::Pages;
use crate::report::{Failure, Report};
use crate::team::{Member, Team, part};

/// Rounding grows by about one part in 2⁵³ a round; a stale neighbour is off by about (mode/side)².
const TOLERANCE: f64 = 1e-9;
/// The seed chooses among this many modes in each direction.
const MODES: u64 = 3;

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
    seed: Seed,
}

/// Two grids of `side × side` cells with an edge of zeroes: one is read while the other is written.
/// Cells are doubles in atomic words, because neighbours of a partition belong to other threads.
struct Plate {
    side: usize,
    grids: [Pages<AtomicU64>; 2],
}

/// An eigenvector: a product of two sines.
struct Mode {
    rows: Vec<f64>,
    columns: Vec<f64>,
    /// What a round multiplies it by.
    eigenvalue: f64,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, flags.placement, &flags.pace)?;
    let side = ((flags.memory.size / 16) as f64).sqrt() as usize;
    if side < 3 {
        return Err(Failure("the plate has no inner cells: expected a larger --size".into()));
    }
    let map = || Pages::map(side * side * 8, flags.memory.no_huge_pages);
    let plate = Plate { side, grids: [map()?, map()?] };
    let mode = Mode::new(side, 1 + flags.seed.seed % MODES, 1 + flags.seed.seed / MODES % MODES);
    for grid in &plate.grids {
        let rows = |index| rows(side, index, team.size());
        team.place(grid, |index| rows(index).start * side..rows(index).end * side)?;
    }
    plate.fill(&mode);

    let work = |member: &mut Member<'_>, ()| relax(member, &plate, &mode, team.size());
    let errors = team.run(vec![(); team.size()], work)?;
    let error = errors.into_iter().fold(0.0, f64::max);
    Ok(Report::new("stencil")
        .pair("threads", team.size())
        .pair("side", side)
        .rounds_of(&team)
        .pair("error", format!("{error:.3e}"))
        .check("analytic", error <= TOLERANCE))
}

impl Mode {
    fn new(side: usize, row_mode: u64, column_mode: u64) -> Self {
        let span = (side - 1) as f64;
        let angle = |mode: u64| PI * mode as f64 / span;
        // The edge is exactly zero, which sin(π) is not.
        let inner = |at: usize| at > 0 && at + 1 < side;
        let sines = |mode: u64| {
            let sine = |at: usize| if inner(at) { (angle(mode) * at as f64).sin() } else { 0.0 };
            (0..side).map(sine).collect()
        };
        Self {
            rows: sines(row_mode),
            columns: sines(column_mode),
            eigenvalue: (angle(row_mode).cos() + angle(column_mode).cos()) / 2.0,
        }
    }
}

impl Plate {
    /// Touches both grids, in this thread.
    fn fill(&self, mode: &Mode) {
        for grid in &self.grids {
            for (index, cell) in grid.iter().enumerate() {
                let value = mode.rows[index / self.side] * mode.columns[index % self.side];
                cell.store(value.to_bits(), Relaxed);
            }
        }
    }

    /// One round over some rows, from one grid to the other.
    fn relax(&self, rows: Range<usize>, from: &[AtomicU64], to: &[AtomicU64]) {
        let side = self.side;
        for row in rows {
            let start = row * side;
            let (above, below) =
                (&from[start - side..start], &from[start + side..start + 2 * side]);
            let (middle, result) = (&from[start..start + side], &to[start..start + side]);
            for column in 1..side - 1 {
                let across = read(&middle[column - 1]) + read(&middle[column + 1]);
                let along = read(&above[column]) + read(&below[column]);
                result[column].store((0.25 * (across + along)).to_bits(), Relaxed);
            }
        }
    }
}

/// A thread's rows: its part of those that are not the edge.
fn rows(side: usize, thread: usize, threads: usize) -> Range<usize> {
    let inner = part(side - 2, thread, threads);
    inner.start + 1..inner.end + 1
}

/// One thread's rounds; the largest error among its rows afterwards.
fn relax(member: &mut Member<'_>, plate: &Plate, mode: &Mode, threads: usize) -> f64 {
    let rows = rows(plate.side, member.index, threads);
    let mut from = 0;
    let mut scale = 1.0;
    member.start();
    loop {
        plate.relax(rows.clone(), &plate.grids[from], &plate.grids[1 - from]);
        from = 1 - from;
        scale *= mode.eigenvalue;
        if !member.next_round() {
            break;
        }
    }
    let mut worst: f64 = 0.0;
    for row in rows {
        for column in 0..plate.side {
            let expected = scale * mode.rows[row] * mode.columns[column];
            let found = read(&plate.grids[from][row * plate.side + column]);
            // NaN would pass a plain comparison of maxima.
            let error = (found - expected).abs();
            worst = if error.is_finite() { worst.max(error) } else { f64::INFINITY };
        }
    }
    worst
}

fn read(cell: &AtomicU64) -> f64 {
    f64::from_bits(cell.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plate(side: usize) -> Plate {
        let map = || Pages::map(side * side * 8, false).unwrap();
        Plate { side, grids: [map(), map()] }
    }

    #[test]
    fn a_round_multiplies_a_mode_by_its_eigenvalue() {
        let plate = plate(17);
        let mode = Mode::new(17, 2, 3);
        plate.fill(&mode);
        plate.relax(1..16, &plate.grids[0], &plate.grids[1]);
        for (index, cell) in plate.grids[1].iter().enumerate() {
            let expected = mode.eigenvalue * mode.rows[index / 17] * mode.columns[index % 17];
            assert!((read(cell) - expected).abs() < 1e-15, "cell {index}");
        }
    }

    #[test]
    fn a_row_that_missed_a_round_is_found() {
        let plate = plate(64);
        let mode = Mode::new(64, 1, 1);
        plate.fill(&mode);
        plate.relax(1..30, &plate.grids[0], &plate.grids[1]);
        let (row, column) = (40, 32);
        let stale = read(&plate.grids[1][row * 64 + column]);
        let expected = mode.eigenvalue * mode.rows[row] * mode.columns[column];
        assert!((stale - expected).abs() > TOLERANCE);
    }
}
