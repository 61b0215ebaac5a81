//! Phase R: threads with many remote accesses go to the socket of their data.

use super::decide::{Board, Destination, Move, Phase};
use super::view::Running;
use crate::Pid;
use alloc::vec::Vec;

/// Moves threads to the socket of their data. Returns true if one was moved: the interval then ends
/// here.
pub(super) fn send_home(board: &mut Board<'_>) -> bool {
    if board.situation.state.sums.iter().all(|sums| sums.remote_threads == 0) {
        return false;
    }
    let before = board.moves.len();
    let movable = Movable::new(board);
    exchange_pairs(board, &movable);
    send_others(board, &movable);
    board.moves.len() > before
}

/// Selects the threads that phase R may move.
struct Movable {
    /// Skip threads that share data.
    spares_sharers: bool,
    /// Processes with more than one running thread, ascending. A single thread has no partner to
    /// share data with.
    multithreaded: Vec<Pid>,
}

impl Movable {
    fn new(board: &Board<'_>) -> Self {
        let spares_sharers = board.situation.preset.remote_spares_sharers;
        let running = board.situation.uses.iter().filter_map(|cpu_use| cpu_use.thread()?.pid);
        let mut pids: Vec<Pid> = running.filter(|_| spares_sharers).collect();
        pids.sort_unstable();
        let several = pids.chunk_by(|a, b| a == b).filter(|same| same.len() > 1);
        Self { spares_sharers, multithreaded: several.map(|same| same[0]).collect() }
    }

    /// Whether the thread on `cpu` is away from its data and may be moved.
    fn is_away(&self, board: &Board<'_>, cpu: usize, running: &Running) -> bool {
        let flags = board.flags(cpu);
        let has_partner =
            || running.pid.is_none_or(|pid| self.multithreaded.binary_search(&pid).is_ok());
        let is_spared = self.spares_sharers && (flags.coherence || flags.sharing && has_partner());
        flags.remote && !is_spared
    }
}

/// Whether the data of a marked thread may be on this socket.
fn may_be_home(board: &Board<'_>, running: &Running, socket: usize) -> bool {
    board.situation.marks.get(running.tid).is_some_and(|away| !away.is_remote_on(socket))
}

/// Step R1: two threads, each on the socket of the other's data, change places.
fn exchange_pairs(board: &mut Board<'_>, movable: &Movable) {
    let order = board.order.clone();
    for (place, &one) in order.iter().enumerate() {
        for &other in &order[place + 1..] {
            for (from, running) in away_threads(board, movable, one) {
                if !may_be_home(board, running, other) {
                    continue;
                }
                let candidates =
                    board.movable(other).filter(|&(cpu, other)| movable.is_away(board, cpu, other));
                let partner = candidates
                    .filter(|&(to, partner)| {
                        may_be_home(board, partner, one)
                            && running.may_use(to)
                            && partner.may_use(from)
                    })
                    .map(|(to, _)| to)
                    .next();
                if let Some(to) = partner {
                    board.commit(Move {
                        phase: Phase::Remote,
                        from,
                        to,
                        destination: Destination::Homeward,
                    });
                }
            }
        }
    }
}

/// Step R2: the other threads go to an idle CPU at home or change places with a thread there.
fn send_others(board: &mut Board<'_>, movable: &Movable) {
    let order = board.order.clone();
    for &socket in &order {
        for (from, running) in away_threads(board, movable, socket) {
            let homes = order.iter().copied();
            let homes: Vec<usize> =
                homes.filter(|&home| home != socket && may_be_home(board, running, home)).collect();
            let destination =
                homes.into_iter().find_map(|home| destination(board, from, running, socket, home));
            if let Some((to, destination)) = destination {
                board.commit(Move { phase: Phase::Remote, from, to, destination });
            }
        }
    }
}

/// The threads of a socket that are away from their data and may be moved, with their CPUs.
fn away_threads<'a>(
    board: &Board<'a>,
    movable: &Movable,
    socket: usize,
) -> Vec<(usize, &'a Running)> {
    if board.situation.state.sums[socket].remote_threads == 0 {
        return Vec::new();
    }
    board.movable(socket).filter(|&(cpu, running)| movable.is_away(board, cpu, running)).collect()
}

/// The destination of one thread on its home socket. First an idle CPU, then the place of a
/// CPU-bound thread whose data is not remote from `source`. With the preset, then the place of a
/// thread that is away from its own data.
fn destination(
    board: &Board<'_>,
    from: usize,
    running: &Running,
    source: usize,
    home: usize,
) -> Option<(usize, Destination)> {
    // While fewer threads run than there are cores, each gets a core of its own. The author code
    // takes first hardware threads of cores always, against its own comment.
    let socket = &board.situation.layout.sockets[home];
    let whole_cores = board.situation.state.sums[home].active < socket.cores;
    let wanted = |cpu: usize| !whole_cores || board.situation.layout.is_first_of_core[cpu];
    if let Some(to) = board.idle(home, running, wanted) {
        return Some((to, Destination::Idle));
    }
    if !board.situation.preset.remote_exchange {
        return None;
    }
    let marks = board.situation.marks;
    let partner = board.partner(home, from, running, |flags, other| {
        flags.is_cpu_bound() && !marks.is_remote_on(other.tid, source)
    });
    let away = || {
        board
            .partner(home, from, running, |flags, _| {
                flags.remote && !flags.coherence && !flags.sharing
            })
            .filter(|_| board.situation.preset.away_exchange)
    };
    let found = |kind: Destination| move |to: usize| (to, kind);
    partner.map(found(Destination::CpuBound)).or_else(|| away().map(found(Destination::Away)))
}
