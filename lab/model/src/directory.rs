//! The directory: for every physical line, which caches hold it and which of them has it modified.
//!
//! Exact, not a hint: private caches and last-level caches report every line that they drop. What
//! must always hold (`invariants.rs` tests it):
//! - A vCPU that owns a line is its only holder.
//! - A last-level cache that owns a line is the only last-level cache with it. Only vCPUs of its
//!   domain hold it too.

/// vCPUs and cache domains that an entry has room for.
pub(crate) const MAX_HOLDERS: usize = 28;
const MASK: u64 = (1 << MAX_HOLDERS) - 1;
const DOMAINS_SHIFT: u32 = MAX_HOLDERS as u32;
const OWNER_SHIFT: u32 = 2 * MAX_HOLDERS as u32;
/// Owner codes: 0 none, 1.. vCPUs, 65.. domains.
const DOMAIN_CODE: u64 = 64;

/// The cache that has a line modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// DRAM is up to date.
    Nobody,
    /// This vCPU's private caches.
    Cpu(usize),
    /// The last-level cache of this domain.
    Domain(usize),
}

/// One line's record, packed into a word; the default is "in no cache".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry(u64);

impl Entry {
    /// vCPUs that hold the line in their private caches, one bit each.
    #[inline]
    pub(crate) fn sharers(self) -> u32 {
        (self.0 & MASK) as u32
    }

    /// Cache domains that hold the line in their last-level cache, one bit each.
    #[inline]
    pub(crate) fn domains(self) -> u32 {
        (self.0 >> DOMAINS_SHIFT & MASK) as u32
    }

    #[inline]
    pub(crate) fn owner(self) -> Owner {
        match self.0 >> OWNER_SHIFT {
            0 => Owner::Nobody,
            code if code > DOMAIN_CODE => Owner::Domain((code - DOMAIN_CODE - 1) as usize),
            code => Owner::Cpu(code as usize - 1),
        }
    }

    #[inline]
    pub(crate) fn new(sharers: u32, domains: u32, owner: Owner) -> Entry {
        let code = match owner {
            Owner::Nobody => 0,
            Owner::Cpu(cpu) => cpu as u64 + 1,
            Owner::Domain(domain) => domain as u64 + DOMAIN_CODE + 1,
        };
        Entry(u64::from(sharers) | u64::from(domains) << DOMAINS_SHIFT | code << OWNER_SHIFT)
    }
}

/// The records of all lines. One zeroed allocation, an eighth of the guest's memory. The host gives
/// it real pages only where lines were cached, and a look-up is one load.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Entries as words, so that the allocation needs no writing.
    entries: Box<[u64]>,
}

impl Directory {
    /// A directory for lines below `end_line`.
    pub(crate) fn new(end_line: u32) -> Directory {
        Directory { entries: vec![0; end_line as usize].into_boxed_slice() }
    }

    #[inline]
    pub(crate) fn get(&self, line: u32) -> Entry {
        Entry(self.entries[line as usize])
    }

    #[inline]
    pub(crate) fn set(&mut self, line: u32, entry: Entry) {
        self.entries[line as usize] = entry.0;
    }

    /// All lines that some cache holds.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, Entry)> {
        let entries = self.entries.iter().zip(0u32..);
        let entries = entries.map(|(&entry, line)| (line, Entry(entry)));
        entries.filter(|&(_, entry)| entry != Entry::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_gives_back_what_it_was_made_of() {
        let all = (1 << MAX_HOLDERS) - 1;
        for owner in
            [Owner::Nobody, Owner::Cpu(0), Owner::Cpu(27), Owner::Domain(0), Owner::Domain(27)]
        {
            for (sharers, domains) in [(0, 0), (1, all), (all, 1 << 27)] {
                let entry = Entry::new(sharers, domains, owner);
                assert_eq!(
                    (entry.sharers(), entry.domains(), entry.owner()),
                    (sharers, domains, owner)
                );
            }
        }
    }

    #[test]
    fn a_line_that_was_never_set_is_in_no_cache() {
        let mut directory = Directory::new(1000);
        let line = 705;
        directory.set(line, Entry::new(2, 0, Owner::Cpu(1)));
        assert_eq!(directory.get(line).owner(), Owner::Cpu(1));
        assert_eq!(directory.get(line - 1), Entry::default());
        assert_eq!(directory.get(0), Entry::default());
        assert_eq!(directory.lines().count(), 1);
    }
}
