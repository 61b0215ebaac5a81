//! The lab as the processor that it plays: the guest's units have that processor's names and
//! encodings, so the product's own tables are what is tried. Its counts are those of the model,
//! `rondpoint doctor` calls them measured, and finds each of the lies that the driver tells on
//! demand.

use anyhow::{Context as _, Result};
use rondpoint_machine::{Machine, Processor};
use serde_json::Value;

use super::name;
use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, script};

/// An event of the processor and the model's own for the same thing, both on CPU 0, and how many of
/// the first are one of the second.
struct Pair {
    what: &'static str,
    event: &'static str,
    truth: &'static str,
    times: f64,
}

const fn pair(what: &'static str, event: &'static str, truth: &'static str) -> Pair {
    Pair { what, event, truth, times: 1.0 }
}

/// Skylake-SP. A line is nine flits on a link of 64 bytes a line.
const INTEL: [Pair; 9] = [
    pair("last-level misses", "cpu/event=0x2e,umask=0x41", "model/dram_reads"),
    pair("loads from local memory", "cpu/event=0xd3,umask=0x01", "model/local_dram"),
    pair("loads from remote memory", "cpu/event=0xd3,umask=0x02", "model/remote_dram"),
    pair("lines read by the controllers", "uncore_imc/event=0x04,umask=0x03", "lab_nb/event=1"),
    pair("lines written by the controllers", "uncore_imc/event=0x04,umask=0x0c", "lab_nb/event=2"),
    pair(
        "local lines that the caching agents miss",
        "uncore_cha/event=0x35,umask=0x21,config1=0x4043200000000",
        "lab_nb/event=0,unit=0",
    ),
    pair(
        "remote lines that the caching agents miss",
        "uncore_cha/event=0x35,umask=0x21,config1=0x4043100000000",
        "lab_nb/event=0,unit=1",
    ),
    Pair {
        what: "flits sent over UPI",
        event: "uncore_upi/event=0x02,umask=0x0f",
        truth: "lab_nb/event=5,unit=0",
        times: 9.0 / 64.0,
    },
    Pair {
        what: "flits received over UPI",
        event: "uncore_upi/event=0x03,umask=0x0f",
        truth: "lab_nb/event=5,unit=1",
        times: 9.0 / 64.0,
    },
];

/// Zen 4. The fabric's channels and links are asked one by one.
const AMD: [Pair; 6] = [
    pair("fills from memory", "cpu/event=0x44,umask=0x48", "model/dram_reads"),
    pair("fills from the own node's memory", "cpu/event=0x44,umask=0x08", "model/dram_node0"),
    pair("fills from remote memory on demand", "cpu/event=0x43,umask=0x40", "model/remote_dram"),
    pair("lines read by the controllers", "amd_umc/event=0x0a,rdwrmask=0x1", "lab_nb/event=1"),
    pair("lines written by the controllers", "amd_umc/event=0x0a,rdwrmask=0x2", "lab_nb/event=2"),
    Pair {
        what: "beats read from the node's own channel 3",
        event: "amd_df/event=0xdf,umask=0x7fe",
        truth: "lab_nb/event=0,unit=0",
        times: 1.0 / 12.0,
    },
];

/// What `doctor --metrics` has to call measured.
const INTEL_MEASURED: &str = "address_samples controller_reads controller_writes cycles \
    instructions link_in link_out llc_hits llc_misses local_dram local_forward local_hitm \
    private_misses remote_dram remote_forward remote_hitm stall_cycles";
const AMD_MEASURED: &str = "address_samples cache_lookups cache_misses controller_bytes \
    controller_reads controller_writes cycles instructions llc_misses local_dram local_forward \
    private_misses remote_dram remote_forward";

/// A stream of reads and writes from each node to memory of both.
const WORK: &str = r#"cat > /root/work <<'END'
stream() { rondpoint-workloads stream --threads 1 --kernel triad --size 4M --iterations 2 "$@"; }
stream --cpu-node 0 --mem-node 0
stream --cpu-node 0 --mem-node 1
stream --cpu-node 1 --mem-node 0
END"#;

/// A lie of the driver's and the metric in which the doctor has to find it.
struct Lie {
    tell: &'static str,
    metric: &'static str,
}

const fn lie(tell: &'static str, metric: &'static str) -> Lie {
    Lie { tell, metric }
}

const LIES: [Lie; 13] = [
    lie("zero cpu", "llc_misses"),
    lie("clock cpu", "llc_misses"),
    lie("swap cpu", "local_dram and remote_dram"),
    lie("all-local cpu", "local_dram and remote_dram"),
    lie("swap samples", "address samples"),
    lie("swap uncore_cha", "dram_to_node"),
    lie("all-local uncore_cha", "dram_to_node"),
    lie("all-nodes uncore_cha", "dram_to_node"),
    lie("twice uncore_upi", "link_out"),
    lie("bytes uncore_imc", "controller_reads"),
    lie("zero uncore_imc_2", "controller_reads"),
    lie("one-node uncore_imc", "controller_reads"),
    lie("wrap uncore_imc", "controller_reads"),
];

/// How far a count may be off the model's, percent.
const COUNT_PERCENT: f64 = 2.0;

