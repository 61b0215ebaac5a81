//! Programs that ask and answer each other: a network of clients and answering threads.
//!
//! The network is closed, or requests come at a fixed rate. In a closed one, each client runs,
//! sends a request to any thread of the other program, and sleeps until the reply comes. At a fixed
//! rate, requests wait in one queue; those that one epoch cannot serve wait for the next. So do
//! those that come before the server runs. Messages are lines in the sender's cache. A message
//! wakes a thread on an idle CPU of its own cache, or near the thread that sent it.

use std::collections::BTreeMap;

use rondpoint_core::Nanos;

use super::chance::Purpose;
use super::need::Running;
use super::replies::{Queue, ReplyTimes};
use super::solve::Rate;
use super::{EPOCH, IDLE, Plant, Process};
use crate::workload::Waits;

/// Rounds of the approximate mean value analysis. Five are enough for 1 %.
const ROUNDS: usize = 12;
/// Greatest use of answering threads for which a queue is in balance within an epoch. Beyond it,
/// the backlog grows.
const FULLEST: f64 = 0.98;

impl Process {
    /// Instructions for one request, where it sends or answers any.
    pub(super) fn per_request(&self) -> Option<f64> {
        Some(self.program.requests.as_ref()?.kilo_instructions * 1000.0)
    }

    /// Whether it sends requests at a fixed rate.
    fn is_open(&self) -> bool {
        self.program.requests.as_ref().is_some_and(|requests| requests.per_s > 0.0)
    }

    /// Times from its requests to their replies.
    pub(crate) fn replies(&self) -> Option<ReplyTimes> {
        self.asks?;
        let counts = &self.counts;
        let times = counts.replies.times().filter(|_| counts.requests > 0.0)?;
        let waited_us = counts.waited_ns / counts.requests / 1000.0;
        // A thread that sends at a fixed rate waits for the time of the next request, not a reply.
        Some(ReplyTimes {
            mean_us: if self.is_open() { times.mean_us } else { waited_us },
            ..times
        })
    }
}

/// A thread that takes part in requests.
struct Station {
    /// Its place among the running threads.
    place: usize,
    /// Time that a request takes it while it is ready, ns: computing, and sharing its CPU.
    takes_ns: f64,
}

/// Requests of one epoch in which no thread answers. The first epoch with one replies to them.
#[derive(Debug, Clone)]
pub(super) struct Unheard {
    client: usize,
    count: f64,
    /// The middle of the epoch.
    at: Nanos,
    /// Requests that wait before them.
    ahead: f64,
}

/// The clients and answering threads of one server in an epoch.
struct Exchange {
    /// Requests per ns of each client.
    asking: Vec<(Station, f64)>,
    /// Requests per ns that each answering thread serves.
    answering: Vec<(Station, f64)>,
    /// Mean time of a request at each answering thread, ns; with its queue in a closed network.
    times: Vec<f64>,
    /// The queue before all answering threads in an open network.
    queue: Queue,
    /// Time of messages and of the backlog before it, ns.
    delay_ns: f64,
    /// Requests that wait at the end of the epoch.
    backlog: f64,
}

impl Plant {
    /// Finds the process that answers each client. Instance by instance, of the nearest program
    /// with that name in its part of the workload.
    pub(super) fn connect(&mut self) {
        for client in 0..self.processes.len() {
            let own = &self.processes[client].program;
            let asks = own.requests.as_ref();
            let Some(name) = asks.map(|one| &one.to).filter(|to| !to.is_empty()) else { continue };
            let is_named = |one: &usize| {
                let other = &self.processes[*one].program;
                other.name == *name && other.part == own.part
            };
            let named = (0..self.processes.len()).filter(is_named);
            let asked_by = |one: usize| self.clients_of(one).len();
            let nearest = named.min_by_key(|one| (asked_by(*one), one.abs_diff(client)));
            self.processes[client].asks = nearest;
        }
    }

    fn clients_of(&self, server: usize) -> Vec<usize> {
        let asks = |one: &usize| self.processes[*one].asks == Some(server);
        (0..self.processes.len()).filter(asks).collect()
    }

