//! Locks: sections of code that one thread at a time runs, on the data of one page group.
//!
//! The threads that take a lock are a closed network: each works outside, waits in one queue, and
//! works inside. The lines of the lock and its data come from the cache of the thread that held the
//! lock before. The lock is handed over to the thread that waits longest. If that thread sleeps, it
//! holds the lock while it wakes.

use std::collections::BTreeMap;

use rondpoint_core::Matrix;

use super::need::Running;
use super::solve::Rate;
use super::{EPOCH, Plant};
use crate::workload::Waits;

/// Halvings of the interval in which the length of a lock's queue lies.
const HALVINGS: usize = 40;

/// Active threads by lock and cache domain. A lock is named by the page group that it guards.
pub(super) type Holders = BTreeMap<usize, BTreeMap<usize, u32>>;

/// The section of one thread.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// The page group that the lock guards.
    group: usize,
    /// Time of an instruction inside, apart from misses, ns.
    base_ns: f64,
    /// Misses of the last-level cache in an instruction inside.
    misses: f64,
    /// Share of those misses by holding node.
    shares: Vec<(usize, f64)>,
    /// Instructions from one time that it takes the lock to the next.
    whole: f64,
    /// Instructions inside.
    inside: f64,
    /// Lines from caches of the same domain, ns for each time that it takes the lock.
    near_ns: f64,
    /// Lines from caches of other domains, for each time, by their node.
    far: Vec<(usize, f64)>,
}

/// One thread at a lock.
#[derive(Debug, Clone, Copy)]
struct Visit {
    outside_ns: f64,
    inside_ns: f64,
    /// Time for which a thread that had to wait holds the lock before it runs, ns: it is woken.
    wake_ns: f64,
}

impl Plant {
    /// Active threads of all locks.
    pub(super) fn holders(&self) -> Holders {
        let mut holders = Holders::new();
        for thread in self.threads.iter().filter(|thread| thread.active) {
            let process = &self.processes[thread.process];
            let Some(lock) = &process.program.lock else { continue };
            let rotate = process.phase(thread.done).rotate;
            let group = process.group_of(lock.region, thread.number, rotate);
            let domain = self.topology.domain_of_cpu(thread.cpu);
            *holders.entry(group).or_default().entry(domain).or_insert(0) += 1;
        }
        holders
    }

    /// Adds the section of a thread whose program has a lock, and the lines that come with it.
    /// `inside` holds an instruction inside: its time without misses, its misses, and their nodes.
    pub(super) fn add_section(
        &self,
        need: &mut Running,
        (base_ns, misses, shares): (f64, f64, Vec<(usize, f64)>),
        holders: &Holders,
    ) {
        let thread = &self.threads[need.thread];
        let process = &self.processes[need.process];
        let Some(lock) = &process.program.lock else { return };
        let rotate = process.phase(thread.done).rotate;
        let group = process.group_of(lock.region, thread.number, rotate);
        let inside = lock.kilo_instructions * 1000.0;
        let whole = inside / lock.share;
        let own = self.topology.domain_of_cpu(thread.cpu);
        let by_domain = holders.get(&group).into_iter().flatten();
        let all: u32 = by_domain.clone().map(|(_, count)| count).sum();
        let (mut near, mut far) = (0.0, BTreeMap::new());
        for (&domain, &count) in by_domain {
            // Any thread of the lock may have held it before, this one too: it has the lines.
            let others = if domain == own { count - 1 } else { count };
            let lines = lock.lines * f64::from(others) / f64::from(all.max(1));
            match domain == own {
                true => near += lines,
                false => *far.entry(self.node_of_domain[domain]).or_insert(0.0) += lines,
            }
        }
        let near_ns = near * self.machine.transfer_ns.same_domain_ns;
        need.near += near / whole;
        need.base_ns += near_ns / whole;
        let mut sum: BTreeMap<usize, f64> = need.far.drain(..).collect();
        far.iter().for_each(|(node, lines)| *sum.entry(*node).or_insert(0.0) += lines / whole);
        need.far = sum.into_iter().collect();
        let far = far.into_iter().collect();
        need.section =
            Some(Section { group, base_ns, misses, shares, whole, inside, near_ns, far });
    }

