//! The daemon with twelve programs that start and end. Two have all their memory on one node, and
//! one of them is in a container. Two are excluded, one has a memory policy of its own, three are
//! placed well, four sleep. The same programs run without the daemon, and once more with the two
//! jammed ones under `rondpoint run`.

mod page;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;
use serde_json::Value;

use super::name;
use crate::comparison::Speed;
use crate::configuration;
use crate::lab::{Lab, cut_machine};
use crate::last_third::{pace, round_ends};
use crate::physics::{Finding, script};
use crate::program;
use crate::vm::Record;

/// Two lanes of programs, each with a CPU of every node. Without the kernel's balancing: what is
/// gained here is the daemon's.
const PROGRAMS: &str = r#"
echo 0 > /proc/sys/kernel/numa_balancing
one() {
    program=$1; cpus=$2; by=$3; shift 3
    ln -s $(command -v rondpoint-workloads) /tmp/$program
    taskset -c $cpus $by /tmp/$program "$@" > /tmp/$program.out &
    echo "pid $program $!"
    wait $! && echo "well $program"
}
jam="kmeans --rotate --pin --no-huge-pages --size 8M --centres 1 --seconds"
well="wellplaced --pin --no-huge-pages --size 8M --seconds"
mkdir -p /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
container=/sys/fs/cgroup/docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope
mkdir $container
under=
if [ $manager = run ]; then
    under="rondpoint run --quiet --"
fi
if [ $manager = daemon ]; then
    daemon /tmp/log << END
[exclude]
commands = ["excluded-*"]
END
fi
sleepers=
for number in 1 2 3 4; do
    sleep 14 &
    sleepers="$sleepers $!"
    echo "pid idle-$number $!"
done
(
    one jammed 0,2 "$under" $jam 6
    (sh -c 'echo $PPID' > $container/cgroup.procs; one contained 0,2 "$under" $jam 6)
    one well-3 0,2 "" $well 3
) &
lanes=$!
(
    one excluded-1 1,3 "" $jam 3
    one bound 1,3 "numactl --membind=0" $jam 3
    one well-1 1,3 "" $well 3
    one well-2 1,3 "" $well 3
    one excluded-2 1,3 "" $jam 3
) &
lanes="$lanes $!"
if [ $manager = daemon ]; then
    for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
        sleep 1
        echo "status $(rondpoint status --json | tr -d '\n')"
    done
    rondpoint status --metrics > /tmp/metrics
    echo "status $(rondpoint status --json | tr -d '\n')"
fi
wait $lanes $sleepers
for program in jammed contained well-1 well-2 well-3 excluded-1 excluded-2 bound; do
    echo "rounds $program $(grep -h '^round' /tmp/$program.out | tr '\n' ' ')"
done
if [ $manager = daemon ]; then
    grep -E '^rondpoint_(page_steps|moved_bytes|tree_moved_bytes)_total' /tmp/metrics
    kill -TERM $daemon
    wait $daemon
    echo "daemon $?"
    echo "ledgers $(ls /run/rondpoint | grep -c ledger)"
    tail -n 20 /tmp/log >&2
fi
"#;

const JAMMED: [&str; 2] = ["jammed", "contained"];
/// It has a memory policy of its own.
const BOUND: &str = "bound";
const LEFT: [&str; 2] = ["excluded-1", "excluded-2"];
const WELL: [&str; 3] = ["well-1", "well-2", "well-3"];
const IDLE: [&str; 4] = ["idle-1", "idle-2", "idle-3", "idle-4"];

/// The least gain of a jammed program's last second over its first that counts as one.
const LEAST_GAIN: f64 = 1.2;
/// Least speed of a jammed program in its last third, over the same under `rondpoint run` (our
/// choice). The daemon finds the program at a look for processes, `run` starts it.
const LEAST_OF_RUN: f64 = 0.9;
/// What a program may lose at most by the daemon's being there.
const MOST_LOST: f64 = 0.02;
/// The same of a jammed program that is left alone. Its neighbour's pages move meanwhile, through
/// the controller that it waits for.
const MOST_LOST_JAMMED: f64 = 0.10;
/// Starts of the guest of which docs/results has the ranges.
const STARTS: u64 = 3;

/// What the daemon last said of a program.
#[derive(Debug, Clone, Default, PartialEq)]
struct Said {
    state: String,
    moved_bytes: u64,
}

/// The same programs in three guests that begin alike.
struct Start {
    daemon: Record,
    alone: Record,
    /// The jammed ones under `rondpoint run`.
    run: Record,
    said: BTreeMap<String, Said>,
}

