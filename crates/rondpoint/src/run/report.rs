//! What is told at the end of a managed run: JSON for programs, one screen for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use rondpoint_core::Topology;
use rondpoint_core::accounts::Account;
use rondpoint_core::model::{Deviation, Rung};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_linux::syscall::process::End;
use serde::Serialize;

use super::account::{Diary, StepLine, pages_told, touched};
use super::moves::ThreadMoves;
use super::period::Period;

/// Version of the report's format; fields are only ever added to one.
const SCHEMA: u32 = 1;
/// Decisions shown to people; all are in the JSON.
const SHOWN_STEPS: usize = 6;

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    version: &'static str,
    command: Vec<String>,
    pid: u32,
    exit_status: Option<i32>,
    signal: Option<i32>,
    policy: String,
    /// Whether it was allowed to change anything.
    act: bool,
    sensor: Option<&'static str>,
    confidence: Option<f64>,
    elapsed_s: f64,
    /// The clock (`CLOCK_BOOTTIME`) at the first look, seconds.
    began_s: Option<f64>,
    plans: u64,
    /// This and the next two in seconds from the first look.
    first_action_s: Option<f64>,
    /// The first action that no check window judged worse.
    first_kept_action_s: Option<f64>,
    last_action_s: Option<f64>,
    /// Base pages that were moved.
    pages_moved: u64,
    /// Base pages that the kernel's automatic NUMA balancing moved meanwhile, on the whole machine.
    pages_moved_by_kernel: u64,
    threads: ThreadMoves,
    before: Option<PeriodLine>,
    after: Option<PeriodLine>,
    trials: Vec<TrialLine>,
    processes: Vec<ProcessLine>,
    /// Proposals (pages, where they are of pages) that the guard refused, by cause.
    refused: BTreeMap<String, u64>,
    steps: Vec<StepLine>,
    notes: Vec<String>,
    own_cpu_s: f64,
    /// Instructions of the manager from the program's start on; `None` where they cannot be
    /// counted.
    own_instructions: Option<u64>,
    looks: u64,
    /// Seconds in which nothing was counted, because nothing was to be done.
    rested_s: f64,
    samples: u64,
    /// One sentence: what was seen, done, and what it brought.
    summary: String,
}

/// What the memory traffic was like in a period.
#[derive(Debug, Clone, Serialize)]
struct PeriodLine {
    seconds: f64,
    accesses_per_us: Option<f64>,
    lar_percent: Option<f64>,
    imbalance_percent: Option<f64>,
    latency_cycles: Option<f64>,
    instructions_per_s: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct TrialLine {
    at_s: f64,
    pid: u32,
    policy: &'static str,
    verdict: Verdict,
    /// Relative change of the measure, positive is better; `None` where nothing could be compared.
    change: Option<f64>,
    noise: Option<f64>,
    plans: Vec<u64>,
}

#[derive(Debug, Clone, Serialize)]
struct ProcessLine {
    pid: u32,
    account: Account,
}

/// What the report is made from beside the diary.
pub(super) struct Facts<'a> {
    pub(super) topology: &'a Topology,
    pub(super) command: Vec<String>,
    pub(super) pid: u32,
    pub(super) end: Option<End>,
    pub(super) policy: String,
    pub(super) act: bool,
    pub(super) elapsed_s: f64,
    pub(super) pages_moved_by_kernel: u64,
    pub(super) threads: ThreadMoves,
    pub(super) notes: Vec<String>,
    pub(super) rested_s: f64,
    pub(super) own_cpu_s: f64,
    pub(super) own_instructions: Option<u64>,
}

