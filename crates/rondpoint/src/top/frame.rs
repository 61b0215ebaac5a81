//! The content of one screen, from a recording, the daemon or the kernel's statistics. Text from
//! outside is cleaned here.

use crate::terminal;

/// One moment of one machine. What was not sensed is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    /// Where it comes from, in a few words.
    pub(super) source: String,
    pub(super) at_s: f64,
    /// Sensor and confidence, or why nothing is known.
    pub(super) sensing: String,
    pub(super) local_percent: Option<f64>,
    pub(super) imbalance_percent: Option<f64>,
    /// Of an access to memory, with its unit.
    pub(super) latency: Option<String>,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) traffic: Option<Traffic>,
    pub(super) links: Vec<LinkRow>,
    pub(super) processes: Vec<ProcessRow>,
    /// In order; the last is the newest.
    pub(super) decisions: Vec<DecisionRow>,
}

/// A memory node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeRow {
    /// The number to show.
    pub(super) name: String,
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
    pub(super) free_bytes: Option<u64>,
    /// Use of its CPUs.
    pub(super) cpu_percent: Option<f64>,
    /// Of all traffic, what its memory serves.
    pub(super) served_percent: Option<f64>,
    /// Use of its controller.
    pub(super) full_percent: Option<f64>,
}

/// Traffic between nodes: the accessing node and the node that holds the memory.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    /// `[accessing][holding]`.
    pub(super) rows: Vec<Vec<f64>>,
    pub(super) unit: &'static str,
}

/// A directed link.
#[derive(Debug, Clone)]
pub(super) struct LinkRow {
    pub(super) name: String,
    pub(super) use_percent: f64,
}

/// A process.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessRow {
    pub(super) pid: u32,
    pub(super) name: String,
    /// Whether it is managed, and why not.
    pub(super) state: String,
    pub(super) cpu_percent: f64,
    /// Share of its time that it loses to memory that is far or crowded.
    pub(super) lost_percent: Option<f64>,
    pub(super) least_lost_percent: Option<f64>,
    /// What it loses by cause, where a cost model says so.
    pub(super) causes: Option<String>,
    pub(super) local_percent: Option<f64>,
    pub(super) latency: Option<String>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) memory_by_node: Option<Vec<u64>>,
    pub(super) threads_by_node: Vec<u32>,
    /// The busiest threads, where they are known.
    pub(super) threads: Vec<ThreadRow>,
}

/// A thread.
#[derive(Debug, Clone)]
pub(super) struct ThreadRow {
    pub(super) tid: u32,
    pub(super) name: String,
    pub(super) cpu: u32,
    /// Place of its node among the frame's nodes.
    pub(super) node: usize,
    pub(super) cpu_percent: f64,
    pub(super) stalled_percent: Option<f64>,
    /// Sampled accesses by holding node.
    pub(super) accesses_by_node: Option<Vec<u32>>,
}

/// What kind of news a decision is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Done,
    Held,
    Better,
    Worse,
    Unclear,
}

/// A decision.
#[derive(Debug, Clone)]
pub(super) struct DecisionRow {
    pub(super) at_s: f64,
    pub(super) pid: Option<u32>,
    pub(super) news: News,
    pub(super) text: String,
}

impl Frame {
    /// The process with this number.
    pub(super) fn process(&self, pid: u32) -> Option<&ProcessRow> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// The same with nothing that acts on a terminal.
    pub(super) fn cleaned(mut self) -> Self {
        let clean = |text: &mut String| {
            if let std::borrow::Cow::Owned(cleaned) = terminal::clean(text) {
                *text = cleaned;
            }
        };
        clean(&mut self.source);
        clean(&mut self.sensing);
        for process in &mut self.processes {
            clean(&mut process.name);
            clean(&mut process.state);
            process.threads.iter_mut().for_each(|thread| clean(&mut thread.name));
        }
        self.decisions.iter_mut().for_each(|decision| clean(&mut decision.text));
        self
    }
}

impl ProcessRow {
    /// Whether it has threads or memory on a node.
    pub(super) fn is_on(&self, node: usize) -> bool {
        let threads = self.threads_by_node.get(node).is_some_and(|count| *count > 0);
        let memory = self.memory_by_node.as_ref().and_then(|memory| memory.get(node));
        threads || memory.is_some_and(|bytes| *bytes > 0)
    }
}
