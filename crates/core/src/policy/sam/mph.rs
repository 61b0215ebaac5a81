//! SAM-MPH: whole applications placed by their cost of coherence and by whether their threads can
//! share cores.
//!
//! Srikanthan et al., USENIX ATC 2016 (abstract) and the authors' code. Stall cycles per coherence
//! event (SPC) tell how well an application tolerates latency. Instructions per cycle (IPC) tell
//! whether it wants cores of its own: low IPC is bound by latency and can share a core. A history
//! of 16 intervals keeps the mapping from oscillating.

use super::history::History;
use super::thresholds::Thresholds;
use super::view::{Layout, Running, Use};
use crate::Pid;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Statistics of one application over its intervals.
#[derive(Debug, Clone, Default)]
pub struct AppHistory {
    /// Some thread's COH was above the threshold.
    coherence: History,
    /// Some thread's SNP was above the threshold.
    sharing: History,
    /// The threads' mean COH was above the high threshold.
    high_coherence: History,
    /// The threads' mean SNP was above the high threshold.
    high_sharing: History,
    /// Stall cycles per coherence event (SPC) of coherent threads, over the intervals of a phase.
    stalls_per_event: Mean,
    /// IPC over the intervals of a phase.
    instructions_per_cycle: Mean,
}

/// A running mean.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut mean = Mean::default();
    values.for_each(|value| mean.add(value));
    mean.value()
}

impl AppHistory {
    /// Adds one interval. `threads`: the application's running threads.
    pub fn observe(&mut self, threads: &[&Running], thresholds: &Thresholds) {
        let was_steady = self.coherence.or(self.sharing).is_steady();
        let above = |rate: fn(&Running) -> f64| {
            threads.iter().any(|running| rate(running) > thresholds.coherence)
        };
        let high = |rate: fn(&Running) -> f64| {
            mean(threads.iter().map(|running| rate(running)))
                .is_some_and(|rate| rate > thresholds.high_coherence)
        };
        self.coherence.push(above(|running| running.coherence));
        self.sharing.push(above(|running| running.sharing));
        self.high_coherence.push(high(|running| running.coherence));
        self.high_sharing.push(high(|running| running.sharing));
        let coherent = threads.iter().filter(|running| running.coherence > thresholds.coherence);
        if let Some(stalls) = mean(coherent.filter_map(|running| running.stalls_per_coherence)) {
            self.stalls_per_event.add(stalls);
        }
        if let Some(ipc) = mean(threads.iter().filter_map(|running| running.instructions_per_cycle))
        {
            self.instructions_per_cycle.add(ipc);
        }
        if was_steady && !self.coherence.or(self.sharing).is_steady() {
            // A phase of the application ended: its means do not hold for the next.
            self.stalls_per_event = Mean::default();
            self.instructions_per_cycle = Mean::default();
        }
    }
}

/// One application as the placement sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct AppView {
    /// Process of the application.
    pub pid: Pid,
    /// Number of its running threads.
    pub threads: usize,
    /// The socket where most of them run; the lower one on a tie.
    pub socket: usize,
    /// High coherence, between sockets or inside, in more than [`STEADY_ABOVE`] intervals of 16.
    ///
    /// [`STEADY_ABOVE`]: super::STEADY_ABOVE
    pub is_high: bool,
    /// Coherence, between sockets or inside, in more than [`STEADY_ABOVE`] intervals of 16.
    ///
    /// [`STEADY_ABOVE`]: super::STEADY_ABOVE
    pub is_steady: bool,
    /// Stall cycles per coherence event (SPC); `None` if no coherent thread had them counted in
    /// this phase.
    pub stalls_per_event: Option<f64>,
    /// Mean instructions per cycle (IPC); `None` if not counted in this phase.
    pub instructions_per_cycle: Option<f64>,
}

/// The rule by which an application was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Rule {
    /// Stalled by high coherence: one socket for all its threads.
    HighCoherence,
    /// Steady coherence and low IPC: hardware threads of one socket, or of several where none is
    /// large enough.
    LatencyBound,
    /// Steady coherence and high IPC: physical cores of its own.
    OwnCores,
    /// Too large for the room left on its socket: all CPUs again.
    Released,
}

/// The sockets for the threads of one application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Process of the application.
    pub pid: Pid,
    /// The rule that placed it.
    pub rule: Rule,
    /// `(socket, its number of threads)`; empty for all CPUs.
    pub sockets: Vec<(usize, usize)>,
}

