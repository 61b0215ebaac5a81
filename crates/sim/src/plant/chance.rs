//! Random numbers that are equal in two runs of one seed, even under different managers.
//!
//! A random number is a function of the seed, its purpose, the time and the subject. With a
//! sequential generator, one more draw in one run would change every later number. Two placements
//! would then be compared with different random events.

use rondpoint_core::{Nanos, Random};

/// What a chance decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Demand of a process in an epoch.
    Burst = 1,
    /// Whether the kernel moves a thread without need.
    Wander = 2,
    /// The node on which a process begins.
    Start = 3,
    /// The CPU on which a thread wakes.
    Wake = 4,
    /// The thread whose message wakes a thread.
    Message = 5,
    /// Whether a thread that shares its CPU moves to another, and to which.
    Turn = 6,
    /// Time until the next process of a program starts.
    Arrival = 7,
    /// The node on which the manager runs.
    Manager = 8,
}

#[derive(Debug, Clone)]
pub(super) struct Chances {
    seed: u64,
}

impl Chances {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// A number in `0.0..1.0`.
    pub(super) fn of(&self, purpose: Purpose, now: Nanos, subject: usize) -> f64 {
        let mut random = Random::new(self.seed);
        for part in [purpose as u64, now.0, subject as u64] {
            random = Random::new(random.next_u64() ^ part);
        }
        random.unit()
    }
}
