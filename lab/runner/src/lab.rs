//! The lab on this machine: fetched and built parts.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;

use crate::built::Built;
use crate::installed::{Installed, OwnKernel, Package, cache_folder};

/// Machine files that the lab brings along, so that a name is enough.
const MACHINES: &[(&str, &str)] = &[
    ("altra-2", include_str!("../../../machines/altra-2.toml")),
    ("asymsched-8", include_str!("../../../machines/asymsched-8.toml")),
    ("carrefour-a", include_str!("../../../machines/carrefour-a.toml")),
    ("carrefour-b", include_str!("../../../machines/carrefour-b.toml")),
    ("chiplet-cxl", include_str!("../../../machines/chiplet-cxl.toml")),
    ("nmass-2", include_str!("../../../machines/nmass-2.toml")),
    ("sam-2", include_str!("../../../machines/sam-2.toml")),
];

/// What the guests of a check begin with. A check has to hold whatever that is.
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    /// Check with another address layout and another start than those of seed 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Which kernel the guest boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum KernelName {
    /// Debian's, as it is.
    #[default]
    Stock,
    /// With NUMA replication, built by ./x lab kernel.
    Replication,
    /// The same with the kernel's own checks, built by ./x lab kernel --debug.
    ReplicationDebug,
}

impl KernelName {
    /// The command that builds it.
    fn builder(self) -> &'static str {
        match self {
            Self::ReplicationDebug => "./x lab kernel --debug",
            Self::Stock | Self::Replication => "./x lab kernel",
        }
    }

    /// Its name in the cache and among the parts; none for Debian's.
    fn own(self) -> Option<&'static str> {
        match self {
            Self::Stock => None,
            Self::Replication => Some("replication"),
            Self::ReplicationDebug => Some("replication-debug"),
        }
    }
}

/// Everything that a run needs but the program.
#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) installed: Installed,
    pub(crate) built: Built,
    /// The cache folder.
    pub(crate) cache: PathBuf,
    /// Of the guests of checks: another address layout and another start for each number.
    pub(crate) seed: u64,
}

impl Lab {
    /// Finds setup and parts; the error says which command provides what is missing.
    pub(crate) fn open() -> Result<Self> {
        Self::open_with(KernelName::Stock)
    }

    /// The same with another kernel for the guest.
    pub(crate) fn open_with(kernel: KernelName) -> Result<Self> {
        let cache = cache_folder(|name| env::var(name).ok())?;
        let mut installed = Installed::load(&cache)?;
        if let Some(name) = kernel.own() {
            let own = OwnKernel::load(&cache, name).with_context(|| {
                format!("--kernel {name}: not built yet; {} builds it", kernel.builder())
            })?;
            // Results of runs are kept by the packages that they came from; so is this kernel.
            installed.packages.push(Package {
                group: "kernel".to_owned(),
                name: name.to_owned(),
                version: own.kernel.release.clone(),
                sha256: own.content,
            });
            installed.kernel = own.kernel;
        }
        let built = Built::find(&parts_folder()?, kernel.own())?;
        Ok(Self { installed, built, cache, seed: 1 })
    }

    /// The same for checks.
    pub(crate) fn open_at(start: &Start) -> Result<Self> {
        Ok(Self { seed: start.seed, ..Self::open()? })
    }

    /// The same with guests that start `by` starts after this one's.
    pub(crate) fn later_start(&self, by: u64) -> Self {
        Self { seed: self.seed.wrapping_add(by), ..self.clone() }
    }

    /// The machine of that name or file, scaled for the lab.
    pub(crate) fn machine(&self, name: &str) -> Result<Machine> {
        lab_machine(name)
    }
}

/// The folder of the built parts: the one this program lies in.
pub(crate) fn parts_folder() -> Result<PathBuf> {
    let program = env::current_exe().context("where this program lies")?;
    Ok(program.parent().map(Path::to_owned).unwrap_or_default())
}

/// The machine of that name or file, scaled for the lab. Needs neither setup nor parts, so that a
/// bad machine file is the first thing its author hears of.
pub(crate) fn lab_machine(name: &str) -> Result<Machine> {
    Ok(full_machine(name)?.for_lab()?)
}

/// The machine of that name or file with `cpus_per_node` CPUs a node, scaled for the lab.
pub(crate) fn cut_machine(name: &str, cpus_per_node: u32) -> Result<Machine> {
    let mut machine = full_machine(name)?;
    machine.lab.cpus_per_node = cpus_per_node;
    Ok(machine.for_lab()?)
}

/// The machine of that name or file, in its real size.
pub(crate) fn full_machine(name: &str) -> Result<Machine> {
    if let Some((_, text)) = MACHINES.iter().find(|(known, _)| *known == name) {
        return Ok(Machine::parse(text, name)?);
    }
    let path = Path::new(name);
    if !path.is_file() {
        let known: Vec<&str> = MACHINES.iter().map(|(known, _)| *known).collect();
        bail!("{name}: neither a machine file nor one of {}", known.join(", "));
    }
    Ok(Machine::load(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_that_comes_along_can_be_emulated() {
        for (name, _) in MACHINES {
            let machine = full_machine(name).expect("parses").for_lab().expect(name);
            assert_eq!(machine.name, *name);
        }
        assert!(full_machine("no-such-machine").is_err());
    }
}
