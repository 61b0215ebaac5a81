//! Phase B: memory-bound threads leave a socket with memory near saturation.

use super::decide::{Board, Destination, Move, Phase};
use super::preset::Spread;
use super::view::{DataHome, Running};
use alloc::vec::Vec;

/// Moves memory-bound threads from saturated sockets to the others. Threads that share data, that
/// are marked or, with the preset, that are at home stay.
pub(super) fn spread(board: &mut Board<'_>) {
    let situation = board.situation;
    let mut counts: Vec<usize> =
        situation.state.sums.iter().map(|sums| sums.memory_threads).collect();
    let order = board.order.clone();
    for &source in &order {
        let spared = situation.preset.bandwidth_spares_coherence
            && (situation.state.is_coherent(source, situation.thresholds)
                || situation.state.is_sharing(source, situation.thresholds));
        if !situation.state.is_saturated(source, situation.thresholds) || spared {
            continue;
        }
        for &target in order.iter().filter(|&&target| target != source) {
            let leaving = leaving(board, source, target, &counts);
            let left = relieve(board, source, target, leaving);
            counts[source] -= left;
            counts[target] += left;
        }
    }
}

/// Memory-bound threads that may move from `source` to `target`. `counts`: memory-bound threads by
/// socket.
fn leaving(board: &Board<'_>, source: usize, target: usize, counts: &[usize]) -> usize {
    let situation = board.situation;
    let is_saturated = situation.state.is_saturated(target, situation.thresholds);
    let fewer = counts[target] + 1 < counts[source];
    let half_of_difference = if fewer { (counts[source] - counts[target]) / 2 } else { 0 };
    match situation.preset.spread {
        Spread::Half if !is_saturated => counts[source] / 2,
        Spread::Half | Spread::HalfOfDifference => half_of_difference,
    }
}

/// Moves up to `leaving` threads to idle CPUs of `target` or in exchange for CPU-bound threads.
/// Returns the number moved.
fn relieve(board: &mut Board<'_>, source: usize, target: usize, leaving: usize) -> usize {
    let spares_home = board.situation.preset.bandwidth_spares_home;
    let may_leave = |&(cpu, running): &(usize, &Running)| {
        let flags = board.flags(cpu);
        let is_home = spares_home
            && (running.home == DataHome::Socket(source)
                || running.majority_socket == Some(source));
        flags.memory && !flags.sharing && !flags.marked && !is_home
    };
    let threads: Vec<(usize, &Running)> = board.movable(source).filter(may_leave).collect();
    let mut left = 0;
    for (from, running) in threads {
        if left == leaving {
            break;
        }
        let idle = board.idle(target, running, |_| true).map(|to| (to, Destination::Idle));
        let exchange = || {
            // Unlike the author's code. It looks for the partner on the source socket (an index
            // slip), where an exchange changes nothing.
            board
                .partner(target, from, running, |flags, _| flags.is_cpu_bound())
                .map(|to| (to, Destination::CpuBound))
        };
        if let Some((to, destination)) = idle.or_else(exchange) {
            board.commit(Move { phase: Phase::Bandwidth, from, to, destination });
            left += 1;
        }
    }
    left
}
