//! Above which rate a thread or a socket has a problem: the published values and their scaling to
//! another machine.

use super::observe::Sockets;
use super::view::Layout;
use crate::topology::{Calibrated, Topology};

/// Clock of the machine of the two-socket values: Xeon E5-2660 v2, in MHz [SAM-slides].
const TWO_SOCKET_CLOCK_MHZ: f64 = 2_200.0;
/// Clock of the machine of the four-socket values, in MHz [SAM-MPH author code].
const FOUR_SOCKET_CLOCK_MHZ: f64 = 1_900.0;
/// Extra cost of a line from the other socket of the two-socket machine over one from the same: 120
/// − 32 ns (machines/sam-2.toml, inferred). At the published threshold a thread loses 4.8 % of its
/// time to it.
const TWO_SOCKET_EXTRA_NS: f64 = 88.0;
/// Extra time of a remote load over a local one on the two-socket machine. It is one hop of the
/// interconnect, in ns (machines/sam-2.toml, inferred). At the published threshold a thread that
/// waits for each load loses 12 % of its time to it.
const TWO_SOCKET_EXTRA_LOAD_NS: f64 = 45.0;
/// Logical CPUs of a socket on both machines: ten cores with two hardware threads.
const LOGICAL_CPUS: f64 = 20.0;

/// Rates in events per second of a thread's CPU time, and limits of instructions per cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// COH and SNP, of one thread and of the sum over a socket alike.
    pub coherence: f64,
    /// Last-level cache misses of all threads of a socket.
    pub memory_socket: f64,
    /// Last-level cache misses of one thread: the socket's value over its logical CPUs.
    pub memory_thread: f64,
    /// Requests to remote memory of one thread.
    pub remote: f64,
    /// High COH or SNP, mean over an application's threads (SAM-MPH).
    pub high_coherence: f64,
    /// Instructions per cycle below which an application is bound by latency and may share a core
    /// (SAM-MPH).
    pub ipc_limit: f64,
    /// Instructions per cycle above which stalls on coherence do not matter (SAM-MPH).
    pub ipc_limit_high_coherence: f64,
}

impl Thresholds {
    /// Two sockets of 20 logical CPUs at 2.2 GHz [author code; "as in the paper" by its README].
    /// `high_coherence` is from the user-level port [third-party code].
    pub const TWO_SOCKET: Self = Self {
        coherence: 550_000.0,
        memory_socket: 75_000_000.0,
        memory_thread: 3_750_000.0,
        remote: 2_700_000.0,
        high_coherence: 1_100_000.0,
        ipc_limit: 0.7,
        ipc_limit_high_coherence: 1.4,
    };
    /// Four sockets of 20 logical CPUs at 1.9 GHz [SAM-MPH author code].
    pub const FOUR_SOCKET: Self = Self {
        coherence: 450_000.0,
        memory_socket: 30_000_000.0,
        memory_thread: 1_500_000.0,
        high_coherence: 800_000.0,
        ..Self::TWO_SOCKET
    };
    /// The user-level port on two sockets [third-party code].
    pub const PORT_TWO_SOCKET: Self =
        Self { memory_socket: 100_000_000.0, memory_thread: 5_000_000.0, ..Self::TWO_SOCKET };
    /// The user-level port on four sockets [third-party code].
    pub const PORT_FOUR_SOCKET: Self = Self::FOUR_SOCKET;

    /// The COH threshold, events per second, at which a thread loses the same share of its time as
    /// at the published one (inferred). `extra_ns`: extra cost of a line from another socket.
    #[must_use]
    pub fn coherence_per_s(extra_ns: f64) -> f64 {
        Self::TWO_SOCKET.coherence * TWO_SOCKET_EXTRA_NS / extra_ns
    }

    /// The RDR threshold, requests per second, derived in the same way. `extra_ns`: extra time of a
    /// remote load. Inferred: the authors say only that they found it in a similar way.
    #[must_use]
    pub fn remote_per_s(extra_ns: f64) -> f64 {
        Self::TWO_SOCKET.remote * TWO_SOCKET_EXTRA_LOAD_NS / extra_ns
    }

    /// These thresholds with measured values where `found` has them. `high_coherence` keeps its
    /// ratio to `coherence`. `memory_thread` becomes the socket's value over its `logical_cpus`.
    #[must_use]
    pub fn calibrated(self, found: &Calibrated, logical_cpus: f64) -> Self {
        let coherence = found.coherence_per_s.unwrap_or(self.coherence);
        let memory_socket = found.memory_per_s.unwrap_or(self.memory_socket);
        Self {
            coherence,
            high_coherence: self.high_coherence / self.coherence * coherence,
            memory_socket,
            memory_thread: match found.memory_per_s {
                Some(socket) => socket / logical_cpus,
                None => self.memory_thread,
            },
            remote: found.remote_per_s.unwrap_or(self.remote),
            ..self
        }
    }

