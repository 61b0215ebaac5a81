//! Whether a thread goes to its data or its data comes to it (ALGORITHMS 5.4). The data comes if
//! that is cheap enough and Carrefour does it.
//!
//! No data comes to a thread that has just come, for the thread may be gone again before the data
//! is there. The exception (ours) is a thread with data on a controller that is busier than its
//! own. To go there would crowd a crowded node, and to bring the data relieves it. On nmass-2 four
//! programs have all their memory on one node. They make 1.07 of Linux's speed if all go there, and
//! 1.38 if the kernel brings half of the memory to the other node (emulated).

use super::flags::Flags;
use super::history::{EPOCH, History, RESTING_EPOCHS};
use super::veto::Veto;
use crate::matrix::Matrix;
use crate::model::{App, Model};
use crate::policy::asymsched::AsymSched;
use crate::policy::carrefour::Carrefour;
use crate::topology::Topology;
use crate::units::{Bytes, Nanos, Pid, Tid};
use alloc::collections::BTreeMap;

/// Share of an application's run time that moving its memory may take: AsymSched's rule [ALGORITHMS
/// 5.4].
const BUDGET_SHARE: f64 = 0.05;
/// Share of the pages that a node accesses on another above which they count as private to it
/// (inferred).
const PRIVATE_ABOVE: f64 = 0.5;

/// Sampled pages, by the node that holds and the one that accesses them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Count {
    /// Accessed by no other node.
    private: u32,
    all: u32,
}

/// Which pages of each process only one node accesses, in the last epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnData {
    apps: BTreeMap<Pid, Matrix<Count>>,
}

impl OwnData {
    /// Counts the pages of the processes that are asked for.
    pub(super) fn observe(&mut self, model: &Model, nodes: usize, wanted: impl Fn(Pid) -> bool) {
        self.apps = model
            .apps
            .iter()
            .filter(|app| wanted(app.pid))
            .map(|app| (app.pid, Matrix::filled(nodes, Count::default())))
            .collect();
        if self.apps.is_empty() {
            return;
        }
        for page in model.pages.iter() {
            let Some(counts) = self.apps.get_mut(&model.apps[page.app].pid) else { continue };
            let (Some(home), Some(seen)) = (page.home, page.accessors()) else { continue };
            for (node, _) in page.accesses() {
                counts[(home, node)].all += 1;
                counts[(home, node)].private += u32::from(!seen.is_shared);
            }
        }
    }

    /// Forgets the samples of a process that changed nodes: they say nothing about its present
    /// place.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.apps.remove(&pid);
    }

    /// Share of the pages on `home` that `node` accesses and no other; `None` if none was seen.
    pub(super) fn share(&self, pid: Pid, home: usize, node: usize) -> Option<f64> {
        let count = self.apps.get(&pid)?[(home, node)];
        (count.all > 0).then(|| f64::from(count.private) / f64::from(count.all))
    }
}

/// What is known of data and of what moving it costs.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) model: &'a Model,
    pub(super) topology: &'a Topology,
    pub(super) flags: &'a Flags,
    pub(super) history: &'a History,
    pub(super) owned: &'a OwnData,
    pub(super) asymsched: &'a AsymSched,
    pub(super) carrefour: &'a Carrefour,
}

impl Data<'_> {
    /// A thread on `node` stays, because its data comes there from `home`.
    pub(super) fn comes(self, app: &App, tid: Tid, home: usize, node: usize) -> Option<Veto> {
        let here = self.flags.here_since(tid)?;
        let relieves = home != node && here.is_first && self.is_busier(app, home, node);
        let has_rested = self.model.at.since(here.since) >= Nanos(RESTING_EPOCHS * EPOCH.0);
        if !relieves && !has_rested {
            return None;
        }
        let colocation = match self.carrefour.app(app.pid) {
            // It was not asked yet.
            None => relieves,
            Some(_) => self.carrefour.mechanisms(app.pid).is_some_and(|used| used.colocation),
        };
        // What the only thread of a process uses is its own.
        let alone = (app.threads.len() == 1).then_some(1.0);
        let share = self.owned.share(app.pid, home, node).or(alone.filter(|_| relieves));
        let price = Price {
            seconds_per_gb: self.asymsched.seconds_per_gb(),
            spent: self.history.spent(app.pid),
            run_time: app.run_time(self.model),
        };
        data_comes(colocation, share, app, home, price)
    }

    /// The same for a process with one thread, by the last known place of its data.
    pub(super) fn comes_to_process(self, pid: Pid, tid: Tid) -> Option<Veto> {
        let app = self.model.app(pid)?;
        let thread = self.model.threads_of(app).iter().find(|thread| thread.tid == tid)?;
        let home = self.flags.home(tid).or_else(|| app.home())?;
        let node = self.topology.node_of_cpu(thread.cpu);
        (home != node).then(|| self.comes(app, tid, home, node)).flatten()
    }

    /// Whether the controllers are so uneven that Carrefour would interleave, with `home` above the
    /// mean and `node` below. Where the whole machine is not counted, what the application asks for
    /// has to do.
    fn is_busier(self, app: &App, home: usize, node: usize) -> bool {
        let Some(traffic) = self.model.traffic.as_ref().or(app.traffic.as_ref()) else {
            return false;
        };
        let load = traffic.load_per_us();
        let controllers = self.topology.controllers();
        let mean =
            controllers.iter().map(|node| load[node]).sum::<f64>() / controllers.len() as f64;
        let preset = self.carrefour.preset();
        let imbalance = traffic.imbalance_percent(preset.deviation, self.topology);
        imbalance.is_some_and(|percent| percent > preset.interleave_above_imbalance)
            && load[home] > mean
            && load[node] < mean
    }
}

