//! The command lines of `run`, `attach` and `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::by_hand::ByHand;
use crate::control::SOCKET;
use crate::observe::Sensor;
use crate::targets::Target;

/// All that are published, each for what it is good at, by the order and the conflict rules of
/// ALGORITHMS 5.
pub(super) const DEFAULT_POLICY: &str = "auto";
/// Of a run that names none; the daemon's default too.
pub(super) const DEFAULT_SEED: u64 = 1;
/// The policy that watches and does nothing.
const OBSERVE: &str = "observe";

/// Flags that `run` and `attach` share.
#[derive(Debug, clap::Args)]
pub(super) struct Management {
    /// Policies in order of priority
    ///
    /// carrefour moves pages. sam, nmass, home and sharing move threads. asymsched and gather move
    /// whole processes. auto prices the proposals of all of them. observe does nothing.
    /// NAME:PRESET chooses a preset; a wrong one makes the command list those that exist.
    /// [default: auto]
    #[arg(long, value_name = "POLICY[,POLICY]", value_delimiter = ',')]
    pub(super) policy: Vec<String>,

    /// Decide, but change nothing
    #[arg(long, short = 'n')]
    pub(super) dry_run: bool,

    /// Use this sensor and no other (default: the best there is)
    #[arg(long, value_enum)]
    pub(super) sensor: Option<Sensor>,

    /// Seed of every random choice
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_SEED, hide_short_help = true)]
    pub(super) seed: u64,

    /// Machine file with this machine's links and bandwidths (default:
    /// /etc/rondpoint/machine.toml); sysfs has neither
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) machine: Option<PathBuf>,

    /// Longest time for which a look may hold the program's map lock, in ms (default: 26)
    ///
    /// The kernel holds this lock while it lists the memory policies of a mapping, 0.1 µs for each
    /// page in it. The program's calls of mmap and munmap wait meanwhile. Mappings that take longer
    /// are not read, and their pages stay. 26 ms are enough for 1 GiB of small pages in one
    /// mapping, 210 ms for 8 GiB.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    #[arg(hide_short_help = true)]
    pub(super) map_lock: Option<u64>,

    /// Write a report as JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,

    /// Record observations, plans and outcomes into FILE, for `rondpoint replay`
    ///
    /// With attach, - is stdout.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,

    /// Report in detail: windows, steps, trials, and what the guard refused
    #[arg(long, short)]
    pub(super) verbose: bool,

    /// Print no report on stderr
    #[arg(long, short, conflicts_with = "verbose")]
    pub(super) quiet: bool,
}

impl Management {
    /// As typed, for a manager of another process; without the files that one process has.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--policy".into(), self.policy.join(",").into()];
        words.extend(["--seed".into(), self.seed.to_string().into()]);
        if let Some(longest) = self.map_lock {
            words.extend(["--map-lock".into(), longest.to_string().into()]);
        }
        if let Some(sensor) = self.sensor.as_ref().and_then(ValueEnum::to_possible_value) {
            words.extend(["--sensor".into(), sensor.get_name().into()]);
        }
        if let Some(path) = &self.machine {
            words.extend(["--machine".into(), path.into()]);
        }
        let flags =
            [(self.dry_run, "--dry-run"), (self.verbose, "--verbose"), (self.quiet, "--quiet")];
        words.extend(flags.iter().filter(|(given, _)| *given).map(|(_, flag)| flag.into()));
        words
    }

    /// Fills in the policy that was not named: the default, or for a placement by hand the one that
    /// does nothing.
    ///
    /// # Errors
    /// A policy was named beside `by_hand`, an option that places the program itself.
    pub(super) fn settle(&mut self, by_hand: Option<&str>) -> Result<()> {
        let acts = self.policy.iter().any(|word| word != OBSERVE);
        match by_hand {
            Some(option) if acts => bail!(
                "{option} places the program for good, and --policy {} would place it otherwise; \
                 expected one of the two, or --policy {OBSERVE}",
                self.policy.join(",")
            ),
            Some(_) => self.policy = vec![OBSERVE.to_owned()],
            None if self.policy.is_empty() => self.policy = vec![DEFAULT_POLICY.to_owned()],
            None => {}
        }
        Ok(())
    }
}

