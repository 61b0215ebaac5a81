//! The lab imitates a real processor. The guest's units have that processor's names and encodings,
//! so this tests the product's own tables. The counts must be those of the model, and `rondpoint
//! doctor` must call them measured.

use anyhow::{Context as _, Result, ensure};
use rondpoint_machine::{Machine, Processor, Vendor};
use serde_json::Value;

use super::name;
use super::session::{moves, report, run};
use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, script};

/// An event of the processor and the model's own events for the same thing, all on CPU 0. `truth`
/// are one or more with counts that add up, separated by spaces. `times` is how many of the first
/// are one of the second. `named` is the same event by the name that Debian's perf has for it on
/// this processor: a second witness of the code.
pub(super) struct Pair {
    what: &'static str,
    event: &'static str,
    truth: &'static str,
    times: f64,
    named: Option<&'static str>,
}

pub(super) const fn pair(what: &'static str, event: &'static str, truth: &'static str) -> Pair {
    Pair { what, event, truth, times: 1.0, named: None }
}

impl Pair {
    /// The same event by perf's name.
    const fn named(self, named: &'static str) -> Self {
        Self { named: Some(named), ..self }
    }

    /// The same with `times` of it for one of the model's.
    const fn times(self, times: f64) -> Self {
        Self { times, ..self }
    }
}

/// Skylake-SP. A line is nine flits on a link of 64 bytes a line.
const INTEL: [Pair; 8] = [
    pair("last-level misses", "cpu/event=0x2e,umask=0x41", "model/dram_reads")
        .named("cpu/longest_lat_cache.miss"),
    pair("loads from local memory", "cpu/event=0xd3,umask=0x01", "model/local_dram")
        .named("cpu/mem_load_l3_miss_retired.local_dram"),
    pair("loads from remote memory", "cpu/event=0xd3,umask=0x02", "model/remote_dram")
        .named("cpu/mem_load_l3_miss_retired.remote_dram"),
    pair("lines read by the controllers", "uncore_imc/event=0x04,umask=0x03", "lab_nb/event=1")
        .named("uncore_imc/unc_m_cas_count.rd"),
    pair("lines written by the controllers", "uncore_imc/event=0x04,umask=0x0c", "lab_nb/event=2")
        .named("uncore_imc/unc_m_cas_count.wr"),
    pair(
        "local lines that the caching agents miss",
        "uncore_cha/event=0x35,umask=0x21,config1=0x4043200000000",
        "lab_nb/event=0,unit=0",
    )
    .named("uncore_cha/unc_cha_tor_inserts.ia_miss,config1=0x4043200000000"),
    pair(
        "remote lines that the caching agents miss",
        "uncore_cha/event=0x35,umask=0x21,config1=0x4043100000000",
        "lab_nb/event=0,unit=1",
    )
    .named("uncore_cha/unc_cha_tor_inserts.ia_miss,config1=0x4043100000000"),
    pair("flits sent over UPI", "uncore_upi/event=0x02,umask=0x0f", "lab_nb/event=5,unit=0")
        .times(9.0 / 64.0)
        .named("uncore_upi/unc_upi_txl_flits.all_data"),
];

/// Ivy Bridge-EP. A flit on QPI carries eight bytes. Perf's list leaves out the extension bit of
/// QPI's codes.
const IVYBRIDGE: [Pair; 6] = [
    pair("loads from local memory", "cpu/event=0xd3,umask=0x03", "model/local_dram")
        .named("cpu/mem_load_uops_llc_miss_retired.local_dram"),
    pair("loads from remote memory", "cpu/event=0xd3,umask=0x0c", "model/remote_dram")
        .named("cpu/mem_load_uops_llc_miss_retired.remote_dram"),
    pair("lines read by the controllers", "uncore_imc/event=0x04,umask=0x03", "lab_nb/event=1")
        .named("uncore_imc/unc_m_cas_count.rd"),
    pair(
        "local lines that the caching agents miss",
        "uncore_cbox/event=0x35,umask=0x2a",
        "lab_nb/event=0,unit=0",
    )
    .named("uncore_cbox/unc_c_tor_inserts.miss_local"),
    pair(
        "remote lines that the caching agents miss",
        "uncore_cbox/event=0x35,umask=0x8a",
        "lab_nb/event=0,unit=1",
    )
    .named("uncore_cbox/unc_c_tor_inserts.miss_remote"),
    pair(
        "flits of data sent over QPI",
        "uncore_qpi/event=0x100,umask=0x08",
        "lab_nb/event=5,unit=0",
    )
    .times(1.0 / 8.0),
];

