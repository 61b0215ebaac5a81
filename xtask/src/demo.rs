//! `./x demo`: the lab's demonstration in one command. It is the lab's; this builds and hands over.
//! With `--times` it waits for the lab, to write the time of the whole.

use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context as _, Result, bail};

use crate::lab;
use crate::times::Times;

/// Arguments of `./x demo`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of rondpoint-lab demo (--quick, --json, --times FILE, …); --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Shown before the first build, which leaves the time to read it.
const INTRODUCTION: &str = "\
Rondpoint's demonstration: programs on an emulated machine with four memory nodes.

What you will see: Linux puts a page on the node of the thread that first touches it. Where one
  thread prepares the data of all, all later accesses go to one memory controller: a jam. Rondpoint
  sees that while the program runs, and moves pages. Its rivals: interleave spreads all pages from
  the start, autonuma is the kernel's own balancing, numad a daemon.
How to read it: speed is relative to first touch, so 2.00 is twice as fast. The first number is the
  whole run, with the time that a placement needs to act. The second is the last third of the work.
  relief is the time from the start of the jam to Rondpoint's first action that stayed.
  The last lines say which placement is fastest, whichever that is.
All figures are emulated: they are the claim of a model, and no measurement of real hardware.
";

/// Sets up and builds missing parts, then becomes `rondpoint-lab demo`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let own = arguments.arguments.iter().map(String::as_str);
    let (times, own) = without_times(own)?;
    let words: Vec<&str> = ["demo"].into_iter().chain(own).collect();
    if !lab::asks_for_help(&words) {
        eprintln!("{INTRODUCTION}");
    }
    if times.is_none() {
        return lab::become_runner(&words);
    }
    let times = Times::begin(times.map(Path::new), &format!("./x {}", words.join(" ")))?;
    let status = lab::run_timed(&words, &times);
    times.end(status.as_ref().is_ok_and(ExitStatus::success))?;
    match status?.success() {
        true => Ok(()),
        false => bail!("the demonstration failed"),
    }
}

/// The value of `--times` among the words, and the other words.
fn without_times<'a>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<(Option<&'a str>, Vec<&'a str>)> {
    let (mut file, mut others) = (None, Vec::new());
    while let Some(word) = words.next() {
        match word.strip_prefix("--times") {
            Some("") => file = Some(words.next().context("--times: expected a file")?),
            Some(rest) if rest.starts_with('=') => file = Some(&rest[1..]),
            _ => others.push(word),
        }
    }
    Ok((file, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_times_is_found_wherever_it_stands() {
        let split = |line: &'static str| without_times(line.split(' ')).expect("is read");
        let expected = (Some("f"), vec!["--quick", "--json"]);
        assert_eq!(split("--quick --times f --json"), expected);
        assert_eq!(split("--times=f --quick --json"), expected);
        assert_eq!(split("--timestamps"), (None, vec!["--timestamps"]));
        assert!(without_times(["--times"].into_iter()).is_err());
    }
}
