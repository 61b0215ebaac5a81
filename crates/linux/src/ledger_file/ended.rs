//! Ledgers whose processes have all ended with their PID namespace. They are kept under another
//! name, up to a number.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::failed;
use crate::LinuxError;

/// Extension of a ledger that was set aside.
const SUFFIX: &str = "ended";
/// Most ledgers that are kept (our choice). Each restart of a container may leave one.
const MOST: usize = 16;

/// A ledger with entries of processes that have all ended. It is locked.
#[derive(Debug)]
pub struct Ended {
    /// Path of the file.
    pub path: PathBuf,
    /// The open and locked file.
    pub(super) _file: File,
}

impl Ended {
    /// Renames the file, so that it is no ledger any more, and returns its new path. Removes the
    /// oldest of the files that were set aside if there are too many.
    ///
    /// # Errors
    /// As rename(2).
    pub fn set_aside(&self) -> Result<PathBuf, LinuxError> {
        let aside = self.path.with_extension(SUFFIX);
        fs::rename(&self.path, &aside).map_err(|source| failed(&self.path, "rename", source))?;
        if let Some(folder) = self.path.parent() {
            remove_oldest(folder, &aside);
        }
        Ok(aside)
    }
}

/// Leaves [`MOST`] files, among them `latest`.
fn remove_oldest(folder: &Path, latest: &Path) {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let ended = paths.filter(|path| path.extension().is_some_and(|found| found == SUFFIX));
    let mut old: Vec<(SystemTime, PathBuf)> = ended
        .filter(|path| path != latest)
        .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    old.sort();
    for (_, path) in &old[..old.len().saturating_sub(MOST - 1)] {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_ledgers_are_kept_and_no_other_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("alive.ledger"), "").unwrap();
        for number in 0..MOST + 3 {
            let path = folder.path().join(format!("{number}.ledger"));
            let file = File::create(&path).unwrap();
            let made = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            file.set_modified(made).unwrap();
            let aside = Ended { path: path.clone(), _file: file }.set_aside().unwrap();
            assert!(aside.exists() && !path.exists());
        }
        let exists = |name: &str| folder.path().join(name).exists();
        let kept = (0..MOST + 3).filter(|number| exists(&format!("{number}.ended")));
        assert_eq!(kept.collect::<Vec<_>>(), (3..MOST + 3).collect::<Vec<_>>());
        assert!(exists("alive.ledger"));
    }
}
