//! The cpuset of a managed program shrinks, grows or is another one, while it has masks of ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rondpoint_core::CpuSet;
use rondpoint_core::plan::StepResult;

use crate::harness::Test;
use crate::patience::comes;
use crate::restore::restore;
use crate::stepping::{Manager, Parts};
use crate::target::{Target, mask};

pub(crate) const TESTS: &[Test] = &[
    ("cpusets::masks_come_back_whatever_the_cpuset_does_meanwhile", come_back),
    ("cpusets::a_thread_stays_managed_while_its_cpuset_changes", stays_managed),
];

/// Long enough for killed processes to leave their cpuset.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cpuset of its own, in either version of cgroups. It is removed once its processes have ended.
struct Cpuset(PathBuf);

impl Cpuset {
    /// `None` where this user may make none.
    fn new(name: &str, cpus: &CpuSet) -> Option<Self> {
        let base = Path::new("/sys/fs/cgroup");
        let name = format!("rondpoint-test-{}-{name}", std::process::id());
        let _ = fs::write(base.join("cgroup.subtree_control"), "+cpuset");
        let found = [base.to_path_buf(), base.join("cpuset")].into_iter().find_map(|base| {
            let path = base.join(&name);
            fs::create_dir(&path).ok()?;
            let made = Self(path);
            made.0.join("cpuset.cpus").exists().then_some((base, made))
        });
        let (base, made) = found?;
        // Version 1 has no memory by default.
        if let Ok(nodes) = fs::read(base.join("cpuset.mems")) {
            fs::write(made.0.join("cpuset.mems"), nodes).ok()?;
        }
        made.try_set(cpus).ok()?;
        Some(made)
    }

    fn try_set(&self, cpus: &CpuSet) -> std::io::Result<()> {
        fs::write(self.0.join("cpuset.cpus"), cpus.to_string())
    }

    fn set(&self, cpus: &CpuSet) {
        self.try_set(cpus).expect("a cpuset of ours");
    }

    fn take_in(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a cpuset of ours");
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        comes(PATIENCE, || fs::remove_dir(&self.0).is_ok());
    }
}

/// What happens to the program's cpuset.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Shrinks,
    ShrinksAndGrows,
    Another,
}

fn come_back(own: &CpuSet) {
    let last: CpuSet = own.iter().skip(1).collect();
    for fate in [Fate::Shrinks, Fate::ShrinksAndGrows, Fate::Another] {
        let (Some(first), Some(second)) = (Cpuset::new("a", own), Cpuset::new("b", own)) else {
            println!("not tried: this user may make no cpusets");
            return;
        };
        let mut target = Target::start();
        first.take_in(target.pid());
        target.order("thread");
        let mut manager = Manager::start(target.pid());
        while manager.place() != "gave a mask" {
            manager.go_on();
        }
        assert_eq!(mask(target.pid()).len(), 1, "{fate:?}");
        // Born with a mask of ours.
        let heirs = [target.order("thread"), target.order("child")];
        assert_eq!(heirs.map(|tid| mask(tid).len()), [1, 1], "{fate:?}");
        match fate {
            Fate::Another => {
                second.set(&last);
                second.take_in(target.pid());
                second.take_in(heirs[1]);
            }
            _ => first.set(&last),
        }
        if fate == Fate::ShrinksAndGrows {
            first.set(own);
        }
        manager.kill();
        let restored = restore();
        let refused = &restored["threads"]["refused"];
        assert_eq!((refused, &restored["ledgers"]), (&0.into(), &1.into()), "{fate:?}");
        let now = if fate == Fate::ShrinksAndGrows { own } else { &last };
        assert!(target.masks().values().all(|mask| mask == now), "{fate:?}: {:?}", target.masks());
        first.set(own);
        second.set(own);
        assert!(target.masks().values().all(|mask| mask == own), "{fate:?}: {:?}", target.masks());
        drop(target);
    }
}

fn stays_managed(own: &CpuSet) {
    let Some(cpuset) = Cpuset::new("c", own) else {
        println!("not tried: this user may make no cpusets");
        return;
    };
    let mut target = Target::start();
    cpuset.take_in(target.pid());
    let cpus: Vec<usize> = own.iter().collect();
    let mut parts = Parts::of(target.pid());
    parts.look();
    let main = target.pid();
    let give = |parts: &mut Parts, cpu| {
        let plan = parts.plan(main, &[(main, cpu, false)]);
        parts.actor.prepare(&plan);
        parts.step(&plan, 0).result
    };
    assert_eq!(give(&mut parts, cpus[0]), StepResult::Done);
    let last: CpuSet = own.iter().skip(1).collect();
    // Born with a mask of ours. What that was shows when its CPU is back.
    target.order("thread");
    for (now, heirs) in [(&last, 0), (own, 1), (&last, 0)] {
        cpuset.set(now);
        let (observation, followed) = parts.look();
        // Linux before 6.2 has forgotten it.
        assert!(followed.heirs <= heirs && followed.left_alone == 0, "{now}: {followed:?}");
        let threads = &observation.processes[0].threads;
        let allowed = |thread: &rondpoint_core::observation::ThreadObservation| {
            let kernel = |cpu| parts.topology.kernel_cpu(cpu) as usize;
            thread.allowed.iter().map(kernel).collect::<CpuSet>()
        };
        assert!(threads.iter().all(|one| one.exempt.is_none() && allowed(one) == *now), "{now}");
    }
    let refused = StepResult::Refused { errno: 22 };
    assert_eq!(give(&mut parts, cpus[0]), refused, "the cpuset has lost it");
    assert_eq!(mask(main), last, "it may run where its cpuset is");
    assert_eq!(give(&mut parts, cpus[1]), StepResult::Done);
    cpuset.set(own);
    assert_eq!(parts.actor.restore_masks().put_back, 1);
    assert!(target.masks().values().all(|mask| mask == own), "{:?}", target.masks());
    drop(target);
}
