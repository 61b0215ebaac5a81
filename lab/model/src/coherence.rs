//! The coherence protocol: chooses the cache or memory that supplies a line, and updates the other
//! copies.
//!
//! MESI over an exact directory. A read of a line that another domain has modified also writes the
//! line back to memory, so it is clean everywhere afterwards. Inside a domain it stays modified, in
//! the last-level cache. A store removes the line from all other caches.
//!
//! The last-level cache is a *victim* cache. It receives the lines that the second levels of its
//! domain drop, and keeps a line that is read from it. It is not inclusive, because the lab shrinks
//! it with the working sets but hardly shrinks the private levels. An inclusive cache smaller than
//! the second levels above it would evict their lines.

use crate::directory::{Entry, Owner};
use crate::event::Event;
use crate::hardware::{Cpu, Hardware};
use crate::source::Source;
use crate::traffic::Kind;

/// The cache or memory that answers for a line that the private levels do not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supplier {
    /// The own domain's last-level cache.
    LastLevel,
    /// Another cache: its node and domain, the vCPU if it is a private one, modified or not.
    Cache { node: usize, domain: usize, cpu: Option<usize>, dirty: bool },
    /// DRAM of the home node.
    Memory,
}

/// A line brought to a vCPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetched {
    pub(crate) source: Source,
    pub(crate) latency_ps: u64,
    pub(crate) transfer_from: Option<usize>,
}

impl Hardware {
    /// Brings `line` to `cpu`, which does not hold it, and counts where it came from.
    pub(crate) fn fetch(&mut self, cpu: usize, line: u32, home: usize, store: bool) -> Fetched {
        let entry = self.directory.get(line);
        let supplier = self.supplier(cpu, entry, home);
        let fetched = self.supply(cpu, supplier, home, store);
        if store {
            self.invalidate_others(cpu, line, entry);
            self.directory.set(line, Entry::new(1 << cpu, 0, Owner::Cpu(cpu)));
        } else {
            let shared = self.share(cpu, line, entry, supplier, home);
            self.directory.set(line, shared);
        }
        self.fill_second(cpu, line);
        fetched
    }

    fn supplier(&self, cpu: usize, entry: Entry, home: usize) -> Supplier {
        let own = self.cpus[cpu].domain;
        match entry.owner() {
            Owner::Cpu(owner) => {
                let (node, domain) = (self.cpus[owner].node, self.cpus[owner].domain);
                return Supplier::Cache { node, domain, cpu: Some(owner), dirty: true };
            }
            Owner::Domain(domain) if domain != own => {
                let node = self.groups.node_of_domain[domain];
                return Supplier::Cache { node, domain, cpu: None, dirty: true };
            }
            _ => {}
        }
        if entry.domains() >> own & 1 == 1 {
            return Supplier::LastLevel;
        }
        if entry == Entry::default() {
            return Supplier::Memory;
        }
        self.clean_supplier(cpu, entry, home)
    }

    /// A cache that answers for a clean line. A cache of the node answers if it is nearer than
    /// DRAM. Where the protocol has a forwarder, a cache of another node answers, although DRAM
    /// might be nearer.
    fn clean_supplier(&self, cpu: usize, entry: Entry, home: usize) -> Supplier {
        let (node, own) = (self.cpus[cpu].node, self.cpus[cpu].domain);
        let groups = &self.groups;
        let clean = |node, domain| Supplier::Cache { node, domain, cpu: None, dirty: false };
        if entry.sharers() & groups.cpus_of_domain[own] != 0 {
            return clean(node, own);
        }
        let dram_ps = self.network.unloaded_ps(node, home);
        let held = |node: usize| {
            let private = entry.sharers() & groups.cpus_of_node[node];
            let last = entry.domains() & groups.domains_of_node[node];
            if last != 0 {
                return Some(last.trailing_zeros() as usize);
            }
            (private != 0).then(|| self.cpus[private.trailing_zeros() as usize].domain)
        };
        if self.latencies.same_node < dram_ps
            && let Some(domain) = held(node)
        {
            return clean(node, domain);
        }
        if self.forwards_clean {
            for &other in &groups.nearest[node] {
                if let Some(domain) = held(other) {
                    return clean(other, domain);
                }
            }
        }
        Supplier::Memory
    }

