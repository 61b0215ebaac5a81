//! The command line as typed.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::session::OWN_FAILURE;
use crate::{
    advise, calibrate, control::commands as control, daemon, decide, doctor, explain, external,
    ledgers, move_memory, observe, replay, report, run, terminal, top, topology, weights, whatif,
};

/// Exit status of bad usage or input.
const BAD_USAGE: u8 = 2;

/// Places the memory and the threads of programs on machines with several memory nodes.
///
/// Rondpoint sees which threads use which memory, on which node and over which link. It moves pages
/// and threads where that makes the program faster, and takes back what did not help.
#[derive(Debug, Parser)]
#[command(name = "rondpoint", version = env!("RONDPOINT_VERSION"), propagate_version = true)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rondpoint doctor                # sensors and actions of this machine
  rondpoint observe               # what the nodes and the busiest processes do now
  sudo rondpoint run -- ./app     # run a program and repair its placement";

const DETAILS: &str = "

Exit status:
  0    good
  1    the command failed, or a check did
  2    bad usage or input
  125  run, attach, record and observe: rondpoint itself failed, bad usage included
  126  the program cannot be run
  127  the program is not found
  Commands that run a program end with its status, 128+n where signal n killed it.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Test the sensors and actions of this machine, and say how to get missing ones
    Doctor(doctor::Arguments),
    /// Show the machine, or the memory traffic of a program; changes nothing
    Observe(observe::Arguments),
    /// Run a program and place its memory and threads where they are fastest
    Run(Box<run::RunArguments>),
    /// Place memory and threads of a running program
    ///
    /// What the program starts is managed too. This ends with the program, or by ^C.
    Attach(run::AttachArguments),
    /// Manage the placement of many processes as they start, change and stop
    Daemon(daemon::Arguments),
    /// Show the daemon's machine, its processes and its actions
    Status(control::StatusArguments),
    /// Tell the daemon to change nothing until `resume`
    ///
    /// Threads get back the CPUs that they had before.
    Pause(control::PauseArguments),
    /// Tell the daemon to act again after `pause`
    Resume(control::ResumeArguments),
    /// Tell the daemon to leave processes alone
    ///
    /// What they start is left alone too.
    Leave(control::LeaveArguments),
    /// Tell the daemon to manage processes whatever their size
    ///
    /// What they start is managed too.
    Manage(control::ManageArguments),
    /// Tell the daemon to read its configuration again
    Reload(control::ReloadArguments),
    /// Move the memory of a running process to other nodes
    Move(move_memory::Arguments),
    /// Undo the changes that a killed run, attach, move or daemon left
    Restore(ledgers::Arguments),
    /// Show this machine: nodes, CPUs, caches, distances
    Topology(topology::Arguments),
    /// Measure this machine's memory, so that decisions fit it
    Calibrate(calibrate::Arguments),
    /// Advise nodes for a new program (as numad -w)
    Advise(advise::Arguments),
    /// Print or apply measured weights for weighted interleaving
    Weights(weights::Arguments),
    /// Run a program and record measurements and decisions of a policy; changes nothing
    Record(run::RecordArguments),
    /// Decide a recorded run again and show differences; changes nothing
    Replay(replay::Arguments),
    /// Show the machine, its processes and decisions on the whole terminal, live or recorded
    Top(top::Arguments),
    /// List the decisions about a recorded run or a managed process, with their reasons
    Explain(explain::Arguments),
    /// Predict a recorded run under another policy, placement or machine; changes nothing
    Whatif(whatif::Arguments),
    /// Show a recorded run as a page for the browser
    Report(report::Arguments),
    /// Show the decision of a policy for a model from a file; changes nothing
    Decide(decide::Arguments),
    /// Run programs on an emulated machine (runs rondpoint-lab)
    #[command(disable_help_flag = true, after_help = "Examples:\n  rondpoint lab --help")]
    Lab(Rest),
    /// Simulate machines and workloads (runs rondpoint-sim)
    #[command(disable_help_flag = true, after_help = "Examples:\n  rondpoint simulate --help")]
    Simulate(Rest),
    /// Write the man pages and the shell completions
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Manual(crate::manual::Arguments),
}

