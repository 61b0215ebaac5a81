//! `rondpoint move` where there is more than one node: what it says is where the pages are, and a target that it
//! keeps still goes on when it is killed in the middle of its work.

use anyhow::{Context as _, Result};

use super::Finding;
use super::script::{lines, run};
use crate::lab::{Lab, cut_machine};

/// The word that chooses these checks.
pub(super) const NAME: &str = "moving";
/// Where they are made, cut to a CPU a node: four nodes are enough to move between.
const MACHINE: &str = "carrefour-a";

/// Memory of the target, MiB; the killed mover has moved a part of it only, for it is held back.
const TARGET_MIB: u32 = 16;

/// A target that waits with its memory on node 0; its own words are of no use here.
const SCRIPT: &str = r#"
mkfifo /tmp/hold
rondpoint-workloads scan --wait --size SIZEM --cpu-node 0 --no-huge-pages < /tmp/hold > /tmp/said &
target=$!
exec 3> /tmp/hold
until grep -q ready /tmp/said; do sleep 0.05; done
state() { sed 's/.*) //; s/ .*//' /proc/$target/stat; }
on() { rondpoint move --pid $target --from $1 --to $2 --dry-run --json | sed -n 's/.*"on_sources": \([0-9]*\).*/\1/p'; }
echo "before $(on 0 1) $(on 1 0)"
rondpoint move --pid $target --from 0 --to 1 --freeze --freeze-limit 1000 --limit 1M --json > /tmp/killed &
mover=$!
until [ "$(state)" = T ]; do sleep 0.05; done
echo "held $(state)"
until [ "$(on 1 0)" -gt 1000000 ]; do sleep 0.05; done
kill -9 $mover
tries=0
until [ "$(state)" != T ] || [ $tries = 100 ]; do tries=$((tries + 1)); sleep 0.05; done
echo "killed $(state) $(on 0 1) $(on 1 0)"
rondpoint move --pid $target --from 0 --to 1 --freeze --json > /tmp/whole
echo "whole $(on 0 1) $(on 1 0)"
sed -n 's/.*"\(frozen_s\|moved\)": \([0-9.]*\).*/\1 \2/p' /tmp/whole
echo "after $(state)"
echo go >&3
wait $target && echo "right yes"
"#;

/// All checks of moving.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine(MACHINE, 1)?;
    let script = SCRIPT.replace("SIZE", &TARGET_MIB.to_string());
    let record = run(lab, &machine, "rondpoint move, whole and killed", &script)?;
    let one = |tag: &str| -> Result<Vec<String>> {
        let line = lines(&record, tag).next().with_context(|| format!("no line {tag}"))?;
        Ok(line.split_whitespace().map(str::to_owned).collect())
    };
    let number = |word: Option<&String>| -> Result<f64> {
        Ok(word.context("a number is missing")?.parse()?)
    };
    let memory = f64::from(TARGET_MIB) * f64::from(1 << 20);
    let (before, killed, whole) = (one("before ")?, one("killed ")?, one("whole ")?);
    let (state, frozen_s) = (&killed[0], number(one("frozen_s ")?.first())?);
    let share = number(killed.get(2))? / memory;
    // On node 1 lies perhaps a part of the program's text from the start.
    let all = number(before.first())? + number(before.get(1))?;
    let arrived = number(whole.get(1))?;
    let name = &machine.name;
    Ok(vec![
        Finding::fact(
            name,
            "a target whose mover is killed goes on, with a part of its memory moved",
            "not stopped, some",
            format!("state {state}, {:.0} % moved", 100.0 * share),
            state != "T" && share > 0.05 && share < 0.95 && one("held ")? == ["T"],
        ),
        Finding::near(
            name,
            "bytes that move brings to node 1".to_owned(),
            (all, arrived),
            3.0,
            "bytes",
        ),
        Finding::fact(
            name,
            "a target that was kept still runs on and finds its memory as it was",
            "right, frozen for a while",
            format!("state {}, {frozen_s:.3} s", one("after ")?.concat()),
            one("right ")? == ["yes"] && frozen_s > 0.0 && one("after ")? != ["T"],
        ),
    ])
}
