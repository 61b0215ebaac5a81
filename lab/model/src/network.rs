//! Controllers, links and routes: the present cost of a line between two nodes.
//!
//! The hot path only counts lines and looks latencies up in tables by node pair. When a window
//! closes, its lines are added to the pipes on their routes, and the tables are computed again.
//! Every request of a window sees the same delay, whatever the order in which vCPUs ran.

use rondpoint_machine::Machine;

use crate::LINE_BYTES;
use crate::pipe::{Pipe, Window};
use crate::traffic::{Kind, Traffic};

/// How much a controller or link was used, up to the last closed window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PipeUsage {
    /// Bytes since power-on, reads, prefetches, transfers and writebacks.
    pub bytes: u64,
    /// Requests that waited here for their data.
    pub requests: u64,
    /// The sum of what they waited in this one's queue, ps.
    pub queue_ps: u64,
    /// Capacity in bytes per second of guest time.
    pub bytes_per_s: f64,
    /// Recent utilisation, 0 to 1.
    pub utilisation: f64,
    /// What a request waits here now, ps.
    pub delay_ps: u64,
}

/// The pipes that lines from a holding node to an accessing node go through, without controllers.
#[derive(Debug)]
struct Way {
    links: Vec<usize>,
    /// Index into `Network::limits`.
    limit: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Network {
    nodes: usize,
    pub(crate) traffic: Traffic,
    /// The traffic when the current window began.
    before: Traffic,
    /// What managers caused of the traffic, and of that before the current window.
    managers: Traffic,
    managers_before: Traffic,
    /// A manager causes the traffic of now.
    manages: bool,
    /// The part of a manager's lines that takes no room. In one second of guest time a manager
    /// causes the traffic of several seconds: as many as slow motion makes of one.
    managers_discount: f64,
    controllers: Vec<Option<Pipe>>,
    links: Vec<Pipe>,
    limits: Vec<Pipe>,
    /// By pair.
    ways: Vec<Way>,
    unloaded_ps: Vec<u64>,
    unloaded_transfer_ps: Vec<u64>,
    /// What a load from DRAM takes in this window, by pair.
    load_ps: Vec<u64>,
    /// The same for a store: it also waits until the way back has room for the line it displaces.
    store_ps: Vec<u64>,
    /// What a cache-to-cache transfer takes in this window, by pair.
    transfer_ps: Vec<u64>,
    elapsed_ps: u64,
    window_ps: u64,
    controller_windows: Vec<Window>,
    link_windows: Vec<Window>,
    limit_windows: Vec<Window>,
}

fn ps(ns: f64) -> u64 {
    (ns * 1e3).round() as u64
}

impl Network {
    pub(crate) fn new(machine: &Machine) -> Network {
        let nodes = machine.nodes.len();
        let mut limits = Vec::new();
        let mut ways = Vec::new();
        for route in machine.routes.iter().flatten() {
            let limit = route.limit_mb_s.map(|limit| {
                limits.push(Pipe::new(limit, 0.0));
                limits.len() - 1
            });
            ways.push(Way { links: route.links.clone(), limit });
        }
        let controllers: Vec<_> = machine
            .nodes
            .iter()
            .map(|node| node.controller.as_ref())
            .map(|it| it.map(|it| Pipe::new(it.bandwidth_mb_s, it.burst_latency_ns)))
            .collect();
        let links: Vec<_> =
            machine.links.iter().map(|link| Pipe::new(link.bandwidth_mb_s, 0.0)).collect();
        let unloaded_ps: Vec<u64> = machine.latency_ns.iter().flatten().map(|&ns| ps(ns)).collect();
        let unloaded_transfer_ps: Vec<u64> =
            machine.transfer_ns.remote_ns.iter().flatten().map(|&ns| ps(ns)).collect();
        Network {
            nodes,
            traffic: Traffic::new(nodes),
            before: Traffic::new(nodes),
            managers: Traffic::new(nodes),
            managers_before: Traffic::new(nodes),
            manages: false,
            managers_discount: 0.0,
            load_ps: unloaded_ps.clone(),
            store_ps: unloaded_ps.clone(),
            transfer_ps: unloaded_transfer_ps.clone(),
            unloaded_ps,
            unloaded_transfer_ps,
            elapsed_ps: 0,
            window_ps: machine.lab.quantum_ns.max(1) * 1000,
            controller_windows: vec![Window::default(); nodes],
            link_windows: vec![Window::default(); links.len()],
            limit_windows: vec![Window::default(); limits.len()],
            controllers,
            links,
            limits,
            ways,
        }
    }

