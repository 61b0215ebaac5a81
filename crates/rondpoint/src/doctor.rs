//! `rondpoint doctor`: tests which sensors and actions work on this machine, and prints the command
//! that adds a missing one. Each test is a real action in its smallest form. It changes nothing.
//!
//! `--check` runs loads with known counts and names the counters that are wrong.

mod controllers;
mod copies;
mod coverage;
mod judge;
mod known_load;
mod managers;
mod metrics;
mod offers;
mod resctrl;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use rondpoint_core::Topology;
use rondpoint_linux::observe::kernel;
use rondpoint_linux::perf::event::cause;
use rondpoint_linux::perf::generation::{Available, Generation};
use rondpoint_linux::perf::pmu::{Event, Pmus};
use rondpoint_linux::perf::ring;
use rondpoint_linux::perf::whole;
use rondpoint_linux::probe::{self, Capability};
use rondpoint_linux::syscall::process::effective_user;
use rondpoint_linux::topology::{self, Discovered};
use rondpoint_linux::{LinuxError, Root};
use serde::Serialize;

use self::judge::Finding;
use self::metrics::{State, Told};
use self::offers::Offered;
use crate::terminal;

const SCHEMA: u32 = 1;
/// Rondpoint can do nothing for this machine as it is.
const UNFIT: u8 = 1;
const OWN_FAILURE: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint doctor
  sudo rondpoint doctor --check    # are the counters right? best on an idle machine
  sudo rondpoint doctor --json     # as root sees the machine, for programs

Exit status: 0 when Rondpoint can see where a program's memory accesses go on this machine
and move its threads and pages; 1 when it cannot, or when --check finds a wrong counter;
2 when it could not find out.")]
pub(crate) struct Arguments {
    /// One JSON object
    #[arg(long)]
    json: bool,

    /// List each metric: measured, derived from others, or missing, with the reason or what follows
    #[arg(long)]
    metrics: bool,

    /// List the kernel's features for placement, whether each is on, and what it means here
    #[arg(long)]
    kernel: bool,

    /// Read a known amount of memory for a second and compare every counter with it
    #[arg(long)]
    check: bool,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// All of it.
    Good,
    /// Something, with less than there could be.
    Limited,
    /// Nothing.
    Missing,
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// What was found, as a sentence.
    finding: String,
    /// What would make it better, where something would.
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Best rung of the sensing ladder: `samples`, `counters`, `hint-faults`, `first-touches` (page
    /// faults without NUMA balancing, which show no later use), `statistics`.
    rung: &'static str,
    can_act: bool,
    fit: bool,
    checks: Vec<Check>,
    metrics: Vec<Told>,
    /// What this kernel offers.
    kernel: Vec<Offered>,
    /// Counters that lie, where `--check` looked.
    lies: Vec<Finding>,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let report = match examine(&Root::live(), arguments.check) {
        Ok(report) => report,
        Err(error) => {
            terminal::fail("doctor", &error);
            return ExitCode::from(OWN_FAILURE);
        }
    };
    let shown = match arguments.json {
        true => terminal::print_json(&report),
        false => terminal::print(&text(&report, arguments)),
    };
    if let Err(error) = shown {
        terminal::fail("doctor", &error);
        return ExitCode::from(OWN_FAILURE);
    }
    ExitCode::from(if report.fit && report.lies.is_empty() { 0 } else { UNFIT })
}

fn text(report: &Report, arguments: &Arguments) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let mark = match check.verdict {
            Verdict::Good => "good",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        let _ = writeln!(text, "{mark:<8} {:<18} {}", check.name, check.finding);
        if let Some(fix) = &check.fix {
            // A command can be copied; advice cannot.
            let label = if fix.starts_with("sudo ") { "run:" } else { "advice:" };
            let _ = writeln!(text, "{:27} {label} {fix}", "");
        }
    }
    put_metrics(&mut text, &report.metrics, arguments.metrics);
    if arguments.kernel {
        offers::put(&mut text, &report.kernel);
    }
    let can = if report.can_act { "can" } else { "cannot" };
    let fit = if report.fit { "fit for Rondpoint" } else { "not fit for Rondpoint as it is" };
    let rung = match report.rung {
        "samples" => "address samples",
        "hint-faults" => "page faults",
        FIRST_TOUCHES => "page faults of first touches alone",
        "statistics" => "kernel statistics alone",
        other => other,
    };
    let _ = writeln!(text, "senses by {rung}, {can} act: {fit}");
    text
}