    /// The thresholds for another clock and another socket. `clock`: its ratio to the clock of
    /// these values. `logical_cpus`: hardware threads of a socket.
    ///
    /// A thread's rates are events per cycle, so they follow the clock. A socket's misses follow
    /// the number of its CPUs too. Coherence does not: one pair of threads causes it on a socket of
    /// any size.
    #[must_use]
    pub fn scaled(self, clock: f64, logical_cpus: f64) -> Self {
        Self {
            coherence: self.coherence * clock,
            memory_socket: self.memory_socket * clock * logical_cpus / LOGICAL_CPUS,
            memory_thread: self.memory_socket * clock / LOGICAL_CPUS,
            remote: self.remote * clock,
            high_coherence: self.high_coherence * clock,
            ..self
        }
    }
}

/// The published values that a machine's thresholds are scaled from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The authors' two- or four-socket values, by the number of sockets.
    Published,
    /// The user-level port's two- or four-socket values [third-party code].
    Port,
}

impl Basis {
    /// The thresholds for a machine, scaled to its clock and CPUs. More than two sockets take the
    /// four-socket values. Without a known clock only the CPUs count.
    #[must_use]
    pub fn for_machine(self, layout: &Layout, clock_hz: Option<f64>) -> Thresholds {
        let (values, basis_mhz) = match (self, layout.sockets.len() > 2) {
            (Self::Published, false) => (Thresholds::TWO_SOCKET, TWO_SOCKET_CLOCK_MHZ),
            (Self::Published, true) => (Thresholds::FOUR_SOCKET, FOUR_SOCKET_CLOCK_MHZ),
            (Self::Port, false) => (Thresholds::PORT_TWO_SOCKET, TWO_SOCKET_CLOCK_MHZ),
            (Self::Port, true) => (Thresholds::PORT_FOUR_SOCKET, FOUR_SOCKET_CLOCK_MHZ),
        };
        let clock = clock_hz.map_or(1.0, |hz| hz / 1e6 / basis_mhz);
        values.scaled(clock, layout.mean_cpus_of_a_socket())
    }

    /// The thresholds for a topology, with its calibrated values in place of the scaled ones.
    #[must_use]
    pub fn for_topology(self, topology: &Topology) -> Thresholds {
        let layout = Sockets::new(topology).layout;
        let values = self.for_machine(&layout, topology.clock_hz());
        values.calibrated(topology.calibrated(), layout.mean_cpus_of_a_socket())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_machine_gets_the_published_values() {
        let layout = Layout::regular(2, 10, 2);
        let thresholds = Basis::Published.for_machine(&layout, Some(2.2e9));
        assert_eq!(thresholds, Thresholds::TWO_SOCKET);
        let layout = Layout::regular(4, 10, 2);
        let thresholds = Basis::Published.for_machine(&layout, Some(1.9e9));
        assert_eq!(thresholds, Thresholds::FOUR_SOCKET);
    }

    #[test]
    fn measured_thresholds_replace_the_published_ones() {
        let plain = crate::topology::synthetic::parse("node:2 core:4 mhz:2200").expect("a machine");
        let published = Basis::Published.for_topology(&plain);
        assert_eq!(published.coherence, 550_000.0);
        let mut description = plain.description().clone();
        description.calibrated.coherence_per_s = Some(110_000.0);
        let measured =
            Basis::Published.for_topology(&Topology::new(description.clone()).expect("fits"));
        let high_coherence = published.high_coherence / 5.0;
        let coherence = Thresholds { coherence: 110_000.0, high_coherence, ..published };
        assert_eq!(measured, coherence);
        description.calibrated.memory_per_s = Some(8e6);
        description.calibrated.remote_per_s = Some(7e5);
        let measured = Basis::Published.for_topology(&Topology::new(description).expect("fits"));
        let (memory_socket, memory_thread) = (8e6, 2e6);
        assert_eq!(measured, Thresholds { memory_socket, memory_thread, remote: 7e5, ..coherence });
        assert_eq!(Thresholds::coherence_per_s(TWO_SOCKET_EXTRA_NS), 550_000.0);
        assert_eq!(Thresholds::coherence_per_s(10.0 * TWO_SOCKET_EXTRA_NS), 55_000.0);
        assert_eq!(Thresholds::remote_per_s(TWO_SOCKET_EXTRA_LOAD_NS), 2_700_000.0);
        assert_eq!(Thresholds::remote_per_s(3.0 * TWO_SOCKET_EXTRA_LOAD_NS), 900_000.0);
    }

    #[test]
    fn half_the_clock_and_a_tenth_of_the_cpus_scale_the_sum_by_both() {
        let thresholds = Basis::Published.for_machine(&Layout::regular(2, 1, 2), Some(1.1e9));
        assert_eq!(thresholds.memory_socket, 3_750_000.0);
        assert_eq!(thresholds.memory_thread, 1_875_000.0);
        assert_eq!(thresholds.coherence, 275_000.0);
        assert_eq!(thresholds.remote, 1_350_000.0);
    }
}