/// Arguments for another program of ours.
#[derive(Debug, clap::Args)]
struct Rest {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The command line. It offers no subcommand of a program that is not here.
fn command_line() -> clap::Command {
    let external = [external::LAB, external::SIMULATE].into_iter();
    external.fold(Arguments::command(), |command, one| {
        command.mut_subcommand(one.command, |shown| shown.hide(one.find().is_none()))
    })
}

/// Parses the command line and runs what it says; under the name numad it answers as that does.
pub(crate) fn main() -> ExitCode {
    if advise::is_numad(std::env::args_os().next().as_deref()) {
        return advise::numad().unwrap_or_else(|error| refuse(&error));
    }
    let parsed = command_line().try_get_matches();
    let arguments = match parsed.and_then(|found| Arguments::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match arguments.command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Attach(arguments) => run::attach(arguments),
        Command::Record(arguments) => run::record(arguments),
        Command::Replay(arguments) => replay::main(&arguments),
        Command::Daemon(arguments) => daemon::main(arguments),
        Command::Status(arguments) => control::status(&arguments),
        Command::Whatif(arguments) => whatif::main(&arguments),
        Command::Explain(arguments) => explain::main(&arguments),
        Command::Top(arguments) => top::main(&arguments),
        Command::Report(arguments) => report::main(&arguments),
        Command::Pause(arguments) => control::pause(&arguments),
        Command::Resume(arguments) => control::resume(&arguments),
        Command::Leave(arguments) => control::leave(&arguments),
        Command::Manage(arguments) => control::manage(&arguments),
        Command::Reload(arguments) => control::reload(&arguments),
        Command::Move(arguments) => move_memory::main(&arguments),
        Command::Restore(arguments) => ledgers::main(&arguments),
        Command::Observe(arguments) => observe::main(arguments),
        Command::Decide(arguments) => decide::main(&arguments),
        Command::Topology(arguments) => topology::main(&arguments),
        Command::Calibrate(arguments) => calibrate::main(&arguments),
        Command::Advise(arguments) => advise::main(&arguments),
        Command::Weights(arguments) => weights::main(&arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Simulate(rest) => external::SIMULATE.run(&rest.arguments),
        Command::Lab(rest) => external::LAB.run(&rest.arguments),
        #[cfg(feature = "manual")]
        Command::Manual(arguments) => crate::manual::main(&arguments, Arguments::command()),
    }
}

/// Help and version go to stdout with status 0, anything else to stderr with the status of bad
/// usage. For a command that runs a program that status differs from the program's own.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    // It repeats what was typed, so it is cleaned as all text from outside.
    terminal::say(&error.render().to_string());
    let runs_a_program = std::env::args_os().nth(1).is_some_and(|word| {
        ["run", "attach", "record", "observe"].iter().any(|name| word == *name)
    });
    ExitCode::from(if runs_a_program { OWN_FAILURE } else { BAD_USAGE })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_reference_is_what_the_command_line_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
        let page = std::fs::read_to_string(path).expect("docs/reference.md");
        let expected = crate::reference::markdown(Arguments::command());
        let different = page.lines().zip(expected.lines()).find(|(old, new)| old != new);
        assert_eq!(different, None, "docs/reference.md says how to make it anew");
        assert_eq!(page.len(), expected.len(), "docs/reference.md says how to make it anew");
    }

    /// The command lines below `Examples:`, up to a comment, a redirection or a pipe.
    fn examples(help: &str) -> Vec<Vec<&str>> {
        let below = help.lines().skip_while(|line| *line != "Examples:");
        let lines = below.map(|line| line.trim().trim_start_matches("sudo "));
        let ours = lines.filter(|line| line.starts_with("rondpoint "));
        ours.map(|line| {
            let end = ["#", " > ", " | "].iter().filter_map(|stop| line.find(stop)).min();
            line[..end.unwrap_or(line.len())].split_whitespace().collect()
        })
        .collect()
    }

