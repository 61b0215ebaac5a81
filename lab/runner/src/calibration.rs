//! `rondpoint-lab calibration`: compares the results of `rondpoint calibrate` and `topology
//! --measure` in the guest with the machine file.
//!
//! The product does not read the file: it measures with its own programs, by the guest's clock and
//! PMU. Machines are cut to a few CPUs for each node, with bandwidths in proportion.

mod expected;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::policy::{carrefour, nmass, sam};
use rondpoint_core::reference::CARREFOUR_A;
use rondpoint_core::topology::PenaltyLine;
use rondpoint_machine::Machine;
use serde_json::Value;

use self::expected::Loop;
use crate::lab::{Lab, Start, cut_machine};
use crate::physics::{Finding, document, script};

const MACHINES: [&str; 3] = ["carrefour-a", "sam-2", "nmass-2"];
/// CPUs of each node that are kept. With one there is no other CPU to share a cache with. Links are
/// cut with the CPUs: those of carrefour-a would then carry less than a single chain of loads asks
/// for.
const CPUS_PER_NODE: u32 = 2;
/// How far a bandwidth may be off its constant.
const BANDWIDTH_PERCENT: f64 = 5.0;
/// The same for what one load or one line waits for.
const LATENCY_PERCENT: f64 = 10.0;
/// The same for a threshold made of such.
const THRESHOLD_PERCENT: f64 = 10.0;

/// The machine by itself, with a program that waits for memory all the time, and with one that
/// fails; then what a manager goes by. One line each.
const SCRIPT: &str = r#"
oneline() { tr -d '\n'; echo; }
file=/etc/rondpoint/calibration.toml
rondpoint calibrate --json --time 50 --cache CACHE > /tmp/machine
echo "machine $(oneline < /tmp/machine)"
rondpoint topology --measure --json --time 50 --cache CACHE > /tmp/measured
echo "measured $(oneline < /tmp/measured)"
rondpoint calibrate --json -- rondpoint-workloads chase --size 4M --rounds 8 2> /tmp/program > /tmp/out
echo "program $(oneline < /tmp/program)"
cp $file /root/before.toml
rondpoint calibrate -- rondpoint-workloads chase --node 99 2> /tmp/refused && exit 1
cmp $file /root/before.toml && echo unchanged >> /tmp/refused
echo "refused $(tail -n 2 /tmp/refused | tr '\n' ' ')"
rondpoint record --output /tmp/trace -- rondpoint-workloads chase --size 4M --rounds 8 > /tmp/out
echo "header $(head -n 1 /tmp/trace)"
echo "period $(grep -o '"period":[0-9]*' /tmp/trace | sort -u | tr '\n' ' ')"
"#;
/// The kernel's part of a sample, from the interrupt to the ring, which no machine file knows: at
/// most this. What was measured comes to about 2,100 on nmass-2 and sam-2 and 900 on carrefour-a.
const HANDLER_INSTRUCTIONS: f64 = 3_000.0;
/// Percent that sampling may cost [Carrefour s3.3.1].
const SAMPLING_BUDGET: f64 = 5.0;
/// MPKI at which N-MASS's line is looked at: as of programs that the paper calls memory-bound, and
/// of milder ones.
const LINE_MPKI: [f64; 2] = [20.0, 5.0];

