//! Builds the kernel, and writes down what it is as `replication.toml` in the cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::series::Series;
use super::{Variant, folder, own_environment};
use crate::lab::provide as copy;
use crate::progress::{Progress, Unit};
use crate::setup::installed::{Installed, Kernel, OwnKernel};
use crate::setup::linux::{self, Tools};
use crate::setup::probe;
use crate::watched::watched;

/// The compiler of Debian's kernel of this release.
const COMPILER: &str = "x86_64-linux-gnu-gcc-12";

/// Number of lines that make prints for a full build (measured); for the forecast only.
const LINES: u64 = 1600;

/// Variables that replace the builder's name, host and time, for a reproducible kernel.
const NAMES: [&str; 4] = [
    "KBUILD_BUILD_TIMESTAMP=@0",
    "KBUILD_BUILD_USER=rondpoint",
    "KBUILD_BUILD_HOST=lab",
    "KBUILD_BUILD_VERSION=1",
];

/// One tree in the cache, with `source`, `originals` of what the series changes, and a folder for
/// each variant's build.
struct Tree<'a> {
    folder: PathBuf,
    installed: &'a Installed,
    tools: Tools,
    variant: &'a Variant,
    options: String,
}

/// The kernel of the present series and configuration. Builds it if needed.
pub(super) fn provide(
    cache: &Path,
    installed: &Installed,
    variant: &Variant,
    force: bool,
) -> Result<Kernel> {
    let series = Series::load()?;
    let options = variant.options()?;
    let content = digest(&series, &options);
    let built = OwnKernel::load(cache, variant.name).filter(|own| own.content == content);
    if !force && let Some(OwnKernel { kernel, .. }) = built {
        eprintln!("nothing to do: series and configuration are as built");
        return Ok(kernel);
    }
    let tree = Tree {
        folder: linux::sources(cache)?,
        installed,
        tools: linux::tools(cache, &installed.host.libraries)?,
        variant,
        options,
    };
    let path = tree.folder.join("lock");
    let turn = File::create(&path).with_context(|| format!("{}: cannot create", path.display()))?;
    turn.lock().with_context(|| format!("{}: cannot lock", path.display()))?;
    tree.install(&series)?;
    tree.configure()?;
    tree.compile()?;
    let own = OwnKernel { content, kernel: tree.describe()? };
    let path = OwnKernel::file(cache, variant.name);
    fs::write(&path, toml::to_string(&own)?)
        .with_context(|| format!("{}: cannot write", path.display()))?;
    Ok(own.kernel)
}

/// The patched sources that a kernel was built of.
pub(super) fn source_of(kernel: &Kernel) -> PathBuf {
    kernel.headers.with_file_name("source")
}

