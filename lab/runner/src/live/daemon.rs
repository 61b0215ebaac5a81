//! The daemon with programs that start and end. One program has all its memory on one node, one is
//! the same program excluded, and one is placed well.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::name;
use super::session::{report, run};
use crate::lab::{Lab, cut_machine};
use crate::last_third::{pace, round_ends};
use crate::physics::{Finding, script};

/// Two programs come, each with a CPU of every node for itself; a third comes when they have gone.
/// Without the kernel's balancing: what is gained here is the daemon's.
const COME_AND_GO: &str = r#"
echo 0 > /proc/sys/kernel/numa_balancing
ln -s $(command -v rondpoint-workloads) /tmp/excluded
daemon /tmp/log << END
[exclude]
commands = ["excluded"]
END
jam="kmeans --rotate --pin --no-huge-pages --size 8M --seconds 6 --centres 1"
taskset -c 0,2 rondpoint-workloads $jam > /tmp/jammed &
jammed=$!
taskset -c 1,3 /tmp/excluded $jam > /tmp/excluded.out &
excluded=$!
sleep 5
rondpoint status --json > /tmp/during
report during /tmp/during
wait $jammed && wait $excluded && echo "both ended well"
rondpoint-workloads wellplaced --pin --no-huge-pages --size 8M --seconds 4 > /tmp/wellplaced &
wellplaced=$!
sleep 3
rondpoint status --json > /tmp/after
report after /tmp/after
wait $wellplaced && echo "the third ended well"
kill -TERM $daemon
wait $daemon
echo "daemon ended with status $?"
echo "ledgers $(ls /run/rondpoint | grep -c ledger)"
echo "jammed $jammed"
echo "excluded $excluded"
echo "wellplaced $wellplaced"
cat /tmp/jammed
tail -n 20 /tmp/log >&2
"#;

/// The least gain of the last second over the first that counts as one.
const LEAST_GAIN: f64 = 1.2;
/// Of 8 MiB: what the memory of 100 pages of the other node is.
const LEAST_MOVED: u64 = 100 * 4096;

/// The jammed one becomes faster; no other is touched; nothing is left.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("altra-2", 2)?;
    let record = run(lab, &machine, "a daemon, and programs that come and go", COME_AND_GO)?;
    let (during, after) = (report(&record, "during")?, report(&record, "after")?);
    let of = |status: &Value, program: &str| -> Result<Value> {
        let pid = script::lines(&record, &format!("{program} ")).next().context("no process")?;
        let pid: u64 = pid.parse().context("a process number")?;
        let mut processes = status["processes"].as_array().into_iter().flatten();
        let found = processes.find(|process| process["pid"] == pid);
        found.cloned().with_context(|| format!("the daemon does not show {program}"))
    };
    let moved = |process: &Value| process["moved_bytes"].as_u64().unwrap_or(0);
    let (jammed, excluded) = (of(&during, "jammed")?, of(&during, "excluded")?);
    let well = of(&after, "wellplaced")?;
    let said = String::from_utf8_lossy(&record.stdout);
    let rounds = round_ends(&said).context("the program told no rounds")?;
    let end = *rounds.last().context("no round ended")?;
    let machine = name(&machine);
    let states = [&jammed, &excluded, &well].map(|one| one["state"].as_str().unwrap_or("?"));
    let all = [&jammed, &excluded, &well].map(moved);
    let is_there = |line: &str| script::lines(&record, line).next().is_some();
    let ended = is_there("both ended well") && is_there("the third ended well");
    let status = script::lines(&record, "daemon ended with status").next().unwrap_or("?");
    let ledgers = script::lines(&record, "ledgers").next().unwrap_or("?");
    Ok(vec![
        Finding::between(
            &machine,
            "daemon: rounds a second of the jammed program, its last second over its first".into(),
            (LEAST_GAIN, f64::INFINITY),
            pace(&rounds, end - 1.0, end) / pace(&rounds, 0.0, 1.0),
            &format!("({} bytes moved)", all[0]),
        ),
        Finding::fact(
            &machine,
            "daemon: the jammed one is moved, an excluded and a well placed one are not",
            "managed, left, managed; only the first is moved",
            format!("{}; {all:?} bytes", states.join(", ")),
            states == ["managed", "left", "managed"] && all[0] >= LEAST_MOVED && all[1..] == [0, 0],
        ),
        Finding::fact(
            &machine,
            "daemon: programs and daemon end well, and nothing is left",
            "all end well, status 0, no ledger",
            format!("programs: {ended}, status {status}, ledgers: {ledgers}"),
            ended && status.trim() == "0" && ledgers.trim() == "0",
        ),
        Finding::fact(
            &machine,
            "daemon: the state says how many accesses stay local and what the daemon costs",
            "a share of accesses",
            format!(
                "local {}, lost {}; {} of a CPU",
                during["factor"]["local_share"],
                during["factor"]["lost_share"],
                during["own"]["cpu_share"]
            ),
            during["factor"]["local_share"].as_f64().is_some(),
        ),
    ])
}
