//! The daemon's answers as text for people.

use std::fmt::Write as _;

use ratatui::text::Span;
use rondpoint_core::Bytes;

use super::protocol::{
    Decision, Event, ExplainReply, Mode, Node, Process, State, Status, Thread, Totals, Verdicts,
};
use crate::story::words::many;
use crate::terminal::clean;

/// Processes and threads shown; JSON has the rest.
const SHOWN: usize = 20;

/// The state in some thirty lines.
pub(super) fn status(status: &Status) -> String {
    let mut text = String::new();
    let does = match (status.mode, status.paused) {
        (Mode::Observe, _) => "observes and changes nothing",
        (Mode::Act, true) => "is paused and changes nothing",
        (Mode::Act, false) if !status.acts => "does not act for now",
        (Mode::Act, false) if status.senses_too_little() => {
            "changes nothing, for it senses by kernel statistics alone"
        }
        (Mode::Act, false) => "acts",
    };
    let _ = writeln!(
        text,
        "daemon {} {does}; policy {}; up {}; {:.1} % of a CPU, {}; version {}",
        status.pid,
        status.policies.join(","),
        duration(status.running_s),
        100.0 * status.own.cpu_share,
        Bytes(status.own.resident_bytes),
        status.version,
    );
    for note in status.sensor.notes.iter().chain(&status.problems) {
        let _ = writeln!(text, "note: {note}");
    }
    for other in &status.others {
        let _ = writeln!(text, "note: {}", other.what);
    }
    let _ = writeln!(text, "NUMA: {}", factor(status));
    nodes(&mut text, &status.nodes);
    processes(&mut text, &status.processes);
    let _ = writeln!(text, "{}", done(&status.totals));
    text
}

/// What was done so far; kinds that did not happen are left out.
fn done(totals: &Totals) -> String {
    let mut parts: Vec<String> = [
        (totals.page_steps, "move", " of pages"),
        (totals.bulk_steps, "move", " of whole processes"),
        (totals.thread_steps, "mask", " given to threads"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, of)| many(count, one) + of)
    .collect();
    if parts.is_empty() {
        parts.push("nothing so far".to_string());
    }
    if totals.moved_bytes > 0 {
        parts.push(format!("{} moved", Bytes(totals.moved_bytes)));
    }
    let held = many(totals.held, "proposal");
    format!("done: {}; {held} held back; {}", parts.join(", "), verdicts(&totals.verdicts))
}

fn factor(status: &Status) -> String {
    let factor = &status.factor;
    if status.nodes.len() < 2 {
        return "one memory node: placement is no factor here".to_string();
    }
    let mut parts = Vec::new();
    match (factor.lost_share, factor.least_lost_share) {
        (Some(likely), Some(least)) if is_open(likely, least) => parts.push(format!(
            "the managed processes lose up to {:.0} % of their CPU time to placement, or nothing: \
             too few samples to tell",
            100.0 * likely
        )),
        (Some(likely), Some(least)) => parts.push(format!(
            "the managed processes lose {:.1} % of their CPU time to placement (at least {:.1} %)",
            100.0 * likely,
            100.0 * least
        )),
        _ => parts.push("what placement costs is not sensed here".to_string()),
    }
    if let Some(local) = factor.local_share {
        parts.push(format!("{:.0} % of accesses are local", 100.0 * local));
    }
    if let Some(imbalance) = factor.imbalance_percent {
        parts.push(format!("imbalance of the controllers {imbalance:.0} %"));
    }
    parts.join("; ")
}

/// Whether a loss may as well be none, by what little was sampled.
fn is_open(likely: f64, least: f64) -> bool {
    const TOLD: f64 = 0.005;
    least < TOLD && likely >= TOLD
}

