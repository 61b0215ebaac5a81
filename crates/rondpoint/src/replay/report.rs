//! The result of a replay, as text and as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use rondpoint_core::Nanos;
use rondpoint_trace::{Decision, Difference, Extent, Header, PolicyChoice, Retaken, Truncated};
use serde_json::{Value, json};

/// Version of the printed JSON.
const JSON_VERSION: u32 = 1;
/// Characters of a value that are shown; the rest is in the JSON.
const SHOWN: usize = 160;

/// What a replay found.
pub(super) struct Report {
    file: PathBuf,
    header: Header,
    /// Whether the recorded policies decided again, or others.
    compared: bool,
    /// Whether plans are kept.
    keep: bool,
    began: Option<Nanos>,
    steps: u64,
    /// Steps without a recorded decision.
    undecided: u64,
    with_actions: u64,
    sum: Extent,
    judged: usize,
    differing: u64,
    first: Option<Differing>,
    plans: Vec<Kept>,
    panicked: Option<Panicked>,
    truncated: Option<Truncated>,
}

/// The step on which the controller panicked, and what it said.
struct Panicked {
    number: u64,
    line: u64,
    at: Nanos,
    message: String,
}

/// The first step that is decided otherwise.
struct Differing {
    difference: Difference,
    step: Kept,
}

/// A step with both decisions.
#[derive(Clone)]
struct Kept {
    number: u64,
    line: u64,
    at: Nanos,
    recorded: Option<Decision>,
    now: Decision,
}

impl Report {
    /// Of no step yet. `keep`: every plan that is not empty is shown.
    pub(super) fn new(file: PathBuf, header: Header, compared: bool, keep: bool) -> Self {
        Self {
            file,
            header,
            compared,
            keep,
            began: None,
            steps: 0,
            undecided: 0,
            with_actions: 0,
            sum: Extent::default(),
            judged: 0,
            differing: 0,
            first: None,
            plans: Vec::new(),
            panicked: None,
            truncated: None,
        }
    }

    /// Takes in a step that was taken again.
    pub(super) fn take_in(&mut self, retaken: &Retaken<'_>) {
        let now = Decision::from(retaken.now);
        self.steps += 1;
        self.undecided += u64::from(retaken.recorded.is_none());
        self.began.get_or_insert(retaken.at);
        self.judged += now.judged();
        let extent = now.extent();
        self.with_actions += u64::from(extent.actions > 0);
        self.sum.actions += extent.actions;
        self.sum.pages += extent.pages;
        self.sum.threads += extent.threads;
        let recorded = retaken.recorded.filter(|_| self.compared);
        let difference = recorded.and_then(|recorded| recorded.difference(&now));
        let shown = self.keep && (difference.is_some() || !now.text().is_empty());
        let first = self.first.is_none() && difference.is_some();
        self.differing += u64::from(difference.is_some());
        if !shown && !first {
            return;
        }
        let step = Kept {
            number: retaken.number,
            line: retaken.line,
            at: retaken.at,
            recorded: recorded.filter(|_| difference.is_some()).cloned(),
            now,
        };
        if let Some(difference) = difference.filter(|_| first) {
            self.first = Some(Differing { difference, step: step.clone() });
        }
        if shown {
            self.plans.push(step);
        }
    }

    /// The file ended in the middle of a line.
    pub(super) fn end(&mut self, truncated: Option<Truncated>) {
        self.truncated = truncated;
    }

    /// The controller panicked on this step (number, line, time) and decided nothing more.
    pub(super) fn panicked(&mut self, (number, line, at): (u64, u64, Nanos), message: String) {
        self.began.get_or_insert(at);
        self.panicked = Some(Panicked { number, line, at, message });
    }

