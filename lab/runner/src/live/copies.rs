//! Copies of pages on the kernel that replicates. No copy is left after they are dropped, whichever
//! process is killed, or after the program ends.
//!
//! The kernel's caches must not look like a leak. So the guest drops its caches before it counts
//! free memory, and pages on the CPUs' own free lists count as free. The same program also runs
//! without copies; memory that is missing after that run is no leak of copies.
//!
//! If another part of the program holds so much memory that copies have no room, the table gets no
//! copies. The policy then spreads its pages.
//!
//! The same guest checks copies without the kernel's help: those of the library, and those of a
//! file for `run --replicate`.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;
use serde_json::Value;

use super::name;
use super::session::{pages, report};
use crate::built::PLACEMENT;
use crate::initramfs::Initramfs;
use crate::lab::{KernelName, Lab, cut_machine};
use crate::physics::Finding;
use crate::physics::script::{lines, run_with, value};
use crate::vm::Record;
use crate::{configuration, program};

/// The table of the program, KiB; three copies of it are made at most.
const TABLE_KIB: u32 = 8 << 10;
/// What the program holds beside its table where memory is short, MiB. A third of the machine's.
const KEPT_MIB: u32 = 512;
/// Of the copies that the kernel had, the report may miss or add this part: the count grows while
/// it is read.
const MISCOUNTED: f64 = 0.1;
/// What other things in the guest may take meanwhile, KiB: less than a tenth of the copies.
const SLACK_KIB: f64 = 2048.0;

/// A program of the C library of this machine, which reads the copies of `run --replicate`.
const READER: &str = "/bin/cat";

