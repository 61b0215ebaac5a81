//! `./x setup --programs`: the packages of the suite's programs, from Debian, one folder in the
//! cache for each package.
//!
//! `lab/programs/NAME.toml` names a program's packages; apt adds what they depend on. Nothing is
//! installed, and no maintainer script runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::apt::{Download, PrivateRoot};
use super::fetched::{Asked, Closure, FILE_NAME, FOLDER, Fetched, Package};
use super::installed::cache_folder;
use super::plan::Group;
use super::{LISTS_BYTES, UNPACKED_PER_PACKED, check_space, lock, megabytes, private_root};
use super::{system, unpack};
use crate::progress::{Progress, Unit};
use crate::tidy::root;

/// Folder of the programs' files, from the repository's root.
const DEFINITIONS: &str = "lab/programs";

/// Packages that only serve an installation. They are left out unless a program names them.
const FOR_INSTALLING: [&str; 24] = [
    "adduser",
    "ca-certificates",
    "ca-certificates-java",
    "debconf",
    "dpkg",
    "gcc-12-base",
    "init-system-helpers",
    "libpam-modules",
    "libpam-modules-bin",
    "libsemanage-common",
    "libsemanage2",
    "libsepol2",
    "logsave",
    "lsb-base",
    "media-types",
    "mount",
    "passwd",
    "perl-base",
    "readline-common",
    "sensible-utils",
    "sysvinit-utils",
    "tar",
    "tzdata",
    "ucf",
];

/// The folder of the programs' files.
fn definitions() -> PathBuf {
    root().join(DEFINITIONS)
}

/// Provides the packages of the programs named in these words of a command line; of all programs if
/// they name none. Returns the folder of the programs' files.
pub(crate) fn provide_named(words: &[&str]) -> Result<PathBuf> {
    let folder = definitions();
    let cache = cache_folder(|name| std::env::var(name).ok())?;
    let file = |word: &&str| match word.strip_suffix(".toml") {
        Some(_) => Some(PathBuf::from(word)),
        None => Some(folder.join(format!("{word}.toml"))).filter(|path| path.is_file()),
    };
    if words.iter().any(|word| word.starts_with("--results-of")) {
        return Ok(folder); // No program runs.
    }
    let named: Vec<PathBuf> = words.iter().filter_map(file).collect();
    let files = if named.is_empty() { all()? } else { named };
    provide(&cache, &files, false)?;
    Ok(folder)
}

/// The program's name and the packages that it asks for, from its file.
fn read(path: &Path) -> Result<(String, Asked)> {
    let name = path.file_stem().and_then(|name| name.to_str()).context("a file without a name")?;
    let text = fs::read_to_string(path)
        .with_context(|| format!("{}: no such program of the suite", path.display()))?;
    let asked = toml::from_str(&text)
        .map_err(|error| anyhow::anyhow!("{}: {}", path.display(), error.message()))?;
    Ok((name.to_owned(), asked))
}

