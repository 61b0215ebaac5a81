//! The calibration file: the values that `rondpoint calibrate` measured on a machine, for every
//! command that decides.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::policy::carrefour;
use rondpoint_core::reference::CARREFOUR_A;
use rondpoint_core::topology::{Description, PenaltyLine};
use rondpoint_core::{Matrix, Topology};
use rondpoint_input::Budget;
use serde::{Deserialize, Serialize};

use super::meaning;
use crate::toml_text;

/// Where it is unless told.
pub(crate) const SYSTEM_FILE: &str = "/etc/rondpoint/calibration.toml";
/// Version of the format.
const FORMAT: u32 = 2;
/// Bytes of a file: two matrices of 1024 nodes are about 20 MB.
const MOST_BYTES: u64 = 32 << 20;
const MEGA: f64 = 1e6;
/// Programs below are no points of the penalty line [N-MASS s3.2].
const LEAST_MPKI: f64 = 1.0;
/// A program's run time depends on placement if it differs by this part between first touch and
/// interleaving. The paper's own runs differ by 1 to 2 % without a cause, on some machines by twice
/// as much (ALGORITHMS 1.11).
const DEPENDS: f64 = 0.05;

/// One machine's measurements. Rows are nodes that access, columns are nodes that hold, in the
/// order of `nodes`. A value that could not be measured, because a node has no CPU or no memory, is
/// 0. What each key means is in [`super::meaning`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Calibration {
    pub(crate) format: u32,
    pub(crate) host: Option<String>,
    pub(crate) cpus: usize,
    pub(crate) clock_mhz: Option<f64>,
    /// The kernel's numbers.
    pub(crate) nodes: Vec<u32>,
    pub(crate) controller_mb_s: Vec<f64>,
    pub(crate) bandwidth_mb_s: Vec<Vec<f64>>,
    pub(crate) latency_ns: Vec<Vec<f64>>,
    /// By programs of the user.
    pub(crate) requests_per_us: Option<f64>,
    pub(crate) sharing: Sharing,
    pub(crate) contention: Contention,
    pub(crate) sampling: Option<Sampling>,
    pub(crate) penalty: Option<Penalty>,
    #[serde(default)]
    pub(crate) programs: Vec<Program>,
}

/// What sharing costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sharing {
    pub(crate) same_domain_ns: Option<f64>,
    pub(crate) remote_ns: Option<f64>,
    pub(crate) coherence_per_s: Option<f64>,
    /// No threshold should be above it.
    pub(crate) crossover_per_s: Option<f64>,
}

/// When memory is what threads wait for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contention {
    pub(crate) memory_per_s: Option<f64>,
    pub(crate) remote_per_s: Option<f64>,
    pub(crate) outstanding_misses: Option<f64>,
    pub(crate) burst_ns: Option<f64>,
}

/// How often addresses are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sampling {
    pub(crate) period: u64,
    pub(crate) cost_ns: f64,
    pub(crate) slowdown_percent: f64,
}

/// N-MASS's line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Penalty {
    pub(crate) intercept: f64,
    pub(crate) slope_per_mpki: f64,
    pub(crate) most: f64,
}

/// Something that was run local and remote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) mpki: f64,
    pub(crate) penalty: f64,
    pub(crate) traffic: Option<Traffic>,
}

/// Where a program comes from: Rondpoint or the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// Rondpoint's.
    Benchmark,
    /// The user's, given behind `--`.
    Program,
}

/// What a program of the user took under each placement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traffic {
    pub(crate) local_s: f64,
    pub(crate) remote_s: f64,
    pub(crate) first_touch_s: f64,
    pub(crate) interleaved_s: f64,
    pub(crate) requests_per_us: Option<f64>,
}

impl Traffic {
    /// Whether its run time depends on placement.
    fn depends(&self) -> bool {
        let (more, less) = match self.first_touch_s > self.interleaved_s {
            true => (self.first_touch_s, self.interleaved_s),
            false => (self.interleaved_s, self.first_touch_s),
        };
        more > (1.0 + DEPENDS) * less
    }
}

/// A file that another version of this program wrote.
#[derive(Debug)]
pub(crate) struct OtherFormat(i64);

impl std::fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "format {}, expected {FORMAT}: calibrate again", self.0)
    }
}

impl std::error::Error for OtherFormat {}

