//! The first column of an experiment as a bar chart with ranges, in SVG.
//!
//! The same numbers give the same bytes. Colours suit light and dark pages.

use std::fmt::Write as _;

use super::data::{Cell, Experiment};
use super::scatter;

/// Sizes of the chart, pixels.
const WIDTH: f64 = 760.0;
const NAMES: f64 = 250.0;
const VALUES: f64 = 60.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 30.0;

/// Most letters of a row's name that fit.
const NAME_LETTERS: usize = 36;

pub(super) fn svg(experiment: &Experiment) -> String {
    if let Some(scatter) = &experiment.scatter {
        return scatter::svg(experiment, scatter);
    }
    let rows: Vec<(&str, Option<&Cell>)> = experiment
        .rows
        .iter()
        .map(|row| (row.name.as_str(), row.cells.first().and_then(Option::as_ref)))
        .collect();
    let ranges = rows.iter().filter_map(|(_, cell)| cell.and_then(Cell::range));
    let most = ranges.map(|range| range.most).chain(experiment.reference).fold(0.0, f64::max);
    let scale = if most > 0.0 { (WIDTH - NAMES - VALUES) / most } else { 0.0 };
    let height = HEAD + ROW * rows.len() as f64 + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#777\">\n\
         <text x=\"0\" y=\"16\" font-weight=\"bold\">{}</text>\n<text x=\"0\" y=\"34\">{}</text>\n",
        escaped(&experiment.title),
        escaped(&format!(
            "{} ({})",
            experiment.columns.first().map_or("", String::as_str),
            experiment.kind.name()
        )),
    );
    for (place, (name, cell)) in rows.iter().enumerate() {
        put_row(&mut svg, HEAD + ROW * place as f64, name, *cell, (scale, experiment.digits));
    }
    if let Some(reference) = experiment.reference {
        let (x, end) = (NAMES + scale * reference, height - FOOT + 4.0);
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{HEAD}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#c44\" \
             stroke-dasharray=\"4 3\"/>\n<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" \
             fill=\"#c44\">{reference:.*}</text>\n",
            end + 14.0,
            experiment.digits,
        );
    }
    svg + "</svg>\n"
}

fn put_row(
    svg: &mut String,
    top: f64,
    name: &str,
    cell: Option<&Cell>,
    (scale, digits): (f64, usize),
) {
    let (middle, text) = (top + BAR / 2.0, top + BAR - 3.0);
    let shown: String = match name.chars().count() > NAME_LETTERS {
        true => name.chars().take(NAME_LETTERS - 1).chain(['…']).collect(),
        false => name.to_string(),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>",
        NAMES - 8.0,
        escaped(&shown)
    );
    let Some(range) = cell.and_then(Cell::range) else {
        let why = match cell {
            Some(Cell::Text(why)) => why.as_str(),
            _ => "–",
        };
        let _ = writeln!(svg, "<text x=\"{NAMES}\" y=\"{text}\">{}</text>", escaped(why));
        return;
    };
    let is_ours = name.starts_with("rondpoint") || name.starts_with("Rondpoint");
    let colour = if is_ours { "#2a7fb8" } else { "#a9b4bd" };
    let _ = writeln!(
        svg,
        "<rect class=\"bar\" x=\"{NAMES}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR}\" \
         fill=\"{colour}\"/>",
        scale * range.median
    );
    if range.least < range.most {
        let [least, most] = [range.least, range.most].map(|value| NAMES + scale * value);
        let (up, down) = (middle - 4.0, middle + 4.0);
        let _ = writeln!(
            svg,
            "<path class=\"range\" d=\"M{least:.1} {middle}H{most:.1}M{least:.1} {up}V{down}\
             M{most:.1} {up}V{down}\" stroke=\"#444\" fill=\"none\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{text}\">{:.digits$}</text>",
        NAMES + scale * range.most + 6.0,
        range.median
    );
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
