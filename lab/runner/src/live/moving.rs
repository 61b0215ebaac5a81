//! `rondpoint move` on several nodes: its report agrees with the real nodes of the pages. A frozen
//! target runs again, whichever process is killed in the middle of a move.

use anyhow::{Context as _, Result};

use super::name;
use super::session::run;
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;
use crate::physics::script::{lines, value};

/// Memory of the target, MiB; the killed movers have moved a part of it only, for they are held
/// back.
const TARGET_MIB: u32 = 16;

/// A target that waits with its memory on node 0; its own words are of no use here. First the mover
/// is killed and its guardian lives. Then both are killed, and the mover is stopped before, so that
/// it does not see its guardian's end. Then no process is killed.
const SCRIPT: &str = r#"
mkfifo /tmp/hold
rondpoint-workloads scan --wait --size SIZEM --cpu-node 0 --no-huge-pages < /tmp/hold > /tmp/said &
target=$!
exec 3> /tmp/hold
until grep -q ready /tmp/said; do sleep 0.05; done
state() { sed 's/.*) //; s/ .*//' /proc/$target/stat; }
on() { rondpoint move --pid $target --from $1 --to $2 --dry-run --json | number on_sources; }
number() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
guardian() { grep -ls thaw-guardian /proc/[0-9]*/comm | cut -d/ -f3; }
slowly() {
    rondpoint move --pid $target --from 0 --to 1 --freeze --freeze-limit 1000 --limit 1M --json > /tmp/killed &
    mover=$!
    until [ "$(state)" = T ]; do sleep 0.05; done
}
here() { echo "state=$(state) on0=$(on 0 1) on1=$(on 1 0)"; }
echo "before $(here)"
enough=$(($(on 1 0) + 1000000))

slowly
echo "held state=$(state)"
until [ "$(on 1 0)" -gt $enough ]; do sleep 0.05; done
kill -9 $mover
tries=0
until [ "$(state)" != T ] || [ $tries = 100 ]; do tries=$((tries + 1)); sleep 0.05; done
echo "killed $(here)"
rondpoint restore --json > /tmp/first

slowly
kill -STOP $mover
kill -9 $(guardian)
kill -9 $mover
wait $mover || true
echo "alone state=$(state)"
rondpoint restore --json > /tmp/second
echo "restored state=$(state) first=$(number thawed < /tmp/first) second=$(number thawed < /tmp/second)"

rondpoint move --pid $target --from 0 --to 1 --freeze --json > /tmp/whole
echo "whole $(here) frozen_s=$(number frozen_s < /tmp/whole)"
echo "ledgers $(ls /run/rondpoint | wc -l)"
echo go >&3
wait $target && echo "right yes"
"#;

/// All checks of moving, on four nodes of a CPU each: enough to move between.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let script = SCRIPT.replace("SIZE", &TARGET_MIB.to_string());
    let record = run(lab, &machine, "rondpoint move, whole and killed", &script)?;
    let one = |tag: &str| -> Result<String> {
        let line = lines(&record, &format!("{tag} ")).next();
        Ok(line.with_context(|| format!("no line {tag}"))?.to_owned())
    };
    let (before, killed, whole) = (one("before")?, one("killed")?, one("whole")?);
    let (held, alone, restored) = (one("held")?, one("alone")?, one("restored")?);
    let stands = |line: &str| line.starts_with("state=T");
    // On node 1 lies perhaps a part of the program's text from the start.
    let there = value(&before, "on1")?;
    let all = value(&before, "on0")? + there;
    let share = (value(&killed, "on1")? - there) / value(&before, "on0")?;
    let (frozen_s, ledgers) = (value(&whole, "frozen_s")?, one("ledgers")?);
    let right = lines(&record, "right yes").next().is_some();
    let name = name(&machine);
    Ok(vec![
        Finding::fact(
            &name,
            "move: where the mover is killed the target goes on, with a part of its memory moved",
            "not stopped, some",
            format!("{}, {:.0} % moved", state(&killed), 100.0 * share),
            stands(&held) && !stands(&killed) && share > 0.05 && share < 0.95,
        ),
        Finding::fact(
            &name,
            "move: with its guardian killed too, rondpoint restore lets it go on",
            "stopped, then not; 0 let go the first time, 1 the second",
            format!("{}; {restored}", state(&alone)),
            stands(&alone)
                && !stands(&restored)
                && value(&restored, "first")? == 0.0
                && value(&restored, "second")? == 1.0,
        ),
        Finding::near(
            &name,
            "bytes that move brings to node 1".to_owned(),
            (all, value(&whole, "on1")?),
            3.0,
            "bytes",
        ),
        Finding::fact(
            &name,
            "move: a target that was kept still runs on and finds its memory as it was",
            "right, frozen for a while, no ledger left",
            format!("{}, frozen {frozen_s:.3} s, {ledgers} ledgers", state(&whole)),
            right && frozen_s > 0.0 && !stands(&whole) && ledgers == "0",
        ),
    ])
}

/// The first word: what the target did then.
fn state(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}
