//! The first half of an interval: which threads and which sockets have which problem. Linear in the
//! CPUs.

use super::away::Marks;
use super::preset::Preset;
use super::thresholds::Thresholds;
use super::view::{DataHome, Layout, Running, Use};
use alloc::vec::Vec;

/// The problems of the thread on one CPU: its rates compared with the thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// A managed thread runs here.
    pub active: bool,
    /// The thread exchanges data with another socket (COH).
    pub coherence: bool,
    /// The thread exchanges data inside its socket (SNP).
    pub sharing: bool,
    /// The thread is memory-bound (MEM).
    pub memory: bool,
    /// The thread is marked, and its data is remote from this socket.
    pub remote: bool,
    /// The thread is marked: on some socket its data is remote.
    pub marked: bool,
    /// A rate of the thread is missing, so a flag that is not set may be wrong.
    pub uncounted: bool,
}

impl Flags {
    /// Whether the thread is known to have none of the problems COH, SNP and MEM.
    #[must_use]
    pub fn is_cpu_bound(self) -> bool {
        self.active && !self.uncounted && !self.coherence && !self.sharing && !self.memory
    }
}

/// Sums over the threads of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SocketSums {
    /// Inter-socket coherence, events per second.
    pub coherence: f64,
    /// Coherence inside the socket, events per second.
    pub sharing: f64,
    /// Last-level cache misses per second.
    pub memory: f64,
    /// Running managed threads.
    pub active: usize,
    /// Threads above the memory threshold.
    pub memory_threads: usize,
    /// Threads away from their data.
    pub remote_threads: usize,
}

/// The state of the machine in one interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Consolidated {
    /// Flags by CPU.
    pub flags: Vec<Flags>,
    /// Sums by socket.
    pub sums: Vec<SocketSums>,
}

impl Consolidated {
    /// Whether the threads of a socket together exceed the threshold of coherence with other
    /// sockets.
    #[must_use]
    pub fn is_coherent(&self, socket: usize, thresholds: &Thresholds) -> bool {
        self.sums[socket].coherence > thresholds.coherence
    }

    /// Whether the threads of a socket together exceed the threshold of coherence inside it.
    #[must_use]
    pub fn is_sharing(&self, socket: usize, thresholds: &Thresholds) -> bool {
        self.sums[socket].sharing > thresholds.coherence
    }

    /// Whether the socket's memory is near saturation: its misses exceed the socket's threshold.
    #[must_use]
    pub fn is_saturated(&self, socket: usize, thresholds: &Thresholds) -> bool {
        self.sums[socket].memory > thresholds.memory_socket
    }
}

/// Compares every running thread and every socket with the thresholds, writes the result to `into`
/// and updates `marks`. `uses` has one entry per CPU; panics otherwise.
pub fn consolidate(
    layout: &Layout,
    uses: &[Use],
    thresholds: &Thresholds,
    preset: &Preset,
    marks: &mut Marks,
    into: &mut Consolidated,
) {
    assert_eq!(uses.len(), layout.cpu_count(), "one use for each CPU");
    into.flags.clear();
    into.sums.clear();
    into.sums.resize(layout.sockets.len(), SocketSums::default());
    for (cpu, cpu_use) in uses.iter().enumerate() {
        let (Some(running), Some(socket)) = (cpu_use.thread(), layout.socket_of_cpu[cpu]) else {
            into.flags.push(Flags::default());
            continue;
        };
        let is_remote = running.remote > thresholds.remote
            || preset.remote_by_home && is_away(running, socket, thresholds);
        marks.observe(preset.marking, running.tid, socket, is_remote, running.home);
        let away = marks.get(running.tid);
        let flags = Flags {
            active: true,
            coherence: running.coherence > thresholds.coherence,
            sharing: running.sharing > thresholds.coherence,
            memory: running.memory > thresholds.memory_thread,
            remote: away.is_some_and(|away| away.is_remote_on(socket)),
            marked: away.is_some(),
            uncounted: running.is_uncounted,
        };
        let sums = &mut into.sums[socket];
        sums.coherence += running.coherence;
        sums.sharing += running.sharing;
        sums.memory += running.memory;
        sums.active += 1;
        sums.memory_threads += usize::from(flags.memory);
        sums.remote_threads += usize::from(flags.remote);
        into.flags.push(flags);
    }
}

/// Whether a thread is memory-bound and its data is known to be on another socket.
fn is_away(running: &Running, socket: usize, thresholds: &Thresholds) -> bool {
    let is_elsewhere = matches!(running.home, DataHome::Socket(home) if home != socket);
    is_elsewhere && running.memory > thresholds.memory_thread
}
