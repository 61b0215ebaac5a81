//! Workload files: the behaviour of programs in numbers, without any placement.
//!
//! Every field that no publication fixes is a choice of the file. Unknown fields are errors.

mod check;
mod settings;

use std::path::Path;

use rondpoint_input::{Budget, mistake};
use serde::{Deserialize, Serialize};

pub(crate) use check::{MOST_ACCESSES, pages_of};
use check::{check, check_requests};

/// Longest workload file, bytes.
const FILE_BYTES: u64 = 1 << 20;

/// Families that `--judge` and `--predictions` do not run.
pub(crate) const MORE: &[(&str, &str)] = &[
    ("bursts", include_str!("../../../workloads/bursts.toml")),
    ("fork-storm", include_str!("../../../workloads/fork-storm.toml")),
    ("locked", include_str!("../../../workloads/locked.toml")),
    ("oversubscribed", include_str!("../../../workloads/oversubscribed.toml")),
    ("service-open", include_str!("../../../workloads/service-open.toml")),
];

/// Workloads that come with the program: the parametric families, each with usual values.
pub(crate) const BUILT_IN: &[(&str, &str)] = &[
    ("barriers", include_str!("../../../workloads/barriers.toml")),
    ("look-ups", include_str!("../../../workloads/look-ups.toml")),
    ("one-thread", include_str!("../../../workloads/one-thread.toml")),
    ("partitioned", include_str!("../../../workloads/partitioned.toml")),
    ("phase-change", include_str!("../../../workloads/phase-change.toml")),
    ("private", include_str!("../../../workloads/private.toml")),
    ("producer-consumer", include_str!("../../../workloads/producer-consumer.toml")),
    ("read-shared", include_str!("../../../workloads/read-shared.toml")),
    ("serial-then-parallel", include_str!("../../../workloads/serial-then-parallel.toml")),
    ("sharing-pairs", include_str!("../../../workloads/sharing-pairs.toml")),
    ("short-lived", include_str!("../../../workloads/short-lived.toml")),
    ("service", include_str!("../../../workloads/service.toml")),
    ("short-phases", include_str!("../../../workloads/short-phases.toml")),
    ("store", include_str!("../../../workloads/store.toml")),
    ("write-shared", include_str!("../../../workloads/write-shared.toml")),
];

/// Why a workload is refused.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file cannot be read, or is none.
    #[error("{file}: {message}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        message: String,
    },
    /// The text is no workload.
    #[error("{file}: {message}")]
    Parse {
        /// The file.
        file: String,
        /// The parser's words.
        message: String,
    },
    /// A value is out of range.
    #[error("{file}: {field}: expected {expected}, got {got}")]
    Range {
        /// The file.
        file: String,
        /// Program and field.
        field: String,
        /// What is valid.
        expected: &'static str,
        /// What was there.
        got: f64,
    },
}

/// Programs that run together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Short name, also the stem of its file.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// When all programs are stopped, in seconds; 0 = each ends with its work. A program that was
    /// stopped counts with the time that its whole work takes at its mean pace.
    #[serde(default)]
    pub stops_s: f64,
    /// The programs.
    pub programs: Vec<Program>,
}

