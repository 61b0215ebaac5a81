//! `./x mutants` makes one change of a clause of the safety contract at a time, in a copy of the
//! tree. It says which changes no test notices. The list is `crates/linux/tests/mutations.toml`.
//!
//! A change that does not compile is a mistake of the list; the others are tried all the same. A
//! suite that does not end in time counts as one that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::cargo;
use crate::tidy::root;

const LIST: &str = "crates/linux/tests/mutations.toml";
/// Longest time of a suite, s (our choice): some times what the longest takes on two CPUs.
const PATIENCE_S: &str = "1200";
/// Least number of CPUs: tests that move threads need as many.
const LEAST_CPUS: usize = 2;
/// What the words after it run in: processes and a `/run` of their own. Managers of this machine
/// have their ledgers there. The shell stays, to take in processes that outlive their parents.
const APART: [&str; 9] = [
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    "mount -t tmpfs none /run || exit; \"$@\"; exit $?",
];

/// Arguments of `./x mutants`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the changes with this text in their promise, their file, or what they change
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Clauses with the suites that must notice a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Arguments of `cargo test`, by name.
    suites: BTreeMap<String, String>,
    clauses: Vec<Clause>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clause {
    promise: String,
    file: String,
    suites: Vec<String>,
    /// Old and new text of each.
    mutations: Vec<[String; 2]>,
}

impl List {
    fn read() -> Result<Self> {
        let text = fs::read_to_string(root().join(LIST))
            .with_context(|| format!("{LIST}: cannot read"))?;
        toml::from_str(&text).with_context(|| format!("{LIST}: not understood"))
    }

    fn arguments(&self, suite: &str) -> Result<&String> {
        self.suites.get(suite).with_context(|| format!("{LIST}: no suite is named `{suite}`"))
    }
}

/// The text with one change.
///
/// # Errors
/// The old text does not occur once.
fn changed(file: &str, text: &str, [old, new]: &[String; 2]) -> Result<String> {
    let count = text.matches(old.as_str()).count();
    ensure!(count == 1, "{LIST}: {file}: expected once, found {count} times: {old}");
    Ok(text.replace(old.as_str(), new))
}

/// The changes with this text.
fn chosen<'a>(list: &'a List, only: &str) -> Vec<(&'a Clause, &'a [String; 2])> {
    let all = list.clauses.iter().flat_map(|clause| {
        let changes = clause.mutations.iter();
        changes.map(move |change| (clause, change))
    });
    all.filter(|(Clause { promise, file, .. }, [old, new])| {
        [promise, file, old, new].iter().any(|text| text.contains(only))
    })
    .collect()
}

/// # Errors
/// Tests that notice changes would not be tried, and pass.
fn can_notice(user: u32, cpus: usize) -> Result<()> {
    ensure!(user == 0, "user {user} is not root, and without root tests that notice are not tried");
    ensure!(cpus >= LEAST_CPUS, "{cpus} CPU for this process; expected {LEAST_CPUS} or more");
    Ok(())
}

/// `./x mutants`: fails if a change survives or cannot be tried.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // The folder of a process belongs to its effective user.
    let user = fs::metadata("/proc/self").context("/proc/self: cannot look at")?.uid();
    can_notice(user, thread::available_parallelism().map_or(1, usize::from))?;
    let list = List::read()?;
    let chosen = chosen(&list, &arguments.only);
    ensure!(!chosen.is_empty(), "--only {}: {LIST} has no such change", arguments.only);
    let workshop = Workshop::make()?;
    let suites: BTreeSet<&String> = chosen.iter().flat_map(|(clause, _)| &clause.suites).collect();
    for suite in suites {
        let passes = workshop.passes(list.arguments(suite)?)?;
        ensure!(passes, "the suite `{suite}` fails without a change: nothing can be concluded");
    }
    let mut counts = BTreeMap::<&str, [usize; 2]>::new();
    let (mut survivors, mut mistakes) = (0, Vec::new());
    for (clause, change) in chosen {
        let [old, new] = change.each_ref().map(|text| text.trim().replace('\n', " "));
        let shown = format!("{}: {old} => {new}", clause.file);
        match workshop.notices(&list, clause, change) {
            Ok(is_noticed) => {
                println!("{}: {shown}", if is_noticed { "caught" } else { "SURVIVES" });
                let [tried, caught] = counts.entry(&clause.promise).or_default();
                *tried += 1;
                *caught += usize::from(is_noticed);
                survivors += usize::from(!is_noticed);
            }
            // The others may have taken hours.
            Err(error) => {
                println!("NOT TRIED: {shown}: {error:#}");
                mistakes.push(shown);
            }
        }
    }
    for (promise, [tried, caught]) in counts {
        println!("{tried} tried, {caught} caught: {promise}");
    }
    if survivors + mistakes.len() > 0 {
        let count = mistakes.len();
        bail!("{survivors} changes survive, {count} were not tried\n{}", mistakes.join("\n"));
    }
    Ok(())
}

/// A copy of the tree, and the folder that it is built in.
struct Workshop {
    tree: PathBuf,
    build: PathBuf,
}

