//! Records of sampled pages: the accessing nodes, the number of accesses and of writes. With up to
//! eight nodes a record takes at most 64 bytes, hash table included. With more nodes, a record
//! holds the first four accessing nodes; a list outside of the record holds more.
//!
//! Records are in the order of the first sample of each page. The hash table only finds records.

use crate::limits::{DENSE_NODES, MAX_TRACKED_PAGES};
use crate::observation::UNKNOWN_NODE;
use crate::units::{Bytes, PAGE_SHIFT};
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Index of a page record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// Sampled pages of one interval.
#[derive(Debug, Clone)]
pub struct Pages {
    node_count: usize,
    capacity: usize,
    records: Vec<Record>,
    index: HashTable<u32>,
    /// Accesses of pages that more than four nodes of a large machine touched, in the order in
    /// which the fifth node was seen.
    spilled: Vec<Vec<(u16, u16)>>,
    ignored: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    /// First address.
    address: u64,
    /// Index of the process.
    app: u32,
    /// Sampled stores, saturating.
    stores: u16,
    /// Sampled loads that memory served, saturating.
    memory_reads: u16,
    /// Node that holds the page, or [`UNKNOWN_NODE`].
    home: u16,
    /// Dense: count of node i. Sparse: pairs (node + 1, count); the first free pair is (0, 0).
    /// Spilled: the index of the list, low half first.
    counts: [u16; DENSE_NODES],
    shift: u8,
    is_spilled: bool,
    leaves_caches: bool,
}

const _: () =
    assert!(size_of::<Record>() <= 48, "a record and its share of the table fit in 64 bytes");

impl Record {
    /// Replaces the counts by the index of a list. There are fewer lists than records, so 32 bits
    /// hold the index.
    fn spill_to(&mut self, place: usize) {
        self.is_spilled = true;
        self.counts = [0; DENSE_NODES];
        (self.counts[0], self.counts[1]) = (place as u16, (place >> 16) as u16);
    }

    fn spill_place(&self) -> usize {
        usize::from(self.counts[0]) | usize::from(self.counts[1]) << 16
    }
}

/// One sampled page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'a> {
    /// Its index.
    pub id: PageId,
    /// Index of its process in [`crate::Model::apps`].
    pub app: usize,
    /// First address.
    pub address: u64,
    /// log2 of its size.
    pub shift: u8,
    /// Node that holds it, if known.
    pub home: Option<usize>,
    /// Sampled stores.
    pub stores: u32,
    /// Sampled loads that memory served.
    pub memory_reads: u32,
    /// Whether an access went beyond the private caches of its CPU.
    pub leaves_caches: bool,
    accesses: Accesses<'a>,
}

/// Sampled accesses of one page by accessing node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accesses<'a> {
    /// Count of node i at place i.
    Dense(&'a [u16]),
    /// (node + 1, count) pairs one after the other, ended by zeros.
    Pairs(&'a [u16]),
    /// (node, count), in the order first seen.
    Spilled(&'a [(u16, u16)]),
}

/// Summary of the accesses to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accessors {
    /// The node that [`Page::accesses`] gives first.
    pub first: usize,
    /// Whether other nodes accessed it too.
    pub is_shared: bool,
    /// All sampled accesses.
    pub total: u32,
}

impl Page<'_> {
    /// `(node, sampled accesses)` of the nodes that accessed it, ascending on machines of up to
    /// eight nodes.
    pub fn accesses(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let (dense, pairs, spilled) = match &self.accesses {
            Accesses::Dense(counts) => (*counts, &[][..], &[][..]),
            Accesses::Pairs(pairs) => (&[][..], *pairs, &[][..]),
            Accesses::Spilled(list) => (&[][..], &[][..], *list),
        };
        let dense = dense.iter().enumerate().map(|(node, &count)| (node, u32::from(count)));
        let pairs = pairs
            .chunks_exact(2)
            .filter(|pair| pair[0] > 0)
            .map(|p| (usize::from(p[0]) - 1, u32::from(p[1])));
        let spilled = spilled.iter().map(|&(node, count)| (usize::from(node), u32::from(count)));
        dense.chain(pairs).chain(spilled).filter(|(_, count)| *count > 0)
    }

    /// Summary of the accesses, computed in one pass for callers with a million pages. `None`
    /// without accesses.
    #[must_use]
    pub fn accessors(&self) -> Option<Accessors> {
        let mut seen: Option<Accessors> = None;
        let mut add = |node: usize, count: u16| {
            let total = u32::from(count);
            match &mut seen {
                _ if count == 0 => {}
                None => seen = Some(Accessors { first: node, is_shared: false, total }),
                Some(seen) => {
                    seen.is_shared = true;
                    seen.total += total;
                }
            }
        };
        match self.accesses {
            Accesses::Dense(counts) => {
                counts.iter().enumerate().for_each(|(node, &count)| add(node, count));
            }
            Accesses::Pairs(pairs) => {
                let used = pairs.chunks_exact(2).take_while(|pair| pair[0] > 0);
                used.for_each(|pair| add(usize::from(pair[0]) - 1, pair[1]));
            }
            Accesses::Spilled(list) => {
                list.iter().for_each(|&(node, count)| add(usize::from(node), count));
            }
        }
        seen
    }

    /// All sampled accesses.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.accessors().map_or(0, |accessors| accessors.total)
    }

    /// Its address divided by its size.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.address >> self.shift
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(1 << self.shift)
    }
}

