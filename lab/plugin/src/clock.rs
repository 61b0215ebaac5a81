// SPDX-License-Identifier: GPL-2.0-or-later
//! Modelled time: a clock for each vCPU, and one for the machine that never runs ahead of them.
//!
//! QEMU runs the vCPUs in turn on one thread. Each runs until its own clock reaches the *horizon*;
//! when the slowest running vCPU has got there, the machine's clock moves up and a new horizon is
//! set. The clock of a vCPU advances with its instructions, which generated code counts in a word
//! called `progress`, and with the stalls that the hardware model charges. Nothing in here knows
//! QEMU or the host's time.

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
}

/// All clocks of the machine, in picoseconds of guest time since power-on.
#[derive(Debug)]
pub(crate) struct Clock {
    vcpus: Vec<Vcpu>,
    ps_per_instruction: u64,
    quantum_ps: u64,
    machine_ps: u64,
    horizon_ps: u64,
}

impl Clock {
    pub(crate) fn new(vcpus: usize, ps_per_instruction: u64, quantum_ps: u64) -> Self {
        assert!(vcpus > 0 && ps_per_instruction > 0 && quantum_ps > 0);
        let vcpus = vec![Vcpu::default(); vcpus];
        Self { vcpus, ps_per_instruction, quantum_ps, machine_ps: 0, horizon_ps: quantum_ps }
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

    /// The time of a vCPU whose word of progress stands at `progress`.
    pub(crate) fn now_ps(&self, vcpu: usize, progress: u64) -> u64 {
        let cpu = &self.vcpus[vcpu];
        cpu.base_ps + (progress - cpu.mark) * self.ps_per_instruction
    }

    /// Instructions that the vCPU has executed.
    pub(crate) fn instructions(&self, vcpu: usize, progress: u64) -> u64 {
        let cpu = &self.vcpus[vcpu];
        cpu.instructions + (progress - cpu.mark)
    }

    /// Adds the instructions since the last fold to the vCPU's clock; returns how many.
    pub(crate) fn fold(&mut self, vcpu: usize, progress: u64) -> u64 {
        let now = self.now_ps(vcpu, progress);
        let cpu = &mut self.vcpus[vcpu];
        let executed = progress - cpu.mark;
        cpu.instructions += executed;
        cpu.base_ps = now;
        cpu.mark = progress;
        executed
    }

    /// Charges time in which the vCPU executed nothing.
    pub(crate) fn stall(&mut self, vcpu: usize, ps: u64) {
        self.vcpus[vcpu].base_ps += ps;
    }

    /// A vCPU that was idle starts at `ps` at the earliest. Returns how long it had been idle.
    pub(crate) fn wake(&mut self, vcpu: usize, ps: u64) -> u64 {
        let cpu = &mut self.vcpus[vcpu];
        let idle = ps.saturating_sub(cpu.base_ps);
        cpu.base_ps += idle;
        idle
    }

    /// The value to store into the (folded) vCPU's progress so that generated code calls back when
    /// it reaches the horizon, at once if it is there, and after `most` instructions at the latest.
    pub(crate) fn arm(&mut self, vcpu: usize, most: u64) -> u64 {
        let left_ps = self.horizon_ps.saturating_sub(self.vcpus[vcpu].base_ps);
        let most = most.min(MOST_INSTRUCTIONS);
        let allowed = left_ps.div_ceil(self.ps_per_instruction).min(most);
        let progress = CALL_BACK_AT - allowed;
        self.vcpus[vcpu].mark = progress;
        progress
    }

    /// Moves the machine's clock up when every running vCPU has reached the horizon. Returns the
    /// length of the quantum that ended, `None` while somebody is still behind.
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

    /// Nobody runs: the machine sleeps until `ps`. Returns the time slept.
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
