//! The place for the measurements. It is found and tried before measuring, and written after it.
//! An interrupted measurement leaves nothing behind.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::syscall::process::{User, effective_user};

use crate::output::Output;

/// Symbolic links that lead to one file at most, as in the kernel (MAXSYMLINKS of
/// include/linux/namei.h).
const MOST_LINKS: usize = 40;

/// Where the measurements go.
#[derive(Debug)]
pub(super) enum Target {
    Stdout(Output),
    /// A regular file, or one that is not there yet; no symbolic link.
    File {
        path: PathBuf,
        /// User and group that get the file: those of the caller of sudo, in folders of that user.
        owner: Option<(u32, u32)>,
    },
}

impl Target {
    /// The place that the user named. Of a symbolic link it is the file to which the link leads.
    ///
    /// # Errors
    /// There is something else than a regular file, or root would follow a link of another user
    /// than `caller`, who called sudo.
    pub(super) fn find(output: &Path, caller: Option<&User>) -> Result<Self> {
        if Output::is_stdout(output) {
            return Output::open_shared(output, caller).map(Self::Stdout);
        }
        if let Some(folder) = output.parent().filter(|one| *one == Path::new("/etc/rondpoint")) {
            // The system's folder is ours to make; it may be there.
            let _ = fs::create_dir(folder);
        }
        let found = destination(output, caller).map(|path| {
            let owner = caller.filter(|caller| is_of(folder_of(&path), caller.user));
            let owner = owner.map(|caller| (caller.user, caller.group));
            Self::File { path, owner }
        });
        found.with_context(|| format!("writing {}", output.display()))
    }

    /// Finds out before minutes are spent that the file can be written. Leaves nothing behind.
    ///
    /// # Errors
    /// No file can be made in its folder.
    pub(super) fn check(&self) -> Result<()> {
        let Self::File { path, owner } = self else { return Ok(()) };
        let beside = beside(path);
        let tried = create(&beside, *owner).and_then(|_| fs::remove_file(&beside));
        tried.with_context(|| format!("writing {}: making a file in its folder", path.display()))
    }

    /// Writes everything at once. An older file keeps its content until the new one is complete.
    ///
    /// # Errors
    /// The file or stdout does not take it.
    pub(super) fn write(self, text: &str) -> Result<()> {
        match self {
            Self::Stdout(mut output) => {
                let written = output.write_all(text.as_bytes()).and_then(|()| output.keep());
                written.with_context(|| output.purpose())
            }
            Self::File { path, owner } => {
                replace(&path, owner, text).with_context(|| format!("writing {}", path.display()))
            }
        }
    }
}

fn replace(path: &Path, owner: Option<(u32, u32)>, text: &str) -> io::Result<()> {
    let beside = beside(path);
    let mut file = create(&beside, owner)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|one| *one != Path::new("")).unwrap_or(Path::new("."))
}

fn is_of(folder: &Path, user: u32) -> bool {
    fs::metadata(folder).is_ok_and(|found| found.uid() == user)
}

/// The file that takes the place of `path` when it is complete.
fn beside(path: &Path) -> PathBuf {
    path.with_extension(format!("toml.{}", std::process::id()))
}

/// Its name can be guessed: a file that is there already is not ours to write.
fn create(beside: &Path, owner: Option<(u32, u32)>) -> io::Result<fs::File> {
    let file = OpenOptions::new().write(true).create_new(true).open(beside)?;
    if let Some((user, group)) = owner.filter(|_| effective_user() == 0) {
        let given = std::os::unix::fs::fchown(&file, Some(user), Some(group));
        if given.is_err() {
            let _ = fs::remove_file(beside);
        }
        given?;
    }
    Ok(file)
}

/// The file to which `output` leads through symbolic links.
fn destination(output: &Path, caller: Option<&User>) -> Result<PathBuf> {
    if fs::metadata(output).is_ok_and(|found| !found.is_file()) {
        bail!("it is no regular file; expected a regular or a new file, or - for stdout");
    }
    let mut path = output.to_path_buf();
    for _ in 0..=MOST_LINKS {
        let found = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            found => found?,
        };
        if !found.is_symlink() {
            return Ok(path);
        }
        let owner = found.uid();
        let is_foreign = owner != 0 && caller.is_none_or(|caller| caller.user != owner);
        if is_foreign && effective_user() == 0 {
            let link = path.display();
            bail!(
                "the symbolic link {link} belongs to user {owner}; expected one of root or of the \
                 caller"
            );
        }
        let next = fs::read_link(&path)?;
        path = path.parent().map_or(next.clone(), |folder| folder.join(&next));
    }
    bail!("more than {MOST_LINKS} symbolic links; expected a file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(target: Target) -> PathBuf {
        match target {
            Target::File { path, .. } => path,
            Target::Stdout(_) => panic!("stdout"),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_stays_and_the_file_to_which_it_leads_is_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("there")).unwrap();
        let link = folder.path().join("link.toml");
        symlink("there/found.toml", &link).unwrap();
        for text in ["new", "older"] {
            let target = Target::find(&link, None).unwrap();
            target.check().unwrap();
            target.write(text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(folder.path().join("there/found.toml")).unwrap(), text);
        }
        assert_eq!(names(&folder.path().join("there")), ["found.toml"]);
        let circle = folder.path().join("circle");
        symlink("circle", &circle).unwrap();
        let error = format!("{:#}", Target::find(&circle, None).unwrap_err());
        assert!(error.contains("more than 40 symbolic links"), "{error}");
    }

    #[test]
    fn a_place_that_is_tried_and_not_written_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("found.toml");
        Target::find(&path, None).unwrap().check().unwrap();
        assert!(names(folder.path()).is_empty());
        fs::write(&path, "precious").unwrap();
        let target = Target::find(&path, None).unwrap();
        target.check().unwrap();
        assert_eq!(file(target), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(names(folder.path()), ["found.toml"]);
    }

    #[test]
    fn a_file_in_roots_folder_is_roots_and_one_in_the_callers_is_the_callers() {
        if effective_user() != 0 {
            println!("not tried: only root gives files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let caller = User { user: 4711, group: 4712, groups: vec![4712] };
        let path = folder.path().join("found.toml");
        for owner in [(0, 0), (4711, 4712)] {
            std::os::unix::fs::chown(folder.path(), Some(owner.0), Some(owner.1)).unwrap();
            let target = Target::find(&path, Some(&caller)).unwrap();
            target.check().unwrap();
            target.write("x").unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.gid()), owner);
        }
    }

    #[test]
    fn root_follows_links_of_root_and_of_the_caller_only() {
        if effective_user() != 0 {
            println!("not tried: only root is in danger of it");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.toml");
        symlink("found.toml", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4711), Some(4711)).unwrap();
        let error = format!("{:#}", Target::find(&link, None).unwrap_err());
        assert!(error.contains("belongs to user 4711"), "{error}");
        let caller = User { user: 4711, group: 4711, groups: vec![4711] };
        let target = Target::find(&link, Some(&caller)).unwrap();
        assert_eq!(file(target), folder.path().join("found.toml"));
    }
}
