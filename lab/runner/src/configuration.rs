//! The ways to place memory that a program can be run under.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::policy::POLICIES;
use rondpoint_lab_init::{DRIVER_PATH, JOB_PATH, Job, MANAGER_PATH, MemoryPolicy};
use rondpoint_machine::Machine;

use crate::built::{Built, WORKLOADS};
use crate::initramfs::Initramfs;
use crate::installed::Installed;
use crate::program;

/// Where Rondpoint leaves its report and its record in the guest.
pub(crate) const REPORT_PATH: &str = "/run/rondpoint-report.json";
pub(crate) const RECORD_PATH: &str = "/run/rondpoint-record";
/// Where Rondpoint itself is in the guest.
const PRODUCT_PATH: &str = "/lab/rondpoint";
/// What `rondpoint run --replicate` preloads is beside it.
const INTERPOSE_PATH: &str = "/lab/librondpoint_interpose.so";
/// What scripts and shells call: Rondpoint as a manager, with own work that slow motion does not
/// slow down. `calibrate`, `doctor --check` and `topology --measure` measure the machine and so
/// stay programs like any other.
const PRODUCT_SCRIPT_PATH: &str = "/bin/rondpoint";
/// Where Rondpoint looks for the machine's links and bandwidths.
const MACHINE_PATH: &str = "/etc/rondpoint/machine.toml";

/// When `interleave-late` spreads unless told: where Rondpoint's first action was measured, 1.04 to
/// 1.06 s after the start of k-means and stencil on `carrefour-a`. Where there is less to repair it
/// comes later (3.0 s in bucket sort): `interleave-late=3`.
const LATE_MS: u32 = 1050;
/// The subcommands of our workloads that know `--place oracle`.
const ORACLES: [&str; 4] = ["kmeans", "stencil", "wellplaced", "bucketsort"];

/// One way to place memory: the kernel's own, a rival's, ours, or one to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Configuration {
    /// Linux without automatic NUMA balancing.
    FirstTouch,
    /// `numactl --interleave=all`.
    Interleave,
    /// First touch, then after this many ms of guest time all pages to the nodes in turn: as late
    /// as Rondpoint, but without a decision.
    InterleaveLate(u32),
    /// Linux with automatic NUMA balancing.
    AutoNuma,
    /// The numad daemon at its shortest interval.
    Numad,
    /// `rondpoint run`, on a kernel as Debian sets it up: with automatic NUMA balancing.
    Rondpoint,
    /// The same with another policy than its default.
    RondpointPolicy(PolicyWord),
    /// As [`Configuration::Rondpoint`] on a machine without PMU: Rondpoint is not told, and finds
    /// that it has the kernel's faults only.
    RondpointFaults,
    /// `rondpoint run --policy observe` on a kernel without automatic NUMA balancing: beside first
    /// touch, the price of watching alone.
    Observe,
    /// The same with `--dry-run` and the default policy: the price of watching and deciding.
    DryRun,
    /// `rondpoint run --replicate` with the files that the program's file names.
    Replicate,
    /// The same with `--dry-run`: nothing is copied and nothing moves.
    ReplicateDryRun,
    /// A placement known to be right from the start; only our own workloads know one.
    Oracle,
}

/// A policy of Rondpoint's, with or without a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicyWord {
    name: &'static str,
    preset: Option<&'static str>,
}

impl PolicyWord {
    /// `NAME` or `NAME:PRESET`, if there is such a policy.
    fn parse(text: &str) -> Option<Self> {
        let (name, preset) = match text.split_once(':') {
            Some((name, preset)) => (name, Some(preset)),
            None => (text, None),
        };
        let known = POLICIES.iter().find(|policy| policy.name == name)?;
        let of = |wanted| known.presets.iter().copied().find(|preset| *preset == wanted);
        let preset = match preset {
            Some(wanted) => Some(of(wanted)?),
            None => None,
        };
        Some(Self { name: known.name, preset })
    }
}

impl fmt::Display for PolicyWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preset = self.preset.map(|preset| format!(":{preset}")).unwrap_or_default();
        write!(formatter, "{}{preset}", self.name)
    }
}

impl Configuration {
    pub(crate) const ALL: [Configuration; 12] = [
        Self::FirstTouch,
        Self::Interleave,
        Self::InterleaveLate(LATE_MS),
        Self::AutoNuma,
        Self::Numad,
        Self::Rondpoint,
        Self::RondpointFaults,
        Self::Observe,
        Self::DryRun,
        Self::Replicate,
        Self::ReplicateDryRun,
        Self::Oracle,
    ];

