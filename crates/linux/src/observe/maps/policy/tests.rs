//! Tests that parts of `numa_maps` are read within bounds, and that no policy is missed.

use proptest::prelude::*;

use super::super::walk::Walk;
use super::*;
use crate::observe::maps::mappings;
use crate::syscall::memory::{Anonymous, page_bytes};

/// One mapping of a made-up process: entries to walk, and the line's policy.
#[derive(Debug, Clone)]
struct Made {
    entries: u64,
    policy: &'static str,
    rest: String,
}

/// First address of a made-up mapping. Each has a gap behind it.
fn address(place: usize) -> u64 {
    0x40_0000 + 0x10_0000 * place as u64
}

fn mappings_of(made: &[Made]) -> Vec<Mapping> {
    let mapping = |place| Mapping {
        start: address(place),
        end: address(place) + 0x8_0000,
        is_accessible: true,
        is_copy: false,
    };
    (0..made.len()).map(mapping).collect()
}

fn entries_in(made: &[Made]) -> impl Fn(&Mapping) -> u64 {
    |mapping| made[((mapping.start - 0x40_0000) / 0x10_0000) as usize].entries
}

/// A `numa_maps` as the kernel makes it (`seq_read_iter`, fs/seq_file.c, Linux 6.12). A line is
/// made, and its mapping walked, when the one before has been taken to its end.
struct Kernel<'a> {
    made: &'a [Made],
    next: usize,
    text: Vec<u8>,
    /// Entries of the current look.
    walked: u64,
    /// The most that were walked in one call for several lines.
    most_at_once: u64,
}

impl<'a> Kernel<'a> {
    fn of(made: &'a [Made]) -> Self {
        Self { made, next: 0, text: Vec::new(), walked: 0, most_at_once: 0 }
    }

    fn show(&mut self) -> bool {
        let Some(one) = self.made.get(self.next) else { return false };
        let line = format!("{:08x} {}{}\n", address(self.next), one.policy, one.rest);
        self.text.extend(line.as_bytes());
        self.walked += one.entries;
        self.next += 1;
        true
    }

    fn hand_out(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.text.len());
        into[..count].copy_from_slice(&self.text[..count]);
        self.text.drain(..count);
        count
    }
}

impl Read for &mut Kernel<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (before, first) = (self.walked, self.next);
        let mut count = self.hand_out(into);
        if self.text.is_empty() && self.show() {
            while self.text.len() < into.len() - count && self.show() {}
            count += self.hand_out(&mut into[count..]);
        }
        if self.next > first + 1 {
            self.most_at_once = self.most_at_once.max(self.walked - before);
        }
        Ok(count)
    }
}

/// Looks until the reading ends. Returns how many there were, and asserts the bound of each.
fn look_until_the_end(policies: &mut Policies, kernel: &mut Kernel<'_>, budget: u64) -> usize {
    let made = kernel.made;
    let mappings = mappings_of(made);
    let mut reading = Some(Reading::of(kernel));
    for look in 1..=made.len() + 1 {
        let going_on = reading.take().expect("it goes on");
        going_on.file.walked = 0;
        let costs = Costs::of(&mappings, entries_in(made), budget);
        // A reading that ends is dropped: its file tells through `made` alone.
        reading = policies.read_part(going_on, costs).unwrap();
        let Some(reading) = &reading else { return look };
        assert!(reading.file.walked <= budget, "{} of {budget}", reading.file.walked);
    }
    panic!("a look has read nothing");
}

fn made(entries: u64, policy: &'static str) -> Made {
    Made { entries, policy, rest: " anon=1 N0=1 kernelpagesize_kB=4".to_string() }
}

fn starts(policies: &Policies) -> Vec<usize> {
    let place = |start: &u64| ((start - 0x40_0000) / 0x10_0000) as usize;
    policies.usual.keys().map(place).collect()
}

