//! Pages: the node of each, copies, and free memory.

use rondpoint_core::Pid;
use rondpoint_core::units::{Bytes, Nanos, PAGE_BYTES, PAGE_SHIFT};

use super::Plant;

/// Writes that take copies back before the kernel copies a page no more [Carrefour, 3.3.2].
const MAX_COLLAPSES: u8 = 5;

/// Pages of a process that the same threads use alike.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Index of the process.
    pub(crate) process: usize,
    /// First page, as a number within the simulated address space.
    pub(crate) first_page: u64,
    /// Node of each page.
    pub(crate) homes: Vec<u16>,
    /// Pages without copies on each node.
    pub(crate) counts: Vec<u64>,
    /// Whether a page has a copy on every node with CPUs; empty until the first copy.
    copies: Vec<bool>,
    /// How many have.
    pub(crate) copied: u64,
    /// How often a write took the copies back; empty until the first copy.
    collapses: Vec<u8>,
    pub(crate) writes: f64,
    pub(crate) reuse: f64,
    /// When its pages are freed and others allocated; `None` = not before the process ends.
    pub(super) dies: Option<Nanos>,
}

/// What became of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Done,
    InPlace,
    Elsewhere,
    Absent,
    NoMemory,
    Busy,
    Refused,
}

impl Group {
    pub(super) fn new(
        process: usize,
        (first_page, pages, nodes): (u64, usize, usize),
        (writes, reuse): (f64, f64),
    ) -> Self {
        Self {
            process,
            first_page,
            homes: vec![0; pages],
            counts: vec![0; nodes],
            copies: Vec::new(),
            copied: 0,
            collapses: Vec::new(),
            writes,
            reuse,
            dies: None,
        }
    }

    pub(crate) fn bytes(&self) -> f64 {
        (self.homes.len() as u64 * PAGE_BYTES) as f64
    }

    /// First address of a page.
    pub(crate) fn address(&self, page: usize) -> u64 {
        (self.first_page + page as u64) << PAGE_SHIFT
    }

    pub(crate) fn is_copied(&self, page: usize) -> bool {
        self.copies.get(page).copied().unwrap_or(false)
    }

    pub(crate) fn collapses(&self, page: usize) -> u8 {
        self.collapses.get(page).copied().unwrap_or(0)
    }

    /// Pages with copies.
    pub(crate) fn copied_pages(&self) -> impl Iterator<Item = usize> + '_ {
        let copied = |(page, copied): (usize, &bool)| copied.then_some(page);
        self.copies.iter().enumerate().filter_map(copied)
    }

    /// Share of the accesses of `node` that each node serves, added to `shares` with `weight`.
    pub(super) fn add_shares(&self, node: usize, weight: f64, shares: &mut [f64]) {
        let each = weight / self.homes.len() as f64;
        for (share, count) in shares.iter_mut().zip(&self.counts) {
            *share += each * *count as f64;
        }
        // A copy is near wherever it is read.
        shares[node] += each * self.copied as f64;
    }
}

impl Plant {
    /// Puts a new page on a node, or on the nearest with free memory that its process may use.
    /// Whether it has a place: without one its process was killed.
    pub(super) fn put(&mut self, group: usize, page: usize, node: usize) -> bool {
        let Some(home) = self.room(self.groups[group].process, node) else { return false };
        self.free_pages[home] -= 1;
        self.groups[group].homes[page] = home as u16;
        self.groups[group].counts[home] += 1;
        true
    }

    /// The group and place in it of an address; `None` where the process has nothing there.
    pub(crate) fn locate(&self, pid: Pid, address: u64) -> Option<(usize, usize)> {
        let page = address >> PAGE_SHIFT;
        let (first, &group) = self.by_page.range(..=page).next_back()?;
        let of = &self.groups[group];
        let process = &self.processes[of.process];
        let place = (page - first) as usize;
        let is_there = process.pid == pid && process.runs() && place < of.homes.len();
        is_there.then_some((group, place))
    }

