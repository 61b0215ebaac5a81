//! Events leave descriptors for everything else. A process of its own, for what is left holds for
//! all of it.

use std::fs::File;
use std::os::fd::AsRawFd;

use rondpoint_linux::perf::attr::{Attr, SW_TASK_CLOCK, TYPE_SOFTWARE};
use rondpoint_linux::syscall::perf::{Target, leave_descriptors, open};

#[test]
fn events_leave_descriptors_for_files() {
    const ALLOWED: u64 = 64;
    leave_descriptors(ALLOWED);
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
