//! Threads and pages are neither lost nor doubled, and threads run only on allowed CPUs.

use rondpoint_core::units::PAGE_BYTES;

use super::{Broken, Checker, View};
use crate::plant::Plant;

pub(crate) struct Conservation {
    memory: u64,
    threads: usize,
}

impl Conservation {
    pub(crate) fn new(plant: &Plant) -> Self {
        let memory = plant.machine.nodes.iter().map(|node| node.memory_bytes / PAGE_BYTES).sum();
        Self { memory, threads: plant.threads.len() }
    }

    /// Looks at a plant.
    pub(crate) fn check_plant(&self, plant: &Plant) -> Result<(), Broken> {
        let broken = |what| Err(Broken::new("conservation", what));
        let copies = plant.topology.controllers().len() as u64;
        let resident: u64 = plant
            .groups
            .iter()
            .filter(|group| plant.processes[group.process].runs())
            .map(|group| group.counts.iter().sum::<u64>() + group.copied * copies)
            .sum();
        let unplugged: u64 = plant.unplugged_pages.iter().sum();
        let all = resident + plant.free_pages.iter().sum::<u64>() + unplugged;
        if all != self.memory {
            return broken(format!("{all} pages, expected {}", self.memory));
        }
        if plant.threads.len() != self.threads {
            return broken(format!("{} threads, expected {}", plant.threads.len(), self.threads));
        }
        for thread in plant.threads.iter().filter(|thread| thread.active) {
            if !thread.mask.is_subset(&thread.allowed) {
                let (mask, allowed) = (&thread.mask, &thread.allowed);
                return broken(format!("thread {}: mask {mask}, allowed {allowed}", thread.tid));
            }
        }
        let online = plant.online();
        match plant.threads.iter().find(|thread| thread.active && !online.contains(thread.cpu)) {
            Some(thread) => {
                broken(format!("thread {}: CPU {} is unplugged", thread.tid, thread.cpu))
            }
            None => check_memory(plant),
        }
    }
}

/// No page and no copy lies on unplugged memory.
fn check_memory(plant: &Plant) -> Result<(), Broken> {
    let groups = plant.groups.iter().filter(|group| plant.processes[group.process].runs());
    let copied: u64 = groups.clone().map(|group| group.copied).sum();
    let copies = plant.topology.controllers();
    for (node, unplugged) in plant.unplugged_pages.iter().enumerate() {
        let left: u64 = groups.clone().map(|group| group.counts[node]).sum();
        // A page with copies has one on each of these nodes.
        let left = left + if copies.contains(node) { copied } else { 0 };
        if *unplugged > 0 && left > 0 {
            let what = format!("{left} pages on node {node}, which is unplugged");
            return Err(Broken::new("conservation", what));
        }
    }
    Ok(())
}

impl Checker for Conservation {
    fn check(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let outcomes = view.outcomes.len();
        let steps = view.step.plan.steps.len();
        if outcomes != steps {
            let what = format!("{outcomes} outcomes of {steps} steps");
            return Err(Broken::new("conservation", what));
        }
        self.check_plant(view.plant)
    }
}