/// What `calibration` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these machines; default: all three
    #[arg(value_name = "MACHINE", value_parser = ["carrefour-a", "sam-2", "nmass-2"])]
    machines: Vec<String>,
    #[command(flatten)]
    start: Start,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs all and prints them; exit status 1 when a measurement is elsewhere than its constant.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open_at(&arguments.start)?;
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
    let text = SCRIPT.replace("CACHE", &cache.to_string());
    let record = script::run(lab, &machine, "rondpoint calibrate", &text)?;
    let said = |tag: &str| {
        script::lines(&record, tag).next().with_context(|| format!("the script said no {tag}"))
    };
    let report = |tag: &str| -> Result<Value> {
        serde_json::from_str(said(tag)?).with_context(|| format!("rondpoint's report: {tag}"))
    };
    let found = report("machine ")?;
    let mut findings = matrices(&machine, &found, "/calibration")?;
    findings.extend(transfers(&machine, &found)?);
    let measured = report("measured ")?;
    findings.extend(matrices(&machine, &measured, "")?.into_iter().map(by_topology));
    findings.push(loaded(&machine, &measured)?);
    findings.extend(thresholds(&machine, &found)?);
    findings.extend(sharing(&machine, &found)?);
    findings.extend(contention(&machine, &found)?);
    findings.extend(sampling(&machine, &found)?);
    findings.extend(penalty(&machine, &found)?);
    let with_program = report("program ")?;
    findings.extend(program(&machine, &found, &with_program)?);
    let (check, target) = ("a program that fails", "said once, the file unchanged");
    let refused = said("refused ")?;
    let holds =
        refused.contains("ended with status 2, expected 0") && refused.ends_with("unchanged");
    findings.push(Finding::fact(&machine.name, check, target, refused.to_owned(), holds));
    findings.push(used(&machine, &with_program, &report("header ")?, said("period ")?)?);
    Ok(findings)
}

/// A manager that starts afterwards goes by the file: its trace's header has the thresholds, its
/// samples the period.
fn used(machine: &Machine, found: &Value, header: &Value, period: &str) -> Result<Finding> {
    let found = found.get("calibration").context("no calibration")?;
    let places = [
        ("requests_per_us", "/requests_per_us"),
        ("coherence_per_s", "/sharing/coherence_per_s"),
        ("memory_per_s", "/contention/memory_per_s"),
        ("remote_per_s", "/contention/remote_per_s"),
        ("penalty", "/penalty"),
    ];
    let header = header.get("machine").context("no machine in the trace")?;
    let mut other: Vec<&str> = places
        .into_iter()
        .filter(|(name, place)| {
            header.get(name).is_none() || header.get(name) != found.pointer(place)
        })
        .map(|(name, _)| name)
        .collect();
    let chosen = number(found, "/sampling/period")?;
    if period != format!("\"period\":{chosen}") {
        other.push(period);
    }
    let measured = match other.is_empty() {
        true => "all of them".to_owned(),
        false => format!("other than in the file: {}", other.join(", ")),
    };
    let (check, target) = ("what a manager goes by", "the file's thresholds, line and period");
    Ok(Finding::fact(&machine.name, check, target, measured, other.is_empty()))
}

/// A number of the report, by its path.
fn number(found: &Value, path: &str) -> Result<f64> {
    found
        .pointer(path)
        .and_then(Value::as_f64)
        .with_context(|| format!("no number at {path}: {found}"))
}

/// The matrices below `place` of a report against those of the file.
fn matrices(machine: &Machine, found: &Value, place: &str) -> Result<Vec<Finding>> {
    let mut findings = bandwidths(machine, found, place)?;
    findings.extend(latencies(machine, found, place)?);
    Ok(findings)
}

/// The same check by another command.
fn by_topology(finding: Finding) -> Finding {
    Finding { check: format!("topology --measure: {}", finding.check), ..finding }
}

