//! Scans the processes of the machine, with their size and CPU use.
//!
//! A scan is bounded: it reads the numbers in `/proc`, and one line for each process that is due.
//! New processes are due at once, busy ones at each scan, idle ones at growing intervals. For a
//! process that is neither idle nor busy enough for the rules, it also reads how long threads
//! waited for a CPU. On a crowded machine a process gets less CPU time than it would use.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_core::{Nanos, Pid};
use rondpoint_linux::act::Identity;
use rondpoint_linux::parse::schedstat;
use rondpoint_linux::parse::stat::{self, TaskStat};
use rondpoint_linux::syscall::memory::page_bytes;
use rondpoint_linux::syscall::process::ticks_per_second;
use rondpoint_linux::{Root, root};

use super::cgroups::Namespace;
use super::rules::{self, Facts};

/// Processes read at one look at most: some ten microseconds each.
const MOST_READ: usize = 2_000;
/// An idle process is read after twice the time each time, up to this.
const SELDOM: Duration = Duration::from_secs(60);
/// CPU use is measured over at least this part of the usual time between two looks. Above a second
/// it is this part of a second. Ticks are coarse (our choice).
const LEAST_MEASURED: u32 = 2;
/// The same for a process that has ended: another one may get its number.
const REUSED: Duration = Duration::from_secs(10);
/// CPUs below which a process is idle.
const IDLE: f64 = 0.05;
/// Threads of a process that are asked how long they waited. At most 20 processes per CPU are asked
/// for that, for others are idle.
const MOST_THREADS: usize = 64;
/// How long a cgroup and an owner are believed: a process may be moved and may change its user.
/// Those of an idle process are believed until it is read again, because it changes nothing by
/// itself. All are read before a plan changes it.
const BELIEVED: Duration = Duration::from_secs(30);

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Census {
    known: BTreeMap<Pid, Known>,
    /// Processes that have ended and wait for their parents, or cannot be read. Thousands of them
    /// would otherwise keep later processes from being read.
    unread: BTreeMap<Pid, Unread>,
    /// Found when the first cgroup is read; it stays as long as this process.
    namespace: OnceCell<Namespace>,
}

/// A process that was not readable.
#[derive(Debug, Clone, Copy)]
struct Unread {
    tried_at: Instant,
    due_after: Duration,
}

/// One process.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) identity: Identity,
    pub(super) parent: Pid,
    pub(super) facts: Facts,
    pub(super) threads: u32,
    pub(super) is_kernel_thread: bool,
    /// CPUs used by the children that it reaped since the reading before. A child that ran for long
    /// counts at once, so this may be more than the machine has.
    pub(super) reaped_cpus: f64,
    cpu_ticks: u64,
    reaped_ticks: u64,
    waits: Option<Waits>,
    read_at: Instant,
    due_after: Duration,
    looked_up: Option<Instant>,
}

/// Times of some threads of a process since each began.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    running_ns: u64,
    waiting_ns: u64,
}

/// Deeper than any real tree; numbers that were given anew could make a circle.
pub(super) const DEEPEST: usize = 64;

/// How processes are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The usual time between two looks.
    pub(super) every: Duration,
    /// CPUs from which a process is busy enough for the rules.
    pub(super) busy: f64,
}

impl Census {
    /// Looks once. Returns `(parent, child)` of each process that it read.
    pub(super) fn look(&mut self, from: &Root, pace: Pace) -> Vec<(Pid, Pid)> {
        // A list that cannot be read ends no process.
        let Ok(names) = root::list(&from.proc) else { return Vec::new() };
        let pids: Vec<Pid> = names.iter().filter_map(|name| name.parse().ok().map(Pid)).collect();
        let there: std::collections::BTreeSet<Pid> = pids.iter().copied().collect();
        self.known.retain(|pid, _| there.contains(pid));
        self.unread.retain(|pid, _| there.contains(pid));
        let now = Instant::now();
        let mut due: Vec<(bool, Duration, Pid)> = pids
            .into_iter()
            .filter_map(|pid| {
                let known = self.known.get(&pid).map(|known| known.read_at + known.due_after);
                let unread = || self.unread.get(&pid).map(|one| one.tried_at + one.due_after);
                match known.or_else(unread) {
                    None => Some((false, Duration::ZERO, pid)),
                    Some(due) => Some((true, now.checked_duration_since(due)?, pid)),
                }
            })
            .collect();
        // The new ones first, then those that have waited longest.
        due.sort_by_key(|(known, overdue, pid)| (*known, std::cmp::Reverse(*overdue), *pid));
        for (_, _, pid) in due.into_iter().take(MOST_READ) {
            self.read(from, pid, pace, now);
        }
        let read = self.known.values().filter(|known| known.read_at == now);
        read.map(|known| (known.parent, known.identity.pid)).collect()
    }

