//! A short run under Rondpoint, recorded in the guest and decided again on this machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::lab::{self, built};
use crate::test::Tally;

/// About five guest seconds, in which Rondpoint has much to repair: the record must hold actions.
const PROGRAM: &str = "stencil --no-huge-pages --size 16M --iterations 32";

/// What `rondpoint replay --json` says, as far as it is asked here.
#[derive(Deserialize)]
struct Replayed {
    steps: u64,
    steps_with_actions: u64,
    steps_differing: u64,
}

/// Two checks: the run left a record in which something was done, and replaying it decides the same.
pub(crate) fn test() -> Result<Tally> {
    let parts = lab::build()?;
    let folder = lab::target_folder().join("replay");
    let mut run = Command::new(parts.join(built::RUNNER));
    run.args(["run", "--config", "rondpoint", "--keep"]).arg(&folder);
    run.args(["--", built::WORKLOADS]).args(PROGRAM.split(' '));
    if !run.status().context("cannot run the lab")?.success() {
        return Ok(Tally::one(false));
    }
    replay(&parts.join(built::PRODUCT), &folder.join("rondpoint-1.trace"))
}

fn replay(rondpoint: &Path, record: &Path) -> Result<Tally> {
    let output = Command::new(rondpoint).args(["replay", "--json"]).arg(record).output();
    let output = output.context("cannot run rondpoint")?;
    let replayed: Replayed = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("rondpoint replay: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let Replayed { steps, steps_with_actions, steps_differing } = replayed;
    println!(
        "replayed {steps} steps, {steps_with_actions} with actions, {steps_differing} decided otherwise"
    );
    let mut tally = Tally::one(steps_with_actions > 0);
    tally.add(Tally::one(output.status.success() && steps_differing == 0));
    Ok(tally)
}