impl Start {
    fn of(lab: &Lab, machine: &Machine) -> Result<Self> {
        let daemon = boot(lab, machine, "twelve programs and the daemon", "daemon")?;
        let said = last_said(&daemon)?;
        let alone = boot(lab, machine, "twelve programs alone", "no")?;
        let run = boot(lab, machine, "twelve programs, the jammed ones under run", "run")?;
        Ok(Self { daemon, alone, run, said })
    }

    /// Rounds a second of a program in its last second over those in its first.
    fn gain(&self, program: &str) -> Result<f64> {
        let rounds = rounds(&self.daemon, program)?;
        let end = *rounds.last().context("no round ended")?;
        Ok(pace(&rounds, end - 1.0, end) / pace(&rounds, 0.0, 1.0))
    }

    /// Speed of a program beside the daemon, over its speed alone.
    fn beside(&self, program: &str) -> Result<f64> {
        let speed = |record| -> Result<f64> {
            let rounds = rounds(record, program)?;
            Ok(rounds.len() as f64 / *rounds.last().context("no round ended")?)
        };
        Ok(speed(&self.daemon)? / speed(&self.alone)?)
    }

    /// Speed of a program in its last third, over the same under `rondpoint run`.
    fn of_run(&self, program: &str) -> Result<f64> {
        let late = |record| -> Result<f64> { last_third(&rounds(record, program)?) };
        Ok(late(&self.daemon)? / late(&self.run)?)
    }
}

/// The jammed ones become faster, no other is touched or slowed down, and nothing is left. Metrics
/// and states tell the same.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = machine()?;
    findings(&name(&machine), &[Start::of(lab, &machine)?])
}

/// The same for several starts. Also writes the JSON of docs/results, of which `./x results` makes
/// the page.
///
/// # Errors
/// A guest did not come to its end, or the file cannot be written.
pub(super) fn write(lab: &Lab, path: &Path) -> Result<Vec<Finding>> {
    let machine = machine()?;
    let starts = (0..STARTS).map(|by| Start::of(&lab.later_start(by), &machine));
    let starts: Vec<Start> = starts.collect::<Result<_>>()?;
    let findings = findings(&name(&machine), &starts)?;
    page::write(&name(&machine), &starts, &findings, path)?;
    Ok(findings)
}

fn machine() -> Result<Machine> {
    cut_machine("altra-2", 2)
}

/// Gains are judged by the median of the starts, promises to other programs by the lowest.
fn findings(machine: &str, starts: &[Start]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for program in JAMMED {
        let gain = over(starts, |start| start.gain(program))?;
        let what = format!("twelve: rounds a second of {program}, its last second over its first");
        let mut found = at_least(machine, what, LEAST_GAIN, gain.median, gain);
        let moved = starts.iter().map(|start| of(&start.said, program).moved_bytes.to_string());
        found.measured += &format!(" ({} bytes moved)", moved.collect::<Vec<_>>().join(", "));
        findings.push(found);
        let of_run = over(starts, |start| start.of_run(program))?;
        let what = format!("twelve: {program} in its last third, over the same under run");
        findings.push(at_least(machine, what, LEAST_OF_RUN, of_run.median, of_run));
    }
    let well = WELL.into_iter().map(|program| (program, MOST_LOST));
    let jams = LEFT.into_iter().chain([BOUND]).map(|program| (program, MOST_LOST_JAMMED));
    for (program, most) in well.chain(jams) {
        let what = format!("twelve: speed of {program} beside the daemon over its speed alone");
        let beside = over(starts, |start| start.beside(program))?;
        findings.push(at_least(machine, what, 1.0 - most, beside.least, beside));
    }
    for start in starts {
        findings.push(untouched(machine, &start.said));
        findings.push(told_alike(machine, &start.daemon)?);
        findings.push(end(machine, start));
    }
    Ok(findings)
}

/// A figure that should not be below `least`. The range is told where starts differ.
fn at_least(machine: &str, what: String, least: f64, judged: f64, all: Speed) -> Finding {
    let Speed { least: low, most, .. } = all;
    let range = if low < most { format!("({low:.3} to {most:.3})") } else { String::new() };
    Finding::between(machine, what, (least, f64::INFINITY), judged, &range)
}

/// Median and range of a figure over the starts.
fn over(starts: &[Start], figure: impl Fn(&Start) -> Result<f64>) -> Result<Speed> {
    let figures: Vec<f64> = starts.iter().map(figure).collect::<Result<_>>()?;
    Speed::of(figures.into_iter()).context("no start")
}

/// Rounds a second in the last third of the rounds.
fn last_third(ends: &[f64]) -> Result<f64> {
    let before = ends.len() * 2 / 3;
    let (Some(first), Some(last)) = (before.checked_sub(1), ends.last()) else {
        bail!("{} rounds have no last third", ends.len())
    };
    Ok((ends.len() - before) as f64 / (last - ends[first]))
}

