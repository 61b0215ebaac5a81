//! The answer: each process over all windows, as recorded and as predicted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rondpoint_core::cost::{CAUSES, CostModel, Facts, Interval, Quote};
use rondpoint_core::{Model, Pid};
use serde::Serialize;

/// What would have been.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    file: String,
    question: String,
    /// What the numbers are.
    kind: &'static str,
    /// Seconds of the recording that could be priced.
    seconds: f64,
    /// Looks of the recording after its manager's first act, which are left out.
    looks_left_out: usize,
    processes: Vec<Process>,
}

/// One process.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    pid: u32,
    /// Seconds in which it ran and could be priced.
    seconds: f64,
    /// What its threads lost of their time as it was, in percent, by cause; the largest first.
    lost_percent: Vec<(String, f64)>,
    /// Speed that it would have had, 1.1 = 10 % faster.
    speed: Interval,
    /// Seconds that it would have taken less for the same work.
    saved_s: Interval,
    #[serde(skip)]
    lost_ns: [f64; CAUSES.len()],
}

impl Answer {
    pub(super) fn new(file: String, question: String) -> Self {
        let kind = "predicted";
        Self { file, question, kind, seconds: 0.0, looks_left_out: 0, processes: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Counts a look that shows the work of the recorded manager.
    pub(super) fn leave_out(&mut self) {
        self.looks_left_out += 1;
    }

    /// Adds a window.
    pub(super) fn add(&mut self, window: &Model, (facts, quote): (Facts, Quote)) {
        let seconds = window.elapsed.seconds();
        let now = CostModel.lost(&facts, &facts.everything());
        let changes: BTreeMap<Pid, Interval> =
            quote.changes.iter().map(|change| (change.pid, change.speed)).collect();
        if !now.processes.is_empty() {
            self.seconds += seconds;
        }
        for loss in &now.processes {
            // What a question leaves alone stays as it was.
            let change = changes.get(&loss.pid).copied().unwrap_or_default();
            let of = self.process(loss.pid.0);
            of.seconds += seconds;
            for (sum, ns) in of.lost_ns.iter_mut().zip(loss.ns_per_s) {
                *sum += ns * seconds;
            }
            let saved = |speed: f64| seconds - seconds / (1.0 + speed.max(-0.99));
            of.saved_s.least += saved(change.least);
            of.saved_s.likely += saved(change.likely);
            of.saved_s.most += saved(change.most);
            of.conclude();
        }
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        let place = match self.processes.binary_search_by_key(&pid, |one| one.pid) {
            Ok(place) => place,
            Err(place) => {
                self.processes.insert(place, Process::new(pid));
                place
            }
        };
        &mut self.processes[place]
    }

    /// The answer for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}: with {} (predicted, over {:.1} s)\n\n",
            self.file, self.question, self.seconds
        );
        let _ = writeln!(
            text,
            "{:>8} {:>8} {:>22} {:>24}  lost as it was",
            "process", "s", "speed", "s saved"
        );
        for of in &self.processes {
            let shown = |of: &Interval, digits: usize| {
                format!("{:.digits$} ({:.digits$} to {:.digits$})", of.likely, of.least, of.most)
            };
            let causes: Vec<String> = of
                .lost_percent
                .iter()
                .filter(|(_, percent)| *percent >= 1.0)
                .map(|(cause, percent)| format!("{percent:.0} % {cause}"))
                .collect();
            let causes = if causes.is_empty() { "nothing".to_string() } else { causes.join(", ") };
            let _ = writeln!(
                text,
                "{:>8} {:>8.1} {:>22} {:>24}  {causes}",
                of.pid,
                of.seconds,
                shown(&of.speed, 2),
                shown(&of.saved_s, 1)
            );
        }
        if self.looks_left_out > 0 {
            let _ = writeln!(
                text,
                "\n{} later looks are left out: the recorded manager had acted.",
                self.looks_left_out
            );
        }
        text
    }
}

impl Process {
    fn new(pid: u32) -> Self {
        Self {
            pid,
            seconds: 0.0,
            lost_percent: Vec::new(),
            speed: Interval { least: 1.0, likely: 1.0, most: 1.0 },
            saved_s: Interval::default(),
            lost_ns: [0.0; CAUSES.len()],
        }
    }

    fn conclude(&mut self) {
        let speed = |saved: f64| self.seconds / (self.seconds - saved).max(1e-9);
        self.speed = Interval {
            least: speed(self.saved_s.least),
            likely: speed(self.saved_s.likely),
            most: speed(self.saved_s.most),
        };
        let share = |ns: f64| 100.0 * ns / (1e9 * self.seconds);
        let all = CAUSES.iter().zip(self.lost_ns);
        self.lost_percent = all.map(|(cause, ns)| (cause.to_string(), share(ns))).collect();
        self.lost_percent.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
}