    /// Slows threads to the pace at which they get their locks.
    pub(super) fn hold(
        &self,
        running: &[Running],
        rates: &mut [Rate],
        memory: &Matrix<f64>,
        caches: &Matrix<f64>,
    ) {
        let mut locks: BTreeMap<usize, Vec<(usize, Visit, f64)>> = BTreeMap::new();
        for (place, of) in running.iter().enumerate() {
            let Some(section) = &of.section else { continue };
            let row = memory.row(of.node);
            let miss_ns: f64 = section.shares.iter().map(|(node, share)| row[*node] * share).sum();
            let row = caches.row(of.node);
            let far_ns: f64 = section.far.iter().map(|(node, lines)| row[*node] * lines).sum();
            let each = section.base_ns + section.misses * miss_ns / of.outstanding;
            let inside = section.inside * each + section.near_ns + far_ns;
            let whole = section.whole / rates[place].able;
            // A thread that shares its CPU holds the lock while others run on it.
            let stretch = EPOCH.0 as f64 / of.busy_ns.max(1.0);
            let sleeps = of.idles == Waits::Sleep;
            let visit = Visit {
                outside_ns: (whole - inside).max(0.0) * stretch,
                inside_ns: inside * stretch,
                wake_ns: if sleeps { self.truth.wake_ns } else { 0.0 },
            };
            let per_visit = section.whole * stretch;
            locks.entry(section.group).or_default().push((place, visit, per_visit));
        }
        for threads in locks.into_values() {
            let visits: Vec<Visit> = threads.iter().map(|(_, visit, _)| *visit).collect();
            for ((place, _, per_visit), per_ns) in threads.iter().zip(throughput(&visits)) {
                let rate = &mut rates[*place];
                rate.useful = (per_ns * per_visit).min(rate.able);
            }
        }
    }
}

