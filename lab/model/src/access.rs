//! The path of one access below the filter: first level, second level, last level, memory.

use crate::directory::Owner;
use crate::event::Event;
use crate::hardware::Hardware;
use crate::misses::Request;
use crate::source::{Access, Served, Source};
use crate::traffic::Kind;
use crate::{LINE_SHIFT, PAGE_BYTES};

/// A demand access may find a prefetch under way. A wait longer than this many second-level
/// latencies then takes a miss slot; a shorter one is as good as a hit.
const LATE: u64 = 2;

impl Hardware {
    /// Everything below the filter: for an access that [`Hardware::first_level_hit`] said no to.
    ///
    /// The access counts as one load or store and belongs to the line of its first byte. Physical
    /// addresses of no node cost nothing and are counted as [`Event::Outside`]. Panics if there is
    /// no such vCPU.
    pub fn access(&mut self, cpu: usize, access: Access) -> Served {
        let counters = &mut self.cpus[cpu].counters;
        counters.retire(access.store);
        let Some(home) = self.memory.home(access.paddr) else {
            counters.add(Event::Outside, 1);
            return Served {
                stall_ps: 0,
                latency_ps: 0,
                source: Source::Outside,
                transfer_from: None,
            };
        };
        self.network.set_manages(self.cpus[cpu].manages);
        let line = (access.paddr >> LINE_SHIFT) as u32;
        let misses = &mut self.cpus[cpu].misses;
        let settled_ps = misses.settle(access.now_ps, access.instructions);
        let request = Request {
            now_ps: access.now_ps + settled_ps,
            instructions: access.instructions,
            vaddr: access.vaddr,
            line,
            store: access.store,
            loaded: if access.store { None } else { access.loaded },
        };
        let mut served = match self.cpus[cpu].first.find(line) {
            Some(slot) => self.in_first(cpu, slot, &request),
            None => self.below_first(cpu, home, &request),
        };
        served.stall_ps += settled_ps;
        self.cpus[cpu].counters.add(Event::Stall, served.stall_ps);
        served
    }

    /// The first level holds the line, but the filter did not know, or forbade the store.
    fn in_first(&mut self, cpu: usize, slot: usize, request: &Request) -> Served {
        let line = request.line;
        let mut latency_ps = self.latencies.first;
        let mut stall_ps = 0;
        if request.store {
            let upgrade_ps = self.own(cpu, line);
            if upgrade_ps > 0 {
                stall_ps = self.cpus[cpu].misses.issue(request, upgrade_ps, 0).stall_ps;
                latency_ps = upgrade_ps;
            }
        }
        let writable = self.owns(cpu, line);
        let cpu = &mut self.cpus[cpu];
        let mut source = Source::L1;
        match cpu.misses.in_flight(line, request.now_ps) {
            // The line is still on its way, and its values arrive with it. A pointer among them
            // must be seen here, so the filter does not get the line yet.
            Some(ready_ps) if !request.store => {
                cpu.misses.remember(request.loaded, ready_ps);
                cpu.counters.add(Event::InFlight, 1);
                source = Source::InFlight;
                latency_ps = latency_ps.max(ready_ps - request.now_ps);
            }
            _ => cpu.first.admit(slot, request.vaddr >> LINE_SHIFT, writable),
        }
        Served { stall_ps, latency_ps, source, transfer_from: None }
    }

    fn owns(&self, cpu: usize, line: u32) -> bool {
        self.directory.get(line).owner() == Owner::Cpu(cpu)
    }

    fn below_first(&mut self, cpu: usize, home: usize, request: &Request) -> Served {
        self.cpus[cpu].counters.add(Event::L1Miss, 1);
        let served = if self.cpus[cpu].second.touch(request.line) {
            self.in_second(cpu, request)
        } else {
            self.cpus[cpu].counters.add(Event::L2Miss, 1);
            self.below_second(cpu, home, request)
        };
        // The program had to come this far before the prefetcher could see the address.
        self.run_ahead(cpu, home, request, request.now_ps + served.stall_ps);
        served
    }

