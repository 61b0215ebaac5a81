//! Draws a frame on a screen of any size. Columns on the right and lines at the bottom are left out
//! if they do not fit.

mod heat;
mod machine;
mod process;

use ratatui::Frame as Screen;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::frame::{DecisionRow, Frame, News, NodeRow};
use super::replayed::Player;
use super::state::{State, View};

/// Letters of a sentence's line at least, on however narrow a screen.
const SHORTEST: usize = 20;
/// Titles of columns.
const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const HELP: &str = " q      quit                     ?      this help
 ↑ ↓    choose a process         Enter  its threads and memory
 b Esc  back                     d      all decisions
 s      sort by time lost, remote accesses, CPU, memory
 n      only processes on node 0, 1, …, all
 /      only what has a text: name, number, state, decision; Esc ends
 space  pause and go on

 of a recording
 ← →    one look back, forward   [ ]    to the last, next decision
 PgUp/Dn  ten looks              Home End  to the begin, end
 + -    faster, slower

 ▼ done   · not done   ● judged better or worse   ○ no clear change
 row←column: CPUs of the row's node use memory of the column's node";

/// Draws a frame.
pub(super) fn draw(screen: &mut Screen<'_>, frame: &Frame, state: &State, player: Option<&Player>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)])
            .areas(screen.area());
    screen.render_widget(Paragraph::new(head_lines(frame, state, player)), head);
    match state.view {
        View::Machine => machine::draw(screen, body, frame, state),
        View::Process(pid) => process::draw(screen, body, frame, state, pid),
        View::Decisions => {
            put_decisions(screen, body, &state.filter.decisions(frame), state.scroll);
        }
    }
    screen.render_widget(Paragraph::new(foot_line(state, frame, player.is_some())), foot);
    if state.help {
        put_help(screen);
    }
}

