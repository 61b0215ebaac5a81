//! Threads and processes that must not be touched are seen as such. These are kernel threads,
//! real-time tasks, memory and masks set by other programs, cpusets of other managers. That the
//! guard then leaves them alone is tested beside the guard.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};

use rondpoint_core::observation::{Exemption, ProcessObservation, ThreadObservation};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Nanos, Observation, Pid, Tid, Topology};
use rondpoint_linux::Root;
use rondpoint_linux::act::Actor;
use rondpoint_linux::observe::tasks::{Births, Tasks};

fn machine() -> Topology {
    synthetic::parse("node:2 core:2").expect("a machine")
}

/// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// A process of one thread in a captured `/proc`, with these flags, scheduling policy and maps.
fn captured(root: &Root, pid: u32, flags: u32, policy: u32, maps: &str) {
    let line = format!(
        "{pid} (x) S 1 1 1 0 -1 {flags} 7 0 1 0 2 1 0 0 20 0 1 0 100 0 10 \
         0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 {policy}\n"
    );
    let task = root.in_proc(format!("{pid}/task/{pid}"));
    fs::create_dir_all(&task).expect("room");
    fs::write(task.join("stat"), &line).expect("room");
    fs::write(task.join("status"), "Cpus_allowed_list:\t0-3\n").expect("room");
    fs::write(root.in_proc(format!("{pid}/stat")), &line).expect("room");
    fs::write(root.in_proc(format!("{pid}/numa_maps")), maps).expect("room");
}

fn look(root: &Root, pid: u32) -> ProcessObservation {
    let found = Tasks::new(root.clone(), Pid(pid), None).observe(&machine(), Births::default());
    found.expect("it can be read").remove(0)
}

#[test]
fn kernel_threads_real_time_tasks_and_bound_memory_are_exempt() {
    let directory = tempfile::tempdir().expect("a folder");
    let root = Root::captured(directory.path());
    let plain = "1000 default anon=2 N0=2 kernelpagesize_kB=4\n";
    let exempt = |pid, flags, policy, maps: &str| {
        captured(&root, pid, flags, policy, maps);
        let process = look(&root, pid);
        (process.exempt, process.threads[0].exempt)
    };
    // Batch and idle tasks are ordinary ones too.
    for (pid, policy) in [(10, 0), (11, 3), (12, 5)] {
        assert_eq!(exempt(pid, 0, policy, plain), (None, None), "{policy}");
    }
    let kernel = Some(Exemption::KernelThread);
    assert_eq!(exempt(13, KERNEL_THREAD, 0, ""), (kernel, kernel));
    for (pid, policy) in [(14, 1), (15, 2), (16, 6)] {
        assert_eq!(exempt(pid, 0, policy, plain), (None, Some(Exemption::RealTime)), "{policy}");
    }
    for (pid, policy) in [(17, "bind:1"), (18, "interleave:0-1"), (19, "prefer:1")] {
        let maps = format!("1000 {policy} anon=2 N0=2 kernelpagesize_kB=4\n");
        assert_eq!(exempt(pid, 0, 0, &maps).0, Some(Exemption::OwnMemoryPolicy), "{policy}");
    }
}

/// A process that ends with its owner.
struct Sleeping(Child);

impl Sleeping {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("sleep runs"))
    }

    fn observed(&self) -> ProcessObservation {
        let thread = ThreadObservation { tid: Tid(self.0.id()), ..ThreadObservation::default() };
        ProcessObservation {
            pid: Pid(self.0.id()),
            threads: vec![thread],
            ..ProcessObservation::default()
        }
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes are real, their cpusets are written down.
#[test]
fn a_process_in_another_cpuset_is_another_managers() {
    let directory = tempfile::tempdir().expect("a folder");
    let root = Root::captured(directory.path());
    let family = [Sleeping::start(), Sleeping::start(), Sleeping::start()];
    let mut actor = Actor::new(root.clone(), machine(), Pid(family[0].0.id()));
    let mut exempt = |paths: [&str; 3]| {
        for (process, path) in family.iter().zip(paths) {
            let folder = root.in_proc(process.0.id().to_string());
            fs::create_dir_all(&folder).expect("room");
            fs::write(folder.join("cpuset"), path).expect("room");
        }
        let processes = family.iter().map(Sleeping::observed).collect();
        let mut observation = Observation { at: Nanos(1), processes, ..Observation::default() };
        actor.follow(&mut observation, &BTreeSet::new());
        observation.processes.iter().map(|process| process.exempt).collect::<Vec<_>>()
    };
    let other = Some(Exemption::OtherManager);
    assert_eq!(exempt(["/jobs/a", "/jobs/a", "/jobs/a/inner"]), [None, None, other]);
    assert_eq!(exempt(["/jobs/a", "/jobs/b", "/jobs/a"]), [None, other, None]);
    // All of them together are where they were.
    assert_eq!(exempt(["/jobs", "/jobs", "/jobs"]), [None, None, None]);
    // Without a cpuset of the first one its last one counts.
    assert_eq!(exempt(["", "/jobs", "/jobs/b"]), [None, None, other]);
}
