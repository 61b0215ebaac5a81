//! CPU time and memory of the daemon itself.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rondpoint_linux::syscall::memory::page_bytes;
use rondpoint_linux::{Root, root};

use crate::session;

/// Between two readings of our own CPU time.
const EVERY: Duration = Duration::from_secs(5);
/// Readings of a minute.
const KEPT: usize = 13;

/// CPU time over the last minute.
pub(super) struct Own {
    readings: VecDeque<(Instant, f64)>,
    pub(super) began: Instant,
}

impl Own {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { readings: [(now, session::own_cpu_s())].into(), began: now }
    }

    /// Takes a reading where it is time to.
    pub(super) fn look(&mut self) {
        if self.readings.back().is_some_and(|(at, _)| at.elapsed() < EVERY) {
            return;
        }
        self.readings.push_back((Instant::now(), session::own_cpu_s()));
        if self.readings.len() > KEPT {
            self.readings.pop_front();
        }
    }

    /// CPU time so far, and the share of one CPU in the last minute.
    pub(super) fn cpu(&self) -> (f64, f64) {
        let now = session::own_cpu_s();
        let share = self
            .readings
            .front()
            .map(|(at, before)| (now - before) / at.elapsed().as_secs_f64().max(f64::MIN_POSITIVE));
        (now, share.unwrap_or(0.0))
    }
}

/// Memory of ours that is resident.
pub(super) fn resident_bytes() -> u64 {
    let bytes = root::read_optional(&Root::live().in_proc("self/statm")).ok().flatten();
    let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * page_bytes() as u64
}
