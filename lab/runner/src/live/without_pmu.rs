//! A machine without a PMU, without a hint to Rondpoint. Rondpoint finds that it has only the page
//! faults of the kernel's NUMA balancing. The program with the shared array is as fast as with that
//! balancing alone, or faster.

use anyhow::{Context as _, Result};

use super::{compare, name};
use crate::comparison::ConfigurationReport;
use crate::configuration::Configuration;
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// The least gain in the last third that counts as one.
const LEAST_GAIN: f64 = 1.2;

/// Least speed against the kernel's balancing alone. That balancing moves most pages before the
/// first look, so little is left to win.
const LEAST_BESIDE: f64 = 0.95;

/// k-means under first touch, the kernel's balancing alone, and Rondpoint beside that balancing.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let program = "kmeans --rotate --pin --no-huge-pages --size 8M --iterations 60";
    let configurations =
        [Configuration::FirstTouch, Configuration::AutoNuma, Configuration::RondpointFaults];
    let reports = compare(lab, &machine, program, &configurations)?;
    let gain = |index: usize| {
        Ok::<_, anyhow::Error>(reports[index].last_third.context("no rounds")?.median)
    };
    let run = &reports[2].runs[0];
    let report = run.rondpoint.as_ref().context("no report")?;
    let machine = name(&machine);
    let sensor = report.sensor.clone().unwrap_or_default();
    let seen = "without a PMU: what accesses are seen with";
    let (ours, kernel, all) = (moved(&reports).unwrap_or(0), run.pages_balanced, run.pages_moved);
    Ok(vec![
        Finding::fact(&machine, seen, "faults", sensor.clone(), sensor == "faults"),
        Finding::between(
            &machine,
            "k-means in the last third, over first touch".to_owned(),
            (LEAST_GAIN, f64::INFINITY),
            gain(2)?,
            &format!("(the kernel's balancing alone: {:.3})", gain(1)?),
        ),
        Finding::between(
            &machine,
            "k-means in the last third, over the kernel's balancing alone".to_owned(),
            (LEAST_BESIDE, f64::INFINITY),
            gain(2)? / gain(1)?,
            "",
        ),
        Finding::fact(
            &machine,
            "pages moved by Rondpoint, by the kernel's balancing, by anybody",
            "the first two make up the third",
            format!("{ours} + {kernel}, {all}"),
            ours + kernel == all,
        ),
    ])
}

/// Pages that Rondpoint moved.
fn moved(reports: &[ConfigurationReport]) -> Option<u64> {
    reports[2].runs[0].rondpoint.as_ref()?.pages_moved
}