    /// Counts and times the answer.
    fn supply(&mut self, cpu: usize, supplier: Supplier, home: usize, store: bool) -> Fetched {
        let (node, own) = (self.cpus[cpu].node, self.cpus[cpu].domain);
        let (source, latency_ps, transfer_from) = match supplier {
            Supplier::LastLevel => (Source::Llc, self.latencies.last, None),
            Supplier::Cache { node: holder, domain, cpu, dirty } if holder == node => {
                let other_domain = domain != own;
                let latency = &self.latencies;
                let latency = if other_domain { latency.same_node } else { latency.same_domain };
                (Source::CacheSameNode { dirty, other_domain }, latency, cpu)
            }
            Supplier::Cache { node: holder, cpu, dirty, .. } => {
                let latency = self.network.transfer(node, holder);
                (Source::CacheRemote { dirty, node: holder }, latency, cpu)
            }
            Supplier::Memory => {
                let kind = if store { Kind::Store } else { Kind::Load };
                (Source::Dram { node: home }, self.network.read(kind, node, home), None)
            }
        };
        self.count_source(cpu, source, latency_ps, store);
        Fetched { source, latency_ps, transfer_from }
    }

    fn count_source(&mut self, cpu: usize, source: Source, latency_ps: u64, store: bool) {
        let cpu = &mut self.cpus[cpu];
        let counters = &mut cpu.counters;
        if source == Source::Llc {
            counters.add(Event::LlcHit, 1);
            return;
        }
        counters.add(Event::LlcMiss, 1);
        let event = match source {
            Source::CacheSameNode { dirty: true, .. } => Event::LocalHitm,
            Source::CacheSameNode { dirty: false, .. } => Event::LocalFwd,
            Source::CacheRemote { dirty: true, .. } => Event::RemoteHitm,
            Source::CacheRemote { dirty: false, .. } => Event::RemoteFwd,
            Source::Dram { node } => {
                counters.add(Event::DramLatency, latency_ps);
                counters.add(Event::DramStores, u64::from(store));
                counters.read_node(node);
                if node == cpu.node { Event::LocalDram } else { Event::RemoteDram }
            }
            other => unreachable!("{other:?} does not answer a last-level miss"),
        };
        counters.add(event, 1);
    }

    /// The other copies when `cpu` reads `line`; returns the new entry.
    fn share(
        &mut self,
        cpu: usize,
        line: u32,
        entry: Entry,
        supplier: Supplier,
        home: usize,
    ) -> Entry {
        let own = self.cpus[cpu].domain;
        let sharers = entry.sharers() | 1 << cpu;
        match supplier {
            Supplier::LastLevel => {
                self.last_levels[own].touch(line);
                Entry::new(sharers, entry.domains(), entry.owner())
            }
            Supplier::Cache { domain, cpu: Some(owner), dirty: true, .. } if domain == own => {
                self.cpus[owner].first.forbid_stores(line);
                self.fill_last(cpu, own, line);
                Entry::new(sharers, 1 << own, Owner::Domain(own))
            }
            Supplier::Cache { node, cpu: holder, dirty: true, .. } => {
                if let Some(owner) = holder {
                    self.cpus[owner].first.forbid_stores(line);
                }
                self.write_back(cpu, node, home);
                Entry::new(sharers, entry.domains(), Owner::Nobody)
            }
            _ => Entry::new(sharers, entry.domains(), entry.owner()),
        }
    }

    /// Makes `cpu`, which holds `line`, its owner. Returns what that takes, ps: nothing if it was
    /// the only holder, else until the farthest other copy is gone.
    pub(crate) fn own(&mut self, cpu: usize, line: u32) -> u64 {
        let entry = self.directory.get(line);
        if entry.owner() == Owner::Cpu(cpu) {
            return 0;
        }
        let latency_ps = self.farthest_copy_ps(cpu, entry);
        if latency_ps > 0 {
            self.cpus[cpu].counters.add(Event::Upgrades, 1);
        }
        self.invalidate_others(cpu, line, entry);
        self.directory.set(line, Entry::new(1 << cpu, 0, Owner::Cpu(cpu)));
        latency_ps
    }