fn nodes(text: &mut String, nodes: &[Node]) {
    let _ = writeln!(
        text,
        "{:>5} {:>5} {:>10} {:>10} {:>12}",
        "node", "CPUs", "memory", "free", "load/s"
    );
    for node in nodes {
        let _ = writeln!(
            text,
            "{:>5} {:>5} {:>10} {:>10} {:>12}",
            node.node,
            node.cpus,
            Bytes(node.memory_bytes).to_string(),
            known(node.free_bytes.map(|free| Bytes(free).to_string())),
            known(node.load_bytes_per_s.map(|load| Bytes(load as u64).to_string())),
        );
    }
}

fn processes(text: &mut String, processes: &[Process]) {
    if processes.is_empty() {
        let _ = writeln!(text, "no process is managed, of those that you may see");
        return;
    }
    let _ = writeln!(
        text,
        "{:>8} {:<16} {:<8} {:>7} {:>7} {:>9} {:>6} {:>6}  why",
        "pid", "name", "state", "threads", "CPU", "memory", "local", "lost"
    );
    let mut busiest: Vec<&Process> = processes.iter().collect();
    let rank = |process: &Process| (process.state == State::Left, -process.cpu_percent);
    busiest.sort_by(|a, b| {
        let ((left_a, cpu_a), (left_b, cpu_b)) = (rank(a), rank(b));
        left_a.cmp(&left_b).then(cpu_a.total_cmp(&cpu_b)).then(a.pid.cmp(&b.pid))
    });
    for process in busiest.iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "{:>8} {} {:<8} {:>7} {:>6.0}% {:>9} {:>6} {:>6}  {}",
            process.pid,
            column(&clean(&process.name), 16),
            state(process.state),
            process.threads,
            process.cpu_percent,
            Bytes(process.resident_bytes).to_string(),
            known(process.local_share.map(percent)),
            lost(process),
            process.why,
        );
    }
    if busiest.len() > SHOWN {
        let _ = writeln!(text, "{:>8} more: --json has all", busiest.len() - SHOWN);
    }
}

/// A name filled up to `width` cells of the terminal, of which a wide letter takes two.
fn column(name: &str, width: usize) -> String {
    let gap = width.saturating_sub(Span::raw(name).width());
    format!("{name}{:gap$}", "")
}

/// `31%`, `<81%` where it may as well be nothing, `-` where it is not known.
fn lost(process: &Process) -> String {
    let likely = process.lost_share;
    let is_open = likely.zip(process.least_lost_share).is_some_and(|(a, b)| is_open(a, b));
    let bound = if is_open { "<" } else { "" };
    known(likely.map(|share| format!("{bound}{}", percent(share))))
}

/// One process in detail.
pub(super) fn explanation(reply: &ExplainReply) -> String {
    let (nodes, process) = (&reply.nodes[..], &reply.process);
    let mut text = format!(
        "process {} ({}, user {}): {}, {}\n",
        process.pid,
        clean(&process.name),
        process.user,
        state(process.state),
        process.why
    );
    if let Some(exempt) = &process.exempt {
        let _ = writeln!(text, "not touched: {exempt}");
    }
    if let Some(cgroup) = &process.cgroup {
        let _ = writeln!(text, "cgroup {cgroup}");
    }
    let memory = match &process.memory_bytes {
        Some(memory) => by_node(nodes, memory.iter().map(|bytes| Bytes(*bytes).to_string())),
        None => Bytes(process.resident_bytes).to_string(),
    };
    let _ = writeln!(text, "memory: {memory}");
    let threads = by_node(nodes, process.threads_by_node.iter().map(u32::to_string));
    let _ = writeln!(text, "threads: {threads}; {:.0} % CPU", process.cpu_percent);
    if let (Some(likely), Some(least)) = (process.lost_share, process.least_lost_share) {
        let _ = writeln!(
            text,
            "lost to placement: {:.1} % of its CPU time (at least {:.1} %)",
            100.0 * likely,
            100.0 * least
        );
    }
    if let Some(causes) = process.causes() {
        let _ = writeln!(text, "by the cost model: {causes}");
    }
    if let Some(local) = process.local_share {
        let _ = writeln!(text, "local accesses: {}", percent(local));
    }
    put_threads(&mut text, nodes, &reply.threads);
    let _ = writeln!(
        text,
        "moved: {}, {}; {}",
        Bytes(process.moved_bytes),
        many(process.moved_threads, "thread"),
        verdicts(&process.verdicts)
    );
    for decision in &reply.decisions {
        let _ = writeln!(text, "{}", line(decision));
    }
    text
}