/// Two programs without copies come first: one that warms the guest up, and the control. Then a
/// manager is killed once a half of the copies is there. The program goes on with them until
/// `restore` takes them back. Then it runs once more, and ends with its copies. At last it costs
/// what it costs: the workload counts what its own advice leaves.
///
/// Last come the copies that need no special kernel. A process bound to each node reads one file.
const SCRIPT: &str = r#"
report() { echo "$1 $(tr -d '\n' < $2)"; }
echo 1 > /proc/sys/kernel/numa_balancing
field() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" $2; }
copies() { kib=$(field NumaCopies /proc/$target/status 2> /dev/null); echo ${kib:-0}; }
memory() {
    sync
    echo 3 > /proc/sys/vm/drop_caches
    sleep 0.5
    kept=$(awk '$1 == "count:" { pages += $2 } END { print 4 * pages }' /proc/zoneinfo)
    free="free_kib=$(field MemFree /proc/meminfo) kept_kib=$kept"
    echo "$free tables_kib=$(field SecPageTables /proc/meminfo)"
}
program="rondpoint-workloads lookup --threads 8 --size SIZEK --change-every 0 --no-huge-pages"
without() {
    rondpoint run --policy carrefour:steady-without-copies --quiet -- $program --seconds 2 > /tmp/said
}
start() {
    rondpoint run --policy carrefour:steady --quiet --report /tmp/report -- $program --seconds $1 \
        > /tmp/said &
    manager=$!
    until comm=$(grep -ls rondpoint-workl /proc/[0-9]*/comm); do sleep 0.05; done
    target=${comm#/proc/}
    target=${target%/comm}
    tries=0
    until [ $(copies) -gt SIZE ] || [ $tries = 200 ]; do tries=$((tries + 1)); sleep 0.02; done
}
ended() { while [ -d /proc/$target ]; do sleep 0.05; done; }

without
echo "before $(memory)"
without
grep -q result=ok /tmp/said && echo "right control"
echo "control $(memory)"
start 6
kill -9 $manager
sleep 0.2
echo "killed copies_kib=$(copies)"
rondpoint restore --json > /tmp/restored
echo "restored copies_kib=$(copies)"
ended
grep -q result=ok /tmp/said && echo "right killed"
echo "after-killed $(memory)"

start 3
most=0
while [ -d /proc/$target ]; do
    kib=$(copies)
    [ $kib -le $most ] || most=$kib
    sleep 0.1
done
echo "managed copies_kib=$most"
wait $manager && grep -q result=ok /tmp/said && echo "right managed"
report managed-report /tmp/report
ended
echo "after-managed $(memory)"
rondpoint run --policy carrefour:steady --quiet --report /tmp/report -- \
    $program --keep KEPTM --seconds 3 > /tmp/said
grep -q result=ok /tmp/said && echo "right short"
report short /tmp/report
say advised rondpoint-workloads copies --size 1M --iterations 3

if placement 4 > /tmp/placed 2>&1; then echo "right placed"; fi
echo "placed $(tr '\n' ';' < /tmp/placed)"

cat /bin/busybox > /root/file
cat > /tmp/readers << 'END'
#!/bin/sh
for list in /sys/devices/system/node/node*/cpulist; do
    taskset -c $(sed 's/[-,].*//' $list) READER /root/file > /tmp/read
    cmp /tmp/read /root/file || exit 1
done
END
chmod +x /tmp/readers
if rondpoint run --policy observe --replicate /root/file -- /tmp/readers 2> /tmp/told; then
    echo "right replicated"
fi
echo "opened $(grep '^replicate: ' /tmp/told | tr '\n' ';')"
echo "shared $(ls -A /dev/shm | wc -l) files"
"#;

/// What the guest needs beside the product and the workloads.
fn bring(lab: &Lab, guest: &mut Initramfs) -> Result<()> {
    let placement = lab.built.interpose.with_file_name(PLACEMENT);
    program::bring(&placement, guest).context("build the lab's parts with ./x lab")?;
    program::bring(Path::new(READER), guest)?;
    configuration::add_interpose(guest, &lab.built)
}

/// All checks of copies, on four nodes of two CPUs each.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let lab = Lab { seed: lab.seed, ..Lab::open_with(KernelName::Replication)? };
    let machine = cut_machine("carrefour-a", 2)?;
    let script =
        SCRIPT.replace("SIZE", &TABLE_KIB.to_string()).replace("KEPT", &KEPT_MIB.to_string());
    let script = script.replace("READER", READER);
    let what = "copies, taken back and left alone";
    let record = run_with(&lab, &machine, what, &script, |guest| bring(&lab, guest))?;
    let one = |tag: &str| -> Result<String> {
        let line = lines(&record, &format!("{tag} ")).next();
        Ok(line.with_context(|| format!("no line {tag}"))?.to_owned())
    };
    let copies = |tag: &str| value(&one(tag)?, "copies_kib");
    let left =
        |before: &str, after: &str| -> Result<Left> { Left::between(&one(before)?, &one(after)?) };
    let is_right = |how: &str| lines(&record, "right ").any(|line| line == how);
    let name = name(&machine);
    let (killed, restored) = (copies("killed")?, copies("restored")?);
    let managed = copies("managed")?;
    let control = left("before", "control")?;
    let mut findings = vec![
        Finding::fact(
            &name,
            "copies: what a killed manager had made is taken back by restore, and the program is right",
            "some, then 0 KiB",
            format!("{killed:.0}, then {restored:.0} KiB"),
            killed > 0.0 && restored == 0.0 && is_right("killed"),
        ),
        Finding::fact(
            &name,
            "copies: memory missing after the end of a program without copies, and page tables",
            "nearly none, 0 KiB",
            control.to_string(),
            control.is_nothing() && is_right("control"),
        ),
    ];
    for (before, after, made, how) in [
        ("control", "after-killed", killed, "killed"),
        ("after-killed", "after-managed", managed, "managed"),
    ] {
        let left = left(before, after)?;
        findings.push(Finding::fact(
            &name,
            &format!("copies: memory missing after the program's end ({how}), and page tables"),
            "nearly none, 0 KiB",
            format!("{left}, of {made:.0} KiB and more of copies"),
            made > 0.0 && left.is_nothing() && is_right(how),
        ));
    }
    findings.extend(reported(&record, &machine, managed, is_right("short"))?);
    let advised = one("advised")?;
    findings.push(Finding::fact(
        &name,
        "copies: a program that asks by itself counts all of them made and none left",
        "result=ok",
        advised.clone(),
        advised.contains("copies=yes") && advised.ends_with("result=ok"),
    ));
    findings.extend(on_any_kernel(&record, &machine)?);
    Ok(findings)
}

