//! Frames from a recording: the present position, and moving back and forth.

use rondpoint_core::model::Rung;
use rondpoint_core::{Topology, trial};

use super::frame::{DecisionRow, Frame, LinkRow, News, NodeRow, ProcessRow, ThreadRow, Traffic};
use crate::story::lines::What;
use crate::story::{Known, Moment, Process, Story, Unit};

/// Moments before the shown one that have their decisions listed.
const MEMORY: usize = 600;
/// Decisions that are listed at most.
const MOST_DECISIONS: usize = 400;
/// The slowest and the fastest speed, in seconds of the recording for one.
const SPEEDS: [f64; 2] = [1.0 / 16.0, 256.0];

/// A recording that is being shown.
pub(super) struct Player {
    story: Story,
    name: String,
    /// Index of the moment on the screen.
    place: usize,
    /// Where between the moments the recording is; seconds.
    clock_s: f64,
    pub(super) playing: bool,
    /// Seconds of the recording for one.
    pub(super) speed: f64,
}

impl Player {
    /// At the beginning, playing. The recording has at least one look.
    pub(super) fn new(story: Story, name: String) -> Self {
        Self { story, name, place: 0, clock_s: 0.0, playing: true, speed: 1.0 }
    }

    /// Goes on by `seconds`, if it plays. Returns whether another moment is shown now.
    pub(super) fn pass(&mut self, seconds: f64) -> bool {
        if !self.playing {
            return false;
        }
        let before = self.place;
        self.clock_s = (self.clock_s + seconds * self.speed).min(self.story.seconds());
        self.place = self.story.place_at(self.clock_s).max(before);
        if self.place + 1 == self.story.moments.len() {
            self.playing = false;
        }
        self.place != before
    }

    /// Goes `looks` looks forward, or back, and stays there.
    pub(super) fn step(&mut self, looks: isize) {
        let last = self.story.moments.len() - 1;
        self.go_to(self.place.saturating_add_signed(looks).min(last));
    }

    pub(super) fn rewind(&mut self) {
        self.go_to(0);
    }

    pub(super) fn forward_to_end(&mut self) {
        self.go_to(self.story.moments.len() - 1);
    }

    /// Goes to the next moment, or the one before, at which something was done or judged.
    pub(super) fn seek_decision(&mut self, forward: bool) {
        let decides = |moment: &Moment| {
            let mut deeds = self.story.deeds_of(moment).iter();
            !moment.verdicts.is_empty() || deeds.any(crate::story::Deed::is_tried)
        };
        let moments = &self.story.moments;
        let place = match forward {
            true => (self.place + 1..moments.len()).find(|place| decides(&moments[*place])),
            false => (0..self.place).rev().find(|place| decides(&moments[*place])),
        };
        if let Some(place) = place {
            self.go_to(place);
        }
    }

    fn go_to(&mut self, place: usize) {
        self.place = place;
        self.clock_s = self.story.moments[place].at_s;
        self.playing = false;
    }

    pub(super) fn toggle(&mut self) {
        // At the end it begins anew.
        if !self.playing && self.place + 1 == self.story.moments.len() {
            self.rewind();
        }
        self.playing = !self.playing;
    }

    pub(super) fn change_speed(&mut self, factor: f64) {
        self.speed = (self.speed * factor).clamp(SPEEDS[0], SPEEDS[1]);
    }

    /// How far the recording is, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let all = self.story.seconds();
        if all > 0.0 { self.story.moments[self.place].at_s / all } else { 1.0 }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.story.seconds()
    }

    /// What is on the screen.
    pub(super) fn frame(&self) -> Frame {
        let moment = &self.story.moments[self.place];
        let mut frame = Frame {
            source: self.name.clone(),
            at_s: moment.at_s,
            sensing: "nothing was known: a window begins here".to_string(),
            nodes: nodes(&self.story, moment.known.as_ref()),
            decisions: decisions(&self.story, self.place),
            ..Frame::default()
        };
        if let Some(known) = &moment.known {
            fill(&mut frame, known, &self.story);
        }
        frame.cleaned()
    }
}

