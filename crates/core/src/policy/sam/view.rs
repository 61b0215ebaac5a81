//! SAM's input: the sockets of the machine and, for each CPU, the one thread that runs there.

use crate::{CpuSet, Pid, Tid};
use alloc::vec::Vec;

/// The CPUs of a machine by socket. A socket is a node with CPUs: one memory controller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// The sockets.
    pub sockets: Vec<Socket>,
    /// The socket of each CPU; `None` for a CPU that SAM does not use.
    pub socket_of_cpu: Vec<Option<usize>>,
    /// Whether a CPU is the first hardware thread of its core.
    pub is_first_of_core: Vec<bool>,
}

/// The CPUs of one socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Socket {
    /// All CPUs in the order in which an idle one is taken: first hardware threads of cores, then
    /// the others.
    pub cpus: Vec<usize>,
    /// Number of physical cores.
    pub cores: usize,
    /// All CPUs.
    pub mask: CpuSet,
    /// The first hardware thread of each core.
    pub core_mask: CpuSet,
}

impl Layout {
    /// The layout of CPUs given as `(socket, is first of its core)`, in CPU order.
    #[must_use]
    pub fn new(cpus: impl IntoIterator<Item = Option<(usize, bool)>>) -> Self {
        let mut layout = Self::default();
        for (cpu, place) in cpus.into_iter().enumerate() {
            layout.socket_of_cpu.push(place.map(|(socket, _)| socket));
            layout.is_first_of_core.push(place.is_some_and(|(_, first)| first));
            let Some((socket, first)) = place else { continue };
            if layout.sockets.len() <= socket {
                layout.sockets.resize_with(socket + 1, Socket::default);
            }
            let socket = &mut layout.sockets[socket];
            socket.mask.insert(cpu);
            if first {
                socket.cpus.insert(socket.cores, cpu);
                socket.cores += 1;
                socket.core_mask.insert(cpu);
            } else {
                socket.cpus.push(cpu);
            }
        }
        layout
    }

    /// Sockets of equal size. CPUs are numbered socket by socket, in each the first hardware thread
    /// of every core, then the others.
    #[must_use]
    pub fn regular(sockets: usize, cores: usize, threads_per_core: usize) -> Self {
        let of_socket =
            |socket| (0..cores * threads_per_core).map(move |cpu| Some((socket, cpu < cores)));
        Self::new((0..sockets).flat_map(of_socket))
    }

    /// Number of CPUs of the machine.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.socket_of_cpu.len()
    }

    /// Logical CPUs of a socket, mean over the sockets.
    #[must_use]
    pub fn mean_cpus_of_a_socket(&self) -> f64 {
        let cpus: usize = self.sockets.iter().map(|socket| socket.cpus.len()).sum();
        cpus as f64 / self.sockets.len().max(1) as f64
    }
}

/// The place of a thread's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataHome {
    /// Not observed.
    #[default]
    Unknown,
    /// Spread over sockets, by interleaving for instance, or on a node without CPUs.
    Scattered,
    /// Mostly on one socket.
    Socket(usize),
}

/// A managed thread that runs on a CPU, with its rates in events per second of CPU time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Running {
    /// Number of the thread.
    pub tid: Tid,
    /// Process of the thread, where known.
    pub pid: Option<Pid>,
    /// Inter-socket coherence (COH): misses served by the cache of another socket.
    pub coherence: f64,
    /// Coherence inside the socket (SNP): private-cache misses that neither hit nor missed the
    /// last-level cache.
    pub sharing: f64,
    /// Memory accesses (MEM): last-level cache misses.
    pub memory: f64,
    /// Requests to remote memory (RDR).
    pub remote: f64,
    /// Instructions per cycle, where known (SAM-MPH).
    pub instructions_per_cycle: Option<f64>,
    /// Stall cycles per inter-socket coherence event, where known (SAM-MPH).
    pub stalls_per_coherence: Option<f64>,
    /// Socket of the thread's data.
    pub home: DataHome,
    /// COH, SNP or MEM is unknown although it is known for other threads, so the thread may have
    /// any of the problems.
    pub is_uncounted: bool,
    /// The socket of more than half of its sampled accesses, by however little. It is too weak a
    /// reason to move there, but a reason to stay (phase B).
    pub majority_socket: Option<usize>,
    /// The CPUs that it may use; `None` for any.
    pub allowed: Option<CpuSet>,
}

impl Running {
    /// Whether the thread may run on a CPU.
    #[must_use]
    pub fn may_use(&self, cpu: usize) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu))
    }
}

/// The state of a CPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Use {
    /// No thread runs here: one may be put here.
    #[default]
    Idle,
    /// Not to be used: the CPU is isolated, or its thread is exempt from management.
    Reserved,
    /// The managed thread that used the CPU most. Threads queued behind it are not seen.
    Thread(Running),
}

impl Use {
    /// The managed thread, if one runs.
    #[must_use]
    pub fn thread(&self) -> Option<&Running> {
        match self {
            Self::Thread(running) => Some(running),
            Self::Idle | Self::Reserved => None,
        }
    }
}
