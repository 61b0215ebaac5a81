//! Which packages are fetched, in three groups, and what that costs.
//!
//! | group | unpacked for | chosen how |
//! |---|---|---|
//! | `host` | running QEMU and building the guest driver here | with all libraries but the C library, which is the host's |
//! | `kernel` | the guest's kernel, its modules and headers | exactly the named packages: its dependencies are for installing it |
//! | `guest` | programs that run in the guest | with all libraries |

use anyhow::{Context as _, Result};

use super::apt::{Download, PrivateRoot};
use super::sources::RELEASE;

/// The kernel series that the lab's guest driver and the policies are written for.
pub(crate) const KERNEL_SERIES: &str = "6.12";

/// Packages with only programs, scripts or configuration that the lab does not use. If one has a
/// needed shared library after all, a check after unpacking stops the setup.
const UNUSED: [&str; 32] = [
    "adduser",
    "debconf",
    "dpkg",
    "libasound2-data",
    "libaudit-common",
    "libpam-modules",
    "libpam-modules-bin",
    "libpam0g",
    "libpython3-stdlib",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsemanage-common",
    "libsemanage2",
    "libsepol2",
    "lsb-base",
    "media-types",
    "mount",
    "passwd",
    "perl",
    "perl-base",
    "perl-modules-5.36",
    "python3",
    "python3-minimal",
    "python3.11",
    "python3.11-minimal",
    "readline-common",
    "sensible-utils",
    "sysvinit-utils",
    "tar",
    "ucf",
    "libdebuginfod-common",
    "libtirpc-common",
];

/// Package of the C library. The host's own one is used, because the plugin is linked with it and a
/// loader must match its library.
const C_LIBRARY: &str = "libc6";

/// One tree to unpack.
pub(crate) struct Group {
    /// Name: `host`, `kernel` or `guest`.
    pub(crate) name: &'static str,
    /// Packages of the tree, sorted by name.
    pub(crate) downloads: Vec<Download>,
}

/// Everything to fetch.
pub(crate) struct Plan {
    /// Trees in the order in which they are unpacked.
    pub(crate) groups: Vec<Group>,
}

impl Group {
    /// The folder's name in the cache: another choice of packages gives another name.
    pub(crate) fn folder(&self) -> String {
        // FNV-1a is enough for a name. apt checks the digests themselves.
        let bytes = self.downloads.iter().flat_map(|download| download.sha256.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{}-{:012x}", self.name, hash & 0xffff_ffff_ffff)
    }
}

impl Plan {
    /// Chooses the packages by apt. `compiler`: the host lacks gcc 12, which builds the guest
    /// driver.
    pub(crate) fn choose(apt: &PrivateRoot, compiler: bool) -> Result<Self> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let backports = format!("{RELEASE}-backports");
        let mut host = owned(&["qemu-system-x86", "make", "libelf1"]);
        if compiler {
            host.extend(owned(&["gcc-12", "binutils"]));
        }
        let mut host = apt.closure(Some(&backports), &host).context("choosing QEMU")?;
        host.retain(|download| download.name != C_LIBRARY && !is_unused(download));
        let release = newest_kernel(apt)?;
        let common = release.strip_suffix("-amd64").unwrap_or(&release);
        let kernel = [
            format!("linux-image-{release}"),
            format!("linux-headers-{release}"),
            format!("linux-headers-{common}-common"),
            format!("linux-kbuild-{common}"),
        ];
        let kernel = apt.alone(&kernel).context("choosing the guest kernel")?;
        let guest = [
            "linux-perf/".to_owned() + &backports,
            "numactl".into(),
            "numad".into(),
            "busybox-static".into(),
        ];
        let mut guest = apt.closure(None, &guest).context("choosing the guest's programs")?;
        guest.retain(|download| !is_unused(download));
        let groups = vec![
            Group { name: "host", downloads: host },
            Group { name: "kernel", downloads: kernel },
            Group { name: "guest", downloads: guest },
        ];
        Ok(Self { groups })
    }
}

fn is_unused(download: &Download) -> bool {
    UNUSED.contains(&download.name.as_str())
}

/// `uname -r` of the newest kernel of the series, from the package that always depends on it.
fn newest_kernel(apt: &PrivateRoot) -> Result<String> {
    let meta = format!("linux-image-{KERNEL_SERIES}-amd64");
    let text = apt.description(&meta).with_context(|| {
        format!("your apt sources carry no Linux {KERNEL_SERIES} ; it comes with {RELEASE}-security, which must be among them")
    })?;
    release_of(&text).with_context(|| {
        format!("{meta}: expected Depends: linux-image-{KERNEL_SERIES}.…-amd64, got:\n{text}")
    })
}

fn release_of(description: &str) -> Option<String> {
    let depends = description.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let image =
        depends.split(',').find_map(|package| package.trim().strip_prefix("linux-image-"))?;
    let release = image.split_whitespace().next()?;
    release.starts_with(KERNEL_SERIES).then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_release_is_read_from_the_meta_package() {
        let text = "Package: linux-image-6.12-amd64\nDepends: linux-image-6.12.9+deb12-amd64 (= 6.12.9-1~deb12u1)\n";
        assert_eq!(release_of(text).as_deref(), Some("6.12.9+deb12-amd64"));
        assert_eq!(release_of("Depends: linux-image-6.1.0-9-amd64 (= 6.1.9-1)\n"), None);
        assert_eq!(release_of("Package: x\n"), None);
    }

    #[test]
    fn another_package_file_gives_another_folder() {
        let group = |digest: &str| Group {
            name: "host",
            downloads: vec![Download {
                name: "a".into(),
                version: "1".into(),
                file: "a_1_all.deb".into(),
                bytes: 1,
                sha256: digest.into(),
            }],
        };
        assert_eq!(group("00ff").folder(), group("00ff").folder());
        assert_ne!(group("00ff").folder(), group("00fe").folder());
    }
}
