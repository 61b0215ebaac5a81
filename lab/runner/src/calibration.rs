//! `rondpoint-lab calibration`: does `rondpoint calibrate`, run in the guest, find what the machine file says?
//!
//! The product knows nothing of the file: it measures with programs of its own, by the guest's clock and PMU. Machines are
//! cut to few CPUs a node, their bandwidths in proportion.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use rondpoint_core::policy::{carrefour, nmass, sam};
use rondpoint_core::reference::CARREFOUR_A;
use rondpoint_machine::Machine;
use serde_json::Value;

use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, document, script};

const MACHINES: [&str; 3] = ["carrefour-a", "sam-2", "nmass-2"];
/// CPUs of each node that are kept. With one there is nobody to share a cache with; and links are cut with the CPUs, until those of
/// carrefour-a do not carry what a single chain of loads asks for.
const CPUS_PER_NODE: u32 = 2;
/// How far a bandwidth may be off its constant.
const BANDWIDTH_PERCENT: f64 = 5.0;
/// The same for what one load or one line waits for.
const LATENCY_PERCENT: f64 = 10.0;
/// The same for a threshold made of such.
const THRESHOLD_PERCENT: f64 = 10.0;

/// What `calibration` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these machines; default: all three
    #[arg(value_name = "MACHINE", value_parser = ["carrefour-a", "sam-2", "nmass-2"])]
    machines: Vec<String>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs all and prints them; exit status 1 when a measurement is elsewhere than its constant.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open()?;
    let mut findings = Vec::new();
    for name in MACHINES {
        let asked = &arguments.machines;
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            findings.extend(check(&lab, name)?);
        }
    }
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&findings)?),
        false => print!("{}", document::table(&findings)),
    }
    Ok(ExitCode::from(u8::from(!findings.iter().all(|finding| finding.holds))))
}

/// One machine.
fn check(lab: &Lab, name: &str) -> Result<Vec<Finding>> {
    let machine = cut_machine(name, CPUS_PER_NODE)?;
    let cache = machine.caches.llc.bytes;
    let text = format!(
        "exec rondpoint calibrate --json --time 50 --output /root/found.toml --cache {cache}"
    );
    let record = script::run(lab, &machine, "rondpoint calibrate", &text)?;
    let found: Value = serde_json::from_slice(&record.stdout).context("rondpoint's report")?;
    let mut findings = bandwidths(&machine, &found)?;
    findings.extend(latencies(&machine, &found)?);
    findings.extend(thresholds(&machine, &found)?);
    findings.extend(sharing(&machine, &found)?);
    Ok(findings)
}

/// A number of the report, by its path.
fn number(found: &Value, path: &str) -> Result<f64> {
    found
        .pointer(path)
        .and_then(Value::as_f64)
        .with_context(|| format!("no number at {path}: {found}"))
}

fn bandwidths(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let nodes = 0..machine.nodes.len();
    let mut findings = Vec::new();
    for holding in nodes.clone() {
        let Some(controller) = &machine.nodes[holding].controller else { continue };
        let measured = number(found, &format!("/calibration/controller_mb_s/{holding}"))?;
        let check = format!("what all CPUs draw from node {holding}");
        let pair = (controller.bandwidth_mb_s, measured);
        findings.push(Finding::near(&machine.name, check, pair, BANDWIDTH_PERCENT, "MB/s"));
        for accessing in nodes.clone().filter(|&accessing| accessing != holding) {
            let path = format!("/calibration/bandwidth_mb_s/{accessing}/{holding}");
            let pair = (machine.bandwidth_mb_s(accessing, holding), number(found, &path)?);
            let check = format!("what node {accessing} draws from node {holding}");
            findings.push(Finding::near(&machine.name, check, pair, BANDWIDTH_PERCENT, "MB/s"));
        }
    }
    Ok(findings)
}

