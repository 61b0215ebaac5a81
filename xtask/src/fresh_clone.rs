//! The README's first command as a stranger runs it: in a fresh clone, with no cache, no build and
//! no settings.
//!
//! The commands are read out of README.md, so the stage tests what the README says. Only cargo's
//! own folders are shared with the user: the README asks for an installed Rust.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::lab;
use crate::setup::system::free_bytes;
use crate::test::Tally;
use crate::tidy::root;

/// Option of the demonstration's shortest form.
const QUICK: &str = " --quick";
/// Disk space for the clone, its build and its cache (measured: 1.2 GB).
const SPACE_BYTES: u64 = 2_500_000_000;
/// Variables for the site's network access and tool folders, which a stranger has too.
const SITE: [&str; 12] = [
    "PATH",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
/// Prefixes of cargo's variables of the same kind.
const SITE_PREFIXES: [&str; 4] =
    ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_SOURCE_"];

/// Git's settings for a repository of another user, as in containers and continuous integration.
const GIT_SETTINGS: &str = "[safe]\n\tdirectory = *\n";

/// The stage of `./x test`.
pub(crate) fn test() -> Result<Tally> {
    try_in_clone(&root(), lab::take_parts)
}

/// Clones the repository's `HEAD` and runs the quick form of the README's first command in it.
/// Checks the output, and that the command leaves nothing except its cache. `take_parts` gets the
/// folder of the lab's parts, if they come from the same sources as the repository's.
fn try_in_clone(repository: &Path, take_parts: impl FnOnce(&Path) -> Result<()>) -> Result<Tally> {
    let readme = read(&repository.join("README.md"))?;
    let first = commands(&readme).into_iter().next().context("README.md: no command in it")?;
    let folder = tempfile::Builder::new().prefix("rondpoint-clone-").tempdir()?;
    let free = free_bytes(folder.path())?;
    if free < SPACE_BYTES {
        bail!(
            "{}: {} MB are free and {} MB are needed for a fresh clone; TMPDIR names another folder",
            folder.path().display(),
            free / 1_000_000,
            SPACE_BYTES / 1_000_000
        );
    }
    let (clone, home) = (folder.path().join("rondpoint"), folder.path().join("home"));
    fs::create_dir(&home).with_context(|| format!("{}: cannot create", home.display()))?;
    let git = Git { settings: folder.path().join("gitconfig") };
    fs::write(&git.settings, GIT_SETTINGS)
        .with_context(|| format!("{}: cannot write", git.settings.display()))?;
    git.clone_head(repository, &clone)?;
    let stranger = Stranger { clone: clone.clone(), environment: environment(&home)? };
    let (succeeded, text) = stranger.run(&(first.clone() + QUICK))?;
    print!("{text}");
    let mut tally = check("it succeeds", succeeded);
    if !succeeded {
        return Ok(tally);
    }
    for word in ["first-touch", "interleave", "rondpoint", "Over the whole run"] {
        tally.add(check(&format!("it says \"{word}\""), text.contains(word)));
    }
    // The runs are in the cache, so this takes a moment.
    let (succeeded, text) = stranger.run(&(first + QUICK + " --json"))?;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let sentences = report["closing"]["sentences"].as_array().map_or(0, Vec::len);
    tally.add(check("standard output is the report as JSON", succeeded && sentences > 0));
    tally.add(check("the clone is as it was", git.status(&clone)?.is_empty()));
    let left = files_in(&home, 2)?;
    let expected = [".cache/rondpoint"].map(PathBuf::from);
    tally.add(check(&format!("it leaves {expected:?} at home: {left:?}"), left == expected));
    if tally.is_whole() && git.status(repository)?.is_empty() {
        take_parts(&clone.join("target/lab"))?;
    }
    Ok(tally)
}

/// A user with a clone and an environment of its own.
struct Stranger {
    clone: PathBuf,
    environment: Vec<(String, String)>,
}

impl Stranger {
    /// Runs a line of shell in the clone. Returns whether it succeeds and its standard output.
    fn run(&self, line: &str) -> Result<(bool, String)> {
        println!("$ {line}");
        let started = Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.clone).stdin(Stdio::null());
        shell.env_clear().envs(self.environment.iter().cloned()).stdout(Stdio::piped());
        let child = shell.spawn().context("sh: cannot run")?;
        let output = child.wait_with_output().context("sh: cannot wait for it")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{line}: {} in {:.0} s", output.status, started.elapsed().as_secs_f64());
        Ok((output.status.success(), text))
    }
}

