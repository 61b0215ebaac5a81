//! Decides about unsampled small pages between sampled ones. This rule is ours; no paper has it.
//!
//! The samples of one round reach a few of an application's pages. The other pages wait for later
//! rounds, and the controller stays busy meanwhile. Neighbouring pages are mostly used alike, and
//! Carrefour assumes so where pages are huge: two samples decide about 512 base pages. For small
//! pages this module looks at the sampled pages on both sides, the witnesses:
//!
//! - All accesses around a gap come from one node: the gap belongs to that node.
//! - At least half of the pages around it that have enough samples are shared: the gap is shared.
//! - It is shared, and no sample wrote a page around it: the gap is only read.
//! - Otherwise nothing is known about the gap.
//!
//! Only gaps between sampled pages are filled, and none wider than a huge page. No sample shows the
//! node of these pages. The plan assumes the node of the sampled pages around them, and the mover
//! skips a page on another node.

use super::pages::Marker;
use crate::model::{Accessors, Model, Page};
use crate::observation::UNKNOWN_NODE;
use crate::units::PAGE_SHIFT;
use alloc::vec::Vec;
use core::ops::Range;

/// Limits for the use of samples for other pages. Lengths are in base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    /// The widest gap, and the farthest witness on either side of it.
    pub reach: u64,
    /// Witnesses on each side that are used first …
    pub first_asked: usize,
    /// … and at most: the number doubles until the witnesses decide.
    pub witnesses: usize,
    /// Accesses of one node, with none of another, that give the gap to that node.
    pub private_accesses: u32,
    /// Least number of witnesses with enough samples to be known as shared or private, for a gap to
    /// be shared.
    pub deciding: u32,
    /// Most pages that one round fills.
    pub most: usize,
}

/// The owner of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// One node makes all accesses around the gap.
    Node(usize),
    /// Several nodes access the pages around it.
    Several,
    /// Several nodes access them, and no sample is a write.
    Readers,
}

/// Pages without enough samples of their own, and the owner by their neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// Addresses of base pages.
    pub(super) addresses: Range<u64>,
    pub(super) owner: Owner,
    /// Node of the first page, if it was sampled, though too rarely to decide.
    pub(super) first_home: Option<usize>,
    /// Nodes of the witnesses: `(node, number of witnesses)`, in the order of their first
    /// addresses.
    pub(super) homes: Vec<(usize, usize)>,
}

/// A sampled base page, in 16 bytes: a million of them are sorted by address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Witness {
    address: u64,
    /// Or [`UNKNOWN_NODE`].
    home: u16,
    /// The only accessing node, or the first of several.
    node: u16,
    /// Sampled accesses, saturating.
    accesses: u16,
    is_shared: bool,
    is_written: bool,
}

const _: () = assert!(size_of::<Witness>() <= 16);

impl Witness {
    /// Of a base page.
    pub(super) fn of(page: &Page<'_>) -> Option<Self> {
        if page.shift != PAGE_SHIFT {
            return None;
        }
        let seen = page.accessors()?;
        Some(Self {
            address: page.address,
            home: page.home.map_or(UNKNOWN_NODE, |home| home as u16),
            node: seen.first as u16,
            accesses: seen.total.min(u32::from(u16::MAX)) as u16,
            is_shared: seen.is_shared,
            is_written: page.stores > 0,
        })
    }

    fn home(&self) -> Option<usize> {
        (self.home != UNKNOWN_NODE).then_some(usize::from(self.home))
    }

    /// Whether the same node is the only accessor of both.
    fn is_like(&self, other: &Self) -> bool {
        !self.is_shared && !other.is_shared && self.node == other.node
    }

    fn end(&self) -> u64 {
        self.address + (1 << PAGE_SHIFT)
    }
}

/// Prefix sums over the witnesses. The sum of a window is the difference of two of them.
#[derive(Clone, Copy, Default)]
struct Sums {
    accesses: u32,
    deciding: u32,
    shared: u32,
    written: u32,
    /// Index of the first witness of the present run with one and the same only accessor.
    alike_since: u32,
}

impl Sums {
    /// Returns one sum more than there are witnesses.
    fn of(witnesses: &[Witness], needed: u32) -> Vec<Self> {
        let mut sums = Vec::with_capacity(witnesses.len() + 1);
        let mut sum = Self::default();
        sums.push(sum);
        for (place, witness) in witnesses.iter().enumerate() {
            let decides = u32::from(witness.accesses) >= needed;
            // Differences are right even if the sum has wrapped.
            sum.accesses = sum.accesses.wrapping_add(u32::from(witness.accesses));
            sum.deciding += u32::from(decides);
            sum.shared += u32::from(decides && witness.is_shared);
            sum.written += u32::from(witness.is_written);
            if place == 0 || !witness.is_like(&witnesses[place - 1]) {
                sum.alike_since = place as u32;
            }
            sums.push(sum);
        }
        sums
    }
}