    /// Whether all clients of a process have ended.
    pub(super) fn is_asked_no_more(&self, server: usize) -> bool {
        self.clients_of(server).iter().all(|client| self.processes[*client].ended.is_some())
    }

    /// Whom the threads of a process exchange messages with: its server, or its clients.
    fn peers(&self, process: usize) -> Vec<usize> {
        let server = self.processes[process].asks;
        server.map_or_else(|| self.clients_of(process), |server| vec![server])
    }

    /// The threads of a process's peers that take part now; none if it exchanges no messages.
    pub(super) fn peer_threads(&self, process: usize) -> Vec<usize> {
        if self.processes[process].program.requests.is_none() {
            return Vec::new();
        }
        let peers = self.peers(process);
        let threads = peers.iter().flat_map(|peer| self.processes[*peer].threads.clone());
        threads.filter(|thread| self.threads[*thread].active).collect()
    }

    /// Wakes the threads that wait for messages where the kernel would.
    pub(super) fn wake_for_messages(&mut self) {
        for process in 0..self.processes.len() {
            let peers = self.peer_threads(process);
            for thread in self.processes[process].threads.clone() {
                if self.threads[thread].active && !peers.is_empty() {
                    self.wake_near(thread, &peers);
                }
            }
        }
    }

    /// Wakes a thread on an idle CPU near its waker or near its last CPU; it stays where none is
    /// idle.
    fn wake_near(&mut self, thread: usize, peers: &[usize]) {
        let chance = self.chances.of(Purpose::Message, self.now, thread);
        let of = &self.threads[thread];
        let is_pulled = chance < self.truth.wakes_near;
        let waker = match is_pulled {
            true => peers[(chance / self.truth.wakes_near * peers.len() as f64) as usize],
            false => thread,
        };
        let domain = self.topology.domain_of_cpu(self.threads[waker].cpu);
        let mut loads = self.loads();
        loads[of.cpu] -= of.ready;
        let crowd = loads[of.cpu];
        let is_there = |cpu: &usize| self.topology.domain_of_cpu(*cpu) == domain;
        let there = of.mask.iter().filter(is_there);
        let best = there.min_by(|a, b| loads[*a].total_cmp(&loads[*b]).then(a.cmp(b)));
        let Some(best) = best.filter(|cpu| *cpu != of.cpu) else { return };
        // A CPU is idle at the moment of the message for the share of time that its load leaves.
        let is_idle = loads[best] + of.ready < 1.0;
        if is_idle && (is_pulled || loads[best] + IDLE < crowd) {
            self.run_on(thread, best);
        }
    }

    /// Adds the lines of messages, which come from the caches of the peers' threads.
    pub(super) fn add_messages(&self, need: &mut Running, peers: &[usize]) {
        let process = &self.processes[need.process];
        let Some(requests) = process.program.requests.as_ref().filter(|_| !peers.is_empty()) else {
            return;
        };
        let each = requests.lines / (requests.kilo_instructions * 1000.0) / peers.len() as f64;
        let own = self.topology.domain_of_cpu(self.threads[need.thread].cpu);
        let mut far: BTreeMap<usize, f64> = need.far.drain(..).collect();
        let mut near = 0.0;
        for peer in peers {
            let domain = self.topology.domain_of_cpu(self.threads[*peer].cpu);
            match domain == own {
                true => near += each,
                false => *far.entry(self.node_of_domain[domain]).or_insert(0.0) += each,
            }
        }
        need.near += near;
        need.base_ns += near * self.machine.transfer_ns.same_domain_ns;
        need.far = far.into_iter().collect();
    }

    /// Slows threads that ask and answer to the pace of their requests.
    pub(super) fn serve(&self, running: &[Running], rates: &mut [Rate]) {
        for server in (0..self.processes.len()).filter(|one| self.processes[*one].answers()) {
            let Exchange { asking, answering, .. } = self.exchange(server, running, rates);
            for (station, per_ns) in asking.into_iter().chain(answering) {
                let of = &running[station.place];
                let instructions = self.processes[of.process].per_request().unwrap_or(0.0);
                let rate = &mut rates[station.place];
                let done = per_ns * instructions * EPOCH.0 as f64 / of.busy_ns.max(1.0);
                rate.useful = done.min(rate.able);
            }
        }
    }