impl Calibration {
    /// Reads and checks a file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = rondpoint_input::read_text(path, &mut Budget::new(MOST_BYTES, 0))
            .with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        // The version first: another one has other keys, and what is wrong with those says nothing.
        let table: toml::Table = toml_text::parse(text)?;
        let format = table.get("format").and_then(toml::Value::as_integer);
        if let Some(format) = format.filter(|format| *format != i64::from(FORMAT)) {
            return Err(OtherFormat(format).into());
        }
        let found: Self = toml_text::parse(text)?;
        if let Some(problem) = table.iter().find_map(|(key, value)| without_bound(value, key)) {
            bail!(problem);
        }
        let count = found.nodes.len();
        let matrices = [&found.bandwidth_mb_s, &found.latency_ns];
        let is_square = |rows: &&Vec<Vec<f64>>| {
            rows.len() == count && rows.iter().all(|row| row.len() == count)
        };
        if found.controller_mb_s.len() != count || !matrices.iter().all(is_square) {
            bail!("expected {count} numbers for {count} nodes in each row and column");
        }
        let values = matrices.iter().flat_map(|rows| rows.iter().flatten()).chain(&found.clock_mhz);
        if let Some(odd) = values.chain(&found.controller_mb_s).find(|value| **value < 0.0) {
            bail!("{odd}: expected zero or more");
        }
        if found.sampling.is_some_and(|sampling| sampling.period == 0) {
            bail!("sampling.period 0: expected one or more");
        }
        Ok(found)
    }

    /// The file's text, each key below what it means.
    pub(crate) fn to_toml(&self) -> Result<String> {
        Ok(meaning::explained(&toml::to_string(self)?))
    }

    /// An empty one for a machine.
    pub(crate) fn of(topology: &Topology, host: Option<String>) -> Self {
        let count = topology.node_count();
        Self {
            format: FORMAT,
            host,
            cpus: topology.cpu_count(),
            clock_mhz: None,
            nodes: (0..count).map(|node| topology.kernel_node(node)).collect(),
            controller_mb_s: vec![0.0; count],
            bandwidth_mb_s: vec![vec![0.0; count]; count],
            latency_ns: vec![vec![0.0; count]; count],
            requests_per_us: None,
            sharing: Sharing::default(),
            contention: Contention::default(),
            sampling: None,
            penalty: None,
            programs: Vec::new(),
        }
    }

    /// Takes in what programs showed, in place of what the same had shown before, and draws the
    /// conclusions anew.
    pub(crate) fn add(&mut self, programs: impl IntoIterator<Item = Program>) {
        for program in programs {
            self.programs.retain(|other| other.name != program.name);
            self.programs.push(program);
        }
        let points = self.programs.iter().filter(|program| program.mpki >= LEAST_MPKI);
        let points: Vec<(f64, f64)> = points.map(|one| (one.mpki, one.penalty)).collect();
        self.penalty = PenaltyLine::fit(&points).map(|line| Penalty {
            intercept: line.intercept,
            slope_per_mpki: line.slope_per_mpki,
            most: line.most,
        });
        let traffics = self.programs.iter().filter_map(|program| program.traffic.as_ref());
        let depending = traffics.filter(|traffic| traffic.depends());
        self.requests_per_us =
            depending.filter_map(|traffic| traffic.requests_per_us).min_by(f64::total_cmp);
    }

    /// The two nodes with CPUs and memory and the fastest loads from each other.
    pub(crate) fn nearest(&self, topology: &Topology) -> Option<[usize; 2]> {
        let both = topology.memory_nodes().intersection(&topology.compute_nodes());
        let pairs = both.iter().flat_map(|a| both.iter().map(move |b| [a, b]));
        let between = |pair: &[usize; 2]| self.latency_ns[pair[0]][pair[1]];
        pairs.filter(|[a, b]| a < b).min_by(|x, y| between(x).total_cmp(&between(y)))
    }

    /// Whether it is of this machine.
    pub(crate) fn check(&self, topology: &Topology) -> Result<()> {
        let here: Vec<u32> =
            (0..topology.node_count()).map(|node| topology.kernel_node(node)).collect();
        if self.nodes != here || self.cpus != topology.cpu_count() {
            let (nodes, cpus) = (self.nodes.len(), self.cpus);
            let (nodes_here, cpus_here) = (here.len(), topology.cpu_count());
            bail!(
                "nodes and CPUs when it was measured: {nodes} and {cpus}, now: {nodes_here} and {cpus_here}; \
                 calibrate again"
            );
        }
        Ok(())
    }

    /// The machine with what was measured on it in place of what was written of it.
    pub(crate) fn complete(&self, topology: &Topology) -> Result<Topology> {
        self.check(topology)?;
        let mut description: Description = topology.description().clone();
        description.clock_hz = self.clock_mhz.map(|mhz| mhz * MEGA).or(description.clock_hz);
        let known = topology.bandwidth();
        let written = |a: usize, h: usize| known.map_or(0.0, |matrix| matrix[(a, h)]);
        let measured = |a: usize, h: usize| match self.bandwidth_mb_s[a][h] * MEGA {
            0.0 => written(a, h),
            rate => rate,
        };
        description.bandwidth_bytes_per_s = Some(Matrix::from_fn(self.nodes.len(), measured));
        for (node, rate) in description.nodes.iter_mut().zip(&self.controller_mb_s) {
            if *rate > 0.0 {
                node.controller_bytes_per_s = Some(rate * MEGA);
            }
        }
        self.complete_costs(&mut description.costs);
        let calibrated = &mut description.calibrated;
        calibrated.coherence_per_s = self.sharing.coherence_per_s;
        calibrated.memory_per_s = self.contention.memory_per_s;
        calibrated.remote_per_s = self.contention.remote_per_s;
        calibrated.penalty = self.penalty.map(|line| PenaltyLine {
            intercept: line.intercept,
            slope_per_mpki: line.slope_per_mpki,
            most: line.most,
        });
        let mut topology = Topology::new(description.clone())?;
        // The paper's programs count as seen too: their limit as a share of this machine's
        // capacity.
        let published = carrefour::preset::FINAL.traffic.per_us;
        let published = CARREFOUR_A.scale_requests_per_us(published, &topology);
        if let Some(lower) = self.requests_per_us.filter(|found| *found < published) {
            description.calibrated.requests_per_us = Some(lower);
            topology = Topology::new(description)?;
        }
        Ok(topology)
    }
}

