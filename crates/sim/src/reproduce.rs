//! Compares published with simulated numbers, cell by cell.
//!
//! A baseline is a number that a fit used, or a number without a policy. A prediction is any other
//! number; no fit uses it. Inputs that no source gives are drawn at random, and a prediction is an
//! interval over the draws.

mod asymsched;
mod carrefour;
mod goals;
mod nmass;
mod sam;

use anyhow::{Result, bail};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::{IndexSet, Nanos, Policy};
use serde::Serialize;

use crate::rank_correlation::rank_correlation;
use crate::report::median;
use crate::run::{self, Outcome};
use crate::workload::Workload;
use crate::world::{Scene, World};
pub(crate) use goals::Goal;

/// What can be reproduced.
pub(crate) const PAPERS: [&str; 4] = ["carrefour", "nmass", "asymsched", "sam"];

/// What a published number is to the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Use {
    /// Fitted on, or without a policy.
    Baseline,
    /// Never looked at by a fit.
    Prediction,
    /// Of a program without published numbers: not scored.
    Illustration,
}

/// One published number and its simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) table: &'static str,
    pub(crate) row: String,
    pub(crate) column: &'static str,
    pub(crate) unit: &'static str,
    /// Digits behind the point for people.
    pub(crate) digits: usize,
    pub(crate) kind: Use,
    pub(crate) published: Option<f64>,
    /// The median of the draws.
    pub(crate) simulated: f64,
    /// The least and the most of the draws.
    pub(crate) interval: (f64, f64),
}

/// How well predicted gains agree with the published ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Score {
    pub(crate) cells: usize,
    /// Cells outside the dead band of 5 points in either column, with signs that agree.
    pub(crate) signs_right: usize,
    pub(crate) signs: usize,
    /// Median of the absolute errors, points.
    pub(crate) median_error: f64,
    /// Spearman's rank correlation.
    pub(crate) rank_correlation: f64,
    /// Cells with a published value inside the interval.
    pub(crate) inside: usize,
}

/// A paper's numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) paper: &'static str,
    pub(crate) machine: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) draws: u64,
    pub(crate) cells: Vec<Cell>,
    /// Over the predicted gains.
    pub(crate) score: Option<Score>,
    /// What the project asks of the simulator, beside what was reached.
    pub(crate) goals: Vec<Goal>,
    /// What a reader must know to judge the numbers.
    pub(crate) notes: Vec<String>,
}

/// Simulates a paper's tables.
///
/// # Errors
/// There is no such paper.
pub(crate) fn reproduce(paper: &str, draws: u64) -> Result<Report> {
    match paper {
        "carrefour" => Ok(carrefour::report(draws)),
        "asymsched" => Ok(asymsched::report(draws)),
        "nmass" => Ok(nmass::report(draws)),
        "sam" => Ok(sam::report(draws)),
        _ => bail!("--reproduce {paper}: expected one of {}", PAPERS.join(", ")),
    }
}