impl Pages {
    /// An empty table for at most `capacity` (and [`MAX_TRACKED_PAGES`]) pages.
    #[must_use]
    pub fn new(node_count: usize, capacity: usize) -> Self {
        let capacity = capacity.min(MAX_TRACKED_PAGES);
        Self {
            node_count,
            capacity,
            records: Vec::new(),
            index: HashTable::new(),
            spilled: Vec::new(),
            ignored: 0,
        }
    }

    /// An empty table with the same settings.
    #[must_use]
    pub fn cleared(&self) -> Self {
        Self::new(self.node_count, self.capacity)
    }

    /// Most pages that it tracks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for about `pages` pages at once, so that the table need not grow step by step.
    pub fn expect(&mut self, pages: usize) {
        let more = pages.min(self.capacity).saturating_sub(self.records.len());
        self.records.reserve(more);
        let records = &self.records;
        self.index.reserve(more, |&i| hash(records[i as usize].app, records[i as usize].address));
    }

    /// The part of the table, of `parts` (a power of two), that holds a page. Pages of one part are
    /// neighbours in the table, so recording part by part stays within a cache. Valid until the
    /// table grows.
    #[must_use]
    pub fn part(&self, app: u32, address: u64, parts: usize) -> usize {
        // The low bits of the hash give the place of an entry. The number of places is a power of
        // two, and the table fills at most 7/8 of them.
        let places = (self.index.capacity() * 8 / 7).next_power_of_two().max(parts);
        let shift = places.trailing_zeros() - parts.trailing_zeros();
        (hash(app, address) >> shift) as usize & (parts - 1)
    }

    /// Frees unused memory if it is a quarter or more.
    pub fn shrink(&mut self) {
        if self.records.capacity() <= self.records.len() / 4 * 5 {
            return;
        }
        self.records.shrink_to_fit();
        let records = &self.records;
        self.index.shrink_to_fit(|&i| hash(records[i as usize].app, records[i as usize].address));
    }

    /// Adds one access. In a full table, an access to a new page is only counted as ignored; known
    /// pages are still recorded [author code].
    pub fn record(
        &mut self,
        app: u32,
        address: u64,
        shift: u8,
        home: u16,
        node: u16,
        store: bool,
    ) -> Option<PageId> {
        let id = self.find_or_add(app, address, shift)?;
        let record = &mut self.records[id.0 as usize];
        record.stores = record.stores.saturating_add(u16::from(store));
        if home != UNKNOWN_NODE {
            record.home = home;
        }
        if self.node_count <= DENSE_NODES {
            let count = &mut record.counts[usize::from(node)];
            *count = count.saturating_add(1);
        } else {
            self.record_sparse(id, node, 1);
        }
        Some(id)
    }

    /// Adds the source of an access that [`Self::record`] has counted.
    pub fn note_answer(&mut self, id: PageId, memory_read: bool, leaves_caches: bool) {
        let record = &mut self.records[id.0 as usize];
        record.memory_reads = record.memory_reads.saturating_add(u16::from(memory_read));
        record.leaves_caches |= leaves_caches;
    }

    /// Adds the accesses to a page in another interval, where its process may have had another
    /// index. `None` if the table is full.
    pub fn add(&mut self, page: &Page<'_>, app: u32) -> Option<PageId> {
        let id = self.find_or_add(app, page.address, page.shift)?;
        let record = &mut self.records[id.0 as usize];
        record.stores = record.stores.saturating_add(page.stores.min(u32::from(u16::MAX)) as u16);
        let reads = page.memory_reads.min(u32::from(u16::MAX)) as u16;
        record.memory_reads = record.memory_reads.saturating_add(reads);
        record.leaves_caches |= page.leaves_caches;
        if let Some(home) = page.home {
            record.home = home as u16;
        }
        for (node, count) in page.accesses() {
            let count = count.min(u32::from(u16::MAX)) as u16;
            if self.node_count <= DENSE_NODES {
                let sum = &mut self.records[id.0 as usize].counts[node];
                *sum = sum.saturating_add(count);
            } else {
                self.record_sparse(id, node as u16, count);
            }
        }
        Some(id)
    }

