//! Tells whether a ledger may have been removed, by the folders alone. Each of a thousand trees has
//! a ledger.

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
    pub(super) fn may_have_changed<'a>(
        &mut self,
        files: impl Iterator<Item = &'a Path>,
        time: SystemTime,
    ) -> bool {
        let mut now = BTreeMap::new();
        let mut is_settled = true;
        for folder in files.map(|file| file.parent().unwrap_or(file)) {
            if now.contains_key(folder) {
                continue;
            }
            match settled(folder, time) {
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
/// Nobody can set back the time of a change of its inode, as that of its content.
fn settled(folder: &Path, time: SystemTime) -> Option<Stamp> {
    let found = fs::metadata(folder).ok()?;
    let changed = Duration::new(found.ctime().try_into().ok()?, found.ctime_nsec() as u32);
    let age = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_sub(changed)?;
    let stamp = (found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
    (age >= SETTLES).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_looked_through_after_a_change_and_not_again_once_that_is_old() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("ledgers");
        fs::create_dir(&folder).unwrap();
        let files = ["a", "b"].map(|name| folder.join(name));
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let mut folders = Folders::default();
        let mut ask = |later: u64| {
            let time = SystemTime::now() + Duration::from_secs(later);
            folders.may_have_changed(files.iter().map(PathBuf::as_path), time)
        };
        assert!(ask(0) && ask(0), "it has just changed");
        assert!(ask(60) && !ask(60) && !ask(60));
        let before = fs::metadata(&folder).unwrap().modified().unwrap();
        fs::remove_file(&files[0]).unwrap();
        fs::File::open(&folder).unwrap().set_modified(before).unwrap();
        assert!(ask(60) && !ask(60));
        fs::rename(&folder, top.path().join("elsewhere")).unwrap();
        assert!(ask(60) && ask(60), "it is gone");
    }
}
