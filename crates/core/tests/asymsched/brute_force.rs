//! Enumeration of placements, written from the definition and sharing nothing with the search.
//!
//! Occupants with the same clusters and kind are interchangeable. Up to 8 nodes every injective
//! assignment is tried. With more, one is tried for every way to give node sets to groups of
//! interchangeable occupants. The least movement of each is then read off directly.

use crate::case::Case;

/// The result by enumeration; values as weight × MB/s.
pub(crate) struct Best {
    pub(crate) best: f64,
    pub(crate) value: f64,
    pub(crate) moved_bytes: u64,
    pub(crate) placement: Placement,
}

type Placement = Vec<Option<usize>>;

/// Weights are multiples of an eighth, so eighths of weight × MB/s are whole numbers.
const UNIT: f64 = 8.0;

/// Largest value; then, from 90 % of it up, least bytes; then the current placement; then the
/// larger value; then [`LastResort`].
pub(crate) fn best(case: &Case) -> Best {
    let gain = Gain::new(case);
    let mut best = 0;
    each_placement(case, &gain, &mut |_, value| best = best.max(value));
    let current = identity(case);
    let mut least: Option<((u64, bool, u64), Vec<LastResort>)> = None;
    each_placement(case, &gain, &mut |placement, value| {
        if value * 1000 < best * 900 {
            return;
        }
        let rank = (moved(case, placement), *placement != current, u64::MAX - value);
        match &mut least {
            Some((known, _)) if rank > *known => {}
            Some((known, equals)) if rank == *known => equals.push(last_resort(case, placement)),
            _ => least = Some((rank, vec![last_resort(case, placement)])),
        }
    });
    let ((moved_bytes, _, value), equals) = least.expect("the best is good enough");
    let (.., placement) = equals.into_iter().min().expect("one at least");
    Best {
        best: best as f64 / UNIT,
        value: (u64::MAX - value) as f64 / UNIT,
        moved_bytes,
        placement,
    }
}

fn each_placement(case: &Case, gain: &Gain, visit: &mut impl FnMut(&Placement, u64)) {
    if case.kinds.len() <= 8 {
        inject(case, gain, &mut identity(case), 0, 0, 0, visit);
    } else {
        let clustered: u64 = case.clusters.iter().fold(0, |all, c| all | c.nodes);
        let lonely: Vec<usize> =
            (0..case.kinds.len()).filter(|&node| is_in(case.occupied & !clustered, node)).collect();
        let groups = [groups(case), vec![lonely]].concat();
        give(case, &groups, &mut identity(case), 0, &mut |placement| {
            visit(placement, gain.all(placement));
        });
    }
}

fn identity(case: &Case) -> Placement {
    (0..case.kinds.len()).map(|node| is_in(case.occupied, node).then_some(node)).collect()
}

fn is_in(set: u64, node: usize) -> bool {
    set >> node & 1 == 1
}

/// What two occupants are worth on two nodes.
struct Gain {
    /// Bandwidth of two nodes both ways.
    both_ways: Vec<Vec<u64>>,
    /// Occupants that weigh something together, the higher node first, and how much (eighths).
    pairs: Vec<(usize, usize, u64)>,
    /// The same by the higher node.
    lower: Vec<Vec<(usize, u64)>>,
}

impl Gain {
    fn new(case: &Case) -> Self {
        let count = case.kinds.len();
        let shared = |i, j| {
            case.clusters
                .iter()
                .filter(|c| is_in(c.nodes, i) && is_in(c.nodes, j))
                .map(|c| c.weight)
                .sum::<f64>()
        };
        let weight = |i: usize| (0..count).map(|j| (shared(i, j) * UNIT) as u64).collect();
        let both = |i: usize| {
            (0..count)
                .map(|j| (case.bandwidth_mb_s[(i, j)] + case.bandwidth_mb_s[(j, i)]) as u64)
                .collect()
        };
        let weight: Vec<Vec<u64>> = (0..count).map(weight).collect();
        let below = (0..count).flat_map(|i| (0..i).map(move |j| (i, j)));
        let pairs: Vec<(usize, usize, u64)> =
            below.map(|(i, j)| (i, j, weight[i][j])).filter(|&(.., weight)| weight > 0).collect();
        let mut lower = vec![Vec::new(); count];
        pairs.iter().for_each(|&(i, j, weight)| lower[i].push((j, weight)));
        Self { both_ways: (0..count).map(both).collect(), pairs, lower }
    }

    /// What the occupants of `node` add on `target`, with those of lower nodes placed. Called a
    /// hundred million times, unoptimised.
    fn of(&self, placement: &[Option<usize>], node: usize, target: usize) -> u64 {
        let both_ways = &self.both_ways[target];
        let mut sum = 0;
        for &(other, weight) in &self.lower[node] {
            if let Some(there) = placement[other] {
                sum += weight * both_ways[there];
            }
        }
        sum
    }

    fn all(&self, placement: &[Option<usize>]) -> u64 {
        let worth = |&(i, j, weight): &(usize, usize, u64)| {
            weight
                * self.both_ways[placement[i].expect("occupied")][placement[j].expect("occupied")]
        };
        self.pairs.iter().map(worth).sum()
    }
}

