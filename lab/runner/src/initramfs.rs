//! The guest's file system: an uncompressed cpio archive in memory, unpacked by the kernel at boot.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use cpio::newc;

/// A file of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File { bytes: Vec<u8>, executable: bool },
    Link { target: String },
    Folder,
    Console,
}

/// Folders of the root that are links into `/usr` in Debian.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Files by path, without the leading slash. Folders are made as they are needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Initramfs {
    entries: BTreeMap<String, Entry>,
}

impl Initramfs {
    /// An archive with the console that PID 1 needs before it has mounted anything.
    pub(crate) fn new() -> Self {
        let mut archive = Self::default();
        archive.entries.insert("dev/console".to_owned(), Entry::Console);
        archive
    }

    /// Adds a file of this machine under an absolute path of the guest.
    pub(crate) fn add_file(&mut self, source: &Path, target: &str) -> Result<()> {
        let bytes =
            fs::read(source).with_context(|| format!("{}: cannot read", source.display()))?;
        let executable = {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = fs::metadata(source)?;
            metadata.permissions().mode() & 0o111 != 0
        };
        self.insert(target, Entry::File { bytes, executable });
        Ok(())
    }

    /// Adds bytes as a file.
    pub(crate) fn add_bytes(&mut self, bytes: Vec<u8>, target: &str) {
        self.insert(target, Entry::File { bytes, executable: false });
    }

    /// Adds a shell script.
    pub(crate) fn add_script(&mut self, text: String, target: &str) {
        self.insert(target, Entry::File { bytes: text.into_bytes(), executable: true });
    }

    /// Adds a symbolic link.
    pub(crate) fn add_link(&mut self, target: &str, link: &str) {
        self.insert(link, Entry::Link { target: target.to_owned() });
    }

    /// Adds a folder that nothing has to be in.
    pub(crate) fn add_folder(&mut self, path: &str) {
        self.insert(path, Entry::Folder);
    }

    /// Puts what is in `/bin`, `/lib` and the like into `/usr`, and links there in their place, as
    /// Debian's installer does.
    pub(crate) fn merge_usr(&mut self) {
        let is_merged =
            |path: &str| path.split_once('/').is_some_and(|(first, _)| MERGED.contains(&first));
        let merged = |(path, entry): (String, Entry)| match is_merged(&path) {
            true => (format!("usr/{path}"), entry),
            false => (path, entry),
        };
        self.entries = std::mem::take(&mut self.entries).into_iter().map(merged).collect();
        for name in MERGED {
            self.add_link(&format!("usr/{name}"), name);
        }
    }

    /// Adds what another archive holds; it takes the place of what is there under the same path.
    pub(crate) fn add_all(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        self.entries.insert(path.trim_start_matches('/').to_owned(), entry);
    }

    /// Bytes of all files together.
    pub(crate) fn size(&self) -> u64 {
        let size = |entry: &Entry| match entry {
            Entry::File { bytes, .. } => bytes.len() as u64,
            _ => 0,
        };
        self.entries.values().map(size).sum()
    }

    /// The archive. The same entries give the same bytes.
    pub(crate) fn archive(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut inode = 0;
        let mut put = |out: Vec<u8>, name: &str, mode: u32, bytes: &[u8]| -> Result<Vec<u8>> {
            inode += 1;
            let size = u32::try_from(bytes.len())
                .with_context(|| format!("{name}: too large for the guest's file system"))?;
            let mut header = newc::Builder::new(name).ino(inode).mode(mode).nlink(1);
            if mode & 0o170_000 == 0o020_000 {
                header = header.rdev_major(5).rdev_minor(1);
            }
            let mut writer = header.write(out, size);
            std::io::Write::write_all(&mut writer, bytes)?;
            Ok(writer.finish()?)
        };
        for folder in self.folders() {
            out = put(out, &folder, 0o040_755, &[])?;
        }
        for (name, entry) in &self.entries {
            out = match entry {
                Entry::File { bytes, executable } => {
                    let mode = if *executable { 0o100_755 } else { 0o100_644 };
                    put(out, name, mode, bytes)?
                }
                Entry::Folder => put(out, name, 0o040_755, &[])?,
                Entry::Link { target } => put(out, name, 0o120_777, target.as_bytes())?,
                Entry::Console => put(out, name, 0o020_600, &[])?,
            };
        }
        Ok(newc::trailer(out)?)
    }

    /// Every folder above an entry, parents first.
    fn folders(&self) -> Vec<String> {
        let mut folders = std::collections::BTreeSet::new();
        for name in self.entries.keys() {
            let parents = name.match_indices('/').map(|(end, _)| name[..end].to_owned());
            folders.extend(parents);
        }
        folders.retain(|folder| !matches!(self.entries.get(folder), Some(Entry::Folder)));
        folders.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_they_hold() {
        let mut archive = Initramfs::new();
        archive.add_bytes(b"hello".to_vec(), "/a/b/c");
        archive.add_link("/a/b/c", "/bin/d");
        let bytes = archive.archive().expect("small");
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).expect("in the archive");
        assert!(at("a/b\0") < at("a/b/c\0"));
        assert!(at("hello") > at("a/b/c\0"));
        assert_eq!(archive.size(), 5);
        assert_eq!(bytes, archive.archive().expect("the same again"));
    }

    #[test]
    fn what_debian_has_in_usr_is_there_and_linked() {
        let mut archive = Initramfs::new();
        archive.add_bytes(b"1".to_vec(), "/bin/a");
        archive.add_bytes(b"2".to_vec(), "/usr/bin/b");
        archive.add_bytes(b"3".to_vec(), "/lib/c/d");
        archive.add_folder("/usr/bin");
        archive.merge_usr();
        let mut expected = Initramfs::new();
        expected.add_bytes(b"1".to_vec(), "/usr/bin/a");
        expected.add_bytes(b"2".to_vec(), "/usr/bin/b");
        expected.add_bytes(b"3".to_vec(), "/usr/lib/c/d");
        expected.add_folder("/usr/bin");
        for name in ["bin", "lib", "lib64", "sbin"] {
            expected.add_link(&format!("usr/{name}"), &format!("/{name}"));
        }
        assert_eq!(archive, expected);
        let bytes = archive.archive().expect("small");
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("usr/bin\0").count(), 1 + 1, "a folder once, and the link to it");
    }
}
