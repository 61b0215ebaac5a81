//! A small machine in steps of 10 ms: eight threads on four nodes, with pages that the first thread
//! touched. Controllers are closed queues: a thread waits for each of its misses, and the more
//! misses a controller serves the longer each takes. It is a stage for the loop and no model of any
//! machine.

use rondpoint_core::controller::Step;
use rondpoint_core::counting_pause::{CountingPause, Glance, Watch};
use rondpoint_core::host::Host;
use rondpoint_core::limits::QUICK_GLANCE;
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, ProcessObservation, Samples, Source, ThreadObservation,
};
use rondpoint_core::plan::{PageCounts, Sampling, StepResult};
use rondpoint_core::topology::synthetic;
use rondpoint_core::units::PAGE_BYTES;
use rondpoint_core::{
    Action, Bytes, CpuSet, Matrix, Nanos, Observation, Outcome, Pid, Plan, Proposal, Random, Tid,
    Topology,
};
use std::convert::Infallible;

pub(crate) const NODES: usize = 4;
pub(crate) const THREADS: usize = 8;
pub(crate) const PID: Pid = Pid(100);
const CLOCK_HZ: f64 = 2e9;
const TICK: Nanos = Nanos::from_millis(10);
/// Requests/µs that a controller serves at most: 3 GB/s.
const CAPACITY_PER_US: f64 = 46.9;
/// Cycles of a DRAM access on an idle machine, and what another node adds.
const IDLE_CYCLES: f64 = 200.0;
const REMOTE_CYCLES: f64 = 100.0;

/// What the program does in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// Until when, in milliseconds.
    pub(crate) until_ms: u64,
    /// Threads that run.
    pub(crate) threads: usize,
    /// Cycles of work between two misses of a thread.
    pub(crate) work: f64,
    /// Each thread uses a part of the pages of its own; else all use all.
    pub(crate) private: bool,
}

pub(crate) struct World {
    pub(crate) topology: Topology,
    /// Node of each page, by number.
    pub(crate) homes: Vec<usize>,
    /// Every plan that was applied, with when.
    pub(crate) plans: Vec<(Nanos, Plan)>,
    /// Looks at counters.
    pub(crate) looks: u64,
    /// Time in which nothing was counted.
    pub(crate) rested: Nanos,
    /// Instructions that the program has executed.
    pub(crate) instructions: f64,
    /// The host can glance and pause.
    glances: bool,
    phases: Vec<Phase>,
    now: Nanos,
    random: Random,
    cpus: Vec<usize>,
    counts: Vec<Counts>,
    traffic: Matrix<f64>,
    latency: f64,
    cycles_per_sample: Option<f64>,
    due: Vec<f64>,
    samples: Vec<AddressSample>,
    counting: bool,
}

/// What one thread's counters show.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    ran: Nanos,
    instructions: f64,
    cycles: f64,
    stalls: f64,
    local: f64,
    remote: f64,
}

impl World {
    /// `pages` pages on node 0; the program ends with its last phase.
    pub(crate) fn new(pages: usize, phases: &[Phase], glances: bool) -> Self {
        Self::on("node:4 core:2 gbs:3 mhz:2000", pages, phases, glances)
    }

    /// The same on a machine that says this of itself.
    pub(crate) fn on(machine: &str, pages: usize, phases: &[Phase], glances: bool) -> Self {
        Self {
            topology: synthetic::parse(machine).expect("a machine"),
            homes: vec![0; pages],
            plans: Vec::new(),
            looks: 0,
            rested: Nanos(0),
            instructions: 0.0,
            glances,
            phases: phases.to_vec(),
            now: Nanos(0),
            random: Random::new(7),
            cpus: (0..THREADS).collect(),
            counts: vec![Counts::default(); THREADS],
            traffic: Matrix::filled(NODES, 0.0),
            latency: 0.0,
            cycles_per_sample: Some(65_000.0),
            due: vec![0.0; THREADS],
            samples: Vec::new(),
            counting: true,
        }
    }

    /// Share of the pages on each node.
    pub(crate) fn shares(&self) -> Vec<f64> {
        let on = |node| self.homes.iter().filter(|home| **home == node).count() as f64;
        (0..NODES).map(|node| on(node) / self.homes.len() as f64).collect()
    }

    fn phase(&self) -> Option<Phase> {
        self.phases.iter().find(|phase| self.now < Nanos::from_millis(phase.until_ms)).copied()
    }

    /// Pages that a thread uses.
    fn pages_of(&self, phase: Phase, thread: usize) -> std::ops::Range<usize> {
        let all = self.homes.len();
        match phase.private {
            true => all * thread / phase.threads..all * (thread + 1) / phase.threads,
            false => 0..all,
        }
    }

