//! The machine on which a command works: from sysfs, completed by a machine file, because sysfs has
//! neither links nor bandwidths.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::Topology;
use rondpoint_linux::topology::{self, Discovered};
use rondpoint_linux::{Root, root};
use rondpoint_machine::Machine;

use crate::calibrate::{Calibration, OtherFormat, SYSTEM_FILE as CALIBRATION};
use crate::terminal;

/// Read where no file is named: what `rondpoint topology --write-machine` wrote and a user
/// completed.
pub(crate) const SYSTEM_FILE: &str = "/etc/rondpoint/machine.toml";

/// A machine and how it is watched.
pub(crate) struct Known {
    pub(crate) machine: Discovered,
    /// Events per address sample, where their cost was measured; else the processor's table counts.
    pub(crate) sampling_period: Option<u64>,
    /// What of the files does not fit this machine, for the user.
    pub(crate) notes: Vec<String>,
}

/// The machine as found, with links and bandwidths of a machine file: the named one, else the
/// system's if there is one. Measurements of `rondpoint calibrate` replace them.
pub(crate) fn discover(root: &Root, named: Option<&Path>) -> Result<Known> {
    discover_with(root, named, None)
}

/// The same with measurements from a file that may be named too.
pub(crate) fn discover_with(
    root: &Root,
    named: Option<&Path>,
    measured: Option<&Path>,
) -> Result<Known> {
    let system = |path| Some(PathBuf::from(path)).filter(|path| path.exists());
    let or_system = |named: Option<&Path>, path| named.map(PathBuf::from).or_else(|| system(path));
    let (written, measured) = (or_system(named, SYSTEM_FILE), or_system(measured, CALIBRATION));
    known(topology::discover(root)?, written.as_deref(), measured.as_deref())
}

/// Whether the files that are named can be read and understood, on whichever machine. A calibration
/// of another version is passed over at the start, so it is no mistake.
pub(crate) fn check_files(written: Option<&Path>, calibration: Option<&Path>) -> Result<()> {
    written.map(Machine::load).transpose()?;
    match calibration.map(Calibration::load).transpose() {
        Err(error) if !error.is::<OtherFormat>() => Err(error),
        _ => Ok(()),
    }
}

fn known(
    mut machine: Discovered,
    written: Option<&Path>,
    calibration: Option<&Path>,
) -> Result<Known> {
    if let Some(path) = written {
        machine.topology = completed(&machine.topology, path)?;
    }
    let mut known = Known { machine, sampling_period: None, notes: Vec::new() };
    let Some(path) = calibration else { return Ok(known) };
    let calibration = match Calibration::load(path) {
        Ok(calibration) => calibration,
        Err(error) if error.is::<OtherFormat>() => {
            known.notes.push(format!("{}; it is not used", terminal::told(&error)));
            return Ok(known);
        }
        Err(error) => return Err(error),
    };
    known.sampling_period = calibration.sampling.map(|sampling| sampling.period);
    if let Err(error) = calibration.check(&known.machine.topology) {
        // The cost of a sample is the processor's; bandwidths are of nodes that are not these.
        let path = path.display();
        known
            .notes
            .push(format!("{path}: {}; only its sampling period is used", terminal::told(&error)));
        return Ok(known);
    }
    let complete = calibration.complete(&known.machine.topology);
    known.machine.topology = complete.with_context(|| path.display().to_string())?;
    Ok(known)
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
    description.costs.clone_from(&written.costs);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::Sampling;

    #[test]
    fn what_was_calibrated_is_what_the_machine_is_known_by() {
        let found = topology::discover(&Root::live()).expect("this machine");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calibration.toml");
        let mut calibration = Calibration::of(&found.topology, None);
        calibration.clock_mhz = Some(1234.0);
        calibration.contention.remote_per_s = Some(5e5);
        calibration.sampling =
            Some(Sampling { period: 499, cost_ns: 900.0, slowdown_percent: 4.0 });
        std::fs::write(&path, calibration.to_toml().expect("text")).expect("written");
        let plain = known(found.clone(), None, None).expect("nothing to read");
        assert_eq!(plain.sampling_period, None);
        let known_by = known(found.clone(), None, Some(&path)).expect("fits");
        assert_eq!(known_by.sampling_period, Some(499));
        assert_eq!(known_by.machine.topology.clock_hz(), Some(1.234e9));
        assert_eq!(known_by.machine.topology.calibrated().remote_per_s, Some(5e5));
        calibration.cpus += 1;
        std::fs::write(&path, calibration.to_toml().expect("text")).expect("written");
        let other = known(found.clone(), None, Some(&path)).expect("goes on");
        assert!(
            other.notes[0].contains("calibration.toml: nodes and CPUs when"),
            "{:?}",
            other.notes
        );
        assert_eq!(other.sampling_period, Some(499));
        assert_eq!(other.machine.topology, found.topology, "nothing else of it is used");
        let older = calibration.to_toml().expect("text").replace("format = 2", "format = 1");
        std::fs::write(&path, older).expect("written");
        let older = known(found.clone(), None, Some(&path)).expect("goes on");
        assert!(older.notes[0].contains("format 1, expected 2"), "{:?}", older.notes);
        assert_eq!(older.sampling_period, None);
        assert!(check_files(None, Some(&path)).is_ok(), "a daemon would start with it");
        std::fs::write(&path, "format = 2\nodd = 1\n").expect("written");
        assert!(known(found, None, Some(&path)).is_err(), "a mistake is told");
        assert!(check_files(None, Some(&path)).is_err());
        for written in ["/nothere", "/dev/zero"] {
            assert!(check_files(Some(Path::new(written)), None).is_err(), "{written}");
        }
    }
}