impl Between {
    /// Requires more accesses for a private page if most deciding pages are shared. Two accesses to
    /// a page that four nodes share come from the same node in a fourth of all cases. A private
    /// page then needs as many accesses as a gap.
    pub(super) fn ask_more_where_most_is_shared(
        &self,
        markers: &mut [Option<Marker<'_>>],
        model: &Model,
    ) {
        let mut shared = alloc::vec![0_i64; markers.len()];
        for page in model.pages.iter() {
            let Some(marker) = &markers[page.app] else { continue };
            let deciding = |seen: &Accessors| seen.total >= marker.needed_private;
            if let Some(seen) = page.accessors().filter(deciding) {
                shared[page.app] += if seen.is_shared { 1 } else { -1 };
            }
        }
        for (marker, shared) in markers.iter_mut().zip(shared) {
            if let Some(marker) = marker.as_mut().filter(|_| shared > 0) {
                marker.needed_private = marker.needed_private.max(self.private_accesses);
            }
        }
    }

    /// The gaps of one application, ascending. `needed` accesses decide about a page by itself;
    /// `witnesses` may come in any order.
    pub(super) fn gaps(&self, mut witnesses: Vec<Witness>, needed: u32) -> Vec<Gap> {
        witnesses.sort_unstable_by_key(|witness| witness.address);
        let sums = Sums::of(&witnesses, needed);
        let reach = self.reach << PAGE_SHIFT;
        let mut gaps = Vec::new();
        for (place, pair) in witnesses.windows(2).enumerate() {
            let (before, after) = (&pair[0], &pair[1]);
            // A page with too few samples is part of the gap behind it.
            let (begin, first_home) = match u32::from(before.accesses) < needed {
                true => (before.address, before.home()),
                false => (before.end(), None),
            };
            if begin >= after.address || after.address - before.end() > reach {
                continue;
            }
            if let Some((owner, around)) = self.ask(&witnesses, &sums, place) {
                let homes = homes(&witnesses[around]);
                gaps.push(Gap { addresses: begin..after.address, owner, first_home, homes });
            }
        }
        gaps
    }

    /// Uses the nearest witnesses on each side, then twice as many, until they decide.
    fn ask(
        &self,
        witnesses: &[Witness],
        sums: &[Sums],
        place: usize,
    ) -> Option<(Owner, Range<usize>)> {
        let reach = self.reach << PAGE_SHIFT;
        let (before, after) = (witnesses[place].address, witnesses[place + 1].address);
        let mut asked = self.first_asked;
        while asked <= self.witnesses {
            let nearest = (place + 1).saturating_sub(asked)..=place;
            let near = |&i: &usize| before - witnesses[i].address <= reach;
            let first = nearest.clone().find(near).unwrap_or(place);
            let nearest = place + 1..(place + 1 + asked).min(witnesses.len());
            let near = |&i: &usize| witnesses[i].address - after <= reach;
            let end = nearest.rev().find(near).unwrap_or(place + 1) + 1;
            if let Some(owner) = self.owner(witnesses, sums, first..end) {
                return Some((owner, first..end));
            }
            asked *= 2;
        }
        None
    }

    fn owner(&self, witnesses: &[Witness], sums: &[Sums], around: Range<usize>) -> Option<Owner> {
        let (before, after) = (sums[around.start], sums[around.end]);
        let last = &witnesses[around.end - 1];
        if !last.is_shared && after.alike_since as usize <= around.start {
            let accesses = after.accesses.wrapping_sub(before.accesses);
            let owner = Owner::Node(usize::from(last.node));
            return (accesses >= self.private_accesses).then_some(owner);
        }
        let deciding = after.deciding - before.deciding;
        let shared = after.shared - before.shared;
        let owner = if after.written > before.written { Owner::Several } else { Owner::Readers };
        (deciding >= self.deciding && 2 * shared >= deciding).then_some(owner)
    }
}

impl Gap {
    /// The node of a page of the gap; `guess` for pages without samples.
    pub(super) fn home_of(&self, address: u64, guess: usize) -> usize {
        self.first_home.filter(|_| address == self.addresses.start).unwrap_or(guess)
    }
}

fn homes(witnesses: &[Witness]) -> Vec<(usize, usize)> {
    let mut homes: Vec<(usize, usize)> = Vec::new();
    for home in witnesses.iter().filter_map(Witness::home) {
        match homes.iter_mut().find(|(other, _)| *other == home) {
            Some((_, count)) => *count += 1,
            None => homes.push((home, 1)),
        }
    }
    homes
}
