//! Frames from the daemon's answers.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Result;

use super::frame::{DecisionRow, Frame, LinkRow, News, NodeRow, ProcessRow, ThreadRow, Traffic};
use crate::control::client::Client;
use crate::control::protocol::{
    Decision, Event, ExplainReply, Mode, PidRequest, Process, State, Status, WatchReply,
    WatchRequest, method,
};

/// Decisions that are kept.
const MOST_DECISIONS: usize = 400;

/// What the daemon last said.
pub(super) struct Live {
    arriving: Receiver<Result<WatchReply>>,
    status: Option<Status>,
    decisions: VecDeque<Decision>,
    /// For the threads of one process.
    socket: std::path::PathBuf,
    opened: Option<ExplainReply>,
}

impl Live {
    /// Asks the daemon to tell what changes.
    ///
    /// # Errors
    /// No daemon answers.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let mut client = Client::connect(socket)?;
        client.send(method::WATCH, &WatchRequest::default(), true)?;
        let (sender, arriving) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let reply = match client.reply::<WatchReply>() {
                    Ok(Some((reply, _))) => Ok(reply),
                    Ok(None) => Err(anyhow::anyhow!("the daemon has ended")),
                    Err(error) => Err(error),
                };
                let over = reply.is_err();
                if sender.send(reply).is_err() || over {
                    return;
                }
            }
        });
        let socket = socket.to_path_buf();
        let (status, decisions, opened) = (None, VecDeque::new(), None);
        Ok(Self { arriving, status, decisions, socket, opened })
    }

    /// Takes in what has arrived. Returns whether something has.
    ///
    /// # Errors
    /// The daemon has ended, or its answer cannot be read.
    pub(super) fn take_in(&mut self, opened: Option<u32>) -> Result<bool> {
        let mut is_new = false;
        while let Ok(reply) = self.arriving.try_recv() {
            let WatchReply { status, decisions } = reply?;
            self.decisions.extend(decisions);
            let surplus = self.decisions.len().saturating_sub(MOST_DECISIONS);
            self.decisions.drain(..surplus);
            self.status = Some(status);
            is_new = true;
        }
        if is_new || self.opened.as_ref().map(|reply| reply.process.pid) != opened {
            self.opened = opened.and_then(|pid| self.explain(pid));
        }
        Ok(is_new)
    }

    /// A process with its threads; without them where the daemon refuses, as it does after the
    /// process has ended.
    fn explain(&self, pid: u32) -> Option<ExplainReply> {
        let mut client = Client::connect(&self.socket).ok()?;
        client.call(method::EXPLAIN, &PidRequest { pid }).ok()
    }

    /// What is on the screen.
    pub(super) fn frame(&self) -> Frame {
        match &self.status {
            None => Frame { source: "the daemon".to_string(), ..Frame::default() },
            Some(status) => frame(status, &self.decisions, self.opened.as_ref()).cleaned(),
        }
    }
}

/// What the daemon said, as a frame.
fn frame(status: &Status, decisions: &VecDeque<Decision>, opened: Option<&ExplainReply>) -> Frame {
    let mode = match (status.mode, status.paused) {
        (_, true) => "paused",
        (Mode::Observe, _) => "observes",
        (Mode::Act, _) if !status.acts => "does not act",
        (Mode::Act, _) if status.senses_too_little() => "cannot act",
        (Mode::Act, _) => "acts",
    };
    let mut processes: Vec<ProcessRow> = status.processes.iter().map(process).collect();
    if let Some(opened) = opened
        && let Some(row) = processes.iter_mut().find(|row| row.pid == opened.process.pid)
    {
        row.threads = opened.threads.iter().map(|one| thread(one, &status.nodes)).collect();
    }
    Frame {
        source: format!("daemon {mode}, {}", status.policies.join(", ")),
        at_s: status.running_s,
        sensing: format!("{}, confidence {:.2}", status.sensor.rung, status.sensor.confidence),
        local_percent: status.factor.local_share.map(|share| 100.0 * share),
        imbalance_percent: status.factor.imbalance_percent,
        latency: status.latency_ns.map(|ns| format!("{ns:.0} ns")),
        nodes: nodes(status),
        traffic: status.traffic_bytes_per_s.as_ref().map(|rows| Traffic {
            rows: rows.iter().map(|row| row.iter().map(|rate| rate / 1e9).collect()).collect(),
            unit: "GB/s",
        }),
        links: status
            .links
            .iter()
            .filter_map(|link| {
                let name = format!("{}→{}", link.from, link.to);
                Some(LinkRow { name, use_percent: 100.0 * link.use_share? })
            })
            .collect(),
        processes,
        decisions: decisions.iter().map(|one| decision(one, status)).collect(),
    }
}

fn nodes(status: &Status) -> Vec<NodeRow> {
    let all: f64 = status.nodes.iter().filter_map(|node| node.load_bytes_per_s).sum();
    let row = |node: &crate::control::protocol::Node| {
        let load = node.load_bytes_per_s;
        NodeRow {
            name: node.node.to_string(),
            cpus: node.cpus,
            memory_bytes: node.memory_bytes,
            free_bytes: node.free_bytes,
            cpu_percent: None,
            served_percent: load.filter(|_| all > 0.0).map(|load| 100.0 * load / all),
            full_percent: load
                .zip(node.capacity_bytes_per_s)
                .map(|(load, most)| 100.0 * load / most),
        }
    };
    status.nodes.iter().map(row).collect()
}

