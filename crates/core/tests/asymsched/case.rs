//! Placement problems to check the search with, in plain fields that enumeration can read.

use rondpoint_core::policy::asymsched::cluster::Cluster;
use rondpoint_core::policy::asymsched::problem::{Parts, Problem};
use rondpoint_core::{Matrix, Random};
use std::fmt;

/// ALGORITHMS 6.3: MB/s by `[accessing][holding]` of the AsymSched paper's machine.
pub(crate) const PAPER_MB_S: [[u32; 8]; 8] = [
    [0, 5600, 4300, 3800, 3000, 2900, 3000, 3000],
    [5600, 0, 3800, 4300, 3000, 2900, 2900, 3000],
    [3000, 1900, 0, 5600, 3000, 4300, 1900, 1900],
    [1900, 3000, 5600, 0, 3000, 3000, 1900, 1900],
    [3000, 3000, 3000, 3000, 0, 5600, 4300, 1900],
    [1900, 1900, 4300, 3000, 5600, 0, 4300, 3000],
    [4300, 3800, 3000, 3000, 3000, 1900, 0, 5600],
    [1900, 3000, 3800, 3800, 2900, 3000, 5600, 0],
];

/// One problem.
pub(crate) struct Case {
    pub(crate) bandwidth_mb_s: Matrix<f64>,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) memory_bytes: Vec<u64>,
    pub(crate) occupied: u64,
    /// Nodes of the same number may be exchanged.
    pub(crate) kinds: Vec<usize>,
}

impl Case {
    /// A random machine with up to `most` nodes, disjoint clusters on shuffled nodes. `even` draws
    /// from few values, so that ties abound.
    pub(crate) fn random(random: &mut Random, most: usize, even: bool) -> Self {
        let count = 2 + random.below(most - 1);
        let mut left = count;
        let mut shape = Vec::new();
        while left >= 2 && shape.len() < 4 {
            let size = 2 + random.below(left - 1);
            if random.below(4) > 0 {
                shape.push(size);
            }
            left -= size;
        }
        Self::shaped(random, count, &shape, even)
    }

    /// A random machine with clusters of these sizes.
    pub(crate) fn shaped(random: &mut Random, count: usize, shape: &[usize], even: bool) -> Self {
        let mut rate = |i, j| match (i == j, even) {
            (true, _) => 0.0,
            (_, true) => [2000.0, 4000.0][random.below(2)],
            (_, false) => (1500 + random.below(6000)) as f64,
        };
        let mut bandwidth_mb_s = Matrix::filled(count, 0.0);
        for i in 0..count {
            for j in 0..count {
                bandwidth_mb_s[(i, j)] = rate(i, j);
            }
        }
        Self::on(random, bandwidth_mb_s, shape, even)
    }

    /// The paper's machine with clusters of these sizes on random nodes.
    pub(crate) fn on_the_papers_machine(random: &mut Random, shape: &[usize]) -> Self {
        Self::on(random, Matrix::from_fn(8, |i, j| f64::from(PAPER_MB_S[i][j])), shape, false)
    }

    /// Two or three clusters of different processes on the same nodes: what is glued must stay
    /// glued.
    pub(crate) fn overlapping(random: &mut Random, most: usize) -> Self {
        let mut case = Self::random(random, most, false);
        let count = case.kinds.len();
        case.clusters.clear();
        for app in 0..2 + random.below(2) {
            let nodes =
                (0..count).filter(|_| random.below(2) == 0).map(|node| 1_u64 << node).sum::<u64>();
            if nodes.count_ones() >= 2 {
                case.clusters.push(cluster(random, app, nodes, false));
                case.occupied |= nodes;
            }
        }
        case
    }

    pub(crate) fn on(
        random: &mut Random,
        bandwidth_mb_s: Matrix<f64>,
        shape: &[usize],
        even: bool,
    ) -> Self {
        let count = bandwidth_mb_s.size();
        let order = shuffled(random, count);
        let mut clusters = Vec::new();
        let mut start = 0;
        for (app, size) in shape.iter().enumerate() {
            let nodes = order[start..start + size].iter().map(|node| 1_u64 << node).sum();
            clusters.push(cluster(random, app, nodes, even));
            start += size;
        }
        let lonely = order[start..]
            .iter()
            .filter(|_| random.below(2) == 0)
            .map(|node| 1_u64 << node)
            .sum::<u64>();
        let occupied = clusters.iter().fold(lonely, |all, cluster| all | cluster.nodes);
        let gigabytes = |random: &mut Random| {
            if even { random.below(2) as u64 } else { random.below(20) as u64 }
        };
        let memory_bytes = (0..count).map(|_| gigabytes(random) << 30).collect();
        Self { bandwidth_mb_s, clusters, memory_bytes, occupied, kinds: vec![0; count] }
    }

    /// As the search takes it.
    pub(crate) fn problem(&self) -> Problem {
        let kind = |node: usize| {
            (0..self.kinds.len())
                .filter(|&other| self.kinds[other] == self.kinds[node])
                .map(|other| 1 << other)
                .sum()
        };
        let kinds: Vec<u64> = (0..self.kinds.len()).map(kind).collect();
        Problem::new(&Parts {
            bandwidth_mb_s: &self.bandwidth_mb_s,
            clusters: &self.clusters,
            memory_bytes: &self.memory_bytes,
            occupied: self.occupied,
            kinds: &kinds,
            slack_permille: 900,
            slowest_link_mb_s: None,
        })
    }
}

fn shuffled(random: &mut Random, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

/// Weights in eighths, so that the search's fixed point is exact and ties are ties.
fn cluster(random: &mut Random, app: usize, nodes: u64, even: bool) -> Cluster {
    let weight = if even { 8.0 } else { 8.0 + random.below(100) as f64 / 8.0 };
    Cluster { app, nodes, traffic_per_s: 1e6, weight }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clusters: Vec<String> =
            self.clusters.iter().map(|c| format!("{:b}*{}", c.nodes, c.weight)).collect();
        writeln!(f, "clusters {clusters:?} occupied {:b} kinds {:?}", self.occupied, self.kinds)?;
        writeln!(f, "memory {:?}", self.memory_bytes)?;
        self.bandwidth_mb_s.rows().try_for_each(|row| writeln!(f, "{row:?}"))
    }
}
