// SPDX-License-Identifier: GPL-2.0-or-later
//! Between QEMU's accesses and the hardware model: counts, samples, exports.

use rondpoint_lab_model::{Access, Event, Hardware, Kind, LINE_BYTES, Served, Source, Unit};
use rondpoint_machine::Machine;

use crate::clock::Clock;
use crate::layout as at;
use crate::levels::Levels;
use crate::report::Reporter;
use crate::sampler::{Sample, Sampler, Slot, append, period};
use crate::shared::{Shared, cpu_block};

/// What the present translation of the guest's code does with memory accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The guest boots; accesses are not even seen.
    Boot,
    /// Every access goes through the model.
    Modelled,
    /// The job is done; accesses are seen and ignored.
    Over,
}

/// One access on its way to the model, with what a sample of it would need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) access: Access,
    /// Address of the instruction.
    pub(crate) ip: u64,
}

/// The modelled hardware with everything around it.
pub(crate) struct Traffic {
    pub(crate) hardware: Hardware,
    phase: Phase,
    ps_per_instruction: u64,
    clock_khz: u64,
    sample_cost_ps: u64,
    read_cost_ps: u64,
    samplers: Vec<Sampler>,
    pub(crate) levels: Levels,
    /// By vCPU: first-level hits that may pass before a slot has to look at one.
    pub(crate) quiet_hits: Vec<u64>,
    shared: Option<Shared>,
    reporter: Reporter,
}

impl Arrival {
    /// No access at all: the vCPU executed.
    pub(crate) fn none(now_ps: u64) -> Self {
        let access =
            Access { vaddr: 0, paddr: 0, store: false, loaded: None, now_ps, instructions: 0 };
        Self { access, ip: 0 }
    }

    /// Whether `event`, one of those on accesses, counts this one. No access has no instruction.
    fn is_counted_by(&self, event: Option<Event>) -> bool {
        let counted = match event {
            Some(Event::Loads) => !self.access.store,
            Some(Event::Stores) => self.access.store,
            _ => true,
        };
        counted && self.ip != 0
    }
}

impl Traffic {
    pub(crate) fn new(
        machine: &Machine,
        hardware: Hardware,
        shared: Option<Shared>,
        reporter: Reporter,
    ) -> Self {
        let cpus = machine.cpu_count();
        let cycle_ps = machine.cycle_ns() * 1e3;
        Self {
            hardware,
            phase: Phase::Boot,
            ps_per_instruction: (cycle_ps * machine.core.cycles_per_instruction).round() as u64,
            clock_khz: (machine.core.clock_mhz * 1e3) as u64,
            sample_cost_ps: (machine.pmu.sample_cost_ns * 1e3) as u64,
            read_cost_ps: (machine.pmu.read_cost_ns * 1e3) as u64,
            samplers: (0..cpus).map(|_| Sampler::default()).collect(),
            levels: Levels::new(cpus),
            quiet_hits: vec![u64::MAX; cpus],
            shared,
            reporter,
        }
    }

    /// Whether translated code calls the model.
    pub(crate) fn is_woven_in(&self) -> bool {
        self.phase != Phase::Boot
    }

    #[inline]
    pub(crate) fn is_modelled(&self) -> bool {
        self.phase == Phase::Modelled
    }

    /// The job's program is about to start. All vCPUs are folded.
    pub(crate) fn begin(&mut self, clock: &mut Clock) {
        self.phase = Phase::Modelled;
        clock.set_ps_per_instruction(self.ps_per_instruction);
        self.reporter.begin(&self.hardware, clock);
    }

    /// The job's program has ended.
    pub(crate) fn end(&mut self, clock: &Clock) {
        if self.phase == Phase::Modelled {
            self.reporter.end(&self.hardware, clock);
            self.phase = Phase::Over;
        }
    }

    pub(crate) fn end_quantum(&mut self, elapsed_ps: u64, clock: &Clock) {
        if self.phase == Phase::Modelled {
            self.hardware.end_quantum(elapsed_ps);
            self.reporter.end_quantum(&self.hardware, clock);
        }
    }

