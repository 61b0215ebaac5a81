//! Finds processes that have hardly run since their files were read, and processes whose files stay
//! open.
//!
//! Of thousands of idle processes a look reads the CPU clocks only: one system call each, and no
//! file. Where records of new processes are missing, it also reads the threads and children of
//! each that has run since the last look. One that runs for some microseconds now and then is read
//! when these have added up. What it did in them, a new thread or another mask, is observed then.
//!
//! The kernel updates the clock of a running thread at its ticks. So a process that has begun to
//! run since the last tick is taken for still until the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rondpoint_core::{Nanos, Pid};

use super::{Tasks, read};
use crate::LinuxError;
use crate::parse::schedstat;
use crate::root::Root;
use crate::syscall::time::{cpu_time_ns, since_boot_ns};

/// CPU time of a process for each of its threads, for which its files need not be read again (our
/// choice). Reading takes some 15 µs a thread, so it costs up to 1.5 % of what the process uses.
const HARDLY: Nanos = Nanos::from_millis(1);
/// The same for a process of many threads: what ends a wait is more.
const HARDLY_AT_MOST: Nanos = Nanos::from_millis(20);
/// Longest time between two readings of a process that runs at all (our choice).
const LONGEST: Duration = Duration::from_secs(300);

/// Least time over which the use of CPUs is told (our choice): five ticks of the kernel's clock.
const SHORTEST: Nanos = Nanos::from_millis(50);

pub(super) fn hardly(threads: usize) -> Nanos {
    Nanos(HARDLY.0 * threads.max(1) as u64).min(HARDLY_AT_MOST)
}

/// Processes that have hardly run since their files were read.
#[derive(Debug, Default)]
pub(super) struct Still {
    pub(super) all: BTreeSet<Pid>,
    /// Those of them that have run since the last look: they may have children.
    pub(super) ran: BTreeSet<Pid>,
}

/// CPU time that the processes used since the last look.
#[derive(Debug, Default)]
struct Used {
    most: u64,
    all: u64,
    is_unknown: bool,
}

impl Used {
    /// Adds a process. One that has ended used nothing that matters any more.
    fn add(&mut self, before: Option<Nanos>, now: Option<Nanos>) {
        let Some(now) = now else { return };
        self.is_unknown |= before.is_none();
        let ran = before.map_or(0, |before| now.0.saturating_sub(before.0));
        self.most = self.most.max(ran);
        self.all += ran;
    }

    fn cpus(&self, elapsed: Nanos) -> Option<(f64, f64)> {
        let of = |ran: u64| ran as f64 / elapsed.0 as f64;
        (!self.is_unknown).then(|| (of(self.most), of(self.all)))
    }
}

impl Tasks {
    /// Processes that have not run since their files were read, or hardly. Changes of their
    /// scheduling by other processes are observed when they run again.
    pub(super) fn find_still(&mut self) -> Result<Still, LinuxError> {
        let now = Instant::now();
        let mut still = Still::default();
        let began = std::mem::replace(&mut self.clocks_at, Nanos(since_boot_ns()));
        let mut used = Used::default();
        for (pid, process) in &mut self.processes {
            let before = std::mem::replace(&mut process.clock, clock(&self.root, *pid)?);
            used.add(before, process.clock);
            process.doze.look(process.clock, process.threads.len());
            let Some((clock, read)) = process.clock.zip(process.read.as_ref()) else { continue };
            let ran = read.clock.map(|before| clock.0.wrapping_sub(before.0));
            let allowed = if self.lets_rest && now < read.at + LONGEST {
                hardly(process.threads.len())
            } else {
                Nanos(0)
            };
            if ran.is_some_and(|ran| ran <= allowed.0) {
                still.all.insert(*pid);
                if before != Some(clock) {
                    still.ran.insert(*pid);
                }
            }
        }
        let elapsed = self.clocks_at.since(began);
        if elapsed >= SHORTEST {
            self.used = used.cpus(elapsed);
        }
        Ok(still)
    }

    /// CPUs that the followed processes used between the last two looks: the most of one, and of
    /// all together. `None` if that is not known of one.
    #[must_use]
    pub fn used_cpus(&self) -> Option<(f64, f64)> {
        self.used
    }

    /// The processes of the last look, and the roots.
    pub fn followed(&self) -> impl Iterator<Item = Pid> {
        self.family.followed()
    }

    /// The processes of the last look.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    /// CPU time of each process that the last look observed, and when these were read: of all its
    /// threads, ended ones included. A process that is new to the look was read a little later.
    #[must_use]
    pub fn cpu_times_of_look(&self) -> (Nanos, BTreeMap<Pid, Nanos>) {
        let of = |(pid, process): (&Pid, &super::Process)| Some((*pid, process.clock?));
        let seen = self.processes.iter().filter(|(_, process)| !self.dozes(process));
        (self.clocks_at, seen.filter_map(of).collect())
    }

    /// CPU time of a process at the last look; `None` if it was not observed.
    #[must_use]
    pub fn cpu_time_of_look(&self, pid: Pid) -> Option<Nanos> {
        self.processes.get(&pid)?.clock
    }

    /// Reads a process in the next look even if it does not run, because it was changed.
    pub fn look_again_at(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.read = None;
            process.maps.schedule.expire();
            process.doze.change();
        }
    }

    /// Reads every process in the next look.
    pub fn look_again_at_all(&mut self) {
        self.processes.values_mut().for_each(|process| process.read = None);
        self.newborn.admit_all();
    }

    /// Reads each process with counted threads in the next look even if it does not run, because
    /// its counts are out of date.
    pub(super) fn look_again_at_counted(&mut self) {
        let is_counted = |process: &&mut super::Process| {
            process.threads.values().any(|thread| thread.counters.is_some())
        };
        self.processes.values_mut().filter(is_counted).for_each(|process| process.read = None);
    }
}

/// CPU time of a process; `None` if it has ended. Clocks are no files, so for a captured machine
/// the times of its threads are added.
pub(super) fn clock(root: &Root, pid: Pid) -> Result<Option<Nanos>, LinuxError> {
    if *root == Root::live() {
        return Ok(cpu_time_ns(pid.0).map(Nanos));
    }
    let mut sum = None;
    for tid in crate::root::list(&root.in_proc(format!("{pid}/task")))? {
        let path = root.in_proc(format!("{pid}/task/{tid}/schedstat"));
        if let Some(found) = read(&path, schedstat::parse)? {
            sum = Some(Nanos(sum.unwrap_or(Nanos(0)).0 + found.running_ns));
        }
    }
    Ok(sum)
}
