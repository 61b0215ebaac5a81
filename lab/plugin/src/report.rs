// SPDX-License-Identifier: GPL-2.0-or-later
//! The measurement of the modelled part: differences between its begin and its end, and slices.

use std::path::PathBuf;

use rondpoint_lab_init::{
    ManagerMeasurement, Matrix, Measurement, PipeMeasurement, Slice, VcpuMeasurement,
};
use rondpoint_lab_model::{Event, Hardware, Kind, PipeUsage, Unit};

use crate::clock::{Clock, ManagerCost};
use crate::traffic::cycles;

/// Guest time covered by a slice, ps: 20 ms, so that a reader can time the start of a jam.
const SLICE_PS: u64 = 20_000_000_000;
/// Slices that are kept. A run that needs more (an idle shell is days of guest
/// time) gets slices twice as long, again and again.
const SLICES_MAX: usize = 4096;

/// Collects the measurement and writes it to a file at power-off.
pub(crate) struct Reporter {
    path: Option<PathBuf>,
    measurement: Measurement,
    slice_begin: Totals,
    next_slice_ps: u64,
    slice_ps: u64,
    counters_begin: Vec<[u64; Event::COUNT]>,
    pipes_begin: Vec<PipeMeasurement>,
    matrices_begin: [Matrix; 4],
    latency_begin_ps: u64,
    manager_begin: ManagerCost,
    running: bool,
}

/// Sums over the machine at one instant.
#[derive(Debug, Clone, Default)]
struct Totals {
    instructions: u64,
    manager_instructions: u64,
    dram_lines: Matrix,
    demand_lines: u64,
    demand_latency_ps: u64,
}

impl Reporter {
    /// With no path nothing is written.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            measurement: Measurement::default(),
            slice_begin: Totals::default(),
            next_slice_ps: 0,
            slice_ps: SLICE_PS,
            counters_begin: Vec::new(),
            pipes_begin: Vec::new(),
            matrices_begin: Default::default(),
            latency_begin_ps: 0,
            manager_begin: ManagerCost::default(),
            running: false,
        }
    }

    pub(crate) fn begin(&mut self, hardware: &Hardware, clock: &Clock) {
        self.measurement.begin_ns = clock.machine_ps() / 1000;
        self.next_slice_ps = clock.machine_ps() + self.slice_ps;
        self.slice_begin = totals(hardware, clock);
        self.counters_begin = counters(hardware);
        self.pipes_begin = pipes(hardware);
        self.matrices_begin = matrices(hardware);
        self.latency_begin_ps = demand_latency_ps(hardware);
        self.manager_begin = clock.manager_cost();
        self.running = true;
    }

    pub(crate) fn end_quantum(&mut self, hardware: &Hardware, clock: &Clock) {
        if self.running && clock.machine_ps() >= self.next_slice_ps {
            self.close_slice(hardware, clock);
            self.next_slice_ps = clock.machine_ps() + self.slice_ps;
        }
    }

    pub(crate) fn end(&mut self, hardware: &Hardware, clock: &Clock) {
        self.close_slice(hardware, clock);
        self.running = false;
        let measurement = &mut self.measurement;
        measurement.end_ns = clock.machine_ps() / 1000;
        let [demand, prefetch, writeback, transfer] = matrices(hardware);
        let [demand_begin, prefetch_begin, writeback_begin, transfer_begin] = &self.matrices_begin;
        measurement.demand_lines = rise(&demand, demand_begin);
        measurement.prefetch_lines = rise(&prefetch, prefetch_begin);
        measurement.writeback_lines = rise(&writeback, writeback_begin);
        measurement.transfer_lines = rise(&transfer, transfer_begin);
        measurement.manager = manager(clock.manager_cost(), self.manager_begin);
        measurement.demand_latency_ps = demand_latency_ps(hardware) - self.latency_begin_ps;
        let mut pipes = pipes(hardware);
        for (now, before) in pipes.iter_mut().zip(&self.pipes_begin) {
            now.bytes -= before.bytes;
            now.requests -= before.requests;
            now.queue_ps -= before.queue_ps;
        }
        let mut pipes = pipes.into_iter();
        measurement.controllers = hardware
            .controllers()
            .map(|controller| controller.and_then(|_| pipes.next()))
            .collect();
        measurement.links = pipes.collect();
    }

    fn close_slice(&mut self, hardware: &Hardware, clock: &Clock) {
        let now = totals(hardware, clock);
        let before = std::mem::replace(&mut self.slice_begin, now.clone());
        self.measurement.slices.push(Slice {
            end_ns: clock.machine_ps() / 1000,
            instructions: now.instructions - before.instructions,
            manager_instructions: now.manager_instructions - before.manager_instructions,
            dram_lines: rise(&now.dram_lines, &before.dram_lines),
            demand_lines: now.demand_lines - before.demand_lines,
            demand_latency_ps: now.demand_latency_ps - before.demand_latency_ps,
        });
        if self.measurement.slices.len() == SLICES_MAX {
            self.measurement.slices = self.measurement.slices.chunks(2).map(joined).collect();
            self.slice_ps *= 2;
        }
    }

    /// Writes the measurement, if the modelled part ever began.
    pub(crate) fn write(&mut self, hardware: &Hardware, clock_khz: u64) {
        let Some(path) = &self.path else { return };
        if self.counters_begin.is_empty() {
            return;
        }
        let now = counters(hardware);
        self.measurement.vcpus = now
            .iter()
            .zip(&self.counters_begin)
            .enumerate()
            .map(|(vcpu, (now, before))| vcpu_measurement(hardware, vcpu, now, before, clock_khz))
            .collect();
        let text = serde_json::to_string(&self.measurement).expect("maps have string keys only");
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("rondpoint-lab-plugin: {}: {error}", path.display());
        }
    }
}

