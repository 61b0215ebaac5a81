// SPDX-License-Identifier: GPL-2.0-or-later
//! Lines that go back and forth between vCPUs: when they do, quanta must be short.
//!
//! Within a quantum one vCPU cannot see what another will do in it. With quanta of 20 µs two
//! threads could hand a line to each other only 50,000 times a second, and SAM would measure the
//! quantum. So a line that changes hands repeatedly makes the quantum shrink to a fraction of a
//! transfer, until the line stays put for a while.

/// Lines remembered, by the low bits of their number.
const REMEMBERED: usize = 64;
/// Transfers of one line that count as going back and forth.
const ENOUGH: u32 = 3;
/// Quanta within which they must happen, and for which short quanta outlast the last of them.
const PATIENCE: u64 = 2;
/// Short quanta per transfer: handing over then takes the transfer's time to a few percent.
const SHORT_PER_TRANSFER: u64 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Remembered {
    line: u64,
    since_ps: u64,
    transfers: u32,
}

/// Decides on the length of quanta.
#[derive(Debug)]
pub(crate) struct Sharing {
    lines: [Remembered; REMEMBERED],
    long_ps: u64,
    short_ps: u64,
    short_until_ps: u64,
}

impl Sharing {
    /// `transfer_ps` is the shortest time in which a line changes hands.
    pub(crate) fn new(quantum_ps: u64, transfer_ps: u64) -> Self {
        let short_ps = (transfer_ps / SHORT_PER_TRANSFER).clamp(1, quantum_ps);
        let lines = [Remembered::default(); REMEMBERED];
        Self { lines, long_ps: quantum_ps, short_ps, short_until_ps: 0 }
    }

    /// A vCPU took a line that another had modified.
    pub(crate) fn transferred(&mut self, line: u64, machine_ps: u64) {
        let window_ps = PATIENCE * self.long_ps;
        let entry = &mut self.lines[(line % REMEMBERED as u64) as usize];
        if entry.line != line || machine_ps > entry.since_ps + window_ps {
            *entry = Remembered { line, since_ps: machine_ps, transfers: 0 };
        }
        entry.transfers += 1;
        if entry.transfers >= ENOUGH {
            self.short_until_ps = machine_ps + window_ps;
        }
    }

    /// How long quanta are to be at this time.
    pub(crate) fn quantum_ps(&self, machine_ps: u64) -> u64 {
        if machine_ps < self.short_until_ps { self.short_ps } else { self.long_ps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_goes_back_and_forth_shortens_quanta_for_a_while() {
        let mut sharing = Sharing::new(1_000, 80);
        sharing.transferred(5, 100);
        sharing.transferred(5, 900);
        assert_eq!(sharing.quantum_ps(1_000), 1_000);
        sharing.transferred(5, 1_500);
        assert_eq!(sharing.quantum_ps(1_500), 20);
        assert_eq!(sharing.quantum_ps(3_499), 20);
        assert_eq!(sharing.quantum_ps(3_500), 1_000);
    }

    #[test]
    fn lines_that_change_hands_now_and_then_do_not() {
        let mut sharing = Sharing::new(1_000, 80);
        for step in 0..100 {
            sharing.transferred(step % 50, step * 100);
            sharing.transferred(7, step * 3_000);
        }
        assert_eq!(sharing.quantum_ps(300_000), 1_000);
    }
}