    /// Whether a step is decided otherwise, or not at all.
    pub(super) fn differs(&self) -> bool {
        self.first.is_some() || self.panicked.is_some()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}: {}, {}; policy {}; seed {}; written by {}",
            self.file.display(),
            many(self.header.topology.node_count(), "node"),
            many(self.header.topology.cpu_count(), "CPU"),
            self.policies().join(", "),
            self.header.seed,
            self.header.written_by
        );
        for step in &self.plans {
            self.put_step(&mut text, step);
        }
        if let Some(first) = &self.first {
            self.put_first(&mut text, first);
        }
        if let Some(Panicked { number, line, at, message }) = &self.panicked {
            let _ = writeln!(text, "\n{}: {message}", self.title(*number, *line, *at));
        }
        if let Some(Truncated { line, bytes }) = self.truncated {
            let _ = writeln!(
                text,
                "\nline {line} is cut off after {bytes} bytes: what came later was not recorded"
            );
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    fn policies(&self) -> Vec<String> {
        self.header.policies.iter().map(PolicyChoice::to_string).collect()
    }

    fn title(&self, number: u64, line: u64, at: Nanos) -> String {
        let since = at.since(self.began.unwrap_or_default());
        format!("step {number} at {:.3} s (line {line})", since.seconds())
    }

    fn title_of(&self, step: &Kept) -> String {
        self.title(step.number, step.line, step.at)
    }

    fn put_step(&self, text: &mut String, step: &Kept) {
        let _ = writeln!(text, "\n{}", self.title_of(step));
        match &step.recorded {
            None => text.push_str(&step.now.text()),
            Some(recorded) => {
                let _ = write!(text, " recorded:\n{}", decided(recorded));
                let _ = write!(text, " now:\n{}", decided(&step.now));
            }
        }
    }

    fn put_first(&self, text: &mut String, first: &Differing) {
        let Difference { path, recorded, now } = &first.difference;
        let _ = writeln!(text, "\nfirst difference: {}", self.title_of(&first.step));
        let _ = writeln!(text, "  {path}");
        let _ = writeln!(text, "  recorded: {}", shown(recorded.as_ref()));
        let _ = writeln!(text, "  now:      {}", shown(now.as_ref()));
        if !self.keep {
            let _ = writeln!(text, "  (--plans shows both plans)");
        }
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "{}, {} with actions: {}, {}; {} judged",
            many(self.steps as usize, "step"),
            self.with_actions,
            many(self.sum.pages, "page"),
            many(self.sum.threads, "thread"),
            many(self.judged, "trial"),
        );
        if !self.compared {
            return text;
        }
        text += &match self.differing {
            0 => "; every decision as recorded".to_string(),
            count => format!("; {} decided otherwise", many(count as usize, "step")),
        };
        if self.panicked.is_some() {
            text += "; the controller panicked on the next";
        }
        if self.undecided > 0 {
            text += ", the last decision was not recorded";
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let first = self.first.as_ref().map(|first| {
            let mut value = self.step_json(&first.step);
            value["path"] = json!(first.difference.path);
            value["recorded"] = json!(first.difference.recorded);
            value["now"] = json!(first.difference.now);
            value
        });
        let panicked = self.panicked.as_ref().map(|Panicked { number, line, at, message }| {
            json!({ "step": number, "line": line, "at_ns": at.0, "message": message })
        });
        let truncated = self.truncated.map(|end| json!({ "line": end.line, "bytes": end.bytes }));
        let mut all = json!({
            "version": JSON_VERSION,
            "file": self.file.display().to_string(),
            "written_by": self.header.written_by,
            "nodes": self.header.topology.node_count(),
            "cpus": self.header.topology.cpu_count(),
            "policies": self.policies(),
            "seed": self.header.seed,
            "steps": self.steps,
            "steps_undecided": self.undecided,
            "steps_with_actions": self.with_actions,
            "actions": self.sum.actions,
            "pages": self.sum.pages,
            "threads": self.sum.threads,
            "trials_judged": self.judged,
            "panicked": panicked,
            "truncated": truncated,
        });
        if self.compared {
            all["steps_differing"] = json!(self.differing);
            all["first_difference"] = json!(first);
        }
        if self.keep {
            let plan = |step: &Kept| {
                let mut value = self.step_json(step);
                value["now"] = step.now.json();
                if let Some(recorded) = &step.recorded {
                    value["recorded"] = recorded.json();
                }
                value
            };
            all["plans"] = self.plans.iter().map(plan).collect();
        }
        format!("{all:#}\n")
    }

    fn step_json(&self, step: &Kept) -> Value {
        json!({ "step": step.number, "line": step.line, "at_ns": step.at.0 })
    }
}

fn decided(decision: &Decision) -> String {
    match decision.text() {
        text if text.is_empty() => "  nothing to do\n".to_string(),
        text => text,
    }
}

/// A value in one line that fits a screen.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_string() };
    let whole = value.to_string();
    match whole.char_indices().nth(SHOWN) {
        None => whole,
        Some((end, _)) => format!("{}…", &whole[..end]),
    }
}

/// `1 page`, `2 pages`.
fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