fn boot(lab: &Lab, machine: &Machine, what: &str, manager: &str) -> Result<Record> {
    let text = format!("manager={manager}\n{PROGRAMS}");
    script::run_with(lab, machine, what, &text, |guest| {
        let tool = configuration::tool(&lab.installed, "numactl")?;
        let words = program::bring_tool(tool, guest)?;
        guest.add_script(format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")), "/bin/numactl");
        Ok(())
    })
}

/// What is excluded is left, what has a policy of its own or is placed well is not moved, and what
/// sleeps is not managed.
fn untouched(machine: &str, said: &BTreeMap<String, Said>) -> Finding {
    let all_left = LEFT.iter().all(|program| of(said, program).state == "left");
    let others = LEFT.into_iter().chain(WELL).chain(IDLE).chain([BOUND]);
    let moved: Vec<&str> = others.filter(|program| of(said, program).moved_bytes > 0).collect();
    let managed = IDLE.iter().any(|program| of(said, program).state == "managed");
    let jammed = JAMMED.iter().all(|program| of(said, program).moved_bytes > 0);
    Finding::fact(
        machine,
        "twelve: the two jammed ones are moved, one of them in a container, and no other is",
        "two left, no sleeper managed, only the jammed are moved",
        format!("{said:?}; others moved: {moved:?}"),
        all_left && moved.is_empty() && !managed && jammed,
    )
}

/// The metrics were taken between the last two states. Their bytes are between those of the states,
/// and the sum of all trees is that of the machine.
fn told_alike(machine: &str, with: &Record) -> Result<Finding> {
    let mut states = Vec::new();
    for line in script::lines(with, "status ") {
        let status: Value = serde_json::from_str(line).context("a state of the daemon")?;
        states.push(status["totals"]["moved_bytes"].as_u64().context("moved bytes")? as f64);
    }
    let [.., before, after] = states[..] else { bail!("the daemon told no two states") };
    let sum = |tag: &str| -> f64 {
        let values = script::lines(with, tag).filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum()
    };
    let all = sum("rondpoint_moved_bytes_total");
    let trees = sum("rondpoint_tree_moved_bytes_total");
    Ok(Finding::fact(
        machine,
        "twelve: metrics and states have the same moved bytes",
        "as many as the states before and after, and as all trees together",
        format!("{all} bytes, {before} before and {after} after, {trees} of trees"),
        all > 0.0 && (before..=after).contains(&all) && trees == all,
    ))
}

fn end(machine: &str, start: &Start) -> Finding {
    let counts = [&start.daemon, &start.alone, &start.run];
    let counts = counts.map(|record| script::lines(record, "well ").count());
    let line = |tag: &str| script::lines(&start.daemon, tag).next().unwrap_or("?").to_owned();
    let steps: f64 = line("rondpoint_page_steps_total").parse().unwrap_or(0.0);
    let (status, ledgers) = (line("daemon "), line("ledgers "));
    Finding::fact(
        machine,
        "twelve: programs and daemon end well, metrics have the steps, and nothing is left",
        "8, 8 and 8 end well, status 0, no ledger, steps",
        format!("{counts:?} end well, status {status}, ledgers {ledgers}, {steps} page steps"),
        counts == [8; 3] && status == "0" && ledgers == "0" && steps > 0.0,
    )
}

fn of(said: &BTreeMap<String, Said>, program: &str) -> Said {
    said.get(program).cloned().unwrap_or_default()
}

/// Of each program the last that any state said of its process.
fn last_said(record: &Record) -> Result<BTreeMap<String, Said>> {
    let mut programs: BTreeMap<u64, &str> = BTreeMap::new();
    for line in script::lines(record, "pid ") {
        let (program, pid) = line.split_once(' ').context("a program and a number")?;
        programs.insert(pid.parse().context("a process number")?, program);
    }
    let mut said = BTreeMap::new();
    for line in script::lines(record, "status ") {
        let status: Value = serde_json::from_str(line).context("a state of the daemon")?;
        for process in status["processes"].as_array().into_iter().flatten() {
            let Some(program) = process["pid"].as_u64().and_then(|pid| programs.get(&pid)) else {
                continue;
            };
            let state = process["state"].as_str().unwrap_or_default().to_owned();
            let moved_bytes = process["moved_bytes"].as_u64().unwrap_or(0);
            said.insert((*program).to_owned(), Said { state, moved_bytes });
        }
    }
    Ok(said)
}

/// Ends of a program's rounds, s.
fn rounds(record: &Record, program: &str) -> Result<Vec<f64>> {
    let line = script::lines(record, &format!("rounds {program} ")).next();
    let line = line.with_context(|| format!("{program} told nothing"))?;
    round_ends(&line.replace(' ', "\n")).with_context(|| format!("{program} told no rounds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start in which each program makes a hundred rounds. Alone each takes a tenth of a second.
    pub(super) fn start(of_alone: f64, of_alone_under_run: f64) -> Start {
        let told = |factor: f64| {
            let end = |round: i32| format!("{:.6}", 0.1 * f64::from(round) * factor);
            let ends = (1..=100).map(end).collect::<Vec<_>>().join(",");
            let all = JAMMED.into_iter().chain(LEFT).chain(WELL).chain([BOUND]);
            let lines = all.map(|program| format!("rounds {program} round_ends_s={ends} \n"));
            lines.collect::<String>()
        };
        let status = "status {\"totals\": {\"moved_bytes\": 8}}\n".repeat(2);
        let texts = [told(of_alone) + &status, told(1.0), told(of_alone_under_run)];
        let [daemon, alone, run] = texts.map(|text| record(&text));
        Start { daemon, alone, run, said: BTreeMap::new() }
    }

    fn record(stdout: &str) -> Record {
        Record {
            events: Vec::new(),
            stdout: stdout.as_bytes().to_vec(),
            stderr: Vec::new(),
            files: BTreeMap::new(),
            measurement: None,
        }
    }

    #[test]
    fn the_last_state_of_each_program_counts() {
        let status = |state: &str, moved: u64| {
            format!(
                "status {{\"processes\": [{{\"pid\": 7, \"state\": \"{state}\", \"moved_bytes\": {moved}}}, {{\"pid\": 9}}]}}\n"
            )
        };
        let text = format!("pid jammed 7\n{}{}", status("watched", 0), status("managed", 4096));
        let said = last_said(&record(&text)).expect("read");
        let expected = Said { state: "managed".to_owned(), moved_bytes: 4096 };
        assert_eq!(said, BTreeMap::from([("jammed".to_owned(), expected)]));
    }

    #[test]
    fn metrics_that_differ_from_the_states_are_found() {
        let told = |all: u64, tree: u64| {
            let status = |moved| format!("status {{\"totals\": {{\"moved_bytes\": {moved}}}}}\n");
            let tree = format!("rondpoint_tree_moved_bytes_total{{unit=\"\"}} {tree}\n");
            let text =
                format!("{}{}rondpoint_moved_bytes_total {all}\n{tree}", status(4), status(8));
            told_alike("here", &record(&text)).expect("read").holds
        };
        assert!(told(4, 4) && told(8, 8));
        assert!(!told(2, 2) && !told(12, 12) && !told(8, 4));
        assert!(told_alike("here", &record("status {}\n")).is_err());
    }

    #[test]
    fn the_last_third_is_timed_by_the_ends_of_its_rounds() {
        // Four rounds of a second each, then two of half a second.
        assert_eq!(last_third(&[1.0, 2.0, 3.0, 4.0, 4.5, 5.0]).expect("rounds"), 2.0);
        assert!(last_third(&[1.0]).is_err() && last_third(&[]).is_err());
    }

    #[test]
    fn a_program_that_loses_two_percent_beside_the_daemon_is_found() {
        let holds = |beside: f64, under_run: f64| {
            let findings = findings("here", &[start(beside, under_run)]).expect("told");
            findings.iter().filter(|one| one.holds).count()
        };
        let all = holds(1.0, 1.0);
        assert_eq!(holds(1.019, 1.019), all);
        assert_eq!(holds(1.021, 1.021), all - WELL.len());
        assert_eq!(holds(1.0, 0.89), all - JAMMED.len(), "not as fast as under run");
    }

    #[test]
    fn a_promise_to_another_program_holds_in_each_start() {
        let starts = [start(1.0, 1.0), start(1.0, 1.0), start(1.3, 1.0)];
        let findings = findings("here", &starts).expect("told");
        let one = |program: &str, of: &str| {
            let found = findings.iter().find(|one| one.check.contains(&format!("{program} {of}")));
            found.expect("a finding").holds
        };
        for program in WELL.into_iter().chain(LEFT).chain([BOUND]) {
            assert!(!one(program, "beside the daemon"), "{program} lost in one of the starts");
        }
        assert!(one("jammed", "in its last third"), "a gain is judged by its median");
        assert!(findings[0].measured.ends_with("(0, 0, 0 bytes moved)"), "{:?}", findings[0]);
    }

    #[test]
    fn rounds_are_those_of_the_program() {
        let record = record("rounds well-1 round_ends_s=0.5,1.0,1.5 rounds_each=1\n");
        assert_eq!(rounds(&record, "well-1").expect("read"), [0.5, 1.0, 1.5]);
        assert!(rounds(&record, "well-2").is_err());
    }
}