    fn in_second(&mut self, cpu: usize, request: &Request) -> Served {
        let upgrade_ps = if request.store { self.own(cpu, request.line) } else { 0 };
        let arrives_ps = self.take_prefetch(cpu, request);
        let second_ps = self.latencies.second;
        let late_ps = arrives_ps.saturating_sub(request.now_ps);
        let latency_ps = (second_ps + upgrade_ps).max(late_ps);
        let takes_slot = latency_ps > second_ps * LATE;
        let source = if late_ps > second_ps { Source::InFlight } else { Source::L2 };
        let writable = self.owns(cpu, request.line);
        let cpu = &mut self.cpus[cpu];
        let issued = if takes_slot {
            cpu.misses.issue(request, second_ps + upgrade_ps, arrives_ps)
        } else {
            cpu.misses.hit(request, latency_ps)
        };
        let virtual_line = request.vaddr >> LINE_SHIFT;
        let slot = cpu.first.insert(request.line, virtual_line);
        if !takes_slot || request.store {
            cpu.first.admit(slot, virtual_line, writable);
        }
        Served { stall_ps: issued.stall_ps, latency_ps, source, transfer_from: None }
    }

    /// When the prefetch of this line arrives; 0 if there was none.
    fn take_prefetch(&mut self, cpu: usize, request: &Request) -> u64 {
        let cpu = &mut self.cpus[cpu];
        let Some(arrives_ps) = cpu.prefetcher.take(request.line) else { return 0 };
        cpu.counters.add(Event::PrefetchUsed, 1);
        if arrives_ps.saturating_sub(request.now_ps) > self.latencies.second {
            cpu.counters.add(Event::PrefetchLate, 1);
        }
        arrives_ps
    }

    fn below_second(&mut self, cpu: usize, home: usize, request: &Request) -> Served {
        let fetched = self.fetch(cpu, request.line, home, request.store);
        let cpu = &mut self.cpus[cpu];
        let virtual_line = request.vaddr >> LINE_SHIFT;
        let slot = cpu.first.insert(request.line, virtual_line);
        let near = fetched.source == Source::Llc;
        let issued = if near {
            cpu.misses.hit(request, fetched.latency_ps)
        } else {
            cpu.misses.issue(request, fetched.latency_ps, 0)
        };
        // A line that another vCPU modified is communication: what the program does next depends
        // on it, and its later stores become visible only after it. So nothing overlaps with it.
        let stall_ps = match fetched.transfer_from {
            Some(_) => issued.ready_ps - request.now_ps,
            None => issued.stall_ps,
        };
        if near || request.store || fetched.transfer_from.is_some() {
            cpu.first.admit(slot, virtual_line, request.store);
        }
        Served {
            stall_ps,
            latency_ps: fetched.latency_ps,
            source: fetched.source,
            transfer_from: fetched.transfer_from,
        }
    }

    /// Lets the prefetcher see the access, and sends what it wants.
    fn run_ahead(&mut self, cpu: usize, home: usize, request: &Request, now_ps: u64) {
        let virtual_line = request.vaddr >> LINE_SHIFT;
        let ahead = self.cpus[cpu].prefetcher.observe(virtual_line);
        let kind = if request.store { Kind::StorePrefetch } else { Kind::LoadPrefetch };
        debug_assert!(ahead.count <= PAGE_BYTES >> LINE_SHIFT);
        let mut next = ahead.first.wrapping_sub(virtual_line) as i64;
        for _ in 0..ahead.count {
            let line = (i64::from(request.line) + next) as u32;
            if let Some(latency_ps) = self.prefetch(cpu, line, home, kind) {
                self.cpus[cpu].prefetcher.sent(line, now_ps + latency_ps);
            }
            next += ahead.direction;
        }
    }
}