    fn read(&mut self, from: &Root, pid: Pid, pace: Pace, now: Instant) {
        let every = pace.every;
        let bytes = match root::read_optional(&from.in_proc(format!("{pid}/stat"))) {
            // A process that cannot be read is not taken for ended.
            Err(_) if self.known.contains_key(&pid) => return,
            read => read.ok().flatten(),
        };
        let reaped_ticks = bytes.as_deref().map_or(0, reaped_ticks);
        let found = bytes.and_then(|bytes| stat::parse(&bytes).ok());
        let has_ended = found.as_ref().is_some_and(|found| !found.is_alive());
        let Some(found) = found.filter(TaskStat::is_alive) else {
            self.known.remove(&pid);
            let before = self.unread.get(&pid).filter(|_| has_ended).map(|one| 2 * one.due_after);
            let due_after = before.unwrap_or(every).min(REUSED.max(every));
            self.unread.insert(pid, Unread { tried_at: now, due_after });
            return;
        };
        self.unread.remove(&pid);
        let started = Nanos(found.start_ticks.saturating_mul(1_000_000_000 / ticks_per_second()));
        let identity = Identity { pid, started };
        let before = self.known.get(&pid).filter(|known| known.identity == identity);
        let shortest = every.min(Duration::from_secs(1)) / LEAST_MEASURED;
        let is_measured = |before: &&Known| now.duration_since(before.read_at) < shortest;
        if let Some(before) = before.filter(is_measured) {
            let resident_bytes = found.resident_pages.saturating_mul(page_bytes() as u64);
            let facts = Facts { command: found.name, resident_bytes, ..before.facts.clone() };
            let parent = Pid(found.parent);
            let known = Known { parent, facts, threads: found.threads, ..before.clone() };
            self.known.insert(pid, known);
            return;
        }
        let rate = |used: u64, of: fn(&Known) -> u64| {
            before.and_then(|before| before.cpus_since(of(before), used, now))
        };
        let cpus = rate(found.cpu_time_ticks, |before| before.cpu_ticks);
        let reaped_cpus = rate(reaped_ticks, |before| before.reaped_ticks).unwrap_or(0.0);
        let is_idle = found.is_kernel_thread || cpus.is_some_and(|cpus| cpus < IDLE);
        let due_after = match before {
            Some(before) if is_idle => (2 * before.due_after).min(SELDOM.max(every)),
            _ => every,
        };
        let is_asked = !is_idle && cpus.is_some_and(|cpus| cpus < pace.busy);
        let waits = is_asked.then(|| waits(from, pid));
        let wanted = cpus.zip(waits).map(|(cpus, waits)| {
            let earlier = before.and_then(|before| before.waits).unwrap_or_default();
            cpus * waits.stretch(earlier)
        });
        let old = before.map(|before| (before.facts.clone(), before.looked_up));
        let (old, looked_up) = old.unwrap_or_default();
        let facts = Facts {
            command: found.name,
            resident_bytes: found.resident_pages.saturating_mul(page_bytes() as u64),
            cpus,
            wanted_cpus: wanted.or(cpus),
            ..old
        };
        let known = Known {
            identity,
            parent: Pid(found.parent),
            facts,
            threads: found.threads,
            is_kernel_thread: found.is_kernel_thread,
            reaped_cpus,
            cpu_ticks: found.cpu_time_ticks,
            reaped_ticks,
            waits,
            read_at: now,
            due_after,
            looked_up,
        };
        self.known.insert(pid, known);
    }

    /// Reads one process now, whether it is due or not.
    pub(super) fn ask(&mut self, from: &Root, pid: Pid, pace: Pace) -> Option<&Known> {
        self.read(from, pid, pace, Instant::now());
        self.complete(from, pid)
    }