    /// Notes how long the replies of an epoch took, and the requests that wait for the next one.
    pub(super) fn note_replies(&mut self, running: &[Running], rates: &[Rate]) {
        for server in 0..self.processes.len() {
            if !self.processes[server].answers() {
                continue;
            }
            let of = self.exchange(server, running, rates);
            let before = std::mem::replace(&mut self.processes[server].backlog, of.backlog);
            let mut asked: BTreeMap<usize, f64> = BTreeMap::new();
            for (station, per_ns) in &of.asking {
                *asked.entry(running[station.place].process).or_insert(0.0) += per_ns;
            }
            let asked = asked.into_iter().map(|(one, per_ns)| (one, per_ns * EPOCH.0 as f64));
            if of.answering.is_empty() {
                let (at, ahead) = (self.now + Nanos(EPOCH.0 / 2), before.midpoint(of.backlog));
                let unheard = asked.filter(|(_, count)| *count > 0.0);
                let unheard = unheard.map(|(client, count)| Unheard { client, count, at, ahead });
                self.processes[server].unheard.extend(unheard);
                continue;
            }
            let most: f64 = of.times.iter().map(|takes| 1.0 / takes).sum();
            for early in std::mem::take(&mut self.processes[server].unheard) {
                let waited_ns = self.now.since(early.at).0 as f64 + early.ahead / most;
                let delay_ns = waited_ns + 2.0 * self.truth.wake_ns;
                self.reply((early.client, early.count), &of, (delay_ns, Queue::default()));
            }
            for asked in asked {
                self.reply(asked, &of, (of.delay_ns, of.queue));
            }
        }
    }

    /// Notes the replies to so many requests of a client, after a fixed delay and a queue.
    fn reply(
        &mut self,
        (client, count): (usize, f64),
        of: &Exchange,
        (delay_ns, queue): (f64, Queue),
    ) {
        let all: f64 = of.answering.iter().map(|(_, per_ns)| per_ns).sum();
        let replies = &mut self.processes[client].counts.replies;
        for ((_, served), time) in of.answering.iter().zip(&of.times) {
            replies.add(count * served / all.max(1e-30), *time, delay_ns, queue);
        }
    }

    fn exchange(&self, server: usize, running: &[Running], rates: &[Rate]) -> Exchange {
        let clients = self.clients_of(server);
        let asking = self.stations(running, rates, |process| clients.contains(&process));
        let answering = self.stations(running, rates, |process| process == server);
        if clients.iter().any(|client| self.processes[*client].is_open()) {
            return self.open(server, asking, answering, running);
        }
        let wake_ns = self.truth.wake_ns;
        let (per_ns, times) = throughput(&asking, &answering, wake_ns);
        let all: f64 = per_ns.iter().sum();
        let share = all / answering.len().max(1) as f64;
        Exchange {
            asking: asking.into_iter().zip(per_ns).collect(),
            answering: answering.into_iter().map(|station| (station, share)).collect(),
            times,
            queue: Queue::default(),
            delay_ns: 2.0 * wake_ns,
            backlog: 0.0,
        }
    }

