//! The JSON of an experiment: what ran, on what, and what came of it.

use anyhow::{Result, ensure};
use serde::Deserialize;

/// Version of the format.
const FORMAT: u32 = 1;

/// One experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    format: u32,
    pub(super) title: String,
    /// Description of the experiment, in sentences.
    pub(super) about: String,
    pub(super) kind: Kind,
    pub(super) machine: String,
    /// Number of runs of each row, each with another seed.
    pub(super) seeds: u32,
    /// Commit that was built.
    pub(super) commit: String,
    /// Commands that reproduce the numbers.
    pub(super) commands: Vec<String>,
    /// Value of the first column that means "no change". The chart has a line there.
    pub(super) reference: Option<f64>,
    /// Titles of the columns. The chart shows the first column.
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Row>,
    /// Digits after the decimal point.
    #[serde(default = "two")]
    pub(super) digits: usize,
    /// Findings, in sentences.
    #[serde(default)]
    pub(super) findings: Vec<String>,
    /// Scatter plot that the chart shows instead of the first column.
    #[serde(default)]
    pub(super) scatter: Option<Scatter>,
}

/// A scatter plot of one number against another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scatter {
    /// Titles of the horizontal and the vertical axis.
    pub(super) x: String,
    pub(super) y: String,
    /// Ends of both axes. Points beyond them are drawn on the edge.
    pub(super) range: [f64; 2],
    pub(super) points: Vec<Point>,
}

/// One point.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Point {
    pub(super) series: String,
    pub(super) at: [f64; 2],
}

fn two() -> usize {
    2
}

/// Kind of the machine that the numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// A simulated machine and a simulated program.
    Simulated,
    /// A real kernel and real programs on modelled hardware.
    Emulated,
    /// A real kernel in a virtual machine with one memory node. Its numbers are about Rondpoint
    /// itself, not about placements.
    Host,
    /// A real machine.
    Metal,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Emulated => "emulated",
            Self::Host => "host",
            Self::Metal => "metal",
        }
    }
}

/// One configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    /// Cells by column.
    pub(super) cells: Vec<Option<Cell>>,
}

/// A measurement, or the reason for its absence.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Cell {
    Number(f64),
    Range(Range),
    Text(String),
}

/// Median and range over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Cell {
    /// Median and range.
    pub(super) fn range(&self) -> Option<Range> {
        match self {
            Self::Number(value) => Some(Range { median: *value, least: *value, most: *value }),
            Self::Range(range) => Some(*range),
            Self::Text(_) => None,
        }
    }

    pub(super) fn text(&self, digits: usize) -> String {
        match self {
            Self::Number(value) => format!("{value:.digits$}"),
            Self::Range(Range { median, least, most }) => {
                format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
            }
            Self::Text(text) => text.clone(),
        }
    }
}

impl Experiment {
    /// Reads and checks an experiment's JSON.
    ///
    /// # Errors
    /// A field is missing or not valid. The error names the row.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let found: Self = serde_json::from_str(text)?;
        ensure!(found.format == FORMAT, "format {}, expected {FORMAT}", found.format);
        ensure!(found.seeds > 0, "expected at least one seed");
        ensure!(!found.commands.is_empty(), "expected the commands");
        let columns = found.columns.len();
        if let Some(scatter) = &found.scatter {
            let [low, high] = scatter.range;
            ensure!(low < 0.0 && high > 0.0, "scatter.range: expected zero between both ends");
        }
        for row in &found.rows {
            let cells = row.cells.len();
            ensure!(cells == columns, "{}: {cells} cells for {columns} columns", row.name);
            for range in row.cells.iter().flatten().filter_map(Cell::range) {
                let is_ordered = range.least <= range.median && range.median <= range.most;
                ensure!(is_ordered, "{}: expected least ≤ median ≤ most", row.name);
            }
        }
        Ok(found)
    }
}
