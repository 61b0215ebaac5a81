//! The parts that `./x setup` put into the cache: the reader and the format of `setup.toml`.
//!
//! Every path in the file is relative to the cache folder, so that the folder may be moved; the
//! paths handed out are absolute. This module only reads: it fetches nothing and repairs nothing.
//! `xtask` shares this file, so writer and reader cannot disagree.
//!
//! ```toml
//! format = 1
//! [host]
//! qemu = "host-3fa9/usr/bin/qemu-system-x86_64"
//! qemu_version = "10.0.2"
//! firmware = ["host-3fa9/usr/share/qemu", "host-3fa9/usr/share/seabios"]   # one -L each
//! libraries = ["host-3fa9/usr/lib/x86_64-linux-gnu"]                        # LD_LIBRARY_PATH
//! tools = ["host-3fa9/usr/bin"]                                             # in front of PATH, for make
//! [kernel]
//! release = "6.12.0-example"
//! image = "kernel-77ab/boot/vmlinuz-6.12.0-example"
//! …
//! [guest.programs.perf]
//! path = "guest-c0de/usr/bin/perf"
//! libraries = ["guest-c0de/usr/lib/x86_64-linux-gnu/libdw.so.1"]
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The format this program writes and reads. A cache with another format is set up anew.
pub(crate) const FORMAT: u32 = 1;

/// Name of the file inside the cache folder.
pub(crate) const FILE_NAME: &str = "setup.toml";

/// The environment variable that names another cache folder.
pub(crate) const CACHE_VARIABLE: &str = "RONDPOINT_CACHE";

/// Everything that `./x setup` provides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Installed {
    /// Version of the file's format, [`FORMAT`].
    pub(crate) format: u32,
    /// What runs on this machine.
    pub(crate) host: Host,
    /// The guest's kernel and what its modules are built with.
    pub(crate) kernel: Kernel,
    /// Programs of Debian that run in the guest.
    pub(crate) guest: Guest,
    /// Every package that was unpacked, sorted by group and name.
    pub(crate) packages: Vec<Package>,
}

/// QEMU and the tools that build the guest driver; run with [`Installed::environment`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// The emulator, `qemu-system-x86_64`.
    pub(crate) qemu: PathBuf,
    /// Its upstream version, such as `10.0.2`.
    pub(crate) qemu_version: String,
    /// Folders with firmware and option ROMs: one `-L` argument each, in this order.
    pub(crate) firmware: Vec<PathBuf>,
    /// Folders for `LD_LIBRARY_PATH`. The C library itself is the host's.
    pub(crate) libraries: Vec<PathBuf>,
    /// Folders to put in front of `PATH`: `make`, and the compiler where the host has none.
    pub(crate) tools: Vec<PathBuf>,
}

/// The guest kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    /// What `uname -r` says in the guest.
    pub(crate) release: String,
    /// The `bzImage` for `-kernel`.
    pub(crate) image: PathBuf,
    /// The kernel's configuration.
    pub(crate) config: PathBuf,
    /// `lib/modules/<release>`.
    pub(crate) modules: PathBuf,
    /// The build tree for modules: `make -C <headers> M=<source> modules`.
    pub(crate) headers: PathBuf,
}

/// A kernel that was built here: the cache's `NAME.toml`, beside `setup.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnKernel {
    /// Stands for all that it was built of; the build compares it.
    pub(crate) content: String,
    /// The kernel, with absolute paths.
    pub(crate) kernel: Kernel,
}

impl OwnKernel {
    /// The kernel of that name; `None` where it has not been built, or not by this version.
    pub(crate) fn load(cache: &Path, name: &str) -> Option<Self> {
        let text = std::fs::read_to_string(Self::file(cache, name)).ok()?;
        let own: Self = toml::from_str(&text).ok()?;
        let kernel = &own.kernel;
        let parts = [&kernel.image, &kernel.config, &kernel.modules, &kernel.headers];
        let is_whole = parts.iter().all(|path| path.exists());
        is_whole.then_some(own)
    }

