//! The directory: for every physical line, which caches hold it and who has it modified.
//!
//! Exact, not a hint: private caches and last-level caches report every line that they drop. What
//! must always hold (`invariants.rs` tests it):
//! a vCPU that owns a line is its only holder; a last-level cache that owns a line is the only
//! last-level cache with it, and only vCPUs of its domain hold it too.

/// Lines of one lazily allocated piece: 2 MiB of memory.
const CHUNK: usize = 1 << 15;

/// vCPUs and cache domains that an entry has room for.
pub(crate) const MAX_HOLDERS: usize = 28;
const MASK: u64 = (1 << MAX_HOLDERS) - 1;
const DOMAINS_SHIFT: u32 = MAX_HOLDERS as u32;
const OWNER_SHIFT: u32 = 2 * MAX_HOLDERS as u32;
/// Owner codes: 0 nobody, 1.. vCPUs, 65.. domains.
const DOMAIN_CODE: u64 = 64;

/// Who has a line modified.
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
    /// vCPUs whose private caches hold the line, one bit each.
    #[inline]
    pub(crate) fn sharers(self) -> u32 {
        (self.0 & MASK) as u32
    }

    /// Cache domains whose last-level cache holds the line, one bit each.
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

/// The records of all lines; memory is taken 256 KiB at a time where lines are first cached.
#[derive(Debug)]
pub(crate) struct Directory {
    chunks: Vec<Option<Box<[Entry]>>>,
}

impl Directory {
    /// A directory for lines below `end_line`.
    pub(crate) fn new(end_line: u32) -> Directory {
        Directory { chunks: vec![None; (end_line as usize).div_ceil(CHUNK)] }
    }

    #[inline]
    pub(crate) fn get(&self, line: u32) -> Entry {
        match &self.chunks[line as usize / CHUNK] {
            Some(chunk) => chunk[line as usize % CHUNK],
            None => Entry::default(),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, line: u32, entry: Entry) {
        let chunk = &mut self.chunks[line as usize / CHUNK];
        let chunk = chunk.get_or_insert_with(|| vec![Entry::default(); CHUNK].into_boxed_slice());
        chunk[line as usize % CHUNK] = entry;
    }

    /// All lines that some cache holds.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, Entry)> {
        let chunks = self.chunks.iter().enumerate();
        let entries = chunks.flat_map(|(index, chunk)| {
            let entries = chunk.iter().flat_map(|chunk| chunk.iter().enumerate());
            entries.map(move |(offset, &entry)| ((index * CHUNK + offset) as u32, entry))
        });
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
        let mut directory = Directory::new(3 * CHUNK as u32);
        let line = 2 * CHUNK as u32 + 5;
        directory.set(line, Entry::new(2, 0, Owner::Cpu(1)));
        assert_eq!(directory.get(line).owner(), Owner::Cpu(1));
        assert_eq!(directory.get(line - 1), Entry::default());
        assert_eq!(directory.get(0), Entry::default());
        assert_eq!(directory.lines().count(), 1);
    }
}
