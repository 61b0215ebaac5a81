//! The messages between the lab's runner and the guest's PID 1.
//!
//! The runner puts a [`Job`] into the guest's initramfs as [`JOB_PATH`]. PID 1 carries it out and
//! writes one [`Event`] a line to the second serial port. The plugin adds a [`Measurement`]. This
//! crate has data types only.

mod measurement;

pub use measurement::{
    ManagerMeasurement, Matrix, Measurement, PipeMeasurement, Slice, VcpuMeasurement,
};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where PID 1 finds its job.
pub const JOB_PATH: &str = "/lab/job.json";
/// Where PID 1 finds the guest's driver; without this file there is no PMU, and a manager pays as
/// a managed program does.
pub const DRIVER_PATH: &str = "/lab/rondpoint_pmu.ko";
/// The driver's parameter that makes the process that writes to it a manager.
pub const MANAGER_PATH: &str = "/sys/module/rondpoint_pmu/parameters/manager";
/// The environment variable with the hexadecimal MIDR of the Arm processor that the machine plays,
/// from the kernel's command line.
pub const MIDR_VARIABLE: &str = "rondpoint_midr";
/// A shell script that runs before the program, unmodelled; the job is refused where it fails.
pub const PREPARE_PATH: &str = "/lab/prepare";
/// A shell script that runs after the program, unmodelled: it succeeds where the result is right.
/// `$OUTPUT` and `$ERRORS` name files with what the program wrote.
pub const CHECK_PATH: &str = "/lab/check";
/// Bytes kept of each of the program's output streams; the rest is counted and dropped.
pub const OUTPUT_LIMIT_BYTES: u64 = 8 << 20;
/// A file of [`Job::files`] that is larger does not come back: half of it would be of no use.
pub const FILE_LIMIT_BYTES: u64 = 64 << 20;

/// One program to run, and under which memory placement. The default is a shell in a guest that is
/// left as its kernel is without any balancing, unmodelled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The program (a path in the guest) and its arguments. Empty: an interactive shell.
    pub command: Vec<String>,
    /// The program's whole environment.
    pub environment: BTreeMap<String, String>,
    /// The memory policy that the program starts with.
    pub policy: MemoryPolicy,
    /// Whether [`PREPARE_PATH`] starts with it too: it makes files that the program maps.
    pub prepare_placed: bool,
    /// Whether the kernel's automatic NUMA balancing is on.
    pub numa_balancing: bool,
    /// A daemon to start before the program and to end after it, such as numad.
    pub daemon: Vec<String>,
    /// Whether the program is a manager, with own work that slow motion does not slow down. The
    /// daemon always is one.
    pub manager: bool,
    /// Whether the guest is to have no PMU, as most virtual machines have none.
    pub without_pmu: bool,
    /// Pause before the program starts, ns of guest time: part of what a seed varies.
    pub start_offset_ns: u64,
    /// Whether the program's accesses go through the hardware model.
    pub modelled: bool,
    /// When to spread the pages that the program has by then over all nodes with memory, ns of
    /// guest time after its start. What it allocates later is left where it comes.
    pub spread_after_ns: Option<u64>,
    /// Files (paths in the guest) that the program leaves and the runner wants. A missing file is
    /// not reported.
    pub files: Vec<String>,
}

/// The memory policy that a program starts with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// The kernel's default: a page comes from the node that first touches it.
    #[default]
    FirstTouch,
    /// Pages over all nodes with memory, in turn.
    Interleave,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It left with this status.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
}

/// One line from the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// The guest is up and the program is about to start.
    Started {
        /// `uname -r`.
        kernel: String,
        /// Whether the PMU driver is loaded.
        pmu: bool,
    },
    /// The program, or all of the job, could not be started.
    Refused {
        /// What was attempted and what the system said.
        reason: String,
    },
    /// The program has ended.
    Finished {
        /// The guest's clock (`CLOCK_MONOTONIC`) when the model was switched on, ns.
        model_on_ns: u64,
        /// From its start to its end, ns of guest time.
        elapsed_ns: u64,
        /// How it ended.
        ending: Ending,
        /// Largest resident set of the program, KiB.
        max_rss_kib: u64,
        /// How much each counter of `/proc/vmstat` rose meanwhile; unchanged counters are left out.
        vmstat: BTreeMap<String, u64>,
    },
    /// The script [`CHECK_PATH`] has ended.
    Checked {
        /// How it ended.
        ending: Ending,
        /// The end of what it said.
        said: String,
    },
    /// The program's output follows on the third (stdout) or fourth (stderr) serial port.
    Output {
        /// 1 is stdout, 2 is stderr.
        stream: u8,
        /// Bytes that follow.
        bytes: u64,
        /// Bytes that the program wrote.
        written: u64,
    },
    /// The program's pages were spread over the nodes, as [`Job::spread_after_ns`] asked. Absent
    /// where the program ended before.
    Spread {
        /// When that began, ns after the program's start.
        began_ns: u64,
        /// How long it took, ns.
        took_ns: u64,
        /// Base pages that went to another node.
        moved_pages: u64,
        /// Base pages that the kernel would not move.
        refused_pages: u64,
    },
    /// A file of [`Job::files`] follows on the third serial port, behind the program's output.
    File {
        /// Its path in the guest.
        path: String,
        /// Bytes that follow: all of it, or none where it is over [`FILE_LIMIT_BYTES`].
        bytes: u64,
        /// Its size.
        written: u64,
    },
    /// Everything was said; the guest powers off.
    Done,
}
