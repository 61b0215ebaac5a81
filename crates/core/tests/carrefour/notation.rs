//! Models as text.
//!
//! ```text
//! node:4 core:4          the machine (synthetic notation); without gbs: its controllers are machine A's
//! measured 100           nanoseconds of an access to each node, as calibration measures them
//! load 97 1 1 1          requests/µs at each controller, drawn alike by all nodes
//! matrix 30 10 / 60 0    or cell by cell
//! free 80                percent of memory free
//! app 1 reads 96 faults 3 ipc 0.5 private|shared     an application; its traffic is the machine's
//! app 1 latency 400 stalled 0.5    cycles of an access, and share of its time without progress
//! own 5 5 5 5            load of that application alone
//! pages 500 home 0: 1x2 2x3 w1     500 pages of it on node 0, two accesses of node 1, three of node 2, one store
//! gap 8      8 pages that were not sampled
//! ```

use rondpoint_core::model::{App, Deviation, Thread, Traffic};
use rondpoint_core::observation::{Mapping, MappingKind};
use rondpoint_core::policy::carrefour::{Carrefour, preset};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Bytes, Matrix, Model, Pid, Policy, Proposal, Random, Tid, Topology};
use std::fmt::Write;

/// Number of the first page.
pub(crate) const FIRST_PAGE: u64 = 16;

/// Reads a model; every line that is wrong is a bug of the test.
pub(crate) fn model(text: &str) -> (Topology, Model) {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut topology = synthetic::parse(lines.next().expect("a machine")).expect("a good machine");
    let mut model = Model::empty(topology.node_count());
    model.sensing.confidence = 1.0;
    let mut next_page = FIRST_PAGE;
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "measured" => {
                let mut description = topology.description().clone();
                let latency = Matrix::filled(topology.node_count(), numbers(rest)[0]);
                description.costs.latency_ns = Some(latency);
                topology = Topology::new(description).expect("a good machine");
            }
            "load" => model.traffic = Some(load(rest, topology.node_count())),
            "matrix" => model.traffic = Some(matrix(rest)),
            "free" => {
                let share = numbers(rest)[0] / 100.0;
                let free = |node| Bytes((topology.memory(node).0 as f64 * share) as u64);
                model.free_memory = Some((0..topology.node_count()).map(free).collect());
            }
            "app" => add_app(&mut model, &topology, rest),
            "own" => {
                model.apps.last_mut().expect("an app").traffic =
                    Some(load(rest, topology.node_count()));
            }
            "pages" => add_pages(&mut model, rest, &mut next_page),
            "gap" => next_page += rest.parse::<u64>().expect("a number"),
            _ => panic!("unknown line: {line}"),
        }
    }
    model.check(&topology).expect("a sound model");
    (topology, model)
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn load(text: &str, nodes: usize) -> Traffic {
    let loads = numbers(text);
    Traffic::new(Matrix::from_fn(nodes, |_, m| loads[m] / nodes as f64))
}

fn matrix(text: &str) -> Traffic {
    let rows: Vec<Vec<f64>> = text.split('/').map(numbers).collect();
    Traffic::new(Matrix::from_rows(&rows).expect("a square"))
}

fn add_app(model: &mut Model, topology: &Topology, text: &str) {
    let mut words = text.split_whitespace();
    let pid: u32 = words.next().expect("a pid").parse().expect("a number");
    let thread = model.threads.len();
    let mut app = App::new(Pid(pid), thread..thread + 1);
    // The kernel replicates, and nothing is replicated yet.
    app.replicas = Some(Vec::new());
    let mut main = Thread::new(Tid(pid), model.apps.len(), 0, topology.all_cpus());
    app.traffic.clone_from(&model.traffic);
    let mut kind = MappingKind::PrivateAnonymous;
    while let Some(word) = words.next() {
        let mut number = || -> f64 { words.next().expect("a value").parse().expect("a number") };
        match word {
            "reads" => app.read_percent = Some(number()),
            "thread-reads" => main.rates.read_percent = Some(number()),
            "cpu" => app.cpu_percent = number(),
            "faults" => app.faults_per_s = Some(number()),
            "ipc" => main.rates.ipc = Some(number()),
            "latency" => (app.latency_cycles, app.latency_accesses) = (Some(number()), 1e6),
            "stalled" => main.rates.stall_share = Some(number()),
            "shared" => kind = MappingKind::Shared,
            "private" => kind = MappingKind::PrivateAnonymous,
            _ => panic!("unknown word {word}"),
        }
    }
    app.mappings = Some(vec![Mapping { start: 0, end: 1 << 40, kind }]);
    model.apps.push(app);
    model.threads.push(main);
}

