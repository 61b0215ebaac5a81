//! The fastest of six static placements, none of which ever changes.
//!
//! It knows the pages of each thread, which no manager does. It is a lower bound of the best static
//! placement, since no other placement is tried. A manager can be faster than both: it follows a
//! program that changes its phase.

use rondpoint_core::CpuSet;

use crate::plant::{FirstPlace, Plant};
use crate::rivals::Rival;
use crate::run::Outcome;
use crate::workload::Used;
use crate::world::{Scene, World};

/// How threads lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    /// As the kernel spreads them.
    Spread,
    /// In order, so that neighbours and circles of sharers share caches.
    Packed,
}

/// How pages lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    FirstTouch,
    Interleaved,
    /// Each thread's own pages with it, shared ones interleaved.
    WithUsers,
}

/// The fastest of the six.
pub(crate) fn best(scene: &Scene) -> Outcome {
    let mut best: Option<Outcome> = None;
    for threads in [Threads::Spread, Threads::Packed] {
        for pages in [Pages::FirstTouch, Pages::Interleaved, Pages::WithUsers] {
            let outcome = run(scene, threads, pages);
            let faster = |best: &Outcome| outcome.speed_against(best).is_some_and(|s| s > 1.0);
            if best.as_ref().is_none_or(faster) {
                best = Some(outcome);
            }
        }
    }
    best.unwrap_or_else(|| run(scene, Threads::Spread, Pages::FirstTouch))
}

fn run(scene: &Scene, threads: Threads, pages: Pages) -> Outcome {
    let first =
        if pages == Pages::Interleaved { FirstPlace::Interleave } else { FirstPlace::Touch };
    let mut world = World::new(scene, first, Rival::Nothing);
    world.plant.truth.wander_per_s = 0.0;
    let mut placed = vec![false; world.plant.processes.len()];
    let limit = world.plant.now().0 + 3_600_000_000_000;
    while !world.plant.is_over() && world.plant.now().0 < limit {
        world.pass();
        for (process, placed) in placed.iter_mut().enumerate() {
            if !*placed && world.plant.processes[process].runs() {
                *placed = true;
                place(&mut world.plant, process, threads, pages);
            }
        }
    }
    Outcome::of(&world.plant)
}

/// Places a process at its start, at no cost.
fn place(plant: &mut Plant, process: usize, threads: Threads, pages: Pages) {
    let all = plant.processes[process].threads.clone();
    if threads == Threads::Packed {
        let cpus = plant.topology.cpu_count();
        for (number, thread) in all.clone().enumerate() {
            let cpu = (all.start + number) % cpus;
            plant.threads[thread].cpu = cpu;
            plant.threads[thread].mask = [cpu].into_iter().collect::<CpuSet>();
        }
    }
    if pages != Pages::WithUsers {
        return;
    }
    let regions = plant.processes[process].groups.clone();
    let nodes: Vec<usize> = plant.topology.controllers().iter().collect();
    for region in 0..regions.len() {
        let shared = plant.processes[process].program.regions[region].used == Used::All;
        let users = if shared { 1 } else { all.len() };
        for number in 0..users {
            let group = plant.processes[process].group_of(region, number, 0);
            let target = plant.near(process, number);
            for page in 0..plant.groups[group].homes.len() {
                let to = if shared { nodes[page % nodes.len()] } else { target };
                // Where there is no room a page stays.
                let _ = plant.move_page(group, page, to);
            }
        }
    }
}
