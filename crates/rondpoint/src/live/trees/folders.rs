//! Tells whether a ledger may have been removed, by the folders alone. There is a ledger for each of
//! a thousand trees.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A folder that has changed within this time may change again at the same time of its clock (our
/// choice). Clocks of file systems are as coarse as ten milliseconds, some two seconds.
const SETTLES: Duration = Duration::from_secs(4);

/// Device, number and time of the last change of a folder.
type Stamp = (u64, u64, i64, i64);

/// Folders at the last call.
#[derive(Debug, Default)]
pub(super) struct Folders(BTreeMap<PathBuf, Stamp>);

impl Folders {
    /// Whether a file of these may have been removed or replaced since the last call. A folder that
    /// was not there at the last call may have lost one.
    pub(super) fn may_have_changed<'a>(&mut self, files: impl Iterator<Item = &'a Path>) -> bool {
        let mut now = BTreeMap::new();
        let mut is_settled = true;
        for folder in files.map(|file| file.parent().unwrap_or(file)) {
            if now.contains_key(folder) {
                continue;
            }
            match settled(folder) {
                Some(stamp) => drop(now.insert(folder.to_path_buf(), stamp)),
                None => is_settled = false,
            }
        }
        let is_same = is_settled && now.iter().all(|(folder, at)| self.0.get(folder) == Some(at));
        self.0 = now;
        !is_same
    }
}

/// The stamp of a folder; `None` if it is not there, or may change without another stamp.
fn settled(folder: &Path) -> Option<Stamp> {
    let found = fs::metadata(folder).ok()?;
    let age = SystemTime::now().duration_since(found.modified().ok()?).ok()?;
    let stamp = (found.dev(), found.ino(), found.mtime(), found.mtime_nsec());
    (age >= SETTLES).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As time passes.
    fn age(folder: &Path, s: u64) {
        let at = SystemTime::now() - Duration::from_secs(s);
        fs::File::open(folder).unwrap().set_modified(at).unwrap();
    }

    #[test]
    fn a_folder_is_looked_through_after_a_change_and_not_again_once_that_is_old() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("ledgers");
        fs::create_dir(&folder).unwrap();
        let files = ["a", "b"].map(|name| folder.join(name));
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let mut folders = Folders::default();
        let mut ask = || folders.may_have_changed(files.iter().map(PathBuf::as_path));
        assert!(ask() && ask(), "it has just changed");
        age(&folder, 60);
        assert!(ask() && !ask() && !ask());
        fs::remove_file(&files[0]).unwrap();
        assert!(ask() && ask());
        age(&folder, 30);
        assert!(ask() && !ask());
        fs::rename(&folder, top.path().join("elsewhere")).unwrap();
        assert!(ask() && ask(), "it is gone");
    }
}
