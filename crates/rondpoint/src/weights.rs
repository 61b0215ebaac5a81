//! `rondpoint weights`: weights for the kernel's weighted interleaving, from measured bandwidth.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use rondpoint_core::{Matrix, NodeSet, Topology, interleave};
use rondpoint_linux::ledger_file::make_private;
use rondpoint_linux::parse::cpulist;
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::weights::{self as kernel, Weights};
use rondpoint_linux::{Root, root, topology};
use serde::Serialize;

use crate::calibrate::{Calibration, SYSTEM_FILE};
use crate::number_sets::Range;
use crate::{ledgers, terminal};

const FAILURE: u8 = 1;
const REFUSED: u8 = 2;
/// Version of the JSON.
const SCHEMA: u32 = 1;
/// In the folder of the ledgers: what the kernel had before the first `--apply`.
const BEFORE: &str = "weights.json";

const EXAMPLES: &str = "\
Examples:
  rondpoint weights                    # for programs on all nodes with CPUs
  rondpoint weights --from 0           # for programs on node 0
  sudo rondpoint weights --apply
  rondpoint run --weighted-interleave all -- ./app
  sudo rondpoint weights --reset";

const DETAILS: &str = "

A node's weight is proportional to its bandwidth, as measured by rondpoint calibrate. With
several nodes of CPUs, the lowest bandwidth to any of them counts. The kernel has one weight for
each node, for all programs with weighted interleaving. New pages follow it, older pages stay.

Exit status: 0 good, 1 a weight could not be written, 2 bad usage, no calibration, a kernel
without weights, or nothing to reset.";

/// Print or apply measured weights for weighted interleaving
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
pub(crate) struct Arguments {
    /// Nodes that the programs run on [default: all with CPUs]
    #[arg(long, value_name = "NODES", conflicts_with = "reset")]
    from: Option<String>,

    /// The file that rondpoint calibrate wrote
    #[arg(long, value_name = "FILE", default_value = SYSTEM_FILE, conflicts_with = "reset")]
    calibration: PathBuf,

    /// Write them to the kernel
    #[arg(long, conflicts_with = "reset")]
    apply: bool,

    /// Give the kernel back the weights that it had before the first --apply
    #[arg(long)]
    reset: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let shown = |report: Report| match arguments.json {
        true => terminal::print_json(&report),
        false => terminal::print(&report.text()),
    };
    match run(arguments) {
        Ok(report) => match shown(report) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(FAILURE, &error),
        },
        Err(Problem::Refused(error)) => fail(REFUSED, &error),
        Err(Problem::NotWritten(error)) => fail(FAILURE, &error),
    }
}

fn fail(status: u8, error: &anyhow::Error) -> ExitCode {
    terminal::fail("weights", error);
    ExitCode::from(status)
}