    fn farthest_copy_ps(&self, cpu: usize, entry: Entry) -> u64 {
        let (node, own) = (self.cpus[cpu].node, self.cpus[cpu].domain);
        // A copy in the own last-level cache is dropped on the way, by the same look-up.
        let sharers = bits(entry.sharers() & !(1 << cpu)).map(|other| &self.cpus[other]);
        let private = sharers.map(|other| (other.node, other.domain));
        let domains = bits(entry.domains() & !(1 << own));
        let shared = domains.map(|domain| (self.groups.node_of_domain[domain], domain));
        let latency = |(holder, domain): (usize, usize)| {
            if domain == own {
                self.latencies.same_domain
            } else if holder == node {
                self.latencies.same_node
            } else {
                self.network.unloaded_transfer_ps(node, holder)
            }
        };
        private.chain(shared).map(latency).max().unwrap_or(0)
    }

    fn invalidate_others(&mut self, cpu: usize, line: u32, entry: Entry) {
        for other in bits(entry.sharers() & !(1 << cpu)) {
            let other = &mut self.cpus[other];
            other.first.remove(line);
            other.second.remove(line);
            other.counters.add(Event::Invalidations, 1);
        }
        for domain in bits(entry.domains()) {
            self.last_levels[domain].remove(line);
        }
    }

    /// Takes `line` into the second level of `cpu`; its victim goes to the last level.
    ///
    /// Lines that the first level holds are spared. The second level includes the first and does
    /// not see its hits, so it would throw out what is used most.
    pub(crate) fn fill_second(&mut self, cpu: usize, line: u32) {
        let Cpu { first, second, domain, .. } = &mut self.cpus[cpu];
        let domain = *domain;
        let Some(victim) = second.insert(line, |held| first.holds(held)) else { return };
        first.remove(victim);
        let entry = self.directory.get(victim);
        let sharers = entry.sharers() & !(1 << cpu);
        let last = entry.domains();
        let dirty = entry.owner() == Owner::Cpu(cpu);
        let owner = if dirty { Owner::Domain(domain) } else { entry.owner() };
        let held_in_domain =
            last >> domain & 1 == 1 || sharers & self.groups.cpus_of_domain[domain] != 0;
        if dirty || !held_in_domain {
            self.directory.set(victim, Entry::new(sharers, last | 1 << domain, owner));
            self.fill_last(cpu, domain, victim);
        } else {
            self.directory.set(victim, Entry::new(sharers, last, owner));
        }
    }

    /// Takes `line`, which is not there, into a last-level cache; the caller keeps its record.
    fn fill_last(&mut self, cpu: usize, domain: usize, line: u32) {
        let Some(victim) = self.last_levels[domain].insert(line, |_| false) else { return };
        let entry = self.directory.get(victim);
        let mut owner = entry.owner();
        if owner == Owner::Domain(domain) {
            owner = Owner::Nobody;
            let home = self.memory.home_of_line(victim);
            self.write_back(cpu, self.groups.node_of_domain[domain], home);
        }
        let domains = entry.domains() & !(1 << domain);
        self.directory.set(victim, Entry::new(entry.sharers(), domains, owner));
    }

    fn write_back(&mut self, cpu: usize, writer: usize, home: usize) {
        self.network.write_back(writer, home);
        self.cpus[cpu].counters.add(Event::Writebacks, 1);
    }

    /// Brings `line` into the second level ahead of demand. Returns its latency, or `None` where
    /// it would disturb others: it is held here already, or modified elsewhere.
    pub(crate) fn prefetch(
        &mut self,
        cpu: usize,
        line: u32,
        home: usize,
        kind: Kind,
    ) -> Option<u64> {
        let entry = self.directory.get(line);
        let (node, own) = (self.cpus[cpu].node, self.cpus[cpu].domain);
        let quiet = match entry.owner() {
            Owner::Nobody => true,
            Owner::Cpu(_) => false,
            Owner::Domain(domain) => domain == own,
        };
        if !quiet || entry.sharers() >> cpu & 1 == 1 {
            return None;
        }
        let latency_ps = if entry.domains() >> own & 1 == 1 {
            self.latencies.last
        } else {
            let latency_ps = self.network.read(kind, node, home);
            let counters = &mut self.cpus[cpu].counters;
            counters.add(Event::PrefetchDram, 1);
            counters.add(Event::PrefetchLatency, latency_ps);
            counters.read_node(home);
            latency_ps
        };
        let sharers = entry.sharers() | 1 << cpu;
        self.directory.set(line, Entry::new(sharers, entry.domains(), entry.owner()));
        self.fill_second(cpu, line);
        Some(latency_ps)
    }
}

/// The numbers of the bits that are set, lowest first.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let lowest = set.trailing_zeros() as usize;
            set &= set - 1;
            lowest
        })
    })
}
