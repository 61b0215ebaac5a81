//! The report of a managed run: JSON for programs, five answers for people, and details on request.

mod answers;
mod details;

use std::collections::BTreeMap;

use rondpoint_core::Topology;
use rondpoint_core::accounts::Account;
use rondpoint_core::model::{Deviation, Rung};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_linux::syscall::process::End;
use serde::Serialize;

use self::answers::{Answers, Evidence};
use super::account::{Diary, StepLine, touched};
use super::moves::ThreadMoves;
use super::period::Period;
use crate::compared::{self, Compared};

/// Version of the report's format; fields are only ever added to one.
pub(super) const SCHEMA: u32 = 1;

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
    /// The first action that no trial judged worse.
    first_kept_action_s: Option<f64>,
    last_action_s: Option<f64>,
    /// Base pages that were moved.
    pages_moved: u64,
    /// How many of them went back because a trial found their move worse.
    pages_back: u64,
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
    /// What the sensors of this machine do not show, and what went wrong.
    notes: Vec<String>,
    /// How many of the notes are about sensors; those come first.
    #[serde(skip)]
    sensor_notes: usize,
    own_cpu_s: f64,
    /// Instructions of the manager from the program's start on; `None` where they cannot be
    /// counted.
    own_instructions: Option<u64>,
    /// Those of them that changed something: moved pages and threads, and wrote the ledger.
    acting_instructions: Option<u64>,
    looks: u64,
    /// Seconds in which nothing was counted, because nothing was to be done.
    rested_s: f64,
    samples: u64,
    /// Whether it helped and what was moved, in a few sentences.
    summary: String,
    answers: Answers,
}

/// What the memory traffic was like in a period.
#[derive(Debug, Clone, Serialize)]
struct PeriodLine {
    seconds: f64,
    /// What the figures count: `accesses`, or `page faults`, which come at the rate of the kernel's
    /// scanner and not of the accesses.
    unit: &'static str,
    /// `None` where page faults are counted.
    accesses_per_us: Option<f64>,
    /// `None` where accesses are counted.
    faults_per_s: Option<f64>,
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
    /// What was compared. The change is the mean of these, with a fall of latency as a gain.
    compared: Vec<Compared>,
    plans: Vec<u64>,
    /// Relative change of speed that the cost model predicted; `None` where it prices nothing of
    /// what was done.
    predicted: Option<f64>,
    /// Relative change of speed that was measured.
    measured: Option<f64>,
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
    /// What the sensors do not show.
    pub(super) sensor_notes: Vec<String>,
    /// What went wrong.
    pub(super) problems: Vec<String>,
    pub(super) rested_s: f64,
    pub(super) own_cpu_s: f64,
    pub(super) own_instructions: Option<u64>,
    pub(super) acting_instructions: Option<u64>,
}

impl Report {
    pub(super) fn new(diary: &Diary, facts: Facts<'_>) -> Self {
        let total = diary.total();
        let before = period(&diary.before, facts.topology, diary.rung());
        let after = period(&diary.after(), facts.topology, diary.rung());
        let after = after.filter(|_| diary.first_action_s.is_some());
        let trials: Vec<TrialLine> =
            diary.judged.iter().map(|(at, judged)| trial(*at, judged)).collect();
        let answers = Answers::of(&Evidence {
            diary,
            total: &total,
            threads: &facts.threads,
            trials: &trials,
            before: before.as_ref(),
            act: facts.act,
            memory_nodes: facts.topology.memory_nodes().len(),
            elapsed_s: facts.elapsed_s,
            rested_s: facts.rested_s,
            own_cpu_s: facts.own_cpu_s,
        });
        let sensor_notes = facts.sensor_notes.len();
        let notes = facts.sensor_notes.into_iter().chain(facts.problems).collect();
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
            pages_back: diary.pages_back,
            pages_moved_by_kernel: facts.pages_moved_by_kernel,
            threads: facts.threads,
            before,
            after,
            trials,
            processes: touched(&diary.accounts).map(process).collect(),
            refused: diary.refused.clone(),
            steps: diary.steps.clone(),
            notes,
            sensor_notes,
            own_cpu_s: facts.own_cpu_s,
            own_instructions: facts.own_instructions,
            acting_instructions: facts.acting_instructions,
            looks: diary.looks,
            rested_s: facts.rested_s,
            samples: diary.samples,
            summary: format!("{} Moved: {}", answers.helped, answers.moved),
            answers,
        }
    }
}

fn rung_name(rung: Rung) -> &'static str {
    match rung {
        Rung::Samples => "samples",
        Rung::Counters => "counters",
        Rung::HintFaults => "faults",
        Rung::Statistics => "statistics",
    }
}

fn period(period: &Period, topology: &Topology, rung: Option<Rung>) -> Option<PeriodLine> {
    let traffic = period.traffic();
    let per_us = traffic.as_ref().map(rondpoint_core::model::Traffic::total_per_us);
    let are_faults = rung == Some(Rung::HintFaults);
    (period.seconds > 0.0).then(|| PeriodLine {
        seconds: period.seconds,
        unit: answers::unit(rung),
        accesses_per_us: per_us.filter(|_| !are_faults),
        faults_per_s: per_us.filter(|_| are_faults).map(|rate| 1e6 * rate),
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
        compared: compared::of(&judged.comparison),
        plans: judged.plans.clone(),
        predicted: judged.predicted,
        measured: judged.speed().map(|speed| speed.change),
    }
}