#[test]
fn a_policy_above_the_budget_of_one_look_is_found_at_a_later_one() {
    let all = [made(60, "default"), made(60, "local"), made(60, "default"), made(9, "bind:0")];
    let (mut policies, mut kernel) = (Policies::default(), Kernel::of(&all));
    assert_eq!(look_until_the_end(&mut policies, &mut kernel, 100), 3);
    assert_eq!(policies.own, Some(address(3)));
    assert_eq!(starts(&policies), [0, 1, 2]);
}

#[test]
fn what_lies_above_a_mapping_beyond_the_budget_stays_unread() {
    let all = [made(60, "default"), made(101, "bind:0"), made(1, "default")];
    let (mut policies, mut kernel) = (Policies::default(), Kernel::of(&all));
    look_until_the_end(&mut policies, &mut kernel, 100);
    assert_eq!((kernel.next, kernel.walked), (1, 60), "the kernel has walked no other");
    assert_eq!((policies.own, starts(&policies)), (None, vec![0]));
    let mappings = mappings_of(&all);
    let lowest = AddressRange { start: mappings[0].start, end: mappings[0].end };
    assert_eq!(policies.ranges(&mappings), Some(vec![lowest]));
}

/// With the end of a line the kernel would walk the next mapping.
#[test]
fn the_shortest_line_is_not_read_to_its_end_before_a_mapping_beyond_the_budget() {
    let shortest = Made { rest: String::new(), ..made(60, "local") };
    let all = [shortest, made(101, "default")];
    let mut kernel = Kernel::of(&all);
    look_until_the_end(&mut Policies::default(), &mut kernel, 100);
    assert_eq!((kernel.next, kernel.walked), (1, 60));
}

#[test]
fn one_call_asks_for_many_small_mappings_and_not_for_several_large_ones() {
    let all: Vec<Made> = [vec![made(10, "default"); 50], vec![made(3000, "default"); 5]].concat();
    let mut kernel = Kernel::of(&all);
    look_until_the_end(&mut Policies::default(), &mut kernel, 100_000);
    assert_eq!(kernel.next, all.len());
    assert!((20..=ENTRIES_AT_ONCE).contains(&kernel.most_at_once), "{}", kernel.most_at_once);
}

proptest! {
    /// Whatever the lines and budgets are.
    #[test]
    fn no_look_walks_beyond_its_budget_and_every_policy_below_is_found(
        lines in proptest::collection::vec((0..120_u64, 0..12_usize, "[ a-z=0-9]{0,90}"), 1..80),
        budget in 1..100_u64,
    ) {
        let policy = |number| match number {
            0 => "bind:0-1",
            1..=4 => "local",
            _ => "default",
        };
        let all: Vec<Made> = lines.into_iter()
            .map(|(entries, number, rest)| Made { entries, policy: policy(number), rest })
            .collect();
        let (mut policies, mut kernel) = (Policies::default(), Kernel::of(&all));
        look_until_the_end(&mut policies, &mut kernel, budget);
        prop_assert!(kernel.walked <= budget, "the last look");
        prop_assert!(kernel.most_at_once <= ENTRIES_AT_ONCE);
        let too_large = all.iter().position(|one| one.entries > budget).unwrap_or(all.len());
        let own = all.iter().position(|one| one.policy.starts_with("bind"));
        let own = own.filter(|own| *own < too_large);
        prop_assert_eq!(policies.own, own.map(address));
        let expected: Vec<usize> = (0..own.unwrap_or(too_large)).collect();
        prop_assert_eq!(starts(&policies), expected);
    }
}

#[test]
fn a_mapping_that_grew_is_known_and_one_that_was_cut_or_is_new_is_not() {
    let mapping = |start, end| Mapping { start, end, is_accessible: true, is_copy: false };
    let range = |start, end| AddressRange { start, end };
    let mut policies = Policies::default();
    policies.set(None, vec![range(10, 20), range(30, 40), range(50, 60)]);
    let now = [mapping(8, 22), mapping(30, 35), mapping(35, 40), mapping(50, 60), mapping(60, 70)];
    policies.keep(&now);
    assert_eq!(policies.ranges(&now), Some(vec![range(8, 22), range(50, 60)]));
    let reserve = Mapping { is_accessible: false, ..mapping(60, 70) };
    policies.keep(&[mapping(8, 22), mapping(50, 60), reserve]);
    assert_eq!(policies.ranges(&[mapping(8, 22), mapping(50, 60), reserve]), None, "all of it");
}

