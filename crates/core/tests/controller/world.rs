//! A small simulated host: one process on four nodes with pages that load the controllers. Latency
//! follows the load of the busiest controller, speed follows latency. It is a stage for the loop,
//! not a model of any machine.

use rondpoint_core::controller::Step;
use rondpoint_core::counting_pause::CountingPause;
use rondpoint_core::host::Host;
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, ProcessObservation, Samples, Source, ThreadObservation,
};
use rondpoint_core::plan::{PageCounts, StepResult};
use rondpoint_core::topology::synthetic;
use rondpoint_core::units::PAGE_BYTES;
use rondpoint_core::{
    Action, Bytes, CpuSet, Matrix, Nanos, Observation, Outcome, Pid, Plan, Tid, Topology,
};
use std::collections::BTreeMap;
use std::convert::Infallible;

pub(crate) const NODES: usize = 4;
pub(crate) const PID: Pid = Pid(100);
const THREADS: usize = 16;
const ACCESSES_PER_S: f64 = 120e6;

/// What the world does to us.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Twist {
    /// Every page that was moved slows all threads down, down to half speed.
    pub(crate) moves_hurt: bool,
    /// In this window half of the threads go to sleep.
    pub(crate) phase_change_at: Option<u64>,
    /// Threads spin faster the more pages were moved, while nothing else gets better.
    pub(crate) spins: bool,
    /// The host refuses every page.
    pub(crate) pages_busy: bool,
    /// No samples and no counters: one hint fault a page and second.
    pub(crate) only_hint_faults: bool,
    /// The process ends in this window.
    pub(crate) exits_at: Option<u64>,
    /// How often each thread goes on a CPU.
    pub(crate) slices_per_s: Option<u64>,
}

pub(crate) struct World {
    pub(crate) topology: Topology,
    /// Node of each page, by number.
    pub(crate) homes: Vec<usize>,
    /// Masks of threads that were set.
    pub(crate) masks: BTreeMap<Tid, CpuSet>,
    /// Every plan that was applied.
    pub(crate) plans: Vec<Plan>,
    /// When each pause began and ended, if it can pause.
    pub(crate) pauses: Option<Vec<(u64, u64)>>,
    twist: Twist,
    windows: u64,
    window: u64,
    moved: usize,
    traffic: Matrix<f64>,
    cycles: f64,
    instructions: f64,
    stalls: f64,
    requests: f64,
    latency: f64,
}

impl World {
    /// `pages` shared pages, all on node 0.
    pub(crate) fn new(pages: usize, windows: u64, twist: Twist) -> Self {
        Self {
            topology: synthetic::parse("node:4 core:4 gbs:6 mhz:2300").expect("a machine"),
            homes: vec![0; pages],
            masks: BTreeMap::new(),
            plans: Vec::new(),
            pauses: None,
            twist,
            windows,
            window: 0,
            moved: 0,
            traffic: Matrix::filled(NODES, 0.0),
            cycles: 0.0,
            instructions: 0.0,
            stalls: 0.0,
            requests: 0.0,
            latency: 0.0,
        }
    }

    /// Share of the pages on each node.
    pub(crate) fn shares(&self) -> Vec<f64> {
        let on = |node| self.homes.iter().filter(|home| **home == node).count() as f64;
        (0..NODES).map(|node| on(node) / self.homes.len() as f64).collect()
    }

    /// One second passes without counting.
    fn run_uncounted(&mut self) {
        let counted = (self.traffic.clone(), self.cycles, self.instructions, self.stalls);
        let memory = (self.requests, self.latency);
        self.run();
        (self.traffic, self.cycles, self.instructions, self.stalls) = counted;
        (self.requests, self.latency) = memory;
    }

