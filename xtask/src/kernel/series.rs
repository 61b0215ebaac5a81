//! The series of patches in `kernel/patches`: what it needs, how it is applied and checked.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Files of the kernel's sources that checkpatch needs.
const CHECKPATCH: [&str; 3] =
    ["scripts/checkpatch.pl", "scripts/spelling.txt", "scripts/const_structs.checkpatch"];

/// Complaints of checkpatch that do not apply. The submitter of the series adds the sign-offs. The
/// new files have no maintainers in Linux.
const IGNORED: &str = "FILE_PATH_CHANGES,MISSING_SIGN_OFF,NO_AUTHOR_SIGN_OFF";

/// One patch.
struct Patch {
    path: PathBuf,
    text: String,
}

/// All patches in order.
pub(crate) struct Series {
    patches: Vec<Patch>,
}

impl Series {
    /// Reads `kernel/patches` of this repository.
    pub(crate) fn load() -> Result<Self> {
        Self::load_from(&super::folder().join("patches"))
    }

    fn load_from(folder: &Path) -> Result<Self> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("{}: cannot list", folder.display()))?;
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()
            .with_context(|| format!("{}: cannot list", folder.display()))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
        paths.sort();
        if paths.is_empty() {
            bail!("{}: expected patches, there is none", folder.display());
        }
        let patches = paths.into_iter().map(|path| {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("{}: cannot read", path.display()))?;
            Ok(Patch { path, text })
        });
        Ok(Self { patches: patches.collect::<Result<_>>()? })
    }

    /// Number of patches.
    pub(crate) fn len(&self) -> usize {
        self.patches.len()
    }

    /// The text of every patch, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.patches.iter().map(|patch| patch.text.as_str())
    }

    /// The files that the series leaves changed or new.
    pub(crate) fn touched(&self) -> BTreeSet<&str> {
        let lines = self.texts().flat_map(str::lines);
        lines.filter_map(|line| line.strip_prefix("+++ b/")).collect()
    }

    /// The files that the series changes and does not create.
    pub(crate) fn changed(&self) -> BTreeSet<&str> {
        let mut brought = BTreeSet::new();
        let mut changed = BTreeSet::new();
        let mut before = "";
        for line in self.texts().flat_map(str::lines) {
            if let Some(file) = line.strip_prefix("--- ") {
                before = file;
            } else if let Some(file) = line.strip_prefix("+++ b/") {
                if before == "/dev/null" {
                    brought.insert(file);
                } else if !brought.contains(file) {
                    changed.insert(file);
                }
            }
        }
        changed
    }

    /// The files of the sources that applying and checking need.
    pub(crate) fn needed_files(&self) -> Vec<String> {
        self.changed().into_iter().chain(CHECKPATCH).map(str::to_owned).collect()
    }

    /// Applies every patch in `folder`, to copies of the files that `pristine` names.
    pub(crate) fn apply(
        &self,
        pristine: impl Fn(&str) -> PathBuf,
        folder: &Path,
        patch_program: impl Fn() -> Command,
    ) -> Result<()> {
        for file in self.changed() {
            let (source, copy) = (pristine(file), folder.join(file));
            if let Some(parent) = copy.parent() {
                fs::create_dir_all(parent)
                    .with_context(|| format!("{}: cannot create", parent.display()))?;
            }
            fs::copy(&source, &copy)
                .with_context(|| format!("{}: cannot copy", source.display()))?;
        }
        for patch in &self.patches {
            let mut command = patch_program();
            command.args([
                "--strip=1",
                "--fuzz=0",
                "--batch",
                "--silent",
                "--no-backup-if-mismatch",
            ]);
            command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().context("patch: cannot run")?;
            let mut input = child.stdin.take().context("patch: has no input")?;
            // A patch that is refused early closes its input, so this error is expected then. The
            // command's message gives the reason.
            let _ = input.write_all(patch.text.as_bytes());
            drop(input);
            let output = child.wait_with_output().context("patch: cannot wait for it")?;
            if !output.status.success() {
                bail!(
                    "{}: does not apply to these sources: {}",
                    patch.path.display(),
                    String::from_utf8_lossy(&output.stdout).trim()
                );
            }
        }
        Ok(())
    }

    /// The complaints about each patch by the checkpatch of the sources in `tree`; `None` for none.
    pub(crate) fn complaints(
        &self,
        tree: &Path,
        perl: impl Fn() -> Command,
    ) -> Result<Vec<Option<String>>> {
        let check = |patch: &Patch| {
            let mut command = perl();
            command.arg(tree.join(CHECKPATCH[0]));
            command.args(["--no-tree", "--terse", "--no-summary", "--ignore", IGNORED]);
            let output = command.arg(&patch.path).output().context("perl: cannot run")?;
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let text = format!("{text}{errors}").trim().to_owned();
            if output.status.success() && text.is_empty() {
                return Ok(None);
            }
            Ok(Some(format!("{}: {text}", patch.path.display())))
        };
        self.patches.iter().map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "Subject: a\n---\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1 +1 @@\n-old\n+new\n\
                         --- /dev/null\n+++ b/mm/b.c\n@@ -0,0 +1 @@\n+b\n";
    const SECOND: &str = "Subject: b\n---\n--- a/mm/b.c\n+++ b/mm/b.c\n@@ -1 +1 @@\n-b\n+c\n";

    fn series(folder: &Path) -> Series {
        fs::write(folder.join("0001-a.patch"), FIRST).expect("written");
        fs::write(folder.join("0002-b.patch"), SECOND).expect("written");
        fs::write(folder.join("README"), "").expect("written");
        Series::load_from(folder).expect("read")
    }

    #[test]
    fn a_file_that_the_series_brings_need_not_be_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let series = series(folder.path());
        assert_eq!(series.len(), 2);
        assert_eq!(series.changed(), ["mm/a.c"].into());
        assert_eq!(series.touched(), ["mm/a.c", "mm/b.c"].into());
        assert_eq!(series.needed_files()[0], "mm/a.c");
    }

    #[test]
    fn our_own_series_is_there() {
        let series = Series::load().expect("read");
        assert!(series.changed().contains("mm/memory.c"));
        assert!(series.touched().contains("mm/numa_replication.c"));
    }
}
