//! Goals of a reproduction, beside the results.

use serde::Serialize;

use super::{Cell, DEAD, Score, Use, sign};

/// Median error that is allowed, points.
const MEDIAN_ERROR: f64 = 15.0;
/// Least rank correlation.
const RANK: f64 = 0.9;
/// Greatest slowdown of the whole system, percent: the paper's own bound.
const SLOWDOWN: f64 = 4.0;
/// Predicted gains from which on their order says something.
const RANKED: usize = 5;

/// One goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Goal {
    pub(crate) goal: String,
    pub(crate) reached: String,
    pub(crate) met: bool,
    /// What misses it, by name, with the published and the simulated value.
    pub(crate) misses: Vec<String>,
}

impl Goal {
    fn new(goal: String, reached: String, met: bool) -> Self {
        Self { goal, reached, met, misses: Vec::new() }
    }

    /// A goal that each of these cells has to reach.
    fn of_all(goal: String, cells: usize, missed: &[&Cell]) -> Self {
        Self {
            goal,
            reached: format!("{} of {cells}", cells - missed.len()),
            met: missed.is_empty(),
            misses: missed.iter().map(|cell| miss(cell)).collect(),
        }
    }

    /// All of Carrefour together is hardly slower than Linux on any program of table 4.
    pub(super) fn no_harm(cells: &[Cell]) -> Self {
        let whole =
            || cells.iter().filter(|it| it.kind == Use::Prediction && it.column == "Carrefour");
        let loss = whole().map(|cell| -cell.simulated).fold(0.0, f64::max);
        let slow = whole().filter(|cell| -cell.simulated > SLOWDOWN);
        let goal = format!(
            "Carrefour never slower than Linux by more than {SLOWDOWN:.0} % on a program of table 4"
        );
        let misses = slow.map(miss).collect();
        Self { misses, ..Self::new(goal, format!("by {loss:.1} % at most"), loss <= SLOWDOWN) }
    }
}

/// A cell's name with its published and its simulated value.
fn miss(cell: &Cell) -> String {
    let Cell { table, row, column, unit, digits, simulated, interval: (low, high), .. } = cell;
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let published = cell.published.map_or("nothing".to_string(), |it| format!("{it:.digits$}"));
    format!(
        "{row}, {column} ({table}): {published}{unit} published, {simulated:.digits$}{unit} \
         ({low:.digits$} to {high:.digits$}) simulated"
    )
}

fn has_right_sign(cell: &Cell) -> bool {
    cell.published.is_none_or(|published| sign(published) == sign(cell.simulated))
}

fn is_inside(cell: &Cell) -> bool {
    let (low, high) = cell.interval;
    cell.published.is_some_and(|published| (low..=high).contains(&published))
}

/// Goals of every paper. The cells of the first three are the predicted gains in percent.
pub(super) fn common(cells: &[Cell], score: Option<&Score>) -> Vec<Goal> {
    let predicted = || cells.iter().filter(|cell| cell.kind == Use::Prediction);
    let Some(score) = score.filter(|score| score.cells >= RANKED) else {
        let outside: Vec<&Cell> = predicted().filter(|cell| !is_inside(cell)).collect();
        let goal = "published means and extremes inside the predicted intervals".to_string();
        return vec![Goal::of_all(goal, predicted().count(), &outside)];
    };
    let gains = || predicted().filter(|cell| cell.unit == "%");
    let wrong: Vec<&Cell> = gains().filter(|cell| !has_right_sign(cell)).collect();
    let mut tables: Vec<&str> = gains().map(|cell| cell.table).collect();
    tables.dedup();
    let of = format!("over the {} predictions of \"{}\"", score.cells, tables.join("\", \""));
    vec![
        Goal::of_all(
            format!("sign right outside a dead band of {DEAD:.0} points, {of}"),
            score.signs,
            &wrong,
        ),
        Goal::new(
            format!("median absolute error of at most {MEDIAN_ERROR:.0} points, {of}"),
            format!("{:.0} points", score.median_error),
            score.median_error <= MEDIAN_ERROR,
        ),
        Goal::new(
            format!("rank correlation of {RANK} or more, {of}"),
            format!("{:.3}", score.rank_correlation),
            score.rank_correlation >= RANK,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{cell, score};
    use super::*;

    fn gains(pairs: &[(f64, f64)]) -> Vec<Cell> {
        let one = |&(published, simulated): &(f64, f64)| {
            cell(("t", "r", "Carrefour"), (Use::Prediction, "%"), published, &[simulated])
        };
        pairs.iter().map(one).collect()
    }

    #[test]
    fn a_goal_is_met_where_the_cells_say_so_and_missed_where_not() {
        let met = |cells: &[Cell]| -> Vec<bool> {
            common(cells, score(cells).as_ref()).iter().map(|goal| goal.met).collect()
        };
        let near = [(10.0, 12.0), (20.0, 25.0), (40.0, 44.0), (80.0, 70.0), (90.0, 95.0)];
        assert_eq!(met(&gains(&near)), [true, true, true]);
        let mut wrong = near;
        wrong[1].1 = 3.0;
        let goals = common(&gains(&wrong), score(&gains(&wrong)).as_ref());
        assert_eq!(goals[0].reached, "4 of 5");
        let expected = "r, Carrefour (t): 20 % published, 3 % (3 to 3) simulated";
        assert_eq!(goals[0].misses, [expected]);
        assert!(goals[0].goal.ends_with("over the 5 predictions of \"t\""), "{goals:?}");
        let far = near.map(|(published, simulated)| (published, 40.0 - simulated));
        assert_eq!(met(&gains(&far)), [false, false, false]);
        assert!(Goal::no_harm(&gains(&near)).met && !Goal::no_harm(&gains(&far)).met);
    }

    #[test]
    fn few_cells_are_judged_by_their_intervals() {
        let cells = [
            cell(("t", "inside", "c"), (Use::Prediction, "x"), 1.2, &[1.0, 1.3]),
            cell(("t", "outside", "c"), (Use::Prediction, "x"), 1.6, &[1.0, 1.3]),
            cell(("t", "baseline", "c"), (Use::Baseline, "x"), 9.0, &[1.0]),
        ];
        let goals = common(&cells, score(&cells).as_ref());
        assert_eq!(goals.len(), 1);
        assert_eq!(goals[0].reached, "1 of 2");
        let expected = "outside, c (t): 1.60 x published, 1.15 x (1.00 to 1.30) simulated";
        assert_eq!(goals[0].misses, [expected]);
        assert!(!goals[0].met);
    }
}