enum Problem {
    /// Nothing was tried.
    Refused(anyhow::Error),
    /// The kernel did not take a weight.
    NotWritten(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// What was found, and what was done.
#[derive(Debug, PartialEq, Serialize)]
struct Report {
    schema: u32,
    /// Whether the kernel has these weights from us now.
    applied: bool,
    /// Whether the kernel has its earlier weights again.
    reset: bool,
    /// The nodes that the programs run on.
    from: Vec<u32>,
    nodes: Vec<Line>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Line {
    node: u32,
    /// By calibration, MB/s.
    bandwidth_mb_s: Option<f64>,
    weight: Option<u8>,
    /// What the kernel had when this began; none where it has no weighted interleaving.
    kernel_weight: Option<u8>,
}

fn run(arguments: &Arguments) -> Result<Report, Problem> {
    let writes = arguments.apply || arguments.reset;
    let needs = if writes { Needs::to_set() } else { Needs::to_read(None) };
    let _ = privileges::keep_only(&needs);
    let root = Root::live();
    let found = topology::discover(&root)?.topology;
    if arguments.reset {
        return reset(&root, &ledgers::folder()?);
    }
    let calibration = measurements(&arguments.calibration)?;
    let path = || arguments.calibration.display().to_string();
    calibration.check(&found).with_context(path)?;
    let from = match &arguments.from {
        Some(text) => Some(
            Range::cpu_nodes(&found).parse(text).map_err(|problem| anyhow!("--from: {problem}"))?,
        ),
        None => None,
    };
    let report = measured(&found, &calibration, from, kernel::read(&root)?)?;
    if arguments.apply {
        return apply(&root, &ledgers::folder()?, report);
    }
    Ok(report)
}

/// The calibration file. Only where there is none, measuring is the remedy.
fn measurements(path: &Path) -> Result<Calibration> {
    Calibration::load(path).map_err(|error| {
        let has_kind = |cause: &(dyn std::error::Error + 'static)| {
            let cause = cause.downcast_ref::<io::Error>();
            cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
        };
        match error.chain().any(has_kind) {
            true => error.context("no measured weights: run `sudo rondpoint calibrate` first"),
            false => error,
        }
    })
}

/// The weights of a machine, beside those that the kernel has.
fn measured(
    found: &Topology,
    calibration: &Calibration,
    from: Option<Vec<u32>>,
    kernel: Option<Weights>,
) -> Result<Report> {
    let from: NodeSet = match from {
        Some(from) => from.iter().filter_map(|node| found.node_of_kernel_id(*node)).collect(),
        None => found.compute_nodes(),
    };
    let bandwidth = Matrix::from_rows(&calibration.bandwidth_mb_s).context("no matrix")?;
    let rates = interleave::rates(&bandwidth, &from);
    let weights = interleave::weights(&rates);
    let line = |node: usize| Line {
        node: found.kernel_node(node),
        bandwidth_mb_s: Some(rates[node]).filter(|rate| *rate > 0.0),
        weight: weights[node],
        kernel_weight: kernel
            .as_ref()
            .and_then(|all| all.nodes.get(&found.kernel_node(node)).copied()),
    };
    let nodes = found.memory_nodes().iter().map(line).collect();
    let from = from.iter().map(|node| found.kernel_node(node)).collect();
    Ok(Report { schema: SCHEMA, applied: false, reset: false, from, nodes })
}

/// Writes the weights. The kernel's weights are kept in `folder` before, and restored where one of
/// the new ones is refused.
fn apply(root: &Root, folder: &Path, report: Report) -> Result<Report, Problem> {
    let before = kernel::read(root)?.with_context(|| {
        format!(
            "{}: not there; weighted interleaving is in Linux 6.9 and later, with NUMA",
            kernel::folder(root).display()
        )
    })?;
    let wanted: BTreeMap<u32, u8> =
        report.nodes.iter().filter_map(|line| Some((line.node, line.weight?))).collect();
    if let Some(line) = report.nodes.iter().find(|line| line.weight.is_none()) {
        let from = cpulist::format(&report.from);
        return Err(anyhow!(
            "node {}: its bandwidth from nodes {from} was not measured",
            line.node
        )
        .into());
    }
    keep(folder, &before)?;
    if let Err(error) = kernel::write(root, &wanted) {
        let given_back = kernel::put_back(root, &before);
        let error = anyhow::Error::from(error);
        return Err(Problem::NotWritten(match given_back {
            Ok(()) => error,
            Err(other) => error.context(format!("the earlier weights are not back: {other}")),
        }));
    }
    Ok(Report { applied: true, ..report })
}

/// Keeps what the kernel has, unless what it had before an earlier `--apply` is kept already. A
/// full disk leaves no incomplete file, which would count as kept.
fn keep(folder: &Path, before: &Weights) -> Result<()> {
    let path = folder.join(BEFORE);
    make_private(folder)?;
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let new = path.with_extension("part");
    let written = || -> io::Result<()> {
        // What a killed command left.
        let _ = fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(serde_json::to_string(before)?.as_bytes())?;
        fs::rename(&new, &path)
    };
    let written = written();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.with_context(|| format!("writing {}", path.display()))
}

fn reset(root: &Root, folder: &Path) -> Result<Report, Problem> {
    let path = folder.join(BEFORE);
    let nothing = || {
        let path = path.display();
        anyhow!("nothing to reset: no earlier weights are kept in {path}")
    };
    if folder.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(nothing().into());
    }
    // What another user may write there is not trusted.
    make_private(folder)?;
    let bytes = root::read_optional(&path)?.ok_or_else(nothing)?;
    let before: Weights =
        serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
    let now = kernel::read(root)?.context("this kernel has no weighted interleaving")?;
    kernel::put_back(root, &before).map_err(|error| Problem::NotWritten(error.into()))?;
    fs::remove_file(&path).with_context(|| path.display().to_string())?;
    let line = |(node, weight): (&u32, &u8)| Line {
        node: *node,
        bandwidth_mb_s: None,
        weight: Some(*weight),
        kernel_weight: now.nodes.get(node).copied(),
    };
    let nodes = before.nodes.iter().map(line).collect();
    Ok(Report { schema: SCHEMA, applied: false, reset: true, from: Vec::new(), nodes })
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{:>6} {:>10} {:>7} {:>11}", "node", "MB/s", "weight", "kernel had");
        let number = |value: Option<u8>| value.map_or("-".to_string(), |value| value.to_string());
        for line in &self.nodes {
            let rate = line.bandwidth_mb_s.map_or("-".to_string(), |rate| format!("{rate:.0}"));
            let (weight, had) = (number(line.weight), number(line.kernel_weight));
            let _ = writeln!(text, "{:>6} {rate:>10} {weight:>7} {had:>11}", line.node);
        }
        let plural = if self.from.len() == 1 { "" } else { "s" };
        let from = format!("node{plural} {}", cpulist::format(&self.from));
        text += &match (self.applied, self.reset) {
            (true, _) => format!(
                "Applied, for programs on {from}. New pages of programs with weighted \
                 interleaving follow.\nUndo: sudo rondpoint weights --reset\n"
            ),
            (_, true) => "The kernel has its earlier weights again.\n".to_string(),
            _ => {
                format!("For programs on {from}. Nothing was changed; --apply writes them.\n")
            }
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rondpoint_core::topology::synthetic;

    use super::*;

    fn machine() -> (Topology, Calibration) {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut calibration = Calibration::of(&topology, None);
        calibration.bandwidth_mb_s = vec![vec![12_000.0, 4_000.0], vec![6_000.0, 12_000.0]];
        (topology, calibration)
    }

    fn kernel_of(weights: &[(u32, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().expect("a folder");
        let root = Root::captured(directory.path());
        fs::create_dir_all(kernel::folder(&root)).expect("made");
        for (node, text) in weights {
            fs::write(kernel::folder(&root).join(format!("node{node}")), text).expect("written");
        }
        (directory, root)
    }

    fn told<T>(result: Result<T, Problem>) -> String {
        match result {
            Ok(_) => "good".to_string(),
            Err(Problem::Refused(error)) => format!("refused: {error:#}"),
            Err(Problem::NotWritten(error)) => format!("not written: {error:#}"),
        }
    }

    #[test]
    fn what_is_applied_is_undone_by_reset_even_when_applied_twice() {
        let (topology, calibration) = machine();
        let (directory, root) = kernel_of(&[(0, "1\n"), (1, "7\n")]);
        let folder = directory.path().join("run");
        let earlier = kernel::read(&root).expect("readable");
        for from in [Some(vec![0]), None] {
            let report =
                measured(&topology, &calibration, from, kernel::read(&root).expect("readable"));
            let report = apply(&root, &folder, report.expect("measured"));
            assert!(report.is_ok_and(|report| report.applied));
        }
        let now = kernel::read(&root).expect("readable").expect("there");
        assert_eq!(now.nodes, [(0, 3), (1, 2)].into(), "6000 and 4000 from the slower node");
        let report = reset(&root, &folder);
        assert!(report.is_ok_and(|report| report.reset && report.text().contains("again")));
        assert_eq!(kernel::read(&root).expect("readable"), earlier);
        assert!(told(reset(&root, &folder)).starts_with("refused: nothing to reset"));
    }

    #[test]
    fn one_refused_weight_leaves_none_changed() {
        let (topology, calibration) = machine();
        let (directory, root) = kernel_of(&[(0, "9\n")]);
        let folder = directory.path().join("run");
        let report =
            measured(&topology, &calibration, None, kernel::read(&root).expect("readable"));
        let error = told(apply(&root, &folder, report.expect("measured")));
        assert!(error.starts_with("not written: ") && error.contains("node1"), "{error}");
        assert_eq!(kernel::read(&root).expect("readable").expect("there").nodes, [(0, 9)].into());
    }

    /// An incomplete file of a killed command, and a folder that others may write.
    #[test]
    fn earlier_weights_are_kept_whole_and_where_no_other_user_writes() {
        use std::os::unix::fs::PermissionsExt as _;
        let (directory, root) = kernel_of(&[(0, "1\n"), (1, "7\n")]);
        let folder = directory.path().join("run");
        let before = kernel::read(&root).expect("readable").expect("there");
        make_private(&folder).expect("made");
        fs::write(folder.join("weights.part"), "{\"no").expect("written");
        keep(&folder, &before).expect("kept");
        assert_eq!(fs::read_dir(&folder).expect("listed").count(), 1);
        let none = Weights { automatic: None, nodes: BTreeMap::new() };
        keep(&folder, &none).expect("kept already");
        assert!(reset(&root, &folder).is_ok());
        fs::create_dir(folder.join("weights.part")).expect("made");
        keep(&folder, &before).expect_err("its place is taken");
        assert!(!folder.join(BEFORE).exists(), "nothing counts as kept");
        fs::write(folder.join(BEFORE), "{\"nodes\":{\"0\":200}}").expect("written");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("changed");
        let error = told(reset(&root, &folder));
        assert!(error.contains("only this user may write"), "{error}");
        keep(&folder, &before).expect_err("others may write there");
    }

    #[test]
    fn what_the_machine_or_the_calibration_lacks_is_refused() {
        let (topology, mut calibration) = machine();
        let nowhere = tempfile::tempdir().expect("a folder");
        let root = Root::captured(nowhere.path());
        let report = |calibration: &Calibration| {
            measured(&topology, calibration, None, None).expect("measured")
        };
        let error = told(apply(&root, nowhere.path(), report(&calibration)));
        assert!(error.starts_with("refused: ") && error.contains("Linux 6.9"), "{error}");
        calibration.bandwidth_mb_s[0][1] = 0.0;
        let (directory, root) = kernel_of(&[(0, "1\n"), (1, "1\n")]);
        let error = told(apply(&root, directory.path(), report(&calibration)));
        assert_eq!(error, "refused: node 1: its bandwidth from nodes 0-1 was not measured");
        assert!(!directory.path().join(BEFORE).exists(), "nothing was begun");
    }

    #[test]
    fn only_a_missing_calibration_is_answered_with_a_wish_to_measure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calibration.toml");
        let told = || match measurements(&path) {
            Ok(_) => panic!("accepted"),
            Err(error) => format!("{error:#}"),
        };
        assert!(told().contains("rondpoint calibrate` first: reading "), "{}", told());
        fs::write(&path, "format = \"").expect("written");
        let told = told();
        assert!(told.starts_with(&path.display().to_string()), "{told}");
        assert!(!told.contains("calibrate` first"), "{told}");
    }
}