impl Report {
    pub(super) fn new(diary: &Diary, facts: Facts<'_>) -> Self {
        let total = diary.total();
        let before = period(&diary.before, facts.topology);
        let after = period(&diary.since, facts.topology);
        let done = done(diary, &total, &facts.threads);
        let summary = sentence(diary, &done, before.as_ref(), after.as_ref(), facts.act);
        let process = |(pid, account): (rondpoint_core::Pid, &Account)| ProcessLine {
            pid: pid.0,
            account: *account,
        };
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command: facts.command,
            pid: facts.pid,
            exit_status: match facts.end {
                Some(End::Exited(status)) => Some(status),
                _ => None,
            },
            signal: match facts.end {
                Some(End::Killed(signal)) => Some(signal),
                _ => None,
            },
            policy: facts.policy,
            act: facts.act,
            sensor: diary.rung().map(rung_name),
            confidence: diary.confidence(),
            elapsed_s: facts.elapsed_s,
            began_s: diary.began_s(),
            plans: diary.plans,
            first_action_s: diary.first_action_s,
            first_kept_action_s: diary.first_kept_action_s(),
            last_action_s: diary.last_action_s,
            pages_moved: total.moved(),
            pages_moved_by_kernel: facts.pages_moved_by_kernel,
            threads: facts.threads,
            before,
            after: after.filter(|_| diary.first_action_s.is_some()),
            trials: diary.judged.iter().map(|(at, judged)| trial(*at, judged)).collect(),
            processes: touched(&diary.accounts).map(process).collect(),
            refused: diary.refused.clone(),
            steps: diary.steps.clone(),
            notes: facts.notes,
            own_cpu_s: facts.own_cpu_s,
            own_instructions: facts.own_instructions,
            looks: diary.looks,
            rested_s: facts.rested_s,
            samples: diary.samples,
            summary,
        }
    }

    /// One screen for people.
    pub(super) fn text(&self, _verbose: bool) -> String {
        let mut text = String::new();
        let end = match (self.exit_status, self.signal) {
            (Some(status), _) => format!("ended with status {status}"),
            (_, Some(signal)) => format!("killed by signal {signal}"),
            _ => "left".to_string(),
        };
        let _ = writeln!(text, "── rondpoint: {end} after {:.2} s ──", self.elapsed_s);
        let _ = writeln!(text, "{}", self.summary);
        self.put_periods(&mut text);
        for process in &self.processes {
            put_account(&mut text, process);
        }
        for line in self.threads.lines() {
            let _ = writeln!(text, "{line}");
        }
        for step in
            self.steps.iter().filter(|step| !step.action.starts_with("sample")).take(SHOWN_STEPS)
        {
            let _ = writeln!(text, "{:6.2} s  {}: {}", step.at_s, step.policy, step.action);
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
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = write!(text, "managing cost {:.3} s of CPU", self.own_cpu_s);
        // A share of a moment says nothing: starting up costs more than managing.
        if self.elapsed_s >= 1.0 {
            let _ = write!(text, " ({:.1} % of one)", 100.0 * self.own_cpu_s / self.elapsed_s);
        }
        text.push('\n');
        text
    }

    fn put_periods(&self, text: &mut String) {
        let Some(before) = &self.before else { return };
        let _ = writeln!(
            text,
            "{:<8} {:>8} {:>12} {:>10} {:>12} {:>12} {:>12}",
            "", "seconds", "accesses/µs", "local %", "imbalance %", "latency cyc", "G instr/s"
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
                number(line.accesses_per_us, 2),
                number(line.lar_percent, 1),
                number(line.imbalance_percent, 1),
                number(line.latency_cycles, 0),
                number(line.instructions_per_s.map(|rate| rate / 1e9), 3),
            );
        }
    }
}

impl TrialLine {
    fn text(&self) -> String {
        let change = match (self.change, self.noise) {
            (Some(change), Some(noise)) => {
                format!(" ({:+.1} %, noise {:.1} %)", 100.0 * change, 100.0 * noise)
            }
            _ => String::new(),
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
        format!("check window: {verdict}{change}")
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
        ("bulk", &account.bulk),
    ] {
        if *counts != rondpoint_core::plan::PageCounts::default() {
            parts.push(format!("{name}: {}", pages_told(counts)));
        }
    }
    if account.refused > 0 {
        parts.push(format!("{} steps refused or not offered here", account.refused));
    }
    if account.gone > 0 {
        parts.push(format!("{} steps came too late", account.gone));
    }
    parts.push(format!("moving took {:.3} s", account.spent.seconds()));
    let _ = writeln!(text, "process {}: {}", process.pid, parts.join("; "));
}

fn rung_name(rung: Rung) -> &'static str {
    match rung {
        Rung::Samples => "samples",
        Rung::Counters => "counters",
        Rung::HintFaults => "faults",
        Rung::Statistics => "statistics",
    }
}