    /// The vCPU executed: keeps the counters that only the clock's owner can.
    pub(crate) fn executed(&mut self, vcpu: usize, instructions: u64, busy_ps: u64) {
        if self.phase == Phase::Modelled {
            self.hardware.count(vcpu, Event::Instructions, instructions);
            self.hardware.count(vcpu, Event::Cycles, busy_ps);
        }
    }

    pub(crate) fn flush(&mut self, vcpu: usize) {
        self.hardware.flush_first_level(vcpu);
    }

    /// An access that the first-level filter did not swallow. Returns what the model says.
    pub(crate) fn miss(&mut self, vcpu: usize, arrival: &Arrival) -> Served {
        self.hardware.access(vcpu, arrival.access)
    }

    /// A first-level hit that a slot wants to see.
    pub(crate) fn first_level_hit(&self) -> Served {
        let latency_ps = self.hardware.first_level_latency_ps();
        Served { stall_ps: 0, latency_ps, source: Source::L1, transfer_from: None }
    }

    /// Lets the vCPU's slots count what happened since they last looked. Returns how many samples
    /// were taken; each asks for an NMI and costs time.
    pub(crate) fn sample(
        &mut self,
        vcpu: usize,
        served: &Served,
        arrival: &Arrival,
        now_ps: u64,
    ) -> u64 {
        if self.samplers[vcpu].slots.is_empty() {
            return 0;
        }
        let Some(shared) = &self.shared else { return 0 };
        let kernel = self.levels.is_kernel(vcpu);
        let frozen = self.samplers[vcpu].frozen;
        let latency_cycles = self.cycles(served.latency_ps);
        let first_level = self.cycles(self.hardware.first_level_latency_ps());
        let own = self.hardware.node_of_cpu(vcpu);
        let mut taken = 0;
        for index in 0..self.samplers[vcpu].slots.len() {
            let event = Event::from_number(self.samplers[vcpu].slots[index].event);
            let count = event.map_or(0, |event| self.count(vcpu, event));
            let slot = &mut self.samplers[vcpu].slots[index];
            let mut amount = count - slot.seen;
            slot.seen = count;
            if frozen || !slot.counts(kernel) {
                continue;
            }
            // Above the first level's latency only slow accesses count: none of them passes unseen.
            if slot.threshold_cycles > first_level && is_access(slot.event) {
                let slow = latency_cycles >= slot.threshold_cycles;
                amount = u64::from(slow && arrival.is_counted_by(event));
            }
            if amount == 0 {
                continue;
            }
            let due = slot.advance(amount, period(shared, vcpu, slot));
            let source = source_word(served.source, own);
            if slot.takes(due, is_beyond_caches(served.source)) {
                let mut sample =
                    describe(slot.tag(), source, served, arrival, latency_cycles, now_ps);
                if kernel {
                    sample.flags |= at::FLAG_KERNEL_MASK as u64;
                }
                taken += u64::from(append(shared, vcpu, &sample));
            }
        }
        self.quiet_hits[vcpu] = self.hits_to_come(vcpu);
        taken
    }

    /// How many first-level hits no slot of the vCPU can be interested in.
    fn hits_to_come(&self, vcpu: usize) -> u64 {
        if self.samplers[vcpu].frozen {
            return u64::MAX;
        }
        let first_level = self.cycles(self.hardware.first_level_latency_ps());
        let kernel = self.levels.is_kernel(vcpu);
        let counts_hits = |slot: &&Slot| {
            is_access(slot.event)
                && slot.threshold_cycles <= first_level
                && slot.counts(kernel)
                && !slot.waits()
        };
        let slots = self.samplers[vcpu].slots.iter().filter(counts_hits);
        slots.map(Slot::left).min().unwrap_or(u64::MAX)
    }

    /// How many instructions the (folded) vCPU may execute before a slot that counts instructions
    /// or cycles is due. Cycles pass at least as fast as instructions alone take.
    pub(crate) fn instructions_to_come(&self, vcpu: usize) -> u64 {
        let sampler = &self.samplers[vcpu];
        if sampler.slots.is_empty() || sampler.frozen {
            return u64::MAX;
        }
        let kernel = self.levels.is_kernel(vcpu);
        let due = |slot: &Slot| {
            let event = Event::from_number(slot.event)?;
            let left = slot.left().saturating_sub(self.count(vcpu, event) - slot.seen);
            match event {
                Event::Instructions => Some(left),
                Event::Cycles | Event::RefCycles => {
                    let ps = u128::from(left) * 1_000_000_000 / u128::from(self.clock_khz);
                    u64::try_from(ps / u128::from(self.ps_per_instruction)).ok()
                }
                _ => None,
            }
        };
        let slots = sampler.slots.iter().filter(|slot| slot.counts(kernel));
        slots.filter_map(due).min().map_or(u64::MAX, |left| left.max(1))
    }

