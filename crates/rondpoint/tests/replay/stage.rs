//! A small program on four nodes, run under a policy and recorded. All its pages begin on node 0,
//! and its four threads are as fast as the busiest controller lets them be. It is a stage for a
//! recording, not a model of any machine.

use std::convert::Infallible;

use rondpoint_core::controller::Step;
use rondpoint_core::counting_pause::CountingPause;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{Host, run};
use rondpoint_core::observation::{
    AddressSample, Counter, Event, ProcessObservation, Samples, Source, ThreadObservation,
};
use rondpoint_core::plan::{PageCounts, StepResult};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Action, Bytes, Matrix, Nanos, Observation, Outcome, Pid, Tid, Topology};
use rondpoint_trace::{Header, PolicyChoice, Recorder, Writer};

const PID: Pid = Pid(100);
const NODES: usize = 4;
const PAGES: usize = 24;
const FIRST_PAGE: u64 = 0x7f00_0000_0000;
const SECONDS: u64 = 12;
/// Accesses per second of all threads, all controllers idle: beyond what Carrefour leaves alone.
const ACCESSES_PER_S: f64 = 400e6;

/// What became of the pages so far.
struct Stage {
    topology: Topology,
    homes: Vec<usize>,
    second: u64,
    seconds: u64,
    /// Whether it can stop counting.
    pauses: bool,
    traffic: Matrix<f64>,
    instructions: f64,
    stalls: f64,
}

/// The bytes of a recording of the stage under Carrefour.
pub(crate) fn recording() -> Vec<u8> {
    record(SECONDS, false)
}

/// The same for longer, with pauses when all is done.
pub(crate) fn recording_with_rests() -> Vec<u8> {
    record(5 * SECONDS, true)
}

fn record(seconds: u64, pauses: bool) -> Vec<u8> {
    let topology = synthetic::parse("node:4 core:1 gbs:6 mhz:2300").unwrap();
    let header = Header {
        written_by: "rondpoint 0.1.0".to_string(),
        unix_s: Some(1_795_269_600),
        host: None,
        command: vec!["./stage".to_string()],
        policies: vec![PolicyChoice::parse("carrefour")],
        seed: 7,
        guard: GuardSettings::acting(),
        topology: topology.clone(),
        notes: Vec::new(),
    };
    let mut stage = Stage {
        topology,
        homes: vec![0; PAGES],
        second: 0,
        seconds,
        pauses,
        traffic: Matrix::filled(NODES, 0.0),
        instructions: 0.0,
        stalls: 0.0,
    };
    let mut file = Vec::new();
    let mut recorder = Recorder::new(Writer::new(&mut file, "memory", &header).unwrap());
    let mut controller = header.controller().unwrap();
    run(&mut stage, &mut controller, &mut recorder).unwrap();
    let steps = recorder.finish().unwrap();
    assert!(if pauses { steps < seconds } else { steps == seconds }, "{steps} in {seconds} s");
    file
}

impl Stage {
    /// One second passes.
    fn run(&mut self) {
        self.second += 1;
        let on = |node| self.homes.iter().filter(|home| **home == node).count() as f64;
        let shares: Vec<f64> = (0..NODES).map(|node| on(node) / PAGES as f64).collect();
        let busiest = shares.iter().copied().fold(0.0, f64::max);
        // A ripple of half a percent, so that windows have a variance.
        let ripple = 1.0 + 0.005 * ((self.second * 7919 % 13) as f64 / 6.0 - 1.0);
        let speed = ripple / (0.5 + busiest);
        for accessing in 0..NODES {
            for (node, share) in shares.iter().enumerate() {
                self.traffic[(accessing, node)] += ACCESSES_PER_S * speed * share / NODES as f64;
            }
        }
        self.instructions += 1e9 * speed;
        self.stalls += 2.3e9 * busiest / (0.5 + busiest);
    }

    fn thread(&self, cpu: usize) -> ThreadObservation {
        let exact = |value: f64| Counter::exact(value as u64);
        let counters = [
            (Event::Instructions, exact(self.instructions)),
            (Event::Cycles, exact(2.3e9 * self.second as f64)),
            (Event::StallCycles, exact(self.stalls)),
        ];
        ThreadObservation {
            tid: Tid(PID.0 + cpu as u32),
            cpu,
            cpu_time: Nanos::from_secs(self.second),
            allowed: self.topology.all_cpus(),
            counters: counters.into_iter().collect(),
            ..ThreadObservation::default()
        }
    }

    /// Each page is read from both nodes.
    fn samples(&self) -> Samples {
        let sample = |page: usize, cpu: usize| AddressSample {
            pid: PID,
            tid: Tid(PID.0 + cpu as u32),
            cpu: cpu as u16,
            node: self.homes[page] as u16,
            address: FIRST_PAGE + ((page as u64) << 12),
            latency_cycles: 300,
            page_shift: 12,
            source: Source::Dram,
            store: page.is_multiple_of(4) && cpu == 0,
        };
        let list = (0..PAGES).flat_map(|page| (0..4).map(move |cpu| sample(page, cpu)));
        Samples { list: list.collect(), period: Some(65_000), ..Samples::default() }
    }

    fn apply(&mut self, action: &Action) -> StepResult {
        let Action::MovePages { pages, .. } = action else { return StepResult::Done };
        for page in pages {
            self.homes[((page.address - FIRST_PAGE) >> 12) as usize] = usize::from(page.to);
        }
        StepResult::Pages(PageCounts { moved: pages.len() as u64, ..PageCounts::default() })
    }
}

impl Host for Stage {
    type Error = Infallible;

    fn observe(&mut self, _: Nanos) -> Result<Option<Observation>, Infallible> {
        if self.second >= self.seconds {
            return Ok(None);
        }
        self.run();
        let process = ProcessObservation {
            pid: PID,
            threads: (0..4).map(|cpu| self.thread(cpu)).collect(),
            node_traffic: Some(self.traffic.map(|requests| Counter::exact(requests as u64))),
            ..ProcessObservation::default()
        };
        Ok(Some(Observation {
            at: Nanos::from_secs(self.second),
            free_memory: Some(vec![Bytes(2 << 30); NODES]),
            processes: vec![process],
            samples: Some(self.samples()),
            ..Observation::default()
        }))
    }

    fn pause_counting(
        &mut self,
        pause: CountingPause,
        period: Nanos,
    ) -> Result<Option<Observation>, Infallible> {
        if !self.pauses {
            return self.observe(period);
        }
        let counted = (self.traffic.clone(), self.instructions, self.stalls);
        let seen = self.observe(period)?;
        self.second += pause.longest.0 / 1_000_000_000;
        (self.traffic, self.instructions, self.stalls) = counted;
        let at = Nanos::from_secs(self.second);
        Ok(seen.map(|seen| Observation { at, after_pause: true, ..seen }))
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Infallible> {
        let outcome = |(place, proposal): (usize, &rondpoint_core::Proposal)| Outcome {
            plan: step.plan.number,
            step: place,
            result: Self::apply(self, &proposal.action),
            spent: Nanos(1_000),
            frozen: Nanos(0),
        };
        Ok(step.plan.steps.iter().enumerate().map(outcome).collect())
    }
}