/// Every program's file.
pub(crate) fn all() -> Result<Vec<PathBuf>> {
    let folder = definitions();
    let entries =
        fs::read_dir(&folder).with_context(|| format!("{}: cannot list", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    Ok(paths)
}

/// The folders with the packages that this file names and those that they depend on. Missing ones
/// are fetched.
pub(crate) fn folders(file: &Path) -> Result<Vec<PathBuf>> {
    let cache = cache_folder(|name| std::env::var(name).ok())?;
    provide(&cache, &[file.to_owned()], false)?;
    let (name, asked) = read(file)?;
    let folders = Fetched::load(&cache).folders(&cache, &name, &asked);
    folders.with_context(|| format!("{}: its packages are not in the cache", file.display()))
}

/// Fetches and unpacks missing packages of the programs of these files. `refresh`: look for newer
/// packages too.
pub(crate) fn provide(cache: &Path, files: &[PathBuf], refresh: bool) -> Result<()> {
    let wanted: BTreeMap<String, Asked> =
        files.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let is_there = |fetched: &Fetched, (name, asked): (&String, &Asked)| {
        !refresh && fetched.folders(cache, name, asked).is_some()
    };
    if wanted.iter().all(|one| is_there(&Fetched::load(cache), one)) {
        return Ok(());
    }
    system::check()?;
    system::check_cache(cache)?;
    let _lock = lock(cache)?;
    // Another setup may have fetched packages meanwhile.
    let mut fetched = Fetched::load(cache);
    let missing: BTreeMap<&String, &Asked> =
        wanted.iter().filter(|one| !is_there(&fetched, *one)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    check_space(LISTS_BYTES, cache)?;
    let apt = private_root(cache)?;
    apt.update()?;
    let closures: Vec<(&String, &Asked, Vec<Download>)> = missing
        .into_iter()
        .map(|(name, asked)| Ok((name, asked, closure(&apt, name, asked)?)))
        .collect::<Result<_>>()?;
    let downloads: BTreeSet<&Download> = closures.iter().flat_map(|one| &one.2).collect();
    fetch(&apt, cache, &downloads)?;
    for (name, asked, downloads) in &closures {
        let packages = downloads.iter().map(package).collect();
        fetched.programs.insert((*name).clone(), Closure { asked: (*asked).clone(), packages });
    }
    write(&fetched, cache)
}

/// The packages of a program with their dependencies, without [`FOR_INSTALLING`].
fn closure(apt: &PrivateRoot, name: &str, asked: &Asked) -> Result<Vec<Download>> {
    if asked.packages.is_empty() {
        bail!("{name}: names no package");
    }
    let mut downloads = apt
        .closure(None, &asked.packages)
        .with_context(|| format!("{name}: choosing its packages"))?;
    downloads.retain(|download| is_needed(&download.name, asked));
    Ok(downloads)
}

/// Whether a package of the closure goes into the guest. A package that the program names always
/// does.
fn is_needed(package: &str, asked: &Asked) -> bool {
    let is_in = |list: &[String]| list.iter().any(|name| name == package);
    let is_left_out = FOR_INSTALLING.contains(&package) || is_in(&asked.without);
    is_in(&asked.packages) || !is_left_out
}

/// A group of one package. The group gives the name of its folder.
fn group(download: &Download) -> Group {
    Group { name: "package", downloads: vec![download.clone()] }
}

fn package(download: &Download) -> Package {
    Package {
        name: download.name.clone(),
        version: download.version.clone(),
        sha256: download.sha256.clone(),
        folder: group(download).folder(),
    }
}

/// Fetches and unpacks the packages that have no folder yet.
fn fetch(apt: &PrivateRoot, cache: &Path, downloads: &BTreeSet<&Download>) -> Result<()> {
    let folder = cache.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let pending: Vec<&Download> = downloads
        .iter()
        .copied()
        .filter(|download| !folder.join(group(download).folder()).exists())
        .collect();
    if pending.is_empty() {
        return Ok(());
    }
    let total: u64 = pending.iter().map(|download| download.bytes).sum();
    eprintln!(
        "will fetch {} packages of the suite's programs, {:.0} MB, and unpack them into {} (about {:.0} MB). \
         Nothing else on this machine is changed.",
        pending.len(),
        megabytes(total),
        folder.display(),
        megabytes(total * UNPACKED_PER_PACKED),
    );
    check_space(total * (1 + UNPACKED_PER_PACKED), cache)?;
    apt.fetch(&pending)?;
    let mut progress = Progress::new("unpacking", Unit::Bytes, total);
    let mut done = 0;
    for download in &pending {
        unpack::unpack(&group(download), &apt.archives(), &folder, &mut |bytes| {
            done += bytes;
            progress.at(done, total);
        })?;
    }
    progress.finish();
    fs::remove_dir_all(apt.archives()).context("cannot remove the package files")
}

/// Writes `programs.toml` in one step.
fn write(fetched: &Fetched, cache: &Path) -> Result<()> {
    let text = toml::to_string(fetched).with_context(|| format!("cannot write {FILE_NAME}"))?;
    let header =
        "# Written by ./x setup --programs; lab/runner/src/fetched.rs says what it means.\n";
    let partial = cache.join(format!("{FILE_NAME}.partial"));
    fs::write(&partial, format!("{header}{text}"))
        .with_context(|| format!("{}: cannot write", partial.display()))?;
    fs::rename(&partial, cache.join(FILE_NAME))
        .with_context(|| format!("{}: cannot rename", partial.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_serves_to_install_is_left_out_unless_the_program_names_it() {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        let asked =
            Asked { packages: names(&["postgresql-15", "tzdata"]), without: names(&["perl"]) };
        let needed: Vec<&str> = ["libc6", "perl", "postgresql-15", "tzdata", "ucf"]
            .into_iter()
            .filter(|package| is_needed(package, &asked))
            .collect();
        assert_eq!(needed, ["libc6", "postgresql-15", "tzdata"]);
    }

    #[test]
    fn every_program_of_the_suite_names_packages() {
        for path in all().expect("the suite") {
            let (name, asked) = read(&path).expect("parses");
            assert!(path.ends_with(format!("{name}.toml")) && !asked.packages.is_empty(), "{name}");
        }
        let error = read(Path::new("/nonexistent/x.toml")).expect_err("not there").to_string();
        assert_eq!(error, "/nonexistent/x.toml: no such program of the suite");
    }
}
