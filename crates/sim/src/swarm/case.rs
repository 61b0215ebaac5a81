//! One case of the swarm: everything is drawn from one seed.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rondpoint_core::observation::Exemption;
use rondpoint_core::{NodeSet, Random};
use rondpoint_input::Budget;
use rondpoint_trace::PolicyChoice;
use serde::{Deserialize, Serialize};

use super::ranges::{Between, Ranges};
use super::report::SHRUNK;
use super::shrink::FAULTS;
use crate::catalogue;
use crate::faults::{RARE, Rates};
use crate::plant::Plant;
use crate::sensors::{PMUS, Pmu};
use crate::workload::{Phase, Program, Region, Requests, Touched, Used, Waits, Workload};
use crate::world::Scene;

/// Simulated seconds of alone time of every program: no case is over before its time is.
const ENDLESS_S: f64 = 5_000.0;
/// Policy of the goals.
pub(super) const JUDGED: &str = "auto";
/// Sets the draws of rare faults apart from those of a case.
const HARSH: u64 = 0x4a25;
/// Longest file of a case, bytes.
const FILE_BYTES: u64 = 1 << 20;
/// Longest case, simulated seconds.
const MOST_SECONDS: f64 = 100_000.0;

/// A machine, programs, sensors, faults and a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// What draws it.
    pub(crate) seed: u64,
    /// One line of text, as `--machine` takes it.
    pub(crate) machine: String,
    pub(crate) programs: Vec<Program>,
    pub(crate) pmu: String,
    pub(crate) policy: String,
    pub(crate) replication: bool,
    pub(crate) faults: Option<Rates>,
    /// When faults stop.
    pub(crate) faults_until_s: f64,
    pub(crate) seconds: f64,
    /// By process: nodes of its cpuset (a bit each, 0 = all), and whether it is exempt.
    pub(crate) limits: Vec<(u64, bool)>,
}

/// Sensors by name.
fn pmu(name: &str) -> Option<Pmu> {
    PMUS.iter().find(|(one, _)| *one == name).map(|(_, pmu)| *pmu)
}

struct Draw(Random);

impl Draw {
    fn between(&mut self, [low, high]: Between) -> f64 {
        low + (high - low) * self.0.unit()
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len())].clone()
    }

    fn chance(&mut self, share: f64) -> bool {
        self.0.unit() < share
    }

    /// Zero in half of the cases.
    fn rate(&mut self, most: f64) -> f64 {
        if self.chance(0.5) { most * self.0.unit() } else { 0.0 }
    }
}

impl Case {
    /// The case of a seed.
    pub(crate) fn draw(seed: u64, ranges: &Ranges) -> Self {
        let mut draw = Draw(Random::new(seed));
        let (machine, nodes, cpus) = draw.machine(ranges);
        let count = draw.one(&ranges.workload.programs);
        let programs: Vec<Program> =
            (0..count).map(|number| draw.program(ranges, number, cpus)).collect();
        let processes: u32 = programs.iter().map(|program| program.instances).sum();
        let limits = (0..processes).map(|_| draw.limits(ranges, nodes)).collect();
        let pmu = draw.one(&ranges.manager.pmu);
        let faulty = draw.chance(ranges.faults.cases);
        let faults = draw.faults(ranges);
        let time = &ranges.time;
        let mut case = Self {
            seed,
            machine,
            programs,
            pmu,
            policy: draw.one(&ranges.manager.policy),
            replication: draw.chance(ranges.manager.replication),
            faults: faulty.then_some(faults),
            faults_until_s: ranges.faults.until_s,
            seconds: if faulty { time.with_faults_s } else { time.without_faults_s },
            limits,
        };
        if draw.chance(ranges.workload.services) {
            case.programs.extend(draw.service(ranges, cpus));
            case.limits.extend([(); 2].map(|()| draw.limits(ranges, nodes)));
        }
        if draw.chance(ranges.workload.fleeting) {
            case.programs[0].regions[0].lives_s = draw.between(ranges.workload.lives_s);
        }
        case
    }

    /// The case of a seed under `auto` and without faults.
    pub(crate) fn calm(seed: u64, ranges: &Ranges) -> Self {
        Self {
            policy: JUDGED.to_string(),
            faults: None,
            seconds: ranges.time.without_faults_s,
            ..Self::draw(seed, ranges)
        }
    }

