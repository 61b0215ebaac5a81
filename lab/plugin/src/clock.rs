// SPDX-License-Identifier: GPL-2.0-or-later
//! Modelled time: a clock for each vCPU, and one for the machine that never runs ahead of them.
//!
//! QEMU runs the vCPUs in turn on one thread. Each runs until its own clock reaches the *horizon*.
//! When the slowest running vCPU has got there, the machine's clock moves up and a new horizon is
//! set. The clock of a vCPU advances with its instructions and with the stalls that the hardware
//! model charges. Generated code counts the instructions in a word called `progress`. Nothing in
//! here knows QEMU or the host's time.
//!
//! The machine runs in slow motion, and its managed programs with it. A manager does as much work
//! in a second of guest time as on the real machine. So slow motion would charge it many times its
//! real price. While a vCPU executes for a manager, its clock therefore advances by a fraction of
//! what the hardware model says. The model itself is given *model time*, which knows no fraction.

/// The value of `progress` at which generated code calls back; large, so that it never wraps.
pub(crate) const CALL_BACK_AT: u64 = 1 << 32;
/// Most instructions between two call-backs, so that no vCPU is unaccounted for long.
const MOST_INSTRUCTIONS: u64 = 20_000;

/// The clock of one vCPU.
#[derive(Debug, Clone, Copy, Default)]
struct Vcpu {
    /// Time at the last fold, ps.
    base_ps: u64,
    /// `progress` at the last fold.
    mark: u64,
    /// Instructions up to the last fold.
    instructions: u64,
    /// It executes for a manager: its clock advances by a fraction of model time.
    manages: bool,
    /// How far model time is ahead of the vCPU's clock, ps.
    ahead_ps: u64,
    /// Guest time that was charged while it executed for a manager, ps.
    charged_ps: u64,
    /// Instructions up to the last fold that it executed for a manager.
    managers_instructions: u64,
}

/// What managers cost, summed over all vCPUs since power-on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ManagerCost {
    /// Guest time charged, ps.
    pub(crate) charged_ps: u64,
    /// The same work at the price of a managed program, ps.
    pub(crate) slow_motion_ps: u64,
    /// Instructions executed.
    pub(crate) instructions: u64,
}

/// Parts of a speed-up of one.
const UNIT: u64 = 1000;

/// All clocks of the machine, in picoseconds of guest time since power-on.
#[derive(Debug)]
pub(crate) struct Clock {
    vcpus: Vec<Vcpu>,
    ps_per_instruction: u64,
    /// Model time that passes in one of a manager's guest time, in units of 1/[`UNIT`].
    speed_up: u64,
    quantum_ps: u64,
    machine_ps: u64,
    horizon_ps: u64,
}

impl Clock {
    pub(crate) fn new(vcpus: usize, ps_per_instruction: u64, quantum_ps: u64) -> Self {
        assert!(vcpus > 0 && ps_per_instruction > 0 && quantum_ps > 0);
        let vcpus = vec![Vcpu::default(); vcpus];
        let (machine_ps, horizon_ps) = (0, quantum_ps);
        Self { vcpus, ps_per_instruction, speed_up: UNIT, quantum_ps, machine_ps, horizon_ps }
    }

    /// Lets managers run `speed_up` times as fast as managed programs; at least 1.
    pub(crate) fn speed_up_managers(&mut self, speed_up: f64) {
        assert!(speed_up >= 1.0);
        self.speed_up = (speed_up * UNIT as f64).round() as u64;
    }

    /// The (folded) vCPU executes for a manager from now on, or no longer.
    pub(crate) fn set_manages(&mut self, vcpu: usize, manages: bool) {
        self.vcpus[vcpu].manages = manages;
    }

    /// What managers have cost up to each vCPU's last fold.
    pub(crate) fn manager_cost(&self) -> ManagerCost {
        let sum = |of: fn(&Vcpu) -> u64| self.vcpus.iter().map(of).sum::<u64>();
        let charged_ps = sum(|cpu| cpu.charged_ps);
        let slow_motion_ps = charged_ps + sum(|cpu| cpu.ahead_ps);
        ManagerCost {
            charged_ps,
            slow_motion_ps,
            instructions: sum(|cpu| cpu.managers_instructions),
        }
    }

    /// Guest time for `model_ps` of work at a manager's price.
    fn managers_price_ps(&self, model_ps: u64) -> u64 {
        model_ps * UNIT / self.speed_up
    }

    /// Guest time for `model_ps` of the vCPU's present work.
    fn price_ps(&self, vcpu: usize, model_ps: u64) -> u64 {
        if self.vcpus[vcpu].manages { self.managers_price_ps(model_ps) } else { model_ps }
    }

    fn charge(&mut self, vcpu: usize, model_ps: u64, manages: bool) {
        let guest_ps = if manages { self.managers_price_ps(model_ps) } else { model_ps };
        let cpu = &mut self.vcpus[vcpu];
        cpu.base_ps += guest_ps;
        cpu.ahead_ps += model_ps - guest_ps;
        if manages {
            cpu.charged_ps += guest_ps;
        }
    }

