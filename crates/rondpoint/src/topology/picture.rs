//! `topology --measure --svg`: both matrices with heat, and the loaded latency of each node. The
//! file needs no other file, and has a light and a dark style.

use std::fmt::Write as _;

use super::measured::cell;
use crate::calibrate::memory::{Curve, Measured};
use crate::report::chart::{COLOURS, axis_top, tick_label, tick_step};
use crate::report::html::Html;

/// Colours are those of the report.
const STYLE: &str = include_str!("../report/style.css");
/// Units of the view box, which are about pixels.
const CELL: [f64; 2] = [56.0, 28.0];
const MARGIN: f64 = 64.0;
const CHART: [f64; 2] = [560.0, 220.0];
/// Ticks of each axis.
const TICKS: f64 = 5.0;
/// From this share of the hottest cell on, its number is in the colour for dark cells.
const HOT: f64 = 0.6;

/// The picture.
pub(super) fn svg(measured: &Measured) -> String {
    let side = measured.nodes.len() as f64;
    let wide = MARGIN + side * CELL[0];
    let matrix_height = 2.0 * MARGIN + side * CELL[1];
    let width = (2.0 * (wide + MARGIN)).max(CHART[0] + 2.0 * MARGIN);
    let height = matrix_height + CHART[1] + 2.0 * MARGIN;
    let mut page = Html::default();
    let view = format!("0 0 {width:.0} {height:.0}");
    let name = "http://www.w3.org/2000/svg";
    page.open("svg", &[("xmlns", &name), ("viewBox", &view)]);
    page.element("title", &[], "Memory of each node as the CPUs of each see it, measured");
    page.open("style", &[]).raw(STYLE).close("style");
    let paper = "fill: var(--paper)";
    page.open("rect", &[("width", &"100%"), ("height", &"100%"), ("style", &paper)]).close("rect");
    put_matrix(&mut page, 0.0, "idle latency, ns", measured, &measured.latency_ns);
    let beside = wide + MARGIN / 2.0;
    put_matrix(&mut page, beside, "bandwidth, MB/s", measured, &measured.bandwidth_mb_s);
    put_curves(&mut page, matrix_height, &measured.loaded);
    page.close("svg");
    page.into_text()
}

fn put_text(page: &mut Html, [x, y]: [f64; 2], (anchor, class): (&str, &str), text: &str) {
    let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
    let attributes: [(&'static str, &dyn std::fmt::Display); 4] =
        [("x", &x), ("y", &y), ("text-anchor", &anchor), ("class", &class)];
    page.element("text", &attributes, text);
}

fn put_matrix(
    page: &mut Html,
    left: f64,
    title: &str,
    measured: &Measured,
    rows: &[Vec<Option<f64>>],
) {
    let most = rows.iter().flatten().flatten().copied().fold(0.0, f64::max);
    put_text(page, [left + MARGIN, 20.0], ("start", "in"), title);
    for (row, (node, values)) in measured.nodes.iter().zip(rows).enumerate() {
        let top = MARGIN + row as f64 * CELL[1];
        let middle = top + CELL[1] / 2.0 + 4.0;
        put_text(page, [left + MARGIN - 6.0, middle], ("end", "row"), &format!("node {node}"));
        let head = left + MARGIN + (row as f64 + 0.5) * CELL[0];
        put_text(page, [head, MARGIN - 8.0], ("middle", "head"), &format!("node {node}"));
        for (column, value) in values.iter().enumerate() {
            let share = value.map_or(0.0, |value| value / most);
            let x = left + MARGIN + column as f64 * CELL[0];
            let (at_x, at_y) = (format!("{x:.1}"), format!("{top:.1}"));
            let opacity = format!("{:.2}", share * 0.9);
            let size: [(&'static str, &dyn std::fmt::Display); 6] = [
                ("class", &"heat"),
                ("x", &at_x),
                ("y", &at_y),
                ("width", &CELL[0]),
                ("height", &CELL[1]),
                ("fill-opacity", &opacity),
            ];
            page.open("rect", &size).close("rect");
            let class = if share > HOT { "hot" } else { "in" };
            put_text(page, [x + CELL[0] / 2.0, middle], ("middle", class), &cell(*value));
        }
    }
}

/// Bandwidth to the right, latency up, a line for each node.
fn put_curves(page: &mut Html, top: f64, curves: &[Curve]) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let right_end = axis_top(points().map(|point| point.mb_s).fold(0.0, f64::max));
    let top_end = axis_top(points().map(|point| point.ns).fold(0.0, f64::max));
    let x = |mb_s: f64| MARGIN + CHART[0] * mb_s / right_end;
    let foot = top + MARGIN / 2.0 + CHART[1];
    let y = |ns: f64| foot - CHART[1] * ns / top_end;
    let title = match curves {
        [] => "loaded latency: not measured, it takes two CPUs of a node",
        _ => "loaded latency, ns, over what the node's own CPUs draw, MB/s",
    };
    put_text(page, [MARGIN, top + 8.0], ("start", "in"), title);
    if curves.is_empty() {
        return;
    }
    let mut rule = |path: &str| {
        page.open("path", &[("class", &"rule"), ("d", &path)]).close("path");
    };
    rule(&format!("M{MARGIN} {:.1}V{foot:.1}H{:.1}", y(top_end), x(right_end)));
    for (end, is_right) in [(right_end, true), (top_end, false)] {
        let step = tick_step(end, TICKS);
        for tick in (0..).map(|tick| f64::from(tick) * step).take_while(|at| *at <= end * 1.001) {
            let (at, anchor) = match is_right {
                true => ([x(tick), foot + 16.0], "middle"),
                false => ([MARGIN - 6.0, y(tick) + 4.0], "end"),
            };
            put_text(page, at, (anchor, "tick"), &tick_label(tick, step));
        }
    }
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (place, point) in curve.points.iter().enumerate() {
            let begin = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{begin}{:.1} {:.1}", x(point.mb_s), y(point.ns));
        }
        let class = format!("line {colour}");
        page.open("path", &[("class", &class), ("d", &path)]);
        page.element("title", &[], format!("node {}", curve.node)).close("path");
        if let Some(last) = curve.points.last() {
            let at = [x(last.mb_s), y(last.ns) - 6.0];
            put_text(page, at, ("end", "in"), &format!("node {}", curve.node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::memory::example;

    #[test]
    fn each_cell_and_each_curve_is_drawn_and_what_is_missing_is_no_number() {
        let picture = svg(&example());
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{picture}");
        assert_eq!(picture.matches("class=\"heat\"").count(), 8, "two matrices of two nodes");
        assert_eq!(picture.matches(">-</text>").count(), 4, "node 1 has no row");
        assert_eq!(picture.matches("class=\"line ").count(), 1);
        assert!(picture.contains(">20000</text>") && picture.contains(">180</text>"), "{picture}");
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        let nothing = svg(&Measured { loaded: Vec::new(), ..example() });
        assert!(nothing.contains("loaded latency: not measured") && !nothing.contains("NaN"));
    }
}
