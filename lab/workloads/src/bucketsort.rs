//! Bucket sort in rounds. Each thread makes keys of its own. Then all threads scatter them into
//! buckets at once, a burst of all-to-all traffic, and each sorts its own bucket.
//!
//! The check: every bucket is sorted and holds only its own keys. The keys that came out are those
//! that went in, by two sums that no likely mistake keeps.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clap::Args;

use crate::flags::{Memory, Pace, Placement, Seed, Threads};
use crate::pages::Pages;
use crate::random::{Random, mix};
use crate::report::{Failure, Report};
use crate::team::{Member, Team, part};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    seed: Seed,
}

/// What is known of a set of keys without their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    keys: u64,
    sum: u64,
    mixed: u64,
    /// Keys before which a greater one stands, or that are in another's bucket.
    misplaced: u64,
}

impl Account {
    fn add(&mut self, key: u64) {
        self.keys += 1;
        self.sum = self.sum.wrapping_add(key);
        self.mixed = self.mixed.wrapping_add(mix(key));
    }

    fn merge(mut self, other: Self) -> Self {
        self.keys += other.keys;
        self.sum = self.sum.wrapping_add(other.sum);
        self.mixed = self.mixed.wrapping_add(other.mixed);
        self.misplaced += other.misplaced;
        self
    }
}

/// The arrays and how many keys each thread has for each bucket.
struct Shared {
    keys: Pages<AtomicU64>,
    sorted: Pages<AtomicU64>,
    counts: Mutex<Vec<Vec<usize>>>,
    seed: u64,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, flags.placement, &flags.pace)?;
    let map = || Pages::map(flags.memory.size / 2, flags.memory.no_huge_pages);
    let shared = Shared {
        keys: map()?,
        sorted: map()?,
        counts: Mutex::new(vec![Vec::new(); team.size()]),
        seed: flags.seed.seed,
    };
    // Keys are made and sorted where they lie; buckets are about as large as each other.
    for cells in [&shared.keys, &shared.sorted] {
        team.place(cells, |index| part(cells.len(), index, team.size()))?;
    }
    let work = |member: &mut Member<'_>, ()| sort(member, &shared, team.size());
    let accounts = team.run(vec![(); team.size()], work)?;
    let sum =
        |accounts: Vec<Account>| accounts.into_iter().fold(Account::default(), Account::merge);
    let (made, found): (Vec<_>, Vec<_>) = accounts.into_iter().unzip();
    let (made, found) = (sum(made), sum(found));
    Ok(Report::new("bucketsort")
        .pair("threads", team.size())
        .pair("keys", shared.keys.len())
        .rounds_of(&team)
        .pair("checksum", found.mixed)
        .check("order", found.misplaced == 0)
        .check("keys", found.keys == shared.keys.len() as u64 * team.rounds())
        .check("sums", (made.keys, made.sum, made.mixed) == (found.keys, found.sum, found.mixed)))
}

/// One thread's rounds: the keys that it made, and those that it found in its bucket.
fn sort(member: &mut Member<'_>, shared: &Shared, threads: usize) -> (Account, Account) {
    let own = part(shared.keys.len(), member.index, threads);
    let mut random = Random::new(shared.seed, member.index as u64);
    let (mut made, mut found) = (Account::default(), Account::default());
    member.start();
    loop {
        let mut counts = vec![0; threads];
        for cell in &shared.keys[own.clone()] {
            let key = random.next();
            made.add(key);
            counts[bucket_of(key, threads)] += 1;
            cell.store(key, Relaxed);
        }
        shared.counts.lock().expect(NO_PANIC)[member.index] = counts;
        member.wait();
        let counts = shared.counts.lock().expect(NO_PANIC).clone();
        scatter(&shared.keys[own.clone()], &shared.sorted, offsets(&counts, member.index));
        member.wait();
        sort_bucket(&shared.sorted[bucket(&counts, member.index)]);
        found = found.merge(account(
            &shared.sorted[bucket(&counts, member.index)],
            member.index,
            threads,
        ));
        if !member.next_round() {
            return (made, found);
        }
    }
}

