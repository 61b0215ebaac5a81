//! A plant with its sensors and its rivals: the kernel's balancing, numad, late interleaving.
//! Rivals act on the plant beside a manager.

use rondpoint_machine::Machine;

use crate::plant::{EPOCH, FirstPlace, Plant, Truth};
use crate::rivals::Rival;
use crate::sensors::{Pmu, Sensors};
use crate::workload::Workload;
use rondpoint_core::Random;

/// Everything that one run is made from. The same gives the same run.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The machine, full size.
    pub machine: Machine,
    /// The programs.
    pub workload: Workload,
    /// What the processor can tell.
    pub pmu: Pmu,
    /// Whether the kernel can copy pages, as Carrefour's did.
    pub replication: bool,
    /// Hidden constants; `None` = drawn from the seed.
    pub truth: Option<Truth>,
    /// Share of one CPU that a manager takes for itself, 0 to 1. Only managed runs have one.
    pub manager_share: f64,
    /// Seed of every chance.
    pub seed: u64,
}

impl Scene {
    /// A run with the sensors of the machine's processor and constants drawn from the seed. The
    /// kernel copies no pages, and a manager takes no time.
    #[must_use]
    pub fn new(machine: Machine, workload: Workload, seed: u64) -> Self {
        let pmu = Pmu::of(&machine);
        Self { machine, workload, pmu, replication: false, truth: None, manager_share: 0.0, seed }
    }
}

/// One simulated machine in time.
pub(crate) struct World {
    pub(crate) plant: Plant,
    pub(crate) sensors: Sensors,
    rival: Rival,
    /// Time that a mover worked and that has not passed yet, ns.
    worked_ns: f64,
    /// Share of one CPU that the manager takes in each epoch.
    pub(crate) manager_share: f64,
}

impl World {
    pub(crate) fn new(scene: &Scene, first_place: FirstPlace, rival: Rival) -> Self {
        let mut seeds = Random::new(scene.seed);
        let truth = scene.truth.clone().unwrap_or_else(|| Truth::draw(&mut seeds));
        let (chances, noise) = (seeds.next_u64(), seeds.next_u64());
        let plant = Plant::new(&scene.machine, &scene.workload, truth, first_place, chances);
        let sensors = Sensors::new(scene.pmu, &plant, scene.replication, noise);
        Self { plant, sensors, rival, worked_ns: 0.0, manager_share: 0.0 }
    }

    /// Lets one epoch pass.
    pub(crate) fn pass(&mut self) {
        if self.manager_share > 0.0 {
            self.plant.occupy_by_manager(self.manager_share * EPOCH.0 as f64);
        }
        let epoch = self.plant.advance();
        let faults = self.rival.act(&mut self.plant, &epoch);
        self.sensors.watch(&mut self.plant, &epoch, faults);
    }

    /// Works on one CPU for `ns`; time passes meanwhile.
    pub(crate) fn work(&mut self, ns: f64) {
        self.worked_ns += ns;
        let epoch = EPOCH.0 as f64;
        while self.worked_ns >= epoch {
            self.worked_ns -= epoch;
            self.plant.occupy(epoch);
            self.pass();
        }
    }
}
