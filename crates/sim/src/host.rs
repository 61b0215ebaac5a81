//! The simulated machine as the loop's host: the same loop and controller as on a live one.

use std::collections::BTreeMap;
use std::convert::Infallible;

use rondpoint_core::controller::Step;
use rondpoint_core::counting_pause::{CountingPause, Watch};
use rondpoint_core::host::Host;
use rondpoint_core::limits::{GLANCE, QUICK_GLANCE};
use rondpoint_core::plan::{Action, NodeMove, Outcome, PageCounts, PageMove, Sampling, StepResult};
use rondpoint_core::{Nanos, Observation, Pid, Plan};

use crate::faults::{Faults, PageFault};
use crate::plant::{EPOCH, Moved};
use crate::sensors::Pmu;
use crate::world::World;

/// How much faster a page moves in a bulk of a whole process than one by one, for pages of 4 KiB
/// (docs/results/move-memory.md).
const BULK_SPEED: f64 = 1.25;
/// Time for one change of a mask, ns: a system call and a wake-up.
const MASK_NS: f64 = 5_000.0;

/// A managed world.
pub(crate) struct SimHost {
    pub(crate) world: World,
    /// Cycles between samples at the highest rate that the policies ask for.
    full_sampling: Option<u64>,
    wanted: BTreeMap<Option<Pid>, Sampling>,
    began: bool,
    /// The run is given up at this time.
    limit: Nanos,
    next: Nanos,
    pub(crate) faults: Option<Faults>,
}

impl SimHost {
    pub(crate) fn new(mut world: World, full_sampling: Option<u64>, limit: Nanos) -> Self {
        world.sensors.period = full_sampling;
        Self {
            world,
            full_sampling,
            wanted: BTreeMap::new(),
            began: false,
            limit,
            next: Nanos(0),
            faults: None,
        }
    }

    fn pass(&mut self, period: Nanos) -> bool {
        let now = self.world.plant.now();
        let late = self.faults.as_mut().map_or(Nanos(0), |faults| faults.late(now, period));
        self.next = (self.next + period + late).max(now);
        while self.world.plant.now() < self.next && !self.is_over() {
            self.world.pass();
            self.end_early();
        }
        !self.is_over()
    }

    /// The same, and glances meanwhile: whether the wait ended before its time because something
    /// changed; `None` where the run is over.
    fn wait_for_change(&mut self, watch: &mut Watch, period: Nanos) -> Option<bool> {
        let now = self.world.plant.now();
        let late = self.faults.as_mut().map_or(Nanos(0), |faults| faults.late(now, period));
        self.next = (self.next + period + late).max(now);
        watch.begin(self.world.sensors.glance(&self.world.plant, watch.wants_requests()));
        let mut glances_at = now + QUICK_GLANCE;
        while self.world.plant.now() < self.next && !self.is_over() {
            self.world.pass();
            self.end_early();
            let now = self.world.plant.now();
            if now < glances_at || now >= self.next {
                continue;
            }
            glances_at = now + QUICK_GLANCE;
            let glance = self.world.sensors.glance(&self.world.plant, watch.wants_requests());
            if watch.is_disturbed_by(glance) {
                self.next = now;
                return Some(true);
            }
        }
        (!self.is_over()).then_some(false)
    }

    /// A process ends before its work is done, or hardware is unplugged.
    fn end_early(&mut self) {
        let now = self.world.plant.now();
        let Some(faults) = &mut self.faults else { return };
        if faults.exit(now, EPOCH) {
            self.world.plant.end_one();
        }
        if let Some(draw) = faults.unplugs_cpu(now, EPOCH) {
            self.world.plant.unplug_cpu(draw);
        }
        if let Some(draw) = faults.unplugs_memory(now, EPOCH) {
            self.world.plant.unplug_memory(draw);
        }
    }

