//! A program worth managing: threads that compute and fault, one that chose its own mask, a child.
//! Its main thread waits, or ends before the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::libc;
use rondpoint_core::{CpuSet, Pid};
use rondpoint_linux::parse::stat;
use rondpoint_linux::syscall::memory::{Anonymous, page_bytes};
use rondpoint_linux::syscall::process::ticks_per_second;
use rondpoint_linux::syscall::{affinity, process};
use rondpoint_linux::{Root, probe};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The largest mask: no kernel is built for more CPUs.
const MOST_CPUS: usize = 8192;

/// Fresh memory of each round.
const ROUND_BYTES: usize = 1 << 20;

/// Between two rounds. The manager that is traced beside it needs the CPUs too.
const REST: Duration = Duration::from_millis(1);

/// Extension of `ready` for a worker whose main thread ends before it is ready.
const HEADLESS: &str = "headless";

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
    if ready.extension().is_some_and(|kind| kind == HEADLESS) {
        let ready = ready.to_path_buf();
        std::thread::spawn(move || {
            let own = Pid(std::process::id());
            while !probe::outlives_its_main_thread(&Root::live(), own) {
                std::thread::sleep(REST);
            }
            tell(&ready, child.id());
            let _ = child.wait();
            bound.join().expect("it parks for ever");
        });
        end_this_thread();
    }
    tell(ready, child.id());
    let _ = child.wait();
    bound.join().expect("it parks for ever");
}

/// Says that all threads run.
fn tell(ready: &Path, child: u32) {
    let unfinished = ready.with_extension("new");
    std::fs::write(&unfinished, format!("{} {child}", std::process::id())).expect("written");
    std::fs::rename(unfinished, ready).expect("renamed");
}

/// Ends the calling thread and no other, as exit(2) does: the kernel ends it at its next
/// getppid(2).
fn end_this_thread() -> ! {
    let arch = std::env::consts::ARCH.try_into().expect("an architecture of seccomp");
    let calls = [(libc::SYS_getppid, Vec::new())].into_iter().collect();
    let (usual, last) = (SeccompAction::Allow, SeccompAction::KillThread);
    let filter = SeccompFilter::new(calls, usual, last, arch).expect("a filter");
    seccompiler::apply_filter(&BpfProgram::try_from(filter).expect("small")).expect("allowed");
    let parent = std::os::unix::process::parent_id();
    panic!("a thread that should have ended asked for its parent, which is {parent}");
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

    /// The masks of all its threads that live and of its child's.
    pub(crate) fn masks(&self) -> BTreeMap<u32, CpuSet> {
        let threads = self.processes().into_iter().flat_map(|pid| {
            let names = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
            let threads =
                names.filter_map(|name| name.ok()?.file_name().to_str()?.parse::<u32>().ok());
            threads.filter(move |tid| lives(pid, *tid))
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

/// Whether a thread has not ended. A main thread that has stays in the list.
fn lives(pid: u32, tid: u32) -> bool {
    let text = std::fs::read(format!("/proc/{pid}/task/{tid}/stat"));
    text.is_ok_and(|text| stat::parse(&text).expect("the kernel's format").state != 'Z')
}

impl Drop for Worker {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = process::kill(pid as i32, 9);
        }
    }
}
