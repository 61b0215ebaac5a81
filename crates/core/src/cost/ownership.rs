//! Estimates the accessing nodes of a page from a few samples.
//!
//! Three samples of a page from one node may mean that the page belongs to that node. If all
//! threads use all pages, they are chance, and moving the page wins nothing. Pairs of samples of
//! one page distinguish the two cases. With owners, both samples come from one node more often than
//! by chance. The difference gives the weight of a Dirichlet prior. Its mean is the distribution of
//! all samples of the process, its concentration is estimated from all pages.

use alloc::vec::Vec;

/// Number of assumed pages with one owner each, beside the pages with two samples. So the samples
/// of a few pages are believed. Our choice.
const BELIEVED: f64 = 4.0;
/// Least share of pages with an owner. A thousand samples of a page then outweigh any prior.
const LEAST_OWNED: f64 = 1e-3;

/// Sums over the sampled pages of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ownership {
    /// Samples by accessing node.
    by_node: Vec<f64>,
    /// Pages with at least two samples, and the sum of the share of their pairs that agree.
    pages: f64,
    agreeing: f64,
}

impl Ownership {
    /// Adds the samples of a page by node.
    pub(super) fn add(&mut self, accesses: impl Iterator<Item = (usize, u32)>) {
        let (mut total, mut same) = (0.0, 0.0);
        for (node, count) in accesses {
            let count = f64::from(count);
            self.by_node.resize(self.by_node.len().max(node + 1), 0.0);
            self.by_node[node] += count;
            total += count;
            same += count * (count - 1.0);
        }
        if total >= 2.0 {
            self.pages += 1.0;
            self.agreeing += same / (total * (total - 1.0));
        }
    }

    /// The prior for a page.
    pub(super) fn prior(&self) -> Prior {
        let all: f64 = self.by_node.iter().sum::<f64>().max(1.0);
        let by_chance: f64 = self.by_node.iter().map(|count| count * count).sum();
        let by_chance = by_chance / (all * all);
        let agreeing = (self.agreeing + BELIEVED) / (self.pages + BELIEVED);
        let owned = ((agreeing - by_chance) / (1.0 - by_chance).max(LEAST_OWNED)).min(1.0);
        let weight = (1.0 - owned) / owned.max(LEAST_OWNED);
        let by_node: Vec<f64> = self.by_node.iter().map(|count| weight * count / all).collect();
        Prior { all: by_node.iter().sum(), by_node }
    }
}

/// Expected accesses of a page before its own samples, in samples. The prior is empty if each page
/// has one owner, and large if all nodes use all pages.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Prior {
    /// By accessing node.
    pub(super) by_node: Vec<f64>,
    all: f64,
}

impl Prior {
    /// Weight of one sample, seen or expected. The weights of all sum up to the number of seen
    /// `samples`.
    pub(super) fn per_sample(&self, samples: u32) -> f64 {
        f64::from(samples) / (self.all + f64::from(samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of node 0 in the accesses to a page. Three samples of the page came from node 0.
    /// `pages` are the samples of the process's other pages, by node.
    fn share(pages: &[[u32; 2]]) -> f64 {
        let mut ownership = Ownership::default();
        for page in pages {
            ownership.add(page.iter().copied().enumerate());
        }
        let prior = ownership.prior();
        let per_sample = prior.per_sample(3);
        let of_others: f64 = prior.by_node.iter().skip(1).sum();
        1.0 - per_sample * of_others / 3.0
    }

    #[test]
    fn a_page_that_looks_like_one_nodes_is_where_pages_have_owners() {
        assert!(share(&[[3, 0], [0, 3]].repeat(200)) > 0.98);
        assert_eq!(share(&[[1, 0]]), 1.0, "nothing says otherwise");
    }

    #[test]
    fn it_is_as_shared_as_the_others_where_all_nodes_use_all() {
        // Pages with three samples each, if both nodes use every page equally: as often as chance
        // gives.
        let shared = [[3, 0], [2, 1], [2, 1], [2, 1], [1, 2], [1, 2], [1, 2], [0, 3]].repeat(100);
        let share_of_shared = share(&shared);
        assert!(share_of_shared > 0.5 && share_of_shared < 0.55, "{share_of_shared}");
    }

    #[test]
    fn where_half_of_the_pages_have_owners_it_most_likely_has_one() {
        let shared = [[3, 0], [2, 1], [2, 1], [2, 1], [1, 2], [1, 2], [1, 2], [0, 3]].repeat(50);
        let mixed = share(&[shared, [[3, 0], [0, 3]].repeat(200)].concat());
        assert!(mixed > 0.8 && mixed < 0.95, "{mixed}");
    }
}
