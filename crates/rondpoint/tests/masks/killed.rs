//! The manager is killed, and `rondpoint restore` puts back what it had changed.

use std::collections::BTreeMap;

use rondpoint_core::CpuSet;

use crate::harness::Test;
use crate::restore::restore;
use crate::stepping::Manager;
use crate::target::{Target, mask};

pub(crate) const TESTS: &[Test] = &[
    ("killed::a_manager_killed_at_any_step_leaves_no_mask_behind", at_any_step),
    ("killed::a_thread_that_chose_another_mask_since_keeps_it", chosen_since),
];

/// A program with two threads of the mask of all and one that has bound itself, and a child.
fn program(own: &CpuSet) -> (Target, u32) {
    let mut target = Target::start();
    target.order("thread");
    target.order("child");
    let bound = target.order("thread");
    let one: CpuSet = own.iter().take(1).collect();
    rondpoint_linux::syscall::affinity::set(bound as i32, &one).expect("a CPU of ours");
    target.order("thread");
    (target, bound)
}

fn at_any_step(own: &CpuSet) {
    let mut narrowed = 0;
    let mut heirs = 0;
    for steps in 0.. {
        let (mut target, bound) = program(own);
        let before = target.masks();
        let mut manager = Manager::start(target.pid());
        let mut place = manager.place();
        for step in 0..steps {
            // A thread and an orphan are born in the middle of it, with whatever mask their creator
            // has then.
            if step == 12 {
                target.order("thread");
                target.order("orphan");
            }
            manager.go_on();
            place = manager.place();
        }
        // … and once more between its last step and its end.
        target.order("thread");
        target.order("child");
        let changed = target.masks();
        narrowed += usize::from(before.iter().any(|(tid, mask)| changed[tid] != *mask));
        heirs +=
            changed.iter().filter(|(tid, mask)| !before.contains_key(tid) && *mask != own).count();
        manager.kill();
        restore();
        let after = target.masks();
        let expected: BTreeMap<u32, CpuSet> =
            after.keys().map(|tid| (*tid, before.get(tid).unwrap_or(own).clone())).collect();
        assert_eq!(after, expected, "killed after {steps} steps, when it {place}");
        assert_eq!(after[&bound].len(), 1, "what chose its own mask kept it");
        if place == "done" {
            // A manager that never narrowed anything would have passed.
            assert!(steps > 20 && narrowed > 10 && heirs > 10, "{steps} {narrowed} {heirs}");
            return;
        }
    }
}

fn chosen_since(own: &CpuSet) {
    let mut target = Target::start();
    let before = mask(target.pid());
    let mut manager = Manager::start(target.pid());
    while manager.place() != "gave a mask" {
        manager.go_on();
    }
    let given = mask(target.pid());
    assert_ne!(given, before);
    let other = own.difference(&given).iter().next().expect("another CPU");
    target.order(&format!("pin {other}"));
    manager.kill();
    let restored = restore();
    assert_eq!(mask(target.pid()), [other].into_iter().collect());
    assert_eq!(restored["threads"]["left_alone"], 1, "{restored}");
}
