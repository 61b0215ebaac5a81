//! Interleaving that is applied late: a bound for managers that only interleave, at their first
//! decision.

use rondpoint_core::Nanos;

use crate::plant::{EPOCH, Moved, Plant};

/// When all memory is interleaved: the end of the first second, a manager's first decision.
const AT: Nanos = Nanos::from_secs(1);

/// Pages that are yet to be dealt out, in order of address.
pub(crate) struct Late {
    /// Group and page of the next.
    next: (usize, usize),
}

impl Late {
    pub(crate) fn new() -> Self {
        Self { next: (0, 0) }
    }

    /// Moves as many pages as one mover can in an epoch.
    pub(crate) fn act(&mut self, plant: &mut Plant) {
        if plant.now < AT || self.next.0 >= plant.groups.len() {
            return;
        }
        let nodes: Vec<usize> = plant.topology.memory_nodes().iter().collect();
        let (mut budget, move_ns) = (EPOCH.0 as f64, plant.truth.move_ns);
        while budget > 0.0 && self.next.0 < plant.groups.len() {
            let (group, page) = self.next;
            let runs = plant.processes[plant.groups[group].process].runs();
            if !runs || page >= plant.groups[group].homes.len() {
                self.next = (group + 1, 0);
                continue;
            }
            self.next.1 += 1;
            if plant.move_page(group, page, nodes[page % nodes.len()]) == Moved::Done {
                let process = plant.groups[group].process;
                plant.totals.pages_moved += 1;
                plant.stall(process, plant.truth.flush_ns);
                budget -= move_ns;
            }
        }
        plant.occupy(EPOCH.0 as f64 - budget.max(0.0));
    }
}