/// The loaded latency of node 0. What CPUs draw never gets far above the controller. A load waits
/// longest where they draw most, and idle it waits as the file says.
fn loaded(machine: &Machine, found: &Value) -> Result<Finding> {
    let points = found.pointer("/loaded/0/points").and_then(Value::as_array);
    let points = points.context("no loaded latency of node 0")?;
    let pair = |point: &Value| Ok((number(point, "/mb_s")?, number(point, "/ns")?));
    let points: Vec<(f64, f64)> = points.iter().map(pair).collect::<Result<_>>()?;
    let [(_, idle_ns), .., (heaviest_mb_s, heaviest_ns)] = points[..] else {
        bail!("one point only: {found}")
    };
    let most_mb_s = machine.nodes[0].controller.as_ref().map_or(0.0, |one| one.bandwidth_mb_s);
    let near = (idle_ns / machine.latency_ns[0][0] - 1.0).abs() <= LATENCY_PERCENT / 100.0;
    let below =
        points.iter().all(|(mb_s, _)| *mb_s <= most_mb_s * (1.0 + BANDWIDTH_PERCENT / 100.0));
    let drawn = points.iter().all(|(mb_s, _)| *mb_s <= heaviest_mb_s * 1.05);
    let waits = points.iter().all(|(_, ns)| *ns <= heaviest_ns * 1.05);
    let target = format!(
        "{:.0} ns idle, longest where most is drawn, at most {most_mb_s:.0} MB/s",
        machine.latency_ns[0][0]
    );
    let measured = format!("{idle_ns:.0} ns idle, {heaviest_ns:.0} ns at {heaviest_mb_s:.0} MB/s");
    let check = "topology --measure: loaded latency of node 0";
    Ok(Finding::fact(&machine.name, check, &target, measured, near && below && drawn && waits))
}

fn bandwidths(machine: &Machine, found: &Value, place: &str) -> Result<Vec<Finding>> {
    let nodes = 0..machine.nodes.len();
    let mut findings = Vec::new();
    for holding in nodes.clone() {
        let Some(controller) = &machine.nodes[holding].controller else { continue };
        let measured = number(found, &format!("{place}/controller_mb_s/{holding}"))?;
        let check = format!("what all CPUs draw from node {holding}");
        let pair = (controller.bandwidth_mb_s, measured);
        findings.push(Finding::near(&machine.name, check, pair, BANDWIDTH_PERCENT, "MB/s"));
        for accessing in nodes.clone().filter(|&accessing| accessing != holding) {
            let path = format!("{place}/bandwidth_mb_s/{accessing}/{holding}");
            let pair = (machine.bandwidth_mb_s(accessing, holding), number(found, &path)?);
            let check = format!("what node {accessing} draws from node {holding}");
            findings.push(Finding::near(&machine.name, check, pair, BANDWIDTH_PERCENT, "MB/s"));
        }
    }
    Ok(findings)
}

fn latencies(machine: &Machine, found: &Value, place: &str) -> Result<Vec<Finding>> {
    let nodes = 0..machine.nodes.len();
    let mut findings = Vec::new();
    for (accessing, holding) in nodes.clone().flat_map(|a| nodes.clone().map(move |h| (a, h))) {
        let measured = number(found, &format!("{place}/latency_ns/{accessing}/{holding}"))?;
        let check = format!("a load of node {accessing} from node {holding}");
        let pair = (machine.latency_ns[accessing][holding], measured);
        findings.push(Finding::near(&machine.name, check, pair, LATENCY_PERCENT, "ns"));
    }
    Ok(findings)
}

/// What a line takes from CPU to CPU.
fn transfers(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
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

/// SAM's threshold, and the rate that its experiment finds, which is above it and below what the
/// line allows.
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

/// SAM's other two thresholds.
fn contention(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let pair =
        (expected::contended_per_s(machine, 0), number(found, "/thresholds/sam_memory_per_s")?);
    let check = "SAM's memory threshold of a socket".to_string();
    let memory = Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "loads/s");
    let extra_ns = machine.latency_ns[0][1] - machine.latency_ns[0][0];
    let pair =
        (sam::Thresholds::remote_per_s(extra_ns), number(found, "/thresholds/sam_remote_per_s")?);
    let check = "SAM's remote threshold of a thread".to_string();
    Ok(vec![memory, Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "loads/s")])
}

