//! `programs.toml` in the cache folder: which unpacked packages make up each program of the suite.
//!
//! `./x setup --programs` writes it, `rondpoint-lab programs` reads it; `xtask` shares this file.
//! Each package has a folder of its own, so programs share packages and a new program fetches only
//! what is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file's name in the cache folder.
pub(crate) const FILE_NAME: &str = "programs.toml";
/// The folder of the packages in the cache folder.
pub(crate) const FOLDER: &str = "programs";
/// Version of the file's format.
const FORMAT: u32 = 1;

/// What was fetched, by the program's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fetched {
    format: u32,
    #[serde(default)]
    pub(crate) programs: BTreeMap<String, Closure>,
}

/// One program's packages with all that they depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closure {
    /// The packages that the program's file names, and those that it leaves out.
    pub(crate) asked: Asked,
    pub(crate) packages: Vec<Package>,
}

/// What a program's file says about packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) packages: Vec<String>,
    /// Dependencies that the program runs without.
    #[serde(default)]
    pub(crate) without: Vec<String>,
}

/// One unpacked Debian package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Digest of the package file, as apt checked it.
    pub(crate) sha256: String,
    /// Its folder, beneath [`FOLDER`].
    pub(crate) folder: String,
}

impl Default for Fetched {
    fn default() -> Self {
        Self { format: FORMAT, programs: BTreeMap::new() }
    }
}

impl Fetched {
    /// Reads the file; a file that is not there or of another format holds nothing.
    pub(crate) fn load(cache: &Path) -> Self {
        let text = std::fs::read_to_string(cache.join(FILE_NAME)).unwrap_or_default();
        let fetched: Option<Self> = toml::from_str(&text).ok();
        fetched.filter(|fetched| fetched.format == FORMAT).unwrap_or_default()
    }

    /// The folders of a program's packages, if what its file asks for is all there.
    pub(crate) fn folders(&self, cache: &Path, name: &str, asked: &Asked) -> Option<Vec<PathBuf>> {
        let closure = self.programs.get(name).filter(|closure| closure.asked == *asked)?;
        let folder = |package: &Package| cache.join(FOLDER).join(&package.folder);
        let folders: Vec<PathBuf> = closure.packages.iter().map(folder).collect();
        folders.iter().all(|folder| folder.is_dir()).then_some(folders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_there_only_with_the_packages_that_its_file_asks_for() {
        let cache = tempfile::tempdir().expect("a folder");
        let asked = Asked { packages: vec!["zstd".to_owned()], without: Vec::new() };
        let package = Package {
            name: "zstd".to_owned(),
            version: "1".to_owned(),
            sha256: "00".to_owned(),
            folder: "package-1".to_owned(),
        };
        let closure = Closure { asked: asked.clone(), packages: vec![package] };
        let mut fetched = Fetched::default();
        fetched.programs.insert("zstd".to_owned(), closure);
        let text = toml::to_string(&fetched).expect("plain data");
        std::fs::write(cache.path().join(FILE_NAME), text).expect("written");

        let read = Fetched::load(cache.path());
        assert_eq!(read, fetched);
        assert_eq!(read.folders(cache.path(), "zstd", &asked), None, "the folder is not there");
        let folder = cache.path().join(FOLDER).join("package-1");
        std::fs::create_dir_all(&folder).expect("created");
        assert_eq!(read.folders(cache.path(), "zstd", &asked), Some(vec![folder]));
        let more = Asked { without: vec!["libc6".to_owned()], ..asked };
        assert_eq!(read.folders(cache.path(), "zstd", &more), None, "the file asks otherwise");

        std::fs::write(cache.path().join(FILE_NAME), "format = 7").expect("written");
        assert_eq!(Fetched::load(cache.path()), Fetched::default());
    }
}