/// Counts one check, and prints it if it fails.
fn check(what: &str, holds: bool) -> Tally {
    if !holds {
        println!("FAILED: {what}");
    }
    Tally::one(holds)
}

/// Commands in the first block of shell in `readme`, without comments.
fn commands(readme: &str) -> Vec<String> {
    let lines = readme.lines().skip_while(|line| line.trim() != "```sh").skip(1);
    let block = lines.take_while(|line| line.trim() != "```");
    let command = |line: &str| {
        let command = line.split(" #").next().unwrap_or_default().trim();
        (!command.is_empty() && !command.starts_with('#')).then(|| command.to_owned())
    };
    block.filter_map(command).collect()
}

/// Git with [`GIT_SETTINGS`] instead of the user's settings.
struct Git {
    settings: PathBuf,
}

impl Git {
    fn clone_head(&self, repository: &Path, clone: &Path) -> Result<()> {
        let output = self.command().args(["clone", "--quiet"]).arg(repository).arg(clone).output();
        let output = output.context("git: cannot run")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("git: cannot clone {}: {}", repository.display(), said.trim());
        }
        Ok(())
    }

    /// Output of `git status`: changed and new files.
    fn status(&self, clone: &Path) -> Result<String> {
        let output = self.command().current_dir(clone).args(["status", "--porcelain"]).output();
        Ok(String::from_utf8_lossy(&output.context("git: cannot run")?.stdout).into_owned())
    }

    fn command(&self) -> Command {
        let mut git = Command::new("git");
        git.env("GIT_CONFIG_GLOBAL", &self.settings);
        git
    }
}

/// The environment of a stranger with the home `home`.
fn environment(home: &Path) -> Result<Vec<(String, String)>> {
    let user = env::var("HOME").context("HOME: not set")?;
    let is_site = |name: &str| {
        SITE.contains(&name) || SITE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut variables: Vec<(String, String)> =
        env::vars_os().filter_map(text).filter(|(name, _)| is_site(name)).collect();
    variables.push(("HOME".to_owned(), home.display().to_string()));
    for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let shared = env::var(name).unwrap_or_else(|_| format!("{user}/{folder}"));
        variables.push((name.to_owned(), shared));
    }
    Ok(variables)
}

