//! Runs several of these programs at once, each as a process of its own, as on a machine with
//! several users.
//!
//! The result of each is a line that begins with `program=N `, in the given order. Other lines are
//! left out.

use std::process::{Child, Command, Stdio};

use clap::Args;

use crate::report::{Failure, Report};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The programs, each with its arguments as one word: 'crew --start 0 --seconds 2'
    #[arg(required = true)]
    programs: Vec<String>,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure(format!("own program: {error}")))?;
    let mut children: Vec<Child> = Vec::new();
    for program in &flags.programs {
        let child = Command::new(&own)
            .args(program.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => children.push(child),
            Err(error) => {
                children.iter_mut().for_each(|child| drop(child.kill()));
                return Err(Failure(format!("{program}: cannot start: {error}")));
            }
        }
    }
    let mut right = true;
    for (number, (child, program)) in children.into_iter().zip(&flags.programs).enumerate() {
        let output =
            child.wait_with_output().map_err(|error| Failure(format!("{program}: {error}")))?;
        right &= output.status.success();
        let text = String::from_utf8_lossy(&output.stdout);
        let ends = text.lines().find_map(|line| line.strip_prefix("round_ends_s="));
        let last = text.lines().last().unwrap_or("result=none");
        println!("program={number} ends_s={} {last}", ends.unwrap_or_default());
    }
    Ok(Report::new("mix").pair("programs", flags.programs.len()).check("programs", right))
}
