//! From moves and placements to proposals with their reasons.

use super::REGISTERED;
use super::decide::{Destination, Move, Phase, Situation};
use super::mph::{Placement, Rule};
use super::observe::Sockets;
use super::view::{DataHome, Running};
use crate::index_set::CpuSet;
use crate::model::{Model, Thread};
use crate::plan::{Action, Proposal, Reason};
use crate::topology::Topology;
use crate::units::{Pid, Tid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Why SAM proposes an action. Rates are events per second of CPU time; nodes are those of the
/// topology.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum SamReason {
    /// A thread moves to repair a problem.
    Move {
        /// The problem.
        phase: Phase,
        /// The state of the destination CPU.
        destination: Destination,
        /// Whether this thread has the problem, or makes room for the thread that has it.
        side: Side,
        /// The rate behind the flag of the thread with the problem: COH, RDR or MEM. In phase R the
        /// place of the thread's data may set the flag. Then it is RDR or MEM, whichever is higher
        /// for its threshold. A flag outlasts single intervals in which the rate is below it.
        rate_per_s: f64,
        /// The threshold of this rate.
        threshold_per_s: f64,
        /// Node that this thread leaves.
        from: usize,
        /// Node that this thread joins.
        to: usize,
    },
    /// A coherent thread is pinned to the socket where a thread of its process joins it.
    Company {
        /// The thread that joins.
        of: Tid,
        /// Node of both.
        node: usize,
    },
    /// A memory-bound thread is pinned to the socket of its data, because another thread of its
    /// process was moved away from its own data.
    AtHome {
        /// Node of the thread.
        node: usize,
    },
    /// A whole application is placed (SAM-MPH).
    Placement {
        /// The rule that placed it.
        rule: Rule,
        /// Node of this thread's CPUs; `None` for all.
        to: Option<usize>,
        /// Running threads of the application.
        threads: usize,
    },
}

/// The side of a thread in a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Side {
    /// The thread with the problem.
    Mover,
    /// The thread that changes places with it.
    Partner {
        /// The thread with the problem.
        of: Tid,
    },
}

/// One interval as the functions of this module see it.
pub(super) struct View<'a> {
    pub(super) model: &'a Model,
    pub(super) topology: &'a Topology,
    pub(super) sockets: &'a Sockets,
    /// By CPU, the model's index of the thread that runs there.
    pub(super) threads: &'a [Option<usize>],
    pub(super) situation: Situation<'a>,
}

impl View<'_> {
    fn socket(&self, cpu: usize) -> usize {
        self.situation.layout.socket_of_cpu[cpu].expect("moves are between CPUs of sockets")
    }

    fn affinity(&self, thread: &Thread, cpus: CpuSet, via: Option<usize>) -> Action {
        Action::SetAffinity { pid: self.model.apps[thread.app].pid, tid: thread.tid, cpus, via }
    }

    /// Proposes that the thread of CPU `from` goes to CPU `to`. Its mask is then all CPUs of that
    /// socket that it may use.
    fn step(&self, from: usize, to: usize, reason: SamReason) -> Option<Proposal> {
        let thread = &self.model.threads[self.threads[from]?];
        let cpus =
            self.situation.layout.sockets[self.socket(to)].mask.intersection(&thread.allowed);
        let via = (from != to).then_some(to);
        let action = self.affinity(thread, cpus, via);
        Some(Proposal { policy: REGISTERED.name, action, reason: Reason::Sam(reason) })
    }

    /// CPUs with threads of the moved thread's process that are pinned where they are because of a
    /// move. In phase C these are the coherent threads on the target socket. In phase R these are
    /// the memory-bound threads at home, on any socket. Threads that move in this interval are left
    /// out.
    fn pinned_beside(&self, chosen: &Move, moves: &[Move]) -> impl Iterator<Item = usize> {
        let Situation { layout, uses, state, preset, .. } = self.situation;
        let pid_on = |cpu: usize| uses[cpu].thread().and_then(|running| running.pid);
        let pid = pid_on(chosen.from);
        let Move { phase, to, .. } = *chosen;
        let moves_too = |cpu: usize| moves.iter().any(|other| other.from == cpu || other.to == cpu);
        let stays = move |cpu: usize, socket: usize| match phase {
            Phase::Coherence => {
                preset.pins_joined_threads
                    && state.flags[cpu].coherence
                    && layout.socket_of_cpu[to] == Some(socket)
            }
            Phase::Remote => {
                let is_home = |one: &Running| one.home == DataHome::Socket(socket);
                preset.pins_threads_at_home
                    && state.flags[cpu].memory
                    && uses[cpu].thread().is_some_and(is_home)
            }
            Phase::Bandwidth => false,
        };
        (0..uses.len()).filter(move |&cpu| {
            let stays = |socket| stays(cpu, socket);
            pid.is_some()
                && pid_on(cpu) == pid
                && !moves_too(cpu)
                && layout.socket_of_cpu[cpu].is_some_and(stays)
        })
    }
}