/// One line for all metrics, or one for each.
fn put_metrics(text: &mut String, metrics: &[Told], each: bool) {
    let count = |state| metrics.iter().filter(|told| told.state == state).count();
    let [measured, derived, missing] = [State::Measured, State::Derived, State::Missing].map(count);
    let more = if each { "" } else { "; --metrics names them" };
    let _ =
        writeln!(text, "metrics: {measured} measured, {derived} derived, {missing} missing{more}");
    for told in metrics.iter().filter(|_| each) {
        let state = match told.state {
            State::Measured => "measured",
            State::Derived => "derived",
            State::Missing => "missing",
        };
        let from = told.from.as_ref().map(|from| match told.state {
            State::Derived => format!("from {from}"),
            _ => from.clone(),
        });
        let words: Vec<&str> =
            [&from, &told.cost].into_iter().flatten().map(String::as_str).collect();
        let _ = writeln!(text, "{state:<8} {:<18} {}", told.name, words.join("; "));
    }
}

fn examine(root: &Root, check: bool) -> Result<Report> {
    let found = topology::discover(root)?;
    let (pmus, _) = Pmus::discover(root)?;
    let topology = &found.topology;
    let nodes: Vec<u32> =
        topology.memory_nodes().iter().map(|node| topology.kernel_node(node)).collect();
    let available = Generation::choose(&pmus, &found.identity).resolve(&pmus, &nodes);
    let (paranoid, has_clock) = (kernel::paranoid_level(root), ring::has_clock());
    let mut checks = vec![
        nodes_check(&found),
        counters_check(&available, paranoid),
        samples_check(&available, has_clock, paranoid),
        faults_check(paranoid),
        machine_check(&available, topology, paranoid),
        balancing_check(root),
        resctrl::check(root),
        pages_check(root)?,
        copies::check(root),
        threads_check(root)?,
        managers::check(root)?,
    ];
    let refusal = |event: &Event| probe::event(event).err().map(|error| error.to_string());
    let metrics = metrics::told(&available, topology, has_clock, refusal);
    let lies = match check {
        true => known_load::put(&found, &available, &mut checks)?,
        false => Vec::new(),
    };
    let kernel = offers::offered(root);
    Ok(Report { metrics, kernel, lies, ..conclude(checks, nodes.len()) })
}

/// The best rung that works, and whether anything can be done with it.
fn conclude(checks: Vec<Check>, memory_nodes: usize) -> Report {
    let works = |name: &str| {
        checks.iter().any(|check| check.name == name && check.verdict != Verdict::Missing)
    };
    let rung = if works(SAMPLES) {
        "samples"
    } else if works(COUNTERS) {
        "counters"
    } else if works(FAULTS) && works(BALANCING) {
        "hint-faults"
    } else if works(FAULTS) {
        FIRST_TOUCHES
    } else {
        "statistics"
    };
    let can_act = works(PAGES) && works(THREADS);
    let fit = memory_nodes > 1 && can_act && ![FIRST_TOUCHES, "statistics"].contains(&rung);
    let (metrics, kernel, lies) = (Vec::new(), Vec::new(), Vec::new());
    Report { schema: SCHEMA, rung, can_act, fit, checks, metrics, kernel, lies }
}

/// Rung of page faults without NUMA balancing.
const FIRST_TOUCHES: &str = "first-touches";

const COUNTERS: &str = "counters";
const SAMPLES: &str = "address samples";
const FAULTS: &str = "fault samples";
const BALANCING: &str = "NUMA balancing";
const PAGES: &str = "moving pages";
const THREADS: &str = "moving threads";

fn good(name: &'static str, finding: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Good, finding: finding.into(), fix: None }
}

fn limited(name: &'static str, finding: impl Into<String>, fix: Option<&str>) -> Check {
    let fix = fix.map(str::to_string);
    Check { name, verdict: Verdict::Limited, finding: finding.into(), fix }
}

fn missing(name: &'static str, finding: impl Into<String>, fix: Option<&str>) -> Check {
    Check { verdict: Verdict::Missing, ..limited(name, finding, fix) }
}

const MAY_WATCH: &str = "sudo sysctl kernel.perf_event_paranoid=-1";
/// What refuses events where that level is set already.
const FILTERED: &str =
    "the level allows them; ask a container's filter, a security module or lockdown";
/// What gives this user the capabilities for other users' processes, which root has.
fn as_root() -> &'static str {
    match effective_user() {
        0 => {
            "this root lacks capabilities, as in a container; give it CAP_SYS_PTRACE and CAP_SYS_NICE"
        }
        _ => "start rondpoint with sudo",
    }
}

