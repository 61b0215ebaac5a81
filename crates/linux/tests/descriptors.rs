//! What is kept open leaves descriptors for everything else. A process of its own, for what is left
//! holds for all of it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use rondpoint_core::Pid;
use rondpoint_linux::observe::tasks::{Births, Tasks};
use rondpoint_linux::perf::attr::{Attr, SW_TASK_CLOCK, TYPE_SOFTWARE};
use rondpoint_linux::syscall::descriptors::{leave_some, may_keep};
use rondpoint_linux::syscall::perf::{Target, open};
use rondpoint_linux::{Root, topology};

const ALLOWED: u64 = 64;

/// Files of another test would take numbers between.
#[test]
fn events_and_files_of_processes_leave_descriptors_for_files() {
    leave_some(ALLOWED);
    files_of_processes_leave_some();
    let event = || {
        let mut attr = Attr::counting(TYPE_SOFTWARE, SW_TASK_CLOCK);
        attr.exclude_kernel_and_hypervisor();
        open(&mut attr, Target { task: 0, cpu: -1 }, None)
    };
    let mut events = Vec::new();
    let refused = loop {
        match event() {
            Ok(event) if (events.len() as u64) < ALLOWED => events.push(event),
            Ok(_) => panic!("{ALLOWED} events were opened"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
    assert!(events.len() > 16, "{} events, of {ALLOWED} descriptors", events.len());
    let files: Vec<File> = (0..8).map(|_| File::open("/proc/self/stat").unwrap()).collect();
    assert!(files.iter().all(|file| (file.as_raw_fd() as u64) < ALLOWED));
    events.pop();
    drop(files);
    assert!(event().is_ok(), "one that was given back");
}

fn files_of_processes_leave_some() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
    let threads: Vec<_> = (0..ALLOWED)
        .map(|_| {
            let ended = std::sync::Arc::clone(&ended);
            std::thread::spawn(move || drop(ended.lock().map(|ended| ended.recv())))
        })
        .collect();
    let machine = topology::discover(&Root::live()).expect("a machine").topology;
    let own = Pid(std::process::id());
    let mut tasks = Tasks::new(Root::live(), own, None);
    for _ in 0..2 {
        let births = Births::default();
        let seen = tasks.observe(&machine, births).expect("this process lives");
        assert!(seen[0].threads.len() as u64 > ALLOWED, "{}", seen[0].threads.len());
    }
    let next = File::open("/proc/self/stat").expect("one is left");
    assert!(!may_keep(next.as_fd()) && (next.as_raw_fd() as u64) < ALLOWED, "{next:?}");
    drop(end);
    threads.into_iter().for_each(|thread| thread.join().expect("it waits"));
}
