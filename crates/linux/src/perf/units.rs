//! Counts of units outside the cores, open: what [`whole`](super::whole) names, read in requests,
//! lines or bytes.
//!
//! They need the right to watch all programs.

use std::collections::BTreeMap;

use rondpoint_core::Nanos;
use rondpoint_core::observation::Counter;

use super::count::Count;
use super::group::OpenGroup;
use super::pmu::Event;
use super::whole::Part;
use crate::LinuxError;
use crate::syscall::perf::Target;

/// Least number of counters of a unit. AMD's northbridge has four (BKDG 15h, 3.16), and each of
/// Intel's units has at least four (uncore performance monitoring guides).
const ROOM: usize = 4;

/// Open counters of units outside the cores, each with the key of the sum that it adds to.
pub struct Units<T> {
    groups: Vec<Group<T>>,
}

/// Events of one unit on one CPU, with the key and the scale of each.
struct Group<T, O = OpenGroup> {
    what: Vec<(T, (u32, u32))>,
    open: O,
}

impl<T> Default for Units<T> {
    fn default() -> Self {
        Self { groups: Vec::new() }
    }
}

impl<T: Copy> Units<T> {
    /// Opens and starts all parts or none. `core_room`: number of free counters of a core, for
    /// events that cores count.
    ///
    /// # Errors
    /// The kernel's error about the first refused event.
    pub fn open(parts: Vec<Part<T>>, core_room: usize) -> Result<Self, LinuxError> {
        Ok(Self { groups: grouped(parts, core_room, started)? })
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The scaled counts since the opening, by key. Several counts may have the same key.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self) -> Result<Vec<(T, Counter)>, LinuxError> {
        let mut counts = Vec::new();
        for group in &self.groups {
            let read = group.what.iter().zip(group.open.read()?);
            counts.extend(read.map(|(&(what, scale), count)| (what, counter(count, scale))));
        }
        Ok(counts)
    }
}

/// Opens and starts a group on a CPU.
fn started(events: &[Event], cpu: u32) -> Result<OpenGroup, LinuxError> {
    let open = OpenGroup::open(events, Target { task: -1, cpu: cpu as i32 }, |_| ())?;
    open.enable().map_err(|source| LinuxError::Call {
        call: "ioctl(PERF_EVENT_IOC_ENABLE)",
        attempted: events[0].name.clone(),
        source,
    })?;
    Ok(open)
}

/// Opens all parts or none. A group has the events of one unit on one CPU, because the kernel
/// refuses a group of several units.
///
/// It also refuses two events that need different values of the unit's one filter, such as that of
/// Skylake's caching agents (`__snbep_cbox_get_constraint`, arch/x86/events/intel/uncore_snbep.c).
/// Each event then is a group of its own. These groups take turns and are scaled by their times.
fn grouped<T: Copy, O>(
    parts: Vec<Part<T>>,
    core_room: usize,
    open: impl Fn(&[Event], u32) -> Result<O, LinuxError>,
) -> Result<Vec<Group<T, O>>, LinuxError> {
    let mut by_unit: BTreeMap<(u32, u32), Vec<Part<T>>> = BTreeMap::new();
    for part in parts {
        by_unit.entry((part.cpu, part.event.attr.kind)).or_default().push(part);
    }
    let group = |parts: &[Part<T>]| -> Result<Group<T, O>, LinuxError> {
        let events: Vec<Event> = parts.iter().map(|part| part.event.clone()).collect();
        let what = parts.iter().map(|part| (part.what, part.scale)).collect();
        Ok(Group { what, open: open(&events, parts[0].cpu)? })
    };
    let mut groups = Vec::new();
    for parts in by_unit.into_values() {
        let is_of_core = parts[0].event.cpus.is_none();
        let room = if is_of_core { core_room.clamp(1, ROOM) } else { ROOM };
        for parts in parts.chunks(room) {
            match group(parts) {
                Err(error) if parts.len() > 1 && error.errno() == Some(libc::EINVAL) => {
                    for part in parts.chunks(1) {
                        groups.push(group(part)?);
                    }
                }
                whole => groups.push(whole?),
            }
        }
    }
    Ok(groups)
}