    /// The word on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::FirstTouch => "first-touch",
            Self::Interleave => "interleave",
            Self::InterleaveLate(_) => "interleave-late",
            Self::AutoNuma => "autonuma",
            Self::Numad => "numad",
            Self::Rondpoint | Self::RondpointPolicy(_) => "rondpoint",
            Self::RondpointFaults => "rondpoint-faults",
            Self::Observe => "rondpoint-observe",
            Self::DryRun => "rondpoint-dry-run",
            Self::Replicate => "rondpoint-replicate",
            Self::ReplicateDryRun => "rondpoint-replicate-dry-run",
            Self::Oracle => "oracle",
        }
    }

    /// As in reports.
    pub(crate) fn name(self) -> String {
        match self {
            Self::InterleaveLate(ms) => format!("interleave-late={}", f64::from(ms) / 1e3),
            Self::RondpointPolicy(policy) => format!("rondpoint={policy}"),
            other => other.word().to_owned(),
        }
    }

    /// Whether Rondpoint runs in the guest.
    pub(crate) fn is_rondpoint(self) -> bool {
        matches!(self, Self::Rondpoint | Self::RondpointPolicy(_) | Self::RondpointFaults)
            || self.only_watches()
            || self.replicates()
    }

    /// Whether Rondpoint watches and changes nothing, so that any loss is the price of watching.
    pub(crate) fn only_watches(self) -> bool {
        matches!(self, Self::Observe | Self::DryRun)
    }

    /// Whether files are to be named that each node gets a copy of.
    pub(crate) fn replicates(self) -> bool {
        matches!(self, Self::Replicate | Self::ReplicateDryRun)
    }

    /// Refuses a program that cannot be run so; `program` is as the user named it.
    pub(crate) fn check(self, program: &str, command: &[String]) -> Result<()> {
        if self.replicates() {
            bail!(
                "--config {self}: which files? Describe {program} in a file for ./x lab programs \
                 that names them (replicate = [...])"
            );
        }
        let ours = command[0] == format!("/bin/{WORKLOADS}");
        let knows = ours && command.get(1).is_some_and(|name| ORACLES.contains(&name.as_str()));
        if self == Self::Oracle && !knows {
            bail!(
                "--config oracle: there is no known right placement of {program}; \
                 it is there for {WORKLOADS} {} only",
                ORACLES.join(", ")
            );
        }
        Ok(())
    }

    /// What runs in the guest.
    fn command(self, program: &[String], replicated: &[String]) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let run = [PRODUCT_PATH, "run", "--report", REPORT_PATH];
        let mut command: Vec<String> = match self {
            Self::Rondpoint | Self::RondpointFaults => words(&[&run[..], &["--"]].concat()),
            Self::RondpointPolicy(policy) => {
                words(&[&run[..], &["--policy", &policy.to_string(), "--"]].concat())
            }
            Self::Observe => words(&[&run[..], &["--policy", "observe", "--"]].concat()),
            Self::DryRun => words(&[&run[..], &["--dry-run", "--"]].concat()),
            Self::Replicate => {
                words(&[&run[..], &["--replicate", &replicated.join(","), "--"]].concat())
            }
            Self::ReplicateDryRun => {
                let options = ["--dry-run", "--replicate", &replicated.join(","), "--"];
                words(&[&run[..], &options].concat())
            }
            _ => Vec::new(),
        };
        command.extend(program.iter().cloned());
        if self == Self::Oracle {
            command.extend(["--place", "oracle"].map(str::to_owned));
        }
        command
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.name())
    }
}

impl FromStr for Configuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(seconds) = text.strip_prefix("interleave-late=") {
            let seconds: Option<f64> = seconds.parse().ok();
            let seconds = seconds.filter(|seconds| (0.001..=1000.0).contains(seconds));
            let seconds =
                seconds.ok_or("expected guest seconds from 0.001 to 1000 behind the =")?;
            return Ok(Self::InterleaveLate((seconds * 1e3).round() as u32));
        }
        if let Some(policy) = text.strip_prefix("rondpoint=") {
            let known = || POLICIES.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ");
            return PolicyWord::parse(policy).map(Self::RondpointPolicy).ok_or_else(|| {
                format!("expected a policy behind the =, or POLICY:PRESET; there are {}", known())
            });
        }
        let named = |configuration: &&Self| configuration.word() == text;
        let known = || Self::ALL.map(Self::word).join(", ");
        Self::ALL.iter().find(named).copied().ok_or_else(|| format!("expected one of {}", known()))
    }
}

