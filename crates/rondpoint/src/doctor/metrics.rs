//! The state of each metric on this machine: measured, derived from others, or missing, with the
//! consequence.

use rondpoint_core::Topology;
use rondpoint_linux::LinuxError;
use rondpoint_linux::perf::generation::{Available, Metric, UncoreMetric};
use rondpoint_linux::perf::pmu::Event;
use rondpoint_linux::perf::whole;
use serde::Serialize;

/// How well a metric is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// The hardware counts it.
    Measured,
    /// It follows from what is counted.
    Derived,
    /// Neither.
    Missing,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Told {
    /// Its name, as in `--metrics` of other commands.
    pub(super) name: &'static str,
    pub(super) state: State,
    /// The event, or what it is derived from.
    pub(super) from: Option<String>,
    /// Why it is missing and what that costs.
    pub(super) cost: Option<String>,
}

/// Metrics of threads that policies ask for or reports show. The others are the lab's alone.
const CORE: [Metric; 14] = [
    Metric::Instructions,
    Metric::Cycles,
    Metric::LlcMisses,
    Metric::LlcHits,
    Metric::PrivateMisses,
    Metric::DramNode(0),
    Metric::LocalDram,
    Metric::RemoteDram,
    Metric::RemoteHitm,
    Metric::RemoteForward,
    Metric::LocalHitm,
    Metric::LocalForward,
    Metric::StallCycles,
    Metric::Refills,
];

/// Metrics of the whole machine, other than traffic and links.
const OUTSIDE: [UncoreMetric; 6] = [
    UncoreMetric::ControllerReads,
    UncoreMetric::ControllerWrites,
    UncoreMetric::ControllerBytes,
    UncoreMetric::LinkIn,
    UncoreMetric::CacheLookups,
    UncoreMetric::CacheMisses,
];

/// The machine's traffic and links, by the names of the tables.
const TRAFFIC: &str = UncoreMetric::DramToNode.name();
const LINKS: &str = UncoreMetric::LinkOut.name();
const SAMPLES: &str = "address_samples";

/// Every metric. `refusal` says why the kernel does not open an event, `has_clock` whether it tells
/// the time of samples.
pub(super) fn told(
    available: &Available,
    topology: &Topology,
    has_clock: bool,
    refusal: impl Fn(&Event) -> Option<String>,
) -> Vec<Told> {
    let opened = Opened { available, topology, has_clock, refusal };
    let mut all: Vec<Told> = CORE.into_iter().map(|metric| opened.core(metric)).collect();
    all.push(opened.traffic());
    all.push(opened.links());
    all.extend(OUTSIDE.into_iter().map(|metric| opened.outside(metric)));
    all.push(opened.samples());
    all
}

struct Opened<'a, F> {
    available: &'a Available,
    topology: &'a Topology,
    has_clock: bool,
    refusal: F,
}

