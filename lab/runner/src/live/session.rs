//! Programs under Rondpoint in one guest, one after the other, and what the reports say. A shell
//! script runs them, with the kernel's balancing as Debian sets it up. If one start shows nothing,
//! the script makes another.

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;
use serde_json::Value;

use crate::lab::Lab;
use crate::physics::script;
use crate::vm::Record;

/// `report TAG FILE` prints a report as one line behind a tag. `masks` prints the CPUs that each
/// thread of the workload may use, the process's first thread first. The balancing is on, as
/// everywhere.
const HEAD: &str = r#"report() { echo "$1 $(tr -d '\n' < $2)"; }
masks() {
    comm=$(grep -ls rondpoint-workl /proc/[0-9]*/comm)
    for task in ${comm%/comm}/task/*; do
        sed -n "s/Cpus_allowed_list:./may ${task##*/} /p" $task/status
    done | sort -n -k 2
}
echo 1 > /proc/sys/kernel/numa_balancing"#;

/// Starts of which one has to show something. Until the manager has looked, the kernel may bring
/// threads or pages where they belong, or take them away. Then there is nothing to do, or nothing
/// to leave alone.
const STARTS: u64 = 4;

/// What the first start shows that shows something; the last one if none does.
pub(super) fn first_that_shows<T>(
    lab: &Lab,
    once: impl Fn(&Lab) -> Result<T>,
    shows: impl Fn(&T) -> bool,
) -> Result<T> {
    let mut found = once(lab)?;
    for by in 1..STARTS {
        if shows(&found) {
            break;
        }
        found = once(&lab.later_start(by))?;
    }
    Ok(found)
}

/// Runs `text` in the guest; its exit status must be 0.
pub(super) fn run(lab: &Lab, machine: &Machine, what: &str, text: &str) -> Result<Record> {
    script::run(lab, machine, what, &format!("{HEAD}\n{text}"))
}

/// The report behind a tag.
pub(super) fn report(record: &Record, tag: &str) -> Result<Value> {
    let line = script::lines(record, &format!("{tag} ")).next();
    let line = line.with_context(|| format!("nothing was reported as {tag}"))?;
    serde_json::from_str(line).with_context(|| format!("the report {tag}"))
}

/// What `masks` printed, but for the first thread, which starts the others and waits for them.
pub(super) fn masks(record: &Record) -> Result<Vec<&str>> {
    let masks = script::lines(record, "may ")
        .map(|line| line.split_once(' ').map(|(_, mask)| mask).context("a mask after the thread"));
    masks.skip(1).collect()
}

/// The node of which all these CPUs are, written `first-last` or as one number.
pub(super) fn node_of(machine: &Machine, cpus: &str) -> Option<usize> {
    let (first, last) = cpus.split_once('-').unwrap_or((cpus, cpus));
    let node = |cpu: &str| Some(machine.node_of_cpu(cpu.parse().ok()?));
    node(first).filter(|first| node(last) == Some(*first))
}

/// When the rounds behind a tag ended, in seconds. Rounds of two threads may end in the same
/// microsecond.
pub(super) fn round_ends(record: &Record, tag: &str) -> Result<Vec<f64>> {
    let line = script::lines(record, &format!("{tag} round_ends_s=")).next();
    let line = line.with_context(|| format!("{tag}: no rounds were told"))?;
    line.split(',').map(|end| end.parse().context("the end of a round")).collect()
}

/// The verdicts on all trials in words, and whether one of them is that it got worse.
pub(super) fn verdicts(report: &Value) -> (String, bool) {
    let trials = report["trials"].as_array().into_iter().flatten();
    let verdicts: Vec<&str> = trials.filter_map(|trial| trial["verdict"].as_str()).collect();
    (verdicts.join(", "), verdicts.contains(&"worse"))
}

/// Pages of all processes and mechanisms with this outcome.
pub(super) fn pages(report: &Value, outcome: &str) -> u64 {
    let accounts = report["processes"].as_array().into_iter().flatten();
    accounts.map(|process| pages_of(&process["account"], outcome)).sum()
}

/// Pages of one account with this outcome.
pub(super) fn pages_of(account: &Value, outcome: &str) -> u64 {
    let mechanisms = account.as_object().into_iter().flat_map(|account| account.values());
    mechanisms.filter_map(|counts| counts.get(outcome)?.as_u64()).sum()
}

/// Steps of all processes with this outcome: `refused` or `gone`.
pub(super) fn steps(report: &Value, outcome: &str) -> u64 {
    let accounts = report["processes"].as_array().into_iter().flatten();
    accounts.filter_map(|process| process["account"][outcome].as_u64()).sum()
}

/// What became of all pages, in words.
pub(super) fn told(report: &Value) -> String {
    let kinds = ["moved", "in_place", "elsewhere", "absent", "busy", "no_memory", "failed"];
    let counts = kinds.map(|kind| (kind, pages(report, kind)));
    let steps = ["refused", "gone"].map(|kind| (kind, steps(report, kind)));
    let parts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} pages {}", kind.replace('_', " ")))
        .chain(
            steps
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(kind, count)| format!("{count} steps {kind}")),
        )
        .collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// The steps that moved pages, each with its time, ways and outcome; empty if there are none.
pub(super) fn moves(report: &Value) -> String {
    let steps = report["steps"].as_array().into_iter().flatten();
    let of = |step: &Value| {
        let (action, outcome) = (step["action"].as_str()?, step["outcome"].as_str()?);
        let at = step["at_s"].as_f64()?;
        outcome.contains("moved").then(|| format!("; at {at:.1} s {action}: {outcome}"))
    };
    steps.filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outcomes_are_added_up_over_processes_and_mechanisms() {
        let counts = |moved: u64, busy: u64| json!({ "moved": moved, "busy": busy });
        let report = json!({ "processes": [
            { "pid": 1, "account": { "colocated": counts(1, 0), "bulk": counts(2, 3), "gone": 0 } },
            { "pid": 2, "account": { "colocated": counts(4, 0), "bulk": counts(0, 0), "gone": 5 } },
        ]});
        assert_eq!(
            (pages(&report, "moved"), pages(&report, "busy"), steps(&report, "gone")),
            (7, 3, 5)
        );
        assert_eq!(told(&report), "7 pages moved, 3 pages busy, 5 steps gone");
        assert_eq!(told(&json!({})), "nothing");
    }
}