/// What samples cost a memory-bound loop at the shortest period that was tried. Also that the
/// chosen period is the shortest within the budget, among periods that double from one to the next.
fn sampling(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let instruction_ns = machine.core.cycles_per_instruction * machine.cycle_ns();
    // The sample itself is charged at a manager's price. Nothing declares a manager here, so the
    // handler runs at the program's.
    let least_ns = machine.pmu.sample_cost_ns / machine.lab.manager_speed_up();
    let costs_ns = [least_ns, least_ns + HANDLER_INSTRUCTIONS * instruction_ns];
    let percent =
        |period: f64| costs_ns.map(|ns| 100.0 * expected::sampled_slowdown(machine, 0, period, ns));
    let tries = found.pointer("/points/sampling").and_then(Value::as_array);
    // The shortest period, and one about four times as long: what slows the loop however rarely it
    // is sampled is in both.
    let [.., sparse, _, dense] = tries.map_or(&[][..], Vec::as_slice) else {
        bail!("expected three periods at least: {found}");
    };
    let of = |one: &Value| -> Result<(f64, f64)> {
        Ok((number(one, "/period")?, 100.0 * number(one, "/slowdown")?))
    };
    let ((long, little), (short, much)) = (of(sparse)?, of(dense)?);
    let ([least, most], [least_before, most_before]) = (percent(short), percent(long));
    let check = format!("what a sample in {short} loads costs more than one in {long}");
    let range = (least - least_before, most - most_before);
    let mut findings = vec![Finding::between(&machine.name, check, range, much - little, "%")];
    let period = number(found, "/calibration/sampling/period")?;
    let ([chosen, _], [_, half]) = (percent(period), percent(period / 2.0));
    findings.push(Finding::fact(
        &machine.name,
        "the shortest period that costs no more than 5 %",
        "5 % between what it costs and what half of it would",
        format!("one in {period}: from {chosen:.1} %, half of it up to {half:.1} %"),
        chosen <= SAMPLING_BUDGET && half >= SAMPLING_BUDGET,
    ));
    Ok(findings)
}

/// N-MASS's line through the loops as they were counted, against one through what they should take.
fn penalty(machine: &Machine, found: &Value) -> Result<Vec<Finding>> {
    let programs = found.pointer("/calibration/programs").and_then(Value::as_array);
    let mut points = Vec::new();
    for program in programs.context("no programs")? {
        let chain = program["name"].as_str().is_some_and(|name| name.contains("waiting"));
        let mpki = number(program, "/mpki")?;
        let of = Loop { chain, instructions: 1e3 / mpki };
        let ns = |holding| expected::load_ns(machine, 0, holding, of);
        points.push((mpki, ns(1) / ns(0)));
    }
    let line = PenaltyLine::fit(&points).context("no line")?;
    let of = |key: &str| number(found, &format!("/calibration/penalty/{key}"));
    let measured = PenaltyLine {
        intercept: of("intercept")?,
        slope_per_mpki: of("slope_per_mpki")?,
        most: of("most")?,
    };
    let finding = |mpki: f64| {
        let check = format!("N-MASS's penalty at {mpki} MPKI");
        let pair = (line.at(mpki), measured.at(mpki));
        Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "times the local time")
    };
    Ok(LINE_MPKI.map(finding).into())
}

/// A program that does nothing but chase one load after the other. Checked: what it costs to be
/// remote, and that Carrefour goes by the program's traffic from now on.
fn program(machine: &Machine, alone: &Value, with: &Value) -> Result<Vec<Finding>> {
    let programs = with.pointer("/calibration/programs").and_then(Value::as_array);
    let last = programs.and_then(|all| all.last()).context("no programs")?;
    let latency = &machine.latency_ns;
    let pair = (latency[0][1] / latency[0][0], number(last, "/penalty")?);
    let check = "penalty of a program that chases one load after the other".to_string();
    let mut findings =
        vec![Finding::near(&machine.name, check, pair, THRESHOLD_PERCENT, "times the local time")];
    let before = number(alone, "/thresholds/carrefour_requests_per_us")?;
    let own = number(last, "/traffic/requests_per_us")?;
    let now = number(with, "/thresholds/carrefour_requests_per_us")?;
    findings.push(Finding::fact(
        &machine.name,
        "Carrefour's MAPTU with that program",
        &format!("the lower of {before:.3} and the program's {own:.3}"),
        format!("{now:.3} requests/us"),
        (now - before.min(own)).abs() < 1e-9,
    ));
    Ok(findings)
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