fn put_threads(text: &mut String, nodes: &[u32], threads: &[Thread]) {
    let mut busiest: Vec<&Thread> = threads.iter().collect();
    busiest.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then(a.tid.cmp(&b.tid)));
    for thread in busiest.iter().take(SHOWN) {
        let accesses = thread.accesses_by_node.as_ref().map_or(String::new(), |counts| {
            format!(", accesses to {}", by_node(nodes, counts.iter().map(u32::to_string)))
        });
        let exempt = thread.exempt.as_ref().map_or(String::new(), |why| format!(", {why}"));
        let _ = writeln!(
            text,
            "  thread {} {}: CPU {} of node {}, {:.0} %{accesses}{exempt}",
            thread.tid,
            clean(&thread.name),
            thread.cpu,
            thread.node,
            thread.cpu_percent
        );
    }
    if busiest.len() > SHOWN {
        let more = many((busiest.len() - SHOWN) as u64, "more thread");
        let _ = writeln!(text, "  {more}: --json has all");
    }
}

/// A decision on one line.
pub(crate) fn line(decision: &Decision) -> String {
    let what = match decision.event {
        Event::Step => "",
        Event::Held => "held back: ",
        Event::Judged => "judged: ",
    };
    let reason = match decision.reason.is_empty() {
        true => String::new(),
        false => format!(" ({})", decision.reason),
    };
    format!(
        "{:>9.1} s  {:<10} {what}{}{reason}: {}",
        decision.at_s, decision.policy, decision.action, decision.detail
    )
}

fn state(state: State) -> &'static str {
    match state {
        State::Managed => "managed",
        State::Watched => "watched",
        State::Left => "left",
    }
}

fn verdicts(found: &Verdicts) -> String {
    format!(
        "trials: {} better, {} worse and taken back, {} unclear, {} other",
        found.better, found.worse, found.unclear, found.other
    )
}

