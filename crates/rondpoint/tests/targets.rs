//! `rondpoint attach` and `move` with programs as their users call them.

#[path = "harness/executable.rs"]
mod executable;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use executable::install;

/// A program that sleeps, under a name of its own.
struct Sleeper(Child);

impl Sleeper {
    fn start(folder: &Path, name: &str, seconds: &str) -> Self {
        let path = folder.join(name);
        if !path.exists() {
            install("/bin/sleep", &path);
        }
        let child = Command::new(&path).arg(seconds).spawn().expect("it starts");
        // It has its name when it has become the program.
        let comm = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&comm).is_ok_and(|text| text.trim() != name) {
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rondpoint(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(words).stdin(Stdio::null()).output().expect("it starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_name_of_one_process_is_that_process_and_one_of_two_is_refused_with_both() {
    let folder = tempfile::tempdir().expect("a folder");
    // At most 15 bytes, and of this test alone.
    let name = format!("rp-{}", std::process::id());
    let first = Sleeper::start(folder.path(), &name, "600");
    let moved = |target: &str| {
        rondpoint(&["move", "--pid", target, "--from", "all", "--to", "+0", "--dry-run", "--json"])
    };
    let found = moved(&name);
    // On a machine with one node there is nothing that could go to another.
    let refused = errors(&found).contains("no node's memory would go to another");
    assert!(found.status.success() || refused, "{}", errors(&found));
    let second = Sleeper::start(folder.path(), &name, "600");
    for output in [moved(&format!("name:{name}")), rondpoint(&["attach", "--dry-run", &name])] {
        let errors = errors(&output);
        let both = format!("{}, {}", first.0.id(), second.0.id());
        let other = format!("{}, {}", second.0.id(), first.0.id());
        assert!(errors.contains(&both) || errors.contains(&other), "{errors}");
        assert!([Some(2), Some(125)].contains(&output.status.code()), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn a_program_is_attached_by_its_name_until_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("ra-{}", std::process::id());
    let _program = Sleeper::start(folder.path(), &name, "1");
    let found = rondpoint(&["attach", "--dry-run", &name]);
    assert!(found.status.success(), "{}", errors(&found));
    assert!(errors(&found).contains("rondpoint"), "{}", errors(&found));
}