fn manager(now: ManagerCost, begin: ManagerCost) -> ManagerMeasurement {
    ManagerMeasurement {
        charged_ns: (now.charged_ps - begin.charged_ps) / 1000,
        slow_motion_ns: (now.slow_motion_ps - begin.slow_motion_ps) / 1000,
        instructions: now.instructions - begin.instructions,
    }
}

/// Slices that follow each other, as one.
fn joined(slices: &[Slice]) -> Slice {
    let (first, rest) = slices.split_first().expect("chunks are not empty");
    rest.iter().fold(first.clone(), |mut all, slice| {
        all.end_ns = slice.end_ns;
        all.instructions += slice.instructions;
        all.manager_instructions += slice.manager_instructions;
        all.demand_lines += slice.demand_lines;
        all.demand_latency_ps += slice.demand_latency_ps;
        for (all, row) in all.dram_lines.iter_mut().zip(&slice.dram_lines) {
            all.iter_mut().zip(row).for_each(|(all, lines)| *all += lines);
        }
        all
    })
}

fn vcpu_measurement(
    hardware: &Hardware,
    vcpu: usize,
    now: &[u64; Event::COUNT],
    before: &[u64; Event::COUNT],
    clock_khz: u64,
) -> VcpuMeasurement {
    let value = |event: Event| now[event.number()] - before[event.number()];
    let named = |event: &Event| {
        let value = match event.unit() {
            Unit::Count => value(*event),
            Unit::Picoseconds => cycles(value(*event), clock_khz),
        };
        (value > 0).then(|| (event.name().to_owned(), value))
    };
    VcpuMeasurement {
        node: hardware.node_of_cpu(vcpu),
        busy_ns: value(Event::Cycles) / 1000,
        events: Event::ALL.iter().filter_map(named).collect(),
    }
}

fn counters(hardware: &Hardware) -> Vec<[u64; Event::COUNT]> {
    (0..hardware.cpu_count()).map(|cpu| hardware.counters(cpu).all()).collect()
}

/// Controllers that exist, then links.
fn pipes(hardware: &Hardware) -> Vec<PipeMeasurement> {
    let measured = |usage: PipeUsage| PipeMeasurement {
        bytes: usage.bytes,
        requests: usage.requests,
        queue_ps: usage.queue_ps,
        bytes_per_s: usage.bytes_per_s,
    };
    hardware.controllers().flatten().chain(hardware.links()).map(measured).collect()
}

fn matrix(hardware: &Hardware, kinds: &[Kind]) -> Matrix {
    let traffic = hardware.traffic();
    let lines = |accessing, holding| {
        kinds.iter().map(|&kind| traffic.lines(kind, accessing, holding)).sum()
    };
    let row = |accessing| (0..traffic.nodes()).map(|holding| lines(accessing, holding)).collect();
    (0..traffic.nodes()).map(row).collect()
}

/// Demand, prefetch, writeback and transfer.
fn matrices(hardware: &Hardware) -> [Matrix; 4] {
    [
        matrix(hardware, &[Kind::Load, Kind::Store]),
        matrix(hardware, &[Kind::LoadPrefetch, Kind::StorePrefetch]),
        matrix(hardware, &[Kind::Writeback]),
        matrix(hardware, &[Kind::Transfer]),
    ]
}

fn demand_latency_ps(hardware: &Hardware) -> u64 {
    let latency = |cpu| hardware.counters(cpu).get(Event::DramLatency);
    (0..hardware.cpu_count()).map(latency).sum()
}

fn totals(hardware: &Hardware, clock: &Clock) -> Totals {
    let sum = |event| -> u64 {
        (0..hardware.cpu_count()).map(|cpu| hardware.counters(cpu).get(event)).sum()
    };
    Totals {
        instructions: sum(Event::Instructions),
        manager_instructions: clock.manager_cost().instructions,
        dram_lines: matrix(hardware, &Kind::DRAM_READS),
        demand_lines: sum(Event::DramRequests),
        demand_latency_ps: demand_latency_ps(hardware),
    }
}

fn rise(now: &Matrix, before: &Matrix) -> Matrix {
    let row = |(now, before): (&Vec<u64>, &Vec<u64>)| {
        now.iter().zip(before).map(|(now, before)| now - before).collect()
    };
    now.iter().zip(before).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_join_without_losing_a_line() {
        let slice = |end_ns, lines| Slice {
            end_ns,
            instructions: 10,
            manager_instructions: 2,
            dram_lines: vec![vec![lines, 0], vec![1, lines]],
            demand_lines: lines,
            demand_latency_ps: 7,
        };
        let all = joined(&[slice(100, 3), slice(200, 5)]);
        let dram_lines = vec![vec![8, 0], vec![2, 8]];
        let whole = Slice {
            end_ns: 200,
            instructions: 20,
            manager_instructions: 4,
            dram_lines,
            demand_lines: 8,
            demand_latency_ps: 14,
        };
        assert_eq!(all, whole);
        assert_eq!(joined(&[slice(300, 1)]), slice(300, 1));
    }
}
