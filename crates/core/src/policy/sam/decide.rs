//! The second half of an interval: the three phases in the order of the preset, one problem
//! repaired in each interval.
//!
//! Phases collect moves on a [`Board`]. A CPU takes part in at most one move. Every thread
//! therefore has at most one destination, and all moves can be made at once.

use super::away::Marks;
use super::consolidate::{Consolidated, Flags};
use super::order::order;
use super::preset::{Order, Preset};
use super::thresholds::Thresholds;
use super::view::{Layout, Running, Use};
use super::{bandwidth, coherence, remote};
use crate::Pid;
use alloc::vec;
use alloc::vec::Vec;

/// The problem that a move repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Phase {
    /// Phase C: threads that exchange data across sockets move to one socket.
    Coherence,
    /// Phase R: threads move to the socket of their data.
    Remote,
    /// Phase B: memory-bound threads spread over the sockets' memory controllers.
    Bandwidth,
}

/// The state of the destination CPU, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Destination {
    /// The CPU is idle.
    Idle,
    /// Exchange with a CPU-bound thread.
    CpuBound,
    /// Exchange with a thread away from its data, which moves to its data by it.
    Homeward,
    /// Exchange with a thread whose data is remote where it runs, so that it loses nothing.
    Away,
    /// Exchange with a memory-bound thread: a compromise, after which the interval ends.
    MemoryBound,
}

/// One move: the thread of CPU `from` goes to CPU `to`. The thread of `to`, if any, goes to `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The problem that it repairs.
    pub phase: Phase,
    /// Source CPU.
    pub from: usize,
    /// Destination CPU.
    pub to: usize,
    /// The state of `to`.
    pub destination: Destination,
}

/// All that a decision looks at.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// CPUs and sockets of the machine.
    pub layout: &'a Layout,
    /// The state of each CPU.
    pub uses: &'a [Use],
    /// Flags and sums of this interval.
    pub state: &'a Consolidated,
    /// Marks of the threads away from their data.
    pub marks: &'a Marks,
    /// Thresholds for this machine.
    pub thresholds: &'a Thresholds,
    /// Variant of the algorithm.
    pub preset: &'a Preset,
}

/// The moves of one interval: the phases in the preset's order until one ends the interval. A CPU
/// takes part in at most one move.
#[must_use]
pub fn decide(situation: Situation<'_>) -> Vec<Move> {
    let mut board = Board::new(situation);
    phases(&mut board);
    board.moves
}

/// The moves of phases R and B, without the threads of processes that SAM-MPH placed as a whole.
#[must_use]
pub fn decide_for_others(situation: Situation<'_>, is_placed: impl Fn(Pid) -> bool) -> Vec<Move> {
    let mut board = Board::new(situation);
    for (cpu, taken) in board.taken.iter_mut().enumerate() {
        let pid = situation.uses[cpu].thread().and_then(|running| running.pid);
        *taken |= pid.is_some_and(&is_placed);
    }
    remote_then_bandwidth(&mut board);
    board.moves
}

fn remote_then_bandwidth(board: &mut Board<'_>) {
    if !remote::send_home(board) {
        bandwidth::spread(board);
    }
}

fn phases(board: &mut Board<'_>) {
    let is_over = match board.situation.preset.order {
        Order::CoherenceFirst => coherence::gather(board) || remote::send_home(board),
        Order::RemoteFirst => remote::send_home(board) || coherence::gather(board),
    };
    if !is_over {
        bandwidth::spread(board);
    }
}

/// The situation and the moves chosen so far.
pub(super) struct Board<'a> {
    pub(super) situation: Situation<'a>,
    /// All sockets in the order in which the phases visit them.
    pub(super) order: Vec<usize>,
    /// By CPU: it already takes part in a move, or it may not.
    pub(super) taken: Vec<bool>,
    pub(super) moves: Vec<Move>,
}

impl<'a> Board<'a> {
    pub(super) fn new(situation: Situation<'a>) -> Self {
        let taken = situation.uses.iter().map(|cpu_use| matches!(cpu_use, Use::Reserved)).collect();
        Self { situation, order: order(&situation), taken, moves: vec![] }
    }

    pub(super) fn flags(&self, cpu: usize) -> Flags {
        self.situation.state.flags[cpu]
    }

    pub(super) fn thread(&self, cpu: usize) -> Option<&'a Running> {
        self.situation.uses[cpu].thread()
    }

    /// CPUs of a socket that may take part in a move, with their threads.
    pub(super) fn movable(&self, socket: usize) -> impl Iterator<Item = (usize, &'a Running)> + '_ {
        let cpus = self.situation.layout.sockets[socket].cpus.iter().copied();
        cpus.filter(|&cpu| !self.taken[cpu]).filter_map(|cpu| Some((cpu, self.thread(cpu)?)))
    }

    /// An idle CPU of the socket that is wanted and that the thread may use. First hardware threads
    /// of cores come first.
    pub(super) fn idle(
        &self,
        socket: usize,
        running: &Running,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.situation.layout.sockets[socket].cpus.iter().copied().find(|&cpu| {
            !self.taken[cpu]
                && matches!(self.situation.uses[cpu], Use::Idle)
                && wanted(cpu)
                && running.may_use(cpu)
        })
    }

    /// A CPU of the socket whose thread is wanted and may change places with `running` on CPU
    /// `from`.
    pub(super) fn partner(
        &self,
        socket: usize,
        from: usize,
        running: &Running,
        wanted: impl Fn(Flags, &Running) -> bool,
    ) -> Option<usize> {
        let fits = |&(cpu, other): &(usize, &Running)| {
            wanted(self.flags(cpu), other) && running.may_use(cpu) && other.may_use(from)
        };
        self.movable(socket).find(fits).map(|(cpu, _)| cpu)
    }

    /// Adds a move. Panics if one of its CPUs already takes part in another.
    pub(super) fn commit(&mut self, chosen: Move) {
        assert!(!self.taken[chosen.from] && !self.taken[chosen.to], "a CPU takes part in one move");
        self.taken[chosen.from] = true;
        self.taken[chosen.to] = true;
        self.moves.push(chosen);
    }
}
