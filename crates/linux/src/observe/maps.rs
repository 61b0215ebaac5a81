//! The nodes of a process's memory, and its memory policies, from `numa_maps`. This file is read
//! rarely, because the kernel holds the process's map lock meanwhile. For a large process other
//! sources give the proportions: hint faults that the kernel's NUMA balancing counted, or else the
//! nodes of some pages.

mod policy;
mod schedule;
mod spread;
mod walk;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rondpoint_core::observation::AddressRange;
use rondpoint_core::{Bytes, Pid, Topology};

use self::policy::Policies;
use self::schedule::Schedule;
use self::spread::by_pages;
use self::walk::Walk;
use super::tasks::read;
use super::{REST, unless_denied};
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::maps::{self, Mapping, Mode};
use crate::parse::numa_maps::{self, Totals};
use crate::parse::sched;

/// Resident memory above which `numa_maps` is read in parts and only for policies (our choice).
/// Reading takes about 2 ms for 256 MiB of small pages (measured on a 2-CPU virtual machine). The
/// nodes of memory then come from the threads' `sched`, or from some pages.
const NUMA_MAPS_LIMIT: Bytes = Bytes(1 << 30);

/// Most entries of page tables to walk in one look, where it may hold the map lock for this long;
/// `None`: the usual time.
pub(super) fn entries_within(map_lock: Option<Duration>) -> u64 {
    let entries = |time: Duration| time.as_nanos() / walk::ENTRY.as_nanos();
    map_lock.map_or(policy::ENTRIES, |time| entries(time).try_into().unwrap_or(u64::MAX))
}

/// Schedule and results of the readings of a process's `numa_maps`.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) schedule: Schedule,
    /// Most entries of page tables that the kernel walks in one look at policies.
    entries: u64,
    policies: Policies,
    /// Earliest time of the next reading of a part for the policies.
    policies_rest_until: Option<Instant>,
    /// Address ranges with a known policy that the program did not choose; `None`: all memory.
    policy_read: Option<Vec<AddressRange>>,
}

impl Default for Maps {
    fn default() -> Self {
        Self::within(policy::ENTRIES)
    }
}

impl Maps {
    /// Nothing is read yet. `entries`: as of [`entries_within`].
    pub(super) fn within(entries: u64) -> Self {
        Self {
            schedule: Schedule::default(),
            entries,
            policies: Policies::default(),
            policies_rest_until: None,
            policy_read: None,
        }
    }

    /// Whether some memory has a policy that the program chose.
    pub(super) fn has_own_policy(&self) -> bool {
        self.policies.has_own()
    }

    /// Address ranges with a known policy that the program did not choose; `None`: all memory.
    pub(super) fn policy_read(&self) -> Option<&Vec<AddressRange>> {
        self.policy_read.as_ref()
    }

    /// Memory by node; `None` if no reading is due or the file may not be read. `threads`: `sched`
    /// files of the process's threads.
    pub(super) fn read(
        &mut self,
        path: &Path,
        pid: Pid,
        topology: &Topology,
        resident: Bytes,
        threads: impl Iterator<Item = PathBuf>,
    ) -> Result<Option<Vec<Bytes>>, LinuxError> {
        if topology.node_count() == 1 {
            return Ok(Some(vec![resident]));
        }
        let begin = Instant::now();
        if !self.schedule.is_due(begin, resident) {
            return Ok(None);
        }
        self.schedule.resident = resident;
        if resident > NUMA_MAPS_LIMIT {
            let memory = self.read_large(path, pid, topology, resident, threads)?;
            self.schedule.rest(begin);
            return Ok(memory);
        }
        // The maps of another user's process may not be read, though its threads may be observed.
        let totals = unless_denied(totals(path))?;
        self.schedule.rest(begin);
        let Some(totals) = totals else {
            self.policy_read = Some(Vec::new());
            return Ok(None);
        };
        self.policy_read = None;
        let Some(Whole { totals, usual, has_copies }) = totals else { return Ok(None) };
        self.policies.set(totals.own_policy, usual);
        self.policy_read = has_copies.then(|| self.policies.usual());
        let mut by_node = vec![Bytes(0); topology.node_count()];
        for (kernel_id, bytes) in totals.bytes_by_node {
            if let Some(node) = topology.node_of_kernel_id(kernel_id) {
                by_node[node] = Bytes(bytes);
            }
        }
        Ok(Some(by_node))
    }

