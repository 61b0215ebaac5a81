//! Checks on Carrefour's machine A: counting, latency, saturation, transfers, Table 1's signature.

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;

use super::Finding;
use super::script::{lines, perf_count, run, value};
use crate::configuration::Configuration;
use crate::lab::Lab;
use crate::result::{RunResult, summarise};

/// The machine, by the name of its file.
pub(crate) const NAME: &str = "carrefour-a";
/// Lines of the counting scan: four times the lab's last-level cache.
const SCAN_BYTES: u64 = 4 << 20;

/// All checks on this machine.
pub(crate) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = lab.machine(NAME)?;
    let mut findings = counting(lab, &machine)?;
    findings.extend(times(lab, &machine)?);
    findings.extend(signature(lab, &machine)?);
    Ok(findings)
}

/// A scan of N lines on a node counts N accesses there; perf and the product agree.
fn counting(lab: &Lab, machine: &Machine) -> Result<Vec<Finding>> {
    let mut script = String::new();
    for node in 0..machine.nodes.len() {
        let event = format!("cpu/dram_node{node}/u");
        script.push_str(&format!(
            "perf stat -x, -o /tmp/perf -e {event} rondpoint-workloads scan --cpu 0 --node {node} --size {SCAN_BYTES} > /dev/null\n\
             sed 's/^/scan /' /tmp/perf\n"
        ));
    }
    let record = run(lab, machine, "counting scans with perf", &script)?;
    let expected = (SCAN_BYTES / 64) as f64;
    (0..machine.nodes.len())
        .map(|node| {
            let counted = perf_count(lines(&record, "scan "), &format!("dram_node{node}"))?;
            let check = format!("a scan of {expected} lines on node {node} counts them there");
            Ok(Finding::near(NAME, check, (expected, counted), 1.0, "lines"))
        })
        .collect()
}

/// What the guest's clock sees: latency, transfer, saturation.
fn times(lab: &Lab, machine: &Machine) -> Result<Vec<Finding>> {
    let nodes = machine.nodes.len();
    let threads = machine.cpu_count();
    let mut script = String::new();
    for node in 0..nodes {
        script.push_str(&format!(
            "say chase rondpoint-workloads chase --cpu 0 --node {node} --size 8M\n"
        ));
    }
    for other in partners(machine) {
        script.push_str(&format!(
            "say pingpong rondpoint-workloads pingpong --cpus 0,{other} --handoffs 2000 --iterations 3\n"
        ));
    }
    script.push_str(&format!(
        "perf stat -x, -o /tmp/perf -e dram_latency_cycles:u,dram_requests:u rondpoint-workloads stream \
         --mem-node 0 --threads {threads} --pin --size 32M --iterations 4 > /tmp/stream\n\
         sed 's/^/saturated /' /tmp/perf /tmp/stream\n"
    ));
    let record =
        run(lab, machine, "latency, transfer and saturation by the guest's clock", &script)?;

    let mut findings = Vec::new();
    for (node, line) in lines(&record, "chase ").enumerate() {
        let check = format!("latency from CPU 0 to node {node} ({} hops)", machine.hops(0, node));
        let pair = (machine.latency_ns[0][node], value(line, "ns_per_access")?);
        findings.push(Finding::near(NAME, check, pair, 5.0, "ns"));
    }
    for (other, line) in partners(machine).into_iter().zip(lines(&record, "pingpong ")) {
        let check = format!("handing a line between CPU 0 and CPU {other}");
        let pair = (transfer_ns(machine, other), value(line, "ns_per_handoff")?);
        findings.push(Finding::near(NAME, check, pair, 10.0, "ns"));
    }
    let controller = machine.nodes[0].controller.as_ref().context("node 0 has memory")?;
    let stream =
        lines(&record, "saturated ").find(|line| line.contains("mb_per_s")).context("stream")?;
    let pair = (controller.bandwidth_mb_s, value(stream, "mb_per_s")?);
    let check = "bandwidth of node 0's controller, drawn by all nodes".to_owned();
    findings.push(Finding::near(NAME, check, pair, 5.0, "MB/s"));
    let cycles = perf_count(lines(&record, "saturated "), "dram_latency_cycles")?;
    let requests = perf_count(lines(&record, "saturated "), "dram_requests")?;
    let check = "mean latency meanwhile (idle: 200)".to_owned();
    findings.push(Finding::between(NAME, check, (850.0, 1250.0), cycles / requests, "cycles"));
    Ok(findings)
}

