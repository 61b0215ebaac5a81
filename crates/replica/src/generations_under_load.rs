//! Tests of [`crate::generations`] with real threads. The model test compiles that file with loom's
//! types, so they are not in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::generations::{Generations, SLOTS};

fn quiet() -> Box<dyn Fn() + Send + Sync> {
    Box::new(|| ())
}

#[test]
fn an_old_version_is_freed_when_its_last_reader_lets_go() {
    let first = Arc::new(1);
    let generations = Generations::new(Arc::clone(&first), 2, quiet());
    let (one, two) = (generations.pin(0), generations.pin(1));
    generations.publish(Arc::new(2)).unwrap();
    assert_eq!((**one, **two, **generations.pin(0)), (1, 1, 2));
    drop(one);
    assert_eq!((generations.reclaim(), Arc::strong_count(&first)), (1, 2));
    drop(two);
    assert_eq!((generations.reclaim(), Arc::strong_count(&first)), (0, 1));
}

#[test]
fn a_version_is_refused_while_every_slot_is_read() {
    let generations = Generations::new(0, 1, quiet());
    let mut pins = vec![generations.pin(0)];
    for version in 1..SLOTS {
        generations.publish(version).unwrap();
        pins.push(generations.pin(0));
    }
    assert_eq!(generations.publish(SLOTS), Err(SLOTS));
    assert_eq!(*generations.pin(0), SLOTS - 1);
    pins.remove(0);
    assert_eq!(generations.publish(SLOTS), Ok(()));
    assert_eq!(*generations.pin(0), SLOTS);
}

/// A version with two halves that are equal until it is dropped.
struct Halves(u64, u64);

impl Drop for Halves {
    fn drop(&mut self) {
        (self.0, self.1) = (u64::MAX, 0);
    }
}

#[test]
fn readers_under_load_see_whole_versions_in_their_order() {
    let generations = Generations::new(Halves(0, 0), 2, quiet());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..4 {
            let (generations, done) = (&generations, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let version = generations.pin(reader % 2);
                    assert_eq!(version.0, version.1);
                    assert!(version.0 >= last, "{} after {last}", version.0);
                    last = version.0;
                }
            });
        }
        let mut published = 0;
        while published < 20_000 {
            match generations.publish(Halves(published + 1, published + 1)) {
                Ok(()) => published += 1,
                Err(_) => thread::yield_now(),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(generations.reclaim(), 0);
    assert_eq!(generations.pin(0).0, 20_000);
}