fn add_pages(model: &mut Model, text: &str, next_page: &mut u64) {
    let (head, accesses) = text.split_once(':').expect("accesses after a colon");
    let head: Vec<&str> = head.split_whitespace().collect();
    let count: u64 = head[0].parse().expect("a number");
    let home: u16 = head[2].parse().expect("a node");
    let shift = if head.get(3) == Some(&"huge") { 21 } else { 12 };
    let app = (model.apps.len() - 1) as u32;
    for _ in 0..count {
        let address = *next_page << shift;
        *next_page += 1;
        for word in accesses.split_whitespace() {
            match word.strip_prefix('w') {
                Some(stores) => {
                    // A store is also an access; it comes from the page's first accessing node,
                    // which has one access less.
                    let stores: u16 = stores.parse().expect("a number");
                    let node = first_node(accesses);
                    (0..stores).for_each(|_| {
                        model.pages.record(app, address, shift, home, node, true);
                    });
                }
                None => {
                    let (node, times) = word.split_once('x').expect("node x times");
                    let node = node.parse().expect("a node");
                    let times: u32 = times.parse().expect("a number");
                    (0..times).for_each(|_| {
                        model.pages.record(app, address, shift, home, node, false);
                    });
                }
            }
        }
    }
}

fn first_node(accesses: &str) -> u16 {
    let first =
        accesses.split_whitespace().find_map(|word| word.split_once('x')).expect("an access");
    first.0.parse().expect("a node")
}

/// A policy with a preset by name.
pub(crate) fn carrefour(preset: &str) -> Carrefour {
    let preset = preset::PRESETS.iter().find(|one| one.name == preset).expect("a preset");
    Carrefour::new((*preset).clone())
}

/// What a policy proposes, one line each, the reason below.
pub(crate) fn proposals(policy: &mut Carrefour, text: &str, seed: u64) -> Vec<Proposal> {
    let (topology, model) = model(text);
    policy.propose(&model, &topology, &mut Random::new(seed))
}

pub(crate) fn render(proposals: &[Proposal]) -> String {
    let mut text = String::new();
    for proposal in proposals {
        writeln!(text, "{}\n  because {}", proposal.action, proposal.reason)
            .expect("strings take text");
    }
    text
}

/// One round of a fresh policy.
pub(crate) fn check(preset: &str, text: &str, expected: expect_test::Expect) {
    expected.assert_eq(&render(&proposals(&mut carrefour(preset), text, 1)));
}

/// Only the names of the mechanisms that would be on.
pub(crate) fn mechanisms(preset: &str, text: &str) -> String {
    use rondpoint_core::policy::carrefour::gates::Gates;
    let (topology, model) = model(text);
    let preset = preset::PRESETS.iter().find(|one| one.name == preset).expect("a preset");
    match Gates::judge(preset, &model, &topology, &model.apps[0]) {
        Err(cause) => cause.to_string(),
        Ok(gates) => {
            let names = [
                (gates.mechanisms.replication, "replication"),
                (gates.mechanisms.interleaving, "interleaving"),
                (gates.mechanisms.colocation, "co-location"),
                (gates.mechanisms.offloading, "offloading"),
            ];
            let on: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
            if on.is_empty() { "nothing".to_string() } else { on.join(" ") }
        }
    }
}

/// Imbalance of loads, for tables.
pub(crate) fn imbalance(loads: &[f64], deviation: Deviation) -> f64 {
    rondpoint_core::model::imbalance_percent(loads, deviation).expect("some load")
}