    /// Moves one page to a node.
    pub(crate) fn move_page(&mut self, group: usize, page: usize, to: usize) -> Moved {
        let home = usize::from(self.groups[group].homes[page]);
        if home == to {
            return Moved::InPlace;
        }
        if self.groups[group].is_copied(page) {
            return Moved::Refused;
        }
        if self.free_pages.get(to).copied().unwrap_or(0) == 0 {
            return Moved::NoMemory;
        }
        self.free_pages[to] -= 1;
        self.free_pages[home] += 1;
        let group = &mut self.groups[group];
        group.counts[home] -= 1;
        group.counts[to] += 1;
        group.homes[page] = to as u16;
        Moved::Done
    }

    /// Copies one page to every node with CPUs and memory.
    pub(crate) fn copy_page(&mut self, group: usize, page: usize) -> Moved {
        let of = &self.groups[group];
        if of.is_copied(page) {
            return Moved::InPlace;
        }
        if of.collapses(page) > MAX_COLLAPSES {
            return Moved::Refused;
        }
        let home = usize::from(of.homes[page]);
        let targets = self.copy_targets(home);
        if targets.iter().any(|&node| self.free_pages[node] == 0) {
            return Moved::NoMemory;
        }
        targets.into_iter().for_each(|node| self.free_pages[node] -= 1);
        let of = &mut self.groups[group];
        of.copies.resize(of.homes.len(), false);
        of.collapses.resize(of.homes.len(), 0);
        of.copies[page] = true;
        of.copied += 1;
        of.counts[home] -= 1;
        Moved::Done
    }

    /// Takes the copies of a page back to the one at home.
    pub(crate) fn drop_copies(&mut self, group: usize, page: usize, by_write: bool) -> Moved {
        let of = &mut self.groups[group];
        if !of.is_copied(page) {
            return Moved::InPlace;
        }
        let home = usize::from(of.homes[page]);
        of.copies[page] = false;
        of.copied -= 1;
        of.counts[home] += 1;
        if by_write {
            of.collapses[page] = of.collapses[page].saturating_add(1);
        }
        self.copy_targets(home).into_iter().for_each(|node| self.free_pages[node] += 1);
        Moved::Done
    }

    fn copy_targets(&self, home: usize) -> Vec<usize> {
        self.topology.controllers().iter().filter(|&node| node != home).collect()
    }

    /// Gives all memory of a process back.
    pub(super) fn free_memory_of(&mut self, process: usize) {
        for group in self.processes[process].groups.clone().into_iter().flatten() {
            self.free_memory_of_group(group);
        }
    }

    pub(super) fn free_memory_of_group(&mut self, group: usize) {
        let copied: Vec<usize> = self.groups[group].copied_pages().collect();
        copied.into_iter().for_each(|page| {
            self.drop_copies(group, page, false);
        });
        for (free, count) in self.free_pages.iter_mut().zip(&mut self.groups[group].counts) {
            *free += std::mem::take(count);
        }
    }

    /// Gives the pages of a group, which are all free, other addresses.
    pub(super) fn readdress(&mut self, group: usize) {
        self.by_page.remove(&self.groups[group].first_page);
        let first_page = self.free_address();
        self.by_page.insert(first_page, group);
        let of = &mut self.groups[group];
        of.first_page = first_page;
        of.collapses.clear();
        of.copies.clear();
    }

    /// Free memory by node.
    pub(crate) fn free_memory(&self) -> Vec<Bytes> {
        self.free_pages.iter().map(|pages| Bytes(pages * PAGE_BYTES)).collect()
    }

    /// Pages of a process by node; a page with copies counts at home.
    pub(crate) fn pages_by_node(&self, process: usize) -> Vec<u64> {
        let mut pages = vec![0; self.topology.node_count()];
        for &group in self.processes[process].groups.iter().flatten() {
            let of = &self.groups[group];
            pages.iter_mut().zip(&of.counts).for_each(|(sum, count)| *sum += count);
            of.copied_pages().for_each(|page| pages[usize::from(of.homes[page])] += 1);
        }
        pages
    }
}