    /// Changes what an instruction costs from now on. All vCPUs must have been folded.
    pub(crate) fn set_ps_per_instruction(&mut self, ps: u64) {
        assert!(ps > 0);
        self.ps_per_instruction = ps;
    }

    /// Shortens or restores the quantum; the present horizon moves in, never out.
    pub(crate) fn set_quantum_ps(&mut self, ps: u64) {
        assert!(ps > 0);
        self.quantum_ps = ps;
        self.horizon_ps = self.horizon_ps.min(self.machine_ps + ps);
    }

    /// The machine's time: no running vCPU is behind it.
    pub(crate) fn machine_ps(&self) -> u64 {
        self.machine_ps
    }

    pub(crate) fn horizon_ps(&self) -> u64 {
        self.horizon_ps
    }

    /// The time of a vCPU when its word of progress stands at `progress`.
    pub(crate) fn now_ps(&self, vcpu: usize, progress: u64) -> u64 {
        let cpu = &self.vcpus[vcpu];
        cpu.base_ps + self.price_ps(vcpu, (progress - cpu.mark) * self.ps_per_instruction)
    }

    /// The same in model time, which the hardware model is asked in: it never goes back either,
    /// and is the vCPU's own.
    pub(crate) fn model_ps(&self, vcpu: usize, progress: u64) -> u64 {
        let cpu = &self.vcpus[vcpu];
        cpu.base_ps + cpu.ahead_ps + (progress - cpu.mark) * self.ps_per_instruction
    }

    /// Instructions that the vCPU has executed.
    pub(crate) fn instructions(&self, vcpu: usize, progress: u64) -> u64 {
        let cpu = &self.vcpus[vcpu];
        cpu.instructions + (progress - cpu.mark)
    }

    /// Adds the instructions since the last fold to the vCPU's clock; returns how many.
    pub(crate) fn fold(&mut self, vcpu: usize, progress: u64) -> u64 {
        let executed = progress - self.vcpus[vcpu].mark;
        self.charge(vcpu, executed * self.ps_per_instruction, self.vcpus[vcpu].manages);
        let cpu = &mut self.vcpus[vcpu];
        cpu.instructions += executed;
        cpu.managers_instructions += if cpu.manages { executed } else { 0 };
        cpu.mark = progress;
        executed
    }

    /// Charges model time in which the vCPU executed nothing.
    pub(crate) fn stall(&mut self, vcpu: usize, ps: u64) {
        self.charge(vcpu, ps, self.vcpus[vcpu].manages);
    }

    /// Charges model time that a manager takes from whatever the vCPU executes: a sample.
    pub(crate) fn stall_for_manager(&mut self, vcpu: usize, ps: u64) {
        self.charge(vcpu, ps, true);
    }

    /// A vCPU that was idle starts at `ps` at the earliest. Returns how long it had been idle.
    pub(crate) fn wake(&mut self, vcpu: usize, ps: u64) -> u64 {
        let cpu = &mut self.vcpus[vcpu];
        let idle = ps.saturating_sub(cpu.base_ps);
        cpu.base_ps += idle;
        idle
    }

    /// The value to store into the (folded) vCPU's progress. With it generated code calls back when
    /// the vCPU reaches the horizon: at once if it is there, and after `most` instructions at the
    /// latest.
    pub(crate) fn arm(&mut self, vcpu: usize, most: u64) -> u64 {
        let left_ps = self.horizon_ps.saturating_sub(self.vcpus[vcpu].base_ps);
        let speed_up = if self.vcpus[vcpu].manages { self.speed_up } else { UNIT };
        let left_model_ps = (left_ps * speed_up).div_ceil(UNIT);
        let most = most.min(MOST_INSTRUCTIONS);
        let allowed = left_model_ps.div_ceil(self.ps_per_instruction).min(most);
        let progress = CALL_BACK_AT - allowed;
        self.vcpus[vcpu].mark = progress;
        progress
    }

    /// Moves the machine's clock up when every running vCPU has reached the horizon. Returns the
    /// length of the quantum that ended, `None` while a vCPU is still behind.
    pub(crate) fn close_quantum(&mut self, slowest_running_ps: u64) -> Option<u64> {
        if slowest_running_ps < self.horizon_ps {
            return None;
        }
        // One vCPU alone may have stalled far past the horizon: no need for empty quanta.
        let skipped = (slowest_running_ps - self.horizon_ps) / self.quantum_ps;
        let reached = self.horizon_ps + skipped * self.quantum_ps;
        let elapsed = reached - self.machine_ps;
        self.machine_ps = reached;
        self.horizon_ps = reached + self.quantum_ps;
        Some(elapsed)
    }

