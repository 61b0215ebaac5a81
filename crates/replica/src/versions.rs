//! Data that is replaced as a whole while threads read it.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

use crate::cpu;
use crate::generations::{Generations, Pinned, SLOTS};
use crate::replica::map;
use crate::{NodeMap, Options, Replica, Source};

/// Largest number of old versions with readers. With that many no further version is published.
const MOST_OLD: usize = SLOTS - 1;

/// Read-only data in versions, each with a copy on every memory node. Readers are never blocked: a
/// reader keeps the version that it pinned, and the next pin gets the newest one. An old version is
/// freed after its last reader's pin is dropped.
pub struct Versions {
    shared: Arc<Shared>,
    /// The generation published last. A publisher holds the lock while it makes a version.
    newest: Mutex<u64>,
    options: Options,
}

struct Shared {
    generations: Generations<Version>,
    map: Arc<NodeMap>,
    /// Bytes of the copies of all versions.
    copied_bytes: Arc<AtomicU64>,
    /// The thread that frees old versions. It starts when the first old version has readers.
    reclaimer: Arc<OnceLock<Thread>>,
}

/// One version of the data.
#[derive(Debug)]
pub struct Version {
    replica: Replica<'static>,
    generation: u64,
    copied_bytes: Arc<AtomicU64>,
}

impl Version {
    /// 1 for the first version, one more for each that is published.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The version's copies, or why it has none.
    #[must_use]
    pub fn replica(&self) -> &Replica<'static> {
        &self.replica
    }

    fn new(replica: Replica<'static>, generation: u64, copied_bytes: &Arc<AtomicU64>) -> Self {
        copied_bytes.fetch_add(replica.copied_bytes(), Ordering::Relaxed);
        Self { replica, generation, copied_bytes: Arc::clone(copied_bytes) }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.copied_bytes.fetch_sub(self.replica.copied_bytes(), Ordering::Relaxed);
    }
}

/// Why a version was not published: too many old versions have readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{old} old versions are still being read; a new one is accepted when one of them is not")]
pub struct TooManyVersions {
    /// Old versions with readers.
    pub old: usize,
}

/// A pinned version; dereferences to its nearest copy. The version is not freed before this drops.
pub struct Pin<'a> {
    version: Pinned<'a, Version>,
    place: usize,
}

impl Pin<'_> {
    /// The pinned version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Turns the pin into numbers for [`Generations::unpin`], without ending it.
    pub(crate) fn into_parts(self) -> [usize; 2] {
        self.version.into_parts()
    }
}

impl Deref for Pin<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.version.replica.at(self.place)
    }
}

impl Versions {
    /// Copies the first version to every node. See [`Replica::new`].
    pub fn new(first: impl Into<Source<'static>>, options: Options) -> Self {
        let (map, refusal) = map(&options);
        let copied_bytes = Arc::new(AtomicU64::new(0));
        let replica = Replica::with_map(first.into(), &map, refusal, 0, &options);
        let first = Version::new(replica, 1, &copied_bytes);
        let reclaimer = Arc::new(OnceLock::new());
        let wake = {
            let reclaimer: Arc<OnceLock<Thread>> = Arc::clone(&reclaimer);
            Box::new(move || reclaimer.get().into_iter().for_each(Thread::unpark))
        };
        let generations = Generations::new(first, map.cpus(), wake);
        let shared = Arc::new(Shared { generations, map, copied_bytes, reclaimer });
        Self { shared, newest: Mutex::new(1), options }
    }