fn process(process: &Process) -> ProcessRow {
    let state = match process.state {
        State::Managed => "managed",
        State::Watched => "watched",
        State::Left => "left",
    };
    let why = process.exempt.as_ref().unwrap_or(&process.why);
    ProcessRow {
        pid: process.pid,
        name: process.name.clone(),
        state: if why.is_empty() { state.to_string() } else { format!("{state}: {why}") },
        cpu_percent: process.cpu_percent,
        lost_percent: process.lost_share.map(|share| 100.0 * share),
        least_lost_percent: process.least_lost_share.map(|share| 100.0 * share),
        causes: process.causes(),
        local_percent: process.local_share.map(|share| 100.0 * share),
        latency: process.latency_ns.map(|ns| format!("{ns:.0} ns")),
        resident_bytes: Some(process.resident_bytes),
        memory_by_node: process.memory_bytes.clone(),
        threads_by_node: process.threads_by_node.clone(),
        threads: Vec::new(),
    }
}

fn thread(
    thread: &crate::control::protocol::Thread,
    nodes: &[crate::control::protocol::Node],
) -> ThreadRow {
    ThreadRow {
        tid: thread.tid,
        name: thread.name.clone(),
        cpu: thread.cpu,
        node: nodes.iter().position(|node| node.node == thread.node).unwrap_or(0),
        cpu_percent: thread.cpu_percent,
        stalled_percent: None,
        accesses_by_node: thread.accesses_by_node.clone(),
    }
}

fn decision(decision: &Decision, status: &Status) -> DecisionRow {
    let news = match (decision.event, decision.action.as_str()) {
        (Event::Step, _) => News::Done,
        (Event::Held, _) => News::Held,
        (Event::Judged, "better" | "traded") => News::Better,
        (Event::Judged, "worse" | "no-way-back") => News::Worse,
        (Event::Judged, _) => News::Unclear,
    };
    let parts = [&decision.action, &decision.reason, &decision.detail];
    let said: Vec<&str> =
        parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let text = said.join("; ");
    DecisionRow {
        // The clock of the daemon's decisions is the machine's; the screen shows the daemon's.
        at_s: (decision.at_s - (status.at_s - status.running_s)).max(0.0),
        pid: decision.pid,
        news,
        text: if news == News::Held { format!("not done: {text}") } else { text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{Factor, Link, Node, Sensor};

    fn status() -> Status {
        Status {
            mode: Mode::Act,
            acts: true,
            policies: vec!["auto".to_string()],
            at_s: 1000.0,
            running_s: 40.0,
            sensor: Sensor { rung: "samples".to_string(), confidence: 0.9, ..Sensor::default() },
            nodes: vec![
                Node {
                    node: 0,
                    cpus: 4,
                    memory_bytes: 8 << 30,
                    load_bytes_per_s: Some(3e9),
                    capacity_bytes_per_s: Some(6e9),
                    ..Node::default()
                },
                Node {
                    node: 2,
                    cpus: 4,
                    memory_bytes: 8 << 30,
                    load_bytes_per_s: Some(1e9),
                    ..Node::default()
                },
            ],
            traffic_bytes_per_s: Some(vec![vec![2e9, 0.0], vec![1e9, 1e9]]),
            links: vec![Link { from: 0, to: 2, use_share: Some(0.25), ..Link::default() }],
            factor: Factor { lost_share: Some(0.3), local_share: Some(0.75), ..Factor::default() },
            processes: vec![Process {
                pid: 7,
                name: "a\u{1b}[31mpp".to_string(),
                lost_share: Some(0.31),
                lost_by_cause: [("link-queue".to_string(), 0.25)].into(),
                threads_by_node: vec![1, 3],
                ..Process::default()
            }],
            ..Status::default()
        }
    }

    #[test]
    fn a_frame_has_the_daemons_figures_in_the_units_of_the_screen() {
        let held = Decision {
            number: 1,
            at_s: 990.0,
            pid: Some(7),
            plan: 3,
            policy: "carrefour".to_string(),
            event: Event::Held,
            kind: "pages".to_string(),
            action: "move 4 pages".to_string(),
            reason: "imbalance 90 %".to_string(),
            detail: "too early".to_string(),
        };
        let frame = frame(&status(), &VecDeque::from([held]), None).cleaned();
        assert_eq!(frame.nodes[1].name, "2", "the kernel's number");
        assert_eq!(frame.nodes[0].served_percent, Some(75.0));
        assert_eq!((frame.nodes[0].full_percent, frame.nodes[1].full_percent), (Some(50.0), None));
        assert_eq!(frame.traffic.as_ref().map(|traffic| traffic.rows[1][0]), Some(1.0));
        assert_eq!(frame.processes[0].lost_percent, Some(31.0));
        assert_eq!(frame.processes[0].causes.as_deref(), Some("queue on a link 25 %"));
        assert_eq!(frame.processes[0].name, r"a\u{1b}[31mpp");
        assert_eq!(frame.decisions[0].at_s, 30.0);
        assert_eq!(frame.decisions[0].news, News::Held);
        assert!(frame.decisions[0].text.starts_with("not done: move 4 pages; imbalance"));
    }
}