    /// One second passes.
    fn run(&mut self) {
        self.window += 1;
        let shares = self.shares();
        let busiest = shares.iter().copied().fold(0.0, f64::max);
        let latency = match self.twist.spins {
            true => 1000.0,
            false => 200.0 + 800.0 * (busiest - 0.25) / 0.75,
        };
        let moved = self.moved as f64 / self.homes.len() as f64;
        let hurt = if self.twist.moves_hurt { 1.0 - 0.5 * moved.min(1.0) } else { 1.0 };
        let spun = if self.twist.spins { 1.0 + moved } else { 1.0 };
        let busy = if self.asleep() { 0.5 } else { 1.0 };
        // Deterministic ripple of 0.5 %, so that windows have a variance.
        let ripple = 1.0 + 0.005 * ((self.window * 7919 % 13) as f64 / 6.0 - 1.0);
        let speed = hurt * ripple * 1000.0 / (latency / hurt + 500.0);
        let accesses = ACCESSES_PER_S * speed * busy;
        for n in 0..NODES {
            for (m, share) in shares.iter().enumerate() {
                self.traffic[(n, m)] += accesses / NODES as f64 * share;
            }
        }
        self.requests += accesses;
        self.latency += accesses * latency / hurt;
        self.cycles += 2.3e9;
        self.stalls += 2.3e9 * (latency / (latency + 500.0));
        self.instructions += 1e9 * speed * spun;
    }

    fn asleep(&self) -> bool {
        self.twist.phase_change_at.is_some_and(|window| self.window >= window)
    }

    fn counters(&self) -> Counters {
        let exact = |value: f64| Counter::exact(value as u64);
        [
            (Event::Instructions, exact(self.instructions)),
            (Event::Cycles, exact(self.cycles)),
            (Event::StallCycles, exact(self.stalls)),
            (Event::LlcMisses, exact(self.requests / THREADS as f64)),
        ]
        .into_iter()
        .collect()
    }

    fn thread(&self, number: usize) -> ThreadObservation {
        let awake = !(self.asleep() && number >= THREADS / 2);
        let until =
            if awake { self.window } else { self.twist.phase_change_at.unwrap_or(self.window) };
        ThreadObservation {
            tid: Tid(PID.0 + number as u32),
            cpu: number,
            cpu_time: Nanos::from_secs(until),
            queued: None,
            slices: self.twist.slices_per_s.map(|slices| slices * until),
            allowed: self.topology.all_cpus(),
            exempt: None,
            counters: self.counters(),
        }
    }

    /// Each page is seen from two nodes.
    fn samples(&self) -> Samples {
        let sample = |page: usize, number: usize| AddressSample {
            pid: PID,
            tid: Tid(PID.0 + (number * 4) as u32),
            cpu: (number * 4) as u16,
            node: self.homes[page] as u16,
            address: (page as u64 + 16) << 12,
            latency_cycles: 0,
            page_shift: 12,
            source: Source::Dram,
            store: number == 1,
        };
        let pages = 0..self.homes.len();
        let list = pages
            .flat_map(|page| {
                [sample(page, page % 4), sample(page, (page + 1) % 4), sample(page, 1)]
            })
            .collect();
        Samples { list, ..Samples::default() }
    }

    /// Each page is seen from one of its two nodes, in turn.
    fn hint_faults(&self) -> Samples {
        let Samples { mut list, .. } = self.samples();
        let turn = (self.window % 2) as usize;
        list = list
            .into_iter()
            .enumerate()
            .filter(|(place, _)| place % 3 == turn)
            .map(|(_, sample)| sample)
            .collect();
        list.iter_mut().for_each(|sample| sample.source = Source::HintFault);
        Samples { list, ..Samples::default() }
    }

    fn process(&self) -> ProcessObservation {
        let of_process = [
            (Event::DramLatencyCycles, Counter::exact(self.latency as u64)),
            (Event::DramRequests, Counter::exact(self.requests as u64)),
        ];
        ProcessObservation {
            pid: PID,
            started: Nanos(0),
            threads: (0..THREADS).map(|number| self.thread(number)).collect(),
            node_traffic: (!self.twist.only_hint_faults)
                .then(|| self.traffic.map(|requests| Counter::exact(requests as u64))),
            memory: Some((0..NODES).map(|node| self.resident(node)).collect()),
            counters: of_process.into_iter().collect(),
            ..ProcessObservation::default()
        }
    }