/// What moving memory costs an application.
#[derive(Debug, Clone, Copy)]
struct Price {
    /// Seconds to move 10⁹ bytes.
    seconds_per_gb: f64,
    /// Spent on it before.
    spent: Nanos,
    /// For how long it has run.
    run_time: Nanos,
}

/// Whether the data of a thread comes to it, so that the thread stays. Needed: Carrefour
/// co-locates, most pages that it uses there are private to its node, and bringing them costs at
/// most 5 % of the run time. `own_data` is the share of such pages. Where it is not known, the
/// thread moves.
fn data_comes(
    colocation: bool,
    private: Option<f64>,
    app: &App,
    home: usize,
    price: Price,
) -> Option<Veto> {
    let share = private.filter(|share| colocation && *share > PRIVATE_ABOVE)?;
    let resident: Bytes = *app.memory.as_ref()?.get(home)?;
    let seconds = price.spent.seconds() + price.seconds_per_gb * share * resident.gigabytes();
    let allowed_seconds = BUDGET_SHARE * price.run_time.seconds();
    (seconds <= allowed_seconds).then_some(Veto::DataComes { seconds, allowed_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn app() -> App {
        let mut app = App::new(Pid(1), 0..0);
        app.memory = Some(vec![Bytes(0), Bytes(2_000_000_000)]);
        app
    }

    fn price(spent_s: u64, run_s: u64) -> Price {
        let (spent, run_time) = (Nanos::from_secs(spent_s), Nanos::from_secs(run_s));
        Price { seconds_per_gb: 0.5, spent, run_time }
    }

    #[test]
    fn data_comes_if_it_is_private_cheap_and_somebody_brings_it() {
        // 2 GB at 0.5 s: 1 s of 20 s is just 5 %.
        let expected = Some(Veto::DataComes { seconds: 1.0, allowed_seconds: 1.0 });
        assert_eq!(data_comes(true, Some(1.0), &app(), 1, price(0, 20)), expected);
        assert_eq!(data_comes(true, Some(1.0), &app(), 1, price(0, 19)), None);
        assert_eq!(data_comes(true, Some(1.0), &app(), 1, price(1, 39)), None);
        assert!(data_comes(true, Some(1.0), &app(), 1, price(1, 40)).is_some());
        assert_eq!(data_comes(false, Some(1.0), &app(), 1, price(0, 20)), None);
        assert_eq!(data_comes(true, Some(0.5), &app(), 1, price(0, 20)), None);
        assert_eq!(data_comes(true, None, &app(), 1, price(0, 20)), None);
        let unknown = App { memory: None, ..app() };
        assert_eq!(data_comes(true, Some(1.0), &unknown, 1, price(0, 20)), None);
    }

    #[test]
    fn pages_are_private_to_a_node_if_no_other_accesses_them() {
        let mut model = Model::empty(3);
        model.apps = vec![App::new(Pid(1), 0..0), App::new(Pid(2), 0..0)];
        for (app, page, nodes) in [(0, 1, &[2][..]), (0, 2, &[2, 0]), (0, 3, &[2, 2]), (1, 1, &[0])]
        {
            for &node in nodes {
                model.pages.record(app, page << 12, 12, 1, node, false);
            }
        }
        let mut own_data = OwnData::default();
        own_data.observe(&model, 3, |pid| pid == Pid(1));
        assert_eq!(own_data.share(Pid(1), 1, 2), Some(2.0 / 3.0));
        assert_eq!(own_data.share(Pid(1), 1, 0), Some(0.0));
        assert_eq!(own_data.share(Pid(1), 2, 2), None);
        assert_eq!(own_data.share(Pid(2), 1, 0), None);
        own_data.forget(Pid(1));
        assert_eq!(own_data.share(Pid(1), 1, 2), None);
    }
}
