//! Traffic between nodes, in lines, by kind: the accumulators of the hot path.

/// Why a line travelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A demand load read it from DRAM.
    Load = 0,
    /// A demand store read it from DRAM, to own it.
    Store = 1,
    /// The prefetcher of a load stream read it from DRAM.
    LoadPrefetch = 2,
    /// The prefetcher of a store stream read it from DRAM.
    StorePrefetch = 3,
    /// It was modified and goes back to DRAM; the accessing node is the writer's.
    Writeback = 4,
    /// Another node's cache handed it over; the holding node is that cache's.
    Transfer = 5,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] = [
        Kind::Load,
        Kind::Store,
        Kind::LoadPrefetch,
        Kind::StorePrefetch,
        Kind::Writeback,
        Kind::Transfer,
    ];
    /// The kinds that read DRAM.
    pub const DRAM_READS: [Kind; 4] =
        [Kind::Load, Kind::Store, Kind::LoadPrefetch, Kind::StorePrefetch];
}

/// Lines moved since power-on, `[accessing node][holding node]` for each [`Kind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    nodes: usize,
    lines: [Vec<u64>; Kind::ALL.len()],
    latency_ps: [Vec<u64>; Kind::ALL.len()],
}

impl Traffic {
    pub(crate) fn new(nodes: usize) -> Traffic {
        let zeros = || vec![0; nodes * nodes];
        Traffic {
            nodes,
            lines: std::array::from_fn(|_| zeros()),
            latency_ps: std::array::from_fn(|_| zeros()),
        }
    }

    /// Counts one line of `kind` for `pair` (see [`Traffic::pair`]), which took `latency_ps`.
    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, pair: usize, latency_ps: u64) {
        self.lines[kind as usize][pair] += 1;
        self.latency_ps[kind as usize][pair] += latency_ps;
    }

    /// Lines moved since `earlier`, and their latencies' sum in ps.
    pub(crate) fn since(&self, earlier: &Traffic, kind: Kind, pair: usize) -> (u64, u64) {
        let kind = kind as usize;
        (
            self.lines[kind][pair] - earlier.lines[kind][pair],
            self.latency_ps[kind][pair] - earlier.latency_ps[kind][pair],
        )
    }

    /// Takes over the numbers of `other`, without allocating.
    pub(crate) fn copy_from(&mut self, other: &Traffic) {
        for (to, from) in self.lines.iter_mut().zip(&other.lines) {
            to.copy_from_slice(from);
        }
        for (to, from) in self.latency_ps.iter_mut().zip(&other.latency_ps) {
            to.copy_from_slice(from);
        }
    }

    #[inline]
    pub(crate) fn pair(&self, accessing: usize, holding: usize) -> usize {
        accessing * self.nodes + holding
    }

    /// Nodes of the machine.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Lines of `kind` that `accessing` had to do with at `holding`.
    #[must_use]
    pub fn lines(&self, kind: Kind, accessing: usize, holding: usize) -> u64 {
        self.lines[kind as usize][self.pair(accessing, holding)]
    }

    /// The same in bytes.
    #[must_use]
    pub fn bytes(&self, kind: Kind, accessing: usize, holding: usize) -> u64 {
        self.lines(kind, accessing, holding) * crate::LINE_BYTES
    }

    /// Lines that `accessing` read from DRAM of `holding`, demand and prefetch.
    #[must_use]
    pub fn dram_reads(&self, accessing: usize, holding: usize) -> u64 {
        Kind::DRAM_READS.iter().map(|&kind| self.lines(kind, accessing, holding)).sum()
    }

    /// The mean latency in ps of all lines of the given kinds, all nodes; `None` if there are none.
    #[must_use]
    pub fn mean_latency_ps(&self, kinds: &[Kind]) -> Option<u64> {
        let sum = |table: &[Vec<u64>]| -> u64 {
            kinds.iter().map(|&kind| table[kind as usize].iter().sum::<u64>()).sum()
        };
        sum(&self.latency_ps).checked_div(sum(&self.lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_by_pair_and_kind() {
        let mut traffic = Traffic::new(3);
        let earlier = traffic.clone();
        let pair = traffic.pair(1, 2);
        traffic.add(Kind::Load, pair, 100);
        traffic.add(Kind::LoadPrefetch, pair, 300);
        traffic.add(Kind::Writeback, pair, 0);
        assert_eq!(traffic.dram_reads(1, 2), 2);
        assert_eq!(traffic.dram_reads(2, 1), 0);
        assert_eq!(traffic.bytes(Kind::Writeback, 1, 2), 64);
        assert_eq!(traffic.mean_latency_ps(&Kind::DRAM_READS), Some(200));
        assert_eq!(traffic.mean_latency_ps(&[Kind::Transfer]), None);
        assert_eq!(traffic.since(&earlier, Kind::LoadPrefetch, pair), (1, 300));
    }
}
