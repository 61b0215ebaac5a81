//! Processes that the lab started end with it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long the program would go on by itself.
const LIFE: Duration = Duration::from_secs(120);

/// A shell in the place of the lab, and a program that holds the pipe on which the test listens.
const PARENT: &str = r#""$0" leashed --parent $$ -- sh -c "echo there; exec sleep $1" & wait"#;

#[test]
fn a_program_ends_with_its_starter_whatever_the_signal() {
    // Not SIGINT: a shell that runs the tests in the background has it ignored, and a shell cannot
    // undo that.
    for signal in [Signal::TERM, Signal::KILL] {
        let mut parent = Command::new("sh")
            .args(["-c", PARENT, env!("CARGO_BIN_EXE_rondpoint-lab"), &LIFE.as_secs().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh is there");
        let mut output = BufReader::new(parent.stdout.take().expect("was piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a pipe");
        assert_eq!(line, "there\n");
        let begin = Instant::now();
        kill_process(Pid::from_child(&parent), signal).expect("it runs");
        // The pipe ends when both holders of its other end have ended: the shell, and the program.
        output.read_to_end(&mut Vec::new()).expect("a pipe");
        assert!(begin.elapsed() < LIFE / 2, "{signal:?}");
        parent.wait().expect("it has ended");
    }
}

#[test]
fn a_program_whose_starter_has_ended_is_not_begun() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint-lab"));
    let found = command.args(["leashed", "--parent", "1", "--", "echo", "begun"]).output();
    let found = found.expect("it starts");
    assert_eq!((found.status.code(), found.stdout.as_slice()), (Some(2), &b""[..]));
    let errors = String::from_utf8_lossy(&found.stderr).into_owned();
    assert!(errors.contains("process 1 has ended"), "{errors}");
}
