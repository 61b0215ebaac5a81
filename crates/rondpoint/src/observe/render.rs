//! The report as text: one block for each interval, and one for the whole run.

use std::fmt::Write;

use rondpoint_core::Topology;
use rondpoint_core::model::Rung;
use rondpoint_core::units::LINE_BYTES;

use super::report::{Interval, Line, Start, Summary, ThreadLine, TrafficLine};
use crate::terminal::clean;

/// Threads shown; the rest is in the JSON.
const SHOWN_THREADS: usize = 8;

/// The text of one line of the report.
pub(crate) fn text(line: &Line, topology: &Topology) -> String {
    let mut text = String::new();
    match line {
        Line::Start(start) => put_start(&mut text, start),
        Line::Interval(interval) => {
            let _ = writeln!(text, "── {:.1} s ──", interval.at_s);
            put_interval(&mut text, interval, topology);
        }
        Line::Summary(summary) => put_summary(&mut text, summary, topology),
    }
    text
}

fn put_start(text: &mut String, start: &Start) {
    for note in &start.notes {
        let _ = writeln!(text, "rondpoint: {note}");
    }
}

fn put_summary(text: &mut String, summary: &Summary, topology: &Topology) {
    let whole = &summary.whole;
    let what = match (summary.exit_status, summary.signal) {
        (Some(status), _) => format!("ended with status {status}"),
        (_, Some(signal)) => format!("killed by signal {signal}"),
        _ => "observed".to_string(),
    };
    let _ = writeln!(text, "── whole run: {what}, {:.2} s ──", whole.elapsed_s);
    put_interval(text, whole, topology);
    if let Some(touches) = summary.first_touches {
        let _ = writeln!(text, "pages touched for the first time: {touches}");
    }
    if !whole.kernel.is_empty() {
        let list: Vec<String> =
            whole.kernel.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = writeln!(text, "kernel, whole machine: {}", list.join(", "));
    }
    let _ = write!(text, "observing cost {:.3} s of CPU", summary.own_cpu_s);
    // A share of a moment says nothing: starting up costs more than watching.
    if whole.elapsed_s >= 1.0 {
        let _ = write!(text, " ({:.1} % of one)", 100.0 * summary.own_cpu_s / whole.elapsed_s);
    }
    text.push('\n');
}

fn put_interval(text: &mut String, interval: &Interval, topology: &Topology) {
    put_program(text, interval);
    let are_faults = interval.program.hint_faults_per_s.is_some();
    if let Some(rates) = &interval.program.accesses_per_us {
        put_matrix(text, "program, MB/s", LINE_BYTES as f64, rates, topology);
    }
    if let Some(rates) = &interval.program.hint_faults_per_s {
        put_matrix(text, "page faults/s", 1.0, rates, topology);
    }
    put_ratios(text, "program", &interval.program);
    if let Some(machine) = &interval.machine {
        if interval.program.accesses_per_us.is_none()
            && !are_faults
            && let Some(rates) = &machine.accesses_per_us
        {
            put_matrix(text, "machine, MB/s", LINE_BYTES as f64, rates, topology);
        }
        put_ratios(text, "machine", machine);
    }
    put_links(text, interval, topology);
    put_memory(text, interval, topology);
    put_samples(text, interval);
    let what = if are_faults { "page faults" } else { "accesses" };
    put_threads(text, &interval.threads, what);
}

fn put_program(text: &mut String, interval: &Interval) {
    let count = |number: usize, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let processes = count(interval.processes, "process", "processes");
    let threads = count(interval.thread_count, "thread", "threads");
    let cpu = interval.cpu_s.map_or(String::new(), |seconds| format!(", {seconds:.2} CPU s"));
    let rung = match interval.sensing.rung {
        Rung::Samples => "address samples",
        Rung::Counters => "counters",
        Rung::HintFaults => "page faults",
        Rung::Statistics => "kernel statistics",
    };
    let confidence = interval.sensing.confidence;
    let _ =
        writeln!(text, "{processes}, {threads}{cpu}; seen by {rung}, confidence {confidence:.2}");
}