#[test]
fn a_policy_of_its_own_counts_until_it_is_read_as_a_usual_one_or_has_gone() {
    let all = [made(1, "default"), made(1, "default"), made(200, "default")];
    let mappings = mappings_of(&all);
    let own = |at: u64| {
        let mut policies = Policies::default();
        policies.set(Some(at), Vec::new());
        look_until_the_end(&mut policies, &mut Kernel::of(&all), 100);
        policies.keep(&mappings);
        policies.own
    };
    assert_eq!(own(address(1)), None, "it was set back");
    assert_eq!(own(address(2)), Some(address(2)), "this mapping was not read again");
    assert_eq!(own(address(2) - 1), None, "no mapping is there");
}

#[test]
fn the_address_space_before_an_execve_says_nothing_of_the_one_after() {
    let all = [made(9, "default"), made(9, "default")];
    let mappings = mappings_of(&all);
    let mut policies = Policies::default();
    policies.set(None, vec![AddressRange { start: address(0), end: address(0) + 1 }]);
    let mut reading = Reading::of(io::empty());
    reading.last = Some(address(0));
    let costs = Costs::of(&mappings, entries_in(&all), 100);
    assert!(policies.read_part(reading, costs).unwrap().is_none());
    assert_eq!(policies.ranges(&mappings), Some(Vec::new()));
}

#[test]
fn the_largest_ranges_are_told_where_there_are_many() {
    let mapping = |place: u64| Mapping {
        start: place << 20,
        end: (place << 20) + 4096 * (1 + place % 2),
        is_accessible: true,
        is_copy: false,
    };
    let all: Vec<Mapping> = (0..4 * MOST_RANGES as u64).map(mapping).collect();
    let mut policies = Policies::default();
    policies
        .set(None, all[1..].iter().map(|m| AddressRange { start: m.start, end: m.end }).collect());
    let ranges = policies.ranges(&all).unwrap();
    assert_eq!(ranges.len(), MOST_RANGES);
    assert!(ranges.iter().all(|range| range.end - range.start == 8192) && ranges.is_sorted());
}

/// This program's own file, whatever kernel runs.
#[test]
fn a_policy_in_a_real_file_is_found_in_parts() {
    let memory = Anonymous::new(64 * page_bytes()).unwrap();
    memory.touch_every(page_bytes());
    let look = |policies: &mut Policies| {
        let all = mappings(Path::new("/proc/self/maps")).unwrap().unwrap();
        policies.keep(&all);
        let walk = Walk::of(Path::new("/proc/self/pagemap"), ENTRIES);
        let largest = all.iter().map(|mapping| walk.entries(mapping)).max().unwrap_or(0);
        let path = Path::new("/proc/self/numa_maps");
        // Enough for any one mapping, and not for all of them.
        policies.read_on(path, &all, largest, |mapping| walk.entries(mapping)).unwrap();
        policies.ranges(&all)
    };
    let is_read = |ranges: Option<Vec<AddressRange>>| {
        let is_in = |range: &AddressRange| (range.start..range.end).contains(&memory.address());
        ranges.is_none_or(|ranges| ranges.iter().any(is_in))
    };
    let mut policies = Policies::default();
    let read = (0..1000).any(|_| is_read(look(&mut policies)));
    if !Path::new("/proc/self/numa_maps").exists() || memory.bind(0).is_err() {
        println!("not tried: this kernel has no NUMA");
        return;
    }
    assert!(read, "{policies:?}");
    let found = (0..1000).any(|_| !is_read(look(&mut policies)) && policies.has_own());
    assert!(found, "{policies:?}");
}
