//! A machine's description as a tar archive.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rondpoint_linux::{Root, capture};

use crate::terminal;

/// Writes the archive and says how much is in it.
pub(super) fn write(root: &Root, path: &Path) -> Result<()> {
    let files = capture::files(root)?;
    if files.is_empty() {
        bail!("nothing to capture beneath {} and {}", root.proc.display(), root.sys.display());
    }
    let attempt = || format!("writing {}", path.display());
    let file = File::create(path).with_context(attempt)?;
    let mut archive = tar::Builder::new(BufWriter::new(file));
    for captured in &files {
        let mut header = tar::Header::new_gnu();
        header.set_size(captured.bytes.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, &captured.path, &captured.bytes[..])
            .with_context(attempt)?;
    }
    let mut file = archive.into_inner().with_context(attempt)?;
    std::io::Write::flush(&mut file).with_context(attempt)?;
    terminal::say(&format!(
        "{}: {} files, no names of users, hosts or processes\n",
        path.display(),
        files.len()
    ));
    Ok(())
}