    /// Where it is written down.
    pub(crate) fn file(cache: &Path, name: &str) -> PathBuf {
        cache.join(format!("{name}.toml"))
    }
}

/// Programs for the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guest {
    /// The unpacked tree that holds the programs, laid out as under `/`.
    pub(crate) root: PathBuf,
    /// By command name: `busybox` (static), `perf`, `numactl`, `numastat`, `migratepages`, `numad`.
    pub(crate) programs: BTreeMap<String, Program>,
}

/// One program with all that it needs to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    /// The executable.
    pub(crate) path: PathBuf,
    /// The dynamic loader; none for a static program. It belongs at `/lib64/ld-linux-x86-64.so.2`
    /// in the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loader: Option<PathBuf>,
    /// Shared libraries, the C library included, each named as programs ask for it (its soname).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) libraries: Vec<PathBuf>,
}

/// One unpacked Debian package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Package {
    /// `guest`, `host` or `kernel`.
    pub(crate) group: String,
    /// Debian's package name.
    pub(crate) name: String,
    /// Debian's version.
    pub(crate) version: String,
    /// Digest of the package file, as apt checked it.
    pub(crate) sha256: String,
}

/// Why the lab's parts cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstalledError {
    /// `./x setup` has not been run with this cache folder.
    #[error("{0}: not there; run ./x setup first (it says what it fetches before it does)")]
    Absent(PathBuf),
    /// The file is there but cannot be read.
    #[error("{path}: cannot read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file was written by another version of this project, or by hand.
    #[error("{path}: not a setup file of this version ({reason}); run ./x setup again")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The parser's message, or the format that was found.
        reason: String,
    },
    /// A file that `setup.toml` names has gone.
    #[error("{0}: part of the setup, but it is gone; run ./x setup again")]
    Gone(PathBuf),
    /// Neither the cache variable nor a home folder says where the cache is.
    #[error("no cache folder: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME")]
    NoCache,
}

/// The cache folder: `$RONDPOINT_CACHE`, else `$XDG_CACHE_HOME/rondpoint`, else
/// `$HOME/.cache/rondpoint`.
///
/// `variable` looks up one environment variable. A folder that is empty or relative counts as not
/// given, as the XDG specification asks.
pub(crate) fn cache_folder(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, InstalledError> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(CACHE_VARIABLE)
        .or_else(|| absolute("XDG_CACHE_HOME").map(|cache| cache.join("rondpoint")))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/rondpoint")))
        .ok_or(InstalledError::NoCache)
}

