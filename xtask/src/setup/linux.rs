//! What a kernel is built with: its whole sources, and tools that this machine may lack.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::archive::Archive;
use super::plan::Group;
use super::{LISTS_BYTES, check_space, lock, private_root, system, unpack};

/// Size of the unpacked sources with their build, rounded up.
const UNPACKED_BYTES: u64 = 2_500_000_000;

/// Packages with the tools. `make`, the compiler and libelf come with the lab's own setup.
const TOOLS: [&str; 10] = [
    "bc",
    "bison",
    "flex",
    "libelf-dev",
    "libperl5.36",
    "libreadline8",
    "libtinfo6",
    "m4",
    "patch",
    "perl-modules-5.36",
];

/// Prefix of the name of the tree of sources, and of that of the tools.
const SOURCES_NAME: &str = "linux";
const TOOLS_NAME: &str = "build";

/// The tools that a kernel is built with, unpacked and not installed.
pub(crate) struct Tools {
    tree: PathBuf,
}

impl Tools {
    /// Adds the tools to a command's environment. `own`: environment of the lab's setup.
    pub(crate) fn equip<'a>(
        &self,
        command: &'a mut Command,
        own: &[(&'static str, String)],
    ) -> &'a mut Command {
        let usr = self.tree.join("usr");
        let libraries = [usr.join("lib/x86_64-linux-gnu"), self.tree.join("lib/x86_64-linux-gnu")];
        let libraries = libraries.map(|folder| folder.display().to_string()).join(":");
        for (name, value) in own {
            let first = match *name {
                "PATH" => usr.join("bin").display().to_string(),
                _ => libraries.clone(),
            };
            command.env(name, [&first, value.as_str()].join(":"));
        }
        let perl = ["share/perl/5.36", "lib/x86_64-linux-gnu/perl/5.36"];
        let perl = perl.map(|folder| usr.join(folder).display().to_string()).join(":");
        command
            .env("BISON_PKGDATADIR", usr.join("share/bison"))
            .env("M4", usr.join("bin/m4"))
            .env("PERL5LIB", perl)
            .env("LC_ALL", "C")
            .env_remove("MAKEFLAGS")
    }

    /// Folder of the tools' headers.
    pub(crate) fn headers(&self) -> PathBuf {
        self.tree.join("usr/include")
    }

    /// Folder in which the linker finds libelf, under the name that it looks for.
    pub(crate) fn linked_libraries(&self) -> PathBuf {
        self.tree.join("linked")
    }
}

/// The tools. Fetches them if needed.
pub(crate) fn tools(cache: &Path, libraries: &[PathBuf]) -> Result<Tools> {
    system::check_cache(cache)?;
    let _lock = lock(cache)?;
    if let Some(tree) = found(cache, TOOLS_NAME, "linked")? {
        return Ok(Tools { tree });
    }
    system::check()?;
    check_space(LISTS_BYTES, cache)?;
    let apt = private_root(cache)?;
    apt.update()?;
    let downloads = apt.alone(&TOOLS.map(str::to_owned)).context("choosing the build's tools")?;
    let group = Group { name: TOOLS_NAME, downloads };
    eprintln!("fetching {} packages to build a kernel with", group.downloads.len());
    apt.fetch(&group.downloads.iter().collect::<Vec<_>>())?;
    let tree = unpack::unpack(&group, &apt.archives(), cache, &mut |_| ())?;
    // The link in the package leads to a library of another package.
    let library = libraries
        .iter()
        .map(|folder| folder.join("libelf.so.1"))
        .find(|path| path.is_file())
        .context("libelf.so.1 is not among the lab's libraries; run ./x setup again")?;
    let linked = tree.join("linked");
    let partial = tree.join("linked.partial");
    fs::create_dir_all(&partial)
        .and_then(|()| fs::copy(&library, partial.join("libelf.so")))
        .and_then(|_| fs::rename(&partial, &linked))
        .with_context(|| format!("{}: cannot make", linked.display()))?;
    Ok(Tools { tree })
}

/// The folder with the complete sources in `source`. Fetches them if needed.
pub(crate) fn sources(cache: &Path) -> Result<PathBuf> {
    system::check_cache(cache)?;
    let _lock = lock(cache)?;
    if let Some(tree) = found(cache, SOURCES_NAME, "source")? {
        return Ok(tree);
    }
    let archive = Archive::fetch(cache, SOURCES_NAME, UNPACKED_BYTES, "a kernel of our own")?;
    let tree = archive.tree(cache);
    let partial = tree.join("source.partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("{}: cannot remove", partial.display()))?;
    }
    eprintln!("unpacking the kernel's sources, 1.6 GB (half a minute)");
    archive.unpack(&partial, &[])?;
    fs::rename(&partial, tree.join("source"))
        .with_context(|| format!("{}: cannot rename", partial.display()))?;
    archive.discard()?;
    Ok(tree)
}

/// The tree of an earlier call, if it has the folder `whole`, which only a complete tree has.
fn found(cache: &Path, name: &str, whole: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(cache).with_context(|| format!("{}: cannot list", cache.display()))? {
        let path = entry?.path();
        let is_tree = path.file_name().is_some_and(|found| {
            found.to_string_lossy().strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
        });
        if is_tree && path.join(whole).is_dir() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