impl<F: Fn(&Event) -> Option<String>> Opened<'_, F> {
    fn core(&self, metric: Metric) -> Told {
        let name = metric.kind_name();
        let found = self.available.core.iter().find(|(found, _)| found.same_kind(metric));
        if let Some((_, event)) = found {
            return self.event(name, event);
        }
        let has = |metric| self.available.core.iter().any(|(found, _)| *found == metric);
        // As `observe::counters::node_traffic` does it.
        let by_distance = has(Metric::LocalDram) && has(Metric::RemoteDram);
        let nodes = self.topology.node_count();
        let are_sockets = nodes <= 2 && self.topology.compute_nodes().len() == nodes;
        if metric == Metric::DramNode(0) && by_distance && are_sockets {
            return derived(name, "local_dram and remote_dram, with two nodes");
        }
        self.missing(name)
    }

    fn traffic(&self) -> Told {
        if let Some((_, event)) = self.available.dram_to_node.first() {
            return self.event(TRAFFIC, event);
        }
        match whole::traffic(self.available, self.topology).first() {
            Some(part) => match (self.refusal)(&part.event) {
                None => derived(TRAFFIC, "misses and requests by own and other node"),
                Some(why) => missing(TRAFFIC, why),
            },
            None => self.traffic_of_controllers(),
        }
    }

    /// Where no unit counts from node to node, the controllers' lines may be counted.
    fn traffic_of_controllers(&self) -> Told {
        let controllers = whole::controller_lines(self.available, self.topology);
        let is_counted = controllers.first().is_some_and(|part| {
            let sampled = &self.available.sample;
            let is_sampled = !sampled.is_empty() || self.available.buffer.is_some();
            is_sampled && (self.refusal)(&part.event).is_none()
        });
        let (from, cost) = match is_counted {
            true => ("what the controllers serve, by the nodes that samples name", NO_ACCESSORS),
            false => ("what the watched programs do", NO_TRAFFIC),
        };
        let cost = self.cost(TRAFFIC).unwrap_or_else(|| cost.to_string());
        Told { cost: Some(cost), ..derived(TRAFFIC, from) }
    }

    fn links(&self) -> Told {
        match whole::links(self.available, self.topology).first() {
            Some(part) => self.event(LINKS, &part.event),
            None if self.topology.links().is_empty() => {
                let why = "no machine file names this machine's links: rondpoint topology --help";
                missing(LINKS, why.to_string())
            }
            None => Told {
                cost: self.cost(LINKS).or_else(|| Some(NO_LINKS.to_string())),
                ..derived(LINKS, "traffic between nodes, laid over the routes")
            },
        }
    }

    fn outside(&self, metric: UncoreMetric) -> Told {
        let found = self.available.uncore.iter().find(|count| count.metric == metric);
        match found {
            Some(count) => self.event(metric.name(), &count.event),
            None => self.missing(metric.name()),
        }
    }

    fn samples(&self) -> Told {
        let available = self.available;
        // AMD's op sampling and Arm's buffer cannot be opened for counting.
        let sampled = |event: &Event| {
            let mut event = event.clone();
            event.attr.sample_period = available.period;
            self.event(SAMPLES, &event)
        };
        match (available.sample.first(), &available.buffer) {
            (Some(event), _) => sampled(event),
            (None, Some(event)) => match sampled(event) {
                told if told.state == State::Measured && !self.has_clock => {
                    Told { cost: Some(NO_TIMES.to_string()), ..told }
                }
                told => told,
            },
            (None, None) => Told {
                cost: self.cost(SAMPLES).or_else(|| Some(NO_SAMPLES.to_string())),
                ..derived(SAMPLES, "page faults")
            },
        }
    }

    fn event(&self, name: &'static str, event: &Event) -> Told {
        match (self.refusal)(event) {
            None => {
                Told { name, state: State::Measured, from: Some(event.name.clone()), cost: None }
            }
            Some(why) => missing(name, why),
        }
    }

    fn missing(&self, name: &'static str) -> Told {
        let table = &self.available.generation;
        let cost = self.cost(name);
        missing(name, cost.unwrap_or_else(|| format!("the table {table} has no event for it")))
    }

    /// What the processor lacks by its table, or what the machine's units do not know.
    fn cost(&self, name: &str) -> Option<String> {
        let lacks = self.available.absent.get(name).cloned();
        lacks.or_else(|| {
            let (_, reason) = self.available.missing.iter().find(|(missing, _)| missing == name)?;
            Some(match reason {
                // The event itself is long, and the table has it.
                LinuxError::Input { problem, .. } => problem.clone(),
                other => other.to_string(),
            })
        })
    }
}

/// No packet of Arm's sampler names the thread. Its time and the records of task switches do.
pub(super) const NO_TIMES: &str = "only of single programs (run, attach): this kernel does not tell \
    the time of samples, so under the daemon page faults stand for them";
const NO_TRAFFIC: &str = "programs that Rondpoint does not watch are left out, so a node may be \
    busier than it seems";
const NO_ACCESSORS: &str = "which node asks is known only as well as samples tell it";
const NO_LINKS: &str = "data from caches and devices takes links too and is left out";
const NO_SAMPLES: &str = "a page shows where it is touched first, and later only while the kernel's \
    balancing is on";

fn derived(name: &'static str, from: &str) -> Told {
    Told { name, state: State::Derived, from: Some(from.to_string()), cost: None }
}

