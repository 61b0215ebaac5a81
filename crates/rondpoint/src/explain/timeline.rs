//! The whole run: a line for each action and verdict, and one for each veto however often it came.

use std::fmt::Write as _;

use super::Asked;
use crate::story::words::many;
use crate::story::{Deed, Kind, Story};

/// A line of the timeline.
struct Line<'a> {
    at_s: f64,
    pid: Option<u32>,
    text: String,
    veto: Option<Repeated<'a>>,
}

/// A veto that may come again.
struct Repeated<'a> {
    deed: &'a Deed,
    times: u64,
    until_s: f64,
}

/// What makes two vetoes the same.
fn same(a: &Deed, b: &Deed) -> bool {
    let key = |deed: &Deed| (deed.pid, deed.kind, deed.veto.as_ref().map(|v| v.rule.clone()));
    a.policy == b.policy && key(a) == key(b)
}

impl Asked<'_> {
    /// The timeline as text.
    pub(super) fn timeline(&self, name: &str) -> String {
        let mut text = head(self.story, name);
        let lines = self.lines();
        if lines.is_empty() {
            text += "\nnothing was wanted\n";
            return text;
        }
        text.push('\n');
        let pids = lines.iter().filter_map(|line| line.pid).map(|pid| pid.to_string().len());
        let width = pids.max().unwrap_or(1);
        for line in lines {
            let pid = line.pid.map_or("-".to_string(), |pid| pid.to_string());
            let times = match &line.veto {
                Some(Repeated { times, until_s, .. }) if *times > 1 => {
                    format!(" ({times} times until {until_s:.3} s)")
                }
                _ => String::new(),
            };
            let _ = writeln!(text, "{:>9.3} s  {pid:>width$}  {}{times}", line.at_s, line.text);
        }
        text
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (place, moment) in self.story.moments.iter().enumerate() {
            let at_s = moment.at_s;
            for verdict in self.story.verdicts_of(moment) {
                if self.concerns(Some(verdict.pid)) {
                    let (pid, text) = (Some(verdict.pid), verdict.sentence());
                    lines.push(Line { at_s, pid, text, veto: None });
                }
            }
            let mut known: Vec<u32> = Vec::new();
            for deed in self.deeds(place).filter(|deed| deed.kind != Kind::Sampling) {
                if deed.veto.is_some() && repeats(&mut lines, deed, at_s) {
                    continue;
                }
                let veto = deed.veto.as_ref().map(|_| Repeated { deed, times: 1, until_s: at_s });
                let news = deed.pid.filter(|pid| veto.is_none() && !known.contains(pid));
                let state = news.and_then(|pid| self.state_of(place, pid));
                known.extend(news);
                if let Some(text) = state {
                    lines.push(Line { at_s, pid: deed.pid, text, veto: None });
                }
                lines.push(Line { at_s, pid: deed.pid, text: deed.sentence(), veto });
            }
        }
        lines
    }
}

/// Whether this veto stands already among the last lines of its process: it is counted there.
fn repeats(lines: &mut [Line<'_>], deed: &Deed, at_s: f64) -> bool {
    let of_process = lines.iter_mut().rev().filter(|line| line.pid == deed.pid);
    for line in of_process {
        // What was done in between makes it another situation.
        let Some(veto) = &mut line.veto else { return false };
        if same(veto.deed, deed) {
            veto.times += 1;
            veto.until_s = at_s;
            return true;
        }
    }
    false
}

/// The recording in two lines, and what is wrong with it.
pub(super) fn head(story: &Story, name: &str) -> String {
    let header = &story.header;
    let policies: Vec<String> = header.policies.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{name}: {}, {}; policy {}; written by {}",
        many(header.topology.node_count() as u64, "node"),
        many(header.topology.cpu_count() as u64, "CPU"),
        policies.join(", "),
        header.written_by
    );
    if !header.command.is_empty() {
        text += &format!("; {}", header.command.join(" "));
    }
    let acted = story.deeds.iter().filter(|deed| deed.is_tried()).count();
    let vetoes = story.deeds.iter().filter(|deed| deed.veto.is_some()).count();
    let _ = write!(
        text,
        "\n{:.3} s, {}: {}, {}, {}\n",
        story.seconds(),
        many(story.moments.len() as u64, "look"),
        many(acted as u64, "action"),
        match vetoes {
            1 => "1 veto".to_string(),
            vetoes => format!("{vetoes} vetoes"),
        },
        many(story.verdicts.len() as u64, "verdict"),
    );
    if let Some(problem) = &story.unknown_policy {
        let _ =
            writeln!(text, "no price is known: this version cannot decide as it did: {problem}");
    }
    if story.differing > 0 {
        let _ = writeln!(
            text,
            "{} decided otherwise by this version: no price is known there",
            many(story.differing, "look")
        );
    }
    if let Some(message) = &story.panicked {
        let _ = writeln!(text, "the controller panicked on the next look: {message}");
    }
    if let Some(end) = story.truncated {
        let _ = writeln!(text, "line {} is cut off: what came later was not recorded", end.line);
    }
    text
}
