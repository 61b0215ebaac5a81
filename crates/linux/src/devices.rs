//! The memory node of a device, from sysfs: `numa_node` of its PCI device.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::LinuxError;
use crate::parse::fields;
use crate::root::{self, Root};

/// PCI base classes of display controllers and of processing accelerators (PCI Code and ID
/// Assignment Specification 1.11, chapter 1).
const GPU_CLASSES: [&str; 2] = ["0x03", "0x12"];
/// Name of the driver of GPUs that may have no render node (no `nvidia-drm`).
const NVIDIA: &str = "nvidia";

/// A device as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The n-th GPU in the order of PCI addresses.
    Gpu(usize),
    /// A network interface.
    Network(String),
    /// An NVMe controller, `nvmeN`.
    Nvme(u32),
    /// A PCI address such as `0000:3b:00.0`.
    Pci(String),
}

impl Device {
    /// Parses `gpu:0`, `nic:eth0`, `nvme:0` or `pci:0000:3b:00.0`.
    ///
    /// # Errors
    /// The expected forms, as a message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "`{text}`: expected a device such as gpu:0, nic:eth0, nvme:0 or pci:0000:3b:00.0"
            )
        };
        let is_name = |name: &str| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
            !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
        };
        let number = |name: &str| fields::decimal(name.as_bytes()).ok_or_else(expected);
        let (kind, name) = text.split_once(':').ok_or_else(expected)?;
        match kind {
            "gpu" => usize::try_from(number(name)?).map(Self::Gpu).map_err(|_| expected()),
            "nvme" => u32::try_from(number(name)?).map(Self::Nvme).map_err(|_| expected()),
            "nic" if is_name(name) => Ok(Self::Network(name.to_owned())),
            // An address without a domain is in the first one, as for lspci(8).
            "pci" if is_name(name) && name.matches(':').count() == 1 => {
                Ok(Self::Pci(format!("0000:{name}")))
            }
            "pci" if is_name(name) => Ok(Self::Pci(name.to_owned())),
            _ => Err(expected()),
        }
    }

    /// The node of the device, the kernel's number. `None` if the firmware does not give it, as on
    /// most virtual machines.
    ///
    /// # Errors
    /// There is no such device, its bus has no nodes, or a file of it is malformed.
    pub fn node(&self, root: &Root) -> Result<Option<u32>, DeviceError> {
        let folder = match self {
            Self::Gpu(number) => {
                let all = gpus(root)?;
                let found = all.get(*number).cloned();
                found.ok_or_else(|| self.missing(&format!("there are {} GPUs", all.len())))?
            }
            Self::Network(name) => self.class(root, "net", name, "such as a bridge or a tunnel")?,
            Self::Nvme(number) => {
                self.class(root, "nvme", &format!("nvme{number}"), "such as one over a network")?
            }
            Self::Pci(address) => {
                let folder = root.in_sys("bus/pci/devices").join(address);
                if !folder.exists() {
                    return Err(self.missing("see /sys/bus/pci/devices"));
                }
                folder
            }
        };
        let unknown = || self.missing("no bus above it tells a node");
        node_above(root, &folder)?.ok_or_else(unknown)
    }

    /// The device of a name in `/sys/class`.
    fn class(
        &self,
        root: &Root,
        class: &str,
        name: &str,
        virtual_one: &str,
    ) -> Result<PathBuf, DeviceError> {
        let place = root.in_sys("class").join(class);
        let folder = place.join(name);
        if !folder.exists() {
            let all = root::list(&place)?;
            let all = if all.is_empty() { "none".to_string() } else { all.join(", ") };
            return Err(self.missing(&format!("there are: {all}")));
        }
        let device = folder.join("device");
        let made = || self.missing(&format!("no device is behind it ({virtual_one})"));
        if device.exists() { Ok(device) } else { Err(made()) }
    }

    fn missing(&self, reason: &str) -> DeviceError {
        DeviceError::Missing { device: self.to_string(), reason: reason.to_owned() }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(number) => write!(f, "gpu:{number}"),
            Self::Network(name) => write!(f, "nic:{name}"),
            Self::Nvme(number) => write!(f, "nvme:{number}"),
            Self::Pci(address) => write!(f, "pci:{address}"),
        }
    }
}

/// Why a device's node is not known.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device does not exist, or cannot have a node.
    #[error("{device}: not found: {reason}")]
    Missing {
        /// The user's name for the device.
        device: String,
        /// What exists instead.
        reason: String,
    },
    /// The files of the device cannot be read.
    #[error(transparent)]
    Linux(#[from] LinuxError),
}

/// The GPUs among the PCI devices, by address, as for `CUDA_DEVICE_ORDER=PCI_BUS_ID`. A display
/// controller without a render node, such as a server's management processor, is no GPU.
fn gpus(root: &Root) -> Result<Vec<PathBuf>, LinuxError> {
    let place = root.in_sys("bus/pci/devices");
    let mut found = Vec::new();
    for address in root::list(&place)? {
        let folder = place.join(address);
        let class = root::read_optional(&folder.join("class"))?.unwrap_or_default();
        if !GPU_CLASSES.iter().any(|base| class.starts_with(base.as_bytes())) {
            continue;
        }
        let driver = fs::read_link(folder.join("driver")).unwrap_or_default();
        let renders = root::list(&folder.join("drm"))?;
        if renders.iter().any(|name| name.starts_with("renderD")) || driver.ends_with(NVIDIA) {
            found.push(folder);
        }
    }
    Ok(found)
}