const RUN_EXAMPLES: &str = "\
Examples:
  sudo rondpoint run -- ./app --its-own-flags
  rondpoint run --dry-run --report what-it-would-do.json -- ./app
  rondpoint run --sensor faults -- ./app        # as on a machine without counters
  rondpoint run --interleave all -- ./app       # as numactl does; no policy acts
  sudo rondpoint run --near gpu:0 -- ./app      # beside that GPU";

/// Of commands that run a program.
const RUN_STATUS: &str = "

Exit status: the program's own, 128+n where signal n killed it; 125 rondpoint failed, 126 the
program cannot be run, 127 it is not found. Its input, output and signals pass through.
Under sudo it runs as the user who called sudo.";

/// Run a program and place its memory and threads where they are fastest
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES, after_long_help = [RUN_EXAMPLES, RUN_STATUS].concat())]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(super) management: Management,

    #[command(flatten)]
    pub(super) by_hand: ByHand,

    /// Keep a copy of these read-only files on each node, and let each process read the nearest;
    /// with --dry-run, say whether that would pay
    #[arg(long, value_name = "PATH[,PATH]", value_delimiter = ',')]
    pub(super) replicate: Vec<PathBuf>,

    /// Control socket of the daemon; where you may not use counters, the daemon is asked to manage
    /// the program
    #[arg(long, value_name = "FILE", default_value = SOCKET, hide_short_help = true)]
    pub(super) socket: PathBuf,

    /// The program to run and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    pub(super) command: Vec<OsString>,
}

const ATTACH_EXAMPLES: &str = "\
Examples:
  sudo rondpoint attach 4711
  sudo rondpoint attach unit:postgresql               # every process of the unit
  sudo rondpoint attach --dry-run --verbose 4711      # what would be done, in detail";

const ATTACH_STATUS: &str = "

When attach ends, also by ^C, threads get back the CPUs that they had before.
Pages stay where they are; `rondpoint move` moves them.

Exit status: 0 good, 125 rondpoint failed.";

/// Manage a program that runs already, and what it starts, until it ends or ^C
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_EXAMPLES, after_long_help = [ATTACH_EXAMPLES, ATTACH_STATUS].concat())]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    pub(super) management: Management,

    /// The program: a process number, a name (postgres or name:postgres), or every process of a
    /// unit (unit:nginx.service) or of a cgroup (cgroup:/machine.slice)
    #[arg(value_name = "PROGRAM", value_parser = Target::parse)]
    pub(super) target: Target,

    /// Only if it started so many nanoseconds after boot: from the `attach` to several processes
    #[arg(long, hide = true, value_name = "NS")]
    pub(super) started: Option<u64>,
}

const RECORD_EXAMPLES: &str = "\
Examples:
  rondpoint record -- ./app                  # writes rondpoint.trace
  rondpoint replay rondpoint.trace
  rondpoint run --record x.trace -- ./app    # a run with actions";

/// Run a program and record what a policy sees and would do; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD_EXAMPLES, after_long_help = [RECORD_EXAMPLES, RUN_STATUS].concat())]
pub(crate) struct RecordArguments {
    /// File for the record
    #[arg(long, short, value_name = "FILE", default_value = "rondpoint.trace")]
    pub(super) output: PathBuf,

    /// Policies in order of priority; NAME:PRESET chooses a preset
    #[arg(
        long,
        value_name = "POLICY[,POLICY]",
        value_delimiter = ',',
        default_value = DEFAULT_POLICY
    )]
    pub(super) policy: Vec<String>,

    /// Use this sensor and no other (default: the best there is)
    #[arg(long, value_enum)]
    pub(super) sensor: Option<Sensor>,

    /// Machine file with this machine's links and bandwidths (default:
    /// /etc/rondpoint/machine.toml); sysfs has neither
    #[arg(long, value_name = "FILE")]
    pub(super) machine: Option<PathBuf>,

    /// The program to run and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    pub(super) command: Vec<OsString>,
}

#[cfg(test)]
impl RunArguments {
    /// `run OPTIONS -- app`, as a user types it.
    pub(super) fn typed(options: &str) -> Result<Self, clap::Error> {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            run: RunArguments,
        }
        let words = ["run"].into_iter().chain(options.split_whitespace()).chain(["--", "app"]);
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.run)
    }
}
