//! Checks what was unpacked and writes it down as `setup.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::installed::{FILE_NAME, FORMAT, Guest, Host, Installed, Kernel, Package, Program};
use super::plan::Plan;
use super::{elf, probe};

/// The QEMU series whose internals the lab's plugin uses.
const QEMU_SERIES: &str = "10.0.";

/// Folders of Debian's shared libraries, with and without the merged `/usr`.
const LIBRARY_FOLDERS: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// Firmware folders in the order in which Debian's QEMU searches them.
const FIRMWARE_FOLDERS: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// Libraries of the C library's package. The host's own ones are used on the host.
const C_LIBRARY: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libresolv.so.2",
    "libutil.so.1",
    LOADER,
];

/// The dynamic loader. A dynamic program names it separately from its libraries.
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Guest programs by command name, with their place in the tree.
const GUEST_PROGRAMS: [(&str, &str); 6] = [
    ("busybox", "bin/busybox"),
    ("migratepages", "usr/bin/migratepages"),
    ("numactl", "usr/bin/numactl"),
    ("numad", "usr/bin/numad"),
    ("numastat", "usr/bin/numastat"),
    ("perf", "usr/bin/perf"),
];

/// Describes the unpacked trees (host, kernel, guest) with absolute paths. The error names a
/// missing or wrong file.
pub(crate) fn describe(plan: &Plan, trees: &[PathBuf]) -> Result<Installed> {
    let [host, kernel, guest] = trees else { bail!("expected three trees, got {}", trees.len()) };
    let packages = plan.groups.iter().flat_map(|group| {
        group.downloads.iter().map(|download| Package {
            group: group.name.to_owned(),
            name: download.name.clone(),
            version: download.version.clone(),
            sha256: download.sha256.clone(),
        })
    });
    let mut packages: Vec<_> = packages.collect();
    packages.sort();
    Ok(Installed {
        format: FORMAT,
        host: describe_host(host)?,
        kernel: describe_kernel(kernel)?,
        guest: describe_guest(guest)?,
        packages,
    })
}

fn describe_host(tree: &Path) -> Result<Host> {
    let libraries = present(tree, &LIBRARY_FOLDERS);
    let qemu = tree.join("usr/bin/qemu-system-x86_64");
    elf::libraries(&qemu, &libraries, &C_LIBRARY)?;
    elf::libraries(&tree.join("usr/bin/make"), &libraries, &C_LIBRARY)?;
    let qemu_version = qemu_version(&qemu, &libraries)?;
    if !qemu_version.starts_with(QEMU_SERIES) {
        bail!(
            "the mirror has QEMU {qemu_version}, and the lab's plugin knows the internals of QEMU {QEMU_SERIES}x only"
        );
    }
    let missing = elf::missing_symbols(&qemu)?;
    if !missing.is_empty() {
        bail!(
            "QEMU {qemu_version} of the mirror does not export what the lab's plugin needs: {}",
            missing.join(", ")
        );
    }
    let firmware = present(tree, &FIRMWARE_FOLDERS);
    Ok(Host { qemu, qemu_version, firmware, libraries, tools: present(tree, &["usr/bin"]) })
}

/// Those of `folders` that the tree has.
fn present(tree: &Path, folders: &[&str]) -> Vec<PathBuf> {
    folders.iter().map(|folder| tree.join(folder)).filter(|folder| folder.is_dir()).collect()
}

fn qemu_version(qemu: &Path, libraries: &[PathBuf]) -> Result<String> {
    let path = std::env::join_paths(libraries)?;
    let output = Command::new(qemu)
        .arg("--version")
        .env("LD_LIBRARY_PATH", path)
        .output()
        .with_context(|| format!("{}: cannot run", qemu.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version =
        text.strip_prefix("QEMU emulator version ").and_then(|rest| rest.split_whitespace().next());
    let errors = String::from_utf8_lossy(&output.stderr);
    version
        .map(str::to_owned)
        .with_context(|| format!("{} --version failed: {text}{errors}", qemu.display()))
}

fn describe_kernel(tree: &Path) -> Result<Kernel> {
    let folder = tree.join("lib/modules");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("{}: cannot list", folder.display()))?;
    let releases: Vec<_> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let [release] = &releases[..] else {
        bail!("{}: expected one kernel, got {releases:?}", folder.display())
    };
    let config = tree.join(format!("boot/config-{release}"));
    let text = fs::read_to_string(&config)
        .with_context(|| format!("{}: cannot read", config.display()))?;
    let lacking = probe::lacking(&text);
    if !lacking.is_empty() {
        bail!("the mirror's kernel {release} lacks what the lab needs: {}", lacking.join(", "));
    }
    Ok(Kernel {
        image: tree.join(format!("boot/vmlinuz-{release}")),
        config,
        modules: folder.join(release),
        headers: tree.join(format!("usr/src/linux-headers-{release}")),
        release: release.clone(),
    })
}

fn describe_guest(tree: &Path) -> Result<Guest> {
    let folders = present(tree, &LIBRARY_FOLDERS);
    let mut programs = BTreeMap::new();
    for (name, place) in GUEST_PROGRAMS {
        let path = tree.join(place);
        let libraries = elf::libraries(&path, &folders, &[LOADER])?;
        let is_dynamic = !libraries.is_empty();
        let loader = is_dynamic.then(|| tree.join("lib/x86_64-linux-gnu").join(LOADER));
        programs.insert(name.to_owned(), Program { path, loader, libraries });
    }
    Ok(Guest { root: tree.to_owned(), programs })
}

/// Writes `setup.toml`, paths relative to `cache`, in one step.
pub(crate) fn write(mut installed: Installed, cache: &Path) -> Result<()> {
    for path in installed.paths_mut() {
        *path = path
            .strip_prefix(cache)
            .context("a part of the setup lies outside the cache")?
            .to_owned();
    }
    let text = toml::to_string(&installed).context("cannot write setup.toml")?;
    let header = "# Written by ./x setup; lab/runner/src/installed.rs says what it means. Paths start at this folder.\n";
    let partial = cache.join(format!("{FILE_NAME}.partial"));
    fs::write(&partial, format!("{header}{text}"))
        .with_context(|| format!("{}: cannot write", partial.display()))?;
    fs::rename(&partial, cache.join(FILE_NAME))
        .with_context(|| format!("{}: cannot rename", partial.display()))
}
