//! Buffers that are freed and allocated again, with new pages at new addresses and first touch.

use rondpoint_core::units::Nanos;

use super::{FirstPlace, Plant};
use crate::workload::{Touched, Used};

impl Plant {
    /// Touches all memory of a process that starts. Parts of a region end their lives one after the
    /// other, not all at once.
    pub(super) fn touch(&mut self, process: usize) {
        for (region, parts) in self.processes[process].groups.clone().into_iter().enumerate() {
            let lives_s = self.processes[process].program.regions[region].lives_s;
            let count = parts.len();
            for (part, group) in parts.into_iter().enumerate() {
                if !self.touch_part(process, (region, part), group) {
                    return;
                }
                let first_s = lives_s * (part + 1) as f64 / count as f64;
                self.groups[group].dies = (lives_s > 0.0).then(|| after(self.now, first_s));
            }
        }
    }

    /// Buffers with a time that is over make room for others.
    pub(super) fn renew(&mut self) {
        for process in 0..self.processes.len() {
            for region in 0..self.processes[process].groups.len() {
                let lives_s = self.processes[process].program.regions[region].lives_s;
                if lives_s > 0.0 && self.processes[process].runs() {
                    self.renew_region(process, region, lives_s);
                }
            }
        }
    }

    fn renew_region(&mut self, process: usize, region: usize, lives_s: f64) {
        for part in 0..self.processes[process].groups[region].len() {
            let group = self.processes[process].groups[region][part];
            let Some(dies) = self.groups[group].dies.filter(|dies| *dies <= self.now) else {
                continue;
            };
            self.free_memory_of_group(group);
            self.readdress(group);
            if !self.touch_part(process, (region, part), group) {
                return;
            }
            self.processes[process].faults += self.groups[group].homes.len() as u64;
            self.groups[group].dies = Some(after(dies, lives_s));
        }
    }

    /// Touches the pages of one part: page by page in turn, or in contiguous parts, as loops over
    /// an array are. `false` = memory was short, and the process was killed.
    fn touch_part(&mut self, process: usize, (region, part): (usize, usize), group: usize) -> bool {
        let of = &self.processes[process];
        let count = of.threads.len();
        let nodes = match (self.first_place, &of.program.regions[region]) {
            (FirstPlace::Interleave, _) => self.memory_of(process).iter().collect(),
            (_, region) if region.touched == Touched::First => vec![self.near(process, 0)],
            (_, region) if region.used == Used::All => {
                (0..count).map(|number| self.near(process, number)).collect()
            }
            (_, region) if region.used == Used::Circle => {
                vec![self.near(process, part * of.program.sharers as usize)]
            }
            _ => vec![self.near(process, part)],
        };
        let pages = self.groups[group].homes.len();
        (0..pages).all(|page| {
            let place = match self.first_place {
                FirstPlace::Interleave => page % nodes.len(),
                FirstPlace::Touch => page * nodes.len() / pages,
            };
            self.put(group, page, nodes[place])
        })
    }
}

fn after(time: Nanos, seconds: f64) -> Nanos {
    time + Nanos((seconds * 1e9) as u64)
}
