//! Stages side by side that leave a core free: one thread of the emulator is a whole guest, and
//! tests wait much.
//!
//! Each runs in a process of its own, `./x test --stage NAME`. Its standard output is shown in one
//! piece at its end, its standard error line by line as it comes.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::{Tally, ended, guarded};
use crate::times::Times;
use crate::trusted::Trusted;

/// Stages at a time on a machine with more cores (our choice). Free memory is not looked at here; a
/// machine of the lab takes up to 2.5 GB.
const MOST_LANES: usize = 2;
/// Beginning of the line in which a stage's process tells what it counted.
const COUNTED: &str = "counted ";

/// A stage with its number and the number of all, as its header shows them.
pub(super) type Numbered = (String, &'static str);

/// Runs stages side by side, the first ones first. Returns what all of them counted.
pub(super) fn run(stages: Vec<Numbered>, times: &Times) -> Result<Tally> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let lanes = cores.min(MOST_LANES).min(stages.len());
    let queue = Mutex::new(VecDeque::from(stages));
    let total = Mutex::new(Tally::default());
    let lane = || -> Result<()> {
        let next = || queue.lock().expect("no lane panics with the queue").pop_front();
        while let Some((number, name)) = next() {
            eprintln!("{number} {name} …");
            let started = Instant::now();
            let (tally, text) = times.stage(name, || Ok(in_process(&number, name)))?;
            let mut total = total.lock().expect("no lane panics with the total");
            println!("{number} {name}\n{text}{}", ended(&tally, started));
            total.add(tally);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane panicked"))
    })?;
    Ok(total.into_inner().expect("no lane panicked"))
}

/// Runs a stage in a process of its own. Returns its counts and output; a process that says nothing
/// of its counts is one failure.
fn in_process(number: &str, name: &str) -> (Tally, String) {
    let output = start(name).and_then(|child| follow(child, number));
    match output {
        Ok(text) => split(&text),
        Err(error) => (Tally::one(false), format!("error: {error:#}\n")),
    }
}

fn start(name: &str) -> Result<Child> {
    // Not by its path: a new build may be there by now.
    let mut command = Command::new("/proc/self/exe");
    command.args(["test", "--stage", name]).args(Trusted::words());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("{name}: cannot start its process"))
}

/// Passes standard error on, each line behind the stage's number. Returns standard output.
fn follow(mut child: Child, number: &str) -> Result<String> {
    let errors = BufReader::new(child.stderr.take().expect("was piped"));
    let mut output = child.stdout.take().expect("was piped");
    let text = thread::scope(|scope| {
        scope.spawn(|| {
            errors.lines().map_while(Result::ok).for_each(|line| eprintln!("{number} {line}"));
        });
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    child.wait().context("cannot wait for a stage's process")?;
    text.context("cannot read what a stage's process says")
}

/// What a stage's process counted, and what it said before.
fn split(text: &str) -> (Tally, String) {
    let counted = text.trim_end().rsplit('\n').next().and_then(|line| line.strip_prefix(COUNTED));
    let tally = counted.and_then(|json| serde_json::from_str(json).ok());
    let said = text.lines().filter(|line| !line.starts_with(COUNTED));
    let said = said.map(|line| line.to_owned() + "\n").collect();
    (tally.unwrap_or_else(|| Tally::one(false)), said)
}

/// The stage's process itself: runs the stage and tells its counts in the last line.
pub(super) fn be(stage: fn() -> Result<Tally>) -> Result<()> {
    println!("{COUNTED}{}", serde_json::to_string(&guarded(stage))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(script: &str) -> (Tally, String) {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let text = follow(shell.spawn().expect("sh runs"), "[1/1]").expect("readable");
        split(&text)
    }

    #[test]
    fn a_stage_tells_what_it_counted_after_what_it_says() {
        let tally = Tally { passed: 3, failed: 1, not_tried: vec!["perf: too old".to_owned()] };
        let json = serde_json::to_string(&tally).expect("plain data");
        let script = format!("echo one; echo err >&2; echo two; echo '{COUNTED}{json}'");
        assert_eq!(told(&script), (tally, "one\ntwo\n".to_owned()));
    }

    #[test]
    fn a_process_that_ends_before_it_counts_is_a_failure() {
        assert_eq!(told("echo one; kill -KILL $$"), (Tally::one(false), "one\n".to_owned()));
        assert_eq!(told("true"), (Tally::one(false), String::new()));
    }
}
