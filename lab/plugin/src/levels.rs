// SPDX-License-Identifier: GPL-2.0-or-later
//! Which share of a vCPU's counts happened at user level.
//!
//! The model counts without regard to privilege. Translated code says at its first memory access
//! after a change that the level is another now (its address tells). What was counted since the
//! change before belongs to the level that is left. The few instructions between the change and
//! that access go to the wrong side.

use rondpoint_lab_model::{Counters, Event};

#[derive(Debug, Clone)]
struct Vcpu {
    kernel: bool,
    /// Counts when user level was entered last.
    entered: [u64; Event::COUNT],
    /// Counts at user level up to when it was left last.
    user: [u64; Event::COUNT],
}

/// The levels of all vCPUs.
#[derive(Debug)]
pub(crate) struct Levels {
    vcpus: Vec<Vcpu>,
}

impl Levels {
    pub(crate) fn new(vcpus: usize) -> Self {
        let zero = [0; Event::COUNT];
        Self { vcpus: vec![Vcpu { kernel: true, entered: zero, user: zero }; vcpus] }
    }

    /// Whether the vCPU executes at kernel level.
    #[inline(always)]
    pub(crate) fn is_kernel(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].kernel
    }

    /// The vCPU, having counted `counters` so far, executes at the other level from now on.
    pub(crate) fn switch(&mut self, vcpu: usize, kernel: bool, counters: &Counters) {
        let vcpu = &mut self.vcpus[vcpu];
        if kernel == vcpu.kernel {
            return;
        }
        let now = counters.all();
        if kernel {
            for ((user, now), entered) in vcpu.user.iter_mut().zip(now).zip(vcpu.entered) {
                *user += now - entered;
            }
        } else {
            vcpu.entered = now;
        }
        vcpu.kernel = kernel;
    }

    /// The user-level share of `event`, of which the vCPU has counted `now`; in the event's own
    /// unit.
    pub(crate) fn user(&self, vcpu: usize, event: Event, now: u64) -> u64 {
        let vcpu = &self.vcpus[vcpu];
        let before = vcpu.user[event.number()];
        if vcpu.kernel { before } else { before + now - vcpu.entered[event.number()] }
    }
}
