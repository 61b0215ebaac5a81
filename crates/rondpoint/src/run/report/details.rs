//! The report as text: the five answers, and on request the numbers behind them.

use std::fmt::Write;

use rondpoint_core::plan::PageCounts;
use rondpoint_core::trial::Verdict;
use rondpoint_core::units::SignedPercent;

use super::super::account::{StepLine, pages_told};
use super::answers::many;
use super::{PeriodLine, ProcessLine, Report, TrialLine};
use crate::compared;

/// Decisions shown; all are in the JSON.
const SHOWN_STEPS: usize = 12;

impl Report {
    /// The answers, and with `verbose` the windows, steps and checks.
    pub(in super::super) fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        let end = match (self.exit_status, self.signal) {
            (Some(status), _) => format!("ended with status {status}"),
            (_, Some(signal)) => format!("killed by signal {signal}"),
            _ => "left".to_string(),
        };
        let _ = writeln!(text, "── rondpoint: {end} after {:.2} s ──", self.elapsed_s);
        let answers = &self.answers;
        let _ = writeln!(text, "{}", answers.helped);
        self.put_change(&mut text);
        let _ = writeln!(text, "Moved: {}", answers.moved);
        for (index, why) in answers.why.iter().enumerate() {
            let _ = writeln!(text, "{} {why}", if index == 0 { "Why:  " } else { "      " });
        }
        let _ = writeln!(text, "Cost:  {}", answers.cost);
        if let Some(not_seen) = &answers.not_seen {
            let _ = writeln!(text, "Not seen: {not_seen}");
        }
        if let Some(next_time) = &answers.next_time {
            let _ = writeln!(text, "Next time: {next_time}");
        }
        if verbose {
            self.put_details(&mut text);
        }
        let problems = if verbose { 0 } else { self.sensor_notes };
        for note in self.notes.iter().skip(problems) {
            let _ = writeln!(text, "note: {note}");
        }
        if let Some(line) = self.threads.troubles() {
            let _ = writeln!(text, "note: {line}");
        }
        text
    }

    /// What was measured before and after, in one line; nothing where nothing was moved.
    fn put_change(&self, text: &mut String) {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return };
        let mut parts = Vec::new();
        let mut add = |what: &str, value: fn(&PeriodLine) -> Option<f64>, digits, unit: &str| {
            if let (Some(from), Some(to)) = (value(before), value(after)) {
                parts.push(format!("{what}{from:.digits$} → {to:.digits$} {unit}"));
            }
        };
        let billions = |line: &PeriodLine| line.instructions_per_s.map(|rate| rate / 1e9);
        add("", billions, 2, "G instructions/s");
        add("latency ", |line| line.latency_cycles, 0, "cycles");
        add(&format!("local {} ", before.unit), |line| line.lar_percent, 0, "%");
        add("imbalance ", |line| line.imbalance_percent, 0, "%");
        if !parts.is_empty() {
            let _ = writeln!(text, "Before → after: {}.", parts.join(", "));
        }
    }

    fn put_details(&self, text: &mut String) {
        self.put_periods(text);
        for process in &self.processes {
            put_account(text, process);
        }
        for line in self.threads.lines() {
            let _ = writeln!(text, "{line}");
        }
        for (step, count) in grouped(&self.steps).into_iter().take(SHOWN_STEPS) {
            let action = match (&step.mask, count) {
                (Some((pid, cpus)), 2..) => format!("{count} threads of {pid} to CPUs {cpus}"),
                _ => step.action.clone(),
            };
            let _ = writeln!(text, "{:6.2} s  {}: {action}", step.at_s, step.policy);
            let _ = writeln!(text, "          because {}", step.reason);
            let _ = writeln!(text, "          {}", step.outcome);
        }
        for trial in &self.trials {
            let _ = writeln!(text, "{:6.2} s  {}", trial.at_s, trial.text());
        }
        if !self.refused.is_empty() {
            let list: Vec<String> =
                self.refused.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
            let _ = writeln!(text, "held back by the guard: {}", list.join(", "));
        }
    }

    fn put_periods(&self, text: &mut String) {
        let Some(before) = &self.before else { return };
        let rate = match before.faults_per_s {
            Some(_) => "faults/s",
            None => "accesses/µs",
        };
        let _ = writeln!(
            text,
            "{:<8} {:>8} {rate:>12} {:>10} {:>12} {:>12} {:>12}",
            "", "seconds", "local %", "imbalance %", "latency cyc", "G instr/s"
        );
        for (name, line) in [("before", Some(before)), ("after", self.after.as_ref())] {
            let Some(line) = line else { continue };
            let number = |value: Option<f64>, digits: usize| {
                value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
            };
            let _ = writeln!(
                text,
                "{:<8} {:>8.2} {:>12} {:>10} {:>12} {:>12} {:>12}",
                name,
                line.seconds,
                number(line.accesses_per_us.or(line.faults_per_s), 2),
                number(line.lar_percent, 1),
                number(line.imbalance_percent, 1),
                number(line.latency_cycles, 0),
                number(line.instructions_per_s.map(|rate| rate / 1e9), 3),
            );
        }
    }
}