    /// The case of a seed with the rare faults beside its own, each kind in half of the cases. They
    /// have generators of their own. The rest of the case stays as drawn, and so do its own faults
    /// up to the first rare one.
    pub(crate) fn harsh(seed: u64, ranges: &Ranges) -> Self {
        let mut case = Self::draw(seed, ranges);
        let mut draw = Draw(Random::new(seed ^ HARSH));
        let mut rates = case.faults.unwrap_or_default();
        let mut most = RARE;
        for one in FAULTS {
            let most = *one(&mut most);
            if most > 0.0 {
                *one(&mut rates) = draw.rate(most);
            }
        }
        case.faults = Some(rates);
        case.seconds = ranges.time.with_faults_s;
        case
    }

    /// Reads a case, or the shrunk one of a report, from a file of JSON.
    ///
    /// # Errors
    /// The file cannot be read, has no case, or has values out of range.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let read = || {
            let text = rondpoint_input::read_text(path, &mut Budget::new(FILE_BYTES, 0))?;
            Self::parse(&text)
        };
        read().with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let value: serde_json::Value = serde_json::from_str(text).context("no JSON")?;
        let value = value.get(SHRUNK).cloned().unwrap_or(value);
        let case: Self = serde_json::from_value(value).context("no case of the swarm")?;
        case.check()?;
        Ok(case)
    }

    /// Refuses what a drawn case cannot be.
    fn check(&self) -> Result<()> {
        let machine = catalogue::machine(&self.machine).context("machine")?;
        self.workload().check("programs")?;
        self.workload().check_size(machine.cpu_count())?;
        pmu(&self.pmu).with_context(|| format!("pmu {}: expected one of --pmu", self.pmu))?;
        PolicyChoice::parse(&self.policy).make()?;
        for (name, seconds) in [("seconds", self.seconds), ("faults_until_s", self.faults_until_s)]
        {
            if !(0.0..=MOST_SECONDS).contains(&seconds) {
                bail!("{name}: expected 0 to {MOST_SECONDS} s, got {seconds}");
            }
        }
        let rates = self.faults.map(|mut rates| FAULTS.map(|one| *one(&mut rates)));
        let valid = rates.iter().flatten().all(|rate| (0.0..=1.0).contains(rate));
        ensure!(valid, "faults: expected rates from 0 to 1");
        Ok(())
    }

    fn workload(&self) -> Workload {
        Workload {
            name: format!("seed-{}", self.seed),
            title: "a case of the swarm".to_string(),
            stops_s: 0.0,
            programs: self.programs.clone(),
        }
    }

    /// What a run is made from.
    pub(crate) fn scene(&self) -> Scene {
        let machine = catalogue::machine(&self.machine);
        Scene {
            pmu: pmu(&self.pmu).unwrap_or(Pmu::None),
            replication: self.replication,
            ..Scene::new(
                machine.expect("the ranges and checks give machines that can be"),
                self.workload(),
                self.seed,
            )
        }
    }

    /// Gives the processes of a plant their limits.
    pub(crate) fn confine(&self, plant: &mut Plant) {
        for (process, (nodes, exempt)) in self.limits.iter().enumerate() {
            if process >= plant.processes.len() {
                break;
            }
            let nodes =
                NodeSet::from_words(vec![*nodes]).intersection(&plant.topology.controllers());
            if !nodes.is_empty() {
                plant.confine(process, &nodes);
            }
            plant.processes[process].exempt = exempt.then_some(Exemption::OwnAffinity);
        }
    }

    /// Whether every program's demand, memory and processes stay as they are. New memory is placed
    /// anew, and so are new processes.
    pub(crate) fn is_steady(&self) -> bool {
        let stays = |program: &Program| {
            let comes_later = program.every_s > 0.0 && program.instances > 1;
            let changes = !program.phases.is_empty() || program.bursts.is_some();
            let lives = program.regions.iter().all(|region| region.lives_s == 0.0);
            lives && !changes && !comes_later
        };
        self.programs.iter().all(stays)
    }
}

