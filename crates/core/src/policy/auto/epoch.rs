//! Short intervals to one long one: SAM decides ten times a second, the others once, and each on
//! what its own interval showed.
//!
//! Rates are means, weighted by the time to which they relate; samples add up; what is a state is
//! the newest.

use crate::matrix::Matrix;
use crate::model::{App, Model, PageId, Pages, Sensing, Thread, ThreadRates, Touch, Traffic};
use crate::units::Nanos;
use alloc::vec::Vec;

/// The intervals of an epoch that is not over.
#[derive(Debug, Clone, Default)]
pub(super) struct Epoch {
    sum: Option<Model>,
    /// When the one before ended; `None` before the first interval.
    began: Option<Nanos>,
    now: Nanos,
}

impl Epoch {
    /// How long it has lasted so far.
    pub(super) fn elapsed(&self) -> Nanos {
        self.began.map_or(Nanos(0), |began| self.now.since(began))
    }

    /// What it has shown so far, if it is not over.
    pub(super) fn so_far(&self) -> Option<&Model> {
        self.sum.as_ref()
    }

    /// Adds an interval; gives the epoch if that ends it. From end to end it is never shorter than
    /// `length`: N-MASS and AsymSched would sit out every other one. What was measured in it may
    /// be: the interval after an action is nobody's.
    pub(super) fn add(&mut self, interval: &Model, length: Nanos) -> Option<Model> {
        self.now = interval.at;
        self.began.get_or_insert(Nanos(interval.at.0.saturating_sub(interval.elapsed.0)));
        let sum = match self.sum.take() {
            None => interval.clone(),
            Some(sum) => joined(sum, interval),
        };
        if self.elapsed() >= length {
            self.began = Some(self.now);
            return Some(sum);
        }
        self.sum = Some(sum);
        None
    }
}

/// How much each of two intervals counts.
#[derive(Clone, Copy)]
struct Weights {
    before: f64,
    now: f64,
}

impl Weights {
    /// The mean of what is known.
    fn mean(self, before: Option<f64>, now: Option<f64>) -> Option<f64> {
        let total = self.before + self.now;
        match (before, now) {
            (Some(before), Some(now)) if total > 0.0 => {
                Some((before * self.before + now * self.now) / total)
            }
            (before, now) => now.or(before),
        }
    }

    fn traffic(self, before: Option<Traffic>, now: Option<&Traffic>) -> Option<Traffic> {
        let (Some(before), Some(now)) = (&before, now) else { return now.cloned().or(before) };
        let (before, now) = (&before.requests_per_us, &now.requests_per_us);
        let cell = |n, m| self.mean(Some(before[(n, m)]), Some(now[(n, m)])).unwrap_or(0.0);
        Some(Traffic::new(Matrix::from_fn(now.size(), cell)))
    }

    fn list(self, before: Option<Vec<f64>>, now: Option<&Vec<f64>>) -> Option<Vec<f64>> {
        let (Some(before), Some(now)) = (&before, now) else { return now.cloned().or(before) };
        let mean = |(before, now): (&f64, &f64)| self.mean(Some(*before), Some(*now));
        before.iter().zip(now).map(mean).collect()
    }
}

/// Two intervals, one after the other, as one.
fn joined(before: Model, now: &Model) -> Model {
    let weights = Weights { before: before.elapsed.seconds(), now: now.elapsed.seconds() };
    let apps = joined_apps(&before, now, weights);
    let threads = joined_threads(&before, now);
    let still = still_there(&before, now);
    let Joined { pages, before: earlier_pages, now: later_pages } =
        joined_pages(before.pages, &before.apps, now);
    let earlier = before.touches.iter().filter_map(|touch| {
        let page = earlier_pages.as_ref().map_or(Some(touch.page), |at| at[touch.page.0 as usize]);
        Some(Touch { page: page?, thread: still[touch.thread as usize]?, ..*touch })
    });
    let later = now
        .touches
        .iter()
        .filter_map(|touch| Some(Touch { page: later_pages[touch.page.0 as usize]?, ..*touch }));
    let touches = earlier.chain(later).collect();
    Model {
        at: now.at,
        elapsed: before.elapsed + now.elapsed,
        sensing: joined_sensing(before.sensing, now.sensing, weights),
        traffic: weights.traffic(before.traffic, now.traffic.as_ref()),
        latency_cycles: weights.mean(before.latency_cycles, now.latency_cycles),
        link_use: weights.list(before.link_use, now.link_use.as_ref()),
        free_memory: now.free_memory.clone().or(before.free_memory),
        apps,
        threads,
        shared: now.shared.clone(),
        pages,
        touches,
    }
}