/// Rows access, columns hold. A hundred nodes still make a table.
fn put_matrix(
    text: &mut String,
    title: &str,
    per_access: f64,
    rates: &[Vec<f64>],
    topology: &Topology,
) {
    let name = |node: usize| format!("node{}", topology.kernel_node(node));
    let _ = write!(text, "{title:<14}");
    for holding in 0..rates.len() {
        let _ = write!(text, "{:>10}", name(holding));
    }
    text.push_str("  (column: holds the memory)\n");
    for (accessing, row) in rates.iter().enumerate() {
        if topology.cpus_of_node(accessing).is_empty() {
            continue;
        }
        let _ = write!(text, "{:>14}", name(accessing));
        for rate in row {
            let _ = write!(text, "{:>10.1}", rate * per_access);
        }
        text.push('\n');
    }
}

fn put_ratios(text: &mut String, subject: &str, line: &TrafficLine) {
    let mut parts = Vec::new();
    let mut add = |value: Option<f64>, shown: &dyn Fn(f64) -> String| {
        parts.extend(value.map(shown));
    };
    add(line.lar_percent, &|percent| match line.hint_faults_per_s {
        Some(_) => format!("local {percent:.1} % of the page faults"),
        None => format!("local {percent:.1} % (LAR)"),
    });
    add(line.imbalance_percent, &|percent| format!("imbalance {percent:.1} % (MC-IMB)"));
    add(line.maptu, &|rate| format!("{rate:.2} accesses/µs (MAPTU)"));
    add(line.mrr_percent, &|percent| format!("reads {percent:.1} % (MRR)"));
    add(line.latency_cycles, &|cycles| format!("latency {cycles:.0} cycles"));
    if !parts.is_empty() {
        let _ = writeln!(text, "{subject}: {}", parts.join("  "));
    }
}

fn put_links(text: &mut String, interval: &Interval, topology: &Topology) {
    let Some(uses) = interval.link_use.as_ref().filter(|uses| !uses.is_empty()) else { return };
    let shown: Vec<String> = topology
        .links()
        .iter()
        .zip(uses)
        .map(|(link, share)| {
            let ends = (topology.kernel_node(link.from), topology.kernel_node(link.to));
            format!("{}→{} {:.0} %", ends.0, ends.1, 100.0 * share)
        })
        .collect();
    let imbalance = interval.link_imbalance_percent.unwrap_or(0.0);
    let _ = writeln!(text, "links: {}  imbalance {imbalance:.0} %", shown.join("  "));
}

fn put_memory(text: &mut String, interval: &Interval, topology: &Topology) {
    const MIB: f64 = (1u64 << 20) as f64;
    let Some(memory) = &interval.memory_bytes else { return };
    let nodes: Vec<String> = memory
        .iter()
        .enumerate()
        .map(|(node, bytes)| {
            format!("node{} {:.0}", topology.kernel_node(node), *bytes as f64 / MIB)
        })
        .collect();
    let faults =
        interval.faults_per_s.map_or(String::new(), |rate| format!("; {rate:.0} faults/s"));
    let _ = writeln!(text, "memory, MiB: {}{faults}", nodes.join("  "));
}

fn put_samples(text: &mut String, interval: &Interval) {
    let Some(samples) = &interval.samples else { return };
    if samples.lost == 0 && samples.bad_records == 0 && !samples.throttled {
        return;
    }
    let throttled = if samples.throttled { ", throttled by the kernel" } else { "" };
    let (taken, lost, bad) = (samples.taken, samples.lost, samples.bad_records);
    let _ = writeln!(text, "samples: {taken} taken, {lost} lost, {bad} unreadable{throttled}");
}

fn put_threads(text: &mut String, threads: &[ThreadLine], what: &str) {
    if threads.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{:>8} {:<15} {:>4} {:>4} {:>6} {:>5} {:>6} {:>5}  {what} by node",
        "thread", "name", "cpu", "node", "busy %", "ipc", "mpki", "home"
    );
    let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.2}"));
    for thread in threads.iter().take(SHOWN_THREADS) {
        let accesses = thread.accesses_by_node.as_ref().map_or("-".to_string(), |accesses| {
            accesses.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
        });
        let _ = writeln!(
            text,
            "{:>8} {:<15} {:>4} {:>4} {:>6.1} {:>5} {:>6} {:>5}  {accesses}",
            thread.tid,
            clean(thread.name.as_deref().unwrap_or("-")),
            thread.cpu,
            thread.node,
            100.0 * thread.busy,
            number(thread.ipc),
            number(thread.mpki),
            thread.home.map_or("-".to_string(), |home| home.to_string()),
        );
    }
    if threads.len() > SHOWN_THREADS {
        let _ = writeln!(text, "         and {} more", threads.len() - SHOWN_THREADS);
    }
}
