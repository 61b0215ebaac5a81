//! Charts over time in SVG: axes, lines, areas that add up, and heat strips.
//!
//! The same figures give the same bytes. Colours are classes of the page's style, which has them
//! for light and for dark.

use std::fmt::Write as _;

use super::html::Html;
use super::series::Slice;

/// Width of each chart in the units of its view box, which are about pixels.
const WIDTH: f64 = 960.0;
/// Room for the labels of the vertical axis.
const LEFT: f64 = 74.0;
const RIGHT: f64 = 12.0;
/// Room for the marks of what was done.
const TOP: f64 = 16.0;
/// Room for the labels of the time axis.
const BOTTOM: f64 = 34.0;
/// Ticks that a horizontal or vertical axis aims at.
const TICKS: [f64; 2] = [8.0, 4.0];
/// Steps of a heat scale: one path each.
const HEAT_STEPS: usize = 24;
/// Classes of colours; series beyond are not drawn by colour.
pub(crate) const COLOURS: [&str; 8] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];

/// A mark on the time axis.
pub(super) struct Mark {
    pub(super) at_s: f64,
    /// Its class: `deed`, `good`, `bad`, `unclear`.
    pub(super) class: &'static str,
    pub(super) title: String,
}

/// What all charts of one page or process share.
pub(super) struct Time<'a> {
    /// The end of the axis, which begins at 0; above 0.
    pub(super) seconds: f64,
    pub(super) marks: &'a [Mark],
}

/// The area of a chart: time to the right, values up.
struct Area {
    seconds: f64,
    height: f64,
    top: f64,
}

impl Area {
    fn x(&self, at_s: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (at_s / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + self.height * (1.0 - (value / self.top).clamp(0.0, 1.0))
    }
}

/// Steps of 1, 2 or 5 times a power of ten, so that about `count` fit into `range`.
pub(crate) fn tick_step(range: f64, count: f64) -> f64 {
    let rough = range / count;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough * 0.999);
    step.unwrap_or(10.0) * power
}

/// A number of an axis, with the digits that its step needs.
pub(crate) fn tick_label(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.digits$}")
}

/// The top of an axis for values up to `most`: the next tick.
pub(crate) fn axis_top(most: f64) -> f64 {
    if most <= 0.0 || !most.is_finite() {
        return 1.0;
    }
    let step = tick_step(most, TICKS[1]);
    (most / step - 1e-9).ceil().max(1.0) * step
}

fn begin(html: &mut Html, height: f64, label: &str) {
    let view = format!("0 0 {WIDTH} {}", TOP + height + BOTTOM);
    html.open("svg", &[("viewBox", &view), ("role", &"img"), ("aria-label", &label)]);
}

fn put_text(html: &mut Html, (x, y): (f64, f64), anchor: &str, text: &str) {
    let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
    html.element("text", &[("x", &x), ("y", &y), ("text-anchor", &anchor)], text);
}

fn put_line(html: &mut Html, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let path = format!("M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}");
    html.open("path", &[("class", &class), ("d", &path)]).close("path");
}

fn put_time_axis(html: &mut Html, area: &Area, marks: &[Mark]) {
    let foot = TOP + area.height;
    put_line(html, "rule", (LEFT, foot), (WIDTH - RIGHT, foot));
    let step = tick_step(area.seconds, TICKS[0]);
    let mut at_s = 0.0;
    while at_s <= area.seconds * 1.0001 {
        let x = area.x(at_s);
        put_line(html, "rule", (x, foot), (x, foot + 4.0));
        put_text(html, (x, foot + 16.0), "middle", &tick_label(at_s, step));
        at_s += step;
    }
    put_text(html, (WIDTH - RIGHT, foot + 30.0), "end", "seconds since the first look");
    for mark in marks {
        put_mark(html, area, mark);
    }
}

/// A triangle above the area and a line through it; for a verdict a disc.
fn put_mark(html: &mut Html, area: &Area, mark: &Mark) {
    let x = area.x(mark.at_s);
    html.open("g", &[]).element("title", &[], &mark.title);
    if mark.class == "deed" {
        put_line(html, "deed-line", (x, TOP), (x, TOP + area.height));
        let path = format!("M{:.1} 3L{:.1} 3L{x:.1} 12Z", x - 5.0, x + 5.0);
        html.open("path", &[("class", &mark.class), ("d", &path)]).close("path");
    } else {
        let x = format!("{x:.1}");
        html.open("circle", &[("class", &mark.class), ("cx", &x), ("cy", &"8"), ("r", &"5")]);
        html.close("circle");
    }
    html.close("g");
}

fn put_value_axis(html: &mut Html, area: &Area, unit: &str) {
    let step = tick_step(area.top, TICKS[1]);
    let mut value = 0.0;
    while value <= area.top * 1.0001 {
        let y = area.y(value);
        put_line(html, "rule", (LEFT, y), (WIDTH - RIGHT, y));
        put_text(html, (LEFT - 6.0, y + 4.0), "end", &(tick_label(value, step) + unit));
        value += step;
    }
}

