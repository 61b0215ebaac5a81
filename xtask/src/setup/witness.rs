//! `./x setup --witness`: the kernel's own event lists, its decoder of SPE packets, and the files
//! that our series of patches changes. The product's event tables are compared with the event
//! lists.
//!
//! They come with Debian's package of the kernel's sources, of which 33 MB stay in the cache.
//! Nothing but `./x test` needs them, so the lab's setup does not fetch them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::archive::Archive;
use super::{lock, system};
use crate::kernel::series::Series;

/// Folder of the event lists, in the kernel's sources and in the tree that is kept.
const LISTS: &str = "tools/perf/pmu-events/arch";

/// Folder of the decoder of SPE packets.
const DECODER: &str = "tools/perf/util/arm-spe-decoder";

/// The headers that the decoder includes.
const HEADERS: [&str; 2] = ["tools/include", "tools/arch/x86/include"];

/// Unpacked size of the kept files, rounded up.
const UNPACKED_BYTES: u64 = 40_000_000;

/// Name of the group, and prefix of its tree's name.
const NAME: &str = "witness";

/// The kept part of the kernel's sources: event lists and the decoder of SPE packets.
pub(crate) struct Sources {
    tree: PathBuf,
}

impl Sources {
    /// The folder of the kept files, laid out as in the sources.
    pub(crate) fn tree(&self) -> &Path {
        &self.tree
    }

    /// The folder with the event lists.
    pub(crate) fn lists(&self) -> PathBuf {
        self.tree.join(LISTS)
    }

    /// The command that compiles `driver` with the decoder of SPE packets into `program`.
    pub(crate) fn compile_decoder(&self, driver: &Path, program: &Path) -> Command {
        let mut command = Command::new("cc");
        command.args(["-O2", "-o"]).arg(program).arg(driver);
        command.arg(self.tree.join(DECODER).join("arm-spe-pkt-decoder.c"));
        for folder in [DECODER, HEADERS[0], "tools/include/uapi", HEADERS[1]] {
            command.arg("-I").arg(self.tree.join(folder));
        }
        command
    }
}

/// The kept part of the sources. Fetches it if needed.
pub(crate) fn provide(cache: &Path) -> Result<Sources> {
    system::check_cache(cache)?;
    let files = Series::load()?.needed_files();
    let _lock = lock(cache)?;
    if let Some(tree) = found(cache, &files)? {
        return Ok(Sources { tree });
    }
    let archive =
        Archive::fetch(cache, NAME, UNPACKED_BYTES, "the kernel's event lists and patched files")?;
    let tree = archive.tree(cache);
    keep(&archive, &files, &tree)?;
    archive.discard()?;
    Ok(Sources { tree })
}

/// The tree of an earlier call, if it has all needed files.
fn found(cache: &Path, files: &[String]) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(cache).with_context(|| format!("{}: cannot list", cache.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_tree = name.starts_with("witness-") && !name.ends_with(".partial");
        let is_whole = path.join(LISTS).is_dir() && path.join(DECODER).is_dir();
        if is_tree && is_whole && files.iter().all(|file| path.join(file).is_file()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Unpacks the kept files into `tree`: all or nothing.
fn keep(archive: &Archive, files: &[String], tree: &Path) -> Result<()> {
    let partial = tree.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("{}: cannot remove", partial.display()))?;
    }
    eprintln!("unpacking what is kept of it (a quarter of a minute)");
    let folders = [LISTS, DECODER, HEADERS[0], HEADERS[1]].map(|folder| format!("{folder}/*"));
    let patterns: Vec<_> = folders.into_iter().chain(files.iter().cloned()).collect();
    archive.unpack(&partial, &patterns)?;
    if !partial.join(LISTS).is_dir() {
        bail!("{}: found no {LISTS} in the sources", partial.display());
    }
    // The tree of another version of this program may lack files.
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("{}: cannot remove", tree.display()))?;
    }
    fs::rename(&partial, tree).with_context(|| format!("{}: cannot rename", partial.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_tree_is_taken() {
        let cache = tempfile::tempdir().expect("a folder");
        let make = |name: &str, folder: &str| {
            fs::create_dir_all(cache.path().join(name).join(folder)).expect("made");
        };
        make("witness-1.partial", LISTS);
        make("witness-1.partial", DECODER);
        make("witness-2", LISTS);
        let files = ["mm/memory.c".to_owned()];
        assert_eq!(found(cache.path(), &[]).expect("listed"), None);
        make("witness-2", DECODER);
        let whole = cache.path().join("witness-2");
        assert_eq!(found(cache.path(), &[]).expect("listed"), Some(whole.clone()));
        assert_eq!(found(cache.path(), &files).expect("listed"), None);
        make("witness-2", "mm");
        fs::write(whole.join(&files[0]), "").expect("written");
        assert_eq!(found(cache.path(), &files).expect("listed"), Some(whole));
    }
}