/// What is wrong with the first number of a value that has no end or is none; TOML has both.
fn without_bound(value: &toml::Value, path: &str) -> Option<String> {
    match value {
        toml::Value::Float(number) if !number.is_finite() => {
            Some(format!("{path} {number}: expected a finite number"))
        }
        toml::Value::Array(list) => list.iter().find_map(|one| without_bound(one, path)),
        toml::Value::Table(table) => {
            table.iter().find_map(|(key, one)| without_bound(one, &format!("{path}.{key}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::policy::{nmass, sam};
    use rondpoint_core::topology::synthetic;

    use super::*;

    fn measured() -> Calibration {
        let machine = synthetic::parse("node:2 core:1").expect("a machine");
        let mut found = Calibration::of(&machine, Some("here".to_string()));
        found.controller_mb_s = vec![6000.0, 0.0];
        found.bandwidth_mb_s = vec![vec![6000.0, 2000.0], vec![1900.0, 0.0]];
        found.sharing.remote_ns = Some(87.0);
        found.sampling = Some(Sampling { period: 997, cost_ns: 900.0, slowdown_percent: 4.0 });
        found.add([program("loop", 10.0, 1.2, None), program("./app -x", 30.0, 1.6, None)]);
        found
    }

    fn program(name: &str, mpki: f64, penalty: f64, traffic: Option<Traffic>) -> Program {
        Program { name: name.to_string(), origin: Origin::Program, mpki, penalty, traffic }
    }

    /// Seconds under first touch and interleaved, and its requests.
    fn traffic(first_touch_s: f64, interleaved_s: f64, per_us: f64) -> Option<Traffic> {
        let requests_per_us = Some(per_us);
        Some(Traffic { local_s: 1.0, remote_s: 1.0, first_touch_s, interleaved_s, requests_per_us })
    }

    #[test]
    fn programs_make_the_line_and_the_same_again_replaces_what_it_showed() {
        let mut found = measured();
        let line = |found: &Calibration| {
            let line = found.penalty.expect("two programs");
            [line.intercept, line.slope_per_mpki, line.most]
                .map(|value| (1e6 * value).round() / 1e6)
        };
        assert_eq!(line(&found), [1.0, 0.02, 1.6]);
        found.add([program("./app -x", 20.0, 1.3, None), program("quiet", 0.5, 1.4, None)]);
        assert_eq!(line(&found), [1.1, 0.01, 1.3], "one below 1 MPKI is no point");
        assert_eq!(found.programs.len(), 3);
    }

    #[test]
    fn the_lowest_traffic_of_a_program_that_depends_on_placement_is_the_limit() {
        let mut found = measured();
        found.add([program("even", 10.0, 1.2, traffic(1.0, 1.04, 2.0))]);
        assert_eq!(found.requests_per_us, None);
        found.add([program("uneven", 10.0, 1.2, traffic(1.06, 1.0, 9.0))]);
        found.add([program("local", 10.0, 1.2, traffic(1.0, 1.06, 12.0))]);
        assert_eq!(found.requests_per_us, Some(9.0));
        let machine = synthetic::parse("node:2 core:1 gbs:6").expect("a machine");
        let limit = |found: &Calibration| {
            let complete = found.complete(&machine).expect("fits");
            let preset = &carrefour::preset::FINAL;
            carrefour::gates::scaled_limit(preset, &complete)
        };
        assert_eq!(limit(&found), 9.0);
        found.add([program("uneven", 10.0, 1.2, None), program("local", 10.0, 1.2, None)]);
        let published = limit(&found);
        assert!((published - 50.0 * 2.0 * 6.0 / 25.8).abs() < 1e-9, "{published}");
        found.add([program("dense", 10.0, 1.2, traffic(2.0, 1.0, 500.0))]);
        assert_eq!(limit(&found), published, "the paper's programs count too");
    }

    #[test]
    fn what_was_found_is_what_the_policies_go_by() {
        let mut found = measured();
        found.sharing.coherence_per_s = Some(1000.0);
        found.contention = Contention {
            memory_per_s: Some(8000.0),
            remote_per_s: Some(300.0),
            ..Contention::default()
        };
        let machine = synthetic::parse("node:2 core:1").expect("a machine");
        let complete = found.complete(&machine).expect("fits");
        let sam = sam::Basis::Published.for_topology(&complete);
        assert_eq!([sam.coherence, sam.memory_socket, sam.remote], [1000.0, 8000.0, 300.0]);
        assert!((nmass::line(&complete).at(20.0) - 1.4).abs() < 1e-9);
    }

    #[test]
    fn every_key_of_a_full_file_is_explained() {
        let mut found = measured();
        found.clock_mhz = Some(2000.0);
        found.requests_per_us = Some(9.0);
        let some = Some(1.0);
        found.sharing = Sharing {
            same_domain_ns: some,
            remote_ns: some,
            coherence_per_s: some,
            crossover_per_s: some,
        };
        found.contention = Contention {
            memory_per_s: some,
            remote_per_s: some,
            outstanding_misses: some,
            burst_ns: some,
        };
        found.programs[0].traffic = traffic(1.0, 2.0, 3.0);
        let text = found.to_toml().expect("text");
        let explained: Vec<&str> = meaning::KEYS.iter().map(|(_, meaning)| *meaning).collect();
        for meaning in &explained {
            assert_eq!(text.matches(&format!("# {meaning}\n")).count(), 1, "{meaning}: {text}");
        }
        assert_eq!(Calibration::parse(&text).expect("good"), found);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = measured().to_toml().expect("text");
        assert!(text.starts_with("# Measured by"), "{text}");
        assert_eq!(Calibration::parse(&text).expect("good"), measured());
    }

    #[test]
    fn what_does_not_hold_is_refused() {
        let text = measured().to_toml().expect("text");
        let refuse = |from: &str, to: &str, expected: &str| {
            let error = Calibration::parse(&text.replace(from, to)).expect_err(to);
            assert!(format!("{error:#}").contains(expected), "{to}: {error:#}");
        };
        refuse("format = 2", "format = 9", "format 9, expected 2: calibrate again");
        refuse("nodes = [0, 1]", "nodes = [0]", "expected 1 numbers for 1 nodes");
        refuse("2000.0", "-1.0", "-1: expected zero or more");
        for (odd, told) in [("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf")] {
            refuse("2000.0", odd, &format!("bandwidth_mb_s {told}: expected a finite number"));
            refuse("87.0", odd, &format!("sharing.remote_ns {told}: expected a finite number"));
        }
        refuse("cpus = 2", "cpus = 2\nodd = 1", "unknown field `odd`");
        refuse("cpus = 2", "", "missing field `cpus`");
        refuse("period = 997", "period = 0", "sampling.period 0: expected one or more");
    }

    #[test]
    fn measurements_replace_what_was_known_and_gaps_stay() {
        let machine = synthetic::parse("node:2 core:1 gbs:5").expect("a machine");
        let found = measured().complete(&machine).expect("fits");
        let bandwidth = found.bandwidth().expect("known");
        assert_eq!(bandwidth[(0, 1)], 2e9);
        assert_eq!(found.controller_bytes_per_s(0), Some(6e9));
        assert_eq!(found.controller_bytes_per_s(1), Some(5e9), "not measured");
        let other = synthetic::parse("node:4 core:1").expect("a machine");
        let error = measured().complete(&other).expect_err("another machine").to_string();
        assert!(error.contains("2 and 2, now: 4 and 4; calibrate again"), "{error}");
    }

    #[test]
    fn a_mutated_file_that_is_accepted_reads_again_as_itself() {
        let machine = synthetic::parse("node:2 core:1").expect("a machine");
        let text = measured().to_toml().expect("text");
        crate::seeded::check(&[&text], |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let Ok(found) = Calibration::parse(text) else { return false };
            let again = Calibration::parse(&found.to_toml().expect("text"));
            assert_eq!(again.expect("its own text is accepted"), found);
            let _ = found.complete(&machine);
            true
        });
    }
}
