//! The parts of the lab that are built from this repository, side by side in one folder with
//! `rondpoint-lab` itself.
//!
//! `./x lab`, `./x test` and `./x bench lab` build them into `target/lab`; `xtask` shares this
//! file, so that builder and user cannot disagree. This module only names and finds files.

use std::path::{Path, PathBuf};

/// The lab's command.
pub(crate) const RUNNER: &str = "rondpoint-lab";
/// The QEMU plugin, a shared library for `-plugin`.
pub(crate) const PLUGIN: &str = "librondpoint_lab_plugin.so";
/// The guest's PMU driver, a module of the guest kernel in `setup.toml`.
pub(crate) const DRIVER: &str = "rondpoint_pmu.ko";
/// PID 1 of the guest, statically linked.
pub(crate) const INIT: &str = "rondpoint-lab-init";
/// Our workloads, one program with a subcommand each, statically linked.
pub(crate) const WORKLOADS: &str = "rondpoint-workloads";
/// The product, statically linked.
pub(crate) const PRODUCT: &str = "rondpoint";
/// What `rondpoint run --replicate` preloads into programs, a shared library for their C library.
/// Built only for command lines that may need it, as is [`PLACEMENT`].
pub(crate) const INTERPOSE: &str = "librondpoint_interpose.so";
/// The program of `rondpoint-replica` that compares where the pages of each copy lie, linked with
/// the C library of this machine.
pub(crate) const PLACEMENT: &str = "placement";

/// Where each part lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    /// See [`PLUGIN`].
    pub(crate) plugin: PathBuf,
    /// See [`DRIVER`].
    pub(crate) driver: PathBuf,
    /// See [`INIT`].
    pub(crate) init: PathBuf,
    /// See [`WORKLOADS`].
    pub(crate) workloads: PathBuf,
    /// See [`PRODUCT`].
    pub(crate) product: PathBuf,
    /// See [`INTERPOSE`]. It need not be there.
    pub(crate) interpose: PathBuf,
}

/// A part that is not where it should be.
#[derive(Debug, thiserror::Error)]
#[error("{0}: not there; build the lab's parts with ./x lab")]
pub(crate) struct NotBuilt(pub(crate) PathBuf);

impl Built {
    /// The parts in `folder`: the one that the running `rondpoint-lab` lies in. A kernel with a
    /// name has a driver of its own.
    pub(crate) fn find(folder: &Path, kernel: Option<&str>) -> Result<Self, NotBuilt> {
        let there = |path: PathBuf| if path.is_file() { Ok(path) } else { Err(NotBuilt(path)) };
        let part = |name: &str| there(folder.join(name));
        Ok(Self {
            plugin: part(PLUGIN)?,
            driver: there(folder.join(kernel.unwrap_or_default()).join(DRIVER))?,
            init: part(INIT)?,
            workloads: part(WORKLOADS)?,
            product: part(PRODUCT)?,
            interpose: folder.join(INTERPOSE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_absent_part_is_named() {
        let message =
            Built::find(Path::new("/nonexistent"), None).expect_err("nothing is there").to_string();
        assert_eq!(
            message,
            "/nonexistent/librondpoint_lab_plugin.so: not there; build the lab's parts with ./x lab"
        );
    }
}