    /// A process with its owner and its cgroup, which are looked up only for processes that matter.
    pub(super) fn complete(&mut self, from: &Root, pid: Pid) -> Option<&Known> {
        let known = self.known.get(&pid)?;
        let believed = BELIEVED.max(known.due_after);
        if known.looked_up.is_none_or(|at| at.elapsed() > believed) {
            let (user, cgroup) = (root::owner(from, pid)?, self.cgroup_of(from, pid));
            let known = self.known.get_mut(&pid)?;
            (known.facts.user, known.facts.cgroup) = (user, cgroup);
            known.looked_up = Some(Instant::now());
        }
        self.known.get(&pid)
    }

    /// The parent of a process, and its name, owner and cgroup at this moment, for the rules that
    /// go by them. `None` if it has ended.
    ///
    /// # Errors
    /// It cannot be read, as without a free descriptor.
    pub(super) fn names_now(&self, from: &Root, pid: Pid) -> Result<Option<(Pid, Facts)>> {
        let bytes = root::read_optional(&from.in_proc(format!("{pid}/stat")))?;
        let Some((bytes, user)) = bytes.zip(root::owner(from, pid)) else { return Ok(None) };
        let TaskStat { name: command, parent, .. } = stat::parse(&bytes)?;
        let cgroup = self.cgroup_of(from, pid);
        Ok(Some((Pid(parent), Facts { command, user, cgroup, ..Facts::default() })))
    }

    fn cgroup_of(&self, from: &Root, pid: Pid) -> Option<String> {
        let bytes = root::read_optional(&from.in_proc(format!("{pid}/cgroup"))).ok()??;
        let namespace = self.namespace.get_or_init(|| Namespace::own(from));
        namespace.path_from_top(rules::cgroup(&String::from_utf8_lossy(&bytes))?)
    }

    /// No process waits longer than this between two readings that were planned so far.
    pub(super) fn hurry(&mut self, every: Duration) {
        self.known.values_mut().for_each(|one| one.due_after = one.due_after.min(every));
    }

    /// A process is new at the next look.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.known.remove(&pid);
    }

    /// As it is known.
    pub(super) fn get(&self, pid: Pid) -> Option<&Known> {
        self.known.get(&pid)
    }

    /// Everybody, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// A process and all that descend from it, as last seen.
    pub(super) fn with_descendants(&self, process: Identity) -> Vec<Identity> {
        let is_below = |one: &&Known| self.ancestors(one.identity.pid).any(|up| up == process.pid);
        let below = self.iter().filter(is_below).map(|one| one.identity);
        std::iter::once(process).chain(below).collect()
    }

    /// A process's parent, its parent, and so on, as last seen.
    pub(super) fn ancestors(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        let parent = |pid: &Pid| self.known.get(pid).map(|known| known.parent);
        std::iter::successors(parent(&pid), parent).take(DEEPEST)
    }
}

impl Known {
    /// CPUs that were used since this was read, when a clock was at `earlier` ticks.
    fn cpus_since(&self, earlier: u64, ticks: u64, now: Instant) -> Option<f64> {
        let elapsed = now.duration_since(self.read_at).as_secs_f64();
        let used = ticks.saturating_sub(earlier) as f64 / ticks_per_second() as f64;
        (elapsed > 0.0).then(|| used / elapsed)
    }
}

impl Waits {
    /// Time that the threads would have run without waiting, per time that they ran. Threads may
    /// have come and gone between the two.
    fn stretch(self, earlier: Self) -> f64 {
        let ran = self.running_ns.saturating_sub(earlier.running_ns) as f64;
        let waited = self.waiting_ns.saturating_sub(earlier.waiting_ns) as f64;
        if ran > 0.0 { 1.0 + waited / ran } else { 1.0 }
    }
}

/// CPU time of the children that a process has reaped, in clock ticks: fields 16 and 17 of its
/// `stat` (proc_pid_stat(5)). 0 if they are not there.
fn reaped_ticks(stat: &[u8]) -> u64 {
    // Fields are counted from the last parenthesis, which field 3 follows.
    let rest = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let fields = rest.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    fields.skip(16 - 3).take(2).filter_map(number).fold(0, u64::saturating_add)
}