/// The histories of all applications.
#[derive(Debug, Clone, Default)]
pub struct Apps {
    histories: BTreeMap<Pid, AppHistory>,
}

impl Apps {
    /// Adds one interval. An application without running threads gets an empty interval; an ended
    /// one is forgotten.
    pub fn observe(
        &mut self,
        uses: &[Use],
        thresholds: &Thresholds,
        is_alive: impl Fn(Pid) -> bool,
    ) {
        let mut running: BTreeMap<Pid, Vec<&Running>> = BTreeMap::new();
        for thread in uses.iter().filter_map(Use::thread) {
            if let Some(pid) = thread.pid {
                running.entry(pid).or_default().push(thread);
            }
        }
        self.histories.retain(|&pid, _| is_alive(pid));
        for &pid in running.keys() {
            self.histories.entry(pid).or_default();
        }
        for (pid, history) in &mut self.histories {
            history.observe(running.get(pid).map_or(&[][..], Vec::as_slice), thresholds);
        }
    }

    /// The applications with running threads, ascending by pid.
    #[must_use]
    pub fn views(&self, layout: &Layout, uses: &[Use]) -> Vec<AppView> {
        let mut by_socket: BTreeMap<Pid, Vec<usize>> = BTreeMap::new();
        for (cpu, cpu_use) in uses.iter().enumerate() {
            let Some((pid, socket)) =
                cpu_use.thread().and_then(|t| t.pid).zip(layout.socket_of_cpu[cpu])
            else {
                continue;
            };
            by_socket.entry(pid).or_insert_with(|| vec![0; layout.sockets.len()])[socket] += 1;
        }
        let view = |(pid, counts): (Pid, Vec<usize>)| {
            let history = self.histories.get(&pid)?;
            let most = *counts.iter().max()?;
            Some(AppView {
                pid,
                threads: counts.iter().sum(),
                socket: counts.iter().position(|&count| count == most)?,
                is_high: history.high_coherence.or(history.high_sharing).is_steady(),
                is_steady: history.coherence.or(history.sharing).is_steady(),
                stalls_per_event: history.stalls_per_event.value(),
                instructions_per_cycle: history.instructions_per_cycle.value(),
            })
        };
        by_socket.into_iter().filter_map(view).collect()
    }
}

/// Places the applications that need it, each on one socket where it fits. First those stalled by
/// high coherence, then those steady in coherence, lowest IPC first. Others that exceed the room
/// left on their socket are released.
#[must_use]
pub fn place(layout: &Layout, apps: &[AppView], thresholds: &Thresholds) -> Vec<Placement> {
    let mut capacity = Capacity::new(layout);
    let mut placements: Vec<Placement> = Vec::new();
    for app in most_stalled(apps, thresholds) {
        if let Some(socket) = capacity.one_socket(app, Contexts::All) {
            placements.push(capacity.assign(app, Rule::HighCoherence, vec![(socket, app.threads)]));
        }
    }
    let is_unplaced = |app: &&AppView, placements: &[Placement]| {
        !placements.iter().any(|done| done.pid == app.pid)
    };
    let mut steady: Vec<(&AppView, f64)> = apps
        .iter()
        .filter(|app| app.is_steady && app.threads > 1 && is_unplaced(app, &placements))
        .filter_map(|app| Some((app, app.instructions_per_cycle?)))
        .collect();
    steady.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    for (app, ipc) in steady {
        let (rule, contexts) = if ipc < thresholds.ipc_limit {
            (Rule::LatencyBound, Contexts::All)
        } else {
            (Rule::OwnCores, Contexts::Cores)
        };
        if let Some(sockets) = capacity.one_or_spread(app, contexts) {
            placements.push(capacity.assign(app, rule, sockets));
        }
    }
    for app in apps.iter().filter(|app| is_unplaced(app, &placements)).collect::<Vec<_>>() {
        if app.threads > capacity.free[app.socket] {
            placements.push(Placement { pid: app.pid, rule: Rule::Released, sockets: Vec::new() });
        }
    }
    placements
}

/// Applications steady in high coherence with an IPC below the limit, highest SPC first.
fn most_stalled<'a>(apps: &'a [AppView], thresholds: &Thresholds) -> Vec<&'a AppView> {
    let mut stalled: Vec<(&AppView, f64)> = apps
        .iter()
        .filter(|app| app.is_high && app.threads > 1)
        .filter(|app| {
            app.instructions_per_cycle.is_some_and(|ipc| ipc < thresholds.ipc_limit_high_coherence)
        })
        .filter_map(|app| Some((app, app.stalls_per_event.filter(|stalls| *stalls > 0.0)?)))
        .collect();
    stalled.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    stalled.into_iter().map(|(app, _)| app).collect()
}

