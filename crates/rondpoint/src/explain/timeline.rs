//! The whole run: a line for each action and verdict, and one line for all repetitions of a veto.

use std::fmt::Write as _;

use super::Asked;
use crate::story::Story;
use crate::story::lines::What;
use crate::story::words::many;

impl Asked<'_> {
    /// The timeline as text.
    pub(super) fn timeline(&self, name: &str) -> String {
        let mut text = head(self.story, name);
        let lines = self.story.lines(0..self.story.moments.len(), self.pid);
        if lines.is_empty() {
            text += "\nno policy proposed anything\n";
            return text;
        }
        text.push('\n');
        let pids = lines.iter().filter_map(|line| line.pid).map(|pid| pid.to_string().len());
        let width = pids.max().unwrap_or(1);
        let mut known = None;
        for line in lines {
            let pid = line.pid.map_or("-".to_string(), |pid| pid.to_string());
            let mut put = |what: &str| {
                let _ = writeln!(text, "{:>9.3} s  {pid:>width$}  {what}", line.at_s);
            };
            let acts = matches!(line.what, What::Done(_));
            let news = line.pid.filter(|pid| acts && known != Some((line.moment, *pid)));
            if let Some(state) = news.and_then(|pid| self.state_of(line.moment, pid)) {
                put(&state);
                known = line.pid.map(|pid| (line.moment, pid));
            }
            put(&line.sentence());
        }
        text
    }
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
