//! The machine that a command works on: as sysfs shows it, completed by a machine file, for sysfs knows
//! neither links nor bandwidths.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Topology;
use rondpoint_linux::topology::{self, Discovered};
use rondpoint_linux::{Root, root};
use rondpoint_machine::Machine;

use crate::calibrate::{Calibration, SYSTEM_FILE as CALIBRATION};

/// Read where no file is named: what `rondpoint topology --machine-file` wrote and somebody completed.
pub(crate) const SYSTEM_FILE: &str = "/etc/rondpoint/machine.toml";

/// The machine as found, with links and bandwidths of a machine file (the one that is named, else the system's
/// where there is one), and in place of them what `rondpoint calibrate` has measured, where it has.
pub(crate) fn discover(root: &Root, named: Option<&Path>) -> Result<Discovered> {
    let mut found = topology::discover(root)?;
    let system = || Some(PathBuf::from(SYSTEM_FILE)).filter(|path| path.exists());
    if let Some(path) = named.map(PathBuf::from).or_else(system) {
        found.topology = completed(&found.topology, &path)?;
    }
    let calibration = Some(Path::new(CALIBRATION)).filter(|path| path.exists());
    if let Some(path) = calibration {
        let complete = Calibration::load(path)?.complete(&found.topology);
        found.topology = complete.with_context(|| path.display().to_string())?;
    }
    Ok(found)
}

fn completed(found: &Topology, path: &Path) -> Result<Topology> {
    let written = Machine::load(path)?.topology();
    let sizes = |topology: &Topology| (topology.node_count(), topology.cpu_count());
    if sizes(&written) != sizes(found) {
        let ((nodes, cpus), (here, cpus_here)) = (sizes(&written), sizes(found));
        bail!(
            "{}: describes {nodes} nodes and {cpus} CPUs, this machine has {here} and {cpus_here}",
            path.display()
        );
    }
    let mut description = found.description().clone();
    let written = written.description();
    description.links.clone_from(&written.links);
    description.routes.clone_from(&written.routes);
    description.bandwidth_bytes_per_s.clone_from(&written.bandwidth_bytes_per_s);
    description.clock_hz = written.clock_hz.or(description.clock_hz);
    for (node, written) in description.nodes.iter_mut().zip(&written.nodes) {
        node.controller_bytes_per_s = written.controller_bytes_per_s;
    }
    Ok(Topology::new(description)?)
}

/// The name that this machine has given itself.
pub(crate) fn host_name(root: &Root) -> Option<String> {
    let bytes = root::read_optional(&root.in_proc("sys/kernel/hostname")).ok()??;
    Some(String::from_utf8_lossy(&bytes).trim().to_string()).filter(|name| !name.is_empty())
}
