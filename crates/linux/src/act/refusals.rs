//! Tests that a mask which the kernel refuses to restore is not forgotten.

use rondpoint_core::topology::synthetic;
use rondpoint_core::{CpuSet, Nanos, Tid};

use super::Actor;
use super::masks::{Change, Original, Task};
use crate::Root;
use crate::sleeper::Sleeper;
use crate::syscall::affinity;

/// The kernel refuses a mask without a CPU of the machine, as after a cpuset has shrunk.
#[test]
fn masks_that_the_kernel_refuses_to_restore_are_tried_again_at_the_end() {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let thread = process.pid.0 as i32;
    let before = affinity::get(thread).unwrap();
    let cpus = CpuSet::from_iter(before.iter().take(1));
    let machine = synthetic::parse("node:1 core:1").unwrap();
    let held = |before: &CpuSet| {
        let mut actor = Actor::new(Root::live(), machine.clone(), process.pid);
        affinity::set(thread, &cpus).unwrap();
        actor.masks.enter(&Change {
            plan: 1,
            task: Task { process, tid: Tid(process.pid.0), started: process.started },
            session: 1,
            at: Nanos(1),
            original: Original { cpus: before.clone(), whole: false },
            via: None,
            cpus: cpus.clone(),
        });
        actor
    };
    let absent = CpuSet::from_iter([8000]);
    let mut actor = held(&absent);
    assert_eq!(actor.release(process).refused, 1);
    assert_eq!(actor.restore_masks().refused, 1, "it is tried again");
    assert_eq!(actor.begin_anew().refused, 1);
    assert_eq!(actor.restore_masks().refused, 1, "it is tried again");
    let mut actor = held(&before);
    assert_eq!(actor.release(process).refused, 0);
    assert_eq!(actor.masks.tasks().count(), 0);
    let mut actor = held(&before);
    assert_eq!(actor.begin_anew().refused, 0);
    assert!(!actor.has_changed_masks());
}