/// The hardware contexts of a socket that an application may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contexts {
    /// All hardware threads.
    All,
    /// One hardware thread of each physical core.
    Cores,
}

impl Contexts {
    /// Share of free contexts. If every socket with room has more, the fuller sockets are filled
    /// first. 15 of 20 hardware threads, or 8 of 10 cores [author code].
    fn roomy_share(self) -> f64 {
        match self {
            Self::All => 15.0 / 20.0,
            Self::Cores => 8.0 / 10.0,
        }
    }
}

/// Contexts left on each socket while applications are placed.
struct Capacity<'a> {
    layout: &'a Layout,
    /// Free hardware threads by socket.
    free: Vec<usize>,
    /// Free physical cores by socket.
    cores: Vec<usize>,
    /// By socket: an application was placed there in this interval.
    is_assigned: Vec<bool>,
}

impl<'a> Capacity<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self {
            layout,
            free: layout.sockets.iter().map(|socket| socket.cpus.len()).collect(),
            cores: layout.sockets.iter().map(|socket| socket.cores).collect(),
            is_assigned: vec![false; layout.sockets.len()],
        }
    }

    fn room(&self, socket: usize, contexts: Contexts) -> usize {
        match contexts {
            Contexts::All => self.free[socket],
            Contexts::Cores => self.cores[socket],
        }
    }

    /// A socket with room for all threads of the application. It is its own if nothing was placed
    /// there, else the first where nothing was placed, else the first.
    fn one_socket(&self, app: &AppView, contexts: Contexts) -> Option<usize> {
        let fits = |socket: &usize| self.room(*socket, contexts) >= app.threads;
        let own = Some(app.socket).filter(|&socket| !self.is_assigned[socket]).filter(fits);
        let empty = || (0..self.free.len()).filter(|&socket| !self.is_assigned[socket]).find(fits);
        own.or_else(empty).or_else(|| (0..self.free.len()).find(fits))
    }

    /// `(socket, threads)` for all threads: one socket, else as few as possible. `None` if the
    /// machine has no room for all threads.
    fn one_or_spread(&self, app: &AppView, contexts: Contexts) -> Option<Vec<(usize, usize)>> {
        if let Some(socket) = self.one_socket(app, contexts) {
            return Some(vec![(socket, app.threads)]);
        }
        let mut order: Vec<usize> =
            (0..self.free.len()).filter(|&socket| self.room(socket, contexts) > 0).collect();
        let total: usize = order.iter().map(|&socket| self.room(socket, contexts)).sum();
        if total < app.threads {
            return None;
        }
        // Among sockets of equal room the application's own comes first.
        let is_elsewhere = |socket: usize| socket != app.socket;
        order.sort_by_key(|&socket| (Reverse(self.room(socket, contexts)), is_elsewhere(socket)));
        let size = |socket: usize| match contexts {
            Contexts::All => self.layout.sockets[socket].cpus.len(),
            Contexts::Cores => self.layout.sockets[socket].cores,
        };
        let least = *order.last()?;
        if self.room(least, contexts) as f64 > contexts.roomy_share() * size(least) as f64 {
            order.sort_by_key(|&socket| (self.room(socket, contexts), is_elsewhere(socket)));
        }
        let mut left = app.threads;
        let mut shares = Vec::new();
        for socket in order {
            let share = left.min(self.room(socket, contexts));
            left -= share;
            if share > 0 {
                shares.push((socket, share));
            }
        }
        Some(shares)
    }

    /// Subtracts the contexts of a placement and returns it. A thread with a core of its own uses
    /// all contexts of the core (inferred).
    fn assign(&mut self, app: &AppView, rule: Rule, sockets: Vec<(usize, usize)>) -> Placement {
        for &(socket, threads) in &sockets {
            let of_socket = &self.layout.sockets[socket];
            let threads_per_core = of_socket.cpus.len() / of_socket.cores.max(1);
            let contexts =
                if rule == Rule::OwnCores { threads * threads_per_core } else { threads };
            self.free[socket] = self.free[socket].saturating_sub(contexts);
            self.cores[socket] = self.cores[socket].saturating_sub(threads);
            self.is_assigned[socket] = true;
        }
        Placement { pid: app.pid, rule, sockets }
    }
}