impl Draw {
    fn machine(&mut self, ranges: &Ranges) -> (String, u32, u32) {
        let of = &ranges.machine;
        let (nodes, cpus) = (self.one(&of.nodes), self.one(&of.cpus));
        let smt = self.one(&of.smt);
        let memory_only = if nodes > 1 { self.one(&of.memory_only) } else { 0 };
        let cpus = if cpus.is_multiple_of(smt) { cpus } else { cpus * smt };
        let bandwidth = self.between(of.bandwidth_mb_s);
        let link = bandwidth * self.between(of.link_share);
        let text = format!(
            "nodes={nodes} memory_only={memory_only} cpus={cpus} smt={smt} clock={:.0} \
             latency={:.0} hop={:.0} burst={:.0} bandwidth={bandwidth:.0} link={link:.0} \
             memory={:.0}M shape={}",
            self.between(of.clock_mhz),
            self.between(of.latency_ns),
            self.between(of.hop_ns),
            self.between(of.burst_ns),
            self.between(of.memory_gib) * 1024.0,
            if nodes > 2 { self.one(&["full", "ring"]) } else { "full" },
        );
        (text, nodes, nodes * cpus)
    }

    fn program(&mut self, ranges: &Ranges, number: u32, cpus: u32) -> Program {
        let of = &ranges.workload;
        let instances = self.one(&of.instances);
        let share = self.between(of.threads_share) / f64::from(instances);
        let threads = ((f64::from(cpus) * share).round() as u32).max(1);
        let regions = self.regions(ranges);
        Program {
            name: format!("p{number}"),
            threads,
            instances,
            start_s: if self.chance(of.late) { of.latest_s * self.0.unit() } else { 0.0 },
            seconds: ENDLESS_S,
            pinned: false,
            waits: self.one(&[Waits::Never, Waits::Spin, Waits::Sleep]),
            cycles_per_instruction: self.between(of.cycles_per_instruction),
            accesses_per_kilo: self.between(of.accesses_per_kilo),
            outstanding: self.between(of.outstanding),
            transfers_per_kilo: if self.chance(0.5) {
                self.between(of.transfers_per_kilo)
            } else {
                0.0
            },
            sharers: self.one(&[0, 2, 4]),
            burst: self.between(of.burst),
            requests: None,
            phases: if self.chance(of.phases) { self.phases() } else { Vec::new() },
            regions,
            ..Program::default()
        }
    }

    /// A program that answers requests, and one that sends them.
    fn service(&mut self, ranges: &Ranges, cpus: u32) -> [Program; 2] {
        let of = &ranges.workload;
        let mut one = |name: &str, to: &str| Program {
            name: name.to_string(),
            instances: 1,
            waits: Waits::Never,
            requests: Some(Requests {
                to: to.to_string(),
                kilo_instructions: self.between(of.kilo_instructions),
                lines: self.between(of.lines),
                per_s: 0.0,
            }),
            phases: Vec::new(),
            ..self.program(ranges, 0, cpus)
        };
        [one("server", ""), one("clients", "server")]
    }

    fn regions(&mut self, ranges: &Ranges) -> Vec<Region> {
        let of = &ranges.workload;
        let count = 1 + self.0.below(2);
        let first = 0.3 + 0.7 * self.0.unit();
        let shares = if count == 1 { vec![1.0] } else { vec![first, 1.0 - first] };
        let one = |share| Region {
            mib: self.between(of.mib),
            touched: self.one(&[Touched::First, Touched::Own]),
            used: self.one(&[Used::All, Used::Own, Used::Own, Used::Next]),
            share,
            writes: if self.chance(0.5) { self.between(of.writes) } else { 0.0 },
            reuse: self.between(of.reuse),
            lives_s: 0.0,
        };
        shares.into_iter().map(one).collect()
    }

    /// Changes within the part of the work that a case reaches.
    fn phases(&mut self) -> Vec<Phase> {
        let at = (5.0 + 30.0 * self.0.unit()) / ENDLESS_S;
        let intensity = 0.2 + 1.8 * self.0.unit();
        vec![Phase { at, intensity, rotate: self.0.below(4) as u32, active: 0 }]
    }

    fn limits(&mut self, ranges: &Ranges, nodes: u32) -> (u64, bool) {
        let confined = self.chance(ranges.workload.confined);
        let some = 1 + self.0.below((1 << nodes) - 1) as u64;
        (if confined { some } else { 0 }, self.chance(ranges.workload.exempt))
    }

    fn faults(&mut self, ranges: &Ranges) -> Rates {
        let of = &ranges.faults;
        Rates {
            refused: self.rate(of.refused),
            busy: self.rate(of.busy),
            no_memory: self.rate(of.no_memory),
            stale: self.rate(of.stale),
            wrapped: self.rate(of.wrapped),
            missing: self.rate(of.missing),
            lost: self.rate(of.lost),
            late: self.rate(of.late),
            jump: self.rate(of.jump),
            exits: self.rate(of.exits),
            ..Rates::default()
        }
    }
}