/// The guest without its job: PID 1, the driver, busybox, and whatever else the job needs.
pub(crate) fn base(installed: &Installed, built: &Built) -> Result<Initramfs> {
    let mut guest = Initramfs::new();
    guest.add_file(&built.init, "/init")?;
    guest.add_file(&built.driver, DRIVER_PATH)?;
    let busybox = tool(installed, "busybox")?;
    guest.add_file(&busybox.path, "/bin/busybox")?;
    guest.add_link("busybox", "/bin/sh");
    Ok(guest)
}

/// Brings Rondpoint along, and what an operator would have measured and written down for it: sysfs
/// tells no bandwidths.
pub(crate) fn add_product(guest: &mut Initramfs, built: &Built, machine: &Machine) -> Result<()> {
    guest.add_bytes(machine.to_toml().into_bytes(), MACHINE_PATH);
    guest.add_file(&built.product, PRODUCT_PATH)?;
    let script = format!(
        "#!/bin/sh\n\
         case \"$*\" in calibrate*|doctor*--check*|topology*--measure*) ;;\n\
         *) [ ! -w {MANAGER_PATH} ] || echo 1 > {MANAGER_PATH} ;;\n\
         esac\n\
         exec {PRODUCT_PATH} \"$@\"\n"
    );
    guest.add_script(script, PRODUCT_SCRIPT_PATH);
    Ok(())
}

/// Brings along what `--replicate` preloads. It needs the guest's C library to be as new as that of
/// the machine that built it.
pub(crate) fn add_interpose(guest: &mut Initramfs, built: &Built) -> Result<()> {
    guest.add_file(&built.interpose, INTERPOSE_PATH)
}

/// What is to run, and how.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) configuration: Configuration,
    /// The program in the guest and its arguments.
    pub(crate) command: &'a [String],
    /// Files of the guest that `--replicate` names; the program's preparation makes them.
    pub(crate) replicated: &'a [String],
    pub(crate) seed: u64,
}

/// Completes the guest with the job that runs what is ordered. Where Rondpoint is to run it must be
/// in the guest already.
pub(crate) fn with_job(
    guest: Initramfs,
    installed: &Installed,
    order: &Order<'_>,
) -> Result<Initramfs> {
    complete(guest, installed, order.configuration, job(order))
}

/// The same, where Rondpoint also records what it sees and decides. That costs it time, so only a
/// run whose record is wanted has it.
pub(crate) fn with_recording_job(
    guest: Initramfs,
    installed: &Installed,
    order: &Order<'_>,
) -> Result<Initramfs> {
    let mut job = job(order);
    // Behind the subcommand.
    job.command.splice(2..2, ["--record", RECORD_PATH].map(str::to_owned));
    job.files.push(RECORD_PATH.to_owned());
    complete(guest, installed, order.configuration, job)
}

/// The job, but for numad, which is brought along.
fn job(order: &Order<'_>) -> Job {
    let configuration = order.configuration;
    let policy = match configuration {
        Configuration::Interleave => MemoryPolicy::Interleave,
        _ => MemoryPolicy::FirstTouch,
    };
    let spread_after_ns = match configuration {
        Configuration::InterleaveLate(ms) => Some(u64::from(ms) * 1_000_000),
        _ => None,
    };
    let files = if configuration.is_rondpoint() { &[REPORT_PATH][..] } else { &[] };
    Job {
        command: configuration.command(order.command, order.replicated),
        environment: environment(),
        policy,
        prepare_placed: !order.replicated.is_empty(),
        numa_balancing: is_balanced(configuration),
        daemon: Vec::new(),
        manager: configuration.is_rondpoint(),
        without_pmu: configuration == Configuration::RondpointFaults,
        start_offset_ns: start_offset_ns(order.seed),
        modelled: true,
        spread_after_ns,
        files: files.iter().map(|path| (*path).to_owned()).collect(),
    }
}

/// Whether the kernel balances. Rondpoint finds it as Debian sets it up. Where only the price of
/// watching is asked for, pages stay as under first touch.
fn is_balanced(configuration: Configuration) -> bool {
    let is_managed = configuration.is_rondpoint() && !configuration.only_watches();
    configuration == Configuration::AutoNuma || is_managed
}

fn complete(
    mut guest: Initramfs,
    installed: &Installed,
    configuration: Configuration,
    mut job: Job,
) -> Result<Initramfs> {
    if configuration == Configuration::Numad {
        job.daemon = program::bring_tool(tool(installed, "numad")?, &mut guest)?;
        // One second is the shortest interval that numad takes; as a foreground process (-d would
        // only log more) it forks to the background by itself.
        job.daemon.extend(["-i", "1:1"].map(str::to_owned));
    }
    guest.add_bytes(serde_json::to_vec(&job)?, JOB_PATH);
    Ok(guest)
}