/// The copies of the library and of `run --replicate`.
fn on_any_kernel(record: &Record, machine: &Machine) -> Result<Vec<Finding>> {
    let (name, nodes) = (name(machine), machine.nodes.len());
    let one = |tag: &str| {
        lines(record, &format!("{tag} ")).next().with_context(|| format!("no line {tag}"))
    };
    let is_right = |how: &str| lines(record, "right ").any(|line| line == how);
    let (placed, opened, shared) = (one("placed")?, one("opened")?, one("shared")?);
    let counts: Vec<String> = (0..nodes).map(|node| format!("node {node}: 1")).collect();
    let copies = format!("{nodes} copies of");
    let each_once = format!("opened on {};", counts.join(", "));
    Ok(vec![
        Finding::fact(
            &name,
            "copies: each page of the library's copies lies on the node that reads it",
            "elsewhere 0, for a replica and a version on each node",
            placed.to_owned(),
            is_right("placed") && placed.matches("elsewhere 0;").count() == 2 * nodes,
        ),
        Finding::fact(
            &name,
            "copies: a process on each node reads its own copy of the file for run --replicate",
            &format!("{copies} it, {each_once} the same content"),
            opened.to_owned(),
            is_right("replicated") && opened.contains(&copies) && opened.contains(&each_once),
        ),
        Finding::fact(
            &name,
            "copies: files in /dev/shm after the end of run --replicate",
            "0 files",
            shared.to_owned(),
            shared == "0 files",
        ),
    ])
}

/// What the reports say of copies: where the kernel had `there_kib` of them, and where memory was
/// short.
fn reported(
    record: &Record,
    machine: &Machine,
    there_kib: f64,
    is_short_right: bool,
) -> Result<Vec<Finding>> {
    let name = name(machine);
    let copied = |report: &Value| copied_kib(report, machine.nodes.len());
    let told = copied(&report(record, "managed-report")?);
    let short = report(record, "short")?;
    let (made, moved) = (copied(&short), pages(&short, "moved"));
    Ok(vec![
        Finding::fact(
            &name,
            "copies: the report counts what the kernel had",
            "as much",
            format!("{told:.0} KiB told, {there_kib:.0} KiB there"),
            there_kib > 0.0 && (told - there_kib).abs() <= MISCOUNTED * there_kib,
        ),
        Finding::fact(
            &name,
            "copies: none where the program holds a third of the memory, and its pages are spread",
            "0 KiB, some pages moved",
            format!("{made:.0} KiB, {moved} pages moved"),
            made == 0.0 && moved > 0 && is_short_right,
        ),
    ])
}

/// What a report says of copies, KiB: one on each node but that of the page itself.
fn copied_kib(report: &Value, nodes: usize) -> f64 {
    let accounts = report["processes"].as_array().into_iter().flatten();
    let pages = accounts.filter_map(|one| one["account"]["replicated"]["moved"].as_u64());
    pages.sum::<u64>() as f64 * 4.0 * (nodes - 1) as f64
}

/// What a program left behind at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Left {
    /// Memory that was free before, KiB.
    missing_kib: f64,
    /// Pages that CPUs keep for themselves beyond those before, KiB. They are free all the same.
    kept_kib: f64,
    /// Page tables of the kernel's own now, KiB: a program with copies has some on each node.
    tables_kib: f64,
}

impl Left {
    /// Of two lines of the script's `memory`.
    fn between(before: &str, after: &str) -> Result<Self> {
        let more = |key| Ok::<_, anyhow::Error>(value(after, key)? - value(before, key)?);
        let kept_kib = more("kept_kib")?;
        let missing_kib = -more("free_kib")? - kept_kib;
        Ok(Self { missing_kib, kept_kib, tables_kib: value(after, "tables_kib")? })
    }

    fn is_nothing(self) -> bool {
        self.missing_kib < SLACK_KIB && self.tables_kib == 0.0
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing_kib, kept_kib, tables_kib } = self;
        write!(
            f,
            "{missing_kib:.0} KiB, {tables_kib:.0} KiB; CPUs keep {kept_kib:+.0} KiB for themselves"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_of_a_tenth_of_the_copies_or_one_page_table_shows() {
        let left = |after: &str| {
            let before = "free_kib=900000 kept_kib=5000 tables_kib=0";
            Left::between(before, after).expect("three numbers").is_nothing()
        };
        assert!(left("free_kib=899000 kept_kib=5000 tables_kib=0"));
        assert!(left("free_kib=900100 kept_kib=5000 tables_kib=0"), "more is free than before");
        assert!(left("free_kib=870000 kept_kib=35000 tables_kib=0"), "CPUs keep what is missing");
        assert!(!left("free_kib=897500 kept_kib=5000 tables_kib=0"));
        assert!(!left("free_kib=900000 kept_kib=2500 tables_kib=0"));
        assert!(!left("free_kib=900000 kept_kib=5000 tables_kib=4"));
    }
}
