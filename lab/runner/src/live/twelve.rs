//! The daemon with twelve programs that start and end. Two have all their memory on one node, and
//! one of them is in a container. Two are excluded, one has a memory policy of its own, three are
//! placed well, four sleep. The same programs run once without the daemon.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;
use serde_json::Value;

use super::name;
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
if [ $with_daemon = yes ]; then
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
    one jammed 0,2 "" $jam 6
    (sh -c 'echo $PPID' > $container/cgroup.procs; one contained 0,2 "" $jam 6)
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
if [ $with_daemon = yes ]; then
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
if [ $with_daemon = yes ]; then
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
/// What a program may lose at most by the daemon's being there.
const MOST_LOST: f64 = 0.02;
/// The same of a jammed program that is left alone. Its neighbour's pages move meanwhile, through
/// the controller that it waits for.
const MOST_LOST_JAMMED: f64 = 0.10;

/// What the daemon last said of a program.
#[derive(Debug, Clone, Default, PartialEq)]
struct Said {
    state: String,
    moved_bytes: u64,
}

/// The jammed ones become faster, no other is touched or slowed down, and nothing is left. Metrics
/// and states tell the same.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("altra-2", 2)?;
    let with = boot(lab, &machine, "twelve programs and the daemon", "yes")?;
    let without = boot(lab, &machine, "twelve programs alone", "no")?;
    let said = last_said(&with)?;
    let machine = name(&machine);
    let mut findings = Vec::new();
    for program in JAMMED {
        let rounds = rounds(&with, program)?;
        let end = *rounds.last().context("no round ended")?;
        findings.push(Finding::between(
            &machine,
            format!("twelve: rounds a second of {program}, its last second over its first"),
            (LEAST_GAIN, f64::INFINITY),
            pace(&rounds, end - 1.0, end) / pace(&rounds, 0.0, 1.0),
            &format!("({} bytes moved)", of(&said, program).moved_bytes),
        ));
    }
    let well = WELL.into_iter().map(|program| (program, MOST_LOST));
    let jams = LEFT.into_iter().chain([BOUND]).map(|program| (program, MOST_LOST_JAMMED));
    for (program, most) in well.chain(jams) {
        let speed = |record| -> Result<f64> {
            let rounds = rounds(record, program)?;
            Ok(pace(&rounds, 0.0, *rounds.last().context("no round ended")?))
        };
        findings.push(Finding::between(
            &machine,
            format!("twelve: speed of {program} beside the daemon over its speed alone"),
            (1.0 - most, f64::INFINITY),
            speed(&with)? / speed(&without)?,
            "",
        ));
    }
    findings.push(untouched(&machine, &said));
    findings.push(told_alike(&machine, &with)?);
    findings.push(end(&machine, &with, &without));
    Ok(findings)
}

fn boot(lab: &Lab, machine: &Machine, what: &str, with_daemon: &str) -> Result<Record> {
    let text = format!("with_daemon={with_daemon}\n{PROGRAMS}");
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

fn end(machine: &str, with: &Record, without: &Record) -> Finding {
    let count = |record| script::lines(record, "well ").count();
    let line = |tag: &str| script::lines(with, tag).next().unwrap_or("?").to_owned();
    let steps: f64 = line("rondpoint_page_steps_total").parse().unwrap_or(0.0);
    let (status, ledgers) = (line("daemon "), line("ledgers "));
    Finding::fact(
        machine,
        "twelve: programs and daemon end well, metrics have the steps, and nothing is left",
        "8 and 8 end well, status 0, no ledger, steps",
        format!(
            "{} and {} end well, status {status}, ledgers {ledgers}, {steps} page steps",
            count(with),
            count(without)
        ),
        count(with) == 8 && count(without) == 8 && status == "0" && ledgers == "0" && steps > 0.0,
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
    fn rounds_are_those_of_the_program() {
        let record = record("rounds well-1 round_ends_s=0.5,1.0,1.5 rounds_each=1\n");
        assert_eq!(rounds(&record, "well-1").expect("read"), [0.5, 1.0, 1.5]);
        assert!(rounds(&record, "well-2").is_err());
    }
}
