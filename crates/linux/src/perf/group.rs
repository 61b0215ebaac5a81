//! Events that are on their counters together or not at all, and are read by one call.
//!
//! Numbers of one group were counted in the same windows, so their ratio needs no scaling. A group
//! that is larger than the unit is never on it: [`parts`] cuts a list into groups that fit.

use std::os::fd::AsFd;

use super::attr::{Attr, flag, read_format};
use super::count::Count;
use super::event::OpenEvent;
use super::generation::Metric;
use super::pmu::Event;
use crate::LinuxError;
use crate::syscall::perf::Target;

/// Most attempts to read a group while some thread has only a part of it (our choice). That lasts
/// while the kernel starts or ends a thread.
const MAX_READS: usize = 64;

/// An open group.
pub struct OpenGroup {
    leader: OpenEvent,
    /// Other events of the group, which count while they are open.
    members: Vec<OpenEvent>,
}

impl OpenGroup {
    /// Opens all `events` or none, the first as leader. `prepare` completes each of them. A pinned
    /// leader pins the group; the kernel refuses pinned members.
    ///
    /// # Errors
    /// The kernel's error about the first refused event.
    ///
    /// # Panics
    /// There is no event.
    pub fn open(
        events: &[Event],
        target: Target,
        prepare: impl Fn(&mut Attr),
    ) -> Result<Self, LinuxError> {
        let (first, others) = events.split_first().expect("a group has a leader");
        let mut attr = first.attr.clone();
        prepare(&mut attr);
        attr.read_format |= read_format::GROUP;
        // Members run only while their leader runs. Starting it last starts all together.
        let starts = attr.flags & flag::DISABLED == 0;
        attr.flags |= flag::DISABLED;
        let leader = OpenEvent::open(&first.name, &attr, target, None)?;
        let member = |event: &Event| {
            let mut attr = event.attr.clone();
            prepare(&mut attr);
            attr.flags &= !flag::PINNED;
            OpenEvent::open(&event.name, &attr, target, Some(leader.as_fd()))
        };
        let members: Vec<OpenEvent> = others.iter().map(member).collect::<Result<_, _>>()?;
        if starts {
            leader.enable().map_err(|source| LinuxError::Call {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                attempted: first.name.clone(),
                source,
            })?;
        }
        Ok(Self { leader, members })
    }

    /// The counts in the order of opening; `None` if a thread had only a part of the group at each
    /// attempt.
    ///
    /// The kernel gives a new thread the events of a group one by one, and removes them one by one.
    /// A read in between gives ECHILD (`__perf_read_group_add`, kernel/events/core.c, from v6.6
    /// on). A thread that starts while the group is being opened has a part of it until its end.
    ///
    /// # Errors
    /// As read(2).
    pub fn read_inherited(&self) -> Result<Option<Vec<Count>>, LinuxError> {
        for _ in 0..MAX_READS {
            match self.read() {
                Err(LinuxError::Call { source, .. }) if is_halfway(&source) => {
                    std::thread::yield_now();
                }
                counts => return counts.map(Some),
            }
        }
        Ok(None)
    }

    /// The counts in the order of opening.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self) -> Result<Vec<Count>, LinuxError> {
        let call = |source| LinuxError::Call {
            call: "read",
            attempted: format!("perf group {:?}", self.leader.as_fd()),
            source,
        };
        let counts = self.leader.read(1 + self.members.len()).map_err(call)?;
        if counts.len() == 1 + self.members.len() {
            return Ok(counts);
        }
        let text = format!("{} counts of {}", counts.len(), 1 + self.members.len());
        Err(call(std::io::Error::other(text)))
    }

    /// Stops (`stop`) or resumes the group with its times. Members are on their counters only while
    /// their leader is.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn stop(&self, stop: bool) -> std::io::Result<()> {
        if stop { self.leader.disable() } else { self.leader.enable() }
    }

    /// Starts the group.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn enable(&self) -> std::io::Result<()> {
        self.members.iter().chain([&self.leader]).try_for_each(OpenEvent::enable)
    }

    /// Whether some events exclude kernel mode.
    #[must_use]
    pub fn is_user_only(&self) -> bool {
        self.members.iter().chain([&self.leader]).any(OpenEvent::is_user_only)
    }
}

/// Whether a read failed because some thread had only a part of the group.
fn is_halfway(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECHILD)
}