fn counter(count: Count, scale: (u32, u32)) -> Counter {
    Counter {
        value: scaled(count.value, scale),
        enabled: Nanos(count.enabled_ns),
        running: Nanos(count.running_ns),
    }
}

/// The count in requests or bytes, at most `u64::MAX`.
fn scaled(count: u64, (times, through): (u32, u32)) -> u64 {
    let scaled = u128::from(count) * u128::from(times) / u128::from(through.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;

    use super::*;
    use crate::perf::attr::Attr;

    /// Events on CPU 0, each `(unit, filter)`. A unit of 4 is that of the cores.
    fn parts(of: &[(u32, u64)]) -> Vec<Part<usize>> {
        let part = |(what, &(unit, config1)): (usize, &(u32, u64))| {
            let attr = Attr { config1, ..Attr::counting(unit, 0x2135) };
            let cpus = (unit != 4).then(|| vec![0]);
            let event = Event { name: "tor_inserts".to_string(), attr, cpus };
            Part { what, cpu: 0, event, scale: (1, 1) }
        };
        of.iter().enumerate().map(part).collect()
    }

    fn refused(errno: i32) -> LinuxError {
        let source = io::Error::from_raw_os_error(errno);
        LinuxError::PerfOpen { event: "x".to_string(), target: "CPU 0".to_string(), source }
    }

    /// The kernel's answer for units with one filter each.
    fn with_one_filter(events: &[Event], _: u32) -> Result<(), LinuxError> {
        let filters: BTreeSet<u64> = events.iter().map(|event| event.attr.config1).collect();
        match filters.iter().filter(|filter| **filter != 0).count() {
            0 | 1 => Ok(()),
            _ => Err(refused(libc::EINVAL)),
        }
    }

    /// The parts of each group, by number.
    fn groups(
        of: &[(u32, u64)],
        core_room: usize,
        open: fn(&[Event], u32) -> Result<(), LinuxError>,
    ) -> Result<Vec<Vec<usize>>, LinuxError> {
        let groups = grouped(parts(of), core_room, open)?;
        let numbers = |group: &Group<usize, ()>| group.what.iter().map(|(what, _)| *what).collect();
        Ok(groups.iter().map(numbers).collect())
    }

    #[test]
    fn events_that_need_two_values_of_one_filter_take_turns() {
        const LOCAL: u64 = 0x40432 << 32;
        const REMOTE: u64 = 0x40431 << 32;
        let units = [(20, LOCAL), (20, REMOTE), (21, LOCAL), (21, LOCAL), (22, 0), (22, REMOTE)];
        let found = groups(&units, 4, with_one_filter).unwrap();
        assert_eq!(found, [vec![0], vec![1], vec![2, 3], vec![4, 5]]);
    }

    #[test]
    fn a_refused_event_refuses_all_whatever_its_group() {
        let open = |events: &[Event], _: u32| match events.iter().any(|one| one.attr.config1 == 7) {
            true => Err(refused(libc::EINVAL)),
            false => Ok(()),
        };
        assert!(groups(&[(20, 1), (20, 7)], 4, open).is_err());
        assert_eq!(groups(&[(20, 1), (20, 2)], 4, open).unwrap(), [[0, 1]]);
        let denied = |_: &[Event], _: u32| Err(refused(libc::EACCES));
        let error = groups(&[(20, 1), (20, 2)], 4, denied).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EACCES));
    }

    #[test]
    fn events_of_cores_are_grouped_by_the_free_counters_of_a_core() {
        let units = [(4, 0), (4, 0), (4, 0), (20, 0), (20, 0), (20, 0), (20, 0), (20, 0)];
        let found = groups(&units, 2, with_one_filter).unwrap();
        assert_eq!(found, [vec![0, 1], vec![2], vec![3, 4, 5, 6], vec![7]]);
        assert_eq!(groups(&units[..2], 0, with_one_filter).unwrap(), [[0], [1]]);
    }

    #[test]
    fn a_scaled_count_keeps_all_its_bits_or_is_the_most_there_is() {
        assert_eq!(scaled(9 << 50, (64, 9)), 64 << 50);
        assert_eq!(scaled(u64::MAX, (64, 9)), u64::MAX);
    }
}
