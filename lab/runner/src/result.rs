//! The result of one run: the figures of Carrefour's Table 1 and a few more, from the model's
//! counts.

use rondpoint_core::Matrix;
use rondpoint_core::Nanos;
use rondpoint_core::model::{Deviation, Traffic, imbalance_percent};
use rondpoint_lab_init::{Ending, Event, Measurement, PipeMeasurement};
use rondpoint_machine::Machine;
use serde::{Deserialize, Serialize};

use crate::configuration::REPORT_PATH;
use crate::last_third::LastThird;
use crate::product::ProductReport;
use crate::relief;
use crate::vm::Record;

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;

/// One run of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) seed: u64,
    /// Guest seconds from the program's start to its end.
    pub(crate) seconds: f64,
    pub(crate) ending: Ending,
    /// How the check of the result ended, and what it said, where there was one.
    #[serde(default)]
    pub(crate) check: Option<(Ending, String)>,
    /// MB drawn from DRAM, demand and prefetch, `[accessing node][holding node]`.
    pub(crate) traffic_mb: Vec<Vec<f64>>,
    /// Local access ratio (LAR), percent.
    pub(crate) local_percent: Option<f64>,
    /// The same in the last third of the time.
    #[serde(default)]
    pub(crate) late_local_percent: Option<f64>,
    /// Controller imbalance (MC-IMB), population standard deviation, percent.
    pub(crate) controller_imbalance_percent: Option<f64>,
    /// Mean use of the directed links, percent of capacity.
    pub(crate) link_use_percent: Option<f64>,
    /// Standard deviation of the links' use, percent of the mean.
    pub(crate) link_imbalance_percent: Option<f64>,
    /// Mean latency of demand reads from DRAM, core cycles (slow motion does not change them).
    pub(crate) latency_cycles: Option<f64>,
    /// Reads from DRAM per microsecond of guest time.
    pub(crate) requests_per_us: f64,
    /// Instructions per cycle of all vCPUs together.
    pub(crate) instructions_per_cycle: Option<f64>,
    /// Speed in the last third of the work.
    pub(crate) last_third: Option<LastThird>,
    /// When the memory traffic first jammed, guest seconds after the model was switched on.
    pub(crate) jam_s: Option<f64>,
    /// Guest seconds from there to Rondpoint's first action that stayed.
    pub(crate) relief_s: Option<f64>,
    /// Base pages that the kernel moved for automatic NUMA balancing.
    pub(crate) pages_balanced: u64,
    /// Times that automatic NUMA balancing took a page's mapping away to see which thread touches
    /// it.
    pub(crate) pages_watched: u64,
    /// Base pages that moved for any reason.
    pub(crate) pages_moved: u64,
    /// Interleaving applied late, where that was asked for and the program lasted so long.
    pub(crate) spread: Option<Spread>,
    /// What the manager took: Rondpoint or numad. Zeros where none ran.
    #[serde(default)]
    pub(crate) manager: ManagerPrice,
    /// What Rondpoint says of the run, where it ran.
    pub(crate) rondpoint: Option<ProductReport>,
    pub(crate) max_rss_mib: f64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// CPU time of a manager: its process, the kernel on its behalf, its samples. The lab charges it
/// at full speed; the price in slow motion is that of a managed program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ManagerPrice {
    /// CPU seconds charged, as on the machine at full speed.
    pub(crate) charged_s: f64,
    /// CPU seconds of the same work in slow motion, as the lab executed it.
    pub(crate) slow_motion_s: f64,
    /// The charged seconds in percent of the CPU time of all programs.
    pub(crate) cpu_percent: f64,
}

impl ManagerPrice {
    fn of(measurement: &Measurement) -> Self {
        let manager = &measurement.manager;
        let busy_ns: u64 = measurement.vcpus.iter().map(|vcpu| vcpu.busy_ns).sum();
        Self {
            charged_s: manager.charged_ns as f64 / 1e9,
            slow_motion_s: manager.slow_motion_ns as f64 / 1e9,
            cpu_percent: 100.0 * manager.charged_ns as f64 / busy_ns.max(1) as f64,
        }
    }

    /// Whether a manager ran.
    pub(crate) fn is_some(&self) -> bool {
        self.slow_motion_s > 0.0
    }
}

/// All pages of the program to the nodes in turn, once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// Guest seconds after the program's start.
    pub(crate) began_s: f64,
    pub(crate) took_s: f64,
    /// Base pages.
    pub(crate) moved_pages: u64,
    pub(crate) refused_pages: u64,
}

