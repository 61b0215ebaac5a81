//! What the benchmark and the page of finding the nearest copy measure alike.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rondpoint_replica::{NodeMap, Options, Place, Versions};

/// Two places on the memory of node 0, so that there are copies on any machine.
pub(crate) fn options() -> Options {
    let places = [0, 1].map(|cpu| Place { node: 0, cpus: vec![cpu] });
    let node_map = NodeMap::by_hand(places.to_vec()).expect("a valid map");
    Options { node_map: Some(node_map), ..Options::default() }
}

/// Does the work while a thread publishes versions without a pause.
pub(crate) fn during_updates<T>(versions: &Versions, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Refused while this thread outruns the readers.
                let _ = black_box(versions.publish(vec![2; 4096]));
            }
        });
        let found = work();
        done.store(true, Ordering::Relaxed);
        found
    })
}
