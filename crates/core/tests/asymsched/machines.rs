//! Every machine file: whatever its matrix and the shape of the clusters, the search agrees with
//! enumeration.

use crate::brute_force;
use crate::case::Case;
use rondpoint_core::policy::asymsched::search::search;
use rondpoint_core::policy::asymsched::set_bandwidth::SetBandwidth;
use rondpoint_core::{Matrix, Random};
use rondpoint_machine::Machine;
use std::path::Path;

/// Bandwidth between the nodes with CPUs, in whole MB/s.
fn matrix(file: &Path) -> Matrix<f64> {
    let topology = Machine::load(file).expect("a machine file").topology();
    let nodes: Vec<usize> = topology.compute_nodes().iter().collect();
    let bandwidth = topology.bandwidth().expect("machine files tell bandwidth");
    Matrix::from_fn(nodes.len(), |i, j| (bandwidth[(nodes[i], nodes[j])] / 1e6).round())
}

/// All multisets of cluster sizes (two nodes at least) that fit on `nodes` nodes.
fn shapes(nodes: usize, largest: usize) -> Vec<Vec<usize>> {
    let with = |first: usize| {
        shapes(nodes - first, first).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    let longer = (2..=largest.min(nodes)).flat_map(with);
    std::iter::once(vec![]).chain(longer).collect()
}

#[test]
fn every_machine_file_and_shape_agrees_with_enumeration() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("machine files")
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    let mut random = Random::new(9);
    for file in files {
        let matrix = matrix(&file);
        for shape in shapes(matrix.size(), matrix.size()) {
            let case = Case::on(&mut random, matrix.clone(), &shape, false);
            let problem = case.problem();
            let found = search(&problem, &mut SetBandwidth::new());
            let expected = brute_force::best(&case);
            let text = format!("{} {shape:?} {case}", file.display());
            assert!(found.is_exact(), "{text}");
            assert_eq!(problem.weighted_mb_s(found.best), expected.best, "{text}");
            assert_eq!(found.moved_bytes, expected.moved_bytes, "{text}");
            assert_eq!(found.placement, expected.placement, "{text}");
        }
    }
}
