//! The report in five answers: whether it helped, what was moved, why, what it cost, and what could
//! not be seen.
//!
//! Each answer is a sentence that needs no other. Page faults are never called accesses.

use rondpoint_core::Bytes;
use rondpoint_core::accounts::Account;
use rondpoint_core::cost::Interval;
use rondpoint_core::model::Rung;
use rondpoint_core::plan::PageCounts;
use rondpoint_core::policy::carrefour::preset::FINAL;
use rondpoint_core::trial::Verdict;
use rondpoint_core::units::SignedPercent;
use serde::Serialize;

use super::super::account::{Diary, PAGE_BYTES, Wanted};
use super::super::moves::ThreadMoves;
use super::{PeriodLine, TrialLine};

/// A gain at the next start below this is not told (our choice): the cost model errs by as much.
const TOLD_GAIN: f64 = 0.05;
/// Reasons that are told; all are in the JSON.
const SHOWN_REASONS: usize = 3;

/// The answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Answers {
    pub(super) helped: String,
    pub(super) moved: String,
    /// Empty where nothing is to be explained.
    pub(super) why: Vec<String>,
    pub(super) cost: String,
    /// What no sensor of this machine shows; `None` where all was seen.
    pub(super) not_seen: Option<String>,
    /// What to do at the next start; `None` where there is nothing better.
    pub(super) next_time: Option<String>,
}

/// What they are made from.
pub(super) struct Evidence<'a> {
    pub(super) diary: &'a Diary,
    pub(super) total: &'a Account,
    pub(super) threads: &'a ThreadMoves,
    pub(super) trials: &'a [TrialLine],
    pub(super) before: Option<&'a PeriodLine>,
    /// Whether anything was allowed to be changed.
    pub(super) act: bool,
    /// Memory nodes of the machine.
    pub(super) memory_nodes: usize,
    pub(super) elapsed_s: f64,
    pub(super) rested_s: f64,
    pub(super) own_cpu_s: f64,
}

impl Answers {
    pub(super) fn of(evidence: &Evidence<'_>) -> Self {
        let moved = evidence.moved();
        Self {
            helped: match (evidence.act, &moved) {
                (true, Some(_)) => evidence.helped(),
                _ => evidence.state(),
            },
            moved: moved.unwrap_or_else(|| evidence.nothing_moved()),
            why: evidence.why(),
            cost: evidence.cost(),
            not_seen: evidence.not_seen(),
            next_time: next_time(evidence.diary.spread_from_start()),
        }
    }
}

/// What a traffic figure counts: page faults say where memory is used, and not how often.
pub(super) fn unit(rung: Option<Rung>) -> &'static str {
    match rung {
        Some(Rung::HintFaults) => "page faults",
        _ => "accesses",
    }
}

fn percent(value: f64) -> String {
    format!("{value:.0} %")
}

/// A relative change: `+12.3 %`.
fn signed(change: f64) -> String {
    format!("{:.1}", SignedPercent(change))
}

