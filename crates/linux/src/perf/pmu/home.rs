//! The node of the device behind a performance unit.

use std::path::Path;

use super::parsed;
use crate::LinuxError;
use crate::parse::{cpulist, fields};
use crate::root::{self, Root};

/// The first CPU of the node of a unit's device. The unit's folder is a link into that of its
/// device, which has `numa_node` if the firmware tells it (`dev_attr_numa_node`,
/// drivers/base/platform.c, Linux 6.12). PCI devices without a node have -1 there.
pub(super) fn of_device(root: &Root, unit: &Path) -> Result<Option<u32>, LinuxError> {
    let node = root::read_optional(&unit.join("../numa_node"))?;
    let node = node.and_then(|bytes| fields::single_number(&bytes).ok());
    let Some(node) = node else { return Ok(None) };
    let cpus = root.in_sys(format!("devices/system/node/node{node}/cpulist"));
    Ok(parsed(&cpus, cpulist::parse)?.and_then(|cpus| cpus.first().copied()))
}