fn period(period: &Period, topology: &Topology) -> Option<PeriodLine> {
    let traffic = period.traffic();
    (period.seconds > 0.0).then(|| PeriodLine {
        seconds: period.seconds,
        accesses_per_us: traffic.as_ref().map(rondpoint_core::model::Traffic::total_per_us),
        lar_percent: traffic.as_ref().and_then(rondpoint_core::model::Traffic::local_percent),
        imbalance_percent: traffic
            .as_ref()
            .and_then(|traffic| traffic.imbalance_percent(Deviation::Population, topology)),
        latency_cycles: period.latency_cycles(),
        instructions_per_s: period.instructions_per_s(),
    })
}

fn trial(at_s: f64, judged: &Judged) -> TrialLine {
    TrialLine {
        at_s,
        pid: judged.pid.0,
        policy: judged.policy,
        verdict: judged.verdict,
        change: judged.comparison.combined.map(|combined| combined.change),
        noise: judged.comparison.combined.map(|combined| combined.noise),
        plans: judged.plans.clone(),
    }
}

/// What was seen, what was done, what it brought.
fn sentence(
    diary: &Diary,
    done: &str,
    before: Option<&PeriodLine>,
    after: Option<&PeriodLine>,
    act: bool,
) -> String {
    let mut text = seen(before);
    if done.is_empty() {
        let why = match (act, &diary.last_reason) {
            (false, _) => "only observing: nothing was changed".to_string(),
            (true, Some(reason)) => format!("nothing was moved: {reason}"),
            (true, None) => "nothing was moved".to_string(),
        };
        let _ = write!(text, "; {why}.");
        return text;
    }
    let _ = write!(text, "; {done}");
    if let Some(((from, to), _)) =
        before.and_then(|b| b.latency_cycles).zip(after.and_then(|a| a.latency_cycles)).zip(after)
    {
        let _ = write!(text, "; latency {from:.0} to {to:.0} cycles");
    }
    let count =
        |is: fn(Verdict) -> bool| diary.judged.iter().filter(|(_, one)| is(one.verdict)).count();
    let told = [
        (count(|one| one == Verdict::Better), "better"),
        (count(Verdict::is_undone), "worse (and undone)"),
        (count(|one| one == Verdict::NoWayBack), "worse (with no way back)"),
    ];
    let _ = write!(text, "; {}.", judged(&told, diary.judged.len()));
    text
}

/// How many trials ended in each way.
fn judged(counts: &[(usize, &str)], all: usize) -> String {
    if all == 0 {
        return "not judged before the end".to_string();
    }
    let told = counts.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(count, how)| format!("{how} in {count}")).collect();
    match told.is_empty() {
        true => "no clear change".to_string(),
        false => format!("judged {} of {all} trials", told.join(" and ")),
    }
}

fn seen(before: Option<&PeriodLine>) -> String {
    let Some(before) = before else { return "Too short to see anything".to_string() };
    let mut parts = Vec::new();
    if let Some(local) = before.lar_percent {
        parts.push(format!("{local:.0} % of accesses local"));
    }
    if let Some(imbalance) = before.imbalance_percent {
        parts.push(format!("controller imbalance {imbalance:.0} %"));
    }
    match parts.is_empty() {
        true => "No memory traffic could be seen".to_string(),
        false => format!("Saw {}", parts.join(", ")),
    }
}

fn done(diary: &Diary, total: &Account, threads: &ThreadMoves) -> String {
    let mut parts = Vec::new();
    if threads.moved > 0 {
        let many = if threads.moved == 1 { "thread" } else { "threads" };
        parts.push(format!("{} {many} moved ({})", threads.moved, threads.told()));
    }
    for (verb, counts) in [
        ("moved to the node that uses them", &total.colocated),
        ("spread over the nodes", &total.interleaved),
        ("moved after their threads", &total.followed),
        ("replicated", &total.replicated),
        ("moved in bulk", &total.bulk),
    ] {
        if counts.moved > 0 {
            parts.push(format!("{} pages {verb}", counts.moved));
        }
    }
    match (parts.is_empty(), diary.first_action_s, diary.last_action_s) {
        (false, Some(first), Some(last)) => {
            format!("{} between {first:.1} s and {last:.1} s", parts.join(", "))
        }
        _ => String::new(),
    }
}
