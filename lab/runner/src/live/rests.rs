//! Counting pauses where there is nothing to do for a program, and its counts between pauses are
//! right.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::name;
use super::session::{report, run};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// Two threads with memory of their own beside them, bound by themselves: no policy has to move
/// them, or may.
const SCRIPT: &str = "
crew='rondpoint-workloads crew --need own --work 0 --start 0,1 --touch 0,1 --stay --size 4M --no-huge-pages --seconds 10'
rondpoint run --quiet --policy asymsched --report /tmp/report -- $crew > /tmp/out
report rests /tmp/report
rondpoint run --quiet --policy asymsched --dry-run --report /tmp/report -- $crew > /tmp/out
report watched /tmp/report
";

/// Of ten seconds: it rests for two after the first that were quiet, watches for one, and rests for
/// four at most.
const RESTED_S: (f64, f64) = (3.5, 7.0);
/// Range of the ratio between the same program's figures with and without rests. With rests it is
/// counted for a shorter time.
const LIKE: (f64, f64) = (0.85, 1.15);

/// With rests, and without because nothing may be done anyway.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let record = run(lab, &machine, "rests", SCRIPT)?;
    let (rests, watched) = (report(&record, "rests")?, report(&record, "watched")?);
    let machine = name(&machine);
    let rested = |report: &Value| report["rested_s"].as_f64().context("no rested_s");
    let rate =
        |report: &Value| report["before"]["instructions_per_s"].as_f64().context("no instructions");
    let still = rested(&watched)?;
    Ok(vec![
        Finding::between(
            &machine,
            "seconds of ten in which a program that nothing can be done for is not counted".into(),
            RESTED_S,
            rested(&rests)?,
            "",
        ),
        Finding::fact(
            &machine,
            "the same where only watching was asked for",
            "never",
            format!("{still:.1} s"),
            still == 0.0 && watched["exit_status"] == 0,
        ),
        Finding::between(
            &machine,
            "instructions a second as counted between rests, of those without rests".into(),
            LIKE,
            rate(&rests)? / rate(&watched)?,
            "",
        ),
    ])
}
