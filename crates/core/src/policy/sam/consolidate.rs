//! The first half of an interval: which threads and which sockets have which problem. Linear in the
//! CPUs.

use super::away::Marks;
use super::preset::Preset;
use super::thresholds::Thresholds;
use super::view::{DataHome, Layout, Running, Use};
use alloc::vec::Vec;

/// Counters of one CPU and the thread on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// A managed thread runs here.
    pub active: bool,
    /// It exchanges data with another socket.
    pub coherence: bool,
    /// It exchanges data inside its socket.
    pub sharing: bool,
    /// It uses much memory bandwidth.
    pub memory: bool,
    /// It is marked, and this socket is away from its data.
    pub remote: bool,
    /// It is marked, here or elsewhere.
    pub marked: bool,
    /// It may have any of them: not all was counted.
    pub uncounted: bool,
}

impl Flags {
    /// A thread without any of the problems: it may run anywhere.
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
    /// Coherence inside, events per second.
    pub sharing: f64,
    /// Memory accesses per second.
    pub memory: f64,
    /// Managed threads running.
    pub active: usize,
    /// Threads above the memory threshold.
    pub memory_threads: usize,
    /// Threads away from their data.
    pub remote_threads: usize,
}

/// The state of the machine in one interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Consolidated {
    /// By CPU.
    pub flags: Vec<Flags>,
    /// By socket.
    pub sums: Vec<SocketSums>,
}

impl Consolidated {
    /// Whether the threads of a socket together exchange much data with other sockets.
    #[must_use]
    pub fn is_coherent(&self, socket: usize, thresholds: &Thresholds) -> bool {
        self.sums[socket].coherence > thresholds.coherence
    }

    /// Whether they exchange much inside.
    #[must_use]
    pub fn is_sharing(&self, socket: usize, thresholds: &Thresholds) -> bool {
        self.sums[socket].sharing > thresholds.coherence
    }

    /// Whether the socket's memory is near saturation.
    #[must_use]
    pub fn is_saturated(&self, socket: usize, thresholds: &Thresholds) -> bool {
        self.sums[socket].memory > thresholds.memory_socket
    }
}

/// Compares every running thread and every socket with the thresholds, and keeps the marks of
/// threads away from their data.
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
        marks.observe(preset.memory, running.tid, socket, is_remote, running.home);
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

/// Whether a thread asks memory for much and its data is known to be on another socket.
fn is_away(running: &Running, socket: usize, thresholds: &Thresholds) -> bool {
    let is_elsewhere = matches!(running.home, DataHome::Socket(home) if home != socket);
    is_elsewhere && running.memory > thresholds.memory_thread
}
