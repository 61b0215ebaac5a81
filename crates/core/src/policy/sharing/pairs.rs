//! Which threads touched the same sampled pages, and how often: the experimental code of Carrefour's authors, compiled out there.
//!
//! A page keeps the set of threads that touched it. Each sample of a thread counts one common sample with every other thread that is
//! in the set already. Time is linear in the samples; pages are taken one after the other, so no set outlives its page.

use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Threads that share one page; with more it is global data, says nothing about groups and is ignored [Tam: entries that most threads
/// touch are ignored; the number is ours and bounds the time].
const MAX_SHARERS: usize = 32;

/// Common samples of two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The lower thread.
    pub lower: u32,
    /// The higher thread.
    pub upper: u32,
    /// Samples of either on pages that the other had touched before.
    pub samples: u32,
}

/// Pairs with at least `minimum` common samples, most samples first, then by thread.
///
/// `touches` are `(page, thread)` in sample order with pages below `pages`.
#[must_use]
pub fn pairs(touches: &[(u32, u32)], pages: usize, minimum: u32) -> Vec<Pair> {
    let mut counts = Counts::default();
    let mut sharers: Vec<u32> = Vec::with_capacity(MAX_SHARERS);
    for of_page in by_page(touches, pages).chunk_by(|a, b| a.0 == b.0) {
        sharers.clear();
        for &(_, thread) in of_page {
            if !sharers.contains(&thread) {
                sharers.push(thread);
            }
            if sharers.len() > MAX_SHARERS {
                break;
            }
        }
        if (2..=MAX_SHARERS).contains(&sharers.len()) {
            sharers.clear();
            of_page.iter().for_each(|&(_, thread)| counts.sample(&mut sharers, thread));
        }
    }
    counts.sorted(minimum)
}

/// The touches page after page, each page's in sample order.
fn by_page(touches: &[(u32, u32)], pages: usize) -> Vec<(u32, u32)> {
    let mut next = vec![0_usize; pages + 1];
    touches.iter().for_each(|&(page, _)| next[page as usize + 1] += 1);
    (1..=pages).for_each(|page| next[page] += next[page - 1]);
    let mut sorted = vec![(0, 0); touches.len()];
    for &touch in touches {
        let place = &mut next[touch.0 as usize];
        sorted[*place] = touch;
        *place += 1;
    }
    sorted
}

/// A table of pairs. The hash only finds them; they come out sorted.
#[derive(Default)]
struct Counts {
    pairs: Vec<Pair>,
    index: HashTable<u32>,
}

impl Counts {
    fn sample(&mut self, sharers: &mut Vec<u32>, thread: u32) {
        let mut is_known = false;
        for &other in sharers.iter() {
            if other == thread {
                is_known = true;
            } else {
                self.add(other.min(thread), other.max(thread));
            }
        }
        if !is_known {
            sharers.push(thread);
        }
    }

    fn add(&mut self, lower: u32, upper: u32) {
        let pairs = &self.pairs;
        let is_same = |&place: &u32| {
            (pairs[place as usize].lower, pairs[place as usize].upper) == (lower, upper)
        };
        if let Some(&place) = self.index.find(hash(lower, upper), is_same) {
            self.pairs[place as usize].samples += 1;
            return;
        }
        let place = self.pairs.len() as u32;
        self.pairs.push(Pair { lower, upper, samples: 1 });
        let pairs = &self.pairs;
        let rehash = |&place: &u32| hash(pairs[place as usize].lower, pairs[place as usize].upper);
        self.index.insert_unique(hash(lower, upper), place, rehash);
    }

    fn sorted(mut self, minimum: u32) -> Vec<Pair> {
        self.pairs.retain(|pair| pair.samples >= minimum);
        self.pairs.sort_unstable_by_key(|pair| {
            (core::cmp::Reverse(pair.samples), pair.lower, pair.upper)
        });
        self.pairs
    }
}

/// Fibonacci hashing: the high bits of a product with 2⁶⁴ over the golden ratio, folded down.
fn hash(lower: u32, upper: u32) -> u64 {
    let key = u64::from(lower) << 32 | u64::from(upper);
    let product = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    product ^ product >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// `page:thread` words in, `lower-upper:samples` words out.
    fn check(touches: &str, minimum: u32, expected: &str) {
        let touch = |word: &str| {
            let (page, thread) = word.split_once(':').expect("page:thread");
            (page.parse().expect("a page"), thread.parse().expect("a thread"))
        };
        let touches: Vec<(u32, u32)> = touches.split_whitespace().map(touch).collect();
        let pages = touches.iter().map(|touch| touch.0 as usize + 1).max().unwrap_or(0);
        let pairs = pairs(&touches, pages, minimum);
        let words: Vec<String> = pairs
            .iter()
            .map(|pair| format!("{}-{}:{}", pair.lower, pair.upper, pair.samples))
            .collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn a_sample_counts_with_every_thread_that_came_before() {
        check("0:1 0:2 0:2 0:1", 1, "1-2:3");
        check("0:1 0:2 0:3", 1, "1-2:1 1-3:1 2-3:1");
        check("0:1 1:2 2:3", 1, "");
    }

    #[test]
    fn pages_add_up_and_their_samples_may_be_mixed() {
        check("0:1 7:5 0:2 7:6 3:2 3:1 7:5", 1, "1-2:2 5-6:2");
        check("0:1 7:5 0:2 7:6 3:2 3:1 7:5 7:5", 3, "5-6:3");
    }

    #[test]
    fn data_of_everybody_is_ignored() {
        let all: Vec<(u32, u32)> = (0..200).map(|i| (0, i % 33)).collect();
        assert_eq!(pairs(&all, 1, 1), []);
        let most: Vec<(u32, u32)> = (0..200).map(|i| (0, i % 32)).collect();
        assert_eq!(pairs(&most, 1, 1).len(), 32 * 31 / 2);
    }
}