    #[test]
    fn each_help_has_examples_that_parse() {
        let mut all = Arguments::command();
        all.build();
        let mut commands: Vec<&mut clap::Command> = all
            .get_subcommands_mut()
            .filter(|one| !["help", "manual"].contains(&one.get_name()))
            .collect();
        assert!(commands.len() >= 12);
        for command in &mut commands {
            let name = command.get_name().to_string();
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                let list = examples(&help);
                assert!(help.contains("Examples:") && !list.is_empty(), "{name}: {help}");
                for words in list {
                    let parsed = Arguments::try_parse_from(&words);
                    assert!(parsed.is_ok(), "{words:?}: {}", parsed.expect_err("shown"));
                }
            }
        }
        for words in examples(EXAMPLES) {
            assert!(Arguments::try_parse_from(&words).is_ok(), "{words:?}");
        }
    }

    /// Rows of the guide's table of wishes: wish, command and test.
    fn wishes() -> Vec<[String; 3]> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");
        let page = std::fs::read_to_string(path).expect("docs/guide.md");
        let rows = page
            .lines()
            .skip_while(|line| *line != "| wish | command | test |")
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        rows.map(|row| {
            let cells: Vec<String> = row.trim_matches('|').split('|').map(str::to_owned).collect();
            cells.try_into().expect("three columns")
        })
        .collect()
    }

    fn spans(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    /// What the guide says of each wish can be typed as it stands there.
    #[test]
    fn each_command_of_the_guides_table_of_wishes_parses() {
        let (rows, mut answered) = (wishes(), 0);
        for [_, command, _] in &rows {
            let lines: Vec<&str> =
                spans(command).filter(|one| one.starts_with("rondpoint ")).collect();
            for line in &lines {
                let parsed = Arguments::try_parse_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {}", parsed.expect_err("shown"));
            }
            answered += usize::from(!lines.is_empty());
        }
        assert!(answered >= 20 && answered == rows.len(), "{answered} of {}", rows.len());
    }

    /// Text of the sources in a file or below a folder.
    fn sources(path: &Path) -> String {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).expect("a folder of this repository");
            return entries.flatten().map(|entry| sources(&entry.path())).collect();
        }
        let is_source = path.extension().is_some_and(|end| end == "rs");
        let text = is_source.then(|| std::fs::read_to_string(path).ok()).flatten();
        text.unwrap_or_default()
    }

    /// Each row names a file or a folder with tests, and each test is in the one before it.
    #[test]
    fn each_test_of_the_guides_table_of_wishes_is_there() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut named = 0;
        for [wish, _, tests] in &wishes() {
            let mut text = String::new();
            for span in spans(tests) {
                if span.contains('/') {
                    text = sources(&crates.join(span));
                    assert!(!text.is_empty(), "{wish}: no sources in crates/{span}");
                } else if span.contains('_') {
                    // Tests without the harness are in a list of names.
                    let is_there = [format!("fn {span}("), format!("\"{span}\"")];
                    assert!(is_there.iter().any(|one| text.contains(one)), "{wish}: no {span}");
                    named += 1;
                }
            }
            assert!(!text.is_empty(), "{wish}: no test");
        }
        assert!(named >= 15, "{named}");
    }

    /// A page of a terminal, and what to read next.
    #[test]
    fn the_first_screen_is_short_and_the_long_help_has_the_exit_statuses() {
        const SCREEN: usize = 48;
        let mut all = Arguments::command().term_width(100);
        all.build();
        for name in ["run", "attach", "observe", "move", "calibrate", "record", "replay", "doctor"]
        {
            let command = all.find_subcommand_mut(name).expect("a command");
            let (short, long) =
                (command.render_help().to_string(), command.render_long_help().to_string());
            assert!(short.lines().count() <= SCREEN, "{name}: {} lines", short.lines().count());
            assert!(long.contains("Exit status"), "{name}: {long}");
        }
    }
}