/// One program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name in reports.
    pub name: String,
    /// The part of a joined workload to which it belongs, from 0. Requests stay within a part.
    #[serde(skip)]
    pub(crate) part: usize,
    /// Threads of each instance; 0 = one for each CPU.
    #[serde(default)]
    pub threads: u32,
    /// Threads of each instance for each CPU of the machine; 0 = as `threads` says.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads_per_cpu: f64,
    /// Processes of it.
    #[serde(default = "one")]
    pub instances: u32,
    /// When it starts, in seconds.
    #[serde(default)]
    pub start_s: f64,
    /// Mean seconds from the start of one instance to the start of the next, which come at random;
    /// 0 = all start together.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub every_s: f64,
    /// Seconds that it runs alone on idle memory with every access local.
    pub seconds: f64,
    /// Whether each thread is pinned to the CPU on which it begins.
    #[serde(default)]
    pub pinned: bool,
    /// Whether its threads wait for each other.
    #[serde(default)]
    pub waits: Waits,
    /// Cycles of an instruction when every access hits a private cache.
    pub cycles_per_instruction: f64,
    /// Accesses beyond the private caches in 1,000 instructions.
    pub accesses_per_kilo: f64,
    /// Misses that a thread keeps under way, bounded by the core.
    pub outstanding: f64,
    /// Lines fetched from caches of other threads in 1,000 instructions.
    #[serde(default)]
    pub transfers_per_kilo: f64,
    /// Threads that exchange those lines and use a part of a region `used = "circle"` together, in
    /// order of their numbers; 0 = all of the process.
    #[serde(default)]
    pub sharers: u32,
    /// Swing of its demand from epoch to epoch, 0 to 0.9 of the mean.
    #[serde(default)]
    pub burst: f64,
    /// Bursts of its demand in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
    /// A lock that its threads hold for a share of their work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// Requests that it sends to another program, or answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Its memory.
    pub regions: Vec<Region>,
    /// Changes on the way, ascending by `at`; before the first, all is as written above.
    #[serde(default)]
    pub phases: Vec<Phase>,
}

/// Requests between two programs. A client sends one to any thread of the other program and sleeps
/// until the reply comes. A thread that answers sleeps until a request comes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// The program that answers; empty = this program answers.
    #[serde(default)]
    pub to: String,
    /// Instructions for one request, in thousands: to answer it, or from a reply to the next one.
    pub kilo_instructions: f64,
    /// Lines of a message, fetched from the sender's cache.
    #[serde(default)]
    pub lines: f64,
    /// Requests in a second of each process that sends, which do not wait for replies; 0 = each
    /// thread sends the next request after a reply.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub per_s: f64,
}

/// Bursts of demand: accesses beyond the private caches are as written in a burst, fewer outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Seconds from the begin of one burst to the begin of the next.
    pub every_s: f64,
    /// Share of the time in bursts.
    pub share: f64,
    /// Factor on the accesses outside of bursts.
    #[serde(default)]
    pub quiet: f64,
}

/// A lock around a section of code. One thread at a time runs it, on the data of one region. A
/// region with several parts has a lock for each part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The region with the data: its place in the program's list, from 0. All accesses inside go
    /// there, beside those that the region's own share gives.
    #[serde(default)]
    pub region: usize,
    /// Share of each thread's instructions that it runs inside.
    pub share: f64,
    /// Instructions inside each time, in thousands.
    pub kilo_instructions: f64,
    /// Lines of the lock and its data that come from the cache of the thread that held it before.
    #[serde(default = "one_float")]
    pub lines: f64,
    /// How a thread waits for the lock: it sleeps, or it spins and retires instructions.
    pub waits: Waits,
}

/// How threads wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waits {
    /// Each thread has its own share of the work.
    #[default]
    Never,
    /// All threads spin at barriers: the slowest sets the pace, the others retire instructions.
    Spin,
    /// All threads sleep at barriers: the slowest sets the pace, the others leave their CPUs.
    Sleep,
}

/// A part of a program's memory with pages that are used alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// MiB of each thread for `used = "own"` and `"next"`, of each circle of sharers for
    /// `"circle"`, else of the process.
    pub mib: f64,
    /// Which thread touches its pages first.
    pub touched: Touched,
    /// Which threads use it.
    pub used: Used,
    /// Share of the program's accesses; the shares of a program add up to 1.
    pub share: f64,
    /// Share of those that write.
    #[serde(default)]
    pub writes: f64,
    /// Share of the accesses that hit the last-level cache if the region fits in it.
    #[serde(default)]
    pub reuse: f64,
    /// Seconds after which a part is freed and allocated anew elsewhere, touched as at first;
    /// 0 = it lasts as long as the process.
    #[serde(default)]
    pub lives_s: f64,
}

/// Which thread touches a page first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touched {
    /// The first thread of the process.
    First,
    /// The thread that uses it; the first of a circle; for shared regions every thread in turn.
    Own,
}

/// Which threads use a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Used {
    /// All threads alike.
    All,
    /// Each thread has a part of its own.
    Own,
    /// Each thread uses the part of the next one: consumers read what producers touched.
    Next,
    /// Each circle of sharers has a part that its threads use alike.
    Circle,
}

