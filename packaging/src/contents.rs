//! What each package holds, from the built programs and the sources.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::payload::{Payload, gzip, read, read_optional};

/// Where things come from.
pub(crate) struct Sources {
    /// The static program.
    pub(crate) program: PathBuf,
    /// The folder with `man` and `completions`.
    pub(crate) manual: PathBuf,
    /// The folder with the shared libraries, where they were built for this architecture.
    pub(crate) libraries: Option<PathBuf>,
    /// The checkout.
    pub(crate) checkout: PathBuf,
}

/// Which folders a family of systems uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Debian and its descendants.
    Debian,
    /// Fedora, RHEL and their descendants: 64-bit libraries are in `lib64`.
    Fedora,
}

/// What an operator copies to use it: a drop-in for a port of metrics, and the setting that
/// Debian's kernels need.
const EXAMPLES: [&str; 2] = ["rondpoint-metrics.conf", "rondpoint-perf.conf"];
/// What other programs read: an editor the schema of the configuration, Grafana the dashboard.
const SHARED: [&str; 2] = ["docs/rondpoint.schema.json", "packaging/grafana.json"];

/// Shell, the file that `./x dist` wrote, and where it goes.
fn completions(layout: Layout) -> [(&'static str, &'static str); 3] {
    let zsh = match layout {
        Layout::Debian => "usr/share/zsh/vendor-completions/_rondpoint",
        Layout::Fedora => "usr/share/zsh/site-functions/_rondpoint",
    };
    [
        ("rondpoint.bash", "usr/share/bash-completion/completions/rondpoint"),
        ("_rondpoint", zsh),
        ("rondpoint.fish", "usr/share/fish/vendor_completions.d/rondpoint.fish"),
    ]
}

/// Where the Python binding goes. Fedora's own folder has the version of Python in its name.
fn python_folder(layout: Layout) -> &'static str {
    match layout {
        Layout::Debian => "usr/lib/python3/dist-packages",
        Layout::Fedora => "usr/share/rondpoint-replica",
    }
}

impl Sources {
    /// The package `rondpoint`: the command, its unit and configuration, its manual.
    ///
    /// # Errors
    /// Something that was to be built is not there.
    pub(crate) fn command(&self, layout: Layout) -> Result<Payload> {
        let mut payload = Payload::default();
        let packaging = self.checkout.join("packaging");
        payload.add_program("usr/bin/rondpoint", read(&self.program)?);
        // For libvirt: `advise` answers under this name. Not along PATH, where numad may be.
        payload.add_link("usr/lib/rondpoint/numad", "../../bin/rondpoint");
        payload.add("usr/lib/sysusers.d/rondpoint.conf", read(&packaging.join("sysusers.conf"))?);
        if let Some(unit) = read_optional(&packaging.join("rondpoint.service"))? {
            payload.add("usr/lib/systemd/system/rondpoint.service", unit);
        }
        if let Some(text) = read_optional(&packaging.join("rondpoint.toml"))? {
            payload.add_configuration("etc/rondpoint/rondpoint.toml", text);
        }
        for page in list(&self.manual.join("man"), "1")? {
            let path = format!("usr/share/man/man1/{}.gz", file_name(&page));
            payload.add(&path, gzip(&read(&page)?)?);
        }
        for (file, path) in completions(layout) {
            payload.add(path, read(&self.manual.join("completions").join(file))?);
        }
        if let Some(folder) = &self.libraries {
            let name = "librondpoint_interpose.so";
            payload.add(&format!("usr/lib/rondpoint/{name}"), read(&folder.join(name))?);
        }
        self.add_documents(&mut payload, "rondpoint")?;
        for name in EXAMPLES {
            payload.add(&format!("usr/share/doc/rondpoint/{name}"), read(&packaging.join(name))?);
        }
        // All of them: they name each other.
        for page in list(&self.checkout.join("docs"), "md")? {
            let path = format!("usr/share/doc/rondpoint/{}", file_name(&page));
            payload.add(&path, read(&page)?);
        }
        for path in SHARED {
            let path = self.checkout.join(path);
            payload.add(&format!("usr/share/rondpoint/{}", file_name(&path)), read(&path)?);
        }
        Ok(payload)
    }

    /// The package `rondpoint-replica`: the library for programs in C and Python; `None` where it
    /// was not built.
    ///
    /// # Errors
    /// As [`Sources::command`].
    pub(crate) fn library(&self, layout: Layout) -> Result<Option<Payload>> {
        let Some(folder) = &self.libraries else { return Ok(None) };
        let mut payload = Payload::default();
        let place = if layout == Layout::Fedora { "lib64" } else { "lib" };
        let name = "librondpoint_replica.so";
        payload.add(&format!("usr/{place}/{name}"), read(&folder.join(name))?);
        let name = "librondpoint_replica.a";
        payload.add(&format!("usr/{place}/{name}"), read(&folder.join(name))?);
        let replica = self.checkout.join("crates/replica");
        let header = "rondpoint_replica.h";
        payload.add(&format!("usr/include/{header}"), read(&replica.join("include").join(header))?);
        let text = read(&replica.join("rondpoint-replica.pc"))?;
        let text = String::from_utf8(text).context("rondpoint-replica.pc: no text")?;
        let text = text.replace("libdir=${prefix}/lib\n", &format!("libdir=${{prefix}}/{place}\n"));
        payload.add(&format!("usr/{place}/pkgconfig/rondpoint-replica.pc"), text);
        let name = "rondpoint_replica.py";
        let python = read(&replica.join("python").join(name))?;
        payload.add(&format!("{}/{name}", python_folder(layout)), python);
        self.add_documents(&mut payload, "rondpoint-replica")?;
        Ok(Some(payload))
    }

    fn add_documents(&self, payload: &mut Payload, package: &str) -> Result<()> {
        let folder = format!("usr/share/doc/{package}");
        let changes = gzip(&read(&self.checkout.join("CHANGELOG.md"))?)?;
        payload.add(&format!("{folder}/changelog.gz"), changes);
        payload.add(&format!("{folder}/copyright"), copyright(&self.checkout)?);
        Ok(())
    }
}

/// The files of a folder with this ending, sorted.
///
/// # Errors
/// There is none.
fn list(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let names = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut files = Vec::new();
    for name in names {
        files.push(name?.path());
    }
    files.retain(|file| file.extension().is_some_and(|one| one == ending));
    files.sort();
    if files.is_empty() {
        bail!("{}: expected files that end in .{ending}", folder.display());
    }
    Ok(files)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The licences, as Debian wants them in one file.
fn copyright(checkout: &Path) -> Result<String> {
    let text = |name: &str| -> Result<String> {
        Ok(String::from_utf8_lossy(&read(&checkout.join(name))?).into_owned())
    };
    Ok(format!(
        "Rondpoint is available under the Apache License 2.0 or the MIT licence, as you like.\n\n\
         {}\n\n{}",
        text("LICENSE-MIT")?,
        text("LICENSE-APACHE")?
    ))
}

/// The newest symbol version of the C library that a shared library wants, such as 2.34: `GLIBC_`
/// names stand in its string table.
pub(crate) fn newest_glibc(library: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"GLIBC_";
    let starts = library.windows(PREFIX.len()).enumerate().filter(|(_, bytes)| *bytes == PREFIX);
    let versions = starts.filter_map(|(start, _)| {
        let rest = &library[start + PREFIX.len()..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (major, minor) = std::str::from_utf8(&rest[..end]).ok()?.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max()
}