fn joined_sensing(before: Sensing, now: Sensing, weights: Weights) -> Sensing {
    let mean = |before, now| weights.mean(Some(before), Some(now)).unwrap_or(now);
    Sensing {
        rung: before.rung.min(now.rung),
        confidence: mean(before.confidence, now.confidence),
        lost_share: mean(before.lost_share, now.lost_share),
        running_share: before.running_share.min(now.running_share),
    }
}

fn same_app<'a>(model: &'a Model, app: &App) -> Option<&'a App> {
    model.app(app.pid).filter(|before| before.started == app.started)
}

/// No requests at all: what an application of which nothing was seen made, where requests as such
/// are counted.
fn silence(model: &Model) -> Option<Traffic> {
    let counted = model.traffic.as_ref()?;
    Some(Traffic::new(Matrix::filled(counted.requests_per_us.size(), 0.0)))
}

fn joined_apps(before: &Model, now: &Model, weights: Weights) -> Vec<App> {
    let joined = |app: &App| {
        let Some(earlier) = same_app(before, app) else { return app.clone() };
        let mean = |of: fn(&App) -> Option<f64>| weights.mean(of(earlier), of(app));
        let traffic = |model: &Model, app: &App| app.traffic.clone().or_else(|| silence(model));
        App {
            traffic: weights.traffic(traffic(before, earlier), traffic(now, app).as_ref()),
            cache_traffic: weights
                .traffic(earlier.cache_traffic.clone(), app.cache_traffic.as_ref()),
            read_percent: mean(|app| app.read_percent),
            latency_cycles: mean(|app| app.latency_cycles),
            faults_per_s: mean(|app| app.faults_per_s),
            cpu_percent: mean(|app| Some(app.cpu_percent)).unwrap_or(app.cpu_percent),
            progress_per_s: mean(|app| app.progress_per_s),
            pages_moved_by_others: match (earlier.pages_moved_by_others, app.pages_moved_by_others)
            {
                (Some(earlier), Some(later)) => Some(earlier + later),
                (earlier, later) => later.or(earlier),
            },
            ..app.clone()
        }
    };
    now.apps.iter().map(joined).collect()
}

fn joined_threads(before: &Model, now: &Model) -> Vec<Thread> {
    let mut threads = Vec::with_capacity(now.threads.len());
    for app in &now.apps {
        let earlier = same_app(before, app).map_or(&[][..], |app| before.threads_of(app));
        for thread in now.threads_of(app) {
            let place = earlier.binary_search_by_key(&thread.tid, |earlier| earlier.tid);
            let joined = match place {
                Ok(place) => joined_thread(&earlier[place], thread, before.elapsed, now.elapsed),
                Err(_) => thread.clone(),
            };
            threads.push(joined);
        }
    }
    threads
}

fn joined_thread(before: &Thread, now: &Thread, earlier: Nanos, elapsed: Nanos) -> Thread {
    let wall = Weights { before: earlier.seconds(), now: elapsed.seconds() };
    // Rates are per second of the thread's own time.
    let own = Weights { before: wall.before * before.cpu_share, now: wall.now * now.cpu_share };
    let cpu_share = wall.mean(Some(before.cpu_share), Some(now.cpu_share));
    let accesses_by_node = match (&before.accesses_by_node, &now.accesses_by_node) {
        (Some(before), Some(now)) => {
            Some(before.iter().zip(now).map(|(before, now)| before.saturating_add(*now)).collect())
        }
        (before, now) => now.clone().or_else(|| before.clone()),
    };
    let (b, n) = (&before.rates, &now.rates);
    let rates = ThreadRates {
        instructions_per_s: wall.mean(b.instructions_per_s, n.instructions_per_s),
        coherence_remote_per_s: own.mean(b.coherence_remote_per_s, n.coherence_remote_per_s),
        coherence_local_per_s: own.mean(b.coherence_local_per_s, n.coherence_local_per_s),
        memory_per_s: own.mean(b.memory_per_s, n.memory_per_s),
        remote_dram_per_s: own.mean(b.remote_dram_per_s, n.remote_dram_per_s),
        mpki: own.mean(b.mpki, n.mpki),
        ipc: own.mean(b.ipc, n.ipc),
        stall_share: own.mean(b.stall_share, n.stall_share),
        stalls_per_coherence: own.mean(b.stalls_per_coherence, n.stalls_per_coherence),
        read_percent: own.mean(b.read_percent, n.read_percent),
        local_dram_share: own.mean(b.local_dram_share, n.local_dram_share),
    };
    Thread { cpu_share: cpu_share.unwrap_or(now.cpu_share), rates, accesses_by_node, ..now.clone() }
}