/// Nehalem-EP. One unit for each socket, of which perf's list has no event.
const NEHALEM: [Pair; 5] = [
    pair("last-level misses", "cpu/event=0x2e,umask=0x41", "model/dram_reads")
        .named("cpu/longest_lat_cache.miss"),
    pair("loads from local memory", "cpu/event=0x0f,umask=0x20", "model/local_dram")
        .named("cpu/mem_uncore_retired.local_dram"),
    pair("lines read by the controllers", "uncore/event=0x2c,umask=0x0f", "lab_nb/event=1"),
    pair("lines written by the controllers", "uncore/event=0x2f,umask=0x0f", "lab_nb/event=2"),
    pair("reads of the node's own CPUs", "uncore/event=0x20,umask=0x10", "lab_nb/event=0,unit=0"),
];

/// What node 0 sends over links. It has two that leave it; another node's count nothing there.
const SENT: &str = "lab_nb/event=5,unit=0 lab_nb/event=5,unit=1 lab_nb/event=5,unit=2 \
    lab_nb/event=5,unit=3 lab_nb/event=5,unit=4 lab_nb/event=5,unit=5 lab_nb/event=5,unit=6 \
    lab_nb/event=5,unit=7";

/// Zen 1. The fabric counts a node's lines over eight ports, and sends 32 bytes a beat over four.
const AMD_FIRST: [Pair; 3] = [
    pair("misses of the private caches", "cpu/event=0x64,umask=0x09", "model/l2_miss")
        .named("cpu/l2_cache_req_stat.ic_dc_miss_in_l2"),
    pair(
        "lines of the node's channel 3",
        "amd_df/event=0xc7,umask=0x38",
        "lab_nb/event=1 lab_nb/event=2",
    )
    .times(1.0 / 8.0)
    .named("amd_df/dram_channel_data_controller_3"),
    pair("beats sent over link 2", "amd_df/event=0x847,umask=0x02", SENT)
        .times(1.0 / 32.0 / 4.0)
        .named("amd_df/remote_outbound_data_controller_2"),
];

/// Zen 4. The fabric's channels and links are asked one by one. It sends 64 bytes a beat over eight
/// links.
const AMD: [Pair; 7] = [
    pair("fills from memory", "cpu/event=0x44,umask=0x48", "model/dram_reads")
        .named("cpu/ls_any_fills_from_sys.dram_io_all"),
    pair("fills from the own node's memory", "cpu/event=0x44,umask=0x08", "model/dram_node0")
        .named("cpu/ls_any_fills_from_sys.dram_io_near"),
    pair("fills from remote memory on demand", "cpu/event=0x43,umask=0x40", "model/remote_dram")
        .named("cpu/ls_dmnd_fills_from_sys.dram_io_far"),
    pair("lines read by the controllers", "amd_umc/event=0x0a,rdwrmask=0x1", "lab_nb/event=1")
        .named("amd_umc/umc_cas_cmd.rd"),
    pair("lines written by the controllers", "amd_umc/event=0x0a,rdwrmask=0x2", "lab_nb/event=2")
        .named("amd_umc/umc_cas_cmd.wr"),
    pair(
        "beats read from the node's own channel 3",
        "amd_df/event=0xdf,umask=0x7fe",
        "lab_nb/event=0,unit=0",
    )
    .times(1.0 / 12.0)
    .named("amd_df/local_processor_read_data_beats_cs3"),
    pair("beats sent over link 2", "amd_df/event=0xbdf,umask=0xf3e", SENT)
        .times(1.0 / 64.0 / 8.0)
        .named("amd_df/local_socket_outbound_data_beats_link2"),
];

/// What `doctor --metrics` has to call measured. Links that it sends over are counted where a
/// machine file names them, which the doctor does not read.
const INTEL_MEASURED: &str = "address_samples controller_reads controller_writes cycles \
    instructions link_in llc_hits llc_misses local_dram local_forward local_hitm \
    private_misses remote_dram remote_forward remote_hitm stall_cycles";
const IVYBRIDGE_MEASURED: &str = INTEL_MEASURED;
const NEHALEM_MEASURED: &str = "address_samples controller_reads controller_writes cycles \
    instructions llc_hits llc_misses local_dram local_hitm private_misses remote_dram \
    remote_forward";
