//! One moment in full: measurements, proposals, actions and outcomes.

use std::fmt::Write as _;

use rondpoint_core::Topology;
use rondpoint_core::units::Bytes;

use super::Asked;
use super::timeline::head;
use crate::story::words::many;
use crate::story::{Known, Process, Unit};

/// Links that are named, the fullest first.
const MOST_LINKS: usize = 4;

impl Asked<'_> {
    /// The moment as text.
    pub(super) fn moment(&self, name: &str, place: usize) -> String {
        let moment = &self.story.moments[place];
        let mut text = head(self.story, name);
        let _ =
            writeln!(text, "\nlook {} at {:.3} s (line {})", moment.step, moment.at_s, moment.line);
        text += "\nknown\n";
        match &moment.known {
            Some(known) => put_known(&mut text, known, &self.story.header.topology, self.pid),
            None => text += "  nothing: a window begins here\n",
        }
        text += "\nwanted\n";
        let deeds: Vec<_> = self.deeds(place).collect();
        for deed in &deeds {
            let pid = deed.pid.map_or("machine".to_string(), |pid| format!("process {pid}"));
            let _ = writeln!(text, "  {pid}, {}: {}", deed.policy, deed.sentence());
        }
        if deeds.is_empty() {
            text += "  nothing\n";
        }
        if deeds.iter().any(|deed| deed.is_tried()) {
            text += "\ncame of it\n";
            self.put_outcome(&mut text, place);
        }
        text
    }

    fn put_outcome(&self, text: &mut String, place: usize) {
        let tried = || self.deeds(place).filter(|deed| deed.is_tried());
        let mut verdicts: Vec<usize> = tried().filter_map(|deed| deed.verdict).collect();
        verdicts.dedup();
        for verdict in verdicts.iter().filter_map(|place| self.story.verdicts.get(*place)) {
            let at_s = self.story.moments[verdict.moment].at_s;
            let _ = writeln!(
                text,
                "  process {}, judged at {at_s:.3} s: {}",
                verdict.pid,
                verdict.sentence()
            );
        }
        if tried().any(|deed| deed.verdict.is_none()) {
            text.push_str(
                "  not judged: its trial did not end before the recording or the process\n",
            );
        }
    }

    /// What a process lost at a moment, in one line; `None` where nothing is known of it.
    pub(super) fn state_of(&self, place: usize, pid: u32) -> Option<String> {
        let known = self.story.moments[place].known.as_ref()?;
        let process = known.process(pid)?;
        Some(format!("known: {}", state(known, process)))
    }
}

/// `loses 31 % …: local 25 %, 850 cycles, node 0 serves 97 % of all`.
fn state(known: &Known, process: &Process) -> String {
    let mut facts = Vec::new();
    if let Some(lost) = process.lost {
        facts.push(format!(
            "loses {:.0} % of its time to memory, at least {:.0} %",
            100.0 * lost.likely,
            100.0 * lost.least
        ));
    }
    if let Some(causes) = process.causes() {
        facts.push(format!("by the cost model: {causes}"));
    }
    if let Some(local) = process.local_percent {
        facts.push(format!("{local:.0} % of its accesses local"));
    }
    if let Some(latency) = process.latency_cycles {
        facts.push(format!("{latency:.0} cycles each"));
    }
    let busiest = known.controllers.iter().enumerate();
    let busiest = busiest.max_by(|a, b| a.1.of_all_percent.total_cmp(&b.1.of_all_percent));
    if let Some((place, served)) = busiest.filter(|(_, served)| served.of_all_percent > 0.0) {
        let full = served
            .of_bandwidth_percent
            .map_or(String::new(), |percent| format!(" at {percent:.0} % of its bandwidth"));
        let node = known.nodes.get(place).map_or(place as u64, |number| u64::from(*number));
        facts.push(format!("node {node} serves {:.0} % of all{full}", served.of_all_percent));
    }
    match facts.is_empty() {
        true => "little: no sensor shows the nodes of its accesses".to_string(),
        false => facts.join("; "),
    }
}

