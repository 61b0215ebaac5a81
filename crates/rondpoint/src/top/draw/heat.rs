//! The traffic from node to node as a matrix with heat.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::super::frame::Traffic;
use super::TITLE;

/// Colours of the 256-colour palette from cool to hot, with the colour of the text on each. Below
/// the first nothing is coloured.
const RAMP: [(u8, u8); 6] = [(229, 16), (222, 16), (215, 16), (208, 16), (202, 16), (160, 231)];
/// Letters of a cell at most and at least.
const CELL: [usize; 2] = [8, 4];
/// Letters of the row's name.
const NAME: usize = 5;

/// The style of a share of the hottest cell.
pub(super) fn style(share: f64) -> Style {
    if share < 0.02 {
        return Style::new();
    }
    let place = (share.clamp(0.0, 1.0) * RAMP.len() as f64).ceil() as usize;
    let (ground, text) = RAMP[place.clamp(1, RAMP.len()) - 1];
    Style::new().bg(Color::Indexed(ground)).fg(Color::Indexed(text))
}

/// The matrix as lines of at most so many letters; nodes that do not fit are counted.
pub(super) fn lines(
    traffic: &Traffic,
    names: &[&str],
    (width, height): (usize, usize),
) -> Vec<Line<'static>> {
    let nodes = traffic.rows.len();
    let cell = (width.saturating_sub(NAME) / nodes.max(1)).clamp(CELL[1], CELL[0]);
    let columns = (width.saturating_sub(NAME) / cell).min(nodes);
    let rows = height.saturating_sub(2).min(nodes);
    let most = traffic.rows.iter().flatten().copied().fold(0.0, f64::max);
    let unit = if cell < 6 { "% of peak" } else { traffic.unit };
    let left =
        if columns < nodes || rows < nodes { format!("  {nodes} nodes") } else { String::new() };
    let mut lines = vec![Line::styled(format!("{unit}  row←column{left}"), TITLE)];
    let head: String = names.iter().take(columns).map(|name| format!("{name:>cell$}")).collect();
    lines.push(Line::from(format!("{:>NAME$}{head}", "")));
    for (name, row) in names.iter().zip(&traffic.rows).take(rows) {
        let mut spans = vec![Span::raw(format!("{name:>width$} ", width = NAME - 1))];
        for value in row.iter().take(columns) {
            let share = if most > 0.0 { value / most } else { 0.0 };
            let text = if cell < 6 { format!("{:.0}", 100.0 * share) } else { rate(*value) };
            spans.push(Span::styled(format!("{text:>width$} ", width = cell - 1), style(share)));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// Three digits that say something.
fn rate(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hotter_is_never_cooler_and_nothing_has_no_colour() {
        assert_eq!(style(0.0), Style::new());
        let place =
            |share: f64| RAMP.iter().position(|(g, _)| style(share).bg == Some(Color::Indexed(*g)));
        let places: Vec<_> = (0..=100).map(|percent| place(f64::from(percent) / 100.0)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(places.last(), Some(&Some(RAMP.len() - 1)));
    }

    #[test]
    fn a_large_machine_fits_and_says_what_is_left_out() {
        let traffic = Traffic { rows: vec![vec![1.0; 64]; 64], unit: "requests/µs" };
        let names: Vec<String> = (0..64).map(|node: u32| node.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lines = lines(&traffic, &names, (36, 8));
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.width() <= 36), "{lines:?}");
        assert!(lines[0].to_string().contains("64 nodes"), "{}", lines[0]);
    }
}