const AMD_FIRST_MEASURED: &str = "address_samples cache_lookups cache_misses controller_bytes \
    cycles instructions private_misses";
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

/// How far a count may be off the model's, percent.
const COUNT_PERCENT: f64 = 2.0;
/// The same of two counts of one event. The counters start one after the other.
const SAME_PERCENT: f64 = 1.0;

/// A processor on a machine, its pairs, and what the doctor has to call measured there.
pub(super) type Played = (&'static str, Processor, &'static [Pair], &'static str);

/// Processors of [`check`]'s jam, one of each maker. Zen 1 has the fewest samples of all.
const JAMMED: [Processor; 2] = [Processor::SkylakeSp, Processor::AmdZen1];

/// Counts against the model's, and what the doctor says of them, on x86 machines of each maker. And
/// a jam on some.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let played: [Played; 5] = [
        ("nmass-2", Processor::NehalemEp, &NEHALEM[..], NEHALEM_MEASURED),
        ("sam-2", Processor::IvybridgeEp, &IVYBRIDGE[..], IVYBRIDGE_MEASURED),
        ("nmass-2", Processor::SkylakeSp, &INTEL[..], INTEL_MEASURED),
        ("carrefour-a", Processor::AmdZen1, &AMD_FIRST[..], AMD_FIRST_MEASURED),
        ("carrefour-a", Processor::AmdZen4, &AMD[..], AMD_MEASURED),
    ];
    let mut findings = counted(lab, &played)?;
    for processor in JAMMED {
        findings.push(unjammed(lab, processor)?);
    }
    Ok(findings)
}

/// A jam on every other x86 processor.
pub(super) fn check_more(lab: &Lab) -> Result<Vec<Finding>> {
    let is_other =
        |processor: &Processor| processor.vendor() != Vendor::Arm && !JAMMED.contains(processor);
    Processor::ALL.into_iter().filter(is_other).map(|processor| unjammed(lab, processor)).collect()
}

/// Counts against the model's, and what the doctor says of them.
pub(super) fn counted(lab: &Lab, played: &[Played]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for &(machine, processor, pairs, measured) in played {
        let (machine, table) = (playing(machine, processor)?, processor.name());
        let record = script::run(lab, &machine, "the processor's own events", &counting(pairs))?;
        for (number, pair) in pairs.iter().enumerate() {
            let count = |tag: &str| {
                sum(script::lines(&record, &format!("{tag}{number} ")))
                    .with_context(|| format!("{table}: {}, {tag}", pair.what))
            };
            let values = (count("truth")? * pair.times, count("ours")?);
            let check = format!("{table}: {}", pair.what);
            findings.push(Finding::near(&name(&machine), check, values, COUNT_PERCENT, ""));
            if let Some(named) = pair.named {
                let check = format!("{table}: {}, as perf names it: {named}", pair.what);
                let same = (values.1, count("named")?);
                findings.push(Finding::near(&name(&machine), check, same, SAME_PERCENT, ""));
            }
        }
        findings.push(told(&machine, table, measured, &doctor(&record, "doctor")?));
    }
    Ok(findings)
}

/// A program with threads on all four nodes and all its memory on one. NUMA balancing is on too.
#[derive(Debug, Clone, Copy)]
struct Jam {
    policy: &'static str,
    size: &'static str,
    seconds: u32,
    /// Base pages that Rondpoint itself has to move at least.
    least_moved: u64,
}

/// What Rondpoint does by default. Where samples are few, as on Zen 1, the repair takes up to four
/// rounds of a second. NUMA balancing may be first: `auto` moves only what still gains by it.
const OF_AUTO: Jam = Jam { policy: "auto", size: "8M", seconds: 5, least_moved: 0 };
/// The published Carrefour, which moves a page after two samples in one round. IBS of Zen 4 samples
/// one operation in 65,536. Of 8 MiB, a run moved 60 to 80 pages a second (emulated). That fits 0.3
/// samples a page and round, with which 4 % of the pages have two. With 0.6 a page of 4 MiB, the
/// same arithmetic has an imbalance below 60 after six rounds. It has to move a quarter of the
/// 1,024 pages itself (our choice).
const OF_CARREFOUR: Jam =
    Jam { policy: "carrefour", size: "4M", seconds: 10, least_moved: 1024 / 4 };