    fn look(&mut self, after_pause: bool) -> Observation {
        let seen = self.world.sensors.observe(&self.world.plant, after_pause);
        match &mut self.faults {
            Some(faults) => faults.disturb(seen),
            None => seen,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.world.plant.is_over() || self.world.plant.now() >= self.limit
    }

    fn set_sampling(&mut self, pid: Option<Pid>, sampling: Sampling) -> StepResult {
        let pmu = self.world.sensors.pmu;
        if !pmu.samples() && pmu != Pmu::None {
            return StepResult::Unsupported;
        }
        self.wanted.insert(pid, sampling);
        let plant = &self.world.plant;
        self.wanted.retain(|pid, _| pid.is_none_or(|pid| plant.process_of(pid).is_some()));
        let fastest = self.wanted.values().filter_map(|sampling| sampling.cycles()).min();
        self.world.sensors.period = fastest;
        self.world.sensors.fault_period = fastest.map(|cycles| self.fault_period(cycles));
        StepResult::Done
    }

    /// Hint faults between two samples where policies ask for one in so many cycles. These are the
    /// levels of the live sampler, each a fourth of the one before.
    fn fault_period(&self, cycles: u64) -> usize {
        match cycles / self.full_sampling.unwrap_or(cycles).max(1) {
            0..2 => 1,
            2..8 => 4,
            _ => 16,
        }
    }

    fn act(&mut self, plan: &Plan, step: usize) -> Outcome {
        let began = self.world.plant.now();
        if let Some(errno) = self.faults.as_mut().and_then(|faults| faults.errno(began)) {
            return outcome(plan.number, step, StepResult::Refused { errno });
        }
        let mut frozen = 0.0;
        let mut spent = 0.0;
        let result = match &plan.steps[step].action {
            Action::SetSampling { pid, sampling } => self.set_sampling(*pid, *sampling),
            Action::SetAffinity { pid, tid, cpus, via } => {
                spent += MASK_NS;
                let forbidden = self.faults.as_mut().and_then(|faults| faults.mask(began));
                match forbidden
                    .map_or(Ok(()), Err)
                    .and_then(|()| self.world.plant.set_mask((*pid, *tid), cpus, *via))
                {
                    Ok(()) => StepResult::Done,
                    Err(3) => StepResult::Gone,
                    Err(errno) => StepResult::Refused { errno },
                }
            }
            Action::MovePages { pid, pages, .. } => {
                self.pages(*pid, pages, &mut spent, |world, group, page, to| {
                    world.plant.move_page(group, page, to)
                })
            }
            Action::Replicate { .. } | Action::Unreplicate { .. }
                if !self.world.sensors.replication =>
            {
                StepResult::Unsupported
            }
            Action::Replicate { pid, pages } => {
                self.pages(*pid, pages, &mut spent, |world, group, page, _| {
                    world.plant.copy_page(group, page)
                })
            }
            Action::Unreplicate { pid, pages } => {
                self.pages(*pid, pages, &mut spent, |world, group, page, _| {
                    world.plant.drop_copies(group, page, false)
                })
            }
            Action::MoveProcessMemory { pid, nodes, freeze, .. } => {
                let result = self.bulk(*pid, nodes, *freeze, &mut spent);
                if *freeze {
                    frozen = spent;
                }
                result
            }
        };
        let passed = self.world.plant.now().since(began).0 as f64;
        Outcome {
            plan: plan.number,
            step,
            result,
            spent: Nanos(spent.max(passed) as u64),
            frozen: Nanos(frozen as u64),
        }
    }

    /// Does something to pages one by one, while time passes.
    fn pages(
        &mut self,
        pid: Pid,
        pages: &[PageMove],
        spent: &mut f64,
        change: fn(&mut World, usize, usize, usize) -> Moved,
    ) -> StepResult {
        let world = &mut self.world;
        let (move_ns, flush_ns) = (world.plant.truth.move_ns, world.plant.truth.flush_ns);
        let mut counts = PageCounts::default();
        let mut changed = 0_u32;
        for page in pages {
            let Some(process) = world.plant.process_of(pid) else {
                return if counts.moved > 0 { StepResult::Pages(counts) } else { StepResult::Gone };
            };
            let fault = fault(&mut self.faults, world.plant.now());
            let result = match (world.plant.locate(pid, page.address), fault) {
                (None, _) => Moved::Absent,
                (Some(_), Some(fault)) => fault,
                (Some((group, place)), None) => {
                    let home = world.plant.groups[group].homes[place];
                    match home == page.from || home == page.to {
                        true => change(world, group, place, usize::from(page.to)),
                        false => Moved::Elsewhere,
                    }
                }
            };
            if result == Moved::Done {
                changed += 1;
                *spent += move_ns;
                world.work(move_ns);
                // Flushes come in batches; so do their costs here.
                if changed.is_multiple_of(64) {
                    world.plant.stall(process, 64.0 * flush_ns);
                }
            }
            enter(&mut counts, result);
        }
        world.plant.totals.pages_moved += counts.moved;
        StepResult::Pages(counts)
    }

    /// Moves the memory of a process between nodes; the sources are read side by side. A frozen
    /// process stands still for the whole move. Another one waits for its flushes, as with single
    /// pages.
    fn bulk(&mut self, pid: Pid, nodes: &[NodeMove], freeze: bool, spent: &mut f64) -> StepResult {
        let world = &mut self.world;
        let Some(process) = world.plant.process_of(pid) else { return StepResult::Gone };
        let mut counts = PageCounts::default();
        let mut by_source = vec![0.0; world.plant.topology.node_count()];
        let mut wanted = Vec::new();
        for &group in world.plant.processes[process].groups.iter().flatten() {
            for (page, home) in world.plant.groups[group].homes.iter().enumerate() {
                let to = nodes.iter().find(|one| one.from == usize::from(*home));
                wanted.extend(to.map(|one| (group, page, one.from, one.to)));
            }
        }
        let now = world.plant.now();
        let dies = freeze && self.faults.as_mut().is_some_and(|faults| faults.ends_frozen(now));
        let dies_at = if dies { wanted.len() / 2 } else { usize::MAX };
        for (number, (group, page, from, to)) in wanted.into_iter().enumerate() {
            if number == dies_at {
                world.plant.kill(process);
                break;
            }
            let fault = fault(&mut self.faults, world.plant.now());
            let result = fault.unwrap_or_else(|| world.plant.move_page(group, page, to));
            if result == Moved::Done {
                by_source[from] += world.plant.truth.move_ns / BULK_SPEED;
            }
            enter(&mut counts, result);
        }
        let longest = by_source.into_iter().fold(0.0, f64::max);
        world.plant.totals.pages_moved += counts.moved;
        let flushes = counts.moved as f64 * world.plant.truth.flush_ns;
        world.plant.stall(process, if freeze { longest } else { flushes });
        let is_gone = counts.moved == 0 && !world.plant.processes[process].runs();
        world.work(longest);
        *spent += longest;
        if is_gone { StepResult::Gone } else { StepResult::Pages(counts) }
    }
}

/// An outcome that took no time.
fn outcome(plan: u64, step: usize, result: StepResult) -> Outcome {
    Outcome { plan, step, result, spent: Nanos(0), frozen: Nanos(0) }
}

/// What an injected fault makes of the next page; `None` = nothing goes wrong.
fn fault(faults: &mut Option<Faults>, now: Nanos) -> Option<Moved> {
    let fault = faults.as_mut()?.page(now)?;
    Some(match fault {
        PageFault::Busy => Moved::Busy,
        PageFault::NoMemory => Moved::NoMemory,
    })
}

fn enter(counts: &mut PageCounts, result: Moved) {
    let count = match result {
        Moved::Done => &mut counts.moved,
        Moved::InPlace => &mut counts.in_place,
        Moved::Elsewhere => &mut counts.elsewhere,
        Moved::Absent => &mut counts.absent,
        Moved::NoMemory => &mut counts.no_memory,
        Moved::Busy => &mut counts.busy,
        Moved::Refused => &mut counts.failed,
    };
    *count += 1;
}

impl Host for SimHost {
    type Error = Infallible;