    /// Pins the newest version and returns its copy nearest to the calling thread. Hold the pin for
    /// one request: a version with a pin is not freed.
    #[inline]
    #[must_use]
    pub fn pin(&self) -> Pin<'_> {
        let Shared { generations, map, .. } = &*self.shared;
        let cpu = cpu::current();
        // A CPU that is not in the map shares the first lane.
        let lane = if cpu < map.cpus() { cpu } else { 0 };
        Pin { version: generations.pin(lane), place: map.place_of_cpu(cpu) }
    }

    /// Makes this data the newest version and returns its generation. The calling thread copies it
    /// to every node first. Readers use the previous version meanwhile.
    ///
    /// # Errors
    /// Too many old versions have readers. Nothing is copied then.
    pub fn publish(&self, source: impl Into<Source<'static>>) -> Result<u64, TooManyVersions> {
        let Shared { generations, map, copied_bytes, .. } = &*self.shared;
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let old = generations.reclaim();
        if old >= MOST_OLD {
            return Err(TooManyVersions { old });
        }
        let generation = *newest + 1;
        let earlier = copied_bytes.load(Ordering::Relaxed);
        let replica = Replica::with_map(source.into(), map, None, earlier, &self.options);
        let version = Version::new(replica, generation, copied_bytes);
        let published = generations.publish(version);
        assert!(published.is_ok(), "no other thread publishes, so the free slot is still free");
        *newest = generation;
        if generations.reclaim() > 0 {
            self.shared.free_later();
        }
        Ok(generation)
    }

    pub(crate) fn generations(&self) -> &Generations<Version> {
        &self.shared.generations
    }

    /// Frees the old versions without a reader, and returns the number of those with readers. A
    /// thread of this object does it too when the last pin of a version is dropped.
    pub fn reclaim(&self) -> usize {
        self.shared.generations.reclaim()
    }

    /// Bytes of the copies of all versions.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.shared.copied_bytes.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Starts the thread that frees old versions, so that no reader spends time on freeing
    /// gigabytes. If it cannot start, the next `publish` frees them.
    fn free_later(self: &Arc<Self>) {
        if self.reclaimer.get().is_none() {
            let shared = Arc::downgrade(self);
            let thread =
                thread::Builder::new().name("rondpoint-free".to_owned()).spawn(move || {
                    while let Some(shared) = shared.upgrade() {
                        shared.generations.reclaim();
                        drop(shared);
                        thread::park();
                    }
                });
            if let Ok(handle) = thread {
                // Only the holder of `newest` runs this, so `reclaimer` is unset.
                let _ = self.reclaimer.set(handle.thread().clone());
            }
        }
        // A reader that dropped its pin before the thread was set could not wake it.
        self.reclaimer.get().into_iter().for_each(Thread::unpark);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reclaimer.get().into_iter().for_each(Thread::unpark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    /// Two places on the memory of node 0, so that there are copies on any machine.
    fn options() -> Options {
        let places = [0, 1].map(|cpu| Place { node: 0, cpus: vec![cpu] });
        let node_map = Some(NodeMap::by_hand(places.to_vec()).unwrap());
        Options { node_map, ..Options::default() }
    }

    fn freed(versions: &Versions, bytes: u64) {
        // The thread that frees runs when it is scheduled; this waits without a limit of its own.
        while versions.copied_bytes() != bytes {
            thread::yield_now();
        }
    }

    #[test]
    fn a_reader_keeps_its_version_and_the_next_pin_gets_the_newest() {
        let versions = Versions::new(vec![1u8; 5000], options());
        let old = versions.pin();
        assert_eq!(versions.publish(vec![2u8; 7000]), Ok(2));
        assert_eq!((old.len(), old[4999], old.version().generation()), (5000, 1, 1));
        let new = versions.pin();
        assert_eq!((new.len(), new[6999], new.version().generation()), (7000, 2, 2));
        assert_eq!(versions.copied_bytes(), 2 * (5000 + 7000));
        drop(old);
        freed(&versions, 2 * 7000);
    }

    #[test]
    fn old_versions_count_for_the_budget() {
        let options = Options { budget_bytes: Some(3000), ..options() };
        let versions = Versions::new(vec![1u8; 1000], options);
        let old = versions.pin();
        assert!(old.version().replica().refusal().is_none());
        versions.publish(vec![2u8; 1000]).unwrap();
        let new = versions.pin();
        let refusal = new.version().replica().refusal().map(ToString::to_string).unwrap();
        assert!(refusal.contains("2000 bytes beside 2000 bytes of earlier ones"), "{refusal}");
        assert_eq!(new[999], 2, "readers get the original");
        drop((old, new));
        versions.publish(vec![3u8; 1000]).unwrap();
        assert!(versions.pin().version().replica().refusal().is_none());
    }

    #[test]
    fn a_publisher_is_told_when_readers_hold_every_old_version() {
        let versions = Versions::new(vec![0u8], options());
        let mut pins = vec![versions.pin()];
        for generation in 2..=4 {
            assert_eq!(versions.publish(vec![0u8]), Ok(generation));
            pins.push(versions.pin());
        }
        assert_eq!(versions.publish(vec![9u8]), Err(TooManyVersions { old: 3 }));
        pins.clear();
        assert_eq!(versions.publish(vec![9u8]), Ok(5));
        assert_eq!(*versions.pin(), [9]);
    }

    #[test]
    fn everything_is_freed_with_the_last_owner() {
        let versions = Versions::new(vec![0u8; 100], options());
        let bytes = Arc::clone(&versions.shared.copied_bytes);
        let pin = versions.pin();
        versions.publish(vec![1u8; 100]).unwrap();
        drop(pin);
        drop(versions);
        while bytes.load(Ordering::Relaxed) != 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn readers_under_updates_see_one_version_at_a_time() {
        const BYTES: usize = 3 * 4096;
        let versions = Versions::new(vec![0u8; BYTES], options());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 200 {
                        let pin = versions.pin();
                        let generation = pin.version().generation();
                        assert!(generation >= last);
                        let expected = (generation - 1) as u8;
                        assert!(pin.iter().step_by(512).all(|&byte| byte == expected));
                        last = generation;
                    }
                });
            }
            let mut number = 1;
            while number < 200 {
                match versions.publish(vec![number as u8; BYTES]) {
                    Ok(generation) => number = generation,
                    Err(TooManyVersions { .. }) => thread::yield_now(),
                }
            }
        });
        freed(&versions, 2 * BYTES as u64);
    }
}
