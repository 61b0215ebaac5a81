//! The page's part on one process over time: its loss, its memory by node, its threads by node.

use rondpoint_core::cost::CAUSES;

use super::chart::{self, COLOURS, Mark, Time};
use super::html::Html;
use super::machine::{by_node, legend};
use super::series::{Slice, over_time};
use crate::story::{Process, Story};

/// Processes that have a timeline, those with most CPU time.
const MOST_PROCESSES: usize = 12;
/// Percent lost from which on causes have a chart.
const LEAST_LOSS: f64 = 1.0;
/// Units of memory: the largest of which a chart has at least one.
const UNITS: [(&str, f64); 3] =
    [("GiB", (1_u64 << 30) as f64), ("MiB", (1_u64 << 20) as f64), ("KiB", 1024.0)];

/// The section with a timeline for each process.
pub(super) fn put(html: &mut Html, story: &Story, marks: impl Fn(u32) -> Vec<Mark>) {
    let all = story.processes();
    if all.is_empty() {
        return;
    }
    html.raw("<h2>Processes</h2>\n");
    if all.len() > MOST_PROCESSES {
        html.raw("<p class=\"note\">")
            .text(format!("The {MOST_PROCESSES} with most CPU time of {}.", all.len()));
        html.raw("</p>\n");
    }
    for pid in all.into_iter().take(MOST_PROCESSES) {
        let marks = marks(pid);
        let time = Time { seconds: story.seconds().max(1e-3), marks: &marks };
        html.element("h3", &[], format!("Process {pid}"));
        put_lost(html, story, &time, pid);
        put_causes(html, story, &time, pid);
        put_memory(html, story, &time, pid);
        put_threads(html, story, &time, pid);
    }
}

/// A figure of one process over time.
fn figure<T: super::series::Mean>(
    story: &Story,
    pid: u32,
    value: impl Fn(&Process) -> Option<T>,
) -> Vec<Slice<T>> {
    over_time(story, |known| value(known.process(pid)?))
}

fn put_lost(html: &mut Html, story: &Story, time: &Time<'_>, pid: u32) {
    let lost = figure(story, pid, |process| Some(100.0 * process.lost?.likely));
    let local = figure(story, pid, |process| process.local_percent);
    let series: Vec<(&str, Vec<Slice<f64>>)> = [
        ("local accesses, % of all", local),
        ("time lost to memory that is far or crowded, %", lost),
    ]
    .into_iter()
    .filter(|(_, slices)| !slices.is_empty())
    .collect();
    if series.is_empty() {
        html.raw("<p class=\"muted\">No sensor showed the nodes of its accesses.</p>\n");
        return;
    }
    let names = COLOURS.into_iter().zip(series.iter().map(|(name, _)| name.to_string()));
    legend(html, &names.collect::<Vec<_>>());
    let slices: Vec<Vec<Slice<f64>>> = series.into_iter().map(|(_, slices)| slices).collect();
    chart::lines(html, time, &format!("accesses of process {pid}"), " %", &slices);
}

/// What the cost model says that is lost, where it is anything.
fn put_causes(html: &mut Html, story: &Story, time: &Time<'_>, pid: u32) {
    let lost: Vec<Slice<Vec<f64>>> = figure(story, pid, |process| {
        let causes = process.lost_by_cause.iter().map(|loss| loss.percent);
        (!process.lost_by_cause.is_empty()).then(|| causes.collect())
    });
    if !lost.iter().any(|slice| slice.value.iter().sum::<f64>() >= LEAST_LOSS) {
        return;
    }
    html.raw("<p class=\"note\">Its time lost by cause, as the cost model says, %</p>\n");
    let names = COLOURS.into_iter().zip(CAUSES.iter().map(ToString::to_string));
    legend(html, &names.collect::<Vec<_>>());
    chart::stack(html, time, &format!("time lost by process {pid}"), " %", (&lost, None));
}

fn put_memory(html: &mut Html, story: &Story, time: &Time<'_>, pid: u32) {
    let memory: Vec<Slice<Vec<f64>>> = figure(story, pid, |process| {
        let nodes = process.memory_bytes.as_ref()?.iter();
        Some(nodes.map(|bytes| *bytes as f64).collect())
    });
    let sums = memory.iter().map(|slice| slice.value.iter().sum::<f64>());
    let most = sums.fold(0.0, f64::max);
    if most == 0.0 {
        return;
    }
    let (unit, size) = UNITS.into_iter().find(|(_, size)| most >= *size).unwrap_or(UNITS[2]);
    let scaled = |slice: Slice<Vec<f64>>| Slice {
        value: slice.value.iter().map(|bytes| bytes / size).collect(),
        ..slice
    };
    let memory: Vec<Slice<Vec<f64>>> = memory.into_iter().map(scaled).collect();
    html.raw("<p class=\"note\">").text(format!("Its memory by node, {unit}"));
    html.raw("</p>\n");
    by_node(
        html,
        (&story.header.topology, time),
        &format!("memory of process {pid} by node"),
        "",
        (&memory, None),
    );
}

fn put_threads(html: &mut Html, story: &Story, time: &Time<'_>, pid: u32) {
    let threads: Vec<Slice<Vec<f64>>> = figure(story, pid, |process| {
        Some(process.threads_by_node.iter().map(|count| f64::from(*count)).collect())
    });
    html.raw("<p class=\"note\">Its threads by the node on which they run</p>\n");
    by_node(
        html,
        (&story.header.topology, time),
        &format!("threads of process {pid} by node"),
        "",
        (&threads, None),
    );
}