    /// Requests that come at a fixed rate. Answering threads take them from one queue. In an epoch
    /// in which more come than they can serve, the backlog's wait is added to that of the fullest
    /// queue in balance.
    fn open(
        &self,
        server: usize,
        asking: Vec<Station>,
        answering: Vec<Station>,
        running: &[Running],
    ) -> Exchange {
        let mut threads: BTreeMap<usize, f64> = BTreeMap::new();
        for station in &asking {
            *threads.entry(running[station.place].process).or_insert(0.0) += 1.0;
        }
        let sends = |station: &Station| {
            let process = running[station.place].process;
            let requests = self.processes[process].program.requests.as_ref();
            let per_ns = requests.map_or(0.0, |requests| requests.per_s / 1e9);
            // A client sends no more than it can make.
            (per_ns / threads[&process]).min(1.0 / station.takes_ns)
        };
        let asking: Vec<(Station, f64)> = asking
            .into_iter()
            .map(|one| {
                let per_ns = sends(&one);
                (one, per_ns)
            })
            .collect();
        let epoch = EPOCH.0 as f64;
        let comes: f64 = asking.iter().map(|(_, per_ns)| per_ns).sum();
        let most: f64 = answering.iter().map(|station| 1.0 / station.takes_ns).sum();
        let before = self.processes[server].backlog;
        let served = (comes + before / epoch).min(most);
        let backlog = (before + (comes - served) * epoch).max(0.0);
        let used = (comes / most.max(1e-30)).min(FULLEST);
        let queued_ns = f64::midpoint(before, backlog) / most.max(1e-30);
        Exchange {
            asking,
            times: answering.iter().map(|station| station.takes_ns).collect(),
            queue: Queue::of(answering.len(), most, used),
            answering: answering
                .into_iter()
                .map(|one| {
                    let share = served / most.max(1e-30) / one.takes_ns;
                    (one, share)
                })
                .collect(),
            delay_ns: 2.0 * self.truth.wake_ns + queued_ns,
            backlog,
        }
    }

    fn stations(
        &self,
        running: &[Running],
        rates: &[Rate],
        takes_part: impl Fn(usize) -> bool,
    ) -> Vec<Station> {
        let running = running.iter().enumerate().filter(|(_, of)| takes_part(of.process));
        let station = |(place, of): (usize, &Running)| {
            let instructions = self.processes[of.process].per_request()?;
            let ready = rates[place].able * of.busy_ns.max(1.0) / EPOCH.0 as f64;
            Some(Station { place, takes_ns: instructions / ready })
        };
        running.filter_map(station).collect()
    }

    /// Notes for which share of the epoch each thread was ready to run.
    pub(super) fn note_readiness(&mut self, running: &[Running], rates: &[Rate]) {
        for (of, rate) in running.iter().zip(rates) {
            let program = &self.processes[of.process].program;
            // At barriers a thread counts as ready, also while it sleeps.
            let sleeps = program.lock.is_some() && program.waits == Waits::Never;
            let sleeps = sleeps && of.idles == Waits::Sleep;
            if program.requests.is_some() || sleeps {
                self.threads[of.thread].ready = rate.working().clamp(0.01, 1.0);
            }
        }
    }
}