/// Steps that move something, with the number of threads that each stands for. Threads that got the
/// same CPUs at the same time with the same outcome are one step.
fn grouped(steps: &[StepLine]) -> Vec<(&StepLine, usize)> {
    let mut groups: Vec<(&StepLine, usize)> = Vec::new();
    for step in steps.iter().filter(|step| !step.is_sampling) {
        let alike = |other: &StepLine| {
            step.mask.is_some()
                && (other.plan, other.policy, &other.mask, &other.outcome)
                    == (step.plan, step.policy, &step.mask, &step.outcome)
        };
        match groups.iter_mut().find(|(other, _)| alike(other)) {
            Some((_, count)) => *count += 1,
            None => groups.push((step, 1)),
        }
    }
    groups
}

impl TrialLine {
    fn text(&self) -> String {
        let found = match self.compared.as_slice() {
            [] => String::new(),
            compared => format!("; measured {}", compared::told(compared)),
        };
        let verdict = match self.verdict {
            Verdict::Better => "better: kept",
            Verdict::Worse => "worse: undone",
            Verdict::Unclear => "no clear change: kept",
            Verdict::PhaseChange => "the program does something else now: no verdict",
            Verdict::NoWayBack => "worse, but there is no way back",
            Verdict::Traded => "worse, but those moved with it gained more: kept",
            Verdict::Returned => "one that it changed places with goes back: undone with it",
        };
        let predicted = self.predicted.map_or(String::new(), |predicted| {
            format!("; speed predicted {:.0}", SignedPercent(predicted))
        });
        format!("trial: {verdict}{found}{predicted}")
    }
}

fn put_account(text: &mut String, process: &ProcessLine) {
    let account = &process.account;
    let mut parts = Vec::new();
    for (name, counts) in [
        ("co-location", &account.colocated),
        ("interleaving", &account.interleaved),
        ("following", &account.followed),
        ("replication", &account.replicated),
        ("dropping copies", &account.dropped),
        ("bulk", &account.bulk),
    ] {
        if *counts != PageCounts::default() {
            parts.push(format!("{name}: {}", pages_told(counts)));
        }
    }
    if account.refused > 0 {
        let steps = many(account.refused, "step");
        parts.push(format!("{steps} refused or not possible on this machine"));
    }
    if account.gone > 0 {
        parts.push(format!(
            "{} too late: the process or thread had ended",
            many(account.gone, "step")
        ));
    }
    if !parts.is_empty() {
        parts.push(format!("moving took {:.3} s", account.spent.seconds()));
        let _ = writeln!(text, "process {}: {}", process.pid, parts.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Pid;

    use super::*;

    #[test]
    fn threads_that_got_the_same_cpus_are_one_line() {
        let step = |action: &str, cpus: Option<&str>, outcome: &str| StepLine {
            at_s: 1.0,
            plan: 1,
            policy: "home",
            action: action.to_string(),
            reason: String::new(),
            outcome: outcome.to_string(),
            is_sampling: action.starts_with("sample"),
            mask: cpus.map(|cpus| (Pid(100), cpus.to_string())),
        };
        let steps = [
            step("sample 100: off", None, "done"),
            step("thread 101", Some("0-7"), "done"),
            step("thread 102", Some("8-15"), "done"),
            step("thread 103", Some("0-7"), "done"),
            step("thread 104", Some("0-7"), "it had ended"),
            step("move 3 pages", None, "3 moved"),
            step("move 3 pages", None, "3 moved"),
        ];
        let groups = grouped(&steps);
        let shown: Vec<(&str, usize)> =
            groups.iter().map(|(step, count)| (step.action.as_str(), *count)).collect();
        let expected = [
            ("thread 101", 2),
            ("thread 102", 1),
            ("thread 104", 1),
            ("move 3 pages", 1),
            ("move 3 pages", 1),
        ];
        assert_eq!(shown, expected);
    }
}
