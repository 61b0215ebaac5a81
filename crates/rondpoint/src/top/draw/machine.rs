//! Draws the machine: nodes, traffic, links, processes by their loss, and new decisions.

use ratatui::Frame as Screen;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use rondpoint_core::Bytes;

use super::super::frame::{Frame, LinkRow, NodeRow, ProcessRow};
use super::super::state::State;
use super::{FAINT, TITLE, alarm, bar, column, figure, heat, put_decisions, shares};

/// Letters of the table of nodes.
const NODES: u16 = 48;
/// Nodes that are shown at most: a third of the screen.
const SHARE_OF_NODES: u16 = 3;
/// Percent of its time that a process loses from which on it is yellow, and red (our choice).
const LOST: [f64; 2] = [5.0, 20.0];
/// Percent of a controller or link in use, the same.
const FULL: [f64; 2] = [60.0, 85.0];
/// Cells of a process's name.
const NAME: usize = 15;

pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, frame: &Frame, state: &State) {
    let nodes = (frame.nodes.len() as u16 + 2).min(area.height / SHARE_OF_NODES + 2);
    let rest = area.height.saturating_sub(nodes + 1);
    let [top, links, processes, decisions] = Layout::vertical([
        Constraint::Length(nodes),
        Constraint::Length(1),
        Constraint::Length(rest / 2),
        Constraint::Min(0),
    ])
    .areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Length(NODES), Constraint::Min(0)]).areas(top);
    screen.render_widget(Paragraph::new(node_lines(&frame.nodes, left.height)), left);
    put_traffic(screen, right, frame);
    screen.render_widget(Paragraph::new(link_line(&frame.links)), links);
    put_processes(screen, processes, frame, state);
    put_decisions(screen, decisions, &state.filter.decisions(frame), 0);
}

fn node_lines(nodes: &[NodeRow], height: u16) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::default(),
        Line::styled(" node CPUs  CPU%  free of GiB  serves     full%", TITLE),
    ];
    let rows = usize::from(height.saturating_sub(2));
    let (shown, left) = match nodes.len() > rows {
        true => (rows.saturating_sub(1), nodes.len() - rows.saturating_sub(1)),
        false => (nodes.len(), 0),
    };
    for node in nodes.iter().take(shown) {
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        let free = node.free_bytes.map_or("-".to_string(), |bytes| format!("{:.1}", gib(bytes)));
        let memory = format!("{free}/{:.1}", gib(node.memory_bytes));
        let served = node.served_percent.map_or("-".to_string(), |percent| {
            format!("{}{percent:>4.0}%", bar(percent / 100.0, 5))
        });
        let cpu = figure(node.cpu_percent, 0);
        let full = format!("{:>5}", figure(node.full_percent, 0));
        lines.push(Line::from(vec![
            Span::raw(format!("{:>5} {:>4} {cpu:>5} ", node.name, node.cpus)),
            Span::raw(format!("{memory:>12}  {served:<10}")),
            Span::styled(full, alarm(node.full_percent, FULL)),
        ]));
    }
    if left > 0 {
        lines.push(Line::styled(format!("{left:>5} more"), FAINT));
    }
    lines
}

fn put_traffic(screen: &mut Screen<'_>, area: Rect, frame: &Frame) {
    let Some(traffic) = &frame.traffic else {
        let text = "\nnodes' use of memory: not known";
        screen.render_widget(Paragraph::new(text).style(FAINT), area);
        return;
    };
    let names: Vec<&str> = frame.nodes.iter().map(|node| node.name.as_str()).collect();
    let size = (usize::from(area.width), usize::from(area.height));
    screen.render_widget(Paragraph::new(heat::lines(traffic, &names, size)), area);
}

/// The fullest links first.
fn link_line(links: &[LinkRow]) -> Line<'static> {
    let mut links: Vec<&LinkRow> = links.iter().collect();
    links.sort_by(|a, b| b.use_percent.total_cmp(&a.use_percent).then(a.name.cmp(&b.name)));
    if links.is_empty() {
        return Line::default();
    }
    let mut spans = vec![Span::styled("links ", TITLE)];
    for link in links {
        let style = alarm(Some(link.use_percent), FULL);
        spans.push(Span::styled(format!(" {} {:.0}% ", link.name, link.use_percent), style));
    }
    Line::from(spans)
}

fn put_processes(screen: &mut Screen<'_>, area: Rect, frame: &Frame, state: &State) {
    let all = state.processes(frame);
    let rows = usize::from(area.height.saturating_sub(1));
    let place = state.place(&all);
    let first = (place + 1).saturating_sub(rows);
    let named = all.iter().any(|one| !one.name.is_empty());
    let name = if named { format!("{:<NAME$} ", "name") } else { String::new() };
    let title = format!(
        "{:>8} {name}{:>7} {:>6} {:>7} {:>10}  {:<18} {}",
        "pid", "CPU%", "lost%", "local%", "memory", "% of it by node", "threads by node"
    );
    let mut lines = vec![Line::styled(title, TITLE)];
    for (number, process) in all.iter().enumerate().skip(first).take(rows) {
        let line = process_line(process, named);
        lines.push(match number == place {
            true => line.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        });
    }
    if all.is_empty() {
        let nothing = match frame.processes.is_empty() {
            true => "  no process is known here",
            false => "  none of the processes is on that node with that text",
        };
        lines.push(Line::styled(nothing, FAINT));
    }
    screen.render_widget(Paragraph::new(lines), area);
}

fn process_line(process: &ProcessRow, named: bool) -> Line<'static> {
    let name = if named { column(&process.name, NAME) + " " } else { String::new() };
    let memory = process.memory_by_node.as_deref().map_or("-".to_string(), shares);
    let threads: Vec<String> = process.threads_by_node.iter().map(u32::to_string).collect();
    Line::from(vec![
        Span::raw(format!("{:>8} {name}{:>7.0} ", process.pid, process.cpu_percent)),
        Span::styled(
            format!("{:>6} ", figure(process.lost_percent, 0)),
            alarm(process.lost_percent, LOST),
        ),
        Span::raw(format!(
            "{:>7} {:>10}  {memory:<18} {}",
            figure(process.local_percent, 0),
            process.resident_bytes.map_or("-".to_string(), |bytes| Bytes(bytes).to_string()),
            threads.join(" ")
        )),
    ])
}
