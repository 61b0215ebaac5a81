//! The daemon's state for clients, made on request from the last look.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::cost::lost_to_latency;
use rondpoint_core::model::{App, Rung, Traffic};
use rondpoint_core::observation::{Exemption, ProcessObservation, ThreadObservation};
use rondpoint_core::{Bytes, CpuSet, Model, Pid, Tid};
use rondpoint_linux::act::Identity;
use rondpoint_linux::observe::kernel::FreeMemory;
use rondpoint_linux::root;

use super::super::board::Board;
use super::super::config::OPERATORS;
use super::super::own;
use super::Station;
use super::factor::factor;
use super::losses::{Shares, losses};
use crate::control::protocol::{
    Decision, ExplainReply, Link, Mode, Node, Own, Process, STATISTICS, Sensor, State, Status,
    Thread, VERSION,
};
use crate::control::server::Refused;
use crate::machine;

/// Used where the clock is not known, as the core does.
const CLOCK_HZ: f64 = 2e9;

impl Station {
    /// The state; only processes of the user `only` are shown.
    pub(super) fn status(&self, only: Option<u32>) -> Status {
        let board = self.parts.board.borrow();
        let window = board.window.as_ref();
        let config = &self.parts.config;
        let nodes = self.topology.node_count();
        let (cpu_s, cpu_share) = self.own.cpu();
        let file = self.parts.file.as_ref().map(|file| file.display().to_string());
        Status {
            protocol: VERSION,
            version: env!("RONDPOINT_VERSION").to_string(),
            host: machine::host_name(&self.from),
            pid: std::process::id(),
            mode: if config.acts() { Mode::Act } else { Mode::Observe },
            paused: self.paused,
            acts: self.acts(),
            config: file.unwrap_or_else(|| super::super::config::SYSTEM_FILE.to_string()),
            policies: config.policy.policies.clone(),
            at_s: board.at.seconds(),
            running_s: self.own.began.elapsed().as_secs_f64(),
            window_s: window.map_or(0.0, |window| window.elapsed.seconds()),
            sensor: self.sensor(window),
            nodes: self.nodes(window),
            distances: (0..nodes)
                .map(|from| (0..nodes).map(|to| self.topology.distance(from, to)).collect())
                .collect(),
            traffic_bytes_per_s: window.and_then(|window| window.traffic.as_ref()).map(bytes),
            links: self.links(window),
            latency_ns: window.and_then(|window| self.ns(window.latency_cycles)),
            factor: window.map(|window| factor(window, &self.topology)).unwrap_or_default(),
            processes: self.processes(&board, only),
            totals: crate::control::protocol::Totals { looks: board.looks, ..board.totals },
            others: self.others.clone(),
            own: Own {
                cpu_s,
                cpu_share,
                resident_bytes: own::resident_bytes(),
                processes_seen: self.census.len() as u64,
                processes_followed: window.map_or(0, |window| window.apps.len() as u64),
                threads_followed: window.map_or(0, |window| window.threads.len() as u64),
            },
            problems: self.problems(),
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.problems.iter().cloned().collect();
        if let Some(mistake) = &self.mistake {
            problems.push(format!("the configuration is that of before: {mistake}"));
        }
        let group = self.parts.config.control.group.as_deref().filter(|_| self.group.is_none());
        if let Some(group) = group.filter(|group| *group != OPERATORS) {
            problems
                .push(format!("[control] group {group}: not in /etc/group, so only root may act"));
        }
        if let Some(damage) = &self.damage {
            problems.push(format!(
                "the daemon began paused, for it lost what was asked of an earlier one: {damage} \
                 (rondpoint resume ends the pause)"
            ));
        }
        let in_part: Vec<String> =
            self.parts.observer.seen_in_part().iter().map(Pid::to_string).collect();
        if !in_part.is_empty() {
            let roots = in_part.join(", ");
            problems.push(format!("more processes or threads than are followed, below: {roots}"));
        }
        problems
    }

    fn sensor(&self, window: Option<&Model>) -> Sensor {
        let rung = match window.map(|window| window.sensing.rung) {
            Some(Rung::Samples) => "samples",
            Some(Rung::Counters) => "counters",
            Some(Rung::HintFaults) => "hint-faults",
            Some(Rung::Statistics) | None => STATISTICS,
        };
        Sensor {
            rung: rung.to_string(),
            confidence: window.map_or(0.0, |window| window.sensing.confidence),
            generation: self.parts.observer.generation().to_string(),
            notes: self.parts.observer.notes().to_vec(),
        }
    }

    fn nodes(&self, window: Option<&Model>) -> Vec<Node> {
        let load = window.and_then(|window| window.traffic.as_ref()).map(Traffic::load_per_us);
        let mut free = FreeMemory::of(&self.from, &self.topology);
        let free = free.read(&self.topology).ok().flatten();
        let line = rondpoint_core::units::LINE_BYTES as f64;
        let node = |node: usize| Node {
            node: self.topology.kernel_node(node),
            cpus: self.topology.cpus_of_node(node).len() as u32,
            memory_bytes: self.topology.memory(node).0,
            free_bytes: free.as_ref().and_then(|free| free.get(node)).map(|free: &Bytes| free.0),
            load_bytes_per_s: load.as_ref().map(|load| load[node] * 1e6 * line),
            capacity_bytes_per_s: self.topology.controller_bytes_per_s(node),
        };
        (0..self.topology.node_count()).map(node).collect()
    }

    fn links(&self, window: Option<&Model>) -> Vec<Link> {
        let uses = window.and_then(|window| window.link_use.as_ref());
        let link = |(index, link): (usize, &rondpoint_core::topology::Link)| Link {
            from: self.topology.kernel_node(link.from),
            to: self.topology.kernel_node(link.to),
            use_share: uses.and_then(|uses| uses.get(index)).copied(),
            capacity_bytes_per_s: Some(link.bytes_per_s),
        };
        self.topology.links().iter().enumerate().map(link).collect()
    }

    fn ns(&self, cycles: Option<f64>) -> Option<f64> {
        cycles.map(|cycles| cycles * 1e9 / self.topology.clock_hz().unwrap_or(CLOCK_HZ))
    }

    fn processes(&self, board: &Board, only: Option<u32>) -> Vec<Process> {
        let mut all: BTreeSet<Pid> = self.roots.keys().copied().collect();
        all.extend(self.parts.observer.origins().keys());
        all.extend(self.left.keys());
        let losses = self.losses(board);
        let shown = |pid: Pid| {
            let lost_by_cause = losses.get(&pid).cloned().unwrap_or_default();
            Some(Process { lost_by_cause, ..self.process(board, pid)? })
        };
        let is_shown = |process: &Process| only.is_none_or(|user| process.user == user);
        all.into_iter().filter_map(shown).filter(is_shown).collect()
    }

    /// Priced once for each look: many clients may ask.
    fn losses<'a>(&self, board: &'a Board) -> &'a BTreeMap<Pid, Shares> {
        let window = board.window.as_ref();
        let priced = || window.map(|window| losses(window, &self.topology)).unwrap_or_default();
        board.losses.get_or_init(priced)
    }

    /// Without its loss by cause.
    fn process(&self, board: &Board, pid: Pid) -> Option<Process> {
        let known = self.census.get(pid)?;
        let app = board.window.as_ref().and_then(|window| Some((window, window.app(pid)?)));
        let (state, why, root) = self.state(pid)?;
        let tally = board.tallies.get(&pid).filter(|one| one.started == known.identity.started);
        let tally = tally.copied().unwrap_or_default();
        let mut process = Process {
            pid: pid.0,
            started_s: known.identity.started.seconds(),
            name: known.facts.command.clone(),
            user: known.facts.user,
            cgroup: known.facts.cgroup.clone(),
            state,
            why,
            root: root.0,
            threads: known.threads,
            cpu_percent: 100.0 * known.facts.cpus.unwrap_or(0.0),
            resident_bytes: known.facts.resident_bytes,
            moved_bytes: tally.moved_bytes,
            moved_threads: tally.moved_threads,
            verdicts: tally.verdicts,
            threads_by_node: vec![0; self.topology.node_count()],
            ..Process::default()
        };
        if let Some((window, app)) = app {
            self.complete(&mut process, window, app);
        } else if let Some(idle) = self.parts.observer.dozing(pid) {
            self.complete_idle(&mut process, idle);
        }
        Some(process)
    }

    fn complete(&self, process: &mut Process, window: &Model, app: &App) {
        let threads = window.threads_of(app);
        for thread in threads {
            process.threads_by_node[self.topology.node_of_cpu(thread.cpu)] += 1;
        }
        process.threads = threads.len() as u32;
        process.cpu_percent = app.cpu_percent;
        let memory = app.memory.as_ref();
        process.memory_bytes = memory.map(|nodes| nodes.iter().map(|bytes| bytes.0).collect());
        let local = app.traffic.as_ref().and_then(Traffic::local_percent);
        process.local_share = local.map(|percent| percent / 100.0);
        process.traffic_bytes_per_s = app.traffic.as_ref().map(bytes);
        process.latency_ns = self.ns(app.latency_cycles);
        let lost = lost_to_latency(window, &self.topology, app);
        process.lost_share = lost.map(|price| price.likely);
        process.least_lost_share = lost.map(|price| price.least);
        process.exempt = app.exempt.map(|why| why.to_string());
    }

    /// A process that has hardly run for long is in no window.
    fn complete_idle(&self, process: &mut Process, idle: &ProcessObservation) {
        for thread in &idle.threads {
            process.threads_by_node[self.topology.node_of_cpu(thread.cpu)] += 1;
        }
        process.threads = idle.threads.len() as u32;
        let memory = idle.memory.as_ref();
        process.memory_bytes = memory.map(|nodes| nodes.iter().map(|bytes| bytes.0).collect());
        process.exempt = idle.exempt.map(|why| why.to_string());
    }

    /// What is done with a process, why, and the root of its tree.
    fn state(&self, pid: Pid) -> Option<(State, String, Pid)> {
        if let Some(left) = self.left.get(&pid) {
            return Some((State::Left, left.why.clone(), pid));
        }
        let root = match self.roots.contains_key(&pid) {
            true => pid,
            false => *self.parts.observer.origins().get(&pid)?,
        };
        let mut why = self.roots.get(&root)?.why.clone();
        if root != pid {
            why = format!("started by process {root}");
        }
        let state = if self.acts() { State::Managed } else { State::Watched };
        Some((state, why, root))
    }

    /// One process in detail.
    ///
    /// # Errors
    /// There is no such process, it is not managed, or it is not the caller's.
    pub(super) fn explain(&self, pid: Pid, only: Option<u32>) -> Result<ExplainReply, Refused> {
        let board = self.parts.board.borrow();
        let Some(mut process) = self.process(&board, pid) else {
            return Err(self.why_unknown(pid, only));
        };
        if only.is_some_and(|user| user != process.user) {
            let message = format!("process {pid} is of user {}", process.user);
            return Err(Refused::new("NotAllowed", message));
        }
        process.lost_by_cause = self.losses(&board).get(&pid).cloned().unwrap_or_default();
        let window = board.window.as_ref();
        let app = window.and_then(|window| Some((window, window.app(pid)?)));
        let threads = match app {
            Some((window, app)) => self.threads(window, app),
            None => self.parts.observer.dozing(pid).map_or(Vec::new(), |idle| self.idle(idle)),
        };
        let known = self.census.get(pid).map(|known| known.identity);
        let decisions = board.decisions(0, |one| known.is_some_and(|of| is_about(one, of)));
        let nodes = 0..self.topology.node_count();
        let nodes = nodes.map(|node| self.topology.kernel_node(node)).collect();
        Ok(ExplainReply { nodes, process, threads, decisions })
    }

    fn why_unknown(&self, pid: Pid, only: Option<u32>) -> Refused {
        match self.census.get(pid) {
            Some(known) if only.is_none() => {
                let Some(cpus) = known.facts.cpus else {
                    let message = format!("process {pid} is new: nothing is known of it yet");
                    return Refused::new("NotManaged", message);
                };
                let message = format!(
                    "process {pid} is not managed: it has {} and uses {cpus:.2} CPUs, or no list names it (rondpoint manage {pid} takes it)",
                    Bytes(known.facts.resident_bytes)
                );
                Refused::new("NotManaged", message)
            }
            Some(_) => Refused::new("NotManaged", format!("process {pid} is not managed")),
            None => Refused::new("NoSuchProcess", format!("process {pid}: no such process")),
        }
    }

    fn threads(&self, window: &Model, app: &App) -> Vec<Thread> {
        let threads = window.threads_of(app).iter();
        let one = |thread: &rondpoint_core::model::Thread| Thread {
            cpu_percent: 100.0 * thread.cpu_share,
            accesses_by_node: thread.accesses_by_node.clone(),
            ..self.thread((app.pid, thread.tid), thread.cpu, &thread.allowed, thread.exempt)
        };
        threads.map(one).collect()
    }

    /// The threads of a process that has hardly run for long.
    fn idle(&self, idle: &ProcessObservation) -> Vec<Thread> {
        let one = |thread: &ThreadObservation| {
            self.thread((idle.pid, thread.tid), thread.cpu, &thread.allowed, thread.exempt)
        };
        idle.threads.iter().map(one).collect()
    }

    /// A thread without its use.
    fn thread(
        &self,
        (pid, tid): (Pid, Tid),
        cpu: usize,
        allowed: &CpuSet,
        exempt: Option<Exemption>,
    ) -> Thread {
        let path = self.from.in_proc(format!("{pid}/task/{tid}/comm"));
        let name = root::read_optional(&path).ok().flatten().unwrap_or_default();
        Thread {
            tid: tid.0,
            name: String::from_utf8_lossy(name.trim_ascii()).into_owned(),
            cpu: self.topology.kernel_cpu(cpu),
            node: self.topology.kernel_node(self.topology.node_of_cpu(cpu)),
            allowed: self.topology.kernel_cpus(allowed).to_string(),
            cpu_percent: 0.0,
            accesses_by_node: None,
            exempt: exempt.map(|why| why.to_string()),
        }
    }

    /// Those after a number that the caller may see.
    pub(super) fn decisions(&self, after: u64, only: Option<u32>) -> Vec<Decision> {
        let is_own = |decision: &Decision, user| {
            let known = decision.pid.and_then(|pid| self.census.get(Pid(pid)));
            known.is_some_and(|of| of.facts.user == user && is_about(decision, of.identity))
        };
        let is_shown = |decision: &Decision| only.is_none_or(|user| is_own(decision, user));
        self.parts.board.borrow().decisions(after, is_shown)
    }
}