fn head_lines(frame: &Frame, state: &State, player: Option<&Player>) -> Vec<Line<'static>> {
    let time = match player {
        None if state.held => format!("{:.1} s, held", frame.at_s),
        None => format!("{:.1} s", frame.at_s),
        Some(player) => {
            let shape = if player.playing { "▶" } else { "⏸" };
            let (at_s, all) = (frame.at_s, player.seconds());
            format!(
                "{at_s:.3} of {all:.3} s {shape} ×{}  {}",
                player.speed,
                bar(player.share(), 10)
            )
        }
    };
    let facts = [
        Some(frame.sensing.clone()),
        frame.local_percent.map(|percent| format!("local {percent:.0} %")),
        frame.imbalance_percent.map(|percent| format!("imbalance {percent:.0} %")),
        frame.latency.as_ref().map(|latency| format!("latency {latency}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().filter(|fact| !fact.is_empty()).collect();
    vec![
        Line::from(vec![
            Span::styled("rondpoint top  ", TITLE),
            Span::raw(time),
            Span::styled(format!("  {}", frame.source), FAINT),
        ]),
        Line::from(facts.join("  ")),
    ]
}

fn foot_line(state: &State, frame: &Frame, replays: bool) -> Line<'static> {
    let time = if replays { "  space ← → [ ] time" } else { "  space hold" };
    if state.filter.is_typed() {
        let keys = format!("{}  Enter keep  Esc all", state.filter.shown());
        return Line::styled(keys, TITLE);
    }
    let only = match state.filter.is_set() {
        true => format!("{}  ", state.filter.shown()),
        false => String::new(),
    };
    let name = |node: &NodeRow| format!("node {}", node.name);
    let node = state.node.and_then(|node| frame.nodes.get(node));
    let node = node.map_or("all nodes".to_string(), name);
    let keys = match state.view {
        View::Machine => format!(
            "{only}q quit  ? help  ↑↓ Enter process  d decisions  s {}  n {node}  / text{time}",
            state.sort.name()
        ),
        View::Process(_) | View::Decisions => {
            format!("{only}q quit  ? help  b back  ↑↓ scroll{time}")
        }
    };
    Line::styled(keys, FAINT)
}

fn put_help(screen: &mut Screen<'_>) {
    let area = screen.area();
    let lines = HELP.lines().count() as u16 + 2;
    let widest = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let (width, height) = (widest.min(area.width), lines.min(area.height));
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    screen.render_widget(Clear, at);
    let block = Block::bordered().title(" keys ").border_style(TITLE);
    screen.render_widget(Paragraph::new(HELP).block(block), at);
}

/// The newest decisions that fit, the newest below; `scroll` of them are below the area.
fn put_decisions(screen: &mut Screen<'_>, area: Rect, decisions: &[DecisionRow], scroll: usize) {
    let rows = usize::from(area.height.saturating_sub(1));
    let last = decisions.len() - scroll.min(decisions.len().saturating_sub(1));
    let shown = &decisions[last.saturating_sub(rows)..last];
    let pids = shown.iter().filter_map(|one| one.pid).map(|pid| pid.to_string().len());
    let width = pids.max().unwrap_or(1).max(3);
    let lines: Vec<Line<'static>> =
        shown.iter().flat_map(|one| decision_lines(one, width, area.width)).collect();
    let mut text =
        vec![Line::styled(format!("{:>9}  {:>width$}   decision", "second", "pid"), TITLE)];
    text.extend(lines.iter().skip(lines.len().saturating_sub(rows)).cloned());
    screen.render_widget(Paragraph::new(text), area);
}

/// A decision in as many lines as its sentence needs.
fn decision_lines(one: &DecisionRow, width: usize, screen: u16) -> Vec<Line<'static>> {
    let (shape, style) = match one.news {
        News::Done => ("▼", Style::new().fg(Color::Magenta)),
        News::Held => ("·", FAINT),
        News::Better => ("●", Style::new().fg(Color::Green)),
        News::Worse => ("●", Style::new().fg(Color::Red)),
        News::Unclear => ("○", Style::new()),
    };
    let pid = one.pid.map_or("-".to_string(), |pid| pid.to_string());
    let text = if one.news == News::Held { FAINT } else { Style::new() };
    let head = format!("{:>9.3}  {pid:>width$} ", one.at_s);
    let indent = head.chars().count() + 2;
    let room = usize::from(screen).saturating_sub(indent).max(SHORTEST);
    let mut parts = wrapped(&one.text, room).into_iter();
    let first = parts.next().unwrap_or_default();
    let first = Line::from(vec![
        Span::raw(head),
        Span::styled(shape, style),
        Span::styled(format!(" {first}"), text),
    ]);
    let more = parts.map(|part| Line::styled(format!("{:indent$}{part}", ""), text));
    std::iter::once(first).chain(more).collect()
}

/// Cells of the terminal that a text takes: a wide letter takes two, a combining accent none.
fn cells(text: &str) -> usize {
    Span::raw(text).width()
}

/// A text from outside in a column of `width` cells: cut, or filled with spaces.
fn column(text: &str, width: usize) -> String {
    let ends = text.char_indices().map(|(begin, letter)| begin + letter.len_utf8());
    let end = ends.take_while(|end| cells(&text[..*end]) <= width).last().unwrap_or(0);
    let gap = width - cells(&text[..end]);
    format!("{}{:gap$}", &text[..end], "")
}

/// A text in lines of at most `room` cells, broken between words where that is possible.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| cells(line));
        match (line, line + 1 + cells(word) <= room) {
            (0, _) => lines.last_mut().expect("one").push_str(word),
            (_, true) => *lines.last_mut().expect("one") += &format!(" {word}"),
            (_, false) => lines.push(word.to_string()),
        }
    }
    lines
}

/// A bar of `width` letters.
fn bar(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(width - full)
}

/// `12.3` of what may not be known.
fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
}

/// Where it hurts: by how much of the time is lost, or how full something is.
fn alarm(percent: Option<f64>, [yellow, red]: [f64; 2]) -> Style {
    match percent {
        Some(percent) if percent >= red => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Some(percent) if percent >= yellow => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// Shares of a whole by node, in percent: `25 0 75 0`.
fn shares(parts: &[u64]) -> String {
    let all: u64 = parts.iter().sum();
    if all == 0 {
        return "-".to_string();
    }
    let share = |part: &u64| format!("{:.0}", 100.0 * *part as f64 / all as f64);
    parts.iter().map(share).collect::<Vec<_>>().join(" ")
}