/// Visits per ns of each thread, by Schweitzer's approximation: a thread that comes finds the mean
/// queue, less its own part. The lock is held for no more than all of the time.
fn throughput(visits: &[Visit]) -> Vec<f64> {
    let count = visits.len() as f64;
    let found = |queue: f64| queue * (count - 1.0) / count;
    // A visit that finds no thread at the lock wakes none.
    let holds = |visit: &Visit, queue: f64| visit.inside_ns + found(queue).min(1.0) * visit.wake_ns;
    let mean =
        |queue: f64| visits.iter().map(|visit| holds(visit, queue)).sum::<f64>() / count.max(1.0);
    let spends = |visit: &Visit, queue: f64| holds(visit, queue) + found(queue) * mean(queue);
    // Between a queue that follows from no thread and one of all threads, one is in balance.
    let (mut low, mut high) = (0.0, count);
    for _ in 0..HALVINGS {
        let queue = f64::midpoint(low, high);
        let share = |visit: &Visit| {
            let spent = spends(visit, queue);
            spent / (visit.outside_ns + spent).max(1e-9)
        };
        let next: f64 = visits.iter().map(share).sum();
        if next > queue { low = queue } else { high = queue }
    }
    let pace = |visit: &Visit| 1.0 / (visit.outside_ns + spends(visit, low)).max(1e-9);
    let per_ns: Vec<f64> = visits.iter().map(pace).collect();
    let busy: f64 = visits.iter().zip(&per_ns).map(|(visit, pace)| holds(visit, low) * pace).sum();
    per_ns.into_iter().map(|pace| pace / busy.max(1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::plant::{FirstPlace, Truth};
    use crate::rivals::Rival;
    use crate::sensors::Pmu;
    use crate::workload::Workload;
    use crate::world::{Scene, World};

    #[test]
    fn a_lock_serves_one_thread_at_a_time() {
        let all = |count: usize, wake_ns: f64| -> f64 {
            let visit = Visit { outside_ns: 90.0, inside_ns: 10.0, wake_ns };
            throughput(&vec![visit; count]).into_iter().sum()
        };
        assert!((all(1, 1000.0) - 0.01).abs() < 1e-9, "one thread waits for nobody");
        for count in 2..200 {
            let (few, more) = (all(count - 1, 0.0), all(count, 0.0));
            assert!(more > few && more <= 0.1, "{count} threads: {few} {more}");
        }
        assert!(all(100, 0.0) > 0.099, "a crowd keeps the lock busy");
        assert!(all(4, 50.0) < all(4, 0.0), "a thread that slept starts late");
    }

    #[test]
    fn a_lock_is_held_while_the_thread_that_gets_it_wakes() {
        let visit = Visit { outside_ns: 90.0, inside_ns: 10.0, wake_ns: 1000.0 };
        let all = |count: usize| -> f64 { throughput(&vec![visit; count]).into_iter().sum() };
        assert!((all(16) * 1010.0 - 1.0).abs() < 1e-3, "{} visits per ns", all(16));
        // Threads that hardly meet wake hardly ever.
        let rare = Visit { outside_ns: 1e6, ..visit };
        let rare: f64 = throughput(&[rare; 4]).into_iter().sum();
        assert!((rare * (1e6 + 10.0) / 4.0 - 1.0).abs() < 0.01, "{rare}");
    }

    #[test]
    fn a_lock_is_never_busy_for_more_than_all_of_the_time_though_threads_differ() {
        for slow in [1.0, 10.0, 1000.0] {
            let visit = |inside_ns| Visit { outside_ns: 20.0, inside_ns, wake_ns: 0.0 };
            let visits = [visit(1.0), visit(1.0), visit(slow)];
            let pace = throughput(&visits);
            let busy: f64 = visits.iter().zip(pace).map(|(one, pace)| one.inside_ns * pace).sum();
            assert!(busy <= 1.0 + 1e-9, "{slow}: {busy}");
        }
    }

    /// Threads of one program with a lock around a tenth of their work, on data that stays in
    /// caches.
    fn program(threads: usize, waits: &str, lock: &str) -> Workload {
        let text = format!(
            r#"
            name = "turns"
            title = "threads take turns"
            [[programs]]
            name = "turns"
            threads = {threads}
            seconds = 1000
            cycles_per_instruction = 1
            accesses_per_kilo = 2
            outstanding = 2
            {lock}
            [[programs.regions]]
            mib = 1
            touched = "first"
            used = "all"
            share = 1
            reuse = 1
            "#
        );
        Workload::parse(&text.replace("WAITS", waits), "test").expect("a workload")
    }

    const LOCK: &str = r#"
        [programs.lock]
        share = 0.1
        kilo_instructions = 1
        lines = 4
        waits = "WAITS"
        "#;

    /// Instructions and CPU time of the threads in a second, on some CPUs of two nodes of eight.
    fn done(workload: Workload, cpus: &[usize]) -> (f64, f64) {
        let machine = catalogue::machine("nodes=2 cpus=8 memory=1G").expect("a machine");
        let truth = Truth { wander_per_s: 0.0, wakes_near: 0.0, ..Truth::middle() };
        let scene = Scene { pmu: Pmu::Ibs, truth: Some(truth), ..Scene::new(machine, workload, 7) };
        let mut world = World::new(&scene, FirstPlace::Touch, Rival::Nothing);
        world.plant.arrange(0, cpus, &[0], true);
        (0..20).for_each(|_| world.pass());
        let threads = &world.plant.threads;
        let cpu_ns = threads.iter().map(|thread| thread.counts.cpu_ns).sum();
        (threads.iter().map(|thread| thread.done).sum(), cpu_ns)
    }

    fn speed(threads: usize, waits: &str, cpus: &[usize]) -> f64 {
        done(program(threads, waits, LOCK), cpus).0
    }

    #[test]
    fn one_thread_loses_nothing_at_a_lock() {
        let (free, _) = done(program(1, "", ""), &[0]);
        for waits in ["spin", "sleep"] {
            let held = speed(1, waits, &[0]);
            assert!((held / free - 1.0).abs() < 1e-9, "{waits}: {held} of {free}");
        }
    }

    #[test]
    fn many_threads_are_no_faster_than_one_over_the_serial_share() {
        let cpus: Vec<usize> = (0..16).collect();
        // Long sections: a wake-up is short beside them.
        let long = LOCK.replace("kilo_instructions = 1", "kilo_instructions = 100");
        let speed = |threads, waits, cpus| done(program(threads, waits, &long), cpus).0;
        let alone = speed(1, "spin", &[0]);
        for threads in [2, 4, 8, 16] {
            for waits in ["spin", "sleep"] {
                let gain = speed(threads, waits, &cpus) / alone;
                let most = 10.0_f64.min(threads as f64);
                assert!(gain <= most && gain > 0.4 * most, "{threads} that {waits}: {gain}");
            }
        }
    }

    #[test]
    fn threads_that_hold_a_lock_on_one_node_are_faster_than_on_two() {
        for waits in ["spin", "sleep"] {
            let one = speed(8, waits, &[0, 1, 2, 3, 4, 5, 6, 7]);
            let two = speed(8, waits, &[0, 1, 2, 3, 8, 9, 10, 11]);
            assert!(one > 1.03 * two, "{waits}: {one} on one node, {two} on two");
        }
    }

    #[test]
    fn a_thread_that_waits_uses_its_cpu_only_if_it_spins() {
        let cpus: Vec<usize> = (0..16).collect();
        let used = |waits| done(program(16, waits, LOCK), &cpus).1 / 16e9;
        let (spins, sleeps) = (used("spin"), used("sleep"));
        assert!(spins > 0.9 && sleeps < 0.8 * spins, "{spins} {sleeps}");
    }
}