fn latencies(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let nodes = 0..machine.nodes.len();
    let mut findings = Vec::new();
    for (accessing, holding) in nodes.clone().flat_map(|a| nodes.clone().map(move |h| (a, h))) {
        let measured = number(found, &format!("/calibration/latency_ns/{accessing}/{holding}"))?;
        let check = format!("a load of node {accessing} from node {holding}");
        let pair = (machine.latency_ns[accessing][holding], measured);
        findings.push(Finding::near(&machine.name, check, pair, LATENCY_PERCENT, "ns"));
    }
    let transfer = &machine.transfer_ns;
    let remote = (transfer.remote_ns[0][1], number(found, "/calibration/sharing/remote_ns")?);
    let check = "a line to the nearest node".to_string();
    findings.push(Finding::near(&machine.name, check, remote, LATENCY_PERCENT, "ns"));
    let near = (transfer.same_domain_ns, number(found, "/calibration/sharing/same_domain_ns")?);
    let check = "a line within a cache domain".to_string();
    findings.push(Finding::near(&machine.name, check, near, LATENCY_PERCENT, "ns"));
    Ok(findings)
}

/// The policies' thresholds by what was measured, against the same by the file's constants.
fn thresholds(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let topology = machine.topology();
    let gate = carrefour::preset::FINAL.traffic.per_us;
    let requests = CARREFOUR_A.scale_requests_per_us(gate, &topology);
    let measured = number(found, "/thresholds/carrefour_requests_per_us")?;
    let check = "Carrefour's MAPTU".to_string();
    let pair = (requests, measured);
    let mut findings =
        vec![Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "requests/us")];
    let expected = nmass::Preset::PUBLISHED.for_topology(&topology).threshold_mpki;
    let pair = (expected, number(found, "/thresholds/nmass_mpki")?);
    let check = "N-MASS's pressure of a saturated link".to_string();
    findings.push(Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "MPKI"));
    let pair = (machine.core.clock_mhz, number(found, "/calibration/clock_mhz")?);
    let check = "clock of a busy core".to_string();
    findings.push(Finding::near(&machine.name, check, pair, BANDWIDTH_PERCENT, "MHz"));
    Ok(findings)
}

/// SAM's threshold, and the rate that its experiment finds, which is above it and below what the line allows.
fn sharing(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let transfer = &machine.transfer_ns;
    let (near, far) = (transfer.same_domain_ns, transfer.remote_ns[0][1]);
    let expected = sam::Thresholds::coherence_per_s(far - near);
    let pair = (expected, number(found, "/thresholds/sam_coherence_per_s")?);
    let check = "SAM's coherence threshold".to_string();
    let threshold = Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "lines/s");
    let crossover = number(found, "/calibration/sharing/crossover_per_s")?;
    let check = "where one domain is as good as two, competing for a cache".to_string();
    let range = (expected, 1e9 / far);
    Ok(vec![threshold, Finding::between(&machine.name, check, range, crossover, "lines/s")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_cut_to_few_cpus_and_still_saturate_their_memory() {
        for name in MACHINES {
            let machine = cut_machine(name, CPUS_PER_NODE).expect("it saturates");
            assert_eq!(machine.cpu_count(), machine.nodes.len() * CPUS_PER_NODE as usize);
        }
    }

    #[test]
    fn sams_threshold_follows_from_transfers() {
        let mut machine = crate::lab::lab_machine("sam-2").expect("it fits");
        machine.transfer_ns.same_domain_ns = 320.0;
        machine.transfer_ns.remote_ns[0][1] = 1200.0;
        let found = |threshold: f64, crossover: f64| {
            serde_json::json!({
                "thresholds": { "sam_coherence_per_s": threshold },
                "calibration": { "sharing": { "crossover_per_s": crossover } },
            })
        };
        let holds = |threshold, crossover| -> Vec<bool> {
            let findings = sharing(&machine, &found(threshold, crossover)).expect("complete");
            findings.iter().map(|finding| finding.holds).collect()
        };
        assert_eq!(holds(55_000.0, 600_000.0), [true, true]);
        assert_eq!(holds(65_000.0, 900_000.0), [false, false]);
        assert!(sharing(&machine, &serde_json::json!({})).is_err());
    }
}
