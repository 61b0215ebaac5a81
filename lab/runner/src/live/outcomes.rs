//! Refusals of the kernel, and actions of a program in the middle of a move. Each is provoked for
//! real, and must be counted and reported.

use anyhow::Result;
use serde_json::Value;

use super::name;
use super::session::{moves, pages, report, run, steps, told};
use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, script};

/// The kernel's refusals. The program is the one with the shared array, as long as it takes to be
/// acted on once.
const REFUSALS: &str = r#"
kmeans="rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 8M --seconds 2 --centres 1"
rondpoint run --quiet --report /tmp/busy -- $kmeans --hold-pages > /dev/null
report busy /tmp/busy

echo nobody:x:65534:65534::/:/bin/sh > /etc/passwd
su nobody -c "rondpoint run --quiet --report /tmp/refused -- $kmeans --undumpable" > /dev/null
report refused /tmp/refused

# A file system on node 1 leaves 16 MiB of the node free, and the kernel keeps 40 MiB of each node for itself: Rondpoint
# sees room, the kernel gives none. A larger reserve would leave node 0 none either. Pages in lists of CPUs and in caches
# come back as free, so the node is filled until at most 24 MiB stay free beside the reserve.
fill() {
    count=$((($(free_kib) - $2) / 64))
    # Where the node has less to give than it says, the kernel ends dd and not this script.
    (echo 1000 > /proc/self/oom_score_adj; exec dd if=/dev/zero of=/full/$1 bs=64k count=$count 2> /dev/null) || true
}
free_kib() { sed -n 's/.*MemFree: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node1/meminfo; }
reserve() { echo $1 > /proc/sys/vm/min_free_kbytes; }
mkdir /full
mount -t tmpfs -o size=100%,mpol=bind:1 none /full
for attempt in 1 2 3 4 5; do
    reserve 1024
    echo 3 > /proc/sys/vm/drop_caches
    fill first-$attempt 16384
    reserve 81920
    sleep 1
    [ $(free_kib) -gt 24576 ] || break
done
echo "reserved-free $(free_kib) KiB free"
rondpoint run --quiet --report /tmp/reserved -- $kmeans > /dev/null
report reserved /tmp/reserved

# And one that leaves 4 MiB, which Rondpoint sees to be less than the fiftieth that it always leaves free.
reserve 1024
fill second 4096
rondpoint run --quiet --report /tmp/full -- $kmeans > /dev/null
report full /tmp/full
"#;

/// What a program may do in the middle, and the tag of its report.
const EVASIONS: [&str; 5] = ["unmap", "exec", "fork", "stop", "exit"];

/// Four refusals on two nodes.
pub(super) fn check_refusals(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("altra-2", 1)?;
    let record = run(lab, &machine, "pages that cannot be moved", REFUSALS)?;
    let (busy, refused) = (report(&record, "busy")?, report(&record, "refused")?);
    let (reserved, full) = (report(&record, "reserved")?, report(&record, "full")?);
    let held = full["refused"]["no-memory"].as_u64().unwrap_or(0);
    let machine = name(&machine);
    let finding = |check: &str, target: &str, report: &Value, holds: bool| {
        Finding::fact(&machine, check, target, told(report), holds)
    };
    let free = script::lines(&record, "reserved-free ").next().unwrap_or("free memory unknown");
    let not_permitted = refused["steps"].as_array().into_iter().flatten().any(|step| {
        step["outcome"].as_str().is_some_and(|outcome| outcome.contains("Operation not permitted"))
    });
    Ok(vec![
        finding(
            "EBUSY: pages to which a pipe refers",
            "busy pages",
            &busy,
            pages(&busy, "busy") > 100,
        ),
        finding(
            "EPERM: a program that is undumpable, managed without privileges",
            "refused steps, none moved",
            &refused,
            steps(&refused, "refused") > 0 && not_permitted && pages(&refused, "moved") == 0,
        ),
        Finding::fact(
            &machine,
            "ENOMEM: the other node is full, as only the kernel knows",
            "pages without room, none moved",
            format!("{}; {free}{}", told(&reserved), moves(&reserved)),
            pages(&reserved, "no_memory") > 0 && pages(&reserved, "moved") == 0,
        ),
        Finding::fact(
            &machine,
            "a full node that can be seen: nothing is tried",
            "pages held back for want of memory",
            format!("{held} pages held back, {}", told(&full)),
            held > 0 && pages(&full, "no_memory") == 0,
        ),
    ])
}

/// Five programs that act when their first page has moved; on four nodes, so that most pages are
/// yet to move then.
pub(super) fn check_evasions(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let one = |how: &str| {
        format!(
            "rondpoint run --quiet --report /tmp/{how} -- \
             rondpoint-workloads evade --how {how} --no-huge-pages --size 8M > /tmp/out\n\
             sed 's/^/{how}-said /' /tmp/out\n\
             report {how} /tmp/{how}\n"
        )
    };
    let script: String = EVASIONS.map(one).concat();
    let record = run(lab, &machine, "programs that do something while they are moved", &script)?;
    let machine = name(&machine);
    let finding = |how: &str| {
        let report = report(&record, how)?;
        let (target, came) = match how {
            "unmap" | "exec" => ("pages absent", pages(&report, "absent")),
            "fork" => ("shared pages refused", pages(&report, "failed")),
            "exit" => ("steps too late", steps(&report, "gone")),
            _ => ("pages moved", pages(&report, "moved")),
        };
        let ended = report["exit_status"] == 0;
        let check = format!("in the middle of a move: {how}; the program ends well");
        Ok(Finding::fact(&machine, &check, target, told(&report), ended && came > 0))
    };
    EVASIONS.into_iter().map(finding).collect()
}