    /// Shares of a thread's accesses by node.
    fn uses(&self, phase: Phase, thread: usize) -> Vec<f64> {
        let pages = &self.homes[self.pages_of(phase, thread)];
        let on = |node| pages.iter().filter(|home| **home == node).count() as f64;
        (0..NODES).map(|node| on(node) / pages.len() as f64).collect()
    }

    /// Misses per µs of each thread and cycles of an access by node, where both agree.
    fn flow(&self, phase: Phase) -> (Vec<Vec<f64>>, Vec<f64>) {
        let uses: Vec<Vec<f64>> = (0..phase.threads).map(|one| self.uses(phase, one)).collect();
        let mut wait = vec![IDLE_CYCLES; NODES];
        let mut flows = Vec::new();
        for _ in 0..200 {
            flows = (0..phase.threads)
                .map(|thread| {
                    let own = self.topology.node_of_cpu(self.cpus[thread]);
                    let away = |node| if node == own { 0.0 } else { REMOTE_CYCLES };
                    let cycles: f64 =
                        (0..NODES).map(|node| uses[thread][node] * (wait[node] + away(node))).sum();
                    let per_us = CLOCK_HZ / 1e6 / (phase.work + cycles);
                    uses[thread].iter().map(|share| share * per_us).collect::<Vec<f64>>()
                })
                .collect();
            for (node, wait) in wait.iter_mut().enumerate() {
                let load: f64 = flows.iter().map(|flow: &Vec<f64>| flow[node]).sum();
                let used = (load / CAPACITY_PER_US).min(0.98);
                let queued = IDLE_CYCLES * (1.0 + used * used / (1.0 - used));
                *wait += 0.1 * (queued - *wait);
            }
        }
        (flows, wait)
    }

    /// Lets this time pass, at most to the end of the program. Returns whether the program goes on.
    fn pass(&mut self, time: Nanos) -> bool {
        let until = self.now + time;
        while self.now < until {
            let Some(phase) = self.phase() else { return false };
            self.tick(phase);
            self.now += TICK;
        }
        self.phase().is_some()
    }

    fn tick(&mut self, phase: Phase) {
        let (flows, wait) = self.flow(phase);
        let us = TICK.micros();
        for (thread, flow) in flows.iter().enumerate() {
            let own = self.topology.node_of_cpu(self.cpus[thread]);
            let misses: f64 = flow.iter().sum::<f64>() * us;
            // Deterministic ripple of half a percent, so that windows have a variance.
            let ripple = 1.0 + 0.01 * (self.random.unit() - 0.5);
            let work = misses * phase.work * ripple;
            self.instructions += work;
            self.counts[thread].ran += TICK;
            if self.counting {
                let counts = &mut self.counts[thread];
                counts.instructions += work;
                counts.cycles += CLOCK_HZ / 1e6 * us;
                counts.stalls += CLOCK_HZ / 1e6 * us - misses * phase.work;
                counts.local += flow[own] * us;
                counts.remote += misses - flow[own] * us;
                for (node, per_us) in flow.iter().enumerate() {
                    self.traffic[(own, node)] += per_us * us;
                    let away = if node == own { 0.0 } else { REMOTE_CYCLES };
                    self.latency += per_us * us * (wait[node] + away);
                }
            }
            self.sample(phase, thread, us);
        }
    }

    fn sample(&mut self, phase: Phase, thread: usize, us: f64) {
        let Some(every) = self.cycles_per_sample.filter(|_| self.counting) else { return };
        self.due[thread] += CLOCK_HZ / 1e6 * us / every;
        while self.due[thread] >= 1.0 {
            self.due[thread] -= 1.0;
            let pages = self.pages_of(phase, thread);
            let page = pages.start + (self.random.unit() * pages.len() as f64) as usize;
            self.samples.push(AddressSample {
                pid: PID,
                tid: Tid(PID.0 + thread as u32),
                cpu: self.cpus[thread] as u16,
                node: self.homes[page] as u16,
                address: (page as u64 + 16) << 12,
                latency_cycles: 0,
                page_shift: 12,
                source: Source::Dram,
                store: false,
            });
        }
    }

    fn thread(&self, number: usize) -> ThreadObservation {
        let counts = self.counts[number];
        let exact = |value: f64| Counter::exact(value as u64);
        let counters: Counters = [
            (Event::Instructions, exact(counts.instructions)),
            (Event::Cycles, exact(counts.cycles)),
            (Event::StallCycles, exact(counts.stalls)),
            (Event::LlcMisses, exact(counts.local + counts.remote)),
            (Event::LocalDram, exact(counts.local)),
            (Event::RemoteDram, exact(counts.remote)),
        ]
        .into_iter()
        .collect();
        ThreadObservation {
            tid: Tid(PID.0 + number as u32),
            cpu: self.cpus[number],
            cpu_time: counts.ran,
            allowed: self.topology.all_cpus(),
            counters,
            ..ThreadObservation::default()
        }
    }