fn put_known(text: &mut String, known: &Known, topology: &Topology, pid: Option<u32>) {
    let _ = writeln!(
        text,
        "  {:.3} s by {}, confidence {:.2}",
        known.seconds,
        sensor(known),
        known.confidence
    );
    if let Some(rows) = &known.traffic_per_us {
        put_traffic(text, known, rows);
    }
    if let Some(uses) = &known.link_use {
        let mut links: Vec<(usize, f64)> = uses.iter().copied().enumerate().collect();
        links.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let shown: Vec<String> = links
            .iter()
            .take(MOST_LINKS)
            .filter_map(|(place, used)| {
                let link = topology.links().get(*place)?;
                let [from, to] = [link.from, link.to].map(|node| topology.kernel_node(node));
                Some(format!("{from}→{to} {:.0} %", 100.0 * used))
            })
            .collect();
        if !shown.is_empty() {
            let _ = writeln!(text, "  fullest links: {}", shown.join(", "));
        }
    }
    if let Some(free) = &known.free_bytes {
        let free: Vec<String> = free.iter().map(|bytes| Bytes(*bytes).to_string()).collect();
        let _ = writeln!(text, "  free by node: {}", free.join(", "));
    }
    for process in known.processes.iter().filter(|one| pid.is_none_or(|pid| one.pid == pid)) {
        put_process(text, known, process);
    }
}

fn sensor(known: &Known) -> &'static str {
    use rondpoint_core::model::Rung;
    match known.sensor {
        Rung::Samples => "address samples",
        Rung::Counters => "counters",
        Rung::HintFaults => "hint faults",
        Rung::Statistics => "kernel statistics",
    }
}

fn put_traffic(text: &mut String, known: &Known, rows: &[Vec<f64>]) {
    let unit = match known.unit {
        Unit::Requests => "requests/µs",
        Unit::HintFaults => "hint faults/µs",
    };
    let _ = writeln!(text, "  {unit}; the row accesses, the column holds the memory");
    let columns: String = known.nodes.iter().map(|node| format!("{node:>9}")).collect();
    let _ = writeln!(text, "  {:>6}{columns}", "node");
    for (node, row) in known.nodes.iter().zip(rows) {
        let cells: String = row.iter().map(|rate| format!("{rate:>9.3}")).collect();
        let _ = writeln!(text, "  {node:>6}{cells}");
    }
    let served: String =
        known.controllers.iter().map(|one| format!("{:>8.0}%", one.of_all_percent)).collect();
    let _ = writeln!(text, "  {:>6}{served}", "of all");
    if known.controllers.iter().any(|one| one.of_bandwidth_percent.is_some()) {
        let full = known.controllers.iter().map(|one| match one.of_bandwidth_percent {
            Some(percent) => format!("{percent:>8.0}%"),
            None => format!("{:>9}", "-"),
        });
        let _ = writeln!(text, "  {:>6}{}", "full", full.collect::<String>());
    }
    let known_facts = [
        known.local_percent.map(|percent| format!("local {percent:.0} %")),
        known.imbalance_percent.map(|percent| format!("imbalance {percent:.0} %")),
        known.latency_cycles.map(|cycles| format!("latency {cycles:.0} cycles")),
    ];
    let facts: Vec<String> = known_facts.into_iter().flatten().collect();
    if !facts.is_empty() {
        let _ = writeln!(text, "  {}", facts.join(", "));
    }
}

fn put_process(text: &mut String, known: &Known, process: &Process) {
    let list = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let threads: u32 = process.threads_by_node.iter().sum();
    let _ = writeln!(
        text,
        "  process {}: {:.0} % of a CPU, {} by node {}",
        process.pid,
        process.cpu_percent,
        many(threads.into(), "thread"),
        list(&process.threads_by_node)
    );
    let _ = writeln!(text, "    {}", state(known, process));
    if let Some(memory) = &process.memory_bytes {
        let memory: Vec<String> = memory.iter().map(|bytes| Bytes(*bytes).to_string()).collect();
        let _ = writeln!(text, "    memory by node: {}", memory.join(", "));
    }
    if let Some(why) = &process.exempt {
        let _ = writeln!(text, "    not to be touched: {why}");
    }
}
