//! Checks `attach` and its end on a running program, and separate verdicts on two programs.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::name;
use super::session::{pages, pages_of, report, run};
use crate::lab::{Lab, cut_machine};
use crate::last_third::{pace, round_ends};
use crate::physics::{Finding, script};

/// The program is on its own for a second, managed for four, and on its own again. The kernel's
/// balancing is off: before Rondpoint comes it would have moved half of the misplaced pages, or
/// all, depending on timing. So what is gained here is Rondpoint's.
const ATTACH: &str = r#"
echo 0 > /proc/sys/kernel/numa_balancing
rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 8M --seconds 7 --centres 1 > /tmp/out &
program=$!
sleep 1
rondpoint attach --quiet --report /tmp/report $program &
manager=$!
sleep 4
kill -INT $manager
wait $manager
echo "ledgers $(ls /run/rondpoint | wc -l)"
kill -0 $program && echo "program runs"
report attach /tmp/report
wait $program
echo "program ended with status $?"
cat /tmp/out
"#;

/// One program has all its memory on one node, the other has each part where it is used. Each has a
/// CPU of every node for itself.
const TWO: &str = r#"
cat > /root/both << END
taskset -c 0,2 rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 8M --seconds 4 --centres 1 > /tmp/kmeans &
echo \$! > /tmp/kmeans.pid
taskset -c 1,3 rondpoint-workloads wellplaced --pin --no-huge-pages --size 8M --seconds 4 > /tmp/wellplaced &
echo \$! > /tmp/wellplaced.pid
wait
END
rondpoint run --quiet --report /tmp/report -- sh /root/both
report both /tmp/report
echo "kmeans $(cat /tmp/kmeans.pid)"
echo "wellplaced $(cat /tmp/wellplaced.pid)"
"#;

/// The least gain of the end over the beginning that counts as one.
const LEAST_GAIN: f64 = 1.2;

/// It becomes faster while it is managed, stays so when it is left, and is left with ^C.
pub(super) fn check_attach(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("altra-2", 1)?;
    let record = run(lab, &machine, "attach and detach", ATTACH)?;
    let report = report(&record, "attach")?;
    let said = String::from_utf8_lossy(&record.stdout);
    let rounds = round_ends(&said).context("the program told no rounds")?;
    let end = *rounds.last().context("no round ended")?;
    let machine = name(&machine);
    let moved = pages(&report, "moved");
    let runs = script::lines(&record, "program runs").next().is_some();
    let ended = script::lines(&record, "program ended with status").next().unwrap_or("?");
    let ledgers = script::lines(&record, "ledgers").next().unwrap_or("?");
    let left = format!("runs: {runs}, ended with status {ended}, ledgers left: {ledgers}");
    Ok(vec![
        Finding::between(
            &machine,
            "attach: rounds a second when it was left, over before it was joined".to_owned(),
            (LEAST_GAIN, f64::INFINITY),
            pace(&rounds, end - 1.0, end) / pace(&rounds, 0.0, 1.0),
            &format!("({moved} pages moved)"),
        ),
        Finding::fact(
            &machine,
            "attach: after ^C the program goes on, right to the end",
            "it runs, status 0, no ledger",
            left,
            runs && ended == "0" && ledgers == "0" && moved > 0,
        ),
    ])
}

/// The badly placed one is moved, the other left alone.
pub(super) fn check_two(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("altra-2", 2)?;
    let record = run(lab, &machine, "two programs with opposite needs", TWO)?;
    let report = report(&record, "both")?;
    let moved = |program: &str| -> Result<u64> {
        let pid = script::lines(&record, &format!("{program} ")).next().context("no process")?;
        let pid: u64 = pid.parse().context("a process number")?;
        let own = |process: &&Value| process["pid"] == pid;
        let processes = report["processes"].as_array().into_iter().flatten();
        Ok(processes.filter(own).map(|process| pages_of(&process["account"], "moved")).sum())
    };
    let (bad, good) = (moved("kmeans")?, moved("wellplaced")?);
    Ok(vec![Finding::fact(
        &name(&machine),
        "two programs: the badly placed one is moved, the well placed one left alone",
        "over 100 pages, not one",
        format!("{bad} and {good} of 2048 pages each"),
        bad > 100 && good == 0,
    )])
}
