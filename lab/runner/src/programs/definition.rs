//! One program of the suite, as its TOML file says: packages, scripts, files, input.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::input::Input;
use crate::fetched::Asked;

/// Whether deciding may be developed on the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Half {
    /// It may.
    Open,
    /// It may not: reports show figures only.
    Check,
}

/// What the file says. The key of each field is the field's name, but for repeated tables.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// The file's name without its end.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    /// What sort of work it is.
    pub(crate) kind: String,
    pub(crate) half: Half,
    packages: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    /// Paths in the packages that the guest does not get, without the leading slash.
    #[serde(default)]
    pub(crate) leave_out: Vec<String>,
    /// Threads or processes that work at once.
    pub(crate) threads: u32,
    /// Memory of each node, MiB; none: as the machine file says.
    pub(crate) memory_mib: Option<u64>,
    /// Read-only files that its processes map. `prepare` makes them, under the memory policy of
    /// the placement.
    #[serde(default)]
    pub(crate) replicate: Vec<String>,
    /// Shell lines before the run, unmodelled.
    pub(crate) prepare: Option<String>,
    /// Shell lines: the run.
    pub(crate) run: String,
    /// Shell lines that succeed where the result is right.
    pub(crate) check: String,
    #[serde(default, rename = "file")]
    pub(crate) files: Vec<TextFile>,
    #[serde(default, rename = "input")]
    pub(crate) inputs: Vec<Input>,
}

/// A file of the guest, written in the program's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Definition {
    /// Reads and checks a program's file.
    ///
    /// # Errors
    /// It is not there, or says too little, or something that is not known.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{shown}: no such program of the suite"))?;
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{shown}: a file without a name"))?;
        Self::parse(name, &text).with_context(|| shown.to_string())
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut found: Self =
            toml::from_str(text).map_err(|error| anyhow::anyhow!("{}", error.message()))?;
        found.name = name.to_owned();
        if found.packages.is_empty() {
            bail!("packages: expected at least one package of Debian");
        }
        if found.threads == 0 {
            bail!("threads: expected at least 1");
        }
        let paths = found.files.iter().map(|file| &file.path);
        let paths = paths.chain(found.inputs.iter().map(|input| &input.path));
        for path in paths.chain(&found.replicate) {
            if !path.starts_with('/') {
                bail!("{path}: expected a path of the guest that begins with /");
            }
        }
        Ok(found)
    }

    /// What setup has to fetch.
    pub(crate) fn asked(&self) -> Asked {
        Asked { packages: self.packages.clone(), without: self.without.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title = \"t\"\nkind = \"k\"\nhalf = \"open\"\npackages = [\"zstd\"]\n\
        threads = 8\nrun = \"true\"\ncheck = \"true\"\n";

    #[test]
    fn a_file_that_says_too_little_or_too_much_is_refused() {
        #[track_caller]
        fn check(from: &str, to: &str, expected: &str) {
            let error = Definition::parse("x", &SMALL.replace(from, to)).expect_err("refused");
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
        assert_eq!(Definition::parse("x", SMALL).expect("good").name, "x");
        check("\"open\"", "\"mine\"", "unknown variant `mine`, expected `open` or `check`");
        check("[\"zstd\"]", "[]", "packages: expected at least one");
        check("threads = 8", "threads = 0", "threads: expected at least 1");
        check("check =", "chek =", "unknown field `chek`");
        check("run = \"true\"\n", "", "missing field `run`");
        let file = "\n[[file]]\npath = \"a\"\ntext = \"\"\n";
        let text = format!("{SMALL}{file}");
        let error = Definition::parse("x", &text).expect_err("relative").to_string();
        assert_eq!(error, "a: expected a path of the guest that begins with /");
    }

    #[test]
    fn programs_with_files_to_replicate_name_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/replicated");
        let programs = super::super::chosen(&[], &folder).expect("all parse");
        assert!(!programs.is_empty());
        for program in programs {
            assert!(!program.replicate.is_empty(), "{}", program.name);
            assert!(program.prepare.is_some(), "{}: makes its files", program.name);
        }
        assert!(
            Definition::parse("x", &SMALL.replace("threads", "replicate = [\"a\"]\nthreads"))
                .is_err()
        );
    }

    /// The files that come along are right, and the table of halves in their README says what they
    /// say.
    #[test]
    fn the_suite_has_twelve_programs_and_its_readme_names_their_halves() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs");
        let mut names = [Vec::new(), Vec::new()];
        for definition in super::super::chosen(&[], &folder).expect("all parse") {
            names[usize::from(definition.half == Half::Check)].push(definition.name);
        }
        let [open, check] = names;
        assert!(open.len() + check.len() >= 12, "{open:?} {check:?}");
        assert!(check.len() >= open.len(), "half of them are the check: {open:?} {check:?}");
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("there");
        for (half, names) in [("open", open), ("check", check)] {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| {half} | {} |", names.join(", "));
            assert!(readme.contains(&row), "expected {row}");
        }
    }
}