    /// A line comes from DRAM of `holding`; returns its latency in ps.
    #[inline]
    pub(crate) fn read(&mut self, kind: Kind, accessing: usize, holding: usize) -> u64 {
        let pair = self.traffic.pair(accessing, holding);
        let table = match kind {
            Kind::Store | Kind::StorePrefetch => &self.store_ps,
            _ => &self.load_ps,
        };
        let latency_ps = table[pair];
        self.count(kind, pair, latency_ps);
        latency_ps
    }

    /// Whether a manager causes the traffic from now on.
    #[inline]
    pub(crate) fn set_manages(&mut self, manages: bool) {
        self.manages = manages;
    }

    /// Managers run `speed_up` times as fast as programs; at least 1.
    pub(crate) fn speed_up_managers(&mut self, speed_up: f64) {
        assert!(speed_up >= 1.0);
        self.managers_discount = 1.0 - 1.0 / speed_up;
    }

    #[inline]
    fn count(&mut self, kind: Kind, pair: usize, latency_ps: u64) {
        self.traffic.add(kind, pair, latency_ps);
        if self.manages {
            self.managers.add(kind, pair, latency_ps);
        }
    }

    /// A modified line goes back to DRAM of `home`; no access waits for it.
    #[inline]
    pub(crate) fn write_back(&mut self, writer: usize, home: usize) {
        let pair = self.traffic.pair(writer, home);
        self.count(Kind::Writeback, pair, 0);
    }

    /// A cache of node `owner` hands a line to node `accessing`; returns its latency in ps.
    #[inline]
    pub(crate) fn transfer(&mut self, accessing: usize, owner: usize) -> u64 {
        let pair = self.traffic.pair(accessing, owner);
        let latency_ps = self.transfer_ps[pair];
        self.count(Kind::Transfer, pair, latency_ps);
        latency_ps
    }

    /// What a transfer or invalidation between two nodes takes without queues, ps.
    #[inline]
    pub(crate) fn unloaded_transfer_ps(&self, accessing: usize, owner: usize) -> u64 {
        self.unloaded_transfer_ps[accessing * self.nodes + owner]
    }

    /// What a read from DRAM takes without queues, ps.
    #[inline]
    pub(crate) fn unloaded_ps(&self, accessing: usize, holding: usize) -> u64 {
        self.unloaded_ps[accessing * self.nodes + holding]
    }

    /// `elapsed_ps` of guest time have passed; closes the window if it is long enough.
    pub(crate) fn advance(&mut self, elapsed_ps: u64) {
        self.elapsed_ps += elapsed_ps;
        if self.elapsed_ps < self.window_ps {
            return;
        }
        self.clear_windows();
        for accessing in 0..self.nodes {
            for holding in 0..self.nodes {
                self.lay_out(accessing, holding);
            }
        }
        self.close_pipes();
        self.before.copy_from(&self.traffic);
        self.managers_before.copy_from(&self.managers);
        self.elapsed_ps = 0;
        self.make_tables();
    }

    fn clear_windows(&mut self) {
        let (elapsed_ps, usual_ps) = (self.elapsed_ps, self.window_ps);
        let empty = Window { elapsed_ps, usual_ps, ..Window::default() };
        self.controller_windows.fill(empty);
        self.link_windows.fill(empty);
        self.limit_windows.fill(empty);
    }

