//! Runs a command that says nothing about its progress, and looks at what it does meanwhile.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Pause between two calls of `look`.
const PAUSE: Duration = Duration::from_millis(200);

/// The output of `command`; calls `look` a few times a second until it ends.
pub(crate) fn watched(command: &mut Command, mut look: impl FnMut()) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("{program}: cannot run"))?;
    let (end, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || end.send(child.wait_with_output()));
        loop {
            match ended.recv_timeout(PAUSE) {
                Ok(output) => return output.with_context(|| format!("{program}: cannot wait")),
                Err(_) => look(),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_looked_at_until_it_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("go");
        let mut command = Command::new("sh");
        // Ends only after the first look.
        command.args(["-c", "until [ -e go ]; do :; done; echo out; echo err >&2; exit 3"]);
        let mut looks = 0;
        let output = watched(command.current_dir(folder.path()), || {
            looks += 1;
            std::fs::write(&file, "").expect("writes");
        });
        let output = output.expect("runs");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(output.status.code(), Some(3));
        assert!(looks > 0);
        let message = watched(&mut Command::new("/nonexistent"), || {}).expect_err("is not there");
        assert_eq!(message.to_string(), "/nonexistent: cannot run");
    }
}
