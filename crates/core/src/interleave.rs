//! Weights for the kernel's weighted interleaving, from measured bandwidth.
//!
//! A program is fastest where each node holds pages in proportion to the bandwidth that all of the
//! program's threads can draw from it. The slowest of them counts (the canonical weights of BWAP,
//! IPDPS 2020).

use alloc::vec::Vec;

use crate::{Matrix, NodeSet};

/// The largest weight that the kernel takes (`u8`, mm/mempolicy.c, Linux 6.9).
pub const MOST: u8 = u8::MAX;
/// Relative error of a weight that is as good as none: below what two calibrations of one machine
/// differ by. Small weights are wanted, for a program takes that many pages from a node at once.
const ENOUGH: f64 = 0.05;

/// Bandwidth of each node for programs on all of `accessing`, in the unit of the matrix; zero where
/// it was not measured.
#[must_use]
pub fn rates(bandwidth: &Matrix<f64>, accessing: &NodeSet) -> Vec<f64> {
    let of_node = |holding: usize| {
        let rates = accessing.iter().map(|from| bandwidth[(from, holding)]);
        rates.reduce(f64::min).unwrap_or(0.0)
    };
    (0..bandwidth.size()).map(of_node).collect()
}

/// The smallest weights that are in proportion to the rates; `None` for a rate that is zero.
#[must_use]
pub fn weights(rates: &[f64]) -> Vec<Option<u8>> {
    let most = rates.iter().copied().fold(0.0, f64::max);
    let measured = || rates.iter().filter(|rate| **rate > 0.0).map(|rate| rate / most);
    let weight = |share: f64, scale: u8| libm::round(share * f64::from(scale)).max(1.0);
    let error = |scale: u8| {
        let one = |share: f64| (weight(share, scale) / f64::from(scale) / share - 1.0).abs();
        measured().map(one).fold(0.0, f64::max)
    };
    let good = (1..=MOST).find(|scale| error(*scale) <= ENOUGH);
    let least = || (1..=MOST).min_by(|a, b| error(*a).total_cmp(&error(*b)));
    let scale = good.or_else(least).unwrap_or(1);
    let of = |rate: &f64| (*rate > 0.0).then(|| weight(rate / most, scale) as u8);
    rates.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_are_the_smallest_in_proportion() {
        let check = |rates: &[f64], expected: &[u8]| {
            let found: Vec<u8> = weights(rates).into_iter().flatten().collect();
            assert_eq!(found, expected, "{rates:?}");
        };
        check(&[100.0, 99.0], &[1, 1]);
        check(&[80.0, 20.0], &[4, 1]);
        check(&[12_000.0, 8_000.0], &[3, 2]);
        check(&[200.0, 200.0, 30.0], &[7, 7, 1]);
        check(&[1.0], &[1]);
        check(&[1e12, 1.0], &[255, 1]);
        assert_eq!(weights(&[0.0, 5.0]), [None, Some(1)]);
        assert_eq!(weights(&[0.0]), [None]);
        assert_eq!(weights(&[]), []);
    }

    #[test]
    fn the_slowest_of_the_nodes_that_access_counts() {
        let rows = vec![vec![10.0, 4.0, 0.0], vec![5.0, 11.0, 3.0], vec![0.0, 0.0, 0.0]];
        let bandwidth = Matrix::from_rows(&rows).unwrap();
        assert_eq!(rates(&bandwidth, &NodeSet::first(1)), [10.0, 4.0, 0.0]);
        assert_eq!(rates(&bandwidth, &NodeSet::first(2)), [5.0, 4.0, 0.0]);
        assert_eq!(rates(&bandwidth, &NodeSet::new()), [0.0; 3]);
    }

    proptest! {
        #[test]
        fn weights_are_in_the_kernels_range_and_keep_the_order(
            rates in proptest::collection::vec(1.0f64..1e6, 1..9)
        ) {
            let found: Vec<u8> = weights(&rates).into_iter().flatten().collect();
            prop_assert_eq!(found.len(), rates.len());
            for (a, x) in rates.iter().zip(&found) {
                prop_assert!(*x >= 1);
                for (b, y) in rates.iter().zip(&found) {
                    prop_assert!(a > b || x <= y, "{:?} {:?}", rates, found);
                }
            }
        }
    }
}
