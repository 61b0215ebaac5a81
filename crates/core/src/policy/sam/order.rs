//! The order of the sockets. The phases take the first socket that will do, so this order breaks
//! their ties.
//!
//! The published code goes by number, so the outcome depends on the numbers of equal sockets. In
//! one random case, one numbering finds an idle CPU for the second thread of a pair, and the other
//! only an exchange. Ours goes by the threads on the socket. Sockets that it cannot tell apart are
//! equal in everything that a decision looks at, so either choice is the same but for names.

use super::decide::Situation;
use super::view::{DataHome, Use};
use crate::Tid;
use alloc::vec::Vec;

/// The tie-break between sockets that would do equally well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOrder {
    /// Ascending by socket number [author code].
    Number,
    /// Ascending by the lowest thread number on the socket, then the sockets without a running
    /// thread (inferred).
    Occupants,
}

/// All sockets in the order in which the phases visit them.
pub(super) fn order(situation: &Situation<'_>) -> Vec<usize> {
    let sockets = 0..situation.layout.sockets.len();
    if situation.preset.socket_order == SocketOrder::Number {
        return sockets.collect();
    }
    let mut occupied: Vec<(Tid, usize)> = sockets
        .clone()
        .filter_map(|socket| Some((lowest_tid(situation, socket)?, socket)))
        .collect();
    occupied.sort_unstable();
    let mut order: Vec<usize> = occupied.into_iter().map(|(_, socket)| socket).collect();
    let mut vacant: Vec<usize> = sockets.filter(|socket| !order.contains(socket)).collect();
    vacant.sort_by_cached_key(|&socket| Vacant::new(situation, socket));
    order.append(&mut vacant);
    order
}

/// The lowest thread number on a socket.
fn lowest_tid(situation: &Situation<'_>, socket: usize) -> Option<Tid> {
    let cpus = situation.layout.sockets[socket].cpus.iter();
    cpus.filter_map(|&cpu| Some(situation.uses[cpu].thread()?.tid)).min()
}

/// Sort key of a socket without threads: all that a decision sees of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Vacant {
    /// By CPU of the socket: whether it is reserved, and whether it is the first of its core.
    cpus: Vec<(bool, bool)>,
    /// By running thread, ascending: whether its data is elsewhere, and which CPUs of the socket it
    /// may use.
    threads: Vec<(Tid, bool, Vec<bool>)>,
    /// By marked thread, ascending: whether its home is not here, and whether it was not seen
    /// remote here.
    marks: Vec<(bool, bool)>,
}

impl Vacant {
    fn new(situation: &Situation<'_>, socket: usize) -> Self {
        let cpus = &situation.layout.sockets[socket].cpus;
        let look = |&cpu: &usize| {
            let is_reserved = matches!(situation.uses[cpu], Use::Reserved);
            (is_reserved, situation.layout.is_first_of_core[cpu])
        };
        let running = situation.uses.iter().filter_map(Use::thread);
        let mut threads: Vec<(Tid, bool, Vec<bool>)> = running
            .map(|running| {
                let is_elsewhere = running.home != DataHome::Socket(socket);
                (running.tid, is_elsewhere, cpus.iter().map(|&cpu| running.may_use(cpu)).collect())
            })
            .collect();
        threads.sort_unstable();
        let marks = situation.marks.iter();
        Self {
            cpus: cpus.iter().map(look).collect(),
            threads,
            marks: marks
                .map(|away| (away.home() != Some(socket), !away.was_seen_remote_on(socket)))
                .collect(),
        }
    }
}