impl Jam {
    fn script(self) -> String {
        let Self { policy, size, seconds, .. } = self;
        format!(
            "rondpoint run --quiet --policy {policy} --report /tmp/jam -- rondpoint-workloads \
             kmeans --rotate --pin --no-huge-pages --size {size} --seconds {seconds} > /dev/null\n\
             report jam /tmp/jam"
        )
    }
}
/// What the jam of four nodes has at its start is 173.
const EVEN_PERCENT: f64 = 60.0;

/// Whether a jam is seen and repaired where no unit tells which node asks which for memory. With
/// more than two nodes that is so on each of these processors.
pub(super) fn unjammed(lab: &Lab, processor: Processor) -> Result<Finding> {
    repaired(lab, processor, OF_AUTO)
}

/// The same by the published Carrefour.
pub(super) fn unjammed_by_carrefour(lab: &Lab, processor: Processor) -> Result<Finding> {
    repaired(lab, processor, OF_CARREFOUR)
}

fn repaired(lab: &Lab, processor: Processor, jam: Jam) -> Result<Finding> {
    let machine = playing("carrefour-a", processor)?;
    let report = report(&run(lab, &machine, "a jam of four nodes", &jam.script())?, "jam")?;
    let finding = judged(&name(&machine), processor.name(), jam, &report);
    if !finding.holds {
        eprintln!("{}: what moved{}", processor.name(), moves(&report));
    }
    Ok(finding)
}

/// Whether the controllers are even at the end, by enough moves of Rondpoint's own.
fn judged(machine: &str, processor: &str, jam: Jam, report: &Value) -> Finding {
    let Jam { policy, least_moved, .. } = jam;
    let after = report["after"]["imbalance_percent"].as_f64().unwrap_or(f64::INFINITY);
    let pages = |key: &str| report[key].as_u64().unwrap_or(0);
    let (own, by_kernel) = (pages("pages_moved"), pages("pages_moved_by_kernel"));
    let check = format!("{processor}: imbalance of a jam of four nodes, at the end, {policy}");
    let mut finding = Finding::between(machine, check, (0.0, EVEN_PERCENT), after, "%");
    if least_moved > 0 {
        finding.target += &format!("; Rondpoint moves at least {least_moved} pages");
    }
    finding.measured += &format!("; Rondpoint moved {own} pages, NUMA balancing {by_kernel}");
    finding.holds &= own >= least_moved;
    finding
}

/// A machine of one CPU a node that plays this processor, whatever its file says.
pub(super) fn playing(name: &str, processor: Processor) -> Result<Machine> {
    playing_with(name, processor, 1)
}

/// The same with `cpus` CPUs a node.
pub(super) fn playing_with(name: &str, processor: Processor, cpus: u32) -> Result<Machine> {
    let mut machine = cut_machine(name, cpus)?;
    machine.pmu.processor = Some(processor);
    machine.pmu.vendor = processor.vendor();
    Ok(machine)
}

/// Events of one unit that are counted at once. Each of these processors has four counters in each
/// of its units at least.
const AT_ONCE: usize = 4;

