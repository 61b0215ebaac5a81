//! Time to relief: from the start of a jam to Rondpoint's first action that stayed.
//!
//! The start comes from the model's own counts, the action from Rondpoint's report. So the time
//! includes the delay until the manager notices the jam.

use rondpoint_core::model::{Deviation, Traffic};
use rondpoint_core::policy::carrefour::preset::FINAL;
use rondpoint_core::{Matrix, Nanos, Topology};
use rondpoint_lab_init::{Measurement, Slice};

use crate::product::ProductReport;

/// Lines per second below this share of the run's mean are no traffic to speak of.
const LEAST_TRAFFIC: f64 = 0.25;
/// A jam fills most of this time, ns. The start of a program crosses nodes for a moment only.
const LASTING_NS: u64 = 100_000_000;
/// A node draws lines in earnest from this share of all on. With one such node the program is in a
/// serial part.
const LEAST_SHARE: f64 = 0.1;

/// Start of the first jam, ns of guest time after the model was switched on. It is the start of a
/// slice that jams, as do most of the slices in [`LASTING_NS`] from there. `None` where there is
/// none.
pub(crate) fn jam_begin_ns(measurement: &Measurement, topology: &Topology) -> Option<u64> {
    let all: u64 = measurement.slices.iter().map(lines).sum();
    let elapsed_ns = measurement.end_ns.saturating_sub(measurement.begin_ns);
    let least = LEAST_TRAFFIC * all as f64 / elapsed_ns as f64;
    let mut begin_ns = measurement.begin_ns;
    let mut told = Vec::new();
    for slice in &measurement.slices {
        let span_ns = slice.end_ns.saturating_sub(begin_ns);
        let is_busy = lines(slice) as f64 >= least * span_ns as f64;
        told.push((begin_ns, is_busy && jams(slice, span_ns, topology)));
        begin_ns = slice.end_ns;
    }
    let lasts = |index: usize| {
        let until = told[index].0 + LASTING_NS;
        let window = told[index..].iter().take_while(|(begin_ns, _)| *begin_ns < until);
        let (jammed, count) = window.fold((0, 0), |(jammed, count), (_, is_jammed)| {
            (jammed + usize::from(*is_jammed), count + 1)
        });
        2 * jammed > count
    };
    let first = (0..told.len()).find(|index| told[*index].1 && lasts(*index))?;
    Some(told[first].0 - measurement.begin_ns)
}

/// Guest seconds from a jam's start to Rondpoint's first action that no trial judged worse.
/// Negative where the action came first. `None` where there was no such action.
///
/// `model_on_ns` is the guest's clock when the model was switched on, `jam_ns` the jam's start
/// after that.
pub(crate) fn seconds(report: &ProductReport, model_on_ns: u64, jam_ns: u64) -> Option<f64> {
    let action_s = report.began_s? + report.first_kept_action_s?;
    Some(action_s - (model_on_ns + jam_ns) as f64 / 1e9)
}

/// Carrefour's published thresholds: a controller is overloaded beside the others, or too many
/// reads cross to another node.
fn jams(slice: &Slice, span_ns: u64, topology: &Topology) -> bool {
    let all = lines(slice) as f64;
    let draws = |row: &&Vec<u64>| row.iter().sum::<u64>() as f64 >= LEAST_SHARE * all;
    if slice.dram_lines.iter().filter(draws).count() < 2 {
        return false;
    }
    let counts =
        Matrix::from_fn(slice.dram_lines.len(), |node, holder| slice.dram_lines[node][holder]);
    let Some(traffic) = Traffic::from_counts(&counts.map(|count| count as f64), Nanos(span_ns))
    else {
        return false;
    };
    let imbalance = traffic.imbalance_percent(Deviation::Population, topology);
    imbalance.is_some_and(|percent| percent > FINAL.interleave_above_imbalance)
        || traffic.local_percent().is_some_and(|percent| percent < FINAL.colocate_below_local)
}

fn lines(slice: &Slice) -> u64 {
    slice.dram_lines.iter().flatten().sum()
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    const SERIAL: [[u64; 2]; 2] = [[1000, 0], [0, 0]];
    const JAM: [[u64; 2]; 2] = [[500, 0], [500, 0]];
    const REMOTE: [[u64; 2]; 2] = [[350, 150], [150, 350]];
    const LOCAL: [[u64; 2]; 2] = [[500, 0], [0, 500]];

    /// Slices of 10 ms each, the first from 1 s on.
    fn jam_ms(slices: &[[[u64; 2]; 2]]) -> Option<u64> {
        let end_ns = |index: usize| 1_000_000_000 + 10_000_000 * (index as u64 + 1);
        let slice = |(index, matrix): (usize, &[[u64; 2]; 2])| Slice {
            end_ns: end_ns(index),
            dram_lines: matrix.iter().map(|row| row.to_vec()).collect(),
            ..Slice::default()
        };
        let measurement = Measurement {
            begin_ns: 1_000_000_000,
            end_ns: end_ns(slices.len() - 1),
            slices: slices.iter().enumerate().map(slice).collect(),
            ..Measurement::default()
        };
        let topology = synthetic::parse("node:2").expect("a machine");
        jam_begin_ns(&measurement, &topology).map(|ns| ns / 1_000_000)
    }

    #[test]
    fn a_jam_begins_where_several_nodes_crowd_one_or_cross() {
        assert_eq!(jam_ms(&[SERIAL, SERIAL, LOCAL, JAM, JAM]), Some(30));
        assert_eq!(jam_ms(&[LOCAL, REMOTE]), Some(10));
        assert_eq!(jam_ms(&[SERIAL, LOCAL, LOCAL]), None);
        assert_eq!(jam_ms(&[JAM]), Some(0));
    }

    #[test]
    fn a_moment_is_no_jam() {
        let start = [JAM, SERIAL, SERIAL, SERIAL, SERIAL, SERIAL, SERIAL, SERIAL, SERIAL, SERIAL];
        assert_eq!(jam_ms(&[&start[..], &[JAM; 10]].concat()), Some(100));
        assert_eq!(jam_ms(&[&start[..], &[LOCAL; 10]].concat()), None);
        // Bursts jam, if they fill most of the time.
        let bursts = [JAM, JAM, LOCAL, JAM, JAM, LOCAL, JAM, JAM, LOCAL, JAM];
        assert_eq!(jam_ms(&[&start[..], &bursts[..]].concat()), Some(100));
    }

    #[test]
    fn a_trickle_is_no_jam() {
        let trickle = JAM.map(|row| row.map(|lines| lines / 100));
        assert_eq!(jam_ms(&[trickle, LOCAL, JAM]), Some(20));
    }

    #[test]
    fn relief_is_counted_on_the_guests_clock() {
        let report = |text: &str| ProductReport::parse(text.as_bytes()).expect("a report");
        let acted = report(
            r#"{"schema":1,"policy":"auto","elapsed_s":4.5,"began_s":12.0,"first_kept_action_s":1.5}"#,
        );
        let seconds = |jam_ns| seconds(&acted, 11_500_000_000, jam_ns).expect("an action");
        assert!((seconds(700_000_000) - 1.3).abs() < 1e-9);
        assert!((seconds(2_500_000_000) + 0.5).abs() < 1e-9);
        let idle = report(r#"{"schema":1,"policy":"auto","elapsed_s":4.5,"began_s":12.0}"#);
        assert_eq!(super::seconds(&idle, 0, 0), None);
    }
}