    /// Whether the vCPU executes for a manager, as the guest's driver has it.
    pub(crate) fn manages(&self, vcpu: usize) -> bool {
        let price = |shared: &Shared| shared.get(cpu_block(vcpu) + at::CPU_PRICE);
        self.shared.as_ref().is_some_and(|shared| price(shared) == at::PRICE_MANAGER as u64)
    }

    /// What one sample takes from the program, ps.
    pub(crate) fn sample_cost_ps(&self) -> u64 {
        self.sample_cost_ps
    }

    /// Exports the vCPU's counters (`RP_MARKER_READ`); returns what the read costs, ps.
    pub(crate) fn read_counters(&mut self, vcpu: usize, now_ps: u64) -> u64 {
        let Some(shared) = &self.shared else { return 0 };
        self.samplers[vcpu].store(shared, vcpu);
        let block = cpu_block(vcpu);
        for &event in Event::ALL {
            let all = self.hardware.counters(vcpu).get(event);
            let user = self.levels.user(vcpu, event, all);
            shared.set(block + at::CPU_COUNTERS + event.number(), self.shown(event, all));
            shared.set(block + at::CPU_USER_COUNTERS + event.number(), self.shown(event, user));
        }
        shared.set(block + at::CPU_TIME_PS, now_ps);
        shared.set(block + at::CPU_EXPORTS, shared.get(block + at::CPU_EXPORTS) + 1);
        self.read_cost_ps
    }

    /// The vCPU executes at the other level from now on. Its slots have counted all that was
    /// before.
    pub(crate) fn switch_level(&mut self, vcpu: usize, kernel: bool) {
        self.levels.switch(vcpu, kernel, self.hardware.counters(vcpu));
        self.quiet_hits[vcpu] = self.hits_to_come(vcpu);
    }

    /// Looks at the vCPU's slots (`RP_MARKER_SLOTS`); returns what the write costs, ps.
    pub(crate) fn load_slots(&mut self, vcpu: usize) -> u64 {
        let Some(shared) = &self.shared else { return 0 };
        let mut sampler = std::mem::take(&mut self.samplers[vcpu]);
        let seen = |event| Event::from_number(event).map_or(0, |event| self.count(vcpu, event));
        sampler.load(shared, vcpu, seen);
        self.samplers[vcpu] = sampler;
        self.quiet_hits[vcpu] = self.hits_to_come(vcpu);
        self.read_cost_ps
    }

    /// Exports nodes and links (`RP_MARKER_NODES`).
    pub(crate) fn export_nodes(&self, machine_ps: u64) {
        let Some(shared) = &self.shared else { return };
        let traffic = self.hardware.traffic();
        for (node, controller) in self.hardware.controllers().enumerate() {
            let block = at::NODE_BASE + node * at::NODE_WORDS;
            for holding in 0..traffic.nodes() {
                shared.set(block + at::NODE_DRAM_TO + holding, traffic.dram_reads(node, holding));
            }
            for accessing in 0..traffic.nodes() {
                let bytes = traffic.bytes(Kind::Writeback, accessing, node);
                shared.set(block + at::NODE_WRITTEN_BY + accessing, bytes);
            }
            let Some(controller) = controller else { continue };
            // The controller's own count lags behind until its window closes.
            shared.set(block + at::NODE_READ_BYTES, self.read_bytes(node));
            shared.set(block + at::NODE_WRITE_BYTES, self.written_bytes(node));
            shared.set(block + at::NODE_REQUESTS, controller.requests);
            shared.set(block + at::NODE_QUEUE_PS, controller.queue_ps);
        }
        for (index, link) in self.hardware.links().enumerate() {
            let block = at::LINK_BASE + index * at::LINK_WORDS;
            shared.set(block + at::LINK_BYTES, link.bytes);
            shared.set(block + at::LINK_REQUESTS, link.requests);
            shared.set(block + at::LINK_QUEUE_PS, link.queue_ps);
        }
        shared.set(at::HEADER_TIME_PS, machine_ps);
    }

