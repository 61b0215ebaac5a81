//! The lab plays an Arm server: events of the cores, a mesh in each node, and SPE with its buffer.
//! Samples come from a buffer that names no task, also where the daemon samples all tasks.

use anyhow::{Context as _, Result};
use rondpoint_machine::{Machine, Processor};
use serde_json::Value;

use super::name;
use super::processor::{Pair, counted, pair, playing, unjammed};
use super::samples::{SPE, sampled};
use super::session::{report, run};
use crate::lab::Lab;
use crate::physics::{Finding, script};

/// Neoverse N1. Perf cannot be asked by its own names: on x86-64 it has no list of Arm's events.
/// Home nodes of the mesh count for their own socket. Their misses of the last-level cache are not
/// compared: they are as of each CPU's last export, 1.6 and 3.9 % off in two runs.
const PAIRS: [Pair; 5] = [
    pair("misses of the private caches", "armv8_pmuv3_0/event=0x17", "model/l2_miss"),
    pair(
        "accesses to another socket",
        "armv8_pmuv3_0/event=0x31",
        "model/remote_dram model/remote_fwd model/remote_hitm",
    ),
    pair(
        "reads that no cache of the socket answers",
        "armv8_pmuv3_0/event=0x37",
        "model/dram_reads model/remote_fwd model/remote_hitm",
    ),
    pair("cycles that wait for memory", "armv8_pmuv3_0/event=0x24", "model/stall_cycles"),
    pair(
        "lines of the node's controllers",
        "arm_cmn/type=0x5,eventid=0xd",
        "lab_nb/event=1 lab_nb/event=2",
    ),
];

/// What `doctor --metrics` has to call measured.
const MEASURED: &str = "address_samples cache_lookups cache_misses controller_bytes cycles \
    instructions llc_misses private_misses remote_dram stall_cycles";

/// Two programs that share all CPUs. Nothing but samples tells that the one is jammed and the other
/// is not, because the kernel's balancing is off.
const SHARED_CPUS: &str = r#"
echo 0 > /proc/sys/kernel/numa_balancing
daemon /tmp/log < /dev/null
ln -s $(command -v rondpoint-workloads) /tmp/placed
rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 8M --seconds 8 --centres 1 > /dev/null &
jammed=$!
/tmp/placed wellplaced --pin --no-huge-pages --size 8M --seconds 8 > /dev/null &
placed=$!
sleep 7
rondpoint status --json > /tmp/status
report status /tmp/status
wait $jammed && wait $placed && echo "both ended well"
kill -TERM $daemon
wait $daemon
echo "jammed $jammed"
echo "placed $placed"
tail -n 20 /tmp/log >&2"#;
/// Of 8 MiB: 50 pages. 103 moved in one run and none in another (emulated).
const LEAST_MOVED: u64 = 50 * 4096;

/// Counts, a jam of four nodes, and the nodes that samples tell.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let n1 = Processor::NeoverseN1;
    let mut findings = counted(lab, &[("altra-2", n1, &PAIRS[..], MEASURED)])?;
    findings.push(unjammed(lab, n1)?);
    findings.extend(sampled(lab, &playing("altra-2", n1)?, &SPE)?);
    Ok(findings)
}

/// The daemon, which samples all tasks.
pub(super) fn check_daemon(lab: &Lab) -> Result<Vec<Finding>> {
    under_the_daemon(lab, &playing("altra-2", Processor::NeoverseN1)?)
}

/// Whether the daemon moves memory of the jammed program and nothing of the other.
fn under_the_daemon(lab: &Lab, machine: &Machine) -> Result<Vec<Finding>> {
    let record = run(lab, machine, "a daemon with SPE", SHARED_CPUS)?;
    let status = report(&record, "status")?;
    let moved = |program: &str| -> Result<u64> {
        let pid = script::lines(&record, &format!("{program} ")).next().context("no process")?;
        let pid: u64 = pid.parse().context("a process number")?;
        let mut processes = status["processes"].as_array().into_iter().flatten();
        let found: Option<&Value> = processes.find(|process| process["pid"] == pid);
        let found = found.with_context(|| format!("the daemon does not show {program}"))?;
        Ok(found["moved_bytes"].as_u64().unwrap_or(0))
    };
    let all = [moved("jammed")?, moved("placed")?];
    let ended = script::lines(&record, "both ended well").next().is_some();
    Ok(vec![Finding::fact(
        &name(machine),
        "SPE under the daemon: memory of the jammed program moves, none of the well placed one",
        "at least 204800 bytes, none; both end well",
        format!("{} and {} bytes; end well: {ended}", all[0], all[1]),
        all[0] >= LEAST_MOVED && all[1] == 0 && ended,
    )])
}
