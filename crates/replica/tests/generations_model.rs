//! The protocol of `src/generations.rs` under loom: threads interleave in every way that matters,
//! and memory is as weakly ordered as C11 lets it be.

// Of the module under test only what the models below call is used here.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/generations.rs"]
mod generations;

mod sync {
    //! Loom's primitives in place of the standard library's.
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
}

use generations::Generations;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A version that counts itself while it exists.
struct Version {
    number: usize,
    alive: Arc<AtomicUsize>,
}

impl Version {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number, alive: Arc::clone(alive) }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

struct World {
    generations: Generations<Version>,
    alive: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl World {
    fn new(lanes: usize) -> Arc<Self> {
        let (alive, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let told = Arc::clone(&left);
        let tell = Box::new(move || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        let generations = Generations::new(Version::new(0, &alive), lanes, tell);
        Arc::new(Self { generations, alive, left })
    }

    fn publish(&self, number: usize) {
        let published = self.generations.publish(Version::new(number, &self.alive));
        assert!(published.is_ok(), "a slot is free");
    }
}

/// Schedules with at most this many preemptions find nearly all errors, and end.
fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn a_reader_never_meets_a_freed_version() {
    model(4, || {
        let world = World::new(1);
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let first = world.generations.pin(0).number;
                let second = world.generations.pin(0).number;
                assert!(first <= second, "{second} after {first}");
            })
        };
        world.publish(1);
        world.publish(2);
        reader.join().unwrap();
        assert_eq!(world.generations.pin(0).number, 2);
        assert_eq!((world.generations.reclaim(), world.alive.load(Ordering::Relaxed)), (0, 1));
    });
}

#[test]
fn two_readers_and_a_publisher_on_lanes_of_their_own() {
    model(3, || {
        let world = World::new(2);
        let readers = [0, 1].map(|lane| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.generations.pin(lane).number)
        });
        world.publish(1);
        for reader in readers {
            assert!(reader.join().unwrap() <= 1);
        }
        assert_eq!((world.generations.reclaim(), world.alive.load(Ordering::Relaxed)), (0, 1));
    });
}

#[test]
fn two_publishers_keep_each_other_s_versions_apart() {
    model(3, || {
        let world = World::new(1);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.publish(1))
        };
        world.publish(2);
        assert!(world.generations.pin(0).number > 0);
        other.join().unwrap();
        assert_eq!((world.generations.reclaim(), world.alive.load(Ordering::Relaxed)), (0, 1));
    });
}

/// What the publisher could not free is announced by the reader that leaves.
#[test]
fn no_old_version_is_forgotten() {
    model(5, || {
        let world = World::new(1);
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || drop(world.generations.pin(0)))
        };
        world.publish(1);
        let still_read = world.alive.load(Ordering::Relaxed) == 2;
        reader.join().unwrap();
        let announced = world.left.load(Ordering::Relaxed) > 0;
        assert!(announced || !still_read, "an old version is read and nobody says when it is not");
    });
}