/// A tool of Debian that setup unpacked.
pub(crate) fn tool<'a>(
    installed: &'a Installed,
    name: &str,
) -> Result<&'a crate::installed::Program> {
    installed
        .guest
        .programs
        .get(name)
        .with_context(|| format!("{name} is not in the setup; run ./x setup"))
}

fn environment() -> BTreeMap<String, String> {
    let pairs = [("PATH", "/bin"), ("HOME", "/root"), ("LANG", "C"), ("TERM", "dumb")];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Seeds also shift the program against the kernel's ticks and the balancer's scans. The shift is
/// up to 20 ms, in steps that share no divisor with the tick.
fn start_offset_ns(seed: u64) -> u64 {
    1_000_000 + seed.wrapping_mul(2_654_435_761) % 19_937 * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for configuration in Configuration::ALL {
            assert_eq!(configuration.name().parse(), Ok(configuration));
        }
        let late = "interleave-late=1.25".parse();
        assert_eq!(late, Ok(Configuration::InterleaveLate(1250)));
        assert!("interleave-late=soon".parse::<Configuration>().is_err());
        for text in ["rondpoint=sam", "rondpoint=carrefour:steady"] {
            let policy: Configuration = text.parse().expect("a policy with or without a preset");
            assert_eq!(policy.name(), text);
        }
        let error = "rondpoint=sam:magic".parse::<Configuration>().expect_err("unknown");
        assert!(error.contains("there are ") && error.contains("asymsched"), "{error}");
        let error = "magic".parse::<Configuration>().expect_err("unknown");
        assert!(error.starts_with("expected one of first-touch, interleave, "), "{error}");
    }

    #[test]
    fn only_workloads_of_ours_have_an_oracle() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let check = |text| Configuration::Oracle.check("it", &words(text));
        assert!(check("/bin/rondpoint-workloads stencil --pin").is_ok());
        assert!(check("/bin/rondpoint-workloads chase").is_err());
        let error = check("/bin/true").expect_err("not ours").to_string();
        assert!(error.starts_with("--config oracle: there is no known right placement of it;"));
        assert!(Configuration::FirstTouch.check("it", &words("/bin/true")).is_ok());
        let command =
            Configuration::Oracle.command(&words("/bin/rondpoint-workloads stencil"), &[]);
        assert_eq!(command.join(" "), "/bin/rondpoint-workloads stencil --place oracle");
    }

    #[test]
    fn rondpoint_runs_the_program_behind_two_dashes() {
        let program = ["/bin/true".to_owned()];
        let command = Configuration::RondpointFaults.command(&program, &[]).join(" ");
        assert!(command.starts_with("/lab/rondpoint run --report /run/"), "{command}");
        assert!(command.ends_with(".json -- /bin/true"), "{command}");
        let sam: Configuration = "rondpoint=sam:mph".parse().expect("a policy");
        let command = sam.command(&program, &[]).join(" ");
        assert!(command.ends_with(" --policy sam:mph -- /bin/true"), "{command}");
        assert!(sam.is_rondpoint());
    }

    #[test]
    fn watching_is_a_managers_work_on_a_kernel_as_under_first_touch() {
        let program = ["/bin/true".to_owned()];
        let watched =
            [(Configuration::Observe, "--policy observe"), (Configuration::DryRun, "--dry-run")];
        for (configuration, option) in watched {
            let order = Order { configuration, command: &program, replicated: &[], seed: 1 };
            let job = job(&order);
            assert!(job.command.join(" ").ends_with(&format!(" {option} -- /bin/true")));
            assert!(job.manager && !job.numa_balancing && job.files == [REPORT_PATH]);
        }
        assert!(is_balanced(Configuration::Rondpoint) && !is_balanced(Configuration::FirstTouch));
    }

    #[test]
    fn files_to_replicate_are_named_and_a_program_without_any_is_refused() {
        let files = ["/a", "/b"].map(str::to_owned);
        let program = ["/bin/true".to_owned()];
        let command = Configuration::Replicate.command(&program, &files).join(" ");
        assert!(command.ends_with(" --replicate /a,/b -- /bin/true"), "{command}");
        let command = Configuration::ReplicateDryRun.command(&program, &files).join(" ");
        assert!(command.ends_with(" --dry-run --replicate /a,/b -- /bin/true"), "{command}");
        let error = Configuration::Replicate.check("true", &program).expect_err("which files");
        assert!(error.to_string().contains("rondpoint-replicate: which files?"), "{error}");
    }

    #[test]
    fn seeds_shift_the_start() {
        assert_ne!(start_offset_ns(1), start_offset_ns(2));
        assert!((0..100).all(|seed| start_offset_ns(seed) < 21_000_000));
    }
}