/// Whether a decision is about this process, and not about an earlier one of the same number.
fn is_about(decision: &Decision, process: Identity) -> bool {
    decision.pid == Some(process.pid.0) && decision.at_s >= process.started.seconds()
}

fn bytes(traffic: &Traffic) -> Vec<Vec<f64>> {
    let size = traffic.requests_per_us.size();
    let row = |from: usize| (0..size).map(|to| traffic.bytes_per_s(from, to)).collect();
    (0..size).map(row).collect()
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Nanos;

    use super::*;
    use crate::control::protocol::Event;

    #[test]
    fn a_decision_about_an_earlier_process_of_the_same_number_is_not_shown() {
        let decision = |pid, at_s| Decision {
            number: 1,
            at_s,
            pid,
            plan: 1,
            policy: String::new(),
            event: Event::Step,
            kind: String::new(),
            action: String::new(),
            reason: String::new(),
            detail: String::new(),
        };
        let process = Identity { pid: Pid(7), started: Nanos(5_000_000_000) };
        assert!(is_about(&decision(Some(7), 5.0), process));
        assert!(!is_about(&decision(Some(7), 4.9), process), "that process had ended");
        assert!(!is_about(&decision(Some(8), 6.0), process));
        assert!(!is_about(&decision(None, 6.0), process));
    }
}
