//! Measures the time that each of several movers needs for the same pages between the same nodes.
//! The movers take turns.
//!
//! The built-in mover is one call of `move_pages(2)` for all pages from one thread, without the
//! cost of starting a program. Each line of the result is one mover in one round. After each turn
//! the content is checked, and the pages go the other way next time.

use std::process::Command;
use std::time::Instant;

use clap::Args;

use crate::flags::{Memory, Seed};
use crate::nodes::cpus_of_node;
use crate::pages::{Pages, page_bytes};
use crate::random::mix;
use crate::report::{Failure, Report};
use crate::system;

/// A huge page of x86-64.
const HUGE_BYTES: usize = 2 << 20;
/// The name of the built-in mover.
const BY_HAND: &str = "move_pages";

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    /// The two nodes
    #[arg(long, num_args = 2, default_values_t = [0, 1])]
    nodes: Vec<u32>,
    /// Turns of each mover
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// A mover: NAME=COMMAND, where {pid}, {from} and {to} are replaced; may be repeated
    #[arg(long, value_parser = mover)]
    mover: Vec<(String, String)>,
}

fn mover(text: &str) -> Result<(String, String), String> {
    let pair =
        text.split_once('=').filter(|(name, command)| !name.is_empty() && !command.is_empty());
    let (name, command) = pair.ok_or("expected NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let own = system::allowed_cpus()?;
    system::run_on(&cpus_of_node(flags.nodes[0])?)?;
    let mut words = Pages::<u64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let value = |index: usize| mix(flags.seed.seed ^ index as u64);
    words.iter_mut().enumerate().for_each(|(index, word)| *word = value(index));
    system::run_on(&own)?;
    let stride = if flags.memory.no_huge_pages { page_bytes() } else { HUGE_BYTES };
    let by_hand = [(BY_HAND.to_owned(), String::new())];
    let mut right = true;
    let (mut from, mut to) = (flags.nodes[0], flags.nodes[1]);
    for round in 0..flags.rounds {
        for (name, command) in by_hand.iter().chain(&flags.mover) {
            let before = words.pages_elsewhere(from)?;
            let begin = Instant::now();
            match command.as_str() {
                "" => words.move_to(to, stride)?,
                command => start(command, from, to)?,
            }
            let seconds = begin.elapsed().as_secs_f64();
            let elsewhere = words.pages_elsewhere(to)?;
            println!(
                "mover={name} round={round} from={from} to={to} seconds={seconds:.6} \
                 elsewhere_before={before} elsewhere={elsewhere}"
            );
            (from, to) = (to, from);
        }
        right &= words.iter().enumerate().all(|(index, word)| *word == value(index));
    }
    Ok(Report::new("movers").pair("bytes", words.len() * 8).check("content", right))
}

/// Runs a mover's command on this process.
fn start(command: &str, from: u32, to: u32) -> Result<(), Failure> {
    let pid = std::process::id().to_string();
    let replaced = command
        .replace("{pid}", &pid)
        .replace("{from}", &from.to_string())
        .replace("{to}", &to.to_string());
    let mut words = replaced.split_whitespace();
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| Failure(format!("{program}: cannot run: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure(format!("{replaced}: {}: {said}", output.status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mover_has_a_name_and_a_command() {
        assert_eq!(mover("a=b {pid}=c"), Ok(("a".to_owned(), "b {pid}=c".to_owned())));
        for text in ["a", "=b", "a="] {
            assert!(mover(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_command_that_fails_is_a_failure_with_its_words() {
        assert!(start("true {pid} {from} {to}", 0, 1).is_ok());
        let failure = start("false {from} {to}", 3, 4).unwrap_err();
        assert!(failure.0.starts_with("false 3 4: exit status: 1"), "{}", failure.0);
        assert!(start("/nonexistent", 0, 1).is_err());
    }
}