/// Numbers of pairs that are counted in one run of the work. A pair goes to the first group in
/// which its unit has counters left.
fn groups(pairs: &[Pair]) -> Vec<Vec<usize>> {
    let unit = |number: usize| pairs[number].event.split('/').next();
    // The model's events of a CPU take its counters too.
    let truths = |number: usize| pairs[number].truth.matches("model/").count();
    let named = |number: usize| usize::from(pairs[number].named.is_some());
    let events = |number: usize| 1 + named(number) + truths(number);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for number in 0..pairs.len() {
        let has_room = |group: &&mut Vec<usize>| {
            let same = group.iter().filter(|&&other| unit(other) == unit(number));
            same.map(|&other| events(other)).sum::<usize>() + events(number) <= AT_ONCE
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    groups
}

/// A script that counts the pairs side by side, and asks the doctor. It prints each event's tag,
/// its count, and the percentage of the time in which it had a counter.
fn counting(pairs: &[Pair]) -> String {
    let mut text = format!("{WORK}\n");
    for group in groups(pairs) {
        let events: Vec<String> =
            group.into_iter().flat_map(|number| events(number, &pairs[number])).collect();
        let events = events.join(" ");
        text.push_str(&format!(
            "perf stat -C 0 -x, -o /tmp/perf {events} sh /root/work > /dev/null\n\
             sed -n 's/^\\([0-9]*\\),[^,]*,\\([a-z]*[0-9]*\\),[0-9]*,\\([^,]*\\),.*/\\2 \\1 \\3/p' /tmp/perf\n"
        ));
    }
    text + "rondpoint doctor --metrics --json > /tmp/doctor || true\n\
            echo \"doctor $(tr -d '\\n' < /tmp/doctor)\""
}

/// A pair's events as perf takes them. Tagged, all units of a kind can be added up again.
fn events(number: usize, pair: &Pair) -> impl Iterator<Item = String> {
    let tagged = move |tag: &str, event: &str| format!("-e '{event},name={tag}{number}/'");
    let truths = pair.truth.split_whitespace().map(move |event| tagged("truth", event));
    let named = pair.named.into_iter().map(move |event| tagged("named", event));
    std::iter::once(tagged("ours", pair.event)).chain(truths).chain(named)
}

/// What all units of a kind counted, of lines with a count and the percentage of the time. An event
/// without a counter for a part of the time is an error: perf would guess the rest.
fn sum<'a>(lines: impl Iterator<Item = &'a str>) -> Result<f64> {
    let count = |line: &str| -> Result<f64> {
        let (count, percent) = line.split_once(' ').context("no percentage of the time")?;
        ensure!(percent == "100.00", "an event had a counter for {percent} % of the time");
        count.parse().context("a count of perf's")
    };
    let counts: Vec<f64> = lines.map(count).collect::<Result<_>>()?;
    ensure!(!counts.is_empty(), "perf counted nothing");
    Ok(counts.iter().sum())
}

pub(super) fn doctor(record: &crate::vm::Record, tag: &str) -> Result<Value> {
    let line = script::lines(record, &format!("{tag} ")).next();
    let line = line.with_context(|| format!("the doctor said nothing as {tag}"))?;
    serde_json::from_str(line).with_context(|| format!("the doctor's report: {line:?}"))
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
    use super::*;

    #[test]
    fn an_event_is_counted_by_its_code_and_by_perfs_name_for_it() {
        let text = counting(&[pair("a", "cpu/event=1", "model/x model/y").named("cpu/its.name")]);
        for event in
            ["cpu/event=1,name=ours0/", "model/y,name=truth0/", "cpu/its.name,name=named0/"]
        {
            assert!(text.contains(&format!("-e '{event}'")), "{text}");
        }
        let unnamed = counting(&[pair("a", "cpu/event=1", "model/x")]);
        assert!(!unnamed.contains("name=named"), "{unnamed}");
    }

    #[test]
    fn a_unit_is_asked_for_no_more_than_four_events_at_once() {
        let core = || pair("a", "cpu/event=1", "model/x").named("cpu/its.name");
        let fabric = || pair("b", "amd_df/event=1", "lab_nb/event=1").named("amd_df/its.name");
        let pairs = [core(), core(), fabric(), fabric(), fabric()];
        assert_eq!(groups(&pairs), [vec![0, 2, 3], vec![1, 4]]);
        assert!(groups(&[]).is_empty());
    }

    #[test]
    fn a_jam_that_the_kernel_alone_repaired_is_no_work_of_carrefours() {
        let holds = |jam: Jam, imbalance: f64, moved: u64| {
            let report = serde_json::json!({
                "after": {"imbalance_percent": imbalance}, "pages_moved": moved,
            });
            judged("here", "zen", jam, &report).holds
        };
        assert!(!holds(OF_CARREFOUR, 10.0, 0) && !holds(OF_CARREFOUR, 10.0, 255));
        assert!(holds(OF_CARREFOUR, 10.0, 256));
        assert!(!holds(OF_CARREFOUR, 61.0, 1024), "the pages went to a wrong place");
        assert!(holds(OF_AUTO, 10.0, 0) && !holds(OF_AUTO, 61.0, 0));
        assert!(!judged("here", "zen", OF_AUTO, &Value::Null).holds, "nothing was reported");
    }

    #[test]
    fn counts_of_all_units_are_added_up() {
        assert_eq!(sum(["3 100.00", "4 100.00"].into_iter()).expect("counts"), 7.0);
        assert!(sum(std::iter::empty()).is_err());
        assert!(sum(["3 100.00", "4 50.00"].into_iter()).is_err(), "perf guessed");
        assert!(sum(["3"].into_iter()).is_err());
    }
}