/// Where the kernel refuses a performance event for want of privilege, this helps.
fn perf_fix(error: &LinuxError, paranoid: Option<i64>) -> Option<&'static str> {
    let fix = if paranoid.is_some_and(|level| level < 0) { FILTERED } else { MAY_WATCH };
    matches!(error.errno(), Some(libc_errno::EPERM | libc_errno::EACCES)).then_some(fix)
}

/// Numbers of errno(3), the same on all architectures.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const EACCES: i32 = 13;
}

fn nodes_check(found: &Discovered) -> Check {
    const NAME: &str = "memory nodes";
    let topology = &found.topology;
    match topology.memory_nodes().len() {
        1 => missing(
            NAME,
            "one: every access is local, there is nothing to place",
            Some(
                "on a server whose firmware interleaves memory, switch on NUMA (node interleaving off)",
            ),
        ),
        number => {
            let (cpus, domains) = (topology.cpu_count(), topology.domain_count());
            good(NAME, format!("{number}, with {cpus} CPUs in {domains} cache domains"))
        }
    }
}

fn counters_check(available: &Available, paranoid: Option<i64>) -> Check {
    if let Err(error) = probe::hardware_counter() {
        return missing(COUNTERS, cause(error.errno(), paranoid), perf_fix(&error, paranoid));
    }
    let (known, refused): (Vec<_>, Vec<_>) =
        available.core.iter().partition(|(_, event)| probe::event(event).is_ok());
    let mut absent: Vec<String> = available.missing.iter().map(|(name, _)| name.clone()).collect();
    absent.extend(refused.iter().map(|(metric, _)| metric.name()));
    absent.dedup();
    let table = &available.generation;
    let finding = format!("{} events of the table {table}", known.len());
    if absent.is_empty() {
        return good(COUNTERS, finding);
    }
    limited(COUNTERS, format!("{finding}; not here: {}", absent.join(", ")), None)
}

fn samples_check(available: &Available, has_clock: bool, paranoid: Option<i64>) -> Check {
    let mut problem = None;
    if let Some(event) = &available.buffer {
        match probe::sampling(event, available.period) {
            Ok(_) => return buffer_check(&event.name, has_clock),
            Err(error) => problem = Some(error),
        }
    }
    for event in &available.sample {
        match probe::sampling(event, available.period) {
            Ok(true) => return good(SAMPLES, format!("{}, with physical addresses", event.name)),
            Ok(false) => {
                let finding = format!("{}, without physical addresses", event.name);
                return limited(SAMPLES, finding, Some(MAY_WATCH));
            }
            Err(_) if probe::sampling_of_cpu(event, available.period).is_ok() => {
                let finding = format!("{}, of whole CPUs only on this kernel", event.name);
                return limited(SAMPLES, finding, None);
            }
            Err(error) => problem = Some(error),
        }
    }
    match problem {
        Some(error) => missing(SAMPLES, cause(error.errno(), paranoid), perf_fix(&error, paranoid)),
        None => missing(SAMPLES, "this processor's table has none that this machine knows", None),
    }
}

/// Samples that come through a buffer, which names no task.
fn buffer_check(event: &str, has_clock: bool) -> Check {
    match has_clock {
        true => good(SAMPLES, format!("{event}; tasks are told by the time of operations")),
        false => limited(SAMPLES, format!("{event}: {}", metrics::NO_TIMES), None),
    }
}

fn faults_check(paranoid: Option<i64>) -> Check {
    match probe::fault_sampling() {
        Ok(true) => {
            good(FAULTS, "the kernel tells thread, CPU, address and node of each page fault")
        }
        Ok(false) => {
            limited(FAULTS, "without physical addresses, so without nodes", Some(MAY_WATCH))
        }
        Err(error) => missing(FAULTS, cause(error.errno(), paranoid), perf_fix(&error, paranoid)),
    }
}

fn machine_check(available: &Available, topology: &Topology, paranoid: Option<i64>) -> Check {
    const NAME: &str = "whole machine";
    if let Err(error) = probe::whole_cpu() {
        return missing(NAME, cause(error.errno(), paranoid), perf_fix(&error, paranoid));
    }
    let requests = whole::traffic(available, topology).len();
    let lines = whole::controller_lines(available, topology).len();
    match (requests, lines) {
        (0, 0) => limited(
            NAME,
            "CPUs may be watched; no unit here counts requests from node to node",
            None,
        ),
        (0, lines) => limited(
            NAME,
            format!("{lines} events count what each node's controllers serve, none from where"),
            None,
        ),
        _ => good(NAME, format!("requests from node to node are counted, by {requests} events")),
    }
}