/// Lines, each in the colour of its place; `unit` follows each number of the axis.
pub(super) fn lines(
    html: &mut Html,
    time: &Time<'_>,
    label: &str,
    unit: &str,
    series: &[Vec<Slice<f64>>],
) {
    let values = series.iter().flatten().map(|slice| slice.value);
    let area =
        Area { seconds: time.seconds, height: 150.0, top: axis_top(values.fold(0.0, f64::max)) };
    begin(html, area.height, label);
    put_value_axis(html, &area, unit);
    put_time_axis(html, &area, time.marks);
    for (slices, colour) in series.iter().zip(COLOURS) {
        let class = format!("line {colour}");
        html.open("path", &[("class", &class), ("d", &line(&area, slices))]).close("path");
    }
    html.close("svg");
}

/// Each window is a level piece; windows that touch are joined.
fn line(area: &Area, slices: &[Slice<f64>]) -> String {
    let mut path = String::new();
    let mut end = f64::NEG_INFINITY;
    for slice in slices {
        let (from, to, y) = (area.x(slice.from_s), area.x(slice.to_s), area.y(slice.value));
        let begin = if from - end < 1.0 { 'L' } else { 'M' };
        let _ = write!(path, "{begin}{from:.1} {y:.1}L{to:.1} {y:.1}");
        end = to;
    }
    path
}

/// Areas that stand on each other, each in the colour of its place. `top`: the end of the axis, or
/// that of the highest sum.
pub(super) fn stack(
    html: &mut Html,
    time: &Time<'_>,
    label: &str,
    unit: &str,
    (slices, top): (&[Slice<Vec<f64>>], Option<f64>),
) {
    let sums = slices.iter().map(|slice| slice.value.iter().sum::<f64>());
    let top = top.unwrap_or_else(|| axis_top(sums.fold(0.0, f64::max)));
    let area = Area { seconds: time.seconds, height: 130.0, top };
    begin(html, area.height, label);
    for (place, colour) in COLOURS.iter().enumerate() {
        let mut path = String::new();
        for slice in slices {
            let Some(value) = slice.value.get(place) else { continue };
            let below: f64 = slice.value[..place].iter().sum();
            let (from, to) = (area.x(slice.from_s), area.x(slice.to_s));
            let (low, high) = (area.y(below), area.y(below + value));
            if low - high > 0.05 {
                let _ = write!(path, "M{from:.1} {low:.1}H{to:.1}V{high:.1}H{from:.1}Z");
            }
        }
        if !path.is_empty() {
            html.open("path", &[("class", colour), ("d", &path)]).close("path");
        }
    }
    put_value_axis(html, &area, unit);
    put_time_axis(html, &area, time.marks);
    html.close("svg");
}

/// A row of colour for each name: what is `most` or more is darkest.
pub(super) fn strips(
    html: &mut Html,
    time: &Time<'_>,
    label: &str,
    names: &[String],
    (slices, most): (&[Slice<Vec<f64>>], f64),
) {
    const ROW: f64 = 16.0;
    let height = ROW * names.len() as f64;
    let area = Area { seconds: time.seconds, height, top: 1.0 };
    begin(html, height, label);
    let mut paths = vec![String::new(); HEAT_STEPS + 1];
    for slice in slices {
        let (from, to) = (area.x(slice.from_s), area.x(slice.to_s));
        for (row, value) in slice.value.iter().enumerate().take(names.len()) {
            let heat = (value / most).clamp(0.0, 1.0) * HEAT_STEPS as f64;
            let top = TOP + ROW * row as f64;
            let path = &mut paths[heat.round() as usize];
            let _ = write!(path, "M{from:.1} {top:.1}H{to:.1}V{:.1}H{from:.1}Z", top + ROW - 1.0);
        }
    }
    for (step, path) in paths.iter().enumerate().skip(1).filter(|(_, path)| !path.is_empty()) {
        let opacity = format!("{:.2}", step as f64 / HEAT_STEPS as f64);
        html.open("path", &[("class", &"heat"), ("fill-opacity", &opacity), ("d", path)]);
        html.close("path");
    }
    for (row, name) in names.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5) + 4.0;
        put_text(html, (LEFT - 6.0, y), "end", name);
    }
    put_time_axis(html, &area, time.marks);
    html.close("svg");
}

