//! The commit that programs and pages of results are built from.

use std::path::Path;
use std::process::Command;

use crate::tidy::root;

/// Folder of published results. It differs from the commit as soon as one page is written.
const RESULTS: &str = "docs/results";

/// The checkout's commit, with the mark `-dirty` if a file outside [`RESULTS`] differs from it.
/// `None` without git.
pub(crate) fn commit() -> Option<String> {
    commit_of(&root())
}

fn commit_of(checkout: &Path) -> Option<String> {
    let git = |words: &[&str]| Command::new("git").current_dir(checkout).args(words).output().ok();
    let name =
        git(&["rev-parse", "--short=12", "HEAD"]).filter(|output| output.status.success())?;
    let name = String::from_utf8_lossy(&name.stdout).trim().to_owned();
    let others = format!(":(exclude){RESULTS}");
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ".", &others];
    let is_clean = git(&status).is_some_and(|output| output.stdout.is_empty());
    Some(if is_clean { name } else { format!("{name}-dirty") })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_changed_file_marks_the_commit_and_a_page_of_results_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(folder.path()).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            assert!(command.args(words).output().unwrap().status.success(), "git {words:?}");
        };
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        git(&["init", "--quiet"]);
        assert_eq!(commit_of(folder.path()), None, "there is no commit yet");
        put("source", "1");
        put("docs/results/page.json", "1");
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "one"]);
        let clean = commit_of(folder.path()).unwrap();
        assert!(clean.len() == 12 && clean.bytes().all(|b| b.is_ascii_hexdigit()), "{clean}");
        put("docs/results/page.json", "2");
        assert_eq!(commit_of(folder.path()).as_ref(), Some(&clean));
        put("source", "2");
        assert_eq!(commit_of(folder.path()), Some(format!("{clean}-dirty")));
    }
}
