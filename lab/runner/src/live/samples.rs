//! Address samples tell the node of the memory, and that memory answered: Arm's SPE, Intel's PEBS
//! and AMD's IBS.

use anyhow::Result;
use rondpoint_machine::{Machine, Processor};
use serde_json::Value;

use super::name;
use super::processor::playing;
use super::session::{report, run};
use crate::lab::Lab;
use crate::physics::Finding;

/// A unit that samples, and the chase that it samples.
pub(super) struct Sampler {
    name: &'static str,
    /// Size and rounds. A chase is laid by loads from caches and by stores; enough rounds make them
    /// few.
    chase: &'static str,
    /// Sources of samples that are left out: those of stores.
    stores: &'static [&'static str],
}

/// SPE, whose filter leaves out everything of less than 100 cycles.
pub(super) const SPE: Sampler =
    Sampler { name: "SPE", chase: "--size 16M --rounds 2", stores: &[] };
/// PEBS, which samples stores too. It tells of them whether the first level had the line.
const PEBS: Sampler =
    Sampler { name: "PEBS", chase: "--size 4M --rounds 64", stores: &["first_level", "unknown"] };
/// IBS with the filter of Zen 4 for what the caches answer. It tells no source of stores.
const IBS: Sampler = Sampler { name: "IBS", chase: "--size 4M --rounds 256", stores: &["unknown"] };

/// Least share of the samples that have to tell where the memory is.
const LEAST_PERCENT: f64 = 95.0;
/// Largest share of the samples that may be left out as those of stores. Stores have a counter of
/// their own, so their share may exceed that of the chase's accesses.
const MOST_STORES_PERCENT: f64 = 25.0;

/// PEBS of Skylake-SP and IBS of Zen 4.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let mut findings = sampled(lab, &playing("nmass-2", Processor::SkylakeSp)?, &PEBS)?;
    findings.extend(sampled(lab, &playing("carrefour-a", Processor::AmdZen4)?, &IBS)?);
    Ok(findings)
}

/// Whether samples tell the node of the memory and that memory answered.
pub(super) fn sampled(lab: &Lab, machine: &Machine, sampler: &Sampler) -> Result<Vec<Finding>> {
    let record = run(lab, machine, "samples of a chase", &chases(sampler))?;
    let mut findings = Vec::new();
    for node in 0..2 {
        let summary = report(&record, &format!("chase{node}"))?;
        let unit = sampler.name;
        let mut share = |what: &str, (part, whole): (f64, f64)| {
            let check = format!("{unit}: samples of memory of node {node} that {what}");
            let told = format!("% ({part} of {whole})");
            let (within, percent) = ((LEAST_PERCENT, 100.0), 100.0 * part / whole);
            findings.push(Finding::between(&name(machine), check, within, percent, &told));
        };
        share("say so", by_node(&summary, node));
        let samples = &summary["samples"];
        share("memory answered", by_memory(samples, sampler.stores));
        if !sampler.stores.is_empty() {
            let check = format!("{unit}: samples of memory of node {node} left out as stores");
            let [loads, all] = [sampler.stores, &[]].map(|stores| by_memory(samples, stores).1);
            let (within, percent) = ((0.0, MOST_STORES_PERCENT), 100.0 * (1.0 - loads / all));
            findings.push(Finding::between(&name(machine), check, within, percent, "%"));
        }
    }
    Ok(findings)
}

/// A chase through memory of each of two nodes, on the first node's CPU.
fn chases(sampler: &Sampler) -> String {
    let chase = |node: usize| {
        format!(
            "rondpoint observe --quiet --json --output /tmp/chase -- rondpoint-workloads chase \
             --cpu-node 0 --node {node} --no-huge-pages {} > /dev/null\n\
             tail -n 1 /tmp/chase > /tmp/summary\n\
             report chase{node} /tmp/summary\n",
            sampler.chase
        )
    };
    [0, 1].map(chase).concat()
}

/// The sampled accesses to memory of a node, and to memory of all nodes.
fn by_node(summary: &Value, node: usize) -> (f64, f64) {
    let threads = summary["threads"].as_array().into_iter().flatten();
    let counts = threads.filter_map(|thread| thread["accesses_by_node"].as_array());
    let counts: Vec<(usize, f64)> = counts
        .flat_map(|nodes| nodes.iter().enumerate())
        .map(|(at, count)| (at, count.as_f64().unwrap_or(0.0)))
        .collect();
    let of_node = counts.iter().filter(|(at, _)| *at == node).map(|(_, count)| count).sum();
    (of_node, counts.iter().map(|(_, count)| count).sum())
}

/// The samples that memory answered, and all of loads.
fn by_memory(samples: &Value, stores: &[&str]) -> (f64, f64) {
    let count = |source: &str| samples["by_source"][source].as_f64().unwrap_or(0.0);
    let left_out: f64 = stores.iter().map(|source| count(source)).sum();
    (count("dram"), samples["taken"].as_f64().unwrap_or(0.0) - left_out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accesses_of_all_threads_are_added_up_for_each_node() {
        let summary = json!({ "threads": [
            { "accesses_by_node": [1, 20] }, { "accesses_by_node": null }, { "accesses_by_node": [3, 0] },
        ]});
        assert_eq!(by_node(&summary, 1), (20.0, 24.0));
        assert_eq!(by_node(&json!({}), 0), (0.0, 0.0));
    }

    #[test]
    fn samples_of_stores_are_left_out_where_asked() {
        let samples =
            json!({ "taken": 10, "by_source": { "dram": 6, "last_level": 1, "unknown": 3 } });
        assert_eq!(by_memory(&samples, &["unknown"]), (6.0, 7.0));
        assert_eq!(by_memory(&samples, &[]), (6.0, 10.0));
    }
}
