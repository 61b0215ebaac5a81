//! Most valuable assignment of slots to nodes: the Hungarian method with potentials (Kuhn 1955;
//! shortest augmenting paths as in Jonker and Volgenant 1987).

use alloc::vec;
use alloc::vec::Vec;

/// The gain of a forbidden pair. Real gains add up to less than 2⁵¹, and potentials along a path of
/// 64 forbidden pairs still fit.
pub(super) const FORBIDDEN: i64 = -(1 << 54);

/// The largest sum of gains when every row gets a column of its own. `None` if no such assignment
/// avoids forbidden pairs. Panics if there are fewer columns than rows.
pub(super) fn most(rows: usize, columns: usize, gain: impl Fn(usize, usize) -> i64) -> Option<i64> {
    assert!(rows <= columns, "{rows} slots for {columns} nodes");
    let mut state = State::new(rows, columns);
    for row in 1..=rows {
        state.augment(row, &gain);
    }
    let mut sum = 0;
    for column in (1..=columns).filter(|&column| state.row_of[column] != 0) {
        let gain = gain(state.row_of[column] - 1, column - 1);
        if gain <= FORBIDDEN {
            return None;
        }
        sum += gain;
    }
    Some(sum)
}

/// Assignment of rows to columns. Both count from one; zero means none. Costs are negated gains.
struct State {
    row_potential: Vec<i64>,
    column_potential: Vec<i64>,
    row_of: Vec<usize>,
}

impl State {
    fn new(rows: usize, columns: usize) -> Self {
        Self {
            row_potential: vec![0; rows + 1],
            column_potential: vec![0; columns + 1],
            row_of: vec![0; columns + 1],
        }
    }

    /// Adds one row along the cheapest alternating path.
    fn augment(&mut self, row: usize, gain: &impl Fn(usize, usize) -> i64) {
        let columns = self.row_of.len();
        let mut slack = vec![i64::MAX; columns];
        let mut previous = vec![0; columns];
        let mut visited = vec![false; columns];
        self.row_of[0] = row;
        let mut at = 0;
        while self.row_of[at] != 0 {
            visited[at] = true;
            let from = self.row_of[at];
            let (mut nearest, mut step) = (0, i64::MAX);
            for column in (1..columns).filter(|&column| !visited[column]) {
                let reduced = -gain(from - 1, column - 1)
                    - self.row_potential[from]
                    - self.column_potential[column];
                if reduced < slack[column] {
                    slack[column] = reduced;
                    previous[column] = at;
                }
                if slack[column] < step {
                    step = slack[column];
                    nearest = column;
                }
            }
            self.shift(&visited, &mut slack, step);
            at = nearest;
        }
        while at != 0 {
            self.row_of[at] = self.row_of[previous[at]];
            at = previous[at];
        }
    }

    /// Shifts the potentials by `step`, so that the nearest column gets reduced cost zero.
    fn shift(&mut self, visited: &[bool], slack: &mut [i64], step: i64) {
        for column in 0..visited.len() {
            if visited[column] {
                self.row_potential[self.row_of[column]] += step;
                self.column_potential[column] -= step;
            } else if column > 0 {
                slack[column] -= step;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The largest gain, found by trying every injective assignment.
    fn brute(rows: usize, columns: usize, used: u32, gains: &[i64]) -> Option<i64> {
        let Some(row) = rows.checked_sub(1) else { return Some(0) };
        let usable =
            |column: &usize| used >> column & 1 == 0 && gains[row * columns + column] > FORBIDDEN;
        let with = |column: usize| {
            Some(brute(row, columns, used | 1 << column, gains)? + gains[row * columns + column])
        };
        (0..columns).filter(usable).filter_map(with).max()
    }

    #[test]
    fn the_assignment_is_the_best_of_all() {
        let mut random = Random::new(1);
        for case in 0..400 {
            let rows = 1 + random.below(5);
            let columns = rows + random.below(3);
            let gain = |random: &mut Random| {
                if random.below(5) == 0 { FORBIDDEN } else { random.below(100) as i64 }
            };
            let gains: Vec<i64> = (0..rows * columns).map(|_| gain(&mut random)).collect();
            let found = most(rows, columns, |row, column| gains[row * columns + column]);
            assert_eq!(
                found,
                brute(rows, columns, 0, &gains),
                "case {case}: {rows} x {columns} {gains:?}"
            );
        }
    }
}
