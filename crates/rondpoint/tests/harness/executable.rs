//! Files that a test runs.

use std::path::Path;
use std::process::Command;

/// Copies a file and makes it executable by every user.
///
/// Another process writes the copy. A child that another thread of this test forks meanwhile would
/// hold the descriptor open, and exec(2) of the copy would give ETXTBSY.
pub(crate) fn install(source: impl AsRef<Path>, path: impl AsRef<Path>) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "--"]).arg(source.as_ref()).arg(path.as_ref());
    let status = install.status().expect("coreutils");
    assert!(status.success(), "{}: not copied", path.as_ref().display());
}
