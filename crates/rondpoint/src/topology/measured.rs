//! `topology --measure` as text and JSON.

use anyhow::Result;
use rondpoint_linux::parse::cpulist;
use serde::Serialize;

use crate::calibrate::memory::Measured;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    #[serde(flatten)]
    measured: &'a Measured,
}

/// One JSON object.
pub(super) fn json(measured: &Measured) -> Result<String> {
    Ok(serde_json::to_string_pretty(&Object { schema: SCHEMA, measured })? + "\n")
}

/// A cell; `-` where nothing was measured.
pub(super) fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_string(), |value| format!("{value:.0}"))
}

/// Tables.
pub(super) fn text(measured: &Measured) -> String {
    let Measured { nodes, cpus, loaded, missing, .. } = measured;
    let wide = |cells: Vec<String>| -> String {
        cells.into_iter().map(|cell| format!("{cell:>9}")).collect()
    };
    let row = |values: &[Option<f64>]| wide(values.iter().copied().map(cell).collect());
    let mut lines =
        vec![format!("{cpus} CPUs, nodes {}; rows access, columns hold", cpulist::format(nodes))];
    let mut table = |title: &str, rows: &[Vec<Option<f64>>]| {
        let head = wide(nodes.iter().map(|node| format!("node {node}")).collect());
        lines.extend([String::new(), format!("{title:<20}{head}")]);
        let named = nodes.iter().zip(rows);
        lines.extend(named.map(|(node, values)| format!("  node {node:<13}{}", row(values))));
    };
    table("idle latency, ns", &measured.latency_ns);
    table("bandwidth, MB/s", &measured.bandwidth_mb_s);
    lines.push(format!("  {:<18}{}", "all CPUs", row(&measured.controller_mb_s)));
    for curve in loaded {
        let name = format!("node {}, loaded by its own CPUs", curve.node);
        let points = &curve.points;
        let drawn = points.iter().map(|point| Some(point.mb_s)).collect::<Vec<_>>();
        let waited = points.iter().map(|point| Some(point.ns)).collect::<Vec<_>>();
        lines.extend([String::new(), name]);
        lines.push(format!("  {:<18}{}", "drawn, MB/s", row(&drawn)));
        lines.push(format!("  {:<18}{}", "latency, ns", row(&waited)));
    }
    lines.extend((!missing.is_empty()).then(String::new));
    lines.extend(missing.iter().map(|why| format!("not measured: {why}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::calibrate::memory::example;

    #[test]
    fn tables_show_what_was_measured_and_name_what_was_not() {
        expect![[r#"
            4 CPUs, nodes 0-1; rows access, columns hold

            idle latency, ns       node 0   node 1
              node 0                   90      180
              node 1                    -        -

            bandwidth, MB/s        node 0   node 1
              node 0                20000     9000
              node 1                    -        -
              all CPUs              20000     9000

            node 0, loaded by its own CPUs
              drawn, MB/s             711     9000
              latency, ns              90      110

            not measured: loaded latency of node 1: it takes two CPUs of the node
        "#]]
        .assert_eq(&text(&example()));
    }

    #[test]
    fn json_has_its_schema_beside_the_matrices() {
        let value: serde_json::Value =
            serde_json::from_str(&json(&example()).expect("text")).expect("JSON");
        assert_eq!(value["schema"], SCHEMA);
        assert_eq!(value["bandwidth_mb_s"][0][1], 9000.0);
    }
}