/// Relative paths of files and folders beneath `folder`, down to a depth.
fn files_in(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("{}: cannot list", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if entry.file_type()?.is_dir() && depth > 1 {
            let inner = files_in(&entry.path(), depth - 1)?;
            found.extend(inner.into_iter().map(|path| name.join(path)));
        } else {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{}: cannot read", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn commands_are_read_without_their_comments() {
        let readme = "# Name\n```text\n./x no\n```\n\n```sh\n./x demo      # shows\n# only this\n\n./x test\n```\n```sh\n./x later\n```\n";
        assert_eq!(commands(readme), ["./x demo", "./x test"]);
        assert!(commands("nothing").is_empty());
    }

    #[test]
    fn the_readme_names_the_demonstration_and_what_continuous_integration_runs() {
        let readme = read(&root().join("README.md")).expect("README.md");
        let commands = commands(&readme);
        assert_eq!(commands[0], "./x demo");
        let script = read(&root().join(".ci/run")).expect(".ci/run");
        let line = script.lines().find_map(|line| line.strip_prefix("exec ")).expect("one command");
        let arguments = line.split_once("/x\" ").expect("it is ./x").1;
        let arguments = arguments.strip_suffix("\"$@\"").unwrap_or(arguments).trim();
        assert_eq!(commands[1], format!("./x {arguments}"));
    }

    #[test]
    fn a_stranger_has_a_home_of_its_own_and_no_settings_of_ours() {
        let environment = environment(Path::new("/nowhere")).expect("HOME is set");
        let value = |name: &str| {
            let pair = environment.iter().find(|(found, _)| found == name);
            pair.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("HOME"), Some("/nowhere"));
        assert!(value("CARGO_HOME").is_some_and(|folder| !folder.starts_with("/nowhere")));
        assert_eq!(value("PATH"), env::var("PATH").ok().as_deref());
        // Cargo sets this one for the test.
        assert_eq!(value("CARGO_MANIFEST_DIR"), None);
        assert_eq!((value("CARGO_TARGET_DIR"), value("RONDPOINT_CACHE")), (None, None));
    }

    /// A repository with this script as its `x`, tried as a stranger would.
    fn tried(script: &str) -> Tally {
        tried_in(script, "#!/bin/sh\nexit 1\n").0
    }

    /// The same with `changed` as its `x` that is not committed. Also whether the clone's parts are
    /// taken over.
    fn tried_in(script: &str, changed: &str) -> (Tally, bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        fs::write(file("README.md"), "```sh\n./x demo   # shows\n```\n").expect("writes");
        fs::write(file("x"), format!("#!/bin/sh\n{script}\n")).expect("writes");
        fs::set_permissions(file("x"), fs::Permissions::from_mode(0o755)).expect("sets the mode");
        for words in ["init --quiet", "add .", "commit --quiet --message=x"] {
            let mut git = Command::new("git");
            git.current_dir(folder.path()).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
            git.env("GIT_CONFIG_GLOBAL", "/dev/null");
            assert!(git.args(words.split(' ')).status().expect("git runs").success(), "{words}");
        }
        // Changes that are not committed are no part of the clone.
        fs::write(file("x"), changed).expect("writes");
        let mut taken = false;
        let take = |_: &Path| {
            taken = true;
            Ok(())
        };
        let tally = try_in_clone(folder.path(), take).expect("tries");
        (tally, taken)
    }

    fn tally(passed: u64, failed: u64) -> Tally {
        let mut all = Tally::default();
        (0..passed).for_each(|_| all.add(Tally::one(true)));
        (0..failed).for_each(|_| all.add(Tally::one(false)));
        all
    }

    const HONEST: &str = r#"[ "$1 $2" = "demo --quick" ] || exit 2
        mkdir -p "$HOME/.cache/rondpoint"
        case "$3" in
        --json) echo '{"closing": {"sentences": ["Over the whole run"]}}' ;;
        *) echo 'first-touch interleave rondpoint Over the whole run' ;;
        esac"#;

    #[test]
    fn a_command_that_needs_no_knowledge_passes() {
        assert_eq!(tried(HONEST), tally(8, 0));
    }

    #[test]
    fn parts_are_taken_over_if_they_work_and_have_the_same_sources() {
        let unchanged = |script: &str| format!("#!/bin/sh\n{script}\n");
        assert!(tried_in(HONEST, &unchanged(HONEST)).1);
        assert!(!tried_in(HONEST, "#!/bin/sh\nexit 1\n").1, "other sources");
        let fails = HONEST.replace("interleave", "autonuma");
        assert!(!tried_in(&fails, &unchanged(&fails)).1);
    }

    #[test]
    fn each_thing_that_a_stranger_would_have_to_know_fails() {
        assert_eq!(tried(&format!("{HONEST}; exit 1")), tally(0, 1));
        let needs_a_setting = format!("[ -n \"$CARGO_MANIFEST_DIR\" ] || exit 1; {HONEST}");
        assert_eq!(tried(&needs_a_setting), tally(0, 1));
        assert_eq!(tried(&format!("{HONEST}; touch \"$HOME/.rondpoint\"")), tally(7, 1));
        assert_eq!(tried(&format!("{HONEST}; touch built")), tally(7, 1));
        assert_eq!(tried(&format!("echo fetching; {HONEST}")), tally(7, 1));
        assert_eq!(tried(&HONEST.replace("interleave", "autonuma")), tally(7, 1));
    }

    #[test]
    fn what_is_left_is_listed_to_a_depth() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join(".cache/rondpoint/results")).expect("creates");
        fs::write(folder.path().join(".profile"), "").expect("writes");
        let found = files_in(folder.path(), 2).expect("lists");
        assert_eq!(found, [".cache/rondpoint", ".profile"].map(PathBuf::from));
    }
}
