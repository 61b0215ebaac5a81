//! Puts into the program what `rondpoint --version` says: the release, the commit and the target.
//!
//! The commit comes from `RONDPOINT_COMMIT` where that is set, even to nothing, else from git.
//! Without either, as in an unpacked archive, the version names the target only.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RONDPOINT_COMMIT");
    let commit = match env::var("RONDPOINT_COMMIT") {
        Ok(commit) => Some(commit),
        Err(_) => commit_of_git(),
    };
    let commit = commit.filter(|commit| !commit.is_empty());
    let release = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let target = env::var("TARGET").expect("cargo sets it");
    let of_commit = commit.map(|commit| format!("commit {commit}, ")).unwrap_or_default();
    println!("cargo::rustc-env=RONDPOINT_VERSION={release} ({of_commit}{target})");
}

/// The commit that is checked out, and a rebuild as soon as another one is.
fn commit_of_git() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let file = git(&["rev-parse", "--path-format=absolute", "--git-path", name])?;
        // A file that is not there would mean a rebuild each time.
        if std::path::Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    Some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