    fn resident(&self, node: usize) -> Bytes {
        Bytes(self.homes.iter().filter(|home| **home == node).count() as u64 * PAGE_BYTES)
    }

    fn look(&self) -> Observation {
        let gone = self.twist.exits_at.is_some_and(|window| self.window >= window);
        let faults = self.twist.only_hint_faults;
        Observation {
            at: Nanos::from_secs(self.window),
            free_memory: Some(vec![Bytes(8 << 30); NODES]),
            processes: if gone { Vec::new() } else { vec![self.process()] },
            samples: (!gone && !faults).then(|| self.samples()),
            hint_faults: (!gone && faults).then(|| self.hint_faults()),
            ..Observation::default()
        }
    }

    fn do_step(&mut self, action: &Action) -> StepResult {
        match action {
            Action::MovePages { pages, .. } if self.twist.pages_busy => {
                StepResult::Pages(PageCounts { busy: pages.len() as u64, ..PageCounts::default() })
            }
            Action::MovePages { pages, .. } => {
                for page in pages {
                    let home = &mut self.homes[(page.address >> 12) as usize - 16];
                    assert_eq!(*home, usize::from(page.from), "a page moves from where it is");
                    *home = usize::from(page.to);
                }
                let back = pages.iter().filter(|page| page.to == 0).count();
                self.moved = (self.moved + pages.len() - back).saturating_sub(back);
                StepResult::Pages(PageCounts { moved: pages.len() as u64, ..PageCounts::default() })
            }
            Action::MoveProcessMemory { nodes, .. } => {
                let mut moved = 0;
                for home in &mut self.homes {
                    if let Some(step) = nodes.iter().find(|step| step.from == *home) {
                        *home = step.to;
                        moved += 1;
                    }
                }
                self.moved += moved;
                StepResult::Pages(PageCounts { moved: moved as u64, ..PageCounts::default() })
            }
            Action::SetAffinity { tid, cpus, .. } => {
                self.masks.insert(*tid, cpus.clone());
                StepResult::Done
            }
            Action::SetSampling { .. } => StepResult::Done,
            _ => StepResult::Unsupported,
        }
    }
}

impl Host for World {
    type Error = Infallible;

    fn observe(&mut self, _: Nanos) -> Result<Option<Observation>, Infallible> {
        if self.window >= self.windows {
            return Ok(None);
        }
        self.run();
        Ok(Some(self.look()))
    }

    fn pause_counting(
        &mut self,
        mut pause: CountingPause,
        period: Nanos,
    ) -> Result<Option<Observation>, Infallible> {
        let began = self.window;
        if self.pauses.is_none() {
            return self.observe(period);
        }
        while self.window < self.windows {
            self.run_uncounted();
            let seen = self.look();
            let rested = Nanos::from_secs(self.window - began);
            if rested >= pause.longest || pause.is_disturbed_by(&seen, &self.topology) {
                self.pauses.iter_mut().for_each(|pauses| pauses.push((began, self.window)));
                return Ok(Some(Observation { after_pause: true, ..seen }));
            }
        }
        Ok(None)
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Infallible> {
        let plan = &step.plan;
        assert_eq!(
            plan.inverses.len(),
            plan.steps.len(),
            "every step has its inverse before it is done"
        );
        self.plans.push(plan.clone());
        let gone = self.twist.exits_at.is_some_and(|window| self.window >= window);
        let outcome = |(step, proposal): (usize, &rondpoint_core::Proposal)| Outcome {
            plan: plan.number,
            step,
            result: if gone { StepResult::Gone } else { self.do_step(&proposal.action) },
            spent: Nanos(1000),
            frozen: Nanos(0),
        };
        Ok(plan.steps.iter().enumerate().map(outcome).collect())
    }
}
