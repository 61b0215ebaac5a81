//! ALGORITHMS 3.10: what the paper's machine offers to clusters of two, three and four nodes, and
//! to two of four.

use crate::notation::paper;
use expect_test::{Expect, expect};
use rondpoint_core::policy::asymsched::cluster::Cluster;
use rondpoint_core::policy::asymsched::decision::weighted_bandwidth;
use rondpoint_core::policy::asymsched::problem::{Parts, Problem};
use rondpoint_core::policy::asymsched::search::{Found, search};
use rondpoint_core::policy::asymsched::set_bandwidth::SetBandwidth;

fn cluster(app: usize, nodes: u64) -> Cluster {
    Cluster { app, nodes, traffic_per_s: 1e6, weight: 1.0 }
}

/// GB/s inside a set, by the definition of the weighted bandwidth.
fn inside(set: u64) -> f64 {
    let identity = (0..8).map(Some).collect();
    weighted_bandwidth(&paper(), &[cluster(0, set)], &identity) / 1e9
}

/// What the search makes of clusters on the paper's machine, with optional filter.
fn place(clusters: &[u64], slowest_link_mb_s: Option<f64>) -> (Problem, Found) {
    let clusters: Vec<Cluster> =
        clusters.iter().enumerate().map(|(app, &nodes)| cluster(app, nodes)).collect();
    let occupied = clusters.iter().fold(0, |all, cluster| all | cluster.nodes);
    let problem = Problem::new(&Parts {
        bandwidth_mb_s: &paper().map(|rate| rate / 1e6),
        clusters: &clusters,
        memory_bytes: &[1 << 30; 8],
        occupied,
        kinds: &[0xff; 8],
        slack_permille: 900,
        slowest_link_mb_s,
    });
    let found = search(&problem, &mut SetBandwidth::new());
    (problem, found)
}

fn name(set: u64) -> String {
    let nodes: Vec<String> =
        (0..8).filter(|node| set >> node & 1 == 1).map(|node| node.to_string()).collect();
    format!("{{{}}}", nodes.join(","))
}

fn sets(size: u32) -> Vec<u64> {
    (0..256).filter(|set: &u64| set.count_ones() == size).collect()
}

/// Best, worst and mean of a list of named values, and how many are within 90 % of the best.
fn summary(mut values: Vec<(f64, String)>) -> String {
    values.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let (best, worst) = (values[0].0, values[values.len() - 1].0);
    let mean = values.iter().map(|(value, _)| value).sum::<f64>() / values.len() as f64;
    let near = values.iter().filter(|(value, _)| *value >= 0.9 * best - 1e-9).count();
    let top: Vec<String> =
        values.iter().take(4).map(|(value, name)| format!("{name} {value:.1}")).collect();
    let is_worst = |value: f64| value < worst + 1e-9;
    let low: Vec<&str> = values
        .iter()
        .filter(|(value, _)| is_worst(*value))
        .map(|(_, name)| name.as_str())
        .collect();
    format!(
        "{} of {}; worst {} {worst:.1}; mean {mean:.2}; {near} near\n",
        top.join(", "),
        values.len(),
        low.join(" ")
    )
}

fn check(size: u32, expected: Expect) {
    let values: Vec<(f64, String)> =
        sets(size).into_iter().map(|set| (inside(set), name(set))).collect();
    let best = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
    expected.assert_eq(&summary(values));
    // From every place the search knows the same best.
    for set in sets(size) {
        let (problem, found) = place(&[set], None);
        assert!(
            (problem.weighted_mb_s(found.best) / 1e3 - best).abs() < 1e-9,
            "from {}",
            name(set)
        );
    }
}

#[test]
fn clusters_of_two_nodes() {
    check(
        2,
        expect![[r#"
        {0,1} 11.2, {2,3} 11.2, {4,5} 11.2, {6,7} 11.2 of 28; worst {0,5} {1,5} {4,7} 4.8; mean 6.76; 4 near
    "#]],
    );
}

#[test]
fn clusters_of_three_nodes() {
    check(
        3,
        expect![[r#"
        {2,3,5} 25.8, {2,4,5} 25.8, {0,1,6} 25.2, {4,5,6} 24.7 of 56; worst {0,4,7} {0,5,7} 15.7; mean 20.29; 12 near
    "#]],
    );
}

#[test]
fn clusters_of_four_nodes() {
    check(
        4,
        expect![[r#"
        {2,3,4,5} 49.0, {0,1,2,3} 48.4, {0,1,6,7} 47.3, {4,5,6,7} 46.7 of 70; worst {0,3,4,7} {0,3,5,7} 33.1; mean 40.59; 6 near
    "#]],
    );
}

#[test]
fn two_clusters_of_four_nodes() {
    let halves = sets(4).into_iter().filter(|set| set & 1 == 1);
    let values: Vec<(f64, String)> = halves
        .map(|set| {
            (inside(set) + inside(255 & !set), format!("{}+{}", name(set), name(255 & !set)))
        })
        .collect();
    let best = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
    expect![[r#"
        {0,1,6,7}+{2,3,4,5} 96.3, {0,1,2,3}+{4,5,6,7} 95.1, {0,1,4,6}+{2,3,5,7} 87.7, {0,1,4,5}+{2,3,6,7} 87.6 of 35; worst {0,3,5,6}+{1,2,4,7} 69.1; mean 81.17; 4 near
    "#]].assert_eq(&summary(values));
    let (problem, found) = place(&[0b0110_1001, 0b1001_0110], None);
    assert!((problem.weighted_mb_s(found.best) / 1e3 - best).abs() < 1e-9);
}

/// The filter on the slowest links is a speed-up of an enumeration: it never changes the best
/// value.
#[test]
fn skipping_slow_links_keeps_the_best() {
    for clusters in [
        &[0b10_0001][..],
        &[0b1001_0001],
        &[0b1001_1001],
        &[0b10_0001, 0b1001_0000],
        &[0b0110_1001, 0b1001_0110],
    ] {
        let (all, filtered) = (place(clusters, None).1, place(clusters, Some(2000.0)).1);
        assert_eq!(all.best, filtered.best, "{clusters:?}");
    }
}

/// Where every placement has a slow link, the filter is dropped.
#[test]
fn a_cluster_of_all_nodes_is_placed_in_spite_of_slow_links() {
    let (_, found) = place(&[0xff], Some(2000.0));
    assert_eq!((found.is_exact(), found.moved_bytes), (true, 0));
}