/// Reads the run's record. The error says why there is nothing to report.
pub(crate) fn summarise(
    seed: u64,
    machine: &Machine,
    record: &Record,
) -> Result<RunResult, String> {
    let refused = record.events.iter().find_map(|event| match event {
        Event::Refused { reason } => Some(reason.clone()),
        _ => None,
    });
    if let Some(reason) = refused {
        return Err(reason);
    }
    let finished = record.events.iter().find_map(|event| match event {
        Event::Finished { model_on_ns, elapsed_ns, ending, max_rss_kib, vmstat } => {
            Some((*model_on_ns, *elapsed_ns, *ending, *max_rss_kib, vmstat))
        }
        _ => None,
    });
    let (model_on_ns, elapsed_ns, ending, max_rss_kib, vmstat) =
        finished.ok_or("the guest did not say how the program ended")?;
    let measurement = record.measurement.as_ref().ok_or("the plugin measured nothing")?;
    let traffic = traffic(measurement);
    let topology = machine.topology();
    let links: Vec<f64> = link_use(measurement, elapsed_ns);
    let rondpoint: Option<ProductReport> =
        record.files.get(REPORT_PATH).map(|bytes| ProductReport::parse(bytes)).transpose()?;
    let jam_ns = relief::jam_begin_ns(measurement, &topology);
    let relief_s = rondpoint
        .as_ref()
        .zip(jam_ns)
        .and_then(|(report, jam_ns)| relief::seconds(report, model_on_ns, jam_ns));
    let counter = |name: &str| vmstat.get(name).copied().unwrap_or(0);
    let stdout = String::from_utf8_lossy(&record.stdout).into_owned();
    Ok(RunResult {
        seed,
        seconds: elapsed_ns as f64 / 1e9,
        ending,
        check: record.events.iter().find_map(check),
        traffic_mb: megabytes(measurement),
        local_percent: traffic.as_ref().and_then(Traffic::local_percent),
        late_local_percent: late_local_percent(measurement),
        controller_imbalance_percent: traffic
            .as_ref()
            .and_then(|traffic| traffic.imbalance_percent(Deviation::Population, &topology)),
        link_use_percent: mean(&links),
        link_imbalance_percent: imbalance_percent(&links, Deviation::Population),
        latency_cycles: latency_cycles(measurement, machine),
        requests_per_us: traffic.as_ref().map_or(0.0, Traffic::total_per_us),
        instructions_per_cycle: instructions_per_cycle(measurement, machine),
        last_third: LastThird::of(&stdout, measurement),
        jam_s: jam_ns.map(|ns| ns as f64 / 1e9),
        relief_s,
        pages_balanced: counter("numa_pages_migrated"),
        pages_watched: counter("numa_pte_updates"),
        pages_moved: counter("pgmigrate_success"),
        spread: record.events.iter().find_map(spread),
        manager: ManagerPrice::of(measurement),
        rondpoint,
        max_rss_mib: max_rss_kib as f64 / 1024.0,
        stdout,
        stderr: String::from_utf8_lossy(&record.stderr).into_owned(),
    })
}

fn check(event: &Event) -> Option<(Ending, String)> {
    let Event::Checked { ending, said } = event else { return None };
    Some((*ending, said.clone()))
}

fn spread(event: &Event) -> Option<Spread> {
    let Event::Spread { began_ns, took_ns, moved_pages, refused_pages } = *event else {
        return None;
    };
    let seconds = |ns: u64| ns as f64 / 1e9;
    Some(Spread {
        began_s: seconds(began_ns),
        took_s: seconds(took_ns),
        moved_pages,
        refused_pages,
    })
}

/// Lines read from DRAM, demand and prefetch.
fn lines(measurement: &Measurement, accessing: usize, holding: usize) -> f64 {
    let demand = measurement.demand_lines[accessing][holding];
    (demand + measurement.prefetch_lines[accessing][holding]) as f64
}

fn traffic(measurement: &Measurement) -> Option<Traffic> {
    let nodes = measurement.demand_lines.len();
    let counts = Matrix::from_fn(nodes, |n, m| lines(measurement, n, m));
    Traffic::from_counts(&counts, Nanos(measurement.end_ns - measurement.begin_ns))
}

