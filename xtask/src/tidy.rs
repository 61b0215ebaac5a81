//! What the boundaries forbid, checked on the repository's text: `./x tidy`, and a test of `cargo
//! test`.
//!
//! Each rule is a function from the files to complaints; a complaint names file, line and what was
//! expected. The compiler and clippy hold the rest (purity of the core, length of functions).

mod comments;
mod crates;
mod modules;
mod prose;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A file of the repository.
pub(crate) struct SourceFile {
    /// Path from the repository's root, with `/`.
    path: String,
    text: String,
}

impl SourceFile {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// A violation of a rule, as text with file and line.
pub(crate) type Complaint = String;

/// One rule: every complaint about all files.
type Rule = fn(&[SourceFile]) -> Vec<Complaint>;

/// Every rule, in the order of ARCHITECTURE.md.
const RULES: [Rule; 21] = [
    crates::the_core_is_pure,
    crates::edges_are_the_design_s,
    crates::manifests_have_licence_and_lints,
    crates::licence_texts_are_there,
    modules::the_core_has_no_import_circle,
    text::unsafe_stays_in_its_rooms,
    text::files_are_short,
    text::comments_are_no_wider_than_code,
    text::rust_files_say_what_they_are_for,
    text::module_names_are_nouns,
    text::c_files_name_their_licence,
    text::no_host_and_no_home,
    text::to_do_notes_have_an_owner,
    text::tests_are_neither_ignored_nor_named_test,
    comments::sentences_of_comments_are_short,
    prose::sentences_are_short,
    prose::documents_name_no_commit,
    prose::links_lead_somewhere,
    prose::named_tests_are_there,
    crate::results::results_are_what_their_json_says,
    crate::results::screens_are_what_their_json_says,
];

/// `./x tidy`: prints every complaint.
pub(crate) fn run() -> Result<()> {
    let complaints = complaints(&repository()?);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!("{} complaints", complaints.len());
    }
    println!("tidy: {} rules, no complaint", RULES.len());
    Ok(())
}

fn complaints(files: &[SourceFile]) -> Vec<Complaint> {
    RULES.iter().flat_map(|rule| rule(files)).collect()
}

/// The repository's root: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    // Cargo sets this variable when it runs the program. The built-in value may be another clone's,
    // because clones that share a target folder share the program.
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built_in);
    Path::new(&own).parent().expect("xtask lies in the repository").to_owned()
}

/// Every text file of the repository, sorted by path, without built or hidden files.
fn repository() -> Result<Vec<SourceFile>> {
    let root = root();
    let mut files = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("{}: cannot list", folder.display()))?
        {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            // In a linked work tree `.git` is a file.
            if matches!(name.as_str(), "target" | ".git" | ".cache") {
                continue;
            }
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path
                    .strip_prefix(&root)
                    .expect("lies below the root")
                    .to_string_lossy()
                    .into_owned();
                files.push(SourceFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let complaints = complaints(&repository().unwrap());
        assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
    }
}
