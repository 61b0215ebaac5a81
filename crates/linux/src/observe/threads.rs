//! Counters of single threads, for the policies that move threads.
//!
//! Instructions and cycles are a pinned group, so the work that a thread does is counted without a
//! gap. Everything else comes in groups that fit beside them (SAM's two rounds, where the unit has
//! four counters). The kernel runs the groups in turns, and `time_running` gives the time of each.

use std::io;

use rondpoint_core::observation::{Counter, Counters};
use rondpoint_core::{Nanos, Tid};

use super::counters::named;
use crate::LinuxError;
use crate::perf::attr::{Attr, TYPE_HARDWARE, flag};
use crate::perf::generation::Metric;
use crate::perf::group::{OpenGroup, parts};
use crate::perf::pmu::Event;
use crate::syscall::perf::Target;

/// Groups of events to count for each thread. The first group is pinned.
#[derive(Debug, Clone, Default)]
pub struct ThreadPlan {
    groups: Vec<Vec<(Metric, Event)>>,
}

impl ThreadPlan {
    /// Instructions, cycles and these `events`, in groups of at most `room` counters.
    #[must_use]
    pub fn new(events: &[(Metric, Event)], room: usize) -> Self {
        // PERF_COUNT_HW_INSTRUCTIONS and PERF_COUNT_HW_CPU_CYCLES of perf_event_open(2).
        let own = [(Metric::Instructions, "instructions", 1), (Metric::Cycles, "cycles", 0)];
        let own = own.map(|(metric, name, config)| {
            let mut attr = Attr::counting(TYPE_HARDWARE, config);
            attr.flags |= flag::PINNED;
            (metric, Event { name: name.to_string(), attr, cpus: None })
        });
        let others: Vec<(Metric, Event)> = events
            .iter()
            .filter(|(metric, _)| !matches!(metric, Metric::Instructions | Metric::Cycles))
            .cloned()
            .collect();
        Self { groups: [own.to_vec()].into_iter().chain(parts(&others, room)).collect() }
    }

    /// A plan of one software event, for machines without a unit.
    #[cfg(test)]
    pub(super) fn of_clock() -> Self {
        use crate::perf::attr::{SW_TASK_CLOCK, TYPE_SOFTWARE};
        let mut attr = Attr::counting(TYPE_SOFTWARE, SW_TASK_CLOCK);
        attr.exclude_kernel_and_hypervisor();
        let event = Event { name: "clock".into(), attr, cpus: None };
        Self { groups: vec![vec![(Metric::LlcMisses, event)]] }
    }

    /// Number of descriptors for a thread.
    #[must_use]
    pub fn events(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }
}

/// The open groups of one thread.
pub struct ThreadCounters {
    groups: Vec<(Vec<Metric>, OpenGroup)>,
    last: Option<(Nanos, Counters)>,
}

impl ThreadCounters {
    /// Opens the groups. If a group is refused, the events that open alone are kept. The unit may
    /// have fewer counters than its table says, or two events need the same one. `None` if nothing
    /// opens.
    #[must_use]
    pub fn open(plan: &ThreadPlan, tid: Tid) -> Option<Self> {
        let target = Target { task: tid.0 as i32, cpu: -1 };
        let start = |attr: &mut Attr| {
            attr.flags &= !flag::DISABLED;
        };
        let open = |group: &[(Metric, Event)]| {
            let (metrics, events): (Vec<Metric>, Vec<Event>) = group.iter().cloned().unzip();
            OpenGroup::open(&events, target, start).map(|group| (metrics, group))
        };
        let mut groups: Vec<(Vec<Metric>, OpenGroup)> = Vec::new();
        for group in &plan.groups {
            match open(group) {
                Ok(opened) => groups.push(opened),
                Err(error) if group.len() == 1 || is_of_none(&error) => {}
                Err(_) => groups.extend(group.chunks(1).filter_map(|one| open(one).ok())),
            }
        }
        (!groups.is_empty()).then_some(Self { groups, last: None })
    }

    /// Stops (`stop`) or resumes counting.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn stop(&self, stop: bool) -> io::Result<()> {
        self.groups.iter().try_for_each(|(_, group)| group.stop(stop))
    }

    /// The counts since the events were opened, without groups that cannot be read. If the first
    /// group shows that the thread has not run since the last call, the other groups are not read.
    #[must_use]
    pub fn read(&mut self) -> Counters {
        let read = |(metrics, group): &(Vec<Metric>, OpenGroup)| -> Vec<(Metric, Counter)> {
            let counters = group.read().unwrap_or_default().into_iter().map(|count| Counter {
                value: count.value,
                enabled: Nanos(count.enabled_ns),
                running: Nanos(count.running_ns),
            });
            metrics.iter().copied().zip(counters).collect()
        };
        let (first, others) = self.groups.split_first().expect("at least one was opened");
        let mut all = read(first);
        let ran = all.first().map(|(_, counter)| counter.enabled);
        if let Some((_, same)) = self.last.as_ref().filter(|(at, _)| Some(*at) == ran) {
            return same.clone();
        }
        all.extend(others.iter().flat_map(read));
        let counters = named(&all);
        self.last = ran.map(|ran| (ran, counters.clone()));
        counters
    }
}

/// Whether an error is no event's: the thread has ended, or no descriptor is left.
fn is_of_none(error: &LinuxError) -> bool {
    matches!(error.errno(), Some(libc::ESRCH | libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::Event as Known;

    use super::*;
    use crate::perf::attr::{SW_TASK_CLOCK, TYPE_SOFTWARE};

    /// Software events stand for the unit's, so that this runs where there is no unit.
    fn plan(metrics: &[Metric]) -> ThreadPlan {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_TASK_CLOCK);
        let event = Event { name: "clock".into(), attr, cpus: None };
        let events: Vec<(Metric, Event)> = metrics.iter().map(|m| (*m, event.clone())).collect();
        ThreadPlan::new(&events, 2)
    }

    #[test]
    fn a_thread_has_its_own_counts_under_the_models_names() {
        let plan = plan(&[Metric::LlcMisses, Metric::LocalHitm, Metric::LocalForward]);
        assert_eq!((plan.groups.len(), plan.events()), (3, 5));
        let mut counters = ThreadCounters::open(&plan, Tid(0)).unwrap();
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 2 {}
        let counts = counters.read();
        let misses = counts.get(Known::LlcMisses).unwrap();
        assert!(misses.value > 0 && misses.enabled >= misses.running);
        assert!(counts.get(Known::SnoopLocal).unwrap().value > misses.value);
        // It has run since, so it is not told the same again.
        assert!(counters.read().get(Known::LlcMisses).unwrap().value > misses.value);
    }

    #[test]
    fn of_a_refused_group_what_opens_alone_is_counted() {
        let mut plan = plan(&[Metric::LlcMisses, Metric::LlcHits]);
        let refused = plan.groups[1].iter_mut().find(|(metric, _)| *metric == Metric::LlcHits);
        refused.unwrap().1.attr.kind = 9_999;
        let mut counters = ThreadCounters::open(&plan, Tid(0)).unwrap();
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 2 {}
        let counts = counters.read();
        assert!(counts.get(Known::LlcMisses).is_some_and(|misses| misses.value > 0));
        assert_eq!(counts.get(Known::LlcHits), None);
    }

    #[test]
    fn a_thread_that_is_gone_has_none() {
        assert!(ThreadCounters::open(&plan(&[Metric::LlcMisses]), Tid(i32::MAX as u32)).is_none());
    }
}