/// Splits `events` into groups of at most `room` programmable counters. Events that are used
/// together (`companions`) stay in one group if they fit. Instructions and cycles have fixed
/// counters and take no room.
#[must_use]
pub fn parts(events: &[(Metric, Event)], room: usize) -> Vec<Vec<(Metric, Event)>> {
    let room = room.max(1);
    let mut units: Vec<Vec<(Metric, Event)>> = Vec::new();
    for (metric, event) in events {
        let is_its = |unit: &&mut Vec<(Metric, Event)>| {
            unit.len() < room && companions(unit[0].0) == companions(*metric)
        };
        match units.iter_mut().find(is_its) {
            Some(unit) => unit.push((*metric, event.clone())),
            None => units.push(vec![(*metric, event.clone())]),
        }
    }
    let size =
        |part: &[(Metric, Event)]| part.iter().filter(|(metric, _)| !is_fixed(*metric)).count();
    // Large units come first, so that small ones fill the groups. The sort is stable.
    units.sort_by_key(|unit| std::cmp::Reverse(size(unit)));
    let mut parts: Vec<Vec<(Metric, Event)>> = Vec::new();
    for unit in units {
        match parts.iter_mut().find(|part| size(part) + size(&unit) <= room) {
            Some(part) => part.extend(unit),
            None => parts.push(unit),
        }
    }
    parts
}

/// The representative of the metrics used together: both parts of a mean, the parts of a sum, the
/// nodes of a matrix.
fn companions(metric: Metric) -> Metric {
    match metric {
        Metric::DramRequests => Metric::DramLatencyCycles,
        Metric::RemoteForward => Metric::RemoteHitm,
        Metric::LocalForward => Metric::LocalHitm,
        Metric::RemoteDram => Metric::LocalDram,
        Metric::RefillsModified => Metric::Refills,
        Metric::DramNode(_) => Metric::DramNode(0),
        other => other,
    }
}

/// Whether a metric has a fixed counter.
fn is_fixed(metric: Metric) -> bool {
    matches!(metric, Metric::Instructions | Metric::Cycles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::{SW_DUMMY, SW_PAGE_FAULTS_MIN, TYPE_SOFTWARE};
    use crate::syscall::memory::Anonymous;

    fn event(config: u64) -> Event {
        Event { name: "x".into(), attr: Attr::counting(TYPE_SOFTWARE, config), cpus: None }
    }

    fn check(metrics: &[Metric], room: usize, expected: &str) {
        let events: Vec<(Metric, Event)> =
            metrics.iter().map(|metric| (*metric, event(SW_DUMMY))).collect();
        let name = |(metric, _): &(Metric, Event)| metric.name();
        let part =
            |part: &Vec<(Metric, Event)>| part.iter().map(name).collect::<Vec<_>>().join(" ");
        let found: Vec<String> = parts(&events, room).iter().map(part).collect();
        assert_eq!(found.join(" | "), expected, "room {room}");
    }

    #[test]
    fn what_belongs_together_shares_a_group_that_fits() {
        use Metric::*;
        let sam = [LlcMisses, RemoteDram, RemoteHitm, RemoteForward, LocalHitm, LocalForward];
        check(
            &sam,
            3,
            "remote_hitm remote_forward llc_misses | local_hitm local_forward remote_dram",
        );
        check(
            &sam,
            4,
            "remote_hitm remote_forward local_hitm local_forward | llc_misses remote_dram",
        );
        check(
            &sam,
            8,
            "remote_hitm remote_forward local_hitm local_forward llc_misses remote_dram",
        );
        let tree = [DramLatencyCycles, DramRequests, Writebacks, DramNode(0), DramNode(1)];
        check(&tree, 3, "dram_latency_cycles dram_requests writebacks | dram_node0 dram_node1");
        check(
            &tree,
            1,
            "dram_latency_cycles | dram_requests | writebacks | dram_node0 | dram_node1",
        );
    }

    #[test]
    fn fixed_counters_take_no_room() {
        use Metric::*;
        check(&[Instructions, Cycles, LlcMisses], 1, "llc_misses instructions cycles");
        let nodes: Vec<Metric> = (0..5).map(DramNode).collect();
        check(&nodes, 4, "dram_node0 dram_node1 dram_node2 dram_node3 | dram_node4");
        check(&nodes[..2], 0, "dram_node0 | dram_node1");
    }

    #[test]
    fn one_read_brings_all_counts_over_the_same_time() {
        let own = Target { task: 0, cpu: -1 };
        let start = |attr: &mut Attr| attr.flags &= !flag::DISABLED;
        let events = [event(SW_PAGE_FAULTS_MIN), event(SW_DUMMY), event(SW_PAGE_FAULTS_MIN)];
        let group = OpenGroup::open(&events, own, start).unwrap();
        Anonymous::new(16 * 4096).unwrap().touch_every(4096);
        let counts = group.read().unwrap();
        assert!(counts[0].value >= 16 && counts[1].value == 0, "{counts:?}");
        assert_eq!(counts[0].value, counts[2].value);
        assert!(counts.iter().all(|count| count.running_ns == counts[0].running_ns));
        let pinned = |attr: &mut Attr| attr.flags |= flag::PINNED;
        assert!(OpenGroup::open(&events, own, pinned).is_ok(), "the leader alone is pinned");
        let odd = [event(SW_DUMMY), Event { attr: Attr::counting(9_999, 0), ..event(0) }];
        assert!(OpenGroup::open(&odd, own, start).is_err(), "all or none");
    }
}