/// A square table as heat, the row accesses, the column holds; its size on the page. `names` are
/// those of rows and columns.
pub(super) fn matrix(
    html: &mut Html,
    label: &str,
    names: &[u32],
    rows: &[Vec<f64>],
    most: f64,
) -> f64 {
    let nodes = rows.len() as f64;
    let (width, height) = if rows.len() <= 8 { (44.0, 26.0) } else { (12.0, 12.0) };
    let (left, top) = (24.0, 18.0);
    let size = (left + width * nodes + 2.0, top + height * nodes + 2.0);
    let view = format!("0 0 {} {}", size.0, size.1);
    let style = format!("width:{}px", size.0);
    html.open(
        "svg",
        &[("viewBox", &view), ("style", &style), ("role", &"img"), ("aria-label", &label)],
    );
    for (row, (name, cells)) in names.iter().zip(rows).enumerate() {
        let (y, name) = (top + height * row as f64, name.to_string());
        put_text(html, (left - 6.0, y + height / 2.0 + 4.0), "end", &name);
        put_text(html, (left + width * (row as f64 + 0.5), top - 6.0), "middle", &name);
        for (column, value) in cells.iter().enumerate() {
            put_cell(html, (left + width * column as f64, y), (width, height), *value, most);
        }
    }
    html.close("svg");
    size.0
}

fn put_cell(html: &mut Html, at: (f64, f64), size: (f64, f64), value: f64, most: f64) {
    let heat = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    let [x, y, width, height] =
        [at.0, at.1, size.0 - 1.0, size.1 - 1.0].map(|number| format!("{number:.1}"));
    let opacity = format!("{heat:.2}");
    for (class, fill) in [("heat", &opacity), ("cell", &"0".to_string())] {
        html.open(
            "rect",
            &[
                ("class", &class),
                ("x", &x),
                ("y", &y),
                ("width", &width),
                ("height", &height),
                ("fill-opacity", fill),
            ],
        );
        html.close("rect");
    }
    if size.0 < 30.0 {
        return;
    }
    let shown = match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let class = if heat > 0.6 { "hot" } else { "in" };
    let (x, y) = (at.0 + size.0 / 2.0 - 0.5, at.1 + size.1 / 2.0 + 3.5);
    let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
    html.element(
        "text",
        &[("class", &class), ("x", &x), ("y", &y), ("text-anchor", &"middle")],
        shown,
    );
}

/// Predicted to the right, measured up, both in percent, and the line on which they agree.
pub(super) fn scatter(html: &mut Html, label: &str, points: &[(f64, f64, &'static str, String)]) {
    const SIDE: f64 = 320.0;
    let (left, foot) = (60.0, SIDE - 40.0);
    let all = points.iter().flat_map(|point| [point.0, point.1]);
    let (low, high) = all.fold((0.0_f64, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    let step = tick_step((high - low).max(1.0), TICKS[1]);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil().max(1.0) * step);
    let x = |value: f64| left + (SIDE - left - 14.0) * (value - low) / (high - low);
    let y = |value: f64| foot - (foot - 14.0) * (value - low) / (high - low);
    let (view, style) = (format!("0 0 {SIDE} {SIDE}"), format!("width:{SIDE}px"));
    html.open(
        "svg",
        &[("viewBox", &view), ("style", &style), ("role", &"img"), ("aria-label", &label)],
    );
    let mut value = low;
    while value <= high + step * 0.001 {
        put_line(html, "rule", (x(value), y(low)), (x(value), y(high)));
        put_line(html, "rule", (x(low), y(value)), (x(high), y(value)));
        let label = tick_label(value, step);
        put_text(html, (x(value), foot + 15.0), "middle", &label);
        put_text(html, (left - 6.0, y(value) + 4.0), "end", &label);
        value += step;
    }
    put_line(html, "deed-line", (x(low), y(low)), (x(high), y(high)));
    for (predicted, measured, class, title) in points {
        let (x, y) = (format!("{:.1}", x(*predicted)), format!("{:.1}", y(*measured)));
        html.open("circle", &[("class", class), ("cx", &x), ("cy", &y), ("r", &"4.5")]);
        html.element("title", &[], title).close("circle");
    }
    put_text(html, (SIDE - 14.0, SIDE - 8.0), "end", "predicted change of speed, %");
    put_text(html, (4.0, 10.0), "start", "measured, %");
    html.close("svg");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_ticks_and_holds_its_values() {
        for (most, top) in [(0.0, 1.0), (0.9, 1.0), (99.0, 100.0), (101.0, 150.0), (173.2, 200.0)] {
            assert_eq!(axis_top(most), top, "{most}");
        }
        assert_eq!(tick_step(42.3, 8.0), 10.0);
        assert_eq!(tick_step(1.0, 4.0), 0.5);
        assert_eq!((tick_label(0.5, 0.5), tick_label(20.0, 10.0)), ("0.5".into(), "20".into()));
    }

    #[test]
    fn a_line_is_broken_where_nothing_was_known() {
        let area = Area { seconds: 10.0, height: 100.0, top: 1.0 };
        let slice = |from_s, to_s| Slice { from_s, to_s, value: 0.5 };
        let path = line(&area, &[slice(0.0, 2.0), slice(2.0, 3.0), slice(6.0, 7.0)]);
        assert_eq!(path.matches('M').count(), 2, "{path}");
    }
}