/// The proposals of moves, and of the threads that are pinned because of them.
pub(super) fn moves(view: &View<'_>, moves: &[Move]) -> Vec<Proposal> {
    let mut proposals = Vec::with_capacity(2 * moves.len());
    let mut pinned = CpuSet::new();
    for chosen in moves {
        let Some(mover) = view.situation.uses[chosen.from].thread() else { continue };
        proposals.extend(steps(view, chosen));
        for cpu in view.pinned_beside(chosen, moves) {
            if pinned.contains(cpu) {
                continue;
            }
            pinned.insert(cpu);
            let node = view.sockets.node(view.socket(cpu));
            let reason = match chosen.phase {
                Phase::Remote => SamReason::AtHome { node },
                _ => SamReason::Company { of: mover.tid, node },
            };
            proposals.extend(view.step(cpu, cpu, reason));
        }
    }
    proposals
}

/// The proposals of one move: for the mover, and for its partner where they change places.
pub(super) fn steps(view: &View<'_>, chosen: &Move) -> Vec<Proposal> {
    let Some(mover) = view.situation.uses[chosen.from].thread() else { return Vec::new() };
    let (rate_per_s, threshold_per_s) = rate(view, mover, chosen.phase);
    let step = |side, from, to| {
        let node = |cpu| view.sockets.node(view.socket(cpu));
        let Move { phase, destination, .. } = *chosen;
        let reason = SamReason::Move {
            phase,
            destination,
            side,
            rate_per_s,
            threshold_per_s,
            from: node(from),
            to: node(to),
        };
        view.step(from, to, reason)
    };
    let mut steps = Vec::with_capacity(2);
    steps.extend(step(Side::Mover, chosen.from, chosen.to));
    if chosen.destination != Destination::Idle {
        steps.extend(step(Side::Partner { of: mover.tid }, chosen.to, chosen.from));
    }
    steps
}

/// The rate behind the mover's flag, and the threshold, in events per second.
fn rate(view: &View<'_>, mover: &Running, phase: Phase) -> (f64, f64) {
    let thresholds = view.situation.thresholds;
    let remote = (mover.remote, thresholds.remote);
    let memory = (mover.memory, thresholds.memory_thread);
    let ratio = |(rate, threshold): (f64, f64)| rate / threshold;
    match phase {
        Phase::Coherence => (mover.coherence, thresholds.coherence),
        Phase::Remote if !view.situation.preset.remote_by_home => remote,
        Phase::Remote if ratio(remote) >= ratio(memory) => remote,
        Phase::Remote | Phase::Bandwidth => memory,
    }
}

/// Masks of the last placement of each application, so that they are not requested again.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignments {
    by_app: BTreeMap<Pid, BTreeMap<Tid, CpuSet>>,
}

impl Assignments {
    pub(super) fn retain(&mut self, is_alive: impl Fn(Pid) -> bool) {
        self.by_app.retain(|&pid, _| is_alive(pid));
    }
}

/// The proposals of placements. A thread that runs inside the mask requested last gets none.
pub(super) fn placements(
    view: &View<'_>,
    placements: &[Placement],
    assigned: &mut Assignments,
) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for placement in placements {
        let before = assigned.by_app.remove(&placement.pid);
        if placement.rule == Rule::Released && before.is_none() {
            continue;
        }
        let before = before.unwrap_or_default();
        let mut now = BTreeMap::new();
        for (thread, socket) in targets(view, placement) {
            let cpus = mask(view, thread, placement, socket);
            let is_new = before.get(&thread.tid) != Some(&cpus);
            if !cpus.is_empty() && (is_new || !cpus.contains(thread.cpu)) {
                let reason = SamReason::Placement {
                    rule: placement.rule,
                    to: socket.map(|socket| view.sockets.node(socket)),
                    threads: placement.sockets.iter().map(|(_, threads)| threads).sum(),
                };
                let action = view.affinity(thread, cpus.clone(), None);
                proposals.push(Proposal {
                    policy: REGISTERED.name,
                    action,
                    reason: Reason::Sam(reason),
                });
            }
            now.insert(thread.tid, cpus);
        }
        if placement.rule != Rule::Released {
            assigned.by_app.insert(placement.pid, now);
        }
    }
    proposals
}