pub(super) fn many(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// How to start the program, where memory that is spread from its start would have won more than
/// moving pages later did.
fn next_time(spread_from_start: Option<Interval>) -> Option<String> {
    let gain = spread_from_start.filter(|gain| gain.least >= TOLD_GAIN)?;
    Some(format!(
        "start it with `rondpoint run --interleave all -- ...`. By the cost model it would have \
         been {} faster, at least {}.",
        percent(100.0 * gain.likely),
        percent(100.0 * gain.least)
    ))
}

impl Evidence<'_> {
    /// Where nothing was changed: whether there was anything to repair, and how that is known.
    fn state(&self) -> String {
        let Some(before) = self.before else {
            return format!("Too short to judge: the program ended after {:.2} s.", self.elapsed_s);
        };
        if self.memory_nodes == 1 {
            return "Nothing to repair: this machine has one memory node.".to_string();
        }
        let unit = unit(self.diary.rung());
        let Some(local) = before.lar_percent else {
            return "Not known: no memory traffic between the nodes was seen.".to_string();
        };
        let imbalance = before.imbalance_percent;
        let uneven = imbalance
            .map_or(String::new(), |uneven| format!(", controller imbalance {}", percent(uneven)));
        let seen = format!("{} of the {unit} are local{uneven}", percent(local));
        let is_local = local >= FINAL.colocate_below_local;
        let is_even = imbalance.is_none_or(|uneven| uneven <= FINAL.interleave_above_imbalance);
        let is_wanted = self.diary.wanted != Wanted::default();
        match (is_local && is_even, !self.act && is_wanted) {
            (true, _) => format!("Nothing to repair: {seen}."),
            (false, false) => format!("No change was made: {seen}."),
            (false, true) => format!("Something to repair: {seen}."),
        }
    }

    /// What the trials found about the changes.
    fn helped(&self) -> String {
        let of = |is: fn(Verdict) -> bool| -> Vec<&TrialLine> {
            self.trials.iter().filter(|trial| is(trial.verdict)).collect()
        };
        let better = of(|verdict| verdict == Verdict::Better);
        let undone = of(Verdict::is_undone);
        let harmed = of(|verdict| verdict == Verdict::NoWayBack);
        let traded = of(|verdict| verdict == Verdict::Traded);
        let unclear = of(|verdict| verdict == Verdict::Unclear);
        let mut parts = Vec::new();
        if !better.is_empty() {
            parts.push(format!("Helped: {}", self.found(&better)));
        }
        if !harmed.is_empty() {
            parts.push(format!("Harmed: {}, and it cannot be taken back", self.found(&harmed)));
        }
        if !traded.is_empty() {
            parts.push(format!(
                "Mixed: {}, but others that moved with it gained more",
                self.found(&traded)
            ));
        }
        if !undone.is_empty() {
            parts.push(format!("Did not help: {}, and was taken back", self.found(&undone)));
        }
        if parts.is_empty() && !unclear.is_empty() {
            parts.push(format!("No clear change: {}", self.found(&unclear)));
        }
        match (parts.is_empty(), self.trials.is_empty()) {
            (true, true) => {
                "Not known whether it helped: the program ended before a trial was complete."
                    .to_string()
            }
            (true, false) => {
                "Not known whether it helped: the program began another phase during the trial."
                    .to_string()
            }
            (false, _) => parts.join(". ") + ".",
        }
    }

    /// `+12.3 % by memory latency (noise 2.0 %)`, of several trials their range.
    fn found(&self, trials: &[&TrialLine]) -> String {
        let changes: Vec<f64> = trials.iter().filter_map(|trial| trial.change).collect();
        let least = changes.iter().copied().min_by(f64::total_cmp);
        let most = changes.iter().copied().max_by(f64::total_cmp);
        let trials_found = match (trials.len(), self.trials.len()) {
            (1, 1) => "the trial found".to_string(),
            (some, all) => format!("{some} of {} found", many(all as u64, "trial")),
        };
        let (Some(least), Some(most)) = (least, most) else {
            return format!("{trials_found} nothing to compare");
        };
        let noise = trials.iter().filter_map(|trial| trial.noise).fold(0.0, f64::max);
        let range = match changes.len() {
            1 => signed(most),
            _ => format!("{} to {}", signed(least), signed(most)),
        };
        let mut by: Vec<&str> = Vec::new();
        for one in trials.iter().flat_map(|trial| &trial.compared) {
            if !by.contains(&one.what) {
                by.push(one.what);
            }
        }
        let by = match by.as_slice() {
            [] => String::new(),
            [one] => format!(" by {one}"),
            [first @ .., last] => format!(" in the mean of {} and {last}", first.join(", ")),
        };
        format!("{trials_found} {range}{by} (noise {:.1} %)", 100.0 * noise)
    }

    /// What is somewhere else now; `None` where nothing is.
    fn moved(&self) -> Option<String> {
        let mut parts = Vec::new();
        let total = self.total;
        for (how, counts) in [
            ("to the node that uses them", &total.colocated),
            ("spread over the nodes", &total.interleaved),
            ("after their threads", &total.followed),
            ("copied to the nodes that read them", &total.replicated),
            ("with their whole process", &total.bulk),
        ] {
            let PageCounts { moved, .. } = *counts;
            if moved > 0 {
                let bytes = Bytes(moved * PAGE_BYTES);
                parts.push(format!("{} ({bytes}) {how}", many(moved, "page")));
            }
        }
        if self.threads.moved > 0 {
            let threads = many(self.threads.moved, "thread");
            parts.push(format!("{threads} ({})", self.threads.told()));
        }
        let (first, last) = (self.diary.first_action_s?, self.diary.last_action_s?);
        let when = match last > first {
            true => format!("from {first:.1} s to {last:.1} s"),
            false => format!("at {first:.1} s"),
        };
        (!parts.is_empty()).then(|| format!("{}; {when}{}.", parts.join("; "), self.back()))
    }

    /// What of it went back.
    fn back(&self) -> String {
        let pages = self.diary.pages_back;
        let moved = [(pages, "page"), (self.threads.undone, "thread")];
        let parts: Vec<String> = moved
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, one)| many(*count, one))
            .collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("; {} of it went back after a trial", parts.join(" and ")),
        }
    }

    fn nothing_moved(&self) -> String {
        let Wanted { pages, threads } = self.diary.wanted;
        if self.act || (pages == 0 && threads == 0) {
            return "nothing.".to_string();
        }
        let mut parts = Vec::new();
        if pages > 0 {
            parts.push(many(pages, "page"));
        }
        if threads > 0 {
            parts.push(many(threads, "thread"));
        }
        format!("nothing (--dry-run). Proposed: up to {} in one step.", parts.join(" and "))
    }

    /// The first reason of each policy that changed something; else why nothing was changed.
    fn why(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        let mut told: Vec<&str> = Vec::new();
        let shown = self.diary.steps.iter().filter(|step| !step.is_sampling);
        for step in shown {
            if !told.contains(&step.policy) && reasons.len() < SHOWN_REASONS {
                told.push(step.policy);
                reasons.push(format!("{}: {}", step.policy, step.reason));
            }
        }
        if !reasons.is_empty() || self.before.is_none() || self.memory_nodes == 1 {
            return reasons;
        }
        if let Some((policy, reason)) = &self.diary.last_reason {
            reasons.push(format!("{policy}: {reason}"));
        }
        let mut refused: Vec<(&String, &u64)> =
            self.diary.refused.iter().filter(|(cause, _)| *cause != "observe-only").collect();
        refused.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let refused: Vec<String> = refused
            .iter()
            .take(SHOWN_REASONS)
            .map(|(cause, count)| format!("{cause} {count}"))
            .collect();
        if !refused.is_empty() {
            reasons.push(format!("held back by the guard: {}", refused.join(", ")));
        }
        reasons
    }

    fn cost(&self) -> String {
        let mut text = format!("{:.2} s of CPU to manage", self.own_cpu_s);
        // A share of a moment says nothing: starting up costs more than managing.
        if self.elapsed_s >= 1.0 {
            text += &format!(" ({:.1} % of one CPU)", 100.0 * self.own_cpu_s / self.elapsed_s);
        }
        let (spent, frozen) = (self.total.spent.seconds(), self.total.frozen.seconds());
        if spent > 0.0 {
            text += &format!("; {spent:.2} s to move");
        }
        if frozen > 0.0 {
            text += &format!("; the program was stopped for {frozen:.2} s");
        }
        text + "."
    }

    fn not_seen(&self) -> Option<String> {
        self.before?;
        let mut parts = Vec::new();
        parts.extend(match self.diary.rung() {
            _ if self.memory_nodes == 1 => None,
            Some(Rung::Samples) => None,
            Some(Rung::Counters) => Some("which pages are used (no address samples here)"),
            Some(Rung::HintFaults) => {
                Some("how often memory is used (page faults show only the thread and the node)")
            }
            Some(Rung::Statistics) | None => {
                Some("which memory is used (no counters, samples or hint faults here)")
            }
        });
        let mut text = parts.join("; ");
        if !text.is_empty() {
            text += "; `rondpoint doctor` says what helps";
        }
        // Rests are short at each time, and add up.
        if self.rested_s > 0.1 * self.elapsed_s {
            let separator = if text.is_empty() { "" } else { "; " };
            text += &format!(
                "{separator}{:.1} of {:.1} s, in which counting rested",
                self.rested_s, self.elapsed_s
            );
        }
        (!text.is_empty()).then_some(text + ".")
    }
}

#[cfg(test)]
mod tests;
