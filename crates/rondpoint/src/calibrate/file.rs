//! The calibration file: what `rondpoint calibrate` measured on a machine, read by every command that decides.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::topology::Description;
use rondpoint_core::{Matrix, Topology};
use serde::{Deserialize, Serialize};

/// Where it is unless told.
pub(crate) const SYSTEM_FILE: &str = "/etc/rondpoint/calibration.toml";
/// Version of the format.
const FORMAT: u32 = 1;
const MEGA: f64 = 1e6;

/// One machine's measurements. Rows are nodes that access, columns are nodes that hold, in the order of `nodes`;
/// what could not be measured, for a node has no CPU or no memory, is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Calibration {
    pub(crate) format: u32,
    pub(crate) host: Option<String>,
    pub(crate) cpus: usize,
    /// The clock of a busy core; absent where cycles cannot be counted.
    pub(crate) clock_mhz: Option<f64>,
    /// The kernel's numbers.
    pub(crate) nodes: Vec<u32>,
    /// What all CPUs together draw from a node's memory.
    pub(crate) controller_mb_s: Vec<f64>,
    /// What a node's CPUs draw from a node's memory.
    pub(crate) bandwidth_mb_s: Vec<Vec<f64>>,
    /// What one load waits for where nothing else goes on.
    pub(crate) latency_ns: Vec<Vec<f64>>,
    pub(crate) sharing: Sharing,
}

/// What sharing costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sharing {
    /// A line from one CPU to another of the same cache domain.
    pub(crate) same_domain_ns: Option<f64>,
    /// A line from a CPU to one of another node, the nearest two.
    pub(crate) remote_ns: Option<f64>,
    /// SAM's threshold: lines that a thread receives from another node in a second, by what they cost more.
    pub(crate) coherence_per_s: Option<f64>,
    /// The rate at which two threads that also compete for a last-level cache are as fast on one domain as on two:
    /// no threshold should be above it.
    pub(crate) crossover_per_s: Option<f64>,
}

impl Calibration {
    /// Reads and checks a file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let found: Self = toml::from_str(text)?;
        if found.format != FORMAT {
            bail!("format {}, expected {FORMAT}: calibrate again", found.format);
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
        let is_sound = |value: &f64| value.is_finite() && *value >= 0.0;
        if let Some(odd) = values.chain(&found.controller_mb_s).find(|value| !is_sound(value)) {
            bail!("{odd}: expected zero or more");
        }
        Ok(found)
    }

    /// The file's text, with a head that says what it is.
    pub(crate) fn to_toml(&self) -> Result<String> {
        let head = "# Measured by `rondpoint calibrate` on this machine; run it again after a change of hardware\n\
                    # or firmware. Rows are nodes that access, columns nodes that hold; 0 is not measured.\n\n";
        Ok(head.to_string() + &toml::to_string(self)?)
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
            sharing: Sharing::default(),
        }
    }

    /// The machine with what was measured on it in place of what was written of it.
    pub(crate) fn complete(&self, topology: &Topology) -> Result<Topology> {
        let here: Vec<u32> =
            (0..topology.node_count()).map(|node| topology.kernel_node(node)).collect();
        if self.nodes != here || self.cpus != topology.cpu_count() {
            let (nodes, cpus) = (self.nodes.len(), self.cpus);
            let (nodes_here, cpus_here) = (here.len(), topology.cpu_count());
            bail!(
                "measured with {nodes} nodes and {cpus} CPUs, this machine has {nodes_here} and {cpus_here}: \
                 calibrate again"
            );
        }
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
        let calibrated = &mut description.calibrated;
        calibrated.coherence_per_s = self.sharing.coherence_per_s.or(calibrated.coherence_per_s);
        Ok(Topology::new(description)?)
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    fn measured() -> Calibration {
        let machine = synthetic::parse("node:2 core:1").expect("a machine");
        let mut found = Calibration::of(&machine, Some("here".to_string()));
        found.controller_mb_s = vec![6000.0, 0.0];
        found.bandwidth_mb_s = vec![vec![6000.0, 2000.0], vec![1900.0, 0.0]];
        found.sharing.remote_ns = Some(87.0);
        found
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
        refuse("format = 1", "format = 9", "format 9, expected 1: calibrate again");
        refuse("nodes = [0, 1]", "nodes = [0]", "expected 1 numbers for 1 nodes");
        refuse("2000.0", "-1.0", "-1: expected zero or more");
        refuse("2000.0", "nan", "NaN: expected zero or more");
        refuse("cpus = 2", "cpus = 2\nodd = 1", "unknown field `odd`");
        refuse("cpus = 2", "", "missing field `cpus`");
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
        assert!(error.contains("this machine has 4 and 4: calibrate again"), "{error}");
    }
}