/// Local accesses among those of the last third of the time, percent.
fn late_local_percent(measurement: &Measurement) -> Option<f64> {
    let (begin, end) = (measurement.begin_ns, measurement.end_ns);
    let from = end - (end - begin) / 3;
    let nodes = measurement.demand_lines.len();
    let (mut local, mut all) = (0, 0);
    for slice in measurement.slices.iter().filter(|slice| slice.end_ns > from) {
        local += (0..nodes).filter_map(|node| slice.dram_lines.get(node)?.get(node)).sum::<u64>();
        all += slice.dram_lines.iter().flatten().sum::<u64>();
    }
    (all > 0).then(|| 100.0 * local as f64 / all as f64)
}

fn megabytes(measurement: &Measurement) -> Vec<Vec<f64>> {
    let nodes = measurement.demand_lines.len();
    let cell = |n, m| lines(measurement, n, m) * LINE_BYTES / 1e6;
    (0..nodes).map(|n| (0..nodes).map(|m| cell(n, m)).collect()).collect()
}

fn link_use(measurement: &Measurement, elapsed_ns: u64) -> Vec<f64> {
    let seconds = elapsed_ns as f64 / 1e9;
    let share = |link: &PipeMeasurement| 100.0 * link.bytes as f64 / (link.bytes_per_s * seconds);
    measurement.links.iter().map(share).collect()
}

fn latency_cycles(measurement: &Measurement, machine: &Machine) -> Option<f64> {
    let requests: u64 = measurement.demand_lines.iter().flatten().sum();
    let mean_ns = measurement.demand_latency_ps as f64 / 1e3 / requests as f64;
    (requests > 0).then(|| mean_ns / machine.cycle_ns())
}

/// Of the program and the kernel, without what a manager executed. A manager is charged a fraction
/// of its cycles, so its instructions would raise the mean.
fn instructions_per_cycle(measurement: &Measurement, machine: &Machine) -> Option<f64> {
    let sum = |name: &str| -> u64 {
        measurement.vcpus.iter().filter_map(|vcpu| vcpu.events.get(name)).sum()
    };
    let manager = &measurement.manager;
    let instructions = sum("instructions").saturating_sub(manager.instructions);
    let cycles = sum("cycles") as f64 - manager.charged_ns as f64 / machine.cycle_ns();
    (cycles > 0.0).then(|| instructions as f64 / cycles)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A run in which nothing happened, for tests to vary.
#[cfg(test)]
pub(crate) fn sample_run() -> RunResult {
    RunResult {
        seed: 1,
        seconds: 1.0,
        ending: Ending::Exit(0),
        check: None,
        traffic_mb: vec![vec![1.0]],
        local_percent: None,
        late_local_percent: None,
        controller_imbalance_percent: None,
        link_use_percent: None,
        link_imbalance_percent: None,
        latency_cycles: None,
        requests_per_us: 0.0,
        instructions_per_cycle: None,
        last_third: None,
        jam_s: None,
        relief_s: None,
        pages_balanced: 0,
        pages_watched: 0,
        pages_moved: 0,
        spread: None,
        manager: ManagerPrice::default(),
        rondpoint: None,
        max_rss_mib: 1.0,
        stdout: String::new(),
        stderr: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_lab_init::{ManagerMeasurement, VcpuMeasurement};

    use super::*;

    #[test]
    fn both_prices_of_a_manager_are_told_in_seconds_and_its_share_of_the_cpu_time() {
        let vcpu = |busy_ns| VcpuMeasurement { busy_ns, ..VcpuMeasurement::default() };
        let measurement = Measurement {
            vcpus: vec![vcpu(3_000_000_000), vcpu(1_000_000_000)],
            manager: ManagerMeasurement {
                charged_ns: 20_000_000,
                slow_motion_ns: 200_000_000,
                instructions: 7,
            },
            ..Measurement::default()
        };
        let price = ManagerPrice::of(&measurement);
        let expected = ManagerPrice { charged_s: 0.02, slow_motion_s: 0.2, cpu_percent: 0.5 };
        assert_eq!(price, expected);
        let json = serde_json::to_value(RunResult { manager: price, ..sample_run() });
        let json = json.expect("plain data");
        assert_eq!(json["manager"]["charged_s"], 0.02);
        assert_eq!(json["manager"]["slow_motion_s"], 0.2);
        assert!(!ManagerPrice::of(&Measurement::default()).is_some());
    }

    #[test]
    fn a_result_without_the_price_is_read_as_one_without_a_manager() {
        let mut json = serde_json::to_value(sample_run()).expect("plain data");
        json.as_object_mut().expect("an object").remove("manager");
        let run: RunResult = serde_json::from_value(json).expect("an older result");
        assert!(!run.manager.is_some());
    }
}