    /// Adds what a pair moved in this window to the pipes on its way.
    fn lay_out(&mut self, accessing: usize, holding: usize) {
        let pair = self.traffic.pair(accessing, holding);
        let moved = |kind| {
            let all = self.traffic.since(&self.before, kind, pair);
            let managers = self.managers.since(&self.managers_before, kind, pair);
            let room = |all: u64, managers: u64| {
                all - (managers as f64 * self.managers_discount).round() as u64
            };
            (room(all.0, managers.0), room(all.1, managers.1))
        };
        let sum = |kinds: [Kind; 2]| {
            let (first, second) = (moved(kinds[0]), moved(kinds[1]));
            (first.0 + second.0, first.1 + second.1)
        };
        let loads = sum([Kind::Load, Kind::LoadPrefetch]);
        let stores = sum([Kind::Store, Kind::StorePrefetch]);
        let transfers = moved(Kind::Transfer);
        let (written, _) = moved(Kind::Writeback);
        let reads = (loads.0 + stores.0, loads.1 + stores.1);
        if reads.0 + transfers.0 + written == 0 {
            return;
        }
        let controller = &mut self.controller_windows[holding];
        add(controller, reads.0 + written, reads);
        let inward = (reads.0 + transfers.0, reads.1 + transfers.1);
        self.add_way(accessing, holding, inward.0, inward);
        // What is written back goes the other way; stores are the ones that wait for room there.
        self.add_way(holding, accessing, written, stores);
    }

    fn add_way(&mut self, accessing: usize, holding: usize, lines: u64, waiting: (u64, u64)) {
        let way = &self.ways[accessing * self.nodes + holding];
        for &link in &way.links {
            add(&mut self.link_windows[link], lines, waiting);
        }
        if let Some(limit) = way.limit {
            add(&mut self.limit_windows[limit], lines, waiting);
        }
    }

    fn close_pipes(&mut self) {
        for (pipe, window) in self.controllers.iter_mut().zip(&self.controller_windows) {
            if let Some(pipe) = pipe {
                pipe.close(window);
            }
        }
        for (pipe, window) in self.links.iter_mut().zip(&self.link_windows) {
            pipe.close(window);
        }
        for (pipe, window) in self.limits.iter_mut().zip(&self.limit_windows) {
            pipe.close(window);
        }
    }

    fn make_tables(&mut self) {
        for accessing in 0..self.nodes {
            for holding in 0..self.nodes {
                let pair = accessing * self.nodes + holding;
                let inward = self.way_delay_ps(accessing, holding);
                let outward = self.way_delay_ps(holding, accessing);
                let controller = self.controllers[holding].as_ref().map_or(0.0, Pipe::delay_ps);
                let unloaded = self.unloaded_ps[pair];
                self.load_ps[pair] = unloaded + (controller + inward) as u64;
                self.store_ps[pair] = unloaded + (controller + inward + outward) as u64;
                self.transfer_ps[pair] = self.unloaded_transfer_ps[pair] + inward as u64;
            }
        }
    }

    fn way_delay_ps(&self, accessing: usize, holding: usize) -> f64 {
        let way = &self.ways[accessing * self.nodes + holding];
        let links = way.links.iter().map(|&link| self.links[link].delay_ps()).sum::<f64>();
        links + way.limit.map_or(0.0, |limit| self.limits[limit].delay_ps())
    }

    pub(crate) fn controllers(&self) -> impl Iterator<Item = Option<PipeUsage>> {
        self.controllers.iter().map(|pipe| pipe.as_ref().map(usage))
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = PipeUsage> {
        self.links.iter().map(usage)
    }
}

fn add(window: &mut Window, lines: u64, waiting: (u64, u64)) {
    window.bytes += lines * LINE_BYTES;
    window.requests += waiting.0;
    window.latency_ps += waiting.1 as f64;
}

fn usage(pipe: &Pipe) -> PipeUsage {
    PipeUsage {
        bytes: pipe.total_bytes(),
        requests: pipe.requests(),
        queue_ps: pipe.queue_ps(),
        bytes_per_s: pipe.bytes_per_s(),
        utilisation: pipe.utilisation(),
        delay_ps: pipe.delay_ps() as u64,
    }
}