    fn look(&mut self, after_pause: bool) -> Observation {
        self.looks += 1;
        let requests: f64 = self.traffic.rows().flatten().sum();
        let of_process = [
            (Event::DramLatencyCycles, Counter::exact(self.latency as u64)),
            (Event::DramRequests, Counter::exact(requests as u64)),
        ];
        let resident = |node| self.homes.iter().filter(|home| **home == node).count() as u64;
        let process = ProcessObservation {
            pid: PID,
            threads: (0..THREADS).map(|number| self.thread(number)).collect(),
            node_traffic: Some(self.traffic.map(|requests| Counter::exact(requests as u64))),
            memory: Some((0..NODES).map(|node| Bytes(resident(node) * PAGE_BYTES)).collect()),
            counters: of_process.into_iter().collect(),
            ..ProcessObservation::default()
        };
        let list = std::mem::take(&mut self.samples);
        let samples = self.cycles_per_sample.map(|_| Samples { list, ..Samples::default() });
        Observation {
            at: self.now,
            after_pause,
            free_memory: Some(vec![Bytes(8 << 30); NODES]),
            processes: vec![process],
            samples,
            ..Observation::default()
        }
    }

    fn glance(&self) -> Glance {
        let ran = self.counts.iter().fold(Nanos(0), |sum, counts| sum + counts.ran);
        Glance { at: self.now, cpu_time: [(PID, ran)].into(), requests: None }
    }

    /// Waits for a change that the watch sees. Returns whether the program goes on.
    fn wait_for_change(&mut self, watch: &mut Watch, longest: Nanos) -> (bool, bool) {
        let until = self.now + longest;
        watch.is_disturbed_by(self.glance());
        while self.now < until {
            let left = until.since(self.now);
            if !self.pass(QUICK_GLANCE.min(left)) {
                return (false, false);
            }
            if watch.is_disturbed_by(self.glance()) {
                return (true, true);
            }
        }
        (true, false)
    }

    fn do_step(&mut self, action: &Action) -> StepResult {
        match action {
            Action::MovePages { pages, .. } => {
                for page in pages {
                    let home = &mut self.homes[(page.address >> 12) as usize - 16];
                    assert_eq!(*home, usize::from(page.from), "a page moves from where it is");
                    *home = usize::from(page.to);
                }
                StepResult::Pages(PageCounts { moved: pages.len() as u64, ..PageCounts::default() })
            }
            Action::SetAffinity { tid, cpus, via, .. } => {
                let thread = (tid.0 - PID.0) as usize;
                let first = |cpus: &CpuSet| cpus.iter().next();
                let cpu = via.or_else(|| first(cpus)).expect("a mask has a CPU");
                if !cpus.contains(self.cpus[thread]) {
                    self.cpus[thread] = cpu;
                }
                StepResult::Done
            }
            Action::SetSampling { sampling, .. } => {
                self.cycles_per_sample = match sampling {
                    Sampling::Off => None,
                    Sampling::Every { cycles, .. } => Some(*cycles as f64),
                };
                StepResult::Done
            }
            _ => StepResult::Unsupported,
        }
    }
}

impl Host for World {
    type Error = Infallible;

    fn observe(&mut self, period: Nanos) -> Result<Option<Observation>, Infallible> {
        // The first look is before the program runs.
        let goes_on = self.looks == 0 || self.pass(period);
        Ok(goes_on.then(|| self.look(false)))
    }

    fn wait(&mut self, mut watch: Watch, period: Nanos) -> Result<Option<Observation>, Infallible> {
        if !self.glances {
            return self.observe(period);
        }
        let (goes_on, changed) = self.wait_for_change(&mut watch, period);
        Ok(goes_on.then(|| self.look(changed)))
    }

    fn pause_counting(
        &mut self,
        mut pause: CountingPause,
        period: Nanos,
    ) -> Result<Option<Observation>, Infallible> {
        if !self.glances {
            return self.observe(period);
        }
        let began = self.now;
        self.counting = false;
        let mut goes_on = true;
        if let Some(watch) = &mut pause.watch {
            (goes_on, _) = self.wait_for_change(watch, pause.longest);
        }
        self.counting = true;
        self.rested += self.now.since(began);
        Ok(goes_on.then(|| self.look(true)))
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Infallible> {
        let plan = &step.plan;
        self.plans.push((self.now, plan.clone()));
        let outcome = |(step, proposal): (usize, &Proposal)| Outcome {
            plan: plan.number,
            step,
            result: self.do_step(&proposal.action),
            spent: Nanos(1000),
            frozen: Nanos(0),
        };
        Ok(plan.steps.iter().enumerate().map(outcome).collect())
    }
}