fn fill(frame: &mut Frame, known: &Known, story: &Story) {
    let sensor = match known.sensor {
        Rung::Samples => "samples",
        Rung::Counters => "counters",
        Rung::HintFaults => "hint faults",
        Rung::Statistics => "kernel statistics",
    };
    frame.sensing = format!("{sensor}, confidence {:.2}", known.confidence);
    frame.local_percent = known.local_percent;
    frame.imbalance_percent = known.imbalance_percent;
    frame.latency = known.latency_cycles.map(|cycles| format!("{cycles:.0} cycles"));
    frame.traffic = known.traffic_per_us.clone().map(|rows| Traffic {
        rows,
        unit: match known.unit {
            Unit::Requests => "requests/µs",
            Unit::HintFaults => "hint faults/µs",
        },
    });
    let uses = known.link_use.iter().flatten();
    let topology = &story.header.topology;
    let links = uses.zip(topology.links()).map(|(used, link)| LinkRow {
        name: format!("{}→{}", topology.kernel_node(link.from), topology.kernel_node(link.to)),
        use_percent: 100.0 * used,
    });
    frame.links = links.collect();
    frame.processes = known.processes.iter().map(|one| process(one, topology)).collect();
}

fn nodes(story: &Story, known: Option<&Known>) -> Vec<NodeRow> {
    let topology = &story.header.topology;
    let row = |node: usize| {
        let served = known.and_then(|known| known.controllers.get(node));
        NodeRow {
            name: topology.kernel_node(node).to_string(),
            cpus: topology.cpus_of_node(node).len() as u32,
            memory_bytes: topology.memory(node).0,
            free_bytes: known.and_then(|known| known.free_bytes.as_ref()?.get(node).copied()),
            cpu_percent: known.and_then(|known| cpu_percent(story, known, node)),
            served_percent: served.map(|served| served.of_all_percent),
            full_percent: served.and_then(|served| served.of_bandwidth_percent),
        }
    };
    (0..topology.node_count()).map(row).collect()
}

/// Use of a node's CPUs by the threads that the recording knows.
fn cpu_percent(story: &Story, known: &Known, node: usize) -> Option<f64> {
    let cpus = story.header.topology.cpus_of_node(node).len() as f64;
    let threads = known.processes.iter().flat_map(|process| &process.threads);
    let used: f64 = threads.filter(|one| one.node == node).map(|one| one.cpu_percent).sum();
    (cpus > 0.0).then(|| used / cpus)
}

fn process(process: &Process, topology: &Topology) -> ProcessRow {
    let threads = process.threads.iter().map(|thread| ThreadRow {
        tid: thread.tid,
        name: String::new(),
        cpu: topology.kernel_cpu(thread.cpu),
        node: thread.node,
        cpu_percent: thread.cpu_percent,
        stalled_percent: thread.stalled_percent,
        accesses_by_node: thread.accesses_by_node.clone(),
    });
    ProcessRow {
        pid: process.pid,
        name: String::new(),
        state: process.exempt.as_ref().map_or(String::new(), |why| format!("left: {why}")),
        cpu_percent: process.cpu_percent,
        lost_percent: process.lost.map(|lost| 100.0 * lost.likely),
        least_lost_percent: process.lost.map(|lost| 100.0 * lost.least),
        causes: process.causes(),
        local_percent: process.local_percent,
        latency: process.latency_cycles.map(|cycles| format!("{cycles:.0} cycles")),
        resident_bytes: process.memory_bytes.as_ref().map(|nodes| nodes.iter().sum()),
        memory_by_node: process.memory_bytes.clone(),
        threads_by_node: process.threads_by_node.clone(),
        threads: threads.collect(),
    }
}

fn decisions(story: &Story, place: usize) -> Vec<DecisionRow> {
    let mut lines = story.lines(place.saturating_sub(MEMORY)..place + 1, None);
    let surplus = lines.len().saturating_sub(MOST_DECISIONS);
    lines.drain(..surplus);
    let row = |line: crate::story::lines::Line<'_>| DecisionRow {
        at_s: line.at_s,
        pid: line.pid,
        news: match line.what {
            What::Done(_) => News::Done,
            What::Vetoed(_) => News::Held,
            What::Judged(verdict) => match verdict.verdict {
                trial::Verdict::Better | trial::Verdict::Traded => News::Better,
                trial::Verdict::Worse | trial::Verdict::NoWayBack => News::Worse,
                _ => News::Unclear,
            },
        },
        text: line.sentence(),
    };
    lines.into_iter().map(row).collect()
}
