//! What `rondpoint calibrate` says: what was measured, and which thresholds come of it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use rondpoint_core::Topology;
use rondpoint_core::policy::{carrefour, nmass};
use rondpoint_core::reference::CARREFOUR_A;
use rondpoint_linux::parse::cpulist;
use serde::Serialize;

use super::Calibration;
use super::handoff::Point;

const SCHEMA: u32 = 1;

/// What the policies go by on this machine, as they compute it from what was measured.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Thresholds {
    /// Carrefour's MAPTU: DRAM requests of an application in a microsecond.
    carrefour_requests_per_us: f64,
    /// N-MASS: the pressure at which the weakest pair of nodes is saturated; `None` without a clock.
    nmass_mpki: Option<f64>,
    /// SAM: lines from another node in a second; `None` where transfers were not measured.
    sam_coherence_per_s: Option<f64>,
    /// AsymSched: the largest over the smallest bandwidth between nodes; above 1.1 it acts.
    asymsched_ratio: Option<f64>,
}

/// The thresholds of a machine that was measured.
pub(super) fn thresholds(found: &Calibration, topology: &Topology) -> Result<Thresholds> {
    let machine = found.complete(topology)?;
    let gate = carrefour::preset::FINAL.traffic.per_us;
    let nmass = nmass::Preset::PUBLISHED.for_topology(&machine).threshold_mpki;
    let between = || {
        let rows = found.bandwidth_mb_s.iter().enumerate();
        let cells =
            rows.flat_map(|(a, row)| row.iter().enumerate().map(move |(h, rate)| (a, h, *rate)));
        cells.filter(|&(a, h, rate)| a != h && rate > 0.0).map(|(_, _, rate)| rate)
    };
    let (most, least) = (between().max_by(f64::total_cmp), between().min_by(f64::total_cmp));
    Ok(Thresholds {
        carrefour_requests_per_us: CARREFOUR_A.scale_requests_per_us(gate, &machine),
        nmass_mpki: machine.clock_hz().filter(|_| least.is_some()).map(|_| nmass),
        sam_coherence_per_s: found.sharing.coherence_per_s,
        asymsched_ratio: most.zip(least).map(|(most, least)| most / least),
    })
}

/// One JSON object.
pub(super) fn json(
    found: &Calibration,
    thresholds: &Thresholds,
    points: &[Point],
) -> Result<String> {
    let object = serde_json::json!({
        "schema": SCHEMA, "calibration": found, "thresholds": thresholds, "sharing_points": points,
    });
    Ok(serde_json::to_string_pretty(&object)? + "\n")
}

/// Tables and sentences.
pub(super) fn text(found: &Calibration, thresholds: &Thresholds, output: &Path) -> String {
    let mut text = String::new();
    let nodes = cpulist::format(&found.nodes);
    let _ = writeln!(text, "{} CPUs, nodes {nodes}; rows access, columns hold", found.cpus);
    let all: Vec<String> = found.controller_mb_s.iter().map(|rate| format!("{rate:9.0}")).collect();
    let _ = writeln!(text, "MB/s, all CPUs {}", all.join(""));
    for (node, row) in found.nodes.iter().zip(&found.bandwidth_mb_s) {
        let row: Vec<String> = row.iter().map(|rate| format!("{rate:9.0}")).collect();
        let _ = writeln!(text, "MB/s, node {node:<4} {}", row.join(""));
    }
    for (node, row) in found.nodes.iter().zip(&found.latency_ns) {
        let row: Vec<String> = row.iter().map(|ns| format!("{ns:9.1}")).collect();
        let _ = writeln!(text, "ns,   node {node:<4} {}", row.join(""));
    }
    let or_unknown = |value: Option<f64>, unit: &str| {
        value.map_or("not measured".to_string(), |value| format!("{value:.0} {unit}"))
    };
    let sharing = &found.sharing;
    let _ = writeln!(
        text,
        "a line to another CPU: {} in its cache domain, {} to the nearest node",
        or_unknown(sharing.same_domain_ns, "ns"),
        or_unknown(sharing.remote_ns, "ns")
    );
    let _ = writeln!(
        text,
        "thresholds: Carrefour {:.1} requests/µs, N-MASS {}, SAM {}, AsymSched {}",
        thresholds.carrefour_requests_per_us,
        or_unknown(thresholds.nmass_mpki, "MPKI"),
        or_unknown(thresholds.sam_coherence_per_s, "shared lines/s"),
        match thresholds.asymsched_ratio {
            Some(ratio) => format!("ratio of links {ratio:.2}"),
            None => "not measured".to_string(),
        }
    );
    let _ = writeln!(text, "written to {}", output.display());
    text
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
        expect![[r#"
            4 CPUs, nodes 0-1; rows access, columns hold
            MB/s, all CPUs      6450     6450
            MB/s, node 0         6000    11720
            MB/s, node 1        14650     6000
            ns,   node 0         50.0     90.0
            ns,   node 1         90.0     50.0
            a line to another CPU: not measured in its cache domain, 87 ns to the nearest node
            thresholds: Carrefour 25.0 requests/µs, N-MASS 60 MPKI, SAM not measured, AsymSched ratio of links 1.25
            written to x.toml
        "#]]
        .assert_eq(&text(&found, &thresholds, Path::new("x.toml")));
        let json = json(&found, &thresholds, &[]).expect("text");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["calibration"]["controller_mb_s"][1], 6450.0);
        assert_eq!(value["thresholds"]["sam_coherence_per_s"], serde_json::Value::Null);
    }
}
