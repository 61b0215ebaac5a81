//! Goals of a reproduction, beside the results.

use serde::Serialize;

use super::{Cell, Score, Use};

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
}

impl Goal {
    fn new(goal: String, reached: String, met: bool) -> Self {
        Self { goal, reached, met }
    }

    /// All of Carrefour together is hardly slower than Linux on any program.
    pub(super) fn no_harm(cells: &[Cell]) -> Self {
        let whole =
            cells.iter().filter(|cell| cell.kind == Use::Prediction && cell.column == "Carrefour");
        let worst = whole.min_by(|a, b| a.simulated.total_cmp(&b.simulated));
        let loss = worst.map_or(0.0, |cell| (-cell.simulated).max(0.0));
        Self::new(
            format!("Carrefour never slower than Linux by more than {SLOWDOWN:.0} %"),
            format!("by {loss:.1} % at most"),
            loss <= SLOWDOWN,
        )
    }
}

/// Goals of every paper.
pub(super) fn common(cells: &[Cell], score: Option<&Score>) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(score) = score.filter(|score| score.cells >= RANKED) {
        goals.push(Goal::new(
            "sign right outside a dead band of 5 points".to_string(),
            format!("{} of {}", score.signs_right, score.signs),
            score.signs_right == score.signs,
        ));
        goals.push(Goal::new(
            format!("median absolute error of at most {MEDIAN_ERROR:.0} points"),
            format!("{:.0} points", score.median_error),
            score.median_error <= MEDIAN_ERROR,
        ));
        goals.push(Goal::new(
            format!("rank correlation of {RANK} or more"),
            format!("{:.3}", score.rank_correlation),
            score.rank_correlation >= RANK,
        ));
    } else {
        let predicted = || cells.iter().filter(|cell| cell.kind == Use::Prediction);
        let one_table =
            predicted().all(|cell| Some(cell.table) == predicted().next().map(|it| it.table));
        let (inside, outside): (Vec<&Cell>, Vec<&Cell>) = predicted().partition(|one| {
            one.published.is_some_and(|it| (one.interval.0..=one.interval.1).contains(&it))
        });
        let name = |cell: &&Cell| match one_table {
            true => cell.row.clone(),
            false => format!("{} ({})", cell.row, cell.table.to_lowercase()),
        };
        let names: Vec<String> = outside.iter().map(name).collect();
        let but =
            if names.is_empty() { String::new() } else { format!("; not {}", names.join(", ")) };
        goals.push(Goal::new(
            "published means and extremes inside the predicted intervals".to_string(),
            format!("{} of {}{but}", inside.len(), inside.len() + outside.len()),
            outside.is_empty(),
        ));
    }
    goals
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
        assert_eq!(goals[0].reached, "1 of 2; not outside");
        assert!(!goals[0].met);
    }
}
