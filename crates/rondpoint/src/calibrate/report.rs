//! The report of `rondpoint calibrate`: measured values and the thresholds that follow from them.

use std::path::Path;

use anyhow::Result;
use rondpoint_core::Topology;
use rondpoint_core::policy::{carrefour, nmass};
use rondpoint_linux::parse::cpulist;
use serde::Serialize;

use super::Calibration;
use super::bench::Points;
use super::file::Program;
use super::sampling::BUDGET;
use crate::output::Output;

const SCHEMA: u32 = 2;

/// What the policies go by on this machine, as they compute it from what was measured.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Thresholds {
    /// Carrefour's MAPTU: DRAM requests of an application in a microsecond.
    carrefour_requests_per_us: f64,
    /// N-MASS: the pressure at which the weakest pair of nodes is saturated; `None` without a
    /// clock.
    nmass_mpki: Option<f64>,
    /// SAM: lines from another node in a second; `None` where transfers were not measured.
    sam_coherence_per_s: Option<f64>,
    /// SAM: last-level cache misses of a socket in a second; `None` where that was not measured.
    sam_memory_per_s: Option<f64>,
    /// SAM: remote requests of a thread in a second; `None` where there is no remote memory.
    sam_remote_per_s: Option<f64>,
    /// AsymSched: the largest over the smallest bandwidth between nodes; above 1.1 it acts.
    asymsched_ratio: Option<f64>,
}

/// The thresholds of a machine that was measured.
pub(super) fn thresholds(found: &Calibration, topology: &Topology) -> Result<Thresholds> {
    let machine = found.complete(topology)?;
    let nmass = nmass::Preset::PUBLISHED.for_topology(&machine).threshold_mpki;
    let between = || {
        let rows = found.bandwidth_mb_s.iter().enumerate();
        let cells =
            rows.flat_map(|(a, row)| row.iter().enumerate().map(move |(h, rate)| (a, h, *rate)));
        cells.filter(|&(a, h, rate)| a != h && rate > 0.0).map(|(_, _, rate)| rate)
    };
    let (most, least) = (between().max_by(f64::total_cmp), between().min_by(f64::total_cmp));
    Ok(Thresholds {
        carrefour_requests_per_us: carrefour::gates::scaled_limit(
            &carrefour::preset::FINAL,
            &machine,
        ),
        nmass_mpki: machine.clock_hz().filter(|_| least.is_some()).map(|_| nmass),
        sam_coherence_per_s: found.sharing.coherence_per_s,
        sam_memory_per_s: found.contention.memory_per_s,
        sam_remote_per_s: found.contention.remote_per_s,
        asymsched_ratio: most.zip(least).map(|(most, least)| most / least),
    })
}

/// One JSON object.
pub(super) fn json(
    found: &Calibration,
    thresholds: &Thresholds,
    points: &Points,
) -> Result<String> {
    let object = serde_json::json!({
        "schema": SCHEMA, "calibration": found, "thresholds": thresholds, "points": points,
    });
    Ok(serde_json::to_string_pretty(&object)? + "\n")
}