/// CPU 0's neighbour in its cache domain, and the first CPU of each other node.
fn partners(machine: &Machine) -> Vec<usize> {
    let near = (1..machine.cpu_count()).find(|cpu| machine.domain_of_cpu(*cpu) == 0);
    near.into_iter().chain((1..machine.nodes.len()).map(|node| machine.first_cpu(node))).collect()
}

fn transfer_ns(machine: &Machine, other: usize) -> f64 {
    let node = machine.node_of_cpu(other);
    if node == 0 {
        machine.transfer_ns.same_domain_ns
    } else {
        machine.transfer_ns.remote_ns[0][node]
    }
}

/// The k-means program has the signature of Carrefour's Table 1.
fn signature(lab: &Lab, machine: &Machine) -> Result<Vec<Finding>> {
    let kmeans = |configuration| kmeans(lab, machine, configuration);
    let first = kmeans(Configuration::FirstTouch)?;
    let again = kmeans(Configuration::FirstTouch)?;
    let interleave = kmeans(Configuration::Interleave)?;
    let nodes = machine.nodes.len() as f64;
    let most = 100.0 * (nodes - 1.0).sqrt();
    let get = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let imbalance = |run: &RunResult| get(run.controller_imbalance_percent);
    let local = |run: &RunResult| get(run.local_percent);
    let ratio = get(first.latency_cycles) / get(interleave.latency_cycles);
    let named = |text: &str| format!("k-means {text}");
    Ok(vec![
        Finding::between(
            NAME,
            named("first touch: controller imbalance"),
            (0.75 * most, most),
            imbalance(&first),
            "%",
        ),
        Finding::between(
            NAME,
            named("interleaved: controller imbalance"),
            (0.0, 10.0),
            imbalance(&interleave),
            "%",
        ),
        Finding::between(
            NAME,
            named("latency, first touch over interleaved"),
            (2.0, 3.2),
            ratio,
            "(Table 1: 2.5)",
        ),
        Finding::near(
            NAME,
            named("first touch: local access ratio"),
            (100.0 / nodes, local(&first)),
            40.0,
            "%",
        ),
        Finding::near(
            NAME,
            named("interleaved: local access ratio"),
            (100.0 / nodes, local(&interleave)),
            20.0,
            "%",
        ),
        Finding::fact(
            NAME,
            "two runs with the same seed",
            "identical reports",
            if first == again {
                "identical".to_owned()
            } else {
                format!("{} and {} s", first.seconds, again.seconds)
            },
            first == again,
        ),
    ])
}

fn kmeans(lab: &Lab, machine: &Machine, configuration: Configuration) -> Result<RunResult> {
    let mut guest = crate::configuration::base(&lab.installed, &lab.built)?;
    guest.add_file(&lab.built.workloads, "/bin/rondpoint-workloads")?;
    let command =
        ["/bin/rondpoint-workloads", "kmeans", "--pin", "--size", "64M", "--iterations", "6"];
    let command = command.map(str::to_owned);
    let guest = crate::configuration::with_job(guest, &lab.installed, configuration, &command, 1)?;
    eprintln!("{NAME}: k-means, {configuration} …");
    let record = crate::vm::Boot {
        installed: &lab.installed,
        built: &lab.built,
        machine,
        initramfs: &guest.archive()?,
        seed: 1,
        limit: std::time::Duration::from_secs(1200),
    }
    .run()?;
    summarise(1, machine, &record).map_err(anyhow::Error::msg)
}
