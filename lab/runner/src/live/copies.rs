//! On the kernel that replicates: a manager that is killed leaves copies, `rondpoint restore` frees
//! them, and the end of a program frees all that it had.

use anyhow::{Context as _, Result};

use super::name;
use super::session::run;
use crate::lab::{KernelName, Lab, cut_machine};
use crate::physics::{Finding, script};

/// `kib PATTERN FILE` prints a size in KiB. The first program's manager is killed at the first
/// copies, before a trial can find them useful. The second keeps its copies until it ends.
const SCRIPT: &str = r#"
kib() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" $2; }
await_copies() {
    for i in $(seq 100); do
        now=$(kib NumaCopies /proc/$1/status)
        [ "${now:-0}" -gt 0 ] && return
        sleep 0.05
    done
}
rondpoint doctor | grep "copies of pages" || true
echo "tables before $(kib SecPageTables /proc/meminfo)"
rondpoint-workloads lookup --threads 4 --size 4M --change-every 0 --no-huge-pages --seconds 7 > /tmp/one &
one=$!
rondpoint attach --quiet --policy carrefour:steady $one &
manager=$!
await_copies $one
kill -9 $manager
wait $manager || true
echo "copies killed $(kib NumaCopies /proc/$one/status)"
rondpoint restore || true
echo "copies restored $(kib NumaCopies /proc/$one/status)"
wait $one
echo "ended one $?"
rondpoint-workloads lookup --threads 4 --size 4M --change-every 0 --no-huge-pages --seconds 5 > /tmp/two &
two=$!
rondpoint attach --quiet --policy carrefour:steady $two &
await_copies $two
echo "copies two $(kib NumaCopies /proc/$two/status)"
wait $two
echo "ended two $?"
wait
echo "tables after $(kib SecPageTables /proc/meminfo)"
tail -n 1 /tmp/one /tmp/two
"#;

/// Copies are counted by the kernel, in KiB.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let own = match Lab::open_with(KernelName::Replication) {
        Ok(own) => Lab { seed: lab.seed, ..own },
        Err(error) => {
            let told = format!("not tried: {error:#}");
            return Ok(vec![Finding::fact(&name(&machine), "copies", "freed", told, true)]);
        }
    };
    let record = run(&own, &machine, "copies and their end", SCRIPT)?;
    let kib = |tag: &str| -> Result<u64> {
        let text = script::lines(&record, &format!("{tag} ")).next();
        let text = text.with_context(|| format!("{tag}: nothing was told"))?;
        text.parse().with_context(|| format!("{tag}: {text:?}: expected KiB"))
    };
    let (killed, restored, two) =
        (kib("copies killed")?, kib("copies restored")?, kib("copies two")?);
    let (before, after) = (kib("tables before")?, kib("tables after")?);
    let ended = (kib("ended one")?, kib("ended two")?);
    let machine = name(&machine);
    Ok(vec![
        Finding::fact(
            &machine,
            "copies: restore after SIGKILL frees all that no trial had found useful",
            "some KiB, then 0",
            format!("{killed} KiB, then {restored}"),
            killed > 0 && restored == 0,
        ),
        Finding::fact(
            &machine,
            "copies: the end of a program frees its copies' page tables, and both end well",
            "copies, no more tables than before, statuses 0 and 0",
            format!("{two} KiB; tables {before}, then {after} KiB; {} and {}", ended.0, ended.1),
            two > 0 && after <= before && ended == (0, 0),
        ),
    ])
}
