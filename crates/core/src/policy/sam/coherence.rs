//! Phase C: threads that exchange data across sockets come to one socket.

use super::decide::{Board, Destination, Move, Phase};
use super::preset::Gathering;
use super::view::Running;
use crate::Pid;
use alloc::vec::Vec;

/// Threads that are assumed to share data: those of one process, or all threads of unknown process.
type Group = Option<Pid>;

/// Moves coherent threads together. Returns true if one took the place of a memory-bound thread:
/// the interval then ends here.
pub(super) fn gather(board: &mut Board<'_>) -> bool {
    let situation = board.situation;
    let coherent: Vec<usize> = board
        .order
        .iter()
        .copied()
        .filter(|&socket| situation.state.is_coherent(socket, situation.thresholds))
        .collect();
    match situation.preset.gathering {
        Gathering::AllToLower => all_to_lower(board, &coherent),
        Gathering::ProcessToCheaper => processes_to_cheaper(board, &coherent),
    }
    board.moves.iter().any(|chosen| chosen.destination == Destination::MemoryBound)
}

/// The rule of the author code: each flagged socket pulls all coherent threads of the next flagged
/// one.
fn all_to_lower(board: &mut Board<'_>, coherent: &[usize]) {
    for pair in coherent.windows(2) {
        let &[target, source] = pair else { continue };
        let pull = Pull::plan(board, source, target, |_| true);
        pull.commit(board);
    }
}

/// Our rule: each process with coherent threads on both sockets of a pair moves to the socket that
/// costs less.
fn processes_to_cheaper(board: &mut Board<'_>, coherent: &[usize]) {
    // Sockets that a process joined in this interval. It does not leave them again in it.
    let mut occupied: Vec<(usize, Group)> = Vec::new();
    for (place, &first) in coherent.iter().enumerate() {
        let Some((second, groups)) = coherent[place + 1..].iter().find_map(|&second| {
            let groups = common_groups(board, first, second);
            (!groups.is_empty()).then_some((second, groups))
        }) else {
            continue;
        };
        for group in groups {
            let of_group = |running: &Running| running.pid == group;
            let to_first = Pull::plan(board, second, first, of_group);
            let to_second = Pull::plan(board, first, second, of_group);
            let must_stay = |socket| occupied.contains(&(socket, group));
            let prefers_second = must_stay(second) || to_second.cost() < to_first.cost();
            let (pull, target) = if prefers_second && !must_stay(first) {
                (to_second, second)
            } else {
                (to_first, first)
            };
            if !pull.moves.is_empty() {
                occupied.push((target, group));
            }
            pull.commit(board);
        }
    }
}

/// Groups with coherent, movable threads on both sockets.
fn common_groups(board: &Board<'_>, one: usize, other: usize) -> Vec<Group> {
    let mut here = groups(board, one);
    let there = groups(board, other);
    here.retain(|group| there.contains(group));
    here
}

fn groups(board: &Board<'_>, socket: usize) -> Vec<Group> {
    let is_coherent = |(cpu, _): &(usize, &Running)| board.flags(*cpu).coherence;
    let mut groups: Vec<Group> =
        board.movable(socket).filter(is_coherent).map(|(_, running)| running.pid).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// A planned move of a group's coherent threads from one socket to another.
struct Pull {
    moves: Vec<Move>,
    without_destination: usize,
}

impl Pull {
    fn plan(
        board: &mut Board<'_>,
        source: usize,
        target: usize,
        of_group: impl Fn(&Running) -> bool,
    ) -> Self {
        let candidates: Vec<(usize, &Running)> = board
            .movable(source)
            .filter(|&(cpu, running)| board.flags(cpu).coherence && of_group(running))
            .collect();
        let mut pull = Self { moves: Vec::with_capacity(candidates.len()), without_destination: 0 };
        for (from, running) in candidates {
            match destination(board, from, running, source, target) {
                Some((to, destination)) => {
                    // Reserved while the plan is made, so that no two threads get one destination.
                    board.taken[to] = true;
                    pull.moves.push(Move { phase: Phase::Coherence, from, to, destination });
                }
                None => pull.without_destination += 1,
            }
        }
        for planned in &pull.moves {
            board.taken[planned.to] = false;
        }
        pull
    }

    /// The cost of this plan, to compare in this order: threads without a destination, exchanges
    /// with memory-bound threads, all exchanges, moves.
    fn cost(&self) -> (usize, usize, usize, usize) {
        let count = |wanted: fn(Destination) -> bool| {
            self.moves.iter().filter(|m| wanted(m.destination)).count()
        };
        let compromises = count(|destination| destination == Destination::MemoryBound);
        let exchanges = count(|destination| destination != Destination::Idle);
        (self.without_destination, compromises, exchanges, self.moves.len())
    }

    fn commit(self, board: &mut Board<'_>) {
        self.moves.into_iter().for_each(|planned| board.commit(planned));
    }
}

/// The destination of one thread on `target`: an idle CPU, else the place of a CPU-bound thread.
/// Else the place of a thread that goes home by it (with the preset), or of a memory-bound one.
/// Threads that share data stay.
fn destination(
    board: &Board<'_>,
    from: usize,
    running: &Running,
    source: usize,
    target: usize,
) -> Option<(usize, Destination)> {
    if let Some(to) = board.idle(target, running, |_| true) {
        return Some((to, Destination::Idle));
    }
    let marks = board.situation.marks;
    let cpu_bound = board.partner(target, from, running, |flags, _| flags.is_cpu_bound());
    let homeward = || {
        let goes_home = |other: &Running| {
            marks.is_remote_on(other.tid, target) && !marks.is_remote_on(other.tid, source)
        };
        board
            .partner(target, from, running, |flags, other| {
                !flags.sharing && !flags.coherence && goes_home(other)
            })
            .filter(|_| board.situation.preset.homeward_exchange)
    };
    let memory_bound = || {
        board.partner(target, from, running, |flags, _| {
            !flags.sharing && !flags.coherence && !flags.remote
        })
    };
    let found = |kind: Destination| move |to: usize| (to, kind);
    cpu_bound
        .map(found(Destination::CpuBound))
        .or_else(|| homeward().map(found(Destination::Homeward)))
        .or_else(|| memory_bound().map(found(Destination::MemoryBound)))
}