    /// The page of a process (its index) that begins at an address, if it was sampled.
    #[must_use]
    pub fn find(&self, app: usize, address: u64) -> Option<Page<'_>> {
        self.id_of(app as u32, address).map(|id| self.get(id))
    }

    fn id_of(&self, app: u32, address: u64) -> Option<PageId> {
        let records = &self.records;
        let same =
            |&i: &u32| records[i as usize].address == address && records[i as usize].app == app;
        self.index.find(hash(app, address), same).copied().map(PageId)
    }

    fn find_or_add(&mut self, app: u32, address: u64, shift: u8) -> Option<PageId> {
        if let Some(id) = self.id_of(app, address) {
            return Some(id);
        }
        if self.records.len() >= self.capacity {
            self.ignored += 1;
            return None;
        }
        let id = self.records.len() as u32;
        let counts = [0; DENSE_NODES];
        let shift = shift.max(PAGE_SHIFT);
        self.records.push(Record {
            address,
            app,
            stores: 0,
            memory_reads: 0,
            home: UNKNOWN_NODE,
            counts,
            shift,
            is_spilled: false,
            leaves_caches: false,
        });
        let records = &self.records;
        let rehash = |&i: &u32| hash(records[i as usize].app, records[i as usize].address);
        self.index.insert_unique(hash(app, address), id, rehash);
        Some(PageId(id))
    }

    fn record_sparse(&mut self, id: PageId, node: u16, times: u16) {
        let record = &mut self.records[id.0 as usize];
        if record.is_spilled {
            return count_in(&mut self.spilled[record.spill_place()], node, times);
        }
        for pair in record.counts.chunks_exact_mut(2) {
            if pair[0] == node + 1 || pair[0] == 0 {
                pair[0] = node + 1;
                pair[1] = pair[1].saturating_add(times);
                return;
            }
        }
        let mut list: Vec<(u16, u16)> =
            record.counts.chunks_exact(2).map(|pair| (pair[0] - 1, pair[1])).collect();
        count_in(&mut list, node, times);
        record.spill_to(self.spilled.len());
        self.spilled.push(list);
    }

    /// How many pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no page was sampled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Accesses to new pages that came when the table was full.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// One page.
    #[must_use]
    pub fn get(&self, id: PageId) -> Page<'_> {
        let record = &self.records[id.0 as usize];
        let accesses = if self.node_count <= DENSE_NODES {
            Accesses::Dense(&record.counts[..self.node_count])
        } else if record.is_spilled {
            Accesses::Spilled(&self.spilled[record.spill_place()])
        } else {
            Accesses::Pairs(&record.counts)
        };
        Page {
            id,
            app: record.app as usize,
            address: record.address,
            shift: record.shift,
            home: (record.home != UNKNOWN_NODE).then_some(usize::from(record.home)),
            stores: u32::from(record.stores),
            memory_reads: u32::from(record.memory_reads),
            leaves_caches: record.leaves_caches,
            accesses,
        }
    }

    /// All pages in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = Page<'_>> {
        (0..self.records.len() as u32).map(|id| self.get(PageId(id)))
    }

    /// Memory of the table, for tests of its size per page.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        // A slot of the hash table is a 32-bit index and one control byte. A spilled list is its
        // pairs and their pointer.
        let index = self.index.capacity() * 8 / 7 * (size_of::<u32>() + 1);
        let spilled: usize = self.spilled.iter().map(|list| list.capacity() * 4).sum();
        let spilled = spilled + self.spilled.capacity() * size_of::<Vec<(u16, u16)>>();
        Bytes((self.records.capacity() * size_of::<Record>() + index + spilled) as u64)
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        self.records == other.records
            && self.spilled == other.spilled
            && self.ignored == other.ignored
    }
}

fn count_in(list: &mut Vec<(u16, u16)>, node: u16, times: u16) {
    match list.iter_mut().find(|(seen, _)| *seen == node) {
        Some((_, count)) => *count = count.saturating_add(times),
        None => list.push((node, times)),
    }
}

/// A multiplicative hash of page number and process, with fixed constants. It only finds records;
/// no order depends on it.
fn hash(app: u32, address: u64) -> u64 {
    let mixed = (address >> PAGE_SHIFT) ^ (u64::from(app) << 44);
    let product = u128::from(mixed ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xd6e8_feb8_6659_fd93_u64);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