impl Workshop {
    /// Copies what git knows or would add. Only new files are newer than all that was built of
    /// earlier copies, so times of files are not kept.
    fn make() -> Result<Self> {
        let folder = root().join("target/mutants");
        let (tree, build) = (folder.join("tree"), folder.join("build"));
        if tree.exists() {
            fs::remove_dir_all(&tree)
                .with_context(|| format!("{}: cannot remove", tree.display()))?;
        }
        let mut git = Command::new("git");
        git.current_dir(root()).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let output = git.output().context("git: cannot run")?;
        ensure!(output.status.success(), "git ls-files fails: expected a repository of git");
        let names =
            String::from_utf8(output.stdout).context("git ls-files: a name is not UTF-8")?;
        for name in names.split_terminator('\0') {
            let (from, to) = (root().join(name), tree.join(name));
            // A file may be deleted and still be in the index.
            if from.is_file() {
                fs::create_dir_all(to.parent().expect("it is in the tree"))?;
                fs::copy(&from, &to).with_context(|| format!("{}: cannot copy", from.display()))?;
            }
        }
        Ok(Self { tree, build })
    }

    /// Whether a suite of the clause fails once the change is made. The file is as before at the
    /// end.
    fn notices(&self, list: &List, clause: &Clause, change: &[String; 2]) -> Result<bool> {
        let path = self.tree.join(&clause.file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("{}: cannot read", clause.file))?;
        fs::write(&path, changed(&clause.file, &text, change)?)?;
        let fails = |suite: &String| {
            let passes = self.passes(list.arguments(suite)?);
            passes.map(|passes| !passes).with_context(|| format!("{}: {}", clause.file, change[0]))
        };
        let mut is_noticed = Ok(false);
        for suite in &clause.suites {
            if matches!(is_noticed, Ok(false)) {
                is_noticed = fails(suite);
            }
        }
        fs::write(&path, text)?;
        is_noticed
    }

    /// Whether all tests of a suite pass, in time and apart from what else runs on this machine.
    ///
    /// # Errors
    /// It does not compile.
    fn passes(&self, suite: &str) -> Result<bool> {
        let cargo = cargo::command();
        let mut build = Command::new(cargo.get_program());
        let built = self.here(build.args(["test", "--quiet", "--no-run"]), suite).output()?;
        let told = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "it does not compile:\n{told}");
        let mut test = Command::new("timeout");
        test.args(["--kill-after", "10", PATIENCE_S]).args(APART).arg("sh");
        test.arg(cargo.get_program());
        let test = self.here(test.args(["test", "--quiet"]), suite);
        let status = test.stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(status.context("timeout: cannot run (coreutils)")?.success())
    }

    fn here<'a>(&self, command: &'a mut Command, suite: &str) -> &'a mut Command {
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build);
        command.args(suite.split_whitespace()).stdin(Stdio::null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_the_list_fits_the_code() {
        let list = List::read().unwrap();
        let mut tried = BTreeSet::new();
        for clause in &list.clauses {
            let text = fs::read_to_string(root().join(&clause.file)).unwrap();
            for change in &clause.mutations {
                assert_ne!(changed(&clause.file, &text, change).unwrap(), text);
                assert!(tried.insert((&clause.file, change)), "twice: {change:?}");
            }
            assert!(!clause.suites.is_empty());
            for suite in &clause.suites {
                list.arguments(suite).unwrap();
            }
        }
        assert!(tried.len() >= 60, "{} changes", tried.len());
    }

    #[test]
    fn a_change_is_chosen_by_its_promise_its_file_or_its_text() {
        let list = List::read().unwrap();
        let count = |only: &str| chosen(&list, only).len();
        let (clause, change) = chosen(&list, "")[0];
        assert_eq!(count(""), list.clauses.iter().map(|one| one.mutations.len()).sum::<usize>());
        for text in [&clause.promise, &clause.file, &change[0]] {
            assert!((1..count("")).contains(&count(text)), "{text}");
        }
        assert_eq!(count("no change has this text"), 0);
    }

    #[test]
    fn nothing_is_concluded_where_tests_are_not_tried() {
        assert!(can_notice(0, 2).is_ok());
        assert!(can_notice(1000, 8).unwrap_err().to_string().contains("not root"));
        assert!(can_notice(0, 1).unwrap_err().to_string().contains("expected 2 or more"));
    }

    /// It has other processes, and sees nothing of what managers of this machine have in `/run`.
    #[test]
    fn a_suite_runs_apart() {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            println!("not tried: only root may");
            return;
        }
        let run = |script: &str| {
            let mut command = Command::new(APART[0]);
            let output = command.args(&APART[1..]).args(["sh", "sh", "-c", script]).output();
            output.unwrap()
        };
        let alone = run("ls -A /run; cat /proc/1/comm; exit 7");
        let told = String::from_utf8_lossy(&alone.stderr);
        if told.contains("not permitted") || told.contains("permission denied") {
            println!("not tried: this container may not: {told}");
            return;
        }
        assert_eq!(alone.status.code(), Some(7), "{told}");
        assert_eq!(String::from_utf8_lossy(&alone.stdout), "sh\n", "{told}");
    }

    #[test]
    fn a_text_that_is_missing_or_ambiguous_is_refused() {
        let change = ["a".to_string(), "b".to_string()];
        assert_eq!(changed("file", "xay", &change).unwrap(), "xby");
        for (text, count) in [("x", 0), ("aa", 2)] {
            let error = changed("file", text, &change).unwrap_err().to_string();
            assert!(error.contains(&format!("expected once, found {count} times: a")), "{error}");
        }
    }
}