/// Counts against the model's, and what the doctor says of them, on a machine of each maker.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (machine, processor, pairs, measured) in [
        ("nmass-2", Processor::SkylakeSp, &INTEL[..], INTEL_MEASURED),
        ("carrefour-a", Processor::AmdZen4, &AMD[..], AMD_MEASURED),
    ] {
        let (machine, table) = (playing(machine, processor)?, processor.name());
        let record = script::run(lab, &machine, "the processor's own events", &counting(pairs))?;
        for (number, pair) in pairs.iter().enumerate() {
            let count = |tag: &str| sum(script::lines(&record, &format!("{tag}{number} ")));
            let values = (count("truth")? * pair.times, count("ours")?);
            let check = format!("{table}: {}", pair.what);
            findings.push(Finding::near(&name(&machine), check, values, COUNT_PERCENT, ""));
        }
        findings.push(told(&machine, table, measured, &doctor(&record, "doctor")?));
    }
    Ok(findings)
}

/// Each lie of [`LIES`], and the truth before them, of which nothing must be said.
pub(super) fn check_lies(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = playing("nmass-2", Processor::SkylakeSp)?;
    let one = |(number, told): (usize, &str)| {
        format!(
            "echo {told} > /sys/module/rondpoint_pmu/parameters/lie\n\
             rondpoint doctor --check --json > /tmp/doctor || true\n\
             echo \"lie{number} $(tr -d '\\n' < /tmp/doctor)\"\n"
        )
    };
    let tells = ["none"].into_iter().chain(LIES.iter().map(|lie| lie.tell));
    let text: String = tells.enumerate().map(one).collect();
    let record = script::run(lab, &machine, "counters that lie", &text)?;
    let machine = name(&machine);
    let honest = lies(&doctor(&record, "lie0")?);
    let check = "doctor --check where every counter tells the truth";
    let mut findings =
        vec![Finding::fact(&machine, check, "no lie", sentences(&honest), honest.is_empty())];
    for (number, lie) in LIES.iter().enumerate() {
        let found = lies(&doctor(&record, &format!("lie{}", number + 1))?);
        let is_named = found.iter().any(|(metric, _)| metric == lie.metric);
        let check = format!("doctor --check where the driver is told: {}", lie.tell);
        let target = format!("{} lies", lie.metric);
        findings.push(Finding::fact(&machine, &check, &target, sentences(&found), is_named));
    }
    Ok(findings)
}

/// A machine of one CPU a node that plays another processor than its file says.
fn playing(name: &str, processor: Processor) -> Result<Machine> {
    let mut machine = cut_machine(name, 1)?;
    machine.pmu.processor = Some(processor);
    Ok(machine)
}

/// A script that counts each pair side by side, and asks the doctor.
fn counting(pairs: &[Pair]) -> String {
    let mut text = format!("{WORK}\n");
    for (number, Pair { event, truth, .. }) in pairs.iter().enumerate() {
        // Named, all units of a kind can be added up again.
        text.push_str(&format!(
            "perf stat -C 0 -x, -o /tmp/perf -e '{event},name=ours{number}/' \
             -e '{truth},name=truth{number}/' sh /root/work > /dev/null\n\
             sed -n 's/^\\([0-9]*\\),[^,]*,\\(ours{number}\\|truth{number}\\),.*/\\2 \\1/p' /tmp/perf\n"
        ));
    }
    text + "rondpoint doctor --metrics --json > /tmp/doctor || true\n\
            echo \"doctor $(tr -d '\\n' < /tmp/doctor)\""
}

fn sum<'a>(lines: impl Iterator<Item = &'a str>) -> Result<f64> {
    let counts: Vec<f64> =
        lines.map(|line| line.parse().context("a count of perf's")).collect::<Result<_>>()?;
    if counts.is_empty() {
        anyhow::bail!("perf counted nothing");
    }
    Ok(counts.iter().sum())
}

fn doctor(record: &crate::vm::Record, tag: &str) -> Result<Value> {
    let line = script::lines(record, &format!("{tag} ")).next();
    let line = line.with_context(|| format!("the doctor said nothing as {tag}"))?;
    serde_json::from_str(line).with_context(|| format!("the doctor's report: {line:?}"))
}

/// Metrics that lie, each with its sentence.
fn lies(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lies = report["lies"].as_array().into_iter().flatten();
    lies.map(|lie| (text(&lie["metric"]), text(&lie["sentence"]))).collect()
}

fn sentences(lies: &[(String, String)]) -> String {
    match lies {
        [] => "no lie".to_owned(),
        lies => lies.iter().map(|(_, sentence)| sentence.as_str()).collect::<Vec<_>>().join("; "),
    }
}

/// Whether all that this processor counts is called measured.
fn told(machine: &Machine, table: &str, expected: &str, report: &Value) -> Finding {
    let metrics = report["metrics"].as_array().into_iter().flatten();
    let measured = metrics.filter(|metric| metric["state"] == "measured");
    let mut measured: Vec<&str> = measured.filter_map(|metric| metric["name"].as_str()).collect();
    measured.sort_unstable();
    let measured = measured.join(" ");
    let check = format!("{table}: what the doctor calls measured");
    let holds = measured == expected;
    Finding::fact(&name(machine), &check, expected, measured, holds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_of_all_units_are_added_up() {
        assert_eq!(sum(["3", "4"].into_iter()).expect("counts"), 7.0);
        assert!(sum(std::iter::empty()).is_err());
        assert!(sum(["<not counted>"].into_iter()).is_err());
    }

    #[test]
    fn lies_are_named_with_their_sentences() {
        let report = json!({ "lies": [{ "metric": "a", "lie": "silent", "sentence": "a is so" }] });
        assert_eq!(sentences(&lies(&report)), "a is so");
        assert_eq!(sentences(&lies(&json!({}))), "no lie");
    }
}
