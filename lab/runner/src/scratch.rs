//! A temporary folder for each emulated machine, removed at its end. A lab also removes the folders
//! of labs that were killed.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context as _, Result};

const PREFIX: &str = "rondpoint-lab-";
/// Locked by the owner as long as it lives, however that ends.
const OWNER: &str = "owner";

/// A folder under `$TMPDIR`.
pub(crate) struct Scratch {
    folder: tempfile::TempDir,
    _owner: File,
}

impl Scratch {
    /// A new, empty folder; those without an owner are removed.
    ///
    /// # Errors
    /// There is no room, or no permission.
    pub(crate) fn new() -> Result<Self> {
        Self::inside(&std::env::temp_dir())
    }

    fn inside(place: &Path) -> Result<Self> {
        sweep(place);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place);
        let folder = folder.with_context(|| format!("a folder in {}", place.display()))?;
        // It is locked before it can be found.
        let new = folder.path().join("new");
        let owner = File::create(&new)?;
        owner.lock()?;
        fs::rename(new, folder.path().join(OWNER))?;
        Ok(Self { folder, _owner: owner })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// What is not ours to remove, or going already, stays.
fn sweep(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // A folder without an owner yet is just being made.
        let owner = File::open(entry.path().join(OWNER));
        if owner.is_ok_and(|owner| owner.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_owns_is_swept_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let owned = Scratch::inside(place.path()).expect("a folder");
        let [left, begun, other] = ["rondpoint-lab-left", "rondpoint-lab-begun", "other-left"]
            .map(|name| place.path().join(name));
        for folder in [&left, &begun, &other] {
            fs::create_dir(folder).expect("a folder");
        }
        for folder in [&left, &other] {
            fs::write(folder.join(OWNER), "").expect("a file");
        }
        let second = Scratch::inside(place.path()).expect("a folder");
        let there = [owned.path(), second.path(), &left, &begun, &other].map(Path::exists);
        assert_eq!(there, [true, true, false, true, true]);
        let path = owned.path().to_owned();
        drop(owned);
        assert!(!path.exists());
    }
}
