//! A machine's description as a tar archive.

use std::io::{self, Write};

use anyhow::{Result, bail};
use rondpoint_linux::Root;
use rondpoint_linux::capture::{self, Capture};

use super::write::Written;
use crate::terminal;

/// Files that are left out and named; the others are counted.
const NAMED: usize = 8;

/// Writes the archive and says what is in it and what is not.
pub(super) fn write(root: &Root, written: Written) -> Result<()> {
    let captured = capture::read(root)?;
    if captured.files.is_empty() {
        bail!("nothing to capture beneath {} and {}", root.proc.display(), root.sys.display());
    }
    let name = written.name();
    written.fill(|file| archive(&captured, file))?;
    terminal::say(&format!(
        "{name}: {} files, no names of users, hosts or processes\n",
        captured.files.len()
    ));
    for file in captured.left_out.iter().take(NAMED) {
        terminal::say(&format!("left out: {}: {}\n", file.path.display(), file.reason));
    }
    if let Some(more @ 1..) = captured.left_out.len().checked_sub(NAMED) {
        terminal::say(&format!("left out: {more} more files that cannot be read\n"));
    }
    Ok(())
}

fn archive(captured: &Capture, file: &mut dyn Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(file);
    for folder in &captured.folders {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        archive.append_data(&mut header, folder, io::empty())?;
    }
    for file in &captured.files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, &file.path, &file.bytes[..])?;
    }
    archive.into_inner()?.flush()
}