fn balancing_check(root: &Root) -> Check {
    match kernel::first_touches_only(root) {
        None => good(
            BALANCING,
            "on: page faults show which thread uses a page, where there are no address samples",
        ),
        Some((why, fix)) => {
            missing(BALANCING, format!("{why} (needed where there are no address samples)"), fix)
        }
    }
}

fn pages_check(root: &Root) -> Result<Check> {
    if let Err(error) = probe::page_move() {
        return Ok(missing(PAGES, format!("move_pages: {error}"), None));
    }
    let others = probe::has_capability(root, Capability::SysPtrace)?;
    let shared = probe::may_move_shared();
    Ok(match (others, shared) {
        (true, true) => good(PAGES, "of every process, shared pages too"),
        _ => limited(PAGES, "of your own processes only", Some(as_root())),
    })
}

fn threads_check(root: &Root) -> Result<Check> {
    // CAP_SYS_NICE of a user namespace does not reach processes outside of it.
    Ok(if probe::has_capability(root, Capability::SysNice)? && !probe::may_not_move_shared() {
        good(THREADS, "of every process")
    } else {
        limited(THREADS, "of your own processes only", Some(as_root()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conclusion(checks: Vec<Check>, nodes: usize) -> String {
        let report = conclude(checks, nodes);
        format!("{} {} {}", report.rung, report.can_act, report.fit)
    }

    fn acting() -> Vec<Check> {
        vec![good(PAGES, ""), limited(THREADS, "", None)]
    }

    #[test]
    fn without_ordinary_balancing_hint_faults_are_no_rung() {
        let verdict = |mode: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let root = Root::captured(folder.path());
            std::fs::create_dir_all(root.in_proc("sys/kernel")).expect("made");
            std::fs::write(root.in_proc("sys/kernel/numa_balancing"), mode).expect("written");
            balancing_check(&root).verdict
        };
        assert_eq!(verdict("1\n"), Verdict::Good);
        assert_eq!(verdict("3\n"), Verdict::Good);
        assert_eq!(verdict("2\n"), Verdict::Missing);
        assert_eq!(verdict("0\n"), Verdict::Missing);
    }

    #[test]
    fn the_best_rung_that_works_is_named() {
        let with = |more: Vec<Check>| acting().into_iter().chain(more).collect();
        let samples = with(vec![limited(SAMPLES, "", None), good(COUNTERS, "")]);
        assert_eq!(conclusion(samples, 4), "samples true true");
        let counters = with(vec![missing(SAMPLES, "", None), good(COUNTERS, "")]);
        assert_eq!(conclusion(counters, 4), "counters true true");
        let faults = with(vec![good(FAULTS, ""), limited(BALANCING, "", None)]);
        assert_eq!(conclusion(faults, 2), "hint-faults true true");
        let no_balancing = with(vec![good(FAULTS, ""), missing(BALANCING, "", None)]);
        assert_eq!(conclusion(no_balancing, 2), "first-touches true false");
        let nothing = with(vec![missing(FAULTS, "", None), missing(BALANCING, "", None)]);
        assert_eq!(conclusion(nothing, 2), "statistics true false");
    }

    #[test]
    fn a_buffer_of_samples_serves_the_daemon_where_their_time_is_known() {
        assert_eq!(buffer_check("arm_spe", true).verdict, Verdict::Good);
        let untimed = buffer_check("arm_spe", false);
        assert_eq!(untimed.verdict, Verdict::Limited);
        assert!(untimed.finding.contains("daemon"), "{}", untimed.finding);
    }

    #[test]
    fn a_lower_level_is_advised_only_where_there_is_one() {
        let fix = |errno, level| {
            let source = std::io::Error::from_raw_os_error(errno);
            let (event, target) = ("cycles".to_string(), "CPU 0".to_string());
            perf_fix(&LinuxError::PerfOpen { event, target, source }, Some(level))
        };
        assert_eq!(fix(libc_errno::EACCES, 4), Some(MAY_WATCH));
        assert_eq!(fix(libc_errno::EPERM, -1), Some(FILTERED));
        assert_eq!(fix(2, 4), None);
    }

    #[test]
    fn one_node_or_no_way_to_act_is_unfit() {
        let samples = || vec![good(SAMPLES, "")];
        let all: Vec<Check> = acting().into_iter().chain(samples()).collect();
        assert_eq!(conclusion(all, 1), "samples true false");
        assert_eq!(conclusion(samples(), 4), "samples false false");
    }
}
