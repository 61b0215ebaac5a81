//! A program worth managing: threads that compute and fault, one that chose its own mask, a child.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::memory::{Anonymous, page_bytes};
use rondpoint_linux::syscall::process::ticks_per_second;
use rondpoint_linux::syscall::{affinity, process};

/// The largest mask: no kernel is built for more CPUs.
const MOST_CPUS: usize = 8192;

/// Fresh memory of each round.
const ROUND_BYTES: usize = 1 << 20;

/// Between two rounds. The manager that is traced beside it needs the CPUs too.
const REST: Duration = Duration::from_millis(1);

/// Runs until it is killed. `ready` then names its process and its child.
pub(crate) fn main(ready: &Path) {
    let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
    let (chooses, has_chosen) = std::sync::mpsc::channel();
    let main = std::process::id() as i32;
    // The manager may have begun. A mask that the main thread has about when this thread is born
    // would look inherited. A mask that this thread has been given would look like the manager's.
    // So it chooses another.
    let before = masks_for_a_while(main);
    let bound = std::thread::spawn(move || {
        affinity::set(0, &CpuSet::first(MOST_CPUS)).expect("CPUs of ours");
        let all = affinity::get(0).expect("a mask");
        let mut masks = [before, masks_for_a_while(main)].concat();
        masks.push(affinity::get(0).expect("a mask"));
        let mut singles = all.iter().map(|cpu| CpuSet::from_iter([cpu]));
        let free = singles.find(|mask| !masks.contains(mask)).expect("few masks in that time");
        affinity::set(0, &free).expect("a CPU of ours");
        chooses.send(()).expect("the main thread waits");
        loop {
            std::thread::park();
        }
    });
    for _ in 0..2 {
        std::thread::spawn(|| {
            loop {
                // Mapped anew: what malloc has back once it gives out again without a fault.
                let fresh = Anonymous::new(ROUND_BYTES).expect("memory");
                fresh.touch_every(page_bytes());
                std::thread::sleep(REST);
            }
        });
    }
    has_chosen.recv().expect("it has its mask");
    let unfinished = ready.with_extension("new");
    std::fs::write(&unfinished, format!("{} {}", std::process::id(), child.id())).expect("written");
    std::fs::rename(unfinished, ready).expect("renamed");
    let _ = child.wait();
    bound.join().expect("it parks for ever");
}

/// The masks that a thread has in the next clock ticks: the kernel tells starts no finer.
fn masks_for_a_while(thread: i32) -> Vec<CpuSet> {
    let until = Instant::now() + 3 * Duration::from_nanos(1_000_000_000 / ticks_per_second());
    let mut masks = Vec::new();
    while Instant::now() < until {
        let mask = affinity::get(thread).expect("it lives");
        if !masks.contains(&mask) {
            masks.push(mask);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    masks
}

/// That program, from outside; it is killed when this is dropped.
pub(crate) struct Worker {
    ready: PathBuf,
}

impl Worker {
    pub(crate) fn named_in(ready: PathBuf) -> Self {
        Self { ready }
    }

    /// Whether it runs with all its threads.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.exists()
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.processes()[0]
    }

    fn processes(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.ready).unwrap_or_default();
        text.split(' ').filter_map(|word| word.parse().ok()).collect()
    }

    /// The masks of all its threads and of its child's.
    pub(crate) fn masks(&self) -> BTreeMap<u32, CpuSet> {
        let threads = self.processes().into_iter().flat_map(|pid| {
            let names = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
            names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok())
        });
        threads.map(|tid: u32| (tid, affinity::get(tid as i32).expect("it runs"))).collect()
    }

    /// How many threads may use fewer CPUs than `own`. One thread has chosen that itself.
    pub(crate) fn narrow_threads(&self, own: &CpuSet) -> usize {
        self.masks().values().filter(|mask| mask.len() < own.len()).count()
    }

    /// Waits until it has computed so long: it goes on without its manager.
    pub(crate) fn goes_on(&self) -> bool {
        let ticks = || {
            let pid = self.pid();
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
            fields.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum::<u64>()
        };
        let (before, deadline) = (ticks(), Instant::now() + Duration::from_secs(20));
        while ticks() == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
        ticks() > before
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = process::kill(pid as i32, 9);
        }
    }
}