/// A change of behaviour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Share of the work done at which it begins.
    pub at: f64,
    /// Factor on the accesses beyond the private caches.
    #[serde(default = "one_float")]
    pub intensity: f64,
    /// Each thread uses the parts of the thread this many places on.
    #[serde(default)]
    pub rotate: u32,
    /// Only this many threads run; 0 = all. Programs that wait at barriers only.
    #[serde(default)]
    pub active: u32,
}

fn one() -> u32 {
    1
}

fn one_float() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Program {
    /// Share of its accesses that go to a region, those inside of its lock included.
    pub(crate) fn share_of(&self, region: usize) -> f64 {
        let outside = self.regions[region].share;
        match &self.lock {
            None => outside,
            Some(lock) => {
                let inside = if region == lock.region { lock.share } else { 0.0 };
                (1.0 - lock.share) * outside + inside
            }
        }
    }

    /// Parts of a region that an instance with so many threads has.
    pub(crate) fn parts_of(&self, region: usize, threads: usize) -> usize {
        match (self.regions[region].used, self.sharers as usize) {
            (Used::All, _) | (Used::Circle, 0) => 1,
            (Used::Own | Used::Next, _) => threads,
            (Used::Circle, sharers) => threads.div_ceil(sharers),
        }
    }

    /// Threads of an instance on a machine with so many CPUs.
    pub(crate) fn threads_on(&self, cpus: usize) -> usize {
        match (self.threads_per_cpu > 0.0, self.threads) {
            (true, _) => ((self.threads_per_cpu * cpus as f64).round() as usize).max(1),
            (false, 0) => cpus,
            (false, threads) => threads as usize,
        }
    }
}

impl Workload {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is no workload, or has values out of range.
    pub fn load(path: &Path) -> Result<Self, WorkloadError> {
        let file = path.display().to_string();
        let text = rondpoint_input::read_text(path, &mut Budget::new(FILE_BYTES, 0));
        let text = text.map_err(|error| WorkloadError::Read {
            file: file.clone(),
            message: error.to_string(),
        })?;
        Self::parse(&text, &file)
    }

    /// Parses and checks; `file` is for messages.
    ///
    /// # Errors
    /// It is no workload, or has values out of range.
    pub fn parse(text: &str, file: &str) -> Result<Self, WorkloadError> {
        let parsed: Self = toml::from_str(text).map_err(|error| WorkloadError::Parse {
            file: file.to_string(),
            message: mistake(text, error.span(), error.message()),
        })?;
        parsed.check(file)?;
        Ok(parsed)
    }

    /// Checks all values; `file` is for messages.
    ///
    /// # Errors
    /// A value is out of range.
    pub(crate) fn check(&self, file: &str) -> Result<(), WorkloadError> {
        self.programs.iter().try_for_each(|program| check(program, file))?;
        check_requests(&self.programs, file)?;
        if !(0.0..=1e5).contains(&self.stops_s) {
            let (field, expected) = ("stops_s".to_string(), "0 (with its work) to 100,000 s");
            return Err(WorkloadError::Range {
                file: file.to_string(),
                field,
                expected,
                got: self.stops_s,
            });
        }
        match self.programs.is_empty() {
            true => Err(WorkloadError::Parse {
                file: file.to_string(),
                message: "expected at least one program".to_string(),
            }),
            false => Ok(()),
        }
    }

    /// Refuses programs that together are too large to simulate on a machine with so many CPUs.
    ///
    /// # Errors
    /// Too many threads or pages. The error names the product.
    pub(crate) fn check_size(&self, cpus: usize) -> Result<(), WorkloadError> {
        check::check_size(self, cpus)
    }

    /// Both sets of programs at once: co-scheduling. Programs that ask and answer each other do so
    /// within their set.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        let parts = self.programs.iter().map(|program| program.part + 1).max().unwrap_or(0);
        other.programs.iter_mut().for_each(|program| program.part += parts);
        self.name = format!("{}+{}", self.name, other.name);
        self.title = format!("{}, with {}", self.title, other.title);
        self.stops_s = self.stops_s.max(other.stops_s);
        self.programs.extend(other.programs);
        self
    }
}