const NO_PANIC: &str = "a thread that panics ends the process";

/// Buckets divide the range of keys evenly.
fn bucket_of(key: u64, buckets: usize) -> usize {
    ((u128::from(key) * buckets as u128) >> 64) as usize
}

/// Where a bucket lies in the sorted array, from `[thread][bucket]` counts.
fn bucket(counts: &[Vec<usize>], bucket: usize) -> std::ops::Range<usize> {
    let size = |bucket: usize| counts.iter().map(|of_thread| of_thread[bucket]).sum::<usize>();
    let start = (0..bucket).map(size).sum();
    start..start + size(bucket)
}

/// Where a thread's first key of each bucket goes: after those of the threads before it.
fn offsets(counts: &[Vec<usize>], thread: usize) -> Vec<usize> {
    let before =
        |bucket: usize| counts[..thread].iter().map(|of_thread| of_thread[bucket]).sum::<usize>();
    (0..counts.len()).map(|index| bucket(counts, index).start + before(index)).collect()
}

fn scatter(keys: &[AtomicU64], sorted: &[AtomicU64], mut offsets: Vec<usize>) {
    for key in keys {
        let key = key.load(Relaxed);
        let bucket = bucket_of(key, offsets.len());
        let offset = &mut offsets[bucket];
        sorted[*offset].store(key, Relaxed);
        *offset += 1;
    }
}

fn sort_bucket(cells: &[AtomicU64]) {
    let mut keys: Vec<u64> = cells.iter().map(|cell| cell.load(Relaxed)).collect();
    keys.sort_unstable();
    cells.iter().zip(keys).for_each(|(cell, key)| cell.store(key, Relaxed));
}

/// Counts what is in a bucket, and what should not be or not there.
fn account(cells: &[AtomicU64], bucket: usize, buckets: usize) -> Account {
    let mut account = Account::default();
    let mut last = 0;
    for cell in cells {
        let key = cell.load(Relaxed);
        account.add(key);
        account.misplaced += u64::from(key < last || bucket_of(key, buckets) != bucket);
        last = key;
    }
    account
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(keys: &[u64]) -> Vec<AtomicU64> {
        keys.iter().map(|&key| AtomicU64::new(key)).collect()
    }

    #[test]
    fn buckets_follow_each_other_and_threads_within_them() {
        let counts = [vec![2, 1], vec![3, 4]];
        assert_eq!((bucket(&counts, 0), bucket(&counts, 1)), (0..5, 5..10));
        assert_eq!(offsets(&counts, 0), [0, 5]);
        assert_eq!(offsets(&counts, 1), [2, 6]);
    }

    #[test]
    fn keys_go_to_their_buckets_and_come_out_sorted() {
        let keys = [u64::MAX, 0, 1 << 63, 5, (1 << 63) - 1];
        let sorted = cells(&[0; 5]);
        scatter(&cells(&keys), &sorted, vec![0, 3]);
        sort_bucket(&sorted[..3]);
        sort_bucket(&sorted[3..]);
        let found: Vec<u64> = sorted.iter().map(|cell| cell.load(Relaxed)).collect();
        assert_eq!(found, [0, 5, (1 << 63) - 1, 1 << 63, u64::MAX]);
        assert_eq!(account(&sorted[..3], 0, 2).misplaced, 0);
        assert_eq!(account(&sorted[3..], 1, 2).misplaced, 0);
    }

    #[test]
    fn keys_out_of_order_or_in_the_wrong_bucket_are_counted() {
        assert_eq!(account(&cells(&[7, 3, 9]), 0, 2).misplaced, 1);
        assert_eq!(account(&cells(&[7, u64::MAX]), 0, 2).misplaced, 1);
    }
}