/// Where the threads of the earlier interval are in the later one; empty if nobody asks because
/// nothing was touched.
fn still_there(before: &Model, now: &Model) -> Vec<Option<u32>> {
    if before.touches.is_empty() {
        return Vec::new();
    }
    let place = |thread: &Thread| {
        let app = same_app(now, &before.apps[thread.app])?;
        let threads = now.threads_of(app);
        let place = threads.binary_search_by_key(&thread.tid, |other| other.tid).ok()?;
        Some((app.threads.start + place) as u32)
    };
    before.threads.iter().map(place).collect()
}

/// Pages of two intervals.
struct Joined {
    pages: Pages,
    /// Where those of the earlier one are now; `None` if all are where they were.
    before: Option<Vec<Option<PageId>>>,
    /// Where those of the later one are; empty if it has no touches.
    now: Vec<Option<PageId>>,
}

/// Pages of both intervals, those of processes that ended apart.
fn joined_pages(before: Pages, apps: &[App], now: &Model) -> Joined {
    let identity = |app: &App| (app.pid, app.started);
    let is_same = apps.iter().map(identity).eq(now.apps.iter().map(identity));
    let (mut pages, before) = match is_same {
        true => (before, None),
        false => {
            let place = |app: &App| {
                let place = now.apps.binary_search_by_key(&app.pid, |now| now.pid).ok()?;
                (now.apps[place].started == app.started).then_some(place as u32)
            };
            let places: Vec<Option<u32>> = apps.iter().map(place).collect();
            let mut pages = before.cleared();
            let moved =
                before.iter().map(|page| pages.add(&page, places[page.app]?)).collect::<Vec<_>>();
            (pages, Some(moved))
        }
    };
    let mut later = Vec::with_capacity(if now.touches.is_empty() { 0 } else { now.pages.len() });
    for page in now.pages.iter() {
        let id = pages.add(&page, page.app as u32);
        if !now.touches.is_empty() {
            later.push(id);
        }
    }
    Joined { pages, before, now: later }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::units::{Pid, Tid};
    use alloc::vec;

    /// An interval of processes with one thread each: (pid, CPU share, MEM, samples by node).
    fn interval(at_ms: u64, millis: u64, apps: &[(u32, f64, f64, [u32; 2])]) -> Model {
        let mut model = Model::empty(2);
        (model.at, model.elapsed) = (Nanos::from_millis(at_ms), Nanos::from_millis(millis));
        for (index, &(pid, share, rate, samples)) in apps.iter().enumerate() {
            let mut app = App::new(Pid(pid), index..index + 1);
            let traffic = Matrix::from_fn(2, |_, _| rate);
            app.traffic = Some(Traffic::new(traffic));
            model.apps.push(app);
            let mut thread = Thread::new(Tid(pid), index, 0, CpuSet::first(1));
            thread.cpu_share = share;
            thread.rates.memory_per_s = Some(rate);
            thread.rates.instructions_per_s = Some(rate);
            thread.accesses_by_node = Some(samples.to_vec());
            model.threads.push(thread);
            for (node, &count) in samples.iter().enumerate() {
                for _ in 0..count {
                    model.pages.record(index as u32, 0x1000, 12, 0, node as u16, false);
                }
            }
        }
        model
    }

    #[test]
    fn an_epoch_ends_when_its_intervals_are_long_enough() {
        let mut epoch = Epoch::default();
        let mut ends = Vec::new();
        for number in 1..=20 {
            let model = interval(100 * number, 100, &[]);
            if let Some(model) = epoch.add(&model, Nanos::from_secs(1)) {
                ends.push((model.at, model.elapsed));
            }
        }
        let millis = Nanos::from_millis;
        assert_eq!(ends, [(millis(1000), millis(1000)), (millis(2000), millis(1000))]);
        // An action in the end of the second: the interval after it is missing, and the epoch is as
        // long.
        let rest = interval(3000, 700, &[]);
        assert_eq!(epoch.add(&rest, Nanos::from_secs(1)), Some(rest));
        assert_eq!(epoch.elapsed(), Nanos(0));
    }

    #[test]
    fn a_process_that_falls_silent_does_not_go_on_as_before() {
        let both = |counted: bool| {
            let before = interval(100, 100, &[(1, 1.0, 10.0, [1, 0]), (2, 1.0, 0.0, [0, 0])]);
            let mut now = interval(400, 300, &[(1, 0.0, 0.0, [0, 0]), (2, 1.0, 20.0, [3, 3])]);
            now.apps[0].traffic = None;
            now.traffic = counted.then(|| Traffic::new(Matrix::filled(2, 20.0)));
            let both = joined(before, &now);
            both.apps.iter().map(|app| app.traffic.as_ref().map(Traffic::total_per_us)).collect()
        };
        let (quarter, most): (_, Vec<Option<f64>>) = (Some(10.0), both(true));
        assert_eq!(most, [quarter, Some(60.0)]);
        // Where nobody counts requests, nothing seen is nothing known.
        let unknown: Vec<Option<f64>> = both(false);
        assert_eq!(unknown, [Some(40.0), Some(60.0)]);
    }

    #[test]
    fn rates_are_means_over_the_time_to_which_they_relate() {
        let before = interval(100, 100, &[(1, 1.0, 10.0, [1, 0])]);
        let now = interval(400, 300, &[(1, 0.5, 20.0, [2, 3])]);
        let both = joined(before, &now);
        assert_eq!((both.at, both.elapsed), (Nanos::from_millis(400), Nanos::from_millis(400)));
        let thread = &both.threads[0];
        assert_eq!(thread.cpu_share, 0.625);
        // 100 ms of CPU time at 10 and 150 ms at 20; by the clock 100 ms at 10 and 300 ms at 20.
        assert_eq!(thread.rates.memory_per_s, Some(16.0));
        assert_eq!(thread.rates.instructions_per_s, Some(17.5));
        assert_eq!(thread.accesses_by_node, Some(vec![3, 3]));
        let traffic = both.apps[0].traffic.as_ref().expect("known in both");
        assert_eq!(traffic.requests_per_us[(0, 1)], 17.5);
        assert_eq!(both.pages.iter().next().map(|page| page.total()), Some(6));
    }

    #[test]
    fn pages_keep_their_process_when_others_come_and_go() {
        let before = interval(100, 100, &[(1, 1.0, 1.0, [1, 0]), (3, 1.0, 1.0, [0, 2])]);
        let now = interval(200, 100, &[(2, 1.0, 1.0, [4, 0]), (3, 1.0, 1.0, [1, 0])]);
        let both = joined(before, &now);
        let seen: Vec<(Pid, Vec<(usize, u32)>)> = both
            .pages
            .iter()
            .map(|page| (both.apps[page.app].pid, page.accesses().collect()))
            .collect();
        assert_eq!(seen, [(Pid(3), vec![(0, 1), (1, 2)]), (Pid(2), vec![(0, 4)])]);
    }

    /// The touches of a model by name: (pid and tid, address).
    fn touched(model: &Model) -> Vec<(u32, u64)> {
        let name = |touch: &Touch| {
            let page = model.pages.get(touch.page);
            let thread = &model.threads[touch.thread as usize];
            assert_eq!(page.app, thread.app, "a thread touches pages of its process");
            (thread.tid.0, page.address)
        };
        model.touches.iter().map(name).collect()
    }

    #[test]
    fn touches_keep_their_threads_and_pages_when_others_come_and_go() {
        let touching = |mut model: Model| {
            for thread in 0..model.threads.len() as u32 {
                let address = 0x1000 * u64::from(model.threads[thread as usize].tid.0);
                let page = model.pages.record(thread, address, 12, 0, 0, false).expect("room");
                model.touches.push(Touch { page, thread, remote: true });
            }
            model
        };
        let models = |pids: &[u32]| {
            let apps: Vec<_> = pids.iter().map(|&pid| (pid, 1.0, 1.0, [1, 0])).collect();
            touching(interval(100, 100, &apps))
        };
        let both = joined(models(&[1, 3]), &models(&[2, 3]));
        assert_eq!(touched(&both), [(3, 0x3000), (2, 0x2000), (3, 0x3000)]);
        let same = joined(both, &models(&[2, 3]));
        assert_eq!(touched(&same).len(), 5);
        let silent = joined(same, &Model { touches: Vec::new(), ..models(&[3]) });
        assert_eq!(touched(&silent), [(3, 0x3000); 3]);
    }

    #[test]
    fn what_one_interval_did_not_show_the_other_may() {
        let mut before = interval(100, 100, &[(1, 1.0, 10.0, [0, 0])]);
        before.threads[0].rates.mpki = Some(5.0);
        before.free_memory = Some(vec![crate::units::Bytes(7); 2]);
        let mut now = interval(200, 100, &[(1, 1.0, 20.0, [0, 0])]);
        now.threads[0].rates.ipc = Some(2.0);
        let both = joined(before.clone(), &now);
        let rates = &both.threads[0].rates;
        assert_eq!((rates.mpki, rates.ipc, rates.stall_share), (Some(5.0), Some(2.0), None));
        assert_eq!(both.free_memory, before.free_memory);
    }
}