    /// Memory by node of a large process, and a part of its policies.
    fn read_large(
        &mut self,
        path: &Path,
        pid: Pid,
        topology: &Topology,
        resident: Bytes,
        threads: impl Iterator<Item = PathBuf>,
    ) -> Result<Option<Vec<Bytes>>, LinuxError> {
        let mappings = mappings(&path.with_file_name("maps"))?;
        let known = mappings.as_deref().unwrap_or_default();
        self.policies.keep(known);
        let begin = Instant::now();
        if self.policies_rest_until.is_none_or(|until| begin >= until) {
            let walk = Walk::of(&path.with_file_name("pagemap"), self.entries);
            let entries = |mapping: &Mapping| walk.entries(mapping);
            unless_denied(self.policies.read_on(path, known, self.entries, entries))?;
            self.policies_rest_until = Some(begin + begin.elapsed() * REST);
        }
        self.policy_read = match &mappings {
            Some(mappings) => self.policies.ranges(mappings),
            None => Some(Vec::new()),
        };
        match by_faults(threads, topology, resident)? {
            None => Ok(by_pages(known, pid, topology, resident)),
            memory => Ok(memory),
        }
    }
}

/// The mappings of a process, without the kernel's own; `None` if they may not be read.
fn mappings(path: &Path) -> Result<Option<Vec<Mapping>>, LinuxError> {
    let Some(mut lines) = unless_denied(Lines::open(path))?.flatten() else { return Ok(None) };
    let mut mappings = Vec::new();
    while let Some((number, line)) = lines.next_line()? {
        let parsed = maps::mapping_of(number, line);
        mappings.extend(parsed.map_err(|source| lines.format(source))?);
    }
    Ok(Some(mappings))
}

/// Results of a complete reading of `numa_maps`.
#[derive(Debug, Default)]
struct Whole {
    totals: Totals,
    /// Mappings with a policy that the program did not choose.
    usual: Vec<AddressRange>,
    /// Whether there are copies of files by `run --replicate`, which stay on their nodes.
    has_copies: bool,
}

/// Reads a `numa_maps` and the `maps` beside it; `None` if there are no lines. `maps` gives the
/// ends of mappings, and distinguishes a container's shared memory from a program.
fn totals(path: &Path) -> Result<Option<Whole>, LinuxError> {
    let Some(mut lines) = Lines::open(path)? else { return Ok(None) };
    let mut whole = None::<Whole>;
    let mut modes = Modes::open(&path.with_file_name("maps"))?;
    while let Some((number, line)) = lines.next_line()? {
        let parsed = numa_maps::mapping_of(number, line);
        let mapping = parsed.map_err(|source| lines.format(source))?;
        let found = modes.of(mapping.start)?;
        let whole = whole.get_or_insert_default();
        let is_copy = mapping.is_copy();
        whole.has_copies |= is_copy;
        whole.usual.extend(
            found.filter(|_| !is_copy && !mapping.has_own_policy()).map(|(range, _)| range),
        );
        whole.totals.add(&mapping, found.map(|(_, mode)| mode));
    }
    Ok(whole)
}

/// Reader of the modes of a process's mappings, for ascending addresses. Both files are read in
/// parallel, line by line, so no list of mappings is kept.
struct Modes {
    /// Lines of `maps`; `None` if it does not exist or may not be read.
    lines: Option<Lines>,
    last: Option<(AddressRange, Mode)>,
}

impl Modes {
    fn open(maps: &Path) -> Result<Self, LinuxError> {
        Ok(Self { lines: unless_denied(Lines::open(maps))?.flatten(), last: None })
    }