fn waits(from: &Root, pid: Pid) -> Waits {
    let folder = from.in_proc(format!("{pid}/task"));
    let threads = root::list(&folder).unwrap_or_default();
    let mut sum = Waits::default();
    for thread in threads.iter().take(MOST_THREADS) {
        let bytes = root::read_optional(&folder.join(thread).join("schedstat")).ok().flatten();
        let Some(found) = bytes.and_then(|bytes| schedstat::parse(&bytes).ok()) else { continue };
        sum.running_ns = sum.running_ns.saturating_add(found.running_ns);
        sum.waiting_ns = sum.waiting_ns.saturating_add(found.waiting_ns);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Fixture(tempfile::TempDir);

    impl Fixture {
        fn process(&self, pid: u32, parent: u32, ticks: u64, pages: u64) {
            let folder = Root::captured(self.0.path()).in_proc(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let line = format!(
                "{pid} (x) S {parent} 1 1 0 -1 0 7 0 1 0 {ticks} 0 0 0 20 0 1 0 100 0 {pages} 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0\n"
            );
            fs::write(folder.join("stat"), line).unwrap();
            fs::write(folder.join("cgroup"), "0::/a.service\n").unwrap();
        }
    }

    #[test]
    fn processes_that_come_and_go_are_known_and_an_idle_one_is_read_seldom() {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        let from = Root::captured(fixture.0.path());
        let every = Pace { every: Duration::from_nanos(1), busy: 0.5 };
        let mut census = Census::default();
        fixture.process(7, 1, 0, 10);
        fixture.process(8, 7, 0, 10);
        census.look(&from, every);
        assert_eq!(census.len(), 2);
        assert_eq!(census.get(Pid(7)).unwrap().facts.cpus, None, "nothing to compare with");
        assert_eq!(census.ancestors(Pid(8)).collect::<Vec<_>>(), [Pid(7), Pid(1)]);
        fixture.process(8, 7, 1 << 40, 10);
        census.look(&from, every);
        let (idle, busy) = (census.get(Pid(7)).unwrap(), census.get(Pid(8)).unwrap());
        assert_eq!(idle.facts.cpus, Some(0.0));
        assert!(busy.facts.cpus > Some(1.0));
        assert!(idle.due_after > busy.due_after);
        assert_eq!(idle.facts.cgroup, None, "no rule asked");
        let complete = census.complete(&from, Pid(7)).unwrap();
        assert_eq!(complete.facts.cgroup.as_deref(), Some("/a.service"));
        fs::remove_dir_all(from.in_proc("7")).unwrap();
        census.look(&from, every);
        assert!(census.get(Pid(7)).is_none() && census.get(Pid(8)).is_some());
    }

    #[test]
    fn children_that_end_between_two_looks_are_use_of_their_parent() {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        let from = Root::captured(fixture.0.path());
        let pace = Pace { every: Duration::from_nanos(1), busy: 0.5 };
        let mut census = Census::default();
        fixture.process(7, 1, 0, 10);
        let path = from.in_proc("7/stat");
        // Fields 14 to 17: the process itself, then its children. Its name is an attack on these.
        let line = fs::read_to_string(&path).unwrap().replace("(x)", "(x) S 1 (y)");
        let reaped = |user: u64, system: u64| {
            line.replace(" 0 0 0 0 20 ", &format!(" 0 0 {user} {system} 20 "))
        };
        fs::write(&path, reaped(1 << 40, 1 << 39)).unwrap();
        census.look(&from, pace);
        assert_eq!(census.get(Pid(7)).unwrap().reaped_cpus, 0.0, "nothing to compare with");
        census.look(&from, pace);
        assert_eq!(census.get(Pid(7)).unwrap().reaped_cpus, 0.0, "none ended since");
        fs::write(&path, reaped(1 << 41, 1 << 39)).unwrap();
        census.look(&from, pace);
        let known = census.get(Pid(7)).unwrap();
        assert_eq!(known.facts.cpus, Some(0.0), "it slept itself");
        assert!(known.reaped_cpus > 1.0, "{}", known.reaped_cpus);
    }

    #[test]
    fn what_cannot_be_read_ends_no_process() {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        let from = Root::captured(fixture.0.path());
        let pace = Pace { every: Duration::ZERO, busy: 0.5 };
        let mut census = Census::default();
        fixture.process(7, 1, 0, 10);
        census.look(&from, pace);
        // A link to itself (ELOOP), first in place of the process's file, then of the whole folder.
        for path in [from.in_proc("7/stat"), from.proc.clone()] {
            fs::rename(&path, fixture.0.path().join("away")).unwrap();
            std::os::unix::fs::symlink(&path, &path).unwrap();
            census.look(&from, pace);
            assert!(census.get(Pid(7)).is_some(), "{path:?}");
            fs::remove_file(&path).unwrap();
            fs::rename(fixture.0.path().join("away"), &path).unwrap();
        }
        fs::remove_dir_all(from.in_proc("7")).unwrap();
        census.look(&from, pace);
        assert!(census.get(Pid(7)).is_none());
    }

    #[test]
    fn the_cgroup_of_another_container_is_that_of_the_machine_or_unknown() {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        let from = Root::captured(fixture.0.path());
        fixture.process(7, 1, 0, 10);
        fs::write(from.in_proc("7/cgroup"), "0::/../../pods/b\n").unwrap();
        let mut census = Census::default();
        census.look(&from, Pace { every: Duration::from_secs(5), busy: 0.5 });
        assert_eq!(census.complete(&from, Pid(7)).unwrap().facts.cgroup, None);
        assert_eq!(census.names_now(&from, Pid(7)).unwrap().unwrap().1.cgroup, None);
        // The tree of the machine, and this process in the container `/pods/a`.
        let mount = "32 23 0:28 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let own = from.in_sys("fs/cgroup/pods/a/cgroup.procs");
        fs::create_dir_all(from.in_proc("self")).unwrap();
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        fs::write(from.in_proc("self/mountinfo"), mount).unwrap();
        fs::write(from.in_proc("self/cgroup"), "0::/\n").unwrap();
        fs::write(own, format!("{}\n", std::process::id())).unwrap();
        let mut census = Census::default();
        census.look(&from, Pace { every: Duration::from_secs(5), busy: 0.5 });
        let found = census.complete(&from, Pid(7)).unwrap().facts.cgroup.clone();
        assert_eq!(found.as_deref(), Some("/pods/b"));
        assert_eq!(census.names_now(&from, Pid(7)).unwrap().unwrap().1.cgroup, found);
    }

    #[test]
    fn thousands_of_ended_processes_hide_no_later_one() {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        let from = Root::captured(fixture.0.path());
        let pace = Pace { every: Duration::from_secs(5), busy: 0.5 };
        let last = MOST_READ as u32 + 2;
        for pid in 2..=last {
            fixture.process(pid, 1, 0, 10);
            if pid < last {
                let path = from.in_proc(format!("{pid}/stat"));
                let ended = fs::read_to_string(&path).unwrap().replace(") S", ") Z");
                fs::write(path, ended).unwrap();
            }
        }
        let mut census = Census::default();
        for _ in 0..2 {
            census.look(&from, pace);
        }
        assert!(census.get(Pid(last)).is_some());
        assert_eq!(census.len(), 1);
        // One of the numbers goes to a process that lives.
        fixture.process(2, 1, 0, 10);
        census.look(&from, Pace { every: Duration::ZERO, ..pace });
        assert!(census.ask(&from, Pid(2), pace).is_some());
        assert!(!census.unread.contains_key(&Pid(2)));
    }

    #[test]
    fn a_process_that_waits_for_a_cpu_wants_more_than_it_gets() {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        let from = Root::captured(fixture.0.path());
        let waits = |pid: u32, tid: u32, running: u64, waiting: u64| {
            let task = from.in_proc(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("schedstat"), format!("{running} {waiting} 7\n")).unwrap();
        };
        let mut census = Census::default();
        let pace = |busy| Pace { every: Duration::from_nanos(1), busy };
        fixture.process(7, 1, 0, 10);
        waits(7, 7, 1_000, 9_000);
        waits(7, 8, 1_000, 0);
        census.look(&from, pace(f64::MAX));
        assert_eq!(census.get(Pid(7)).unwrap().facts.wanted_cpus, None, "nothing to compare with");
        let mut wanted_per_used = |ticks, busy| {
            fixture.process(7, 1, ticks, 10);
            census.look(&from, pace(busy));
            let facts = &census.get(Pid(7)).unwrap().facts;
            facts.wanted_cpus.unwrap() / facts.cpus.unwrap()
        };
        assert!((wanted_per_used(1 << 40, f64::MAX) - 5.5).abs() < 1e-9);
        waits(7, 7, 3_000, 10_000);
        assert!((wanted_per_used(1 << 41, f64::MAX) - 1.5).abs() < 1e-9, "since the last look");
        waits(7, 7, 4_000, 99_000);
        assert!((wanted_per_used(1 << 42, 0.5) - 1.0).abs() < 1e-9, "busy enough: not asked");
    }
}
