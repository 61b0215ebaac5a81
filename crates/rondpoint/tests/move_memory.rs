//! `rondpoint move`, as its user starts it, on the machine that runs the tests.

use std::process::{Child, Command, Output, Stdio};

fn output(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program that waits until it is killed.
struct Target(Child);

impl Target {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("sleep is there"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_cannot_be_moved_is_refused_before_anything_is() {
    let target = Target::start();
    let pid = target.pid();
    let refuse = |arguments: &[&str], expected: &str| {
        let found = output(&[&["move"], arguments].concat());
        assert_eq!(found.status.code(), Some(2), "{arguments:?}: {}", errors(&found));
        assert!(errors(&found).contains(expected), "{arguments:?}: {}", errors(&found));
        assert_eq!(found.stdout, b"");
    };
    refuse(&["--pid", &pid], "--from <NODES>");
    refuse(&["--pid", &pid, "--from", "0", "--to", "x"], "--to: `x`: expected nodes such as");
    refuse(&["--pid", &pid, "--from", "999", "--to", "0"], "node 999: no such node with memory");
    refuse(&["--pid", &pid, "--from", "0", "--to", "0"], "no node's memory would go to another");
    refuse(&["--pid", &pid, "--from", "0", "--to", "0", "--limit", "x"], "expected bytes such as");
    refuse(&["--pid", &pid, "--from", "0", "--to", "0", "--workers", "0"], "--workers");
    let nobody = output(&["move", "--pid", "name:no such name", "--from", "0", "--to", "0"]);
    assert!(!nobody.status.success());
    assert!(errors(&nobody).contains("name:no such name: no such process"), "{}", errors(&nobody));
}