    /// Range and mode of the mapping that begins at an address; `None` if `maps` has none there.
    fn of(&mut self, start: u64) -> Result<Option<(AddressRange, Mode)>, LinuxError> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        while self.last.is_none_or(|(range, _)| range.start < start) {
            let Some((_, line)) = lines.next_line()? else { break };
            self.last = maps::mode_of(line).or(self.last);
        }
        Ok(self.last.filter(|(range, _)| range.start == start))
    }
}

/// The resident memory by node, in proportion to the threads' hint faults; `None` without faults.
fn by_faults(
    threads: impl Iterator<Item = PathBuf>,
    topology: &Topology,
    resident: Bytes,
) -> Result<Option<Vec<Bytes>>, LinuxError> {
    let mut faults = vec![0u64; topology.node_count()];
    for path in threads {
        for found in read(&path, sched::parse)?.unwrap_or_default().faults {
            if let Some(node) = topology.node_of_kernel_id(found.node) {
                let count = found.private.saturating_add(found.shared);
                faults[node] = faults[node].saturating_add(count);
            }
        }
    }
    Ok(in_proportion(resident, &faults))
}

/// Memory in proportion to these counts; `None` if all of them are 0.
fn in_proportion(memory: Bytes, counts: &[u64]) -> Option<Vec<Bytes>> {
    let all: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    let part = |&count: &u64| {
        let bytes = u128::from(memory.0) * u128::from(count) / all;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    };
    (all > 0).then(|| counts.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    /// No process has this number.
    const PID: Pid = Pid(u32::MAX);

    fn none() -> std::iter::Empty<PathBuf> {
        std::iter::empty()
    }

    #[test]
    fn of_a_large_process_the_faults_of_its_threads_tell_the_proportions() {
        let directory = tempfile::tempdir().unwrap();
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let sched = |name: &str, zero: u32, one: u32| {
            let path = directory.path().join(name);
            let line = |node, count| {
                format!("numa_faults node={node} task_private={count} task_shared=0\n")
            };
            std::fs::write(&path, line(0, zero) + &line(1, one)).unwrap();
            path
        };
        let threads = [sched("a", 10, 20), sched("b", 0, 10), directory.path().join("gone")];
        let large = Bytes(8 << 30);
        let nowhere = Path::new("/nowhere/numa_maps");
        let mut maps = Maps::default();
        let found = maps.read(nowhere, PID, &machine, large, threads.into_iter());
        assert_eq!(found.unwrap(), Some(vec![Bytes(2 << 30), Bytes(6 << 30)]));
        wait(&mut maps);
        let found = maps.read(nowhere, PID, &machine, large, [sched("c", 0, 0)].into_iter());
        assert_eq!(found.unwrap(), None);
    }

    /// Memory by node, in pages, of a process with these two files.
    fn pages(numa_maps: &str, maps: Option<&str>) -> Vec<u64> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numa_maps");
        std::fs::write(&path, numa_maps).unwrap();
        maps.into_iter()
            .for_each(|text| std::fs::write(directory.path().join("maps"), text).unwrap());
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let found = Maps::default().read(&path, PID, &machine, Bytes(1), none()).unwrap().unwrap();
        found.iter().map(|bytes| bytes.0 >> 12).collect()
    }

    #[test]
    fn a_containers_shared_memory_is_told_from_a_program_by_how_it_is_mapped() {
        let text = "400000 default file=/bin/app dirty=700 mapmax=3 N0=700\n\
            7f0000 default file=/pool dirty=5 mapmax=3 N1=5\n\
            7f9000 default file=/index mapped=30 mapmax=3 N1=30\n";
        let line = |start, mode, name| format!("{start}-ffffff {mode} 00000000 00:2a 7 {name}\n");
        let maps = line("400000", "r-xp", "/bin/app")
            + &line("500000", "rw-p", "")
            + &line("7f0000", "rw-s", "/pool");
        assert_eq!(pages(text, Some(&maps)), [0, 5], "nothing is known of the index");
        let maps = maps + &line("7f9000", "rw-s", "/index");
        assert_eq!(pages(text, Some(&maps)), [0, 35]);
        assert_eq!(pages(text, None), [700, 5], "by the dirty pages alone");
    }

    #[test]
    fn files_with_many_mappings_are_read_to_their_end() {
        use std::fmt::Write as _;
        let mut text = String::new();
        for index in 0..200_000u64 {
            let (start, node) = (0x7f00_0000_0000 + index * 8192, index % 2);
            let _ = writeln!(text, "{start:x} default file=/data/{index:040} mapped=1 N{node}=1");
        }
        assert!(text.len() as u64 > crate::root::MAX_FILE_BYTES);
        assert_eq!(pages(&text, None), [100_000, 100_000]);
    }

    /// Lets the time pass until a reading is due.
    fn wait(maps: &mut Maps) {
        maps.schedule.pass();
        maps.policies_rest_until = None;
    }

    /// The parts of memory are 600 MiB, and a look reads lines for 1 GiB of them.
    #[test]
    fn of_a_large_process_memory_without_a_read_policy_is_told_until_all_was_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numa_maps");
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let put = |sizes_mib: &[u64], policy: &str| {
            let (mut maps, mut numa_maps) = (String::new(), String::new());
            for (place, mib) in (1_u64..).zip(sizes_mib) {
                let start = place << 40;
                maps += &format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + (mib << 20));
                let own = if place as usize == sizes_mib.len() { policy } else { "default" };
                numa_maps += &format!("{start:x} {own} anon=9 N0=9\n");
            }
            std::fs::write(directory.path().join("maps"), maps).unwrap();
            std::fs::write(&path, numa_maps).unwrap();
        };
        let look = |maps: &mut Maps| {
            wait(maps);
            maps.read(&path, PID, &machine, Bytes(4 << 30), none()).unwrap();
            (maps.policy_read().map(Vec::len), maps.has_own_policy())
        };
        let mut maps = Maps::default();
        put(&[600, 600, 600], "bind:0");
        assert_eq!(look(&mut maps), (Some(1), false));
        assert_eq!(look(&mut maps), (Some(2), false));
        assert_eq!(look(&mut maps), (Some(2), true));
        put(&[600, 600, 600], "default");
        let mut maps = Maps::default();
        assert_eq!([1, 2, 3].map(|_| look(&mut maps).0), [Some(1), Some(2), None]);
        put(&[600, 600, 1100, 1], "bind:0");
        let mut maps = Maps::default();
        let looks = [1, 2, 3, 4].map(|_| look(&mut maps));
        assert_eq!(looks[3], (Some(2), false), "one mapping is too large, none above is read");
        let mut maps = Maps::within(entries_within(Some(Duration::from_millis(30))));
        let looks = [1, 2, 3].map(|_| look(&mut maps));
        assert_eq!(looks[2], (Some(3), true), "with 0.1 µs for an entry it is read in 28 ms");
    }

    #[test]
    fn copies_of_files_stay_where_they_are_and_the_rest_of_the_process_may_move() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numa_maps");
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let copy = "/dev/shm/rondpoint-replicas-7-0/0-1";
        // What may move, and whether the process has chosen a policy.
        let look = |policy: &str, of_copy: &str, resident| {
            let lines = [
                ("10000000", "", "r-xp", policy),
                ("20000000", copy, "r--s", of_copy),
                ("30000000", "", "rw-p", policy),
            ];
            let maps = lines.map(|(start, name, mode, _)| {
                format!("{start}-{}fffffff {mode} 00000000 00:2a 7 {name}\n", &start[..1])
            });
            let numa_maps = lines.map(|(start, name, _, policy)| {
                let file = if name.is_empty() { String::new() } else { format!(" file={name}") };
                format!("{start} {policy}{file} N1=3\n")
            });
            std::fs::write(directory.path().join("maps"), maps.concat()).unwrap();
            std::fs::write(&path, numa_maps.concat()).unwrap();
            let mut maps = Maps::default();
            maps.read(&path, PID, &machine, resident, none()).unwrap();
            let starts = maps.policy_read().map(|ranges| ranges.iter().map(|range| range.start));
            (starts.map(Iterator::collect::<Vec<_>>), maps.has_own_policy())
        };
        let others = Some(vec![0x1000_0000, 0x3000_0000]);
        for resident in [Bytes(1), Bytes(4 << 30)] {
            assert_eq!(look("default", "prefer:1", resident), (others.clone(), false));
            assert_eq!(look("default", "default", resident), (others.clone(), false));
            assert!(look("bind:0", "prefer:1", resident).1, "the program's own choice");
        }
    }

    #[test]
    fn what_was_read_of_a_process_when_it_was_small_is_known_when_it_is_large() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numa_maps");
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let put = |extent: &str| {
            let maps = format!("{extent} rw-p 00000000 00:00 0 \n");
            std::fs::write(directory.path().join("maps"), maps).unwrap();
        };
        std::fs::write(&path, "7f0000000000 default\n").unwrap();
        put("7f0000000000-7f4000000000");
        let mut maps = Maps::default();
        let mut look = |size| {
            wait(&mut maps);
            maps.read(&path, PID, &machine, Bytes(size), none()).unwrap();
            maps.policy_read().cloned()
        };
        assert_eq!(look(1), None);
        assert_eq!(look(8 << 30), None, "a quarter of a TiB, read while it was empty");
        put("7f0000000000-7f3000000000");
        assert_eq!(look(8 << 30), Some(Vec::new()), "mbind(2) cuts a mapping");
        put("7f0000000000-7f4000000000");
        assert_eq!(look(8 << 30), Some(Vec::new()), "the same addresses, mapped anew");
    }

    #[test]
    fn maps_are_read_ever_more_rarely_and_those_of_a_large_process_for_their_policy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numa_maps");
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let put = |policy: &str| {
            let line = format!("1000 {policy} anon=2 N0=2 N1=3 kernelpagesize_kB=4\n");
            std::fs::write(&path, line).unwrap();
        };
        std::fs::write(directory.path().join("maps"), "1000-6000 rw-p 0 00:00 0 \n").unwrap();
        let large = Bytes(1 << 40);
        let read = |maps: &mut Maps, size| maps.read(&path, PID, &machine, size, none());
        put("local");
        let mut maps = Maps::default();
        assert_eq!(read(&mut maps, large).unwrap(), None, "too large");
        assert!(!maps.has_own_policy(), "local is what everybody has");
        put("interleave:0-1");
        let mut maps = Maps::default();
        assert_eq!(read(&mut maps, large).unwrap(), None, "too large");
        assert!(maps.has_own_policy(), "numactl's");
        put("local");
        wait(&mut maps);
        assert_eq!(read(&mut maps, Bytes(1)).unwrap(), Some(vec![Bytes(8192), Bytes(12288)]));
        assert!(!maps.has_own_policy());
        assert_eq!(maps.schedule.wait().as_secs(), 2, "twice the one before");
        wait(&mut maps);
        read(&mut maps, Bytes(1)).unwrap();
        wait(&mut maps);
        read(&mut maps, Bytes(1)).unwrap();
        assert_eq!(maps.schedule.wait().as_secs(), 4);
    }

    #[test]
    fn a_large_process_without_faults_is_asked_for_some_of_its_pages() {
        let machine = synthetic::parse("node:2 core:1").unwrap();
        let (own, large) = (Pid(std::process::id()), Bytes(8 << 30));
        let mut maps = Maps::default();
        let found = maps.read(Path::new("/proc/self/numa_maps"), own, &machine, large, none());
        let bytes: u64 = found.unwrap().expect("its pages tell").iter().map(|one| one.0).sum();
        assert!(large.0 - bytes <= 1, "{bytes}");
    }
}