fn moved(case: &Case, placement: &[Option<usize>]) -> u64 {
    let moves =
        |&(node, target): &(usize, &Option<usize>)| target.is_some_and(|target| target != node);
    placement.iter().enumerate().filter(moves).map(|(node, _)| case.memory_bytes[node]).sum()
}

/// Groups of interchangeable occupants by lowest node; those in no cluster are not among them.
fn groups(case: &Case) -> Vec<Vec<usize>> {
    let key = |node: usize| {
        (
            case.clusters.iter().map(|c| is_in(c.nodes, node)).collect::<Vec<bool>>(),
            case.kinds[node],
        )
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for node in
        (0..case.kinds.len()).filter(|&node| case.clusters.iter().any(|c| is_in(c.nodes, node)))
    {
        match groups.iter_mut().find(|group| key(group[0]) == key(node)) {
            Some(group) => group.push(node),
            None => groups.push(vec![node]),
        }
    }
    groups
}

/// Groups that share clusters, together.
fn parts(case: &Case) -> Vec<Vec<Vec<usize>>> {
    let mut parts: Vec<Vec<Vec<usize>>> = Vec::new();
    for group in groups(case) {
        let touches = |part: &Vec<Vec<usize>>| {
            case.clusters
                .iter()
                .any(|c| is_in(c.nodes, group[0]) && part.iter().any(|g| is_in(c.nodes, g[0])))
        };
        let (mut joined, apart): (Vec<_>, Vec<_>) = parts.into_iter().partition(touches);
        joined.push(vec![group]);
        parts = apart;
        parts.push(joined.concat());
        parts.last_mut().expect("just pushed").sort();
    }
    parts.sort();
    parts
}

/// What decides between equals: smaller sets, then fewer movers, then lower targets.
type LastResort = (Vec<u64>, usize, Placement);

fn last_resort(case: &Case, placement: &Placement) -> LastResort {
    let movers = placement
        .iter()
        .enumerate()
        .filter(|(node, target)| target.is_some_and(|target| target != *node))
        .count();
    (sets(case, placement), movers, placement.clone())
}

/// For each part its set, then the sets of its groups.
fn sets(case: &Case, placement: &[Option<usize>]) -> Vec<u64> {
    let set_of = |group: &Vec<usize>| {
        group.iter().map(|&node| 1_u64 << placement[node].expect("occupied")).sum::<u64>()
    };
    let part = |part: Vec<Vec<usize>>| {
        let own: Vec<u64> = part.iter().map(set_of).collect();
        let all = own.iter().sum();
        [vec![all], own].concat()
    };
    parts(case).into_iter().flat_map(part).collect()
}

/// All injective assignments of the occupants of `node` and above to nodes of their kind, and what
/// each is worth.
fn inject(
    case: &Case,
    gain: &Gain,
    placement: &mut Placement,
    node: usize,
    used: u64,
    value: u64,
    visit: &mut impl FnMut(&Placement, u64),
) {
    let count = case.kinds.len();
    if node == count {
        return visit(placement, value);
    }
    if !is_in(case.occupied, node) {
        return inject(case, gain, placement, node + 1, used, value, visit);
    }
    // A plain loop: in a test that is not optimised, an iterator with a filter takes most of the
    // time.
    let (kind, mut target) = (case.kinds[node], 0);
    while target < count {
        if used >> target & 1 == 0 && case.kinds[target] == kind {
            let more = gain.of(placement, node, target);
            placement[node] = Some(target);
            inject(case, gain, placement, node + 1, used | 1 << target, value + more, visit);
        }
        target += 1;
    }
}

/// One placement for each way to give node sets to the groups: occupants that can stay do, the
/// others go to nodes ascending. The last group has no cluster and takes what is left. One kind of
/// node only.
fn give(
    case: &Case,
    groups: &[Vec<usize>],
    placement: &mut Placement,
    used: u64,
    visit: &mut impl FnMut(&Placement),
) {
    let count = case.kinds.len();
    match groups {
        [] => unreachable!("those without a cluster are the last group"),
        [lonely] => {
            seat(lonely, !used & ((1 << count) - 1), placement);
            visit(placement);
        }
        [group, rest @ ..] => choose(count, group.len(), 0, used, &mut |set| {
            seat(group, set, placement);
            give(case, rest, placement, used | set, visit);
        }),
    }
}

/// All sets of `size` unused nodes below `below`, added to `chosen`.
fn choose(below: usize, size: usize, chosen: u64, used: u64, visit: &mut dyn FnMut(u64)) {
    if size == 0 {
        return visit(chosen);
    }
    for node in (size - 1..below).filter(|&node| !is_in(used, node)) {
        choose(node, size - 1, chosen | 1 << node, used, visit);
    }
}

/// Occupants on a node of the set stay, the others take the rest of it ascending.
fn seat(group: &[usize], set: u64, placement: &mut [Option<usize>]) {
    let mut left = set;
    for &node in group {
        if is_in(set, node) {
            placement[node] = Some(node);
            left &= !(1 << node);
        }
    }
    for &node in group {
        if !is_in(set, node) {
            placement[node] = Some(left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}
