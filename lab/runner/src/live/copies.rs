//! Copies of pages on the kernel that replicates. None is left when they are taken back, whichever
//! process is killed, and none when the program ends.

use anyhow::{Context as _, Result};

use super::name;
use super::session::run;
use crate::lab::{KernelName, Lab, cut_machine};
use crate::physics::Finding;
use crate::physics::script::{lines, value};

/// The table of the program, KiB; three copies of it are made at most.
const TABLE_KIB: u32 = 8 << 10;
/// What other things in the guest may take meanwhile, KiB: less than a tenth of the copies.
const SLACK_KIB: f64 = 2048.0;

/// The manager is killed once a half of the copies is there. The program goes on with them until
/// `restore` takes them back. Then it runs once more, and ends with its copies. At last it costs
/// what it costs: the workload counts what its own advice leaves.
const SCRIPT: &str = r#"
field() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" $2; }
copies() { kib=$(field NumaCopies /proc/$target/status 2> /dev/null); echo ${kib:-0}; }
memory() { echo "free_kib=$(field MemFree /proc/meminfo) tables_kib=$(field SecPageTables /proc/meminfo)"; }
start() {
    rondpoint run --policy carrefour:steady --quiet -- rondpoint-workloads lookup \
        --threads 8 --size SIZEK --change-every 0 --no-huge-pages --seconds $1 > /tmp/said &
    manager=$!
    until comm=$(grep -ls rondpoint-workl /proc/[0-9]*/comm); do sleep 0.05; done
    target=${comm#/proc/}
    target=${target%/comm}
    tries=0
    until [ $(copies) -gt SIZE ] || [ $tries = 200 ]; do tries=$((tries + 1)); sleep 0.02; done
}
ended() { while [ -d /proc/$target ]; do sleep 0.05; done; }

echo "before $(memory)"
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
echo "managed copies_kib=$(copies)"
wait $manager && grep -q result=ok /tmp/said && echo "right managed"
ended
echo "after-managed $(memory)"
say advised rondpoint-workloads copies --size 1M --iterations 3
"#;

/// All checks of copies, on four nodes of two CPUs each.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let lab = Lab { seed: lab.seed, ..Lab::open_with(KernelName::Replication)? };
    let machine = cut_machine("carrefour-a", 2)?;
    let script = SCRIPT.replace("SIZE", &TABLE_KIB.to_string());
    let record = run(&lab, &machine, "copies, taken back and left alone", &script)?;
    let one = |tag: &str| -> Result<String> {
        let line = lines(&record, &format!("{tag} ")).next();
        Ok(line.with_context(|| format!("no line {tag}"))?.to_owned())
    };
    let copies = |tag: &str| value(&one(tag)?, "copies_kib");
    let taken = |tag: &str| -> Result<(f64, f64)> {
        let (before, after) = (one("before")?, one(tag)?);
        let more = |key: &str| Ok::<_, anyhow::Error>(value(&before, key)? - value(&after, key)?);
        Ok((more("free_kib")?, -more("tables_kib")?))
    };
    let is_right = |how: &str| lines(&record, "right ").any(|line| line == how);
    let name = name(&machine);
    let (killed, restored) = (copies("killed")?, copies("restored")?);
    let managed = copies("managed")?;
    let mut findings = vec![Finding::fact(
        &name,
        "copies: what a killed manager had made is taken back by restore, and the program is right",
        "some, then 0 KiB",
        format!("{killed:.0}, then {restored:.0} KiB"),
        killed > 0.0 && restored == 0.0 && is_right("killed"),
    )];
    for (tag, made, how) in
        [("after-killed", killed, "killed"), ("after-managed", managed, "managed")]
    {
        let (memory, tables) = taken(tag)?;
        findings.push(Finding::fact(
            &name,
            &format!("copies: memory missing after the program's end ({how}), and page tables"),
            "nearly none, 0 KiB",
            format!("{memory:.0} KiB of {made:.0} and more, {tables:.0} KiB"),
            made > 0.0 && memory < SLACK_KIB && tables == 0.0 && is_right(how),
        ));
    }
    let advised = one("advised")?;
    findings.push(Finding::fact(
        &name,
        "copies: a program that asks by itself counts all of them made and none left",
        "result=ok",
        advised.clone(),
        advised.contains("copies=yes") && advised.ends_with("result=ok"),
    ));
    Ok(findings)
}