/// The mask of a thread of a placed application: of its socket, or all usable CPUs for `None`.
fn mask(view: &View<'_>, thread: &Thread, placement: &Placement, socket: Option<usize>) -> CpuSet {
    let Some(socket) = socket else {
        return view.topology.usable(&thread.allowed);
    };
    let socket = &view.situation.layout.sockets[socket];
    let cpus = if placement.rule == Rule::OwnCores { &socket.core_mask } else { &socket.mask };
    cpus.intersection(&thread.allowed)
}

/// The threads of a placed application with their sockets; `None` for all CPUs.
///
/// One socket takes all threads, sleeping ones included. Over several sockets only running threads
/// are spread. A thread stays on its socket while that socket's share lasts.
fn targets<'a>(view: &View<'a>, placement: &Placement) -> Vec<(&'a Thread, Option<usize>)> {
    let Some(app) = view.model.app(placement.pid) else { return Vec::new() };
    let threads = view.model.threads_of(app).iter().filter(|thread| thread.exempt.is_none());
    match placement.sockets.as_slice() {
        [] => threads.map(|thread| (thread, None)).collect(),
        &[(socket, _)] => threads.map(|thread| (thread, Some(socket))).collect(),
        shares => spread(view, shares, threads.collect()),
    }
}

fn spread<'a>(
    view: &View<'a>,
    shares: &[(usize, usize)],
    threads: Vec<&'a Thread>,
) -> Vec<(&'a Thread, Option<usize>)> {
    let mut left: BTreeMap<usize, usize> = shares.iter().copied().collect();
    let is_running = |thread: &&Thread| {
        let on_cpu = view.threads[thread.cpu].map(|index| view.model.threads[index].tid);
        on_cpu == Some(thread.tid)
    };
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for thread in threads.into_iter().filter(is_running) {
        let socket = view.situation.layout.socket_of_cpu[thread.cpu];
        match socket
            .and_then(|socket| Some((socket, left.get_mut(&socket).filter(|left| **left > 0)?)))
        {
            Some((socket, left)) => {
                *left -= 1;
                stay.push((thread, Some(socket)));
            }
            None => go.push(thread),
        }
    }
    for thread in go {
        let target = shares
            .iter()
            .map(|(socket, _)| *socket)
            .find(|socket| left.get(socket).is_some_and(|n| *n > 0));
        let Some(socket) = target else { break };
        left.entry(socket).and_modify(|left| *left -= 1);
        stay.push((thread, Some(socket)));
    }
    stay
}

impl SamReason {
    /// The same with each node renamed.
    #[must_use]
    pub(crate) fn renamed(mut self, name: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Move { from, to, .. } => (*from, *to) = (name(*from), name(*to)),
            Self::Company { node, .. } | Self::AtHome { node } => *node = name(*node),
            Self::Placement { to, .. } => *to = to.map(name),
        }
        self
    }
}

impl fmt::Display for SamReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { phase, destination, side, rate_per_s, threshold_per_s, from, to } => {
                let (rate, limit) = (rate_per_s / 1e6, threshold_per_s / 1e6);
                match side {
                    Side::Mover => {
                        // A flag outlasts single intervals below its threshold.
                        let side = if rate > limit { "above" } else { "now, lately above" };
                        write!(f, "{phase} {rate:.2} M/s {side} {limit:.2}")?;
                        write!(f, ", {from}→{to} to {destination}")
                    }
                    Side::Partner { of } => {
                        write!(f, "changes places with {of} ({phase}), {from}→{to}")
                    }
                }
            }
            Self::Company { of, node } => write!(f, "stays on node {node}, where {of} joins it"),
            Self::AtHome { node } => write!(f, "stays on node {node}, where its data is"),
            Self::Placement { rule, to: Some(to), threads } => {
                write!(f, "{rule}: {threads} threads, node {to}")
            }
            Self::Placement { rule, to: None, .. } => write!(f, "{rule}"),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coherence => "coherence between sockets",
            Self::Remote => "remote memory",
            Self::Bandwidth => "memory bandwidth",
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "an idle CPU",
            Self::CpuBound => "the place of a CPU-bound thread",
            Self::Homeward => "the place of a thread that goes home",
            Self::Away => "the place of a thread that is away from its own data",
            Self::MemoryBound => "the place of a memory-bound thread",
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HighCoherence => "stalls on coherence, one socket",
            Self::LatencyBound => "bound by latency, may share cores",
            Self::OwnCores => "computes, wants cores of its own",
            Self::Released => "fits no socket, all CPUs again",
        })
    }
}
