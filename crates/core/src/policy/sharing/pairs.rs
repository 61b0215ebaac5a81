//! Which threads touched the same sampled pages, and how often: the experimental code of
//! Carrefour's authors, compiled out there.
//!
//! A page keeps the set of threads that touched it. Each sample of a thread counts one common
//! sample with every other thread that is in the set already. Time is linear in the samples; pages
//! are taken one after the other, so no set outlives its page.

pub use crate::cost::Pair;
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Largest number of threads that may share one page. A page with more is global data, says nothing
/// about groups and is ignored, as [Tam] does. The number is our choice and bounds the time.
const MAX_SHARERS: usize = 32;

/// Pairs with at least `minimum` common samples, most samples first, then by thread.
///
/// `touches` are `(page, thread)` in sample order, with page indices below `pages`.
#[must_use]
pub fn pairs(touches: &[(u32, u32)], pages: usize, minimum: u32) -> Vec<Pair> {
    let mut counts = Counts::default();
    let mut page = PageSharers::default();
    for touches in by_page(touches, pages).chunk_by(|a, b| a.0 == b.0) {
        if page.count(touches) {
            page.add_to(&mut counts);
        }
    }
    counts.sorted(minimum)
}

/// The threads of one page with their common samples.
#[derive(Default)]
struct PageSharers {
    /// Threads in the order of their first touch.
    threads: Vec<u32>,
    /// Common samples, by position of the sampled thread and of the other one; rows of
    /// [`MAX_SHARERS`].
    samples: Vec<u32>,
}

impl PageSharers {
    /// Counts the touches of one page. False if more than [`MAX_SHARERS`] threads touch it.
    fn count(&mut self, touches: &[(u32, u32)]) -> bool {
        self.threads.clear();
        self.samples.clear();
        for &(_, thread) in touches {
            let known = self.threads.iter().position(|&other| other == thread);
            let place = known.unwrap_or(self.threads.len());
            if place == MAX_SHARERS {
                return false;
            }
            if known.is_none() {
                self.threads.push(thread);
                self.samples.resize(self.threads.len() * MAX_SHARERS, 0);
            }
            let row = &mut self.samples[place * MAX_SHARERS..][..self.threads.len()];
            row.iter_mut().for_each(|samples| *samples += 1);
            row[place] = 0;
        }
        true
    }

    fn add_to(&self, counts: &mut Counts) {
        for (upper, &one) in self.threads.iter().enumerate() {
            for (lower, &other) in self.threads[..upper].iter().enumerate() {
                let samples = self.samples[upper * MAX_SHARERS + lower]
                    + self.samples[lower * MAX_SHARERS + upper];
                counts.add(one.min(other), one.max(other), samples);
            }
        }
    }
}

/// The touches sorted by page, each page's in sample order (counting sort).
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

/// Common samples by pair. The hash only finds a pair; the result is sorted.
#[derive(Default)]
struct Counts {
    pairs: Vec<Pair>,
    index: HashTable<u32>,
}

impl Counts {
    fn add(&mut self, lower: u32, upper: u32, samples: u32) {
        let pairs = &self.pairs;
        let is_same = |&place: &u32| {
            (pairs[place as usize].lower, pairs[place as usize].upper) == (lower, upper)
        };
        if let Some(&place) = self.index.find(hash(lower, upper), is_same) {
            self.pairs[place as usize].samples += samples;
            return;
        }
        let place = self.pairs.len() as u32;
        self.pairs.push(Pair { lower, upper, samples });
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

    /// Checks the pairs `lower-upper:samples` that come from the touches `page:thread`.
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
