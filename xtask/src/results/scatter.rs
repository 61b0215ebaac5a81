//! Points of an experiment in SVG: one number against another, with the line where both are alike.
//!
//! The same numbers give the same bytes. Colours suit light and dark pages.

use std::fmt::Write as _;

use super::chart::escaped;
use super::data::{Experiment, Scatter};

/// Sizes of the plot, pixels.
const SIDE: f64 = 420.0;
const LEFT: f64 = 60.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 44.0;
const LEGEND: f64 = 280.0;
const LINE: f64 = 18.0;

/// Colours of the series, in order.
const COLOURS: [&str; 8] =
    ["#2a7fb8", "#d9822b", "#4a9a4a", "#b5484a", "#8a63b8", "#7a6a58", "#c76aa5", "#888888"];

pub(super) fn svg(experiment: &Experiment, scatter: &Scatter) -> String {
    let (width, height) = (LEFT + SIDE + LEGEND, HEAD + SIDE + FOOT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#777\">\n\
         <text x=\"0\" y=\"16\" font-weight=\"bold\">{}</text>\n<text x=\"0\" y=\"34\">{}</text>\n",
        escaped(&experiment.title),
        escaped(&format!("{} over {} ({})", scatter.y, scatter.x, experiment.kind.name())),
    );
    let [low, high] = scatter.range;
    // Points beyond the range are drawn on its edge.
    let part = |value: f64| (value.clamp(low, high) - low) / (high - low);
    let x = |value: f64| LEFT + SIDE * part(value);
    let y = |value: f64| HEAD + SIDE * (1.0 - part(value));
    put_axes(&mut svg, scatter, (&x, &y));
    let mut series: Vec<&str> = Vec::new();
    for point in &scatter.points {
        let place = series.iter().position(|name| *name == point.series).unwrap_or_else(|| {
            series.push(&point.series);
            series.len() - 1
        });
        let _ = writeln!(
            svg,
            "<circle class=\"point\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{}\" \
             fill-opacity=\"0.6\"/>",
            x(point.at[0]),
            y(point.at[1]),
            COLOURS[place % COLOURS.len()]
        );
    }
    for (place, name) in series.iter().enumerate() {
        let top = HEAD + LINE * place as f64;
        let left = LEFT + SIDE + 16.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n\
             <text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[place % COLOURS.len()],
            left + 16.0,
            top + 10.0,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

/// Draws the frame, zero on both axes, the diagonal of equal values, and the ends of the range.
fn put_axes(
    svg: &mut String,
    scatter: &Scatter,
    (x, y): (&impl Fn(f64) -> f64, &impl Fn(f64) -> f64),
) {
    let [low, high] = scatter.range;
    let mut line = |from: [f64; 2], to: [f64; 2], style: &str| {
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" {style}/>",
            x(from[0]),
            y(from[1]),
            x(to[0]),
            y(to[1])
        );
    };
    let thin = "stroke=\"#aaa\" fill=\"none\"";
    line([low, low], [high, low], thin);
    line([low, low], [low, high], thin);
    line([low, 0.0], [high, 0.0], thin);
    line([0.0, low], [0.0, high], thin);
    line([low, low], [high, high], "stroke=\"#c44\" stroke-dasharray=\"4 3\" fill=\"none\"");
    for value in [low, 0.0, high] {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{value:.0}</text>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            x(value),
            HEAD + SIDE + 18.0,
            LEFT - 6.0,
            y(value) + 4.0
        );
    }
}