/// Requests per ns of each client, and the mean time of one at each answering thread, ns. By
/// Schweitzer's approximation of mean value analysis: an arriving request finds the mean queue,
/// less its own part. All answering threads are asked equally often.
fn throughput(asking: &[Station], answering: &[Station], wake_ns: f64) -> (Vec<f64>, Vec<f64>) {
    let (clients, servers) = (asking.len() as f64, answering.len() as f64);
    if asking.is_empty() || answering.is_empty() {
        return (vec![0.0; asking.len()], vec![0.0; answering.len()]);
    }
    let others = (clients - 1.0) / clients;
    let mut queues = vec![clients / servers / 2.0; answering.len()];
    let (mut per_ns, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let takes = answering.iter().zip(&queues);
        let waits: Vec<f64> =
            takes.map(|(one, queue)| one.takes_ns * (1.0 + queue * others)).collect();
        let reply_ns = waits.iter().sum::<f64>() / servers + 2.0 * wake_ns;
        per_ns = asking.iter().map(|client| 1.0 / (client.takes_ns + reply_ns)).collect();
        let each = per_ns.iter().sum::<f64>() / servers;
        queues = waits.iter().map(|wait| each * wait).collect();
        times = waits;
    }
    (per_ns, times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::plant::{FirstPlace, Truth};
    use crate::workload::Workload;

    fn stations(takes_ns: &[f64]) -> Vec<Station> {
        takes_ns.iter().map(|&takes_ns| Station { place: 0, takes_ns }).collect()
    }

    #[test]
    fn throughput_is_bounded_by_clients_and_by_those_who_answer() {
        let all = |asking: &[f64], answering: &[f64]| -> f64 {
            throughput(&stations(asking), &stations(answering), 0.0).0.iter().sum()
        };
        let alone = all(&[100.0], &[50.0]);
        assert!((alone - 1.0 / 150.0).abs() < 1e-9, "one client waits for nobody: {alone}");
        let many = all(&[100.0; 64], &[50.0]);
        assert!(many < 1.0 / 50.0 && many > 0.95 / 50.0, "the thread that answers is busy: {many}");
        let two = all(&[100.0; 64], &[50.0; 2]);
        assert!(two > 1.9 * many, "twice as many answer: {two}");
        assert_eq!(all(&[100.0], &[]), 0.0);
    }

    /// Eight clients and eight threads that answer, each on a CPU of its own. A request takes a
    /// thread 100,000 cycles, and as many come as use a share of the threads. The server starts so
    /// many seconds late.
    fn open(used: f64, late_s: f64) -> (Plant, f64) {
        let machine = catalogue::machine("nodes=2 cpus=8 memory=1G").expect("a machine");
        let takes_ns = 100_000.0 * machine.cycle_ns();
        let per_s = used * 8e9 / takes_ns;
        let program = |name: &str, more: &str| {
            format!(
                r#"
                [[programs]]
                name = "{name}"
                threads = 8
                seconds = 1000
                cycles_per_instruction = 1
                accesses_per_kilo = 0
                outstanding = 1
                {more}
                regions = [{{ mib = 1, touched = "own", used = "own", share = 1 }}]
                "#
            )
        };
        let server = format!("requests = {{ kilo_instructions = 100 }}\nstart_s = {late_s}");
        let clients = "requests = { to = \"server\", kilo_instructions = 0.1, per_s = PER_S }";
        let clients = clients.replace("PER_S", &per_s.to_string());
        let text = "name = \"open\"\ntitle = \"a fixed rate\"".to_string();
        let text = text + &program("server", &server) + &program("clients", &clients);
        let workload = Workload::parse(&text, "test").expect("a workload");
        let mut plant = Plant::new(&machine, &workload, Truth::middle(), FirstPlace::Touch, 7);
        for (thread, of) in plant.threads.iter_mut().enumerate() {
            (of.cpu, of.mask) = (thread, [thread].into_iter().collect());
        }
        (0..200).for_each(|_| drop(plant.advance()));
        (plant, takes_ns)
    }

    #[test]
    fn clients_of_joined_workloads_ask_the_server_of_their_own() {
        let machine = catalogue::machine("nodes=2 cpus=8 memory=4G").expect("a machine");
        let word = "service:clients.instances=2+service-open+service";
        let workload = catalogue::workload(word).expect("a workload");
        let plant = Plant::new(&machine, &workload, Truth::middle(), FirstPlace::Touch, 7);
        let asks: Vec<Option<usize>> = plant.processes.iter().map(|one| one.asks).collect();
        assert_eq!(asks, [None, Some(0), Some(0), None, Some(3), None, Some(5)]);
    }

    #[test]
    fn threads_that_answer_a_fixed_rate_share_one_queue() {
        let (plant, takes_ns) = open(0.9, 0.0);
        let times = plant.processes[1].replies().expect("replies came");
        let wakes_ns = 2.0 * plant.truth.wake_ns;
        let takes = |us: f64| (1000.0 * us - wakes_ns) / takes_ns;
        assert!((takes(times.mean_us) / 1.877 - 1.0).abs() < 0.03, "{times:?}, one: {takes_ns} ns");
        assert!((takes(times.p99_us) / 7.09 - 1.0).abs() < 0.03, "{times:?}, one: {takes_ns} ns");
    }

    #[test]
    fn requests_before_their_server_runs_are_answered_late_and_count() {
        let p99_s = |late_s| {
            let (plant, _) = open(0.1, late_s);
            assert!(plant.processes[0].unheard.is_empty() && plant.processes[0].backlog == 0.0);
            plant.processes[1].replies().expect("replies came").p99_us / 1e6
        };
        // Of 10 s of requests, those of the first 2 s wait for up to 2 s. The threads then answer
        // them in a quarter of a second.
        let (early, late) = (p99_s(0.0), p99_s(2.0));
        assert!(early < 0.001 && (1.7..2.1).contains(&late), "{early} s, {late} s");
    }
}
