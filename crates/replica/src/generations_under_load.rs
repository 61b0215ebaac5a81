//! Tests of [`crate::generations`] with real threads. The model test compiles that file with loom's
//! types, so they are not in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

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

/// Longest wait for another thread (our choice): far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A version that tells when it begins to be freed, and waits for the word to end that.
struct SlowToFree {
    begun: mpsc::Sender<()>,
    end: Mutex<mpsc::Receiver<()>>,
}

impl Drop for SlowToFree {
    fn drop(&mut self) {
        let _ = self.begun.send(());
        let _ = self.end.lock().unwrap().recv();
    }
}

#[test]
fn a_reader_pins_the_new_version_while_its_publisher_still_frees_the_old_one() {
    let (begun, is_begun) = mpsc::channel();
    let (end, is_ended) = mpsc::channel();
    let first = SlowToFree { begun, end: Mutex::new(is_ended) };
    let generations = &Generations::new(Some(first), 1, quiet());
    thread::scope(|scope| {
        let publisher = scope.spawn(|| generations.publish(None).is_ok());
        is_begun.recv_timeout(PATIENCE).unwrap();
        let (pinned, is_pinned) = mpsc::channel();
        scope.spawn(move || pinned.send(generations.pin(0).is_none()));
        let found = is_pinned.recv_timeout(PATIENCE);
        // The publisher goes on even if the reader was blocked: the scope waits for both.
        end.send(()).unwrap();
        assert_eq!(found, Ok(true));
        assert!(publisher.join().unwrap());
    });
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