    /// No vCPU runs: the machine sleeps until `ps`. Returns the time slept.
    pub(crate) fn sleep_until(&mut self, ps: u64) -> u64 {
        let slept = ps.saturating_sub(self.machine_ps);
        self.machine_ps += slept;
        self.horizon_ps = self.horizon_ps.max(self.machine_ps + self.quantum_ps);
        slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: u64 = 1_000;

    /// Two vCPUs at 1 ns per instruction with quanta of 100 ns, armed.
    fn two() -> (Clock, [u64; 2]) {
        let mut clock = Clock::new(2, NS, 100 * NS);
        let progress = [clock.arm(0, u64::MAX), clock.arm(1, u64::MAX)];
        (clock, progress)
    }

    #[test]
    fn instructions_and_stalls_move_a_vcpu() {
        let (mut clock, progress) = two();
        assert_eq!(clock.fold(0, progress[0] + 30), 30);
        clock.stall(0, 5 * NS);
        assert_eq!(clock.now_ps(0, progress[0] + 40), 45 * NS);
        assert_eq!(clock.instructions(0, progress[0] + 40), 40);
        assert_eq!(clock.now_ps(1, progress[1]), 0);
    }

    #[test]
    fn a_vcpu_is_called_back_at_the_horizon() {
        let (mut clock, progress) = two();
        assert_eq!(CALL_BACK_AT - progress[0], 100);
        clock.fold(0, progress[0] + 60);
        clock.stall(0, 15 * NS);
        assert_eq!(CALL_BACK_AT - clock.arm(0, u64::MAX), 25);
        clock.stall(0, 400 * NS);
        assert_eq!(clock.arm(0, u64::MAX), CALL_BACK_AT);
    }

    #[test]
    fn a_manager_pays_a_fraction_and_the_model_sees_all() {
        let (mut clock, progress) = two();
        clock.speed_up_managers(10.0);
        clock.set_manages(0, true);
        assert_eq!(clock.now_ps(0, progress[0] + 50), 5 * NS);
        assert_eq!(clock.model_ps(0, progress[0] + 50), 50 * NS);
        clock.fold(0, progress[0] + 50);
        clock.stall(0, 30 * NS);
        assert_eq!(clock.now_ps(0, progress[0] + 50), 8 * NS);
        assert_eq!(clock.model_ps(0, progress[0] + 50), 80 * NS);
        assert_eq!(CALL_BACK_AT - clock.arm(0, u64::MAX), 920);
        let paid = ManagerCost { charged_ps: 8 * NS, slow_motion_ps: 80 * NS, instructions: 50 };
        assert_eq!(clock.manager_cost(), paid);
    }

    #[test]
    fn a_sample_has_a_managers_price_in_any_program() {
        let (mut clock, progress) = two();
        clock.speed_up_managers(10.0);
        clock.fold(0, progress[0] + 20);
        clock.stall_for_manager(0, 40 * NS);
        assert_eq!(clock.now_ps(0, progress[0] + 21), 25 * NS);
        assert_eq!(clock.manager_cost().slow_motion_ps, 40 * NS);
    }

    #[test]
    fn managers_pay_in_full_unless_told_otherwise() {
        let (mut clock, progress) = two();
        clock.set_manages(0, true);
        clock.fold(0, progress[0] + 30);
        assert_eq!(clock.now_ps(0, progress[0] + 30), clock.model_ps(0, progress[0] + 30));
    }

    #[test]
    fn the_machine_waits_for_the_slowest() {
        let (mut clock, progress) = two();
        let slowest = |clock: &Clock, second| clock.now_ps(0, progress[0] + 500).min(second);
        let behind = clock.now_ps(1, progress[1] + 99);
        assert_eq!(clock.close_quantum(slowest(&clock, behind)), None);
        let behind = clock.now_ps(1, progress[1] + 101);
        assert_eq!(clock.close_quantum(slowest(&clock, behind)), Some(100 * NS));
        assert_eq!(clock.machine_ps(), 100 * NS);
        assert_eq!(clock.horizon_ps(), 200 * NS);
    }

    #[test]
    fn a_long_stall_skips_empty_quanta() {
        let (mut clock, _) = two();
        assert_eq!(clock.close_quantum(770 * NS), Some(700 * NS));
        assert_eq!(clock.horizon_ps(), 800 * NS);
    }

    #[test]
    fn sleep_moves_the_horizon_and_waking_never_goes_back() {
        let (mut clock, _) = two();
        assert_eq!(clock.sleep_until(5_000 * NS), 5_000 * NS);
        assert_eq!(clock.horizon_ps(), 5_100 * NS);
        assert_eq!(clock.sleep_until(4_000 * NS), 0);
        assert_eq!(clock.wake(0, 5_000 * NS), 5_000 * NS);
        assert_eq!(clock.wake(0, 4_000 * NS), 0);
    }

    #[test]
    fn a_shorter_quantum_takes_effect_at_once() {
        let (mut clock, _) = two();
        clock.set_quantum_ps(10 * NS);
        assert_eq!(clock.horizon_ps(), 10 * NS);
        assert_eq!(clock.close_quantum(10 * NS), Some(10 * NS));
        clock.set_quantum_ps(100 * NS);
        assert_eq!(clock.horizon_ps(), 20 * NS);
    }
}
