//! Draws one process: its memory by node, its threads, the decisions about it.

use ratatui::Frame as Screen;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use rondpoint_core::Bytes;

use super::super::frame::{DecisionRow, Frame, ProcessRow, ThreadRow};
use super::super::state::State;
use super::{FAINT, TITLE, bar, column, figure, heat, put_decisions};

/// Lines of decisions below.
const DECISIONS: u16 = 8;
/// Letters of a bar.
const BAR: usize = 20;
/// Cells of a thread's name.
const NAME: usize = 15;

pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, frame: &Frame, state: &State, pid: u32) {
    let Some(process) = frame.process(pid) else {
        let text = format!("process {pid} is not known at this moment");
        screen.render_widget(Paragraph::new(text).style(FAINT), area);
        return;
    };
    let nodes = (process.threads_by_node.len() as u16).min(area.height / 3);
    let [facts, memory, threads, _, decisions] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(nodes + 1),
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(DECISIONS.min(area.height / 4)),
    ])
    .areas(area);
    screen.render_widget(Paragraph::new(fact_lines(process)), facts);
    screen.render_widget(Paragraph::new(memory_lines(process, frame)), memory);
    put_threads(screen, threads, (process, frame), state.scroll);
    let own = frame.decisions.iter().filter(|one| one.pid.is_none_or(|other| other == pid));
    put_decisions(screen, decisions, &own.cloned().collect::<Vec<DecisionRow>>(), 0);
}

fn fact_lines(process: &ProcessRow) -> Vec<Line<'static>> {
    let lost = process.lost_percent.map(|lost| match process.least_lost_percent {
        Some(least) => format!("loses {lost:.0} % to memory, at least {least:.0} %"),
        None => format!("loses {lost:.0} % to memory"),
    });
    let facts = [
        Some(format!("CPU {:.0} %", process.cpu_percent)),
        lost,
        process.local_percent.map(|percent| format!("local {percent:.0} %")),
        process.latency.as_ref().map(|latency| format!("latency {latency}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let title = format!("process {}  {}", process.pid, process.name);
    vec![
        Line::from(vec![
            Span::styled(title, TITLE),
            Span::styled(format!("  {}", process.state), FAINT),
        ]),
        Line::from(facts.join("  ")),
        process
            .causes
            .as_ref()
            .map_or(Line::default(), |causes| Line::from(format!("cost model: {causes}"))),
        Line::default(),
    ]
}

fn memory_lines(process: &ProcessRow, frame: &Frame) -> Vec<Line<'static>> {
    let title = format!(" node  {:<width$}  threads", "memory", width = BAR + 12);
    let mut lines = vec![Line::styled(title, TITLE)];
    let all: u64 = process.memory_by_node.iter().flatten().sum();
    for (node, threads) in process.threads_by_node.iter().enumerate() {
        let name = frame.nodes.get(node).map_or(String::new(), |node| node.name.clone());
        let bytes = process.memory_by_node.as_ref().and_then(|memory| memory.get(node).copied());
        let memory = match bytes {
            None => format!("{:>width$}", "-", width = BAR + 12),
            Some(bytes) => {
                let share = if all > 0 { bytes as f64 / all as f64 } else { 0.0 };
                format!("{} {:>11}", bar(share, BAR), Bytes(bytes).to_string())
            }
        };
        lines.push(Line::from(format!("{name:>5}  {memory}  {threads:>7}")));
    }
    lines
}

fn put_threads(
    screen: &mut Screen<'_>,
    area: Rect,
    (process, frame): (&ProcessRow, &Frame),
    scroll: usize,
) {
    let named = process.threads.iter().any(|thread| !thread.name.is_empty());
    let name = if named { format!("{:<NAME$} ", "name") } else { String::new() };
    let title = format!(
        "{:>8} {name}{:>5} {:>5} {:>6} {:>7}  {}",
        "thread", "CPU", "node", "CPU%", "waits%", "its accesses by node, %"
    );
    let mut lines = vec![Line::default(), Line::styled(title, TITLE)];
    let mut threads: Vec<&ThreadRow> = process.threads.iter().collect();
    threads.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then(a.tid.cmp(&b.tid)));
    let rows = usize::from(area.height.saturating_sub(2));
    let scroll = scroll.min(threads.len().saturating_sub(rows));
    let shown = threads.iter().skip(scroll).take(rows);
    lines.extend(shown.map(|one| thread_line(one, frame, named)));
    if threads.is_empty() {
        lines.push(Line::styled("  its threads are not known here", FAINT));
    }
    screen.render_widget(Paragraph::new(lines), area);
}

fn thread_line(thread: &ThreadRow, frame: &Frame, named: bool) -> Line<'static> {
    let name = if named { column(&thread.name, NAME) + " " } else { String::new() };
    let mut spans = vec![Span::raw(format!(
        "{:>8} {name}{:>5} {:>5} {:>6.0} {:>7}  ",
        thread.tid,
        thread.cpu,
        frame.nodes.get(thread.node).map_or("-", |node| &node.name),
        thread.cpu_percent,
        figure(thread.stalled_percent, 0)
    ))];
    let accesses = thread.accesses_by_node.as_deref().unwrap_or_default();
    let all: u32 = accesses.iter().sum();
    for count in accesses.iter().filter(|_| all > 0) {
        let share = f64::from(*count) / f64::from(all);
        spans.push(Span::styled(format!("{:>4.0} ", 100.0 * share), heat::style(share)));
    }
    Line::from(spans)
}