    pub(crate) fn power_off(&mut self, clock: &Clock) {
        self.end(clock);
        self.reporter.write(&self.hardware, self.clock_khz);
    }

    fn read_bytes(&self, holding: usize) -> u64 {
        let traffic = self.hardware.traffic();
        let lines = (0..traffic.nodes()).map(|accessing| traffic.dram_reads(accessing, holding));
        lines.sum::<u64>() * LINE_BYTES
    }

    fn written_bytes(&self, holding: usize) -> u64 {
        let traffic = self.hardware.traffic();
        let written = |accessing| traffic.bytes(Kind::Writeback, accessing, holding);
        (0..traffic.nodes()).map(written).sum()
    }

    /// An event's count in its own unit: times in core cycles.
    fn count(&self, vcpu: usize, event: Event) -> u64 {
        self.shown(event, self.hardware.counters(vcpu).get(event))
    }

    /// A value as the PMU shows it.
    fn shown(&self, event: Event, value: u64) -> u64 {
        match event.unit() {
            Unit::Count => value,
            Unit::Picoseconds => self.cycles(value),
        }
    }

    fn cycles(&self, ps: u64) -> u64 {
        cycles(ps, self.clock_khz)
    }
}

/// Whether an event counts accesses, hits in the first level included.
fn is_access(event: usize) -> bool {
    matches!(Event::from_number(event), Some(Event::Loads | Event::Stores | Event::MemAny))
}

/// Whether memory or a cache of another domain answered: what AMD calls a miss of the third level.
fn is_beyond_caches(source: Source) -> bool {
    match source {
        Source::Dram { .. } | Source::CacheRemote { .. } => true,
        Source::CacheSameNode { other_domain, .. } => other_domain,
        _ => false,
    }
}

/// Core cycles in `ps` at a clock of `clock_khz`.
pub(crate) fn cycles(ps: u64, clock_khz: u64) -> u64 {
    let cycles = u128::from(ps) * u128::from(clock_khz) / 1_000_000_000;
    u64::try_from(cycles).unwrap_or(u64::MAX)
}

fn describe(
    tag: u64,
    source: u64,
    served: &Served,
    arrival: &Arrival,
    latency_cycles: u64,
    now_ps: u64,
) -> Sample {
    let access = &arrival.access;
    let mut flags = 0;
    if access.store {
        flags |= at::FLAG_STORE_MASK;
    }
    if let Source::CacheSameNode { other_domain: true, .. } = served.source {
        flags |= at::FLAG_OTHER_DOMAIN_MASK;
    }
    Sample {
        tag,
        vaddr: access.vaddr,
        paddr: access.paddr,
        source,
        latency_cycles,
        flags: flags as u64,
        time_ps: now_ps,
        ip: arrival.ip,
    }
}

/// The cache or memory that answered a vCPU of node `own`, as the ring's entries say it.
fn source_word(source: Source, own: usize) -> u64 {
    let (kind, node) = match source {
        Source::L1 => (at::SOURCE_L1, 0),
        Source::L2 => (at::SOURCE_L2, 0),
        Source::InFlight => (at::SOURCE_IN_FLIGHT, 0),
        Source::Llc => (at::SOURCE_LLC, 0),
        Source::CacheSameNode { dirty: false, .. } => (at::SOURCE_LOCAL_FWD, 0),
        Source::CacheSameNode { dirty: true, .. } => (at::SOURCE_LOCAL_HITM, 0),
        Source::CacheRemote { dirty: false, node } => (at::SOURCE_REMOTE_FWD, node),
        Source::CacheRemote { dirty: true, node } => (at::SOURCE_REMOTE_HITM, node),
        Source::Dram { node } if node == own => (at::SOURCE_LOCAL_DRAM, node),
        Source::Dram { node } => (at::SOURCE_REMOTE_DRAM, node),
        Source::Outside => (at::SOURCE_NONE, 0),
    };
    (kind | node << at::SOURCE_NODE_SHIFT) as u64
}
