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

/// Which problem a move repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Phase {
    /// C: threads that exchange data across sockets come together.
    Coherence,
    /// R: threads go to their data.
    Remote,
    /// B: memory-bound threads spread over the controllers.
    Bandwidth,
}

/// The state of the destination, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Destination {
    /// An idle CPU.
    Idle,
    /// A CPU-bound thread, which changes places.
    CpuBound,
    /// A thread away from its data, which goes home by changing places.
    Homeward,
    /// A thread that is away from its data there and has nothing to lose, which changes places.
    Away,
    /// A memory-bound thread, which changes places: the compromise, after which the interval ends.
    MemoryBound,
}

/// One move: the thread of CPU `from` to CPU `to`, and back the one of `to` unless it is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Why.
    pub phase: Phase,
    /// Source CPU.
    pub from: usize,
    /// Destination CPU.
    pub to: usize,
    /// The state of the destination.
    pub destination: Destination,
}

/// All that a decision looks at.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The machine.
    pub layout: &'a Layout,
    /// The state of every CPU.
    pub uses: &'a [Use],
    /// Its consolidation.
    pub state: &'a Consolidated,
    /// The threads away from their data.
    pub marks: &'a Marks,
    /// Values for this machine.
    pub thresholds: &'a Thresholds,
    /// The variant.
    pub preset: &'a Preset,
}

/// The moves that repair the most important problem, or several if they do not disturb each other.
#[must_use]
pub fn decide(situation: Situation<'_>) -> Vec<Move> {
    let mut board = Board::new(situation);
    phases(&mut board);
    board.moves
}

/// The same without the threads of processes that were placed as a whole (SAM-MPH).
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
    /// All sockets in the order in which they are looked at.
    pub(super) order: Vec<usize>,
    /// CPUs that take part in a move or may not.
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

    /// CPUs of a socket on which a thread runs that has no part in a move yet.
    pub(super) fn movable(&self, socket: usize) -> impl Iterator<Item = (usize, &'a Running)> + '_ {
        let cpus = self.situation.layout.sockets[socket].cpus.iter().copied();
        cpus.filter(|&cpu| !self.taken[cpu]).filter_map(|cpu| Some((cpu, self.thread(cpu)?)))
    }

    /// An idle CPU of the socket that the thread may use; first threads of cores first.
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

    /// A thread of the socket, of the wanted kind, that may change places with the one of CPU
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

    pub(super) fn commit(&mut self, chosen: Move) {
        assert!(!self.taken[chosen.from] && !self.taken[chosen.to], "a CPU takes part in one move");
        self.taken[chosen.from] = true;
        self.taken[chosen.to] = true;
        self.moves.push(chosen);
    }
}