/// A paper's name, and its fit as TOML.
type Fit = (&'static str, fn() -> String);

/// Papers with fitted inputs.
const FITS: [Fit; 3] =
    [("carrefour", carrefour::fit), ("nmass", nmass::fit), ("asymsched", asymsched::fit)];

/// Fits a paper's inputs on its baselines, as TOML.
///
/// # Errors
/// Nothing of that paper is fitted.
pub(crate) fn fit(paper: &str) -> Result<String> {
    let Some((_, fit)) = FITS.iter().find(|(name, _)| *name == paper) else {
        let names: Vec<&str> = FITS.iter().map(|(name, _)| *name).collect();
        bail!("--fit {paper}: expected one of {}", names.join(", "));
    };
    Ok(fit())
}

/// Programs of the papers, as `PAPER/PROGRAM`. Of values that no source gives, each has the middle
/// of the range from which `--reproduce` draws.
pub(crate) fn programs() -> impl Iterator<Item = Workload> {
    let papers = [
        ("carrefour", carrefour::programs()),
        ("nmass", nmass::programs()),
        ("asymsched", asymsched::programs()),
        ("sam", sam::programs()),
    ];
    papers.into_iter().flat_map(|(paper, programs)| {
        programs.into_iter().map(move |program| Workload {
            name: format!("{paper}/{}", program.name),
            title: format!("{} of {paper}", program.name),
            stops_s: 0.0,
            programs: vec![program],
        })
    })
}

/// The middle of a range.
fn middle([low, high]: [f64; 2]) -> f64 {
    f64::midpoint(low, high)
}

/// Lets a world run to its end under a paper's policy. Every paper's runs go through here, so all
/// have the same guard.
fn manage(world: World, scene: &Scene, policy: Box<dyn Policy>) -> Outcome {
    run::manage(world, scene, vec![policy], no_guard(), &mut ())
}

/// A guard that holds nothing back: the published systems had none.
fn no_guard() -> GuardSettings {
    GuardSettings {
        act: true,
        min_confidence: 0.0,
        bytes_per_s_per_node: 1 << 40,
        calls_per_s: 1 << 20,
        samples_per_s_per_cpu: 1 << 20,
        page_residence: Nanos(0),
        thread_residence: Nanos(0),
        window: Nanos::from_secs(30),
        max_moves_per_window: u32::MAX,
        mover_share: 1.0,
        mover_allowance: Nanos::from_secs(1 << 20),
        reserve_share: 0.0,
        freeze: true,
        opted_out: IndexSet::new(),
        back_off: Nanos(0),
        max_failures: u32::MAX,
    }
}

/// A cell from the draws of one number.
fn cell(
    (table, row, column): (&'static str, &str, &'static str),
    (kind, unit): (Use, &'static str),
    published: f64,
    draws: &[f64],
) -> Cell {
    let least = draws.iter().copied().fold(f64::INFINITY, f64::min);
    let most = draws.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Cell {
        table,
        row: row.to_string(),
        column,
        unit,
        digits: digits(unit, published),
        kind,
        published: Some(published),
        simulated: median(draws.to_vec()).unwrap_or(0.0),
        interval: (least, most),
    }
}

/// A cell that has no published number.
fn illustration(names: (&'static str, &str, &'static str), unit: &'static str, of: &[f64]) -> Cell {
    Cell { published: None, ..cell(names, (Use::Illustration, unit), f64::INFINITY, of) }
}

/// Digits behind the point that a number of this unit is printed with.
fn digits(unit: &str, published: f64) -> usize {
    match unit {
        "x" => 2,
        "GB/s" => 1,
        "" if published.abs() < 3.0 => 2,
        _ => 0,
    }
}

/// Where a rising function comes nearest to a value.
fn bisect([mut low, mut high]: [f64; 2], wanted: f64, of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..9 {
        let middle = low.midpoint(high);
        if of(middle) < wanted { low = middle } else { high = middle }
    }
    low.midpoint(high)
}

/// Gains up to this have no sign, percent.
const DEAD: f64 = 5.0;

/// The sign of a gain; 0 within the dead band.
fn sign(gain: f64) -> i32 {
    if gain.abs() <= DEAD { 0 } else { gain.signum() as i32 }
}

/// The score of predicted gains in percent; `None` without any.
fn score(cells: &[Cell]) -> Option<Score> {
    let predicted = cells.iter().filter(|cell| cell.kind == Use::Prediction && cell.unit == "%");
    let pairs: Vec<(f64, &Cell)> =
        predicted.filter_map(|cell| Some((cell.published?, cell))).collect();
    let published: Vec<f64> = pairs.iter().map(|(published, _)| *published).collect();
    let simulated: Vec<f64> = pairs.iter().map(|(_, cell)| cell.simulated).collect();
    let both = || published.iter().zip(&simulated);
    let clear = || both().filter(|(a, b)| sign(**a) != 0 || sign(**b) != 0);
    let inside =
        |(published, cell): &&(f64, &Cell)| (cell.interval.0..=cell.interval.1).contains(published);
    Some(Score {
        cells: pairs.len(),
        signs: clear().count(),
        signs_right: clear().filter(|(a, b)| sign(**a) == sign(**b)).count(),
        median_error: median(both().map(|(a, b)| (a - b).abs()).collect())?,
        rank_correlation: rank_correlation(&published, &simulated).unwrap_or(0.0),
        inside: pairs.iter().filter(inside).count(),
    })
}

impl Report {
    fn new(
        (paper, machine): (&'static str, &'static str),
        draws: u64,
        cells: Vec<Cell>,
        goals: Vec<Goal>,
    ) -> Self {
        let score = score(&cells);
        let goals = goals::common(&cells, score.as_ref()).into_iter().chain(goals).collect();
        Self { paper, machine, kind: "simulated", draws, cells, score, goals, notes: Vec::new() }
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// The report for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}: published and simulated, {} draws\n", self.paper, self.draws);
        let mut table = "";
        for cell in &self.cells {
            if cell.table != table {
                table = cell.table;
                text += &format!(
                    "\n{table}\n{:<22} {:<22} {:>9} {:>9} {:>17} {:>8}\n",
                    "", "", "published", "simulated", "interval", "error"
                );
            }
            let (digits, (low, high)) = (cell.digits, cell.interval);
            let number = |value: Option<f64>| {
                value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
            };
            let error = cell.published.map(|published| cell.simulated - published);
            text += &format!(
                "{:<22} {:<22} {:>9} {:>9.digits$} {:>17} {:>8} {}{}\n",
                cell.row,
                cell.column,
                number(cell.published),
                cell.simulated,
                format!("{low:.digits$} to {high:.digits$}"),
                error.map_or("-".to_string(), |error| format!("{error:+.digits$}")),
                cell.unit,
                match cell.kind {
                    Use::Baseline => "  (baseline)",
                    Use::Prediction => "",
                    Use::Illustration => "  (not scored)",
                },
            );
        }
        text.push('\n');
        for Goal { goal, reached, met, misses } in &self.goals {
            text += &format!("{goal}: {reached}{}\n", if *met { "" } else { ", missed" });
            misses.iter().for_each(|miss| text += &format!("  {miss}\n"));
        }
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A paper's runs have the guard of [`manage`]: no paper names settings or another way to run.
    #[test]
    fn no_paper_has_a_guard_of_its_own() {
        let papers = [
            include_str!("reproduce/asymsched.rs"),
            include_str!("reproduce/carrefour.rs"),
            include_str!("reproduce/carrefour/evaluation.rs"),
            include_str!("reproduce/carrefour/fit.rs"),
            include_str!("reproduce/nmass.rs"),
            include_str!("reproduce/sam.rs"),
        ];
        for (place, paper) in papers.into_iter().enumerate() {
            for word in ["GuardSettings", "no_guard", "run::manage", "with_policies", "Managed"] {
                assert!(!paper.contains(word), "paper {place} has {word}");
            }
        }
    }

    #[test]
    fn a_sign_counts_only_outside_the_dead_band() {
        let one = |published, simulated| {
            cell(("t", "r", "c"), (Use::Prediction, "%"), published, &[simulated])
        };
        let score = score(&[one(2.0, -3.0), one(40.0, 20.0), one(-10.0, 30.0)]).unwrap();
        assert_eq!((score.cells, score.signs, score.signs_right), (3, 2, 1));
        assert_eq!(score.median_error, 20.0);
    }
}