/// The first `numa_node` file on the way up from a device to the root of sysfs. A virtio device has
/// none, but its PCI device has one. `None` if there is no such file.
fn node_above(root: &Root, folder: &Path) -> Result<Option<Option<u32>>, LinuxError> {
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|error| LinuxError::io(path, "resolve", error))
    };
    let (top, folder) = (real(&root.sys)?, real(folder)?);
    for place in folder.ancestors().take_while(|place| place.starts_with(&top)) {
        let path = place.join("numa_node");
        let Some(bytes) = root::read_optional(&path)? else { continue };
        if fields::trim(&bytes) == b"-1" {
            return Ok(Some(None));
        }
        let number =
            fields::single_number(&bytes).map_err(|source| LinuxError::Format { path, source })?;
        return Ok(Some(u32::try_from(number).ok()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine with two GPUs, a management processor's display, a network card and its virtio
    /// sibling, an NVMe drive and a bridge.
    fn machine() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let put = |path: &str, text: &str| {
            let path = root.in_sys(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let link = |target: &str, path: &str| {
            let path = root.in_sys(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(root.in_sys(target), path).unwrap();
        };
        for (address, class, node) in [
            ("0000:02:00.0", "0x030000", "0"),
            ("0000:3b:00.0", "0x030200", "1"),
            ("0000:86:00.0", "0x120000", "-1"),
            ("0000:5e:00.0", "0x020000", "2"),
            ("0000:00:03.0", "0x010000", "3"),
            ("0000:d8:00.0", "0x010802", "junk"),
        ] {
            let device = format!("devices/pci0000:00/{address}");
            put(&format!("{device}/class"), &format!("{class}\n"));
            put(&format!("{device}/numa_node"), &format!("{node}\n"));
            link(&device, &format!("bus/pci/devices/{address}"));
        }
        put("devices/pci0000:00/0000:86:00.0/drm/renderD128/dev", "226:128\n");
        put("devices/pci0000:00/0000:02:00.0/drm/card0/dev", "226:0\n");
        put("bus/pci/drivers/nvidia/bind", "");
        link("bus/pci/drivers/nvidia", "devices/pci0000:00/0000:3b:00.0/driver");
        link("devices/pci0000:00/0000:5e:00.0", "class/net/eth0/device");
        put("devices/pci0000:00/0000:00:03.0/virtio2/vendor", "0x1af4\n");
        link("devices/pci0000:00/0000:00:03.0/virtio2", "class/net/eth1/device");
        put("class/net/br0/type", "1\n");
        link("devices/pci0000:00/0000:d8:00.0", "class/nvme/nvme3/device");
        (folder, root)
    }

    #[test]
    fn a_device_is_near_the_node_of_the_pci_device_behind_it() {
        let (_folder, root) = machine();
        let say = |text: &str| match Device::parse(text).map(|device| device.node(&root)) {
            Ok(Ok(Some(node))) => node.to_string(),
            Ok(Ok(None)) => "unknown".to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error,
        };
        assert_eq!(say("gpu:0"), "1", "the first display is a management processor's");
        assert_eq!(say("gpu:1"), "unknown");
        assert_eq!(say("gpu:2"), "gpu:2: not found: there are 2 GPUs");
        assert_eq!(say("nic:eth0"), "2");
        assert_eq!(say("nic:eth1"), "3", "the PCI device that carries the virtio device");
        assert_eq!(say("nic:eth2"), "nic:eth2: not found: there are: br0, eth0, eth1");
        let made = "nic:br0: not found: no device is behind it (such as a bridge or a tunnel)";
        assert_eq!(say("nic:br0"), made);
        assert_eq!(say("pci:3b:00.0"), "1");
        assert_eq!(say("pci:0000:00:03.0"), "3");
        assert_eq!(say("pci:ff:00.0"), "pci:0000:ff:00.0: not found: see /sys/bus/pci/devices");
        let error = say("nvme:3");
        assert!(
            error.contains("numa_node") && error.contains("expected one decimal number"),
            "{error}"
        );
        assert_eq!(say("nvme:0"), "nvme:0: not found: there are: nvme3");
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let long = format!("gpu:{}", "9".repeat(40));
        for bad in ["", "gpu", "gpu:", "gpu:x", "gpu:-1", "nic:", "nic:../x", "nic:a/b", "nic:.."]
            .into_iter()
            .chain(["pci:../..", "usb:1", "nic:a b", "nic:a\0", long.as_str()])
        {
            let error = Device::parse(bad).unwrap_err();
            assert!(error.contains("expected a device such as gpu:0"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_machine_without_such_devices_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let error = Device::Gpu(0).node(&root).unwrap_err().to_string();
        assert_eq!(error, "gpu:0: not found: there are 0 GPUs");
        let error = Device::Network("eth0".into()).node(&root).unwrap_err().to_string();
        assert_eq!(error, "nic:eth0: not found: there are: none");
    }
}