    fn observe(&mut self, period: Nanos) -> Result<Option<Observation>, Infallible> {
        let goes_on = if self.began { self.pass(period) } else { true };
        self.began = true;
        Ok(goes_on.then(|| self.look(false)))
    }

    fn wait(&mut self, mut watch: Watch, period: Nanos) -> Result<Option<Observation>, Infallible> {
        let changed = self.wait_for_change(&mut watch, period);
        Ok(changed.map(|changed| self.look(changed)))
    }

    fn pause_counting(
        &mut self,
        mut pause: CountingPause,
        period: Nanos,
    ) -> Result<Option<Observation>, Infallible> {
        if self.full_sampling.is_none() && !self.world.sensors.pmu.samples() {
            return self.observe(period);
        }
        self.world.sensors.paused = true;
        let began = self.world.plant.now();
        let goes_on = loop {
            let left = pause.longest.since(self.world.plant.now().since(began));
            if left == Nanos(0) {
                break true;
            }
            let next = GLANCE.min(left);
            let changed = match &mut pause.watch {
                Some(watch) => self.wait_for_change(watch, next),
                None => self.pass(next).then_some(false),
            };
            let Some(changed) = changed else { break false };
            let seen = self.look(false);
            if changed || pause.is_disturbed_by(&seen, &self.world.plant.topology) {
                break true;
            }
        };
        // The registers are read once more before they count again.
        let look = goes_on.then(|| self.look(true));
        self.world.sensors.paused = false;
        Ok(look)
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Infallible> {
        let (plan, now) = (&step.plan, self.world.plant.now());
        let has_inverses = !plan.inverses.is_empty();
        let unwritten = self.faults.as_mut().filter(|_| has_inverses);
        if let Some(errno) = unwritten.and_then(|faults| faults.ledger(now)) {
            let result = StepResult::Refused { errno };
            let refused = |step| outcome(plan.number, step, result.clone());
            return Ok((0..plan.steps.len()).map(refused).collect());
        }
        Ok((0..plan.steps.len()).map(|index| self.act(plan, index)).collect())
    }
}

#[cfg(test)]
mod tests;
