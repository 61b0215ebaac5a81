//! Short runs under Rondpoint, recorded in the guest and decided again on this machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::lab::{self, built};
use crate::test::Tally;

/// The demonstration's programs, for two to five guest seconds, and `churn`, which unmaps moving
/// memory, forks, stops and calls exec. With each: whether its record must have actions.
const PROGRAMS: [(&str, bool); 5] = [
    ("stencil --no-huge-pages --size 16M --iterations 32", true),
    ("kmeans --rotate --no-huge-pages --size 8M --iterations 48", true),
    ("wellplaced --no-huge-pages --size 4M --iterations 150", false),
    ("bucketsort --no-huge-pages --size 4M --iterations 20", false),
    ("churn --no-huge-pages --size 4M --iterations 4", false),
];

/// The checked fields of `rondpoint replay --json`.
#[derive(Deserialize)]
struct Replayed {
    steps: u64,
    steps_with_actions: u64,
    steps_differing: u64,
}

/// Checks each program: it ends correctly and leaves a record, with actions if it must. A replay of
/// the record decides the same.
pub(crate) fn test() -> Result<Tally> {
    let parts = lab::build()?;
    let mut tally = Tally::default();
    for (index, (program, must_act)) in PROGRAMS.into_iter().enumerate() {
        let folder = lab::target_folder().join("replay").join(index.to_string());
        let mut run = Command::new(parts.join(built::RUNNER));
        run.args(["run", "--config", "rondpoint", "--keep"]).arg(&folder);
        run.args(["--", built::WORKLOADS]).args(program.split(' '));
        let succeeded = run.status().context("cannot run the lab")?.success();
        tally.add(Tally::one(succeeded));
        if succeeded {
            let record = folder.join("rondpoint-1.trace");
            tally.add(replay(&parts.join(built::PRODUCT), &record, must_act)?);
        }
    }
    Ok(tally)
}

fn replay(rondpoint: &Path, record: &Path, must_act: bool) -> Result<Tally> {
    let output = Command::new(rondpoint).args(["replay", "--json"]).arg(record).output();
    let output = output.context("cannot run rondpoint")?;
    let replayed: Replayed = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("rondpoint replay: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let Replayed { steps, steps_with_actions, steps_differing } = replayed;
    println!(
        "replayed {steps} steps, {steps_with_actions} with actions, {steps_differing} decided otherwise"
    );
    let mut tally = Tally::one(steps_with_actions > 0 || !must_act);
    tally.add(Tally::one(output.status.success() && steps_differing == 0));
    Ok(tally)
}