/// Digest of the series, the configuration and the compiler's name.
fn digest(series: &Series, options: &str) -> String {
    // FNV-1a, as in the names of the setup's trees.
    let texts = series.texts().chain([options, COMPILER]);
    let hash = texts.flat_map(str::bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

impl Tree<'_> {
    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    fn build(&self) -> PathBuf {
        self.folder.join(self.variant.build)
    }

    /// Applies the series to the sources. Files with unchanged content keep their times, so that
    /// make does not compile them again.
    fn install(&self, series: &Series) -> Result<()> {
        let (source, originals) = (self.source(), self.folder.join("originals"));
        for file in series.changed() {
            let original = originals.join(file);
            if !original.exists() {
                make_parent(&original)?;
                copy(&source.join(file), &original)?;
            }
        }
        let patched = self.folder.join("patched");
        if patched.exists() {
            fs::remove_dir_all(&patched)
                .with_context(|| format!("{}: cannot remove", patched.display()))?;
        }
        series.apply(
            |file| originals.join(file),
            &patched,
            || {
                let mut command = Command::new("patch");
                self.tools.equip(&mut command, &own_environment(self.installed));
                command
            },
        )?;
        let touched = series.touched();
        let list = self.folder.join("touched");
        let earlier = fs::read_to_string(&list).unwrap_or_default();
        let lines: Vec<&str> = touched.iter().copied().chain(earlier.lines()).collect();
        fs::write(&list, lines.join("\n"))
            .with_context(|| format!("{}: cannot write", list.display()))?;
        for file in earlier.lines().filter(|file| !touched.contains(file)) {
            let (original, there) = (originals.join(file), source.join(file));
            if original.exists() {
                copy(&original, &there)?;
            } else if there.exists() {
                fs::remove_file(&there)
                    .with_context(|| format!("{}: cannot remove", there.display()))?;
            }
        }
        for file in &touched {
            make_parent(&source.join(file))?;
            copy(&patched.join(file), &source.join(file))?;
        }
        Ok(())
    }

    fn make(&self) -> Command {
        let mut command = Command::new("make");
        self.tools.equip(&mut command, &own_environment(self.installed));
        command.arg("-C").arg(self.source()).arg(format!("O={}", self.build().display()));
        command.args(["ARCH=x86_64", &format!("LOCALVERSION=-{}", self.variant.name)]);
        command.args([&format!("CC={COMPILER}"), &format!("HOSTCC={COMPILER}")]);
        command.arg(format!("HOSTCFLAGS=-I{}", self.tools.headers().display()));
        command.arg(format!("HOSTLDFLAGS=-L{}", self.tools.linked_libraries().display()));
        command.args(NAMES);
        command
    }

    /// Makes the configuration from the variant's options. The error names those that Kconfig
    /// refused.
    fn configure(&self) -> Result<()> {
        let build = self.build();
        fs::create_dir_all(&build)
            .with_context(|| format!("{}: cannot create", build.display()))?;
        let wanted = build.join("wanted.config");
        fs::write(&wanted, &self.options)
            .with_context(|| format!("{}: cannot write", wanted.display()))?;
        let mut make = self.make();
        make.arg(format!("KCONFIG_ALLCONFIG={}", wanted.display())).arg("allnoconfig");
        let output = make.output().context("make: cannot run")?;
        if !output.status.success() {
            bail!("cannot configure: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let path = build.join(".config");
        let got = fs::read_to_string(&path)
            .with_context(|| format!("{}: cannot read", path.display()))?;
        let files = self.variant.config.join(", ");
        let files = format!("{}: {files}", folder().join("config").display());
        let refused = refused(&self.options, &got);
        if !refused.is_empty() {
            bail!("{files}: not possible in these sources: {}", refused.join(", "));
        }
        let lacking = probe::lacking(&got);
        if !lacking.is_empty() {
            bail!("{files}: lacks {}", lacking.join(", "));
        }
        Ok(())
    }

    fn compile(&self) -> Result<()> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let log = self.folder.join("make.log");
        let errors = self.folder.join("make.errors");
        let mut make = self.make();
        make.args([&format!("-j{jobs}"), "bzImage", "modules"]);
        // The output of make goes to files, whose lines are counted while it runs.
        let words = std::iter::once(make.get_program()).chain(make.get_args());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("out=$0 err=$1; shift; exec \"$@\" >\"$out\" 2>\"$err\"");
        shell.arg(&log).arg(&errors).args(words);
        self.tools.equip(&mut shell, &own_environment(self.installed));
        let mut progress = Progress::new("building the kernel", Unit::Pieces("steps"), LINES);
        let count = || {
            let bytes = fs::read(&log).unwrap_or_default();
            bytes.iter().filter(|byte| **byte == b'\n').count() as u64
        };
        let output = watched(&mut shell, || progress.at(count().min(LINES - 1), LINES))?;
        let said = fs::read_to_string(&errors).unwrap_or_default();
        if !output.status.success() {
            bail!("cannot build the kernel:\n{}", said.trim_end());
        }
        progress.finish();
        if !said.trim().is_empty() {
            eprint!("{said}");
        }
        Ok(())
    }

    fn describe(&self) -> Result<Kernel> {
        let build = self.build();
        let path = build.join("include/config/kernel.release");
        let release = fs::read_to_string(&path)
            .with_context(|| format!("{}: cannot read", path.display()))?;
        Ok(Kernel {
            release: release.trim().to_owned(),
            image: build.join("arch/x86/boot/bzImage"),
            config: build.join(".config"),
            modules: build.clone(),
            headers: build,
        })
    }
}

/// Options that a configuration asks for and did not get.
fn refused(wanted: &str, got: &str) -> Vec<String> {
    let options = wanted.lines().filter(|line| line.starts_with("CONFIG_"));
    options.filter(|option| !got.lines().any(|line| line == *option)).map(str::to_owned).collect()
}

fn make_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).with_context(|| format!("{}: cannot create", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_kconfig_refused_is_named() {
        let wanted = "# a comment\nCONFIG_NUMA=y\nCONFIG_NR_CPUS=64\n";
        let got = "CONFIG_NUMA=y\nCONFIG_NR_CPUS=512\n";
        assert_eq!(refused(wanted, got), ["CONFIG_NR_CPUS=64"]);
    }
}