/// `3 on node 0, 4 on node 8`. `nodes` are the kernel's numbers.
fn by_node(nodes: &[u32], values: impl Iterator<Item = String>) -> String {
    let name = |place: usize| nodes.get(place).map_or(place as u64, |number| u64::from(*number));
    let one = |(place, value): (usize, String)| format!("{value} on node {}", name(place));
    values.enumerate().map(one).collect::<Vec<_>>().join(", ")
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_string())
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{} min", whole / 60),
        3_600..172_800 => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
        _ => format!("{} days", whole / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Factor, STATISTICS, Sensor};
    use super::*;

    #[test]
    fn what_was_done_is_told_in_the_singular_and_in_the_plural() {
        let told = |totals: &Totals| done(totals).split("; trials").next().unwrap().to_string();
        let one = Totals { page_steps: 1, held: 1, moved_bytes: 4096, ..Totals::default() };
        assert_eq!(told(&one), "done: 1 move of pages, 4.0 KiB moved; 1 proposal held back");
        let two = Totals { thread_steps: 2, bulk_steps: 1, held: 2, ..Totals::default() };
        let expected = "done: 1 move of whole processes, 2 masks given to threads; \
                        2 proposals held back";
        assert_eq!(told(&two), expected);
        let nothing = "done: nothing so far; 0 proposals held back";
        assert_eq!(told(&Totals::default()), nothing);
    }

    /// Every user chooses names, which may contain line ends.
    #[test]
    fn a_name_makes_no_line_of_its_own() {
        let name = "x\n  1 root \u{1b}[31m".to_string();
        let process = Process { name: name.clone(), ..Process::default() };
        let mut table = String::new();
        processes(&mut table, std::slice::from_ref(&process));
        let threads = vec![Thread { name, ..Thread::default() }];
        let reply = ExplainReply { process, threads, ..ExplainReply::default() };
        let shown = explanation(&reply);
        let told = r"x\n  1 root \u{1b}[31m";
        assert_eq!((table.lines().count(), table.matches(told).count()), (2, 1), "{table}");
        assert_eq!(shown.matches(told).count(), 2, "{shown}");
        assert!(!shown.contains("\n  1 root"), "{shown}");
    }

    #[test]
    fn wide_letters_keep_the_columns() {
        let process = |name: &str| Process { name: name.to_string(), ..Process::default() };
        let mut table = String::new();
        processes(&mut table, &["数据库", "ascii"].map(process));
        let state = state(State::default());
        let before = table.lines().filter_map(|line| line.split_once(state));
        let cells: Vec<usize> = before.map(|(before, _)| Span::raw(before).width()).collect();
        assert!(cells.len() == 2 && cells[0] == cells[1], "{table}");
    }

    #[test]
    fn nodes_have_the_kernels_numbers() {
        let process = Process {
            memory_bytes: Some(vec![4096, 8192]),
            threads_by_node: vec![3, 1],
            ..Process::default()
        };
        let reply = ExplainReply { nodes: vec![0, 8], process, ..ExplainReply::default() };
        let shown = explanation(&reply);
        assert!(shown.contains("memory: 4.0 KiB on node 0, 8.0 KiB on node 8"), "{shown}");
        assert!(shown.contains("threads: 3 on node 0, 1 on node 8"), "{shown}");
    }

    #[test]
    fn what_is_lost_is_told_by_cause() {
        let lost = [("waiting-for-cpu", 0.0), ("remote-dram", 0.02), ("controller-queue", 0.37)];
        let lost_by_cause = lost.map(|(cause, share)| (cause.to_string(), share)).into();
        let process = Process { lost_by_cause, ..Process::default() };
        let shown = explanation(&ExplainReply { process, ..ExplainReply::default() });
        let line = "\nby the cost model: queue at a memory controller 37 %, remote memory 2 %\n";
        assert!(shown.contains(line), "{shown}");
        assert!(!explanation(&ExplainReply::default()).contains("cost model"));
    }

    #[test]
    fn a_loss_that_may_be_none_is_told_as_a_bound() {
        let told = |likely, least| {
            let (lost_share, least_lost_share) = (Some(likely), Some(least));
            let process = Process { lost_share, least_lost_share, ..Process::default() };
            let factor = Factor { lost_share, least_lost_share, ..Factor::default() };
            let nodes = vec![Node::default(); 2];
            (lost(&process), super::factor(&Status { factor, nodes, ..Status::default() }))
        };
        let (row, line) = told(0.81, 0.0);
        assert!(row == "<81%" && line.contains("lose up to 81 %"), "{row} {line}");
        let (row, line) = told(0.81, 0.6);
        assert!(row == "81%" && line.contains("lose 81.0 %"), "{row} {line}");
        assert_eq!(told(0.0, 0.0).0, "0%");
    }

    #[test]
    fn a_daemon_that_senses_too_little_to_act_says_so() {
        let head = |rung: &str, confidence| {
            let sensor = Sensor { rung: rung.to_string(), confidence, ..Sensor::default() };
            let acting = Status { mode: Mode::Act, acts: true, ..Status::default() };
            let shown = status(&Status { sensor, ..acting });
            shown.lines().next().unwrap().to_string()
        };
        let alone = head(STATISTICS, 0.3);
        assert!(alone.contains("changes nothing, for it senses by kernel statistics"), "{alone}");
        assert!(head(STATISTICS, 0.0).contains(" acts;"), "it has not looked yet");
        assert!(head("samples", 0.6).contains(" acts;"));
    }
}