fn missing(name: &'static str, why: String) -> Told {
    Told { name, state: State::Missing, from: None, cost: Some(why) }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;
    use rondpoint_linux::perf::attr::Attr;
    use rondpoint_linux::perf::generation::UncoreCount;

    use super::*;

    fn event(name: &str) -> Event {
        Event { name: name.to_string(), attr: Attr::counting(4, 0), cpus: None }
    }

    fn state(told: &[Told], name: &str) -> (State, String) {
        let found = told.iter().find(|told| told.name == name).expect("is listed");
        (found.state, found.from.clone().or(found.cost.clone()).unwrap_or_default())
    }

    #[test]
    fn samples_are_tried_as_samples() {
        let machine = synthetic::parse("node:2 core:2").expect("a machine");
        let available =
            Available { sample: vec![event("ibs_op")], period: 65_536, ..Available::default() };
        let refuse =
            |event: &Event| (event.attr.sample_period == 0).then(|| "not for counting".to_string());
        let told = told(&available, &machine, true, refuse);
        assert_eq!(state(&told, "address_samples"), (State::Measured, "ibs_op".to_string()));
    }

    fn counted(metrics: &[Metric]) -> Available {
        let core = metrics.iter().map(|metric| (*metric, event(metric.kind_name()))).collect();
        Available { core, ..Available::default() }
    }

    #[test]
    fn what_is_counted_is_measured_and_what_the_kernel_refuses_is_missing() {
        let available = counted(&[Metric::LlcMisses, Metric::Cycles]);
        let machine = synthetic::parse("node:2 core:2").expect("a machine");
        let refuse = |event: &Event| (event.name == "cycles").then(|| "no".to_string());
        let told = told(&available, &machine, true, refuse);
        assert_eq!(state(&told, "llc_misses"), (State::Measured, "llc_misses".to_string()));
        assert_eq!(state(&told, "cycles"), (State::Missing, "no".to_string()));
    }

    #[test]
    fn nodes_are_derived_from_distance_only_where_there_are_two() {
        let available = counted(&[Metric::LocalDram, Metric::RemoteDram]);
        let of = |machine: &str| {
            let machine = synthetic::parse(machine).expect("a machine");
            state(&told(&available, &machine, true, |_| None), "dram_node").0
        };
        assert_eq!(of("node:2 core:2"), State::Derived);
        assert_eq!(of("node:4 core:2"), State::Missing);
        let mut description = synthetic::describe("node:2 core:2").expect("a machine");
        description.cpus.retain(|cpu| cpu.node == 0);
        let machine = Topology::new(description).expect("memory without CPUs");
        let told = told(&available, &machine, true, |_| None);
        assert_eq!(state(&told, "dram_node").0, State::Missing, "CXL is no other socket");
    }

    #[test]
    fn the_machines_traffic_is_counted_derived_or_that_of_the_programs() {
        let machine = synthetic::parse("node:2 core:2").expect("a machine");
        let unit = |metric, cpu| UncoreCount {
            metric,
            unit: "uncore_cha_0".to_string(),
            event: Event { cpus: Some(vec![cpu]), ..event("cha") },
            bytes: None,
        };
        let uncore = [UncoreMetric::MissesLocal, UncoreMetric::MissesRemote]
            .into_iter()
            .flat_map(|metric| [unit(metric, 0), unit(metric, 2)])
            .collect();
        let available = Available { uncore, ..Available::default() };
        let shown = |available: &Available| {
            state(&told(available, &machine, true, |_| None), "dram_to_node").1
        };
        assert!(shown(&available).starts_with("misses and requests"));
        assert_eq!(shown(&Available::default()), "what the watched programs do");
        let controllers = [0, 2].map(|cpu| UncoreCount {
            bytes: Some((64, 1)),
            ..unit(UncoreMetric::ControllerBytes, cpu)
        });
        let controllers = Available { uncore: controllers.into(), ..Available::default() };
        assert_eq!(shown(&controllers), "what the watched programs do", "nobody tells who asks");
        let sampled = Available { sample: vec![event("ibs_op")], ..controllers };
        assert!(shown(&sampled).starts_with("what the controllers serve"));
        let exact = Available { dram_to_node: vec![(0, event("nb"))], ..Available::default() };
        assert_eq!(shown(&exact), "nb");
    }

    #[test]
    fn what_a_processor_lacks_is_said_with_its_cost() {
        let machine = synthetic::parse("node:2 core:2").expect("a machine");
        let mut available = Available { generation: "x".to_string(), ..Available::default() };
        available.absent.insert("remote_hitm".to_string(), "no event; SAM is blind".to_string());
        let told = told(&available, &machine, true, |_| None);
        assert_eq!(state(&told, "remote_hitm").1, "no event; SAM is blind");
        assert_eq!(state(&told, "refills").1, "the table x has no event for it");
        assert_eq!(state(&told, "address_samples"), (State::Derived, "page faults".to_string()));
        available.buffer = Some(event("arm_spe"));
        let told = self::told(&available, &machine, true, |_| Some("EACCES".to_string()));
        assert_eq!(state(&told, "address_samples"), (State::Missing, "EACCES".to_string()));
    }

    #[test]
    fn samples_of_a_buffer_are_of_all_tasks_where_their_time_is_known() {
        let machine = synthetic::parse("node:2 core:2").expect("a machine");
        let available = Available { buffer: Some(event("arm_spe")), ..Available::default() };
        let cost = |has_clock| {
            let told = told(&available, &machine, has_clock, |_| None);
            let samples = told.into_iter().find(|told| told.name == SAMPLES).expect("is listed");
            assert_eq!(samples.state, State::Measured);
            samples.cost
        };
        assert_eq!(cost(true), None);
        assert!(cost(false).is_some_and(|cost| cost.contains("under the daemon page faults")));
    }
}
