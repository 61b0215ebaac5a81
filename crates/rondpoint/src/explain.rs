//! `rondpoint explain`: shows each moment of a recorded run: the measurements, the proposals with
//! their prices, the actions and their outcomes. It reads one file and changes nothing.

mod json;
mod moment;
mod timeline;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use rondpoint_linux::privileges::{self, Needs};

use crate::control::commands;
use crate::story::{self, Deed, Story};
use crate::terminal;

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;

/// List the decisions about a recorded run or a managed process, with their reasons
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint explain run.trace                 # actions, vetoes and verdicts in order
  rondpoint explain run.trace --at 2.5        # measurements and proposals at 2.5 s
  rondpoint explain run.trace --pid 4711 --json
  rondpoint explain 4711                      # asks the daemon

`+31 %:` before an action is the change of the process's speed that the cost model predicts for it.
A veto names its rule. Actions name nodes as the kernel does; recorded sentences count them from 0.

Exit status: 0 good, 1 the daemon refuses or does not answer, 2 bad usage or file.")]
pub(crate) struct Arguments {
    /// A file of `rondpoint record` or `run --record`, or a process that the daemon sees
    #[arg(value_name = "FILE|PID")]
    subject: PathBuf,
    /// One moment in full: the last look at or before TIME, in seconds since the first
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    at: Option<f64>,
    /// Of a recording, only what concerns this process
    #[arg(long, short, value_name = "PID")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    daemon: commands::Where,
}

impl Arguments {
    /// The process that is asked about, where the subject is a number and no file has that name.
    fn process(&self) -> Option<u32> {
        let number = self.subject.to_str()?.parse().ok()?;
        (!self.subject.exists()).then_some(number)
    }
}

/// Runs the command; a bad file is said on standard error and ends with status 2.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let problem = match arguments.process() {
        Some(pid) if arguments.at.is_none() && arguments.pid.is_none() => {
            return commands::explain(pid, arguments.json, &arguments.daemon);
        }
        Some(pid) => {
            anyhow!("{pid}: --at and --pid need a recording, and there is no file of this name")
        }
        None => {
            let _ = privileges::keep_only(&Needs::to_read(None));
            match explain(arguments) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => error,
            }
        }
    };
    terminal::fail("explain", &problem);
    ExitCode::from(BAD_INPUT)
}

fn explain(arguments: &Arguments) -> Result<()> {
    let story = story::read(&arguments.subject)?;
    let asked = Asked { story: &story, pid: arguments.pid };
    let place = match arguments.at {
        Some(at_s) => Some(asked.place_at(at_s)?),
        None => None,
    };
    asked.check_pid()?;
    let name = arguments.subject.display().to_string();
    match (arguments.json, place) {
        (true, place) => terminal::print_json_text(&asked.json(&name, place)),
        (false, None) => terminal::print(&asked.timeline(&name)),
        (false, Some(place)) => terminal::print(&asked.moment(&name, place)),
    }
}

/// A story, and the process that is asked about.
struct Asked<'a> {
    story: &'a Story,
    pid: Option<u32>,
}

impl Asked<'_> {
    fn place_at(&self, at_s: f64) -> Result<usize> {
        if self.story.moments.is_empty() {
            bail!("--at {at_s}: the recording has no look at the machine");
        }
        let end = self.story.seconds();
        // What is shown with three digits may be asked for with three digits.
        if at_s > end + 0.001 {
            bail!("--at {at_s}: expected 0 to {end:.3} s, the length of the recording");
        }
        Ok(self.story.place_at(at_s + 0.0005))
    }

    fn check_pid(&self) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        let known = self.story.processes();
        if known.contains(&pid) {
            return Ok(());
        }
        let known: Vec<String> = known.iter().map(u32::to_string).collect();
        match known.as_slice() {
            [] => bail!("--pid {pid}: the recording knows no process"),
            known => bail!("--pid {pid}: not in the recording, which has {}", known.join(", ")),
        }
    }

    /// Whether something concerns the process that is asked about. What is for the machine concerns
    /// each.
    fn concerns(&self, pid: Option<u32>) -> bool {
        self.pid.is_none_or(|asked| pid.is_none_or(|pid| pid == asked))
    }

    fn deeds(&self, place: usize) -> impl Iterator<Item = &Deed> {
        let deeds = self.story.deeds_of(&self.story.moments[place]).iter();
        deeds.filter(|deed| self.concerns(deed.pid))
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.strip_suffix('s').unwrap_or(text).trim_end().parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err("expected seconds, such as 2.5".to_string()),
    }
}
