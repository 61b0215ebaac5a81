//! Copies data to every node and compares where the kernel says that each page lies.
//!
//! `placement [MIB]` ends with status 1 where there are no copies or a page of a copy is not on its
//! node. So it does where a thread is given another node's copy. `./x lab live copies` runs it on a
//! machine of four nodes.

use std::cell::Cell;
use std::process::ExitCode;
use std::thread;

use rondpoint_linux::syscall::memory::page_bytes;
use rondpoint_linux::syscall::{affinity, pages};
use rondpoint_replica::{NodeMap, Options, Replica, Versions};

/// How many pages lie on the node, and how many elsewhere.
fn located(bytes: &[u8], node: u32) -> (usize, usize) {
    let first = bytes.as_ptr() as u64;
    let addresses: Vec<u64> =
        (0..bytes.len()).step_by(page_bytes()).map(|offset| first + offset as u64).collect();
    let nodes = pages::locate(0, &addresses).expect("the kernel tells where pages lie");
    let there = nodes.iter().filter(|&&status| status == Ok(node)).count();
    (there, nodes.len() - there)
}

/// Runs on one CPU of each place and looks at the copy that `read` is given there.
fn check(map: &NodeMap, read: impl Fn(&dyn Fn(&[u8])) + Sync) -> bool {
    let mut good = true;
    for place in map.places() {
        let on_node = || {
            affinity::set(0, &place.cpus.iter().take(1).map(|&cpu| cpu as usize).collect())
                .expect("the CPU is allowed");
            let found = Cell::new((0, 0));
            read(&|bytes| found.set(located(bytes, place.node)));
            found.get()
        };
        let (there, elsewhere) =
            thread::scope(|scope| scope.spawn(on_node).join()).expect("the thread ends");
        println!(
            "CPU {}: node {}: {there} pages, elsewhere {elsewhere}",
            place.cpus[0], place.node
        );
        good &= there > 0 && elsewhere == 0;
    }
    good
}

fn main() -> ExitCode {
    let mib = std::env::args().nth(1).map_or(Ok(8), |word| word.parse::<usize>());
    let Ok(mib @ 1..) = mib else {
        eprintln!("usage: placement [MIB]");
        return ExitCode::from(2);
    };
    let map = NodeMap::discover().expect("the machine can be read");
    let options = Options { node_map: Some(map.clone()), ..Options::default() };
    let data = |byte: u8| vec![byte; mib << 20];
    let replica = Replica::new(data(1), &options);
    println!("{replica}");
    let mut good = replica.refusal().is_none();
    good = good && check(&map, |look| look(replica.nearest()));
    let versions = Versions::new(data(2), options);
    versions.publish(data(3)).expect("nothing is pinned");
    good = good && check(&map, |look| look(&versions.pin()));
    ExitCode::from(u8::from(!good))
}