/// Tables and sentences.
pub(super) fn text(
    found: &Calibration,
    thresholds: &Thresholds,
    points: &Points,
    output: &Path,
) -> String {
    let mut lines = vec![format!(
        "{} CPUs, nodes {}; rows access, columns hold",
        found.cpus,
        cpulist::format(&found.nodes)
    )];
    let cells = |row: &[f64], digits: usize| -> String {
        row.iter().map(|value| format!("{value:9.digits$}")).collect()
    };
    lines.push(format!("MB/s, all CPUs {}", cells(&found.controller_mb_s, 0)));
    for (node, row) in found.nodes.iter().zip(&found.bandwidth_mb_s) {
        lines.push(format!("MB/s, node {node:<4} {}", cells(row, 0)));
    }
    for (node, row) in found.nodes.iter().zip(&found.latency_ns) {
        lines.push(format!("ns,   node {node:<4} {}", cells(row, 1)));
    }
    let sharing = &found.sharing;
    lines.push(format!(
        "a line to another CPU: {} in its cache domain, {} to the nearest node",
        or_unknown(sharing.same_domain_ns, "ns"),
        or_unknown(sharing.remote_ns, "ns")
    ));
    lines.extend(found.programs.iter().map(program));
    lines.push(match found.penalty {
        Some(line) => format!(
            "NUMA penalty: {:.2} and {:.4} for each MPKI, at most {:.2}",
            line.intercept, line.slope_per_mpki, line.most
        ),
        None => "NUMA penalty: not measured, the published line counts".to_string(),
    });
    lines.push(match found.sampling {
        Some(sampling) => format!(
            "address samples: one in {} events, {:.0} ns each, {:.1} % of a memory-bound loop (budget {:.0} %)",
            sampling.period,
            sampling.cost_ns,
            sampling.slowdown_percent,
            100.0 * BUDGET
        ),
        None => "address samples: not measured, the processor's table counts".to_string(),
    });
    lines.extend(points.missing.iter().map(|why| format!("not measured: {why}")));
    lines.push(format!(
        "thresholds: Carrefour {:.1} requests/µs, N-MASS {}, AsymSched {}",
        thresholds.carrefour_requests_per_us,
        or_unknown(thresholds.nmass_mpki, "MPKI"),
        match thresholds.asymsched_ratio {
            Some(ratio) => format!("ratio of links {ratio:.2}"),
            None => "not measured".to_string(),
        }
    ));
    lines.push(format!(
        "SAM: {}, {} of a socket, {} of a thread",
        or_unknown(thresholds.sam_coherence_per_s, "shared lines/s"),
        or_unknown(thresholds.sam_memory_per_s, "loads/s"),
        or_unknown(thresholds.sam_remote_per_s, "remote loads/s")
    ));
    lines.push(match Output::is_stdout(output) {
        true => "written to stdout".to_string(),
        false => format!("written to {}", output.display()),
    });
    lines.join("\n") + "\n"
}

fn or_unknown(value: Option<f64>, unit: &str) -> String {
    value.map_or("not measured".to_string(), |value| format!("{value:.0} {unit}"))
}

fn program(program: &Program) -> String {
    let Program { name, mpki, penalty, traffic, .. } = program;
    let traffic = traffic.as_ref().map_or(String::new(), |traffic| {
        let per_us = traffic.requests_per_us.map_or("?".to_string(), |rate| format!("{rate:.1}"));
        format!(
            "; local {:.2} s, remote {:.2} s, first touch {:.2} s, interleaved {:.2} s, {per_us} requests/µs",
            traffic.local_s, traffic.remote_s, traffic.first_touch_s, traffic.interleaved_s
        )
    });
    format!("{mpki:6.1} MPKI, penalty {penalty:.2}: {name}{traffic}")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use rondpoint_core::topology::synthetic;

    use super::*;

    #[test]
    fn measurements_become_thresholds_and_words() {
        let machine = synthetic::parse("node:2 core:2 gbs:1 mhz:2267").expect("a machine");
        let mut found = Calibration::of(&machine, None);
        // Two of machine A's four controllers: half its MAPTU. The paper's link: its 60 MPKI.
        found.controller_mb_s = vec![6450.0; 2];
        found.bandwidth_mb_s = vec![vec![6000.0, 11_720.0], vec![14_650.0, 6000.0]];
        found.latency_ns = vec![vec![50.0, 90.0], vec![90.0, 50.0]];
        found.sharing.remote_ns = Some(87.4);
        let thresholds = thresholds(&found, &machine).expect("fits");
        assert!((thresholds.carrefour_requests_per_us - 25.0).abs() < 1e-9);
        assert!(thresholds.nmass_mpki.is_some_and(|mpki| (mpki - 60.0).abs() < 1e-9));
        assert_eq!(thresholds.asymsched_ratio, Some(1.25));
        let points = Points { missing: vec!["sampling: no PMU".to_string()], ..Points::default() };
        expect![[r#"
            4 CPUs, nodes 0-1; rows access, columns hold
            MB/s, all CPUs      6450     6450
            MB/s, node 0         6000    11720
            MB/s, node 1        14650     6000
            ns,   node 0         50.0     90.0
            ns,   node 1         90.0     50.0
            a line to another CPU: not measured in its cache domain, 87 ns to the nearest node
            NUMA penalty: not measured, the published line counts
            address samples: not measured, the processor's table counts
            not measured: sampling: no PMU
            thresholds: Carrefour 25.0 requests/µs, N-MASS 60 MPKI, AsymSched ratio of links 1.25
            SAM: not measured, not measured of a socket, not measured of a thread
            written to x.toml
        "#]]
        .assert_eq(&text(&found, &thresholds, &points, Path::new("x.toml")));
        let json = json(&found, &thresholds, &points).expect("text");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["calibration"]["controller_mb_s"][1], 6450.0);
        assert_eq!(value["thresholds"]["sam_coherence_per_s"], serde_json::Value::Null);
    }
}
