// SPDX-License-Identifier: GPL-2.0-or-later
//! Between QEMU's accesses and the hardware model. (First slice: time only.)

use crate::clock::Clock;

/// The modelled part of a run.
pub(crate) struct Traffic {
    modelled: bool,
    ps_per_instruction: u64,
}

impl Traffic {
    pub(crate) fn new(ps_per_instruction: u64) -> Self {
        Self { modelled: false, ps_per_instruction }
    }

    pub(crate) fn is_modelled(&self) -> bool {
        self.modelled
    }

    pub(crate) fn begin(&mut self, clock: &mut Clock) {
        self.modelled = true;
        clock.set_ps_per_instruction(self.ps_per_instruction);
    }

    pub(crate) fn end(&mut self, _: &Clock) {}

    pub(crate) fn end_quantum(&mut self, _: u64, _: &Clock) {}

    pub(crate) fn flush(&mut self, _: usize) {}

    pub(crate) fn read_counters(&mut self, _: usize) -> u64 {
        0
    }

    pub(crate) fn load_slots(&mut self, _: usize) -> u64 {
        0
    }

    pub(crate) fn export_nodes(&mut self) {}

    pub(crate) fn power_off(&mut self, clock: &Clock) {
        eprintln!("lab: {} ns of guest time", clock.machine_ps() / 1000);
    }
}
