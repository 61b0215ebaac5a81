//! The commit that a file of the swarm's results is of. It is written beside the file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::simulated::head;

/// Refuses results of another commit than the checkout's.
///
/// # Errors
/// They are of another commit, or their commit cannot be written or read.
pub(crate) fn same_build(results: &Path) -> Result<()> {
    same(results, &head()?)
}

fn same(results: &Path, head: &str) -> Result<()> {
    let is_begun = results.exists();
    let built = began(results, head)?;
    ensure!(
        built == head,
        "{}: results of commit {built}, and this is {head}; name a new file, or check out {built}",
        results.display()
    );
    ensure!(
        !is_begun || !head.ends_with("-dirty"),
        "{}: results of an uncommitted state, which may have changed since; commit, or name a new \
         file",
        results.display()
    );
    Ok(())
}

/// The commit of a file of results. It is written beside the file when the results begin.
fn began(results: &Path, head: &str) -> Result<String> {
    let mut path = results.as_os_str().to_owned();
    path.push(".commit");
    if !results.exists() {
        fs::write(&path, head).with_context(|| path.display().to_string())?;
    }
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{}: expected the commit that the results beside it are of", path.display())
    })?;
    Ok(text.trim().to_string())
}

/// A line of a file of results.
#[derive(Deserialize)]
struct Line {
    result: Numbered,
}

#[derive(Deserialize)]
struct Numbered {
    seed: u64,
}

/// Whether a file has the results of all these seeds.
fn holds_all(results: &Path, seeds: u64, from: u64) -> Result<bool> {
    let text = fs::read_to_string(results).with_context(|| results.display().to_string())?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let held: BTreeSet<u64> = lines.map(|line| line.result.seed).collect();
    Ok((0..seeds).all(|number| held.contains(&from.wrapping_add(number))))
}

/// The commit for a page of these results. Results of another commit are published if they are
/// complete; no case is added to them.
pub(super) fn published_commit(
    kept: Option<&Path>,
    seeds: u64,
    from: u64,
    head: &str,
) -> Result<String> {
    let Some(results) = kept else { return Ok(head.to_string()) };
    let is_begun = results.exists();
    let built = began(results, head)?;
    if is_begun && !holds_all(results, seeds, from)? {
        same(results, head)?;
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_belong_to_the_commit_that_began_them() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        assert_eq!(began(&results, "abcdef1").unwrap(), "abcdef1");
        fs::write(&results, "").unwrap();
        assert_eq!(began(&results, "1234567").unwrap(), "abcdef1");
        assert!(same(&results, "abcdef1").is_ok());
        let told = same(&results, "1234567").unwrap_err().to_string();
        let expected = "results: results of commit abcdef1, and this is 1234567; name a new file, \
                        or check out abcdef1";
        assert!(told.ends_with(expected), "{told}");
        fs::remove_file(folder.path().join("results.commit")).unwrap();
        assert!(began(&results, "1234567").is_err());
    }

    #[test]
    fn results_of_another_commit_are_published_only_if_no_case_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        let commit = |seeds, head| published_commit(Some(&results), seeds, 5, head);
        assert_eq!(commit(2, "abcdef1").unwrap(), "abcdef1");
        let line =
            |seed: u64| format!("{{\"format\":2,\"result\":{{\"seed\":{seed},\"steps\":1}}}}\n");
        fs::write(&results, line(6) + &line(5)).unwrap();
        assert_eq!(commit(2, "1234567").unwrap(), "abcdef1");
        assert!(commit(3, "1234567").is_err());
        assert_eq!(commit(3, "abcdef1").unwrap(), "abcdef1");
    }

    #[test]
    fn results_of_an_uncommitted_state_are_not_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        assert!(same(&results, "abcdef1-dirty").is_ok());
        fs::write(&results, "").unwrap();
        assert!(same(&results, "abcdef1-dirty").is_err());
        assert!(published_commit(Some(&results), 2, 5, "abcdef1-dirty").is_err());
    }
}
