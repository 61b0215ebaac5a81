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

/// Least number of counters of a unit outside the cores. AMD's northbridge has four (BKDG 15h,
/// 3.16), and each of Intel's units has at least four (uncore performance monitoring guides).
const ROOM: usize = 4;

/// Open counters of units outside the cores, each with the key of the sum that it adds to.
pub struct Units<T> {
    groups: Vec<Group<T>>,
}

/// Events of one unit on one CPU, with the key and the scale of each.
struct Group<T> {
    what: Vec<(T, (u32, u32))>,
    open: OpenGroup,
}

impl<T> Default for Units<T> {
    fn default() -> Self {
        Self { groups: Vec::new() }
    }
}

impl<T: Copy> Units<T> {
    /// Opens and starts all parts or none. A group has the events of one unit on one CPU: the
    /// kernel refuses a group of several units.
    ///
    /// # Errors
    /// The kernel's error about the first refused event.
    pub fn open(parts: Vec<Part<T>>) -> Result<Self, LinuxError> {
        let mut by_unit: BTreeMap<(u32, u32), Vec<Part<T>>> = BTreeMap::new();
        for part in parts {
            by_unit.entry((part.cpu, part.event.attr.kind)).or_default().push(part);
        }
        let mut groups = Vec::new();
        for ((cpu, _), parts) in by_unit {
            for parts in parts.chunks(ROOM) {
                let events: Vec<Event> = parts.iter().map(|part| part.event.clone()).collect();
                let open = OpenGroup::open(&events, Target { task: -1, cpu: cpu as i32 }, |_| ())?;
                open.enable().map_err(|source| LinuxError::Call {
                    call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                    attempted: events[0].name.clone(),
                    source,
                })?;
                let what = parts.iter().map(|part| (part.what, part.scale)).collect();
                groups.push(Group { what, open });
            }
        }
        Ok(Self { groups })
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
    use super::scaled;

    #[test]
    fn a_scaled_count_keeps_all_its_bits_or_is_the_most_there_is() {
        assert_eq!(scaled(9 << 50, (64, 9)), 64 << 50);
        assert_eq!(scaled(u64::MAX, (64, 9)), u64::MAX);
    }
}
