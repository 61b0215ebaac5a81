//! The story as lines: one for each action and verdict, and one line for all repetitions of a veto.

use std::ops::Range;

use super::{Deed, Story, Verdict};

/// A line of the story.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// Index of its moment.
    pub(crate) moment: usize,
    pub(crate) at_s: f64,
    pub(crate) pid: Option<u32>,
    pub(crate) what: What<'a>,
    /// How often it came, and when last.
    pub(crate) times: u64,
    pub(crate) until_s: f64,
}

/// What a line tells.
#[derive(Debug)]
pub(crate) enum What<'a> {
    /// Something was done.
    Done(&'a Deed),
    /// Something was not done.
    Vetoed(&'a Deed),
    /// A trial ended.
    Judged(&'a Verdict),
}

impl Line<'_> {
    /// Its sentence.
    pub(crate) fn sentence(&self) -> String {
        let text = match self.what {
            What::Done(deed) | What::Vetoed(deed) => deed.sentence(),
            What::Judged(verdict) => verdict.sentence(),
        };
        match self.times {
            1 => text,
            times => format!("{text} ({times} times until {:.3} s)", self.until_s),
        }
    }
}

/// What makes two vetoes the same.
fn same(a: &Deed, b: &Deed) -> bool {
    let rule = |deed: &Deed| deed.veto.as_ref().map(|veto| veto.rule.clone());
    (a.pid, a.kind, &a.policy, rule(a)) == (b.pid, b.kind, &b.policy, rule(b))
}

impl Story {
    /// The lines of these moments that concern one process, or all. What is for the machine
    /// concerns each. How closely is looked is left out.
    pub(crate) fn lines(&self, moments: Range<usize>, pid: Option<u32>) -> Vec<Line<'_>> {
        let concerns = |other: Option<u32>| pid.is_none() || other.is_none() || other == pid;
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (place, moment) in self.moments.iter().enumerate().take(moments.end).skip(moments.start)
        {
            let at_s = moment.at_s;
            let line = |pid, what| Line { moment: place, at_s, pid, what, times: 1, until_s: at_s };
            let verdicts = self.verdicts_of(moment).iter().filter(|one| concerns(Some(one.pid)));
            lines.extend(verdicts.map(|one| line(Some(one.pid), What::Judged(one))));
            let deeds = self.deeds_of(moment).iter();
            for deed in deeds.filter(|deed| deed.acts() && concerns(deed.pid)) {
                match deed.veto {
                    None => lines.push(line(deed.pid, What::Done(deed))),
                    Some(_) if repeats(&mut lines, deed, at_s) => {}
                    Some(_) => lines.push(line(deed.pid, What::Vetoed(deed))),
                }
            }
        }
        lines
    }
}

/// Whether this veto stands already among the last lines of its process: it is counted there.
fn repeats(lines: &mut [Line<'_>], deed: &Deed, at_s: f64) -> bool {
    for line in lines.iter_mut().rev().filter(|line| line.pid == deed.pid) {
        // What was done in between makes it another situation.
        let What::Vetoed(before) = line.what else { return false };
        if same(before, deed) {
            line.times += 1;
            line.until_s = at_s;
            return true;
        }
    }
    false
}
