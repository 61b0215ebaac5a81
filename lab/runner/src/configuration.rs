//! The memory placements that a program can be run under.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use rondpoint_lab_init::{DRIVER_PATH, JOB_PATH, Job, MemoryPolicy};

use crate::built::Built;
use crate::initramfs::Initramfs;
use crate::installed::Installed;
use crate::program;

/// One way to place memory: the kernel's own, or a rival's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Configuration {
    /// Linux without automatic NUMA balancing.
    FirstTouch,
    /// `numactl --interleave=all`.
    Interleave,
    /// Linux with automatic NUMA balancing.
    AutoNuma,
    /// The numad daemon at its shortest interval.
    Numad,
}

impl Configuration {
    pub(crate) const ALL: [Configuration; 4] =
        [Self::FirstTouch, Self::Interleave, Self::AutoNuma, Self::Numad];

    /// As on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FirstTouch => "first-touch",
            Self::Interleave => "interleave",
            Self::AutoNuma => "autonuma",
            Self::Numad => "numad",
        }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Configuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |configuration: &&Self| configuration.name() == text;
        let known = || Self::ALL.map(Self::name).join(", ");
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

/// Completes the guest with the job that runs `command` under `configuration`.
pub(crate) fn with_job(
    mut guest: Initramfs,
    installed: &Installed,
    configuration: Configuration,
    command: &[String],
    seed: u64,
) -> Result<Initramfs> {
    let policy = match configuration {
        Configuration::Interleave => MemoryPolicy::Interleave,
        _ => MemoryPolicy::FirstTouch,
    };
    let daemon = if configuration == Configuration::Numad {
        let mut daemon = program::bring_tool(tool(installed, "numad")?, &mut guest)?;
        // One second is the shortest interval that numad takes; as a foreground process (-d would
        // only log more) it forks to the background by itself.
        daemon.extend(["-i", "1:1"].map(str::to_owned));
        daemon
    } else {
        Vec::new()
    };
    let job = Job {
        command: command.to_vec(),
        environment: environment(),
        policy,
        numa_balancing: configuration == Configuration::AutoNuma,
        daemon,
        start_offset_ns: start_offset_ns(seed),
        modelled: true,
    };
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

/// Seeds also shift the program against the kernel's ticks and the balancer's scans: up to 20 ms,
/// in steps that share no divisor with the tick.
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
        let error = "magic".parse::<Configuration>().expect_err("unknown");
        assert_eq!(error, "expected one of first-touch, interleave, autonuma, numad");
    }

    #[test]
    fn seeds_shift_the_start() {
        assert_ne!(start_offset_ns(1), start_offset_ns(2));
        assert!((0..100).all(|seed| start_offset_ns(seed) < 21_000_000));
    }
}
