//! Groups of threads that share data, and the way to split one where it shares least.
//!
//! Merging is transitive. A group keeps the strongest pairs that hold it together (a maximum
//! spanning tree). Taking out the weakest of them splits the group where it shares least.

use super::pairs::Pair;
use alloc::vec;
use alloc::vec::Vec;

/// A group of threads that share data. Threads are indices in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Threads, ascending.
    pub threads: Vec<u32>,
    /// The maximum spanning tree of the group, most samples first: one pair fewer than threads.
    pairs: Vec<Pair>,
}

/// The groups of at least two threads that `pairs` (most samples first) connect, largest first,
/// then by lowest thread.
#[must_use]
pub fn clusters(pairs: &[Pair], threads: usize) -> Vec<Cluster> {
    let members: Vec<u32> = (0..threads as u32).collect();
    groups(&members, pairs)
}

impl Cluster {
    /// Splits the group at the pair with the fewest common samples. Parts of a single thread are
    /// left out.
    #[must_use]
    pub fn split(mut self) -> Vec<Self> {
        self.pairs.pop();
        groups(&self.threads, &self.pairs)
    }

    /// Common samples of the weakest pair that connects the group.
    #[must_use]
    pub fn weakest(&self) -> u32 {
        self.pairs.last().map_or(0, |pair| pair.samples)
    }
}

/// Union-find with path halving.
struct Forest {
    parents: Vec<u32>,
}

impl Forest {
    fn new(threads: usize) -> Self {
        Self { parents: (0..threads as u32).collect() }
    }

    fn root(&mut self, thread: u32) -> u32 {
        let mut thread = thread as usize;
        while self.parents[thread] as usize != thread {
            self.parents[thread] = self.parents[self.parents[thread] as usize];
            thread = self.parents[thread] as usize;
        }
        thread as u32
    }

    /// Joins two groups under the lower root. False if they were already one group.
    fn merge(&mut self, one: u32, other: u32) -> bool {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one.max(other) as usize] = one.min(other);
        one != other
    }
}

/// The groups of at least two `members` (ascending) that `pairs` connect, largest first. Pairs that
/// close a cycle are dropped.
fn groups(members: &[u32], pairs: &[Pair]) -> Vec<Cluster> {
    let place = |thread: u32| members.partition_point(|&member| member < thread) as u32;
    let mut forest = Forest::new(members.len());
    let mut kept: Vec<(u32, Pair)> = Vec::with_capacity(members.len());
    for &pair in pairs {
        let lower = place(pair.lower);
        if forest.merge(lower, place(pair.upper)) {
            kept.push((lower, pair));
        }
    }
    let mut group_of_root: Vec<Option<usize>> = vec![None; members.len()];
    let mut groups: Vec<Cluster> = Vec::new();
    for &(lower, pair) in &kept {
        let root = forest.root(lower) as usize;
        let group = *group_of_root[root].get_or_insert(groups.len());
        if group == groups.len() {
            groups.push(Cluster { threads: Vec::new(), pairs: Vec::new() });
        }
        groups[group].pairs.push(pair);
    }
    for (place, &thread) in members.iter().enumerate() {
        if let Some(group) = group_of_root[forest.root(place as u32) as usize] {
            groups[group].threads.push(thread);
        }
    }
    groups.sort_by_key(|group| (core::cmp::Reverse(group.threads.len()), group.threads[0]));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn pair(lower: u32, upper: u32, samples: u32) -> Pair {
        Pair { lower, upper, samples }
    }

    fn names(clusters: &[Cluster]) -> String {
        let names: Vec<String> =
            clusters.iter().map(|cluster| format!("{:?}", cluster.threads)).collect();
        names.join(" ")
    }

    #[test]
    fn merging_is_transitive_and_the_largest_comes_first() {
        let pairs = [pair(4, 5, 20), pair(0, 1, 9), pair(1, 2, 8), pair(0, 2, 7)];
        assert_eq!(names(&clusters(&pairs, 7)), "[0, 1, 2] [4, 5]");
        assert_eq!(names(&clusters(&[], 7)), "");
    }

    #[test]
    fn a_cluster_comes_apart_where_it_shares_least() {
        let pairs = [pair(0, 1, 20), pair(2, 3, 15), pair(1, 2, 6), pair(0, 2, 5)];
        let all = clusters(&pairs, 4);
        assert_eq!(all[0].weakest(), 6);
        let parts = all[0].clone().split();
        assert_eq!(names(&parts), "[0, 1] [2, 3]");
        assert_eq!(names(&parts[1].clone().split()), "", "single threads are no cluster");
    }
}