impl Installed {
    /// Reads `setup.toml` in `cache`, makes its paths absolute and checks that what it names is
    /// still there.
    pub(crate) fn load(cache: &Path) -> Result<Self, InstalledError> {
        let path = cache.join(FILE_NAME);
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => InstalledError::Absent(path.clone()),
            _ => InstalledError::Unreadable { path: path.clone(), source },
        })?;
        let mut installed =
            Self::parse(&text).map_err(|reason| InstalledError::Foreign { path, reason })?;
        for path in installed.paths_mut() {
            *path = cache.join(&*path);
            if !path.exists() {
                return Err(InstalledError::Gone(path.clone()));
            }
        }
        Ok(installed)
    }

    /// The text's meaning, paths as written.
    fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if head.format != FORMAT {
            return Err(format!("format {}, expected {FORMAT}", head.format));
        }
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    /// Every path that the file holds.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let host = [&mut self.host.qemu].into_iter();
        let folders = self
            .host
            .firmware
            .iter_mut()
            .chain(&mut self.host.libraries)
            .chain(&mut self.host.tools);
        let kernel = &mut self.kernel;
        let kernel =
            [&mut kernel.image, &mut kernel.config, &mut kernel.modules, &mut kernel.headers];
        let programs = self.guest.programs.values_mut().flat_map(|program| {
            [&mut program.path].into_iter().chain(&mut program.loader).chain(&mut program.libraries)
        });
        host.chain(folders).chain(kernel).chain([&mut self.guest.root]).chain(programs)
    }

    /// Environment for QEMU, `make` and the compiler: `PATH` and `LD_LIBRARY_PATH`, set in front of
    /// `path` and `library_path`, the values that this process has.
    pub(crate) fn environment(
        &self,
        path: &str,
        library_path: &str,
    ) -> [(&'static str, String); 2] {
        let joined = |folders: &[PathBuf], rest: &str| {
            let own = folders.iter().map(|folder| folder.display().to_string());
            own.chain((!rest.is_empty()).then(|| rest.to_owned())).collect::<Vec<_>>().join(":")
        };
        [
            ("PATH", joined(&self.host.tools, path)),
            ("LD_LIBRARY_PATH", joined(&self.host.libraries, library_path)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        format = 1
        [host]
        qemu = "host/qemu"
        qemu_version = "10.0.2"
        firmware = ["host"]
        libraries = ["host"]
        tools = ["host"]
        [kernel]
        release = "6.12.9"
        image = "kernel/vmlinuz"
        config = "kernel/config"
        modules = "kernel"
        headers = "kernel"
        [guest]
        root = "guest"
        [guest.programs.busybox]
        path = "guest/busybox"
        [[packages]]
        group = "guest"
        name = "busybox-static"
        version = "1:1"
        sha256 = "00"
    "#;

    /// A cache folder with `text` as its `setup.toml` and the files that [`SMALL`] names.
    fn cache(name: &str, text: &str) -> PathBuf {
        let cache =
            std::env::temp_dir().join(format!("rondpoint-installed-{name}-{}", std::process::id()));
        for file in ["host/qemu", "kernel/vmlinuz", "kernel/config", "guest/busybox"] {
            let path = cache.join(file);
            std::fs::create_dir_all(path.parent().expect("has a folder")).expect("creates");
            std::fs::write(path, "").expect("writes");
        }
        std::fs::write(cache.join(FILE_NAME), text).expect("writes");
        cache
    }

    #[track_caller]
    fn check_refused(name: &str, text: &str, expected: &str) {
        let cache = cache(name, text);
        let message = Installed::load(&cache).expect_err("is refused").to_string();
        std::fs::remove_dir_all(&cache).expect("removes");
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn paths_come_out_absolute_and_the_environment_puts_ours_first() {
        let cache = cache("good", SMALL);
        let installed = Installed::load(&cache).expect("reads");
        std::fs::remove_dir_all(&cache).expect("removes");
        assert_eq!(installed.host.qemu, cache.join("host/qemu"));
        assert_eq!(installed.guest.programs["busybox"].path, cache.join("guest/busybox"));
        let host = cache.join("host").display().to_string();
        let expected = [("PATH", format!("{host}:/bin")), ("LD_LIBRARY_PATH", host)];
        assert_eq!(installed.environment("/bin", ""), expected);
    }

    #[test]
    fn another_format_a_missing_file_and_no_setup_are_told_apart() {
        check_refused("format", &SMALL.replace("format = 1", "format = 7"), "format 7, expected 1");
        check_refused("key", &SMALL.replace("release", "releese"), "unknown field `releese`");
        check_refused(
            "gone",
            &SMALL.replace("kernel/vmlinuz", "kernel/other"),
            "kernel/other: part of the setup",
        );
        let absent =
            Installed::load(Path::new("/nonexistent")).expect_err("is refused").to_string();
        assert!(
            absent.starts_with("/nonexistent/setup.toml: not there; run ./x setup first"),
            "{absent}"
        );
    }

    #[test]
    fn the_cache_folder_follows_the_environment() {
        #[track_caller]
        fn check(environment: &[(&str, &str)], expected: Option<&str>) {
            let found = cache_folder(|name| {
                environment.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            });
            assert_eq!(found.ok(), expected.map(PathBuf::from));
        }
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("RONDPOINT_CACHE", "/r")], Some("/r"));
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/rondpoint"));
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")], Some("/h/.cache/rondpoint"));
        check(&[("HOME", "/h"), ("RONDPOINT_CACHE", "relative")], Some("/h/.cache/rondpoint"));
        check(&[], None);
    }
}
